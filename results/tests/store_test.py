"""The store: what is loaded, what comes back, what is refused; in SQLite, and in PostgreSQL where Debian's is installed."""

import contextlib
import copy
import csv
import gzip
import io
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "results"), str(ROOT / "results" / "tests"), str(ROOT / "results" / "bench")]

import fleet  # noqa: E402
import fuzz_load  # noqa: E402
import postgres_server  # noqa: E402
import sample_runs  # noqa: E402
import sqlalchemy  # noqa: E402
from skidproof import cli, store as store_module  # noqa: E402
from skidproof.store import database, forms, load, reader, schema, values, verb  # noqa: E402
from store_contents import contents  # noqa: E402

HOSTILE = ["'; DROP TABLE runs; --", "<script>alert(1)</script>", "=cmd|'/c calc'!A1", "up{job=\"x\"} or vector(1)", 
           "tab\there\nnew\r line \\N \\.", "nul\0byte", "lone \ud800 surrogate", "Ünïcode 漢字 🙂", "%s %(x)s {0} $1 :name ?",
           "x" * 5000, "\x1b[2J", "-1+1", "@SUM(A1)"]


def run_of(run_id="r1", machine="native", seed=1, **fields):
    """A run with a measurement, a test and an end."""
    fields = {"host": "lab1"} | fields
    rows = [sample_runs.run_row(machine, run_id) | {"seed": seed, "started": "2026-11-01T01:00:00.000Z"},
            sample_runs.machine_row(machine, "silicon", **fields),
            sample_runs.measurement(machine, "memory.latency", 1.5, "ns", 1.4, 1.6, bytes=4096, page="4KiB"),
            sample_runs.measurement(machine, "memory.latency", 2.5, "ns", None, None, bytes=8192, page="4KiB")]
    for index in range(4):
        rows += sample_runs.test_rows(machine, f"Suite.Test{index}", evidence={"records": 5 + index, "compared": {"a == b": {"seen": 1}}})
    return rows + [sample_runs.end_row(machine, rows) | {"finished": "2026-11-01T01:10:00.000Z"}]


def text_of(rows):
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def invented_files():
    """Texts of results files of all kinds."""
    yield text_of(sample_runs.model_run())
    yield text_of(sample_runs.native_run())
    yield text_of(run_of())
    values, facts, _ = fleet.simulate(3, 2, 4, 6)
    for machine in range(2):
        yield fleet.machine_file(3, machine, values[machine], facts[machine], fleet.figure_list(6))
    program = os.environ.get("SKIDPROOF_RESULTS_SAMPLES")
    if program:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "samples.jsonl"
            subprocess.run([program, path], check=True)
            yield path.read_text(encoding="utf-8")


def without_forms():
    """The reader parses every line."""
    return mock.patch.object(forms, "module", None)


def hostile_measurements(words):
    """Two nights with the words in all places of a measurement, and numbers of all kinds."""
    texts = []
    for night in range(2):
        rows = run_of(f"hostile {night} {words}")[:2]
        for number, value in enumerate((0, -0.0, 5, -17, 1e-9, 1e22, 123456789012345678, 0.1 + 0.2, 5e-324, 1.7976931348623157e308)):
            for place in ("name", "unit", "interval", "statistic", "parameters", None):
                row = sample_runs.measurement("native", f"figure {number} {place}", value, "ns", value, None, bytes=number)
                row["noise"] = {"involuntary_switches": number, "migrations": 0, "smi": 0, "steal_s": abs(value) if number < 4 else 0.5}
                if place:
                    row[place] = {words: f"{words}}}"} if place == "parameters" else words
                rows.append(row)
        text = text_of(rows)
        texts.append(text if night else text.replace("\n", "\r\n"))
    return "".join(texts)


def rows_in(text):
    """The rows of each run of a file, by id."""
    found = {}
    for line in text.splitlines():
        row = json.loads(line)
        if row["type"] == "run":
            rows = found[row["id"]] = []
        rows.append(row)
    return found


def half_numbers(lines):
    """The run once for each text that is nearly a number, which stands behind a colon of each of its lines."""
    out = []
    for number, words in enumerate((b"6.", b"1e", b"1e+", b"-", b".5", b"1.e5", b"-.1", b"6.1e", b"0x1")):
        head = json.loads(lines[0]) | {"id": f"half-{number}"}
        out.append(json.dumps(head, separators=(",", ":")).encode())
        out += [re.sub(rb'"(value|low|high|n|duration_s|iterations|steal_s|rate)":-?[0-9.]+', rb'"\1":' + words, line, count=1 + at % 3)
                for at, line in enumerate(lines[1:])]
    return b"\n".join(out) + b"\n"


class Case(unittest.TestCase):
    """A temporary folder, and what runs the verb."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="skidproof-store-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.number = 0

    def file(self, text, name=None):
        self.number += 1
        path = self.folder / (name or f"{self.number}.jsonl")
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return str(path)

    def verb(self, *arguments, expect=0):
        """(standard output, standard error) of `skidproof store …`."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = verb.main(list(map(str, arguments)))
            except cli.Complaint as complaint:
                cli.complain(complaint.message, complaint.advice)
                code = complaint.exit_code
            except SystemExit as stop:
                code = stop.code
        self.assertEqual(code, expect, err.getvalue())
        return out.getvalue(), err.getvalue()


class StoreCases:
    """All that holds for both databases; new_store() gives the name of an empty one."""

    BROKEN_FILES = 60

    def add(self, *paths, expect=0, store=None, jobs=1):
        """The JSON summary of `store add`."""
        out, self.said = self.verb("add", "--store", store or self.store, "--jobs", jobs, "--json", "-", *paths, expect=expect)
        return json.loads(out)

    def add_text(self, text, **rest):
        return self.add(self.file(text), **rest)

    def open(self):
        return store_module.open(self.store)

    def held(self, keep=False, name=None):
        return contents(database.open_engine(name or self.store)[0], keep)

    def engine(self):
        return database.open_engine(self.store)[0]

    # What is loaded comes back.

    def test_rows_come_back_as_they_were_in_their_order(self):
        for text in invented_files():
            with self.subTest(text[:80]):
                self.store = self.new_store()
                self.add_text(text)
                with self.open() as store:
                    for run, rows in rows_in(text).items():
                        self.assertEqual(store.run_rows(run), rows)

    def test_known_forms_load_as_unknown_ones_do(self):
        """The short way (no parsing) against the long way, row for row in all tables."""
        self.assertIsNotNone(forms.module, "skidproof_forms is built, and $SKIDPROOF_FORMS says where")
        paths = [self.file(text) for text in invented_files()]
        self.add(*paths)
        short = self.held(keep=True)
        self.store = self.new_store()
        with without_forms():
            self.add(*paths)
        long = self.held(keep=True)
        for table in short:
            if table != "run_lines":
                self.assertEqual(short[table], long[table], table)
        self.assertGreater(len(short["measurements"]), 100)
        self.assertGreater(len(short["evidence"]), 100)

    def test_known_forms_load_as_unknown_ones_do_in_broken_files(self):
        """The same of files with broken, doubled, torn and hostile lines; what is said of them is the same too."""
        chance, runs = random.Random(7), fuzz_load.originals()
        files = [fuzz_load.make_file(chance, runs, number) for number in range(self.BROKEN_FILES)]
        files += [half_numbers(lines) for lines in runs]
        files += [hostile_measurements(words).encode("utf-8", "surrogatepass") for words in HOSTILE]
        found = []
        for forms_known in (True, False):
            self.store = self.new_store()
            with contextlib.nullcontext() if forms_known else without_forms():
                engine, url = database.open_engine(self.store, create=True)
                loader = load.Loader(engine, url)
                said = []
                for number, data in enumerate(files):
                    with mock.patch.object(reader, "BLOCK", (1 << 17, 1000, 50)[number % 3]):
                        report = loader.load("x", io.BytesIO(data))
                    said.append((report.rows, report.lost, [(problem.line, problem.words) for problem in report.problems]))
                loader.finish()
                with self.open() as store:
                    rows = {run: store.run_rows(run) for run in store.runs().id}
                loader.close()
            held = self.held(keep=True)
            del held["run_lines"]
            found.append((said, rows, held))
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual(found[0][1], found[1][1])
        self.assertEqual(found[0][2], found[1][2])
        self.assertGreater(len(found[0][2]["measurements"]), 500)

    def test_columns_say_what_rows_say(self):
        self.add_text(text_of(run_of(microcode="0x2a", os="Linux 6.1", bios="Sample 1.0")))
        with self.open() as store:
            subject = store.subjects().iloc[0]
            self.assertEqual((subject.host, subject.machine, subject.provenance, subject.microcode, subject.os, subject.bios, subject.runs),
                             ("lab1", "native", "native", "0x2a", "Linux 6.1", "Sample 1.0", 1))
            self.assertEqual((subject["pass"], subject.fail), (4, 0))
            history = store.history(subject.subject)
            self.assertEqual(list(history.value), [1.5, 2.5])
            self.assertEqual(list(history.parameters), ['{"bytes":4096,"page":"4KiB"}', '{"bytes":8192,"page":"4KiB"}'])
            self.assertEqual(str(history.started[0]), "2026-11-01 01:00:00+00:00")
            self.assertTrue(history.low.isna()[1])
            verdicts = store.verdicts(subject.subject)
            self.assertEqual(list(verdicts.id), [f"Suite.Test{index}" for index in range(4)])
            self.assertEqual(set(verdicts.status), {"pass"})
            evidence, _ = store.query("evidence", test="Suite.Test2")
            self.assertEqual(dict(zip(evidence.name, evidence.value)), {"records": 7.0, "compared/a == b": 1.0})
            self.assertEqual(store.facts(subject.subject).version[0], "0.1.0")

    def test_errata_defects_and_the_rest_are_columns(self):
        text = next((t for t in invented_files() if '"erratum"' in t and '"qualification"' in t), None)
        self.assertIsNotNone(text, "SKIDPROOF_RESULTS_SAMPLES names the program that writes one row of every type")
        self.add_text(text)
        rows = [row for rows in rows_in(text).values() for row in rows]
        failures = {row["id"]: row["failures"] for row in reversed(rows) if row["type"] == "test"}  # the first verdict of each counts
        held = self.held()
        for table, kinds in (("errata", ("erratum",)), ("defects", ("defect",)), ("qualifications", ("qualification",)),
                             ("unmeasured", ("unmeasured",)), ("other_rows", ("fuzz", "inventory", "errata-summary", "qualification-shard")),
                             ("failures", ())):
            expected = sum(row["type"] in kinds for row in rows) if kinds else sum(map(len, failures.values()))
            self.assertEqual(held[table][0], expected, table)
        with self.open() as store:
            row = next(row for row in rows if row["type"] == "erratum")
            listed = store.errata().query("id == @row['id']").iloc[0]
            self.assertEqual((listed.listed, listed.observed, listed.title), (row["listed"], row["observed"], row["title"]))

    def test_a_schema_that_only_looks_like_one_is_none(self):
        for said in (True, 1.0, "1", None, 2):
            rows = run_of(f"schema {said}")
            rows[0]["schema"] = said
            self.add_text(text_of(rows), expect=2)
        with self.open() as store:
            self.assertEqual(len(store.runs()), 0)

    def test_hostile_strings_are_data(self):
        self.add(*(self.file(text_of(run_of(f"{place}{number}", **{place: words})))
                   for place in ("host", "brand", "os") for number, words in enumerate(HOSTILE)))
        runs = []
        for number, words in enumerate(HOSTILE):
            rows = run_of(f"id {number} {words}", machine=f"m {words}")
            rows[2]["name"] = rows[3]["unit"] = rows[2]["interval"] = words
            rows[2]["parameters"] = {words: words}
            rows[5] |= {"id": words, "clauses": [words], "evidence": {words: words, "compared": {words: {"seen": words}}},
                        "failures": [words], "status": "fail", "reason": words}
            runs.append((words, rows))
        self.add(*(self.file(text_of(rows)) for _, rows in runs))
        with self.open() as store:
            for words, rows in runs:
                self.assertEqual(store.run_rows(values.key_text(rows[0]["id"])), rows)
                frame, _ = store.query("failures", test=values.key_text(words).replace("[", "[[]").replace("?", "[?]"))
                self.assertIn(values.clean(words), list(frame.message))
        out, _ = self.verb("query", "machines", "--store", self.store, "--limit", 0, "--csv", "-")
        for row in csv.reader(io.StringIO(out, newline="")):
            self.assertFalse([cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))])
        self.verb("query", "machines", "--store", self.store, "--machine", HOSTILE[0])
        self.assertEqual(self.verb("query", "runs", "--store", self.store, "--run", "' OR '1'='1")[0], "nothing\n")

    # The same again, more of it, less of it, something else.

    def test_the_same_run_again_changes_nothing(self):
        paths = [self.file(text) for text in invented_files()]
        first = self.add(*paths)
        held = self.held()
        second = self.add(*paths)
        self.assertEqual(first["runs"]["loaded"], second["runs"]["there"])
        self.assertEqual(second["runs"]["loaded"], 0)
        self.assertEqual(self.held(), held)
        respelled = "".join(json.dumps(json.loads(line), indent=None) + "\n" for line in pathlib.Path(paths[2]).read_text().splitlines())
        self.assertEqual(self.add_text(respelled)["runs"]["there"], 1)

    def test_a_run_that_was_cut_short_grows_and_never_shrinks(self):
        for rows in (run_of(), sample_runs.model_run()):
            whole = text_of(rows)
            self.store = self.new_store()
            self.add_text(whole)
            clean = self.held(keep=True)
            self.store = self.new_store()
            cut = whole[:len(whole) * 2 // 3]
            summary = self.add_text(cut, expect=2)
            self.assertIn("breaks off", self.said)
            self.assertEqual(summary["runs"]["loaded"], 1)
            with self.open() as store:
                self.assertEqual(store.run_rows(rows[0]["id"]), [json.loads(line) for line in cut.splitlines()[:-1]])
                self.assertFalse(store.runs().whole[0])
            self.assertEqual(self.add_text(whole)["runs"]["extended"], 1)
            self.assertEqual(self.held(keep=True)["verdicts"], clean["verdicts"])
            self.assertEqual(self.add_text(cut, expect=2)["runs"]["shorter"], 1)
            self.assertEqual(self.held(keep=True), clean)

    def test_another_run_of_the_same_id_is_refused_and_the_others_are_loaded(self):
        self.add_text(text_of(run_of("r1")))
        held = self.held(keep=True)
        summary = self.add_text(text_of(run_of("r2")) + text_of(run_of("r1", seed=2)) + text_of(run_of("r3")), expect=2)
        self.assertEqual(summary["files"][0]["runs"]["refused"], ["r1"])
        self.assertEqual(summary["files"][0]["runs"]["loaded"], ["r2", "r3"])
        self.assertIn("run r1 is not loaded", self.said)
        middle = run_of("r1")
        middle[2] = middle[2] | {"value": 9.75}
        self.assertEqual(self.add_text(text_of(middle), expect=2)["runs"]["refused"], 1)
        self.assertLess(set(held["verdicts"]), set(self.held(keep=True)["verdicts"]))

    # Bad input.

    def test_bad_lines_are_named_and_the_rest_is_loaded(self):
        good = text_of(run_of()).splitlines()
        bad = ['{"type":"test"', "[1,2]", '{"type":"unheard-of","machine":"native"}', "NaN", '{"type":"measurement","machine":"native"}',
               good[2].replace("1.5", "NaN"), "[" * 100000, '{"type":"test","machine":"native","id":"x","status":"splendid"}', good[2][:-9]]
        text = good[:3]
        for number, line in enumerate(bad):
            text += [line, good[3 + number]] if 3 + number < len(good) - 1 else [line]
        text += good[3 + len(bad):-1] + [good[-1]]
        summary = self.add_text("\n".join(text) + "\n\xff\xfe broken\n", expect=2)
        named = {problem["line"] for problem in summary["files"][0]["problems"] if problem["lost"]}
        expected = {number for number, line in enumerate(text, start=1) if line in bad} | {len(text) + 1}
        self.assertEqual(named, expected)
        with self.open() as store:
            self.assertEqual(store.run_rows("r1"), [json.loads(line) for line in good])

    def test_wrong_schema_empty_and_headless_files(self):
        first, second = run_of("new"), run_of("r1")
        first[0]["schema"] = 2
        summary = self.add_text(text_of(first) + text_of(second), expect=2)
        self.assertEqual(summary["runs"]["loaded"], 1)
        self.assertIn("schema 2", self.said)
        self.assertIn(f"{len(first) - 1} rows up to line {len(first)} not loaded", self.said)
        self.add_text("", expect=2)
        self.assertIn("is empty", self.said)
        self.add_text(text_of(first[1:]), expect=2)
        self.assertIn("no `run` row stands before it", self.said)
        self.assertEqual(self.held()["runs"][0], 1)

    def test_a_clock_that_goes_backwards_is_loaded_and_said(self):
        rows = run_of()
        rows[-1]["finished"] = "2026-10-31T23:00:00.000Z"
        summary = self.add_text(text_of(rows))
        self.assertEqual(summary["runs"]["loaded"], 1)
        self.assertIn("clock went backwards", self.said)

    def test_two_writers_of_one_file(self):
        first, second = run_of("r1", "native"), run_of("r2", "direct")
        mixed = first[:4] + second[:4] + first[4:8] + second[4:] + first[8:]
        summary = self.add_text(text_of(mixed))
        self.assertEqual(summary["runs"]["loaded"], 2)
        self.assertIn(f":{9}: note: a row of run r1 among those of another", self.said)
        with self.open() as store:
            self.assertEqual(store.run_rows("r1"), first)
            self.assertEqual(store.run_rows("r2"), second)

    def test_two_writers_of_one_machine_end_at_their_last_good_row(self):
        first, second = run_of("r1"), run_of("r2")
        starts = [first[:6], second[:6], first[6:7], second[6:7]]
        text = text_of([row for part in starts for row in part] + first[7:] + second[7:])
        summary = self.add_text(text, expect=2)
        self.assertIn("mixed", self.said)
        self.assertEqual(summary["runs"]["loaded"], 2)
        with self.open() as store:
            for run, rows in (("r1", first), ("r2", second)):
                stored = store.run_rows(run)
                self.assertEqual(stored[:6], rows[:6])
                self.assertLess(len(stored), len(rows))

    def test_figures_and_verdicts_that_come_twice_are_kept_as_rows(self):
        rows = run_of()
        rows[4:4] = [copy.deepcopy(rows[2]) | {"value": 7.0}]
        rows[-1:-1] = rows[5:7]
        self.add_text(text_of(rows))
        self.assertIn("a second time", self.said)
        self.assertIn("a second verdict", self.said)
        with self.open() as store:
            self.assertEqual(store.run_rows("r1"), rows)
            self.assertEqual(list(store.history(1).value), [1.5, 2.5])

    def test_results_among_the_parameters_are_no_part_of_a_figure(self):
        nights = [run_of("r1"), run_of("r2")]
        for rows, cycles, verdict in zip(nights, (1.01, 0.97), ("fused", "unclear")):
            rows[2]["parameters"] = {"pair": "cmp + je", "slot_cycles": cycles, "verdict": verdict}
        self.add_text(text_of(nights[0] + nights[1]))
        with self.open() as store:
            self.assertEqual([store.run_rows("r1"), store.run_rows("r2")], nights)
            history = store.history(1)
            one = history[history.parameters.str.contains("pair")]
            self.assertEqual((len(one), one.figure.nunique(), set(one.parameters)), (2, 1, {'{"pair":"cmp + je"}'}))

    def test_packed_files_and_standard_input(self):
        text = text_of(run_of()).encode()
        packed = self.file(gzip.compress(text), "a.jsonl.gz")
        self.assertEqual(self.add(packed)["runs"]["loaded"], 1)
        with mock.patch("sys.stdin", mock.Mock(buffer=io.BytesIO(text))):
            self.assertEqual(self.add("-")["runs"]["there"], 1)
        self.add(self.file(gzip.compress(text_of(run_of("r2")).encode() * 1)[:-20], "b.jsonl.gz"), expect=2)
        self.assertIn("unpacking it ends early", self.said)

    # Long runs, in pieces.

    def test_long_runs_load_as_short_ones_do(self):
        paths = [self.file(text) for text in invented_files()]
        self.add(*paths)
        short = self.held(keep=True)
        self.store = self.new_store()
        with mock.patch.object(reader, "PIECE", 2000), mock.patch.object(load, "PIECE", 2000):
            self.add(*paths)
            long = self.held(keep=True)
            self.assertEqual(short, long)
            again = self.add(*paths)
            self.assertEqual(again["runs"]["loaded"], 0)
            self.assertEqual(again["runs"]["there"], len(short["runs"]))
        self.store = self.new_store()
        text = text_of(sample_runs.model_run())
        cut = text[:text.index("\n", len(text) * 3 // 4) + 1]
        with mock.patch.object(reader, "PIECE", 2000), mock.patch.object(load, "PIECE", 2000):
            self.add_text(cut)
            self.assertEqual(self.add_text(text)["runs"]["extended"], 1)
            self.assertEqual(self.add_text(cut)["runs"]["shorter"], 1)
            self.assertEqual(self.add_text(text.replace('"seed":1,', '"seed":2,', 1), expect=2)["runs"]["refused"], 1)
        with self.open() as store:
            self.assertEqual(store.run_rows("sample-model"), [json.loads(line) for line in text.splitlines()])

    def test_memory_stays_bounded(self):
        """A run of 60 MB needs no 60 MB more than one of a few rows."""
        rows = run_of()
        path = self.folder / "large.jsonl"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text_of(rows[:2]))
            for number in range(60):
                test = sample_runs.test_rows("native", f"Suite.Large{number}", evidence={"trace": "x" * 1_000_000})
                stream.write(text_of(test))
        code = ("import resource, sys; sys.path.insert(0, sys.argv[1]); from skidproof.store import verb; code = verb.main(sys.argv[2:]); "
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)")
        used = []
        for name in (self.file(text_of(run_of("small"))), str(path)):
            done = subprocess.run([sys.executable, "-B", "-c", code, str(ROOT / "results"), "add", "--jobs", "1", "--store", self.store,
                                   name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            used.append(int(done.stdout.split()[-1]))
        self.assertLess(used[1] - used[0], 60_000, "kB")

    # At once, and with an end.

    def test_concurrent_loaders_lose_nothing(self):
        folder = self.folder / "fleet"
        files = list(map(str, fleet.write(folder, 5, 6, 6, 5, jobs=1)))
        self.add(*files)
        clean = self.held()
        self.store = self.new_store()
        self.add(files[0])
        mixed = [files, files[::-1], files[2:] + files[:2]]
        context = multiprocessing.get_context("fork")
        loaders = [context.Process(target=_load_quietly, args=(self.store, some)) for some in mixed]
        for loader in loaders:
            loader.start()
        for loader in loaders:
            loader.join(120)
        self.assertEqual([loader.exitcode for loader in loaders], [0, 0, 0])
        self.assertEqual(self.held(), clean)

    def test_several_processes_load_as_one_does(self):
        files = list(map(str, fleet.write(self.folder / "fleet", 5, 4, 4, 5, jobs=1)))
        self.add(*files)
        clean = self.held()
        self.store = self.new_store()
        summary = self.add(*files, jobs=3)
        self.assertEqual([one["path"] for one in summary["files"]], files)
        self.assertEqual(self.held(), clean)

    def test_killed_loaders_leave_whole_runs(self):
        files = list(map(str, fleet.write(self.folder / "fleet", 5, 4, 10, 10, jobs=1)))
        self.add(*files)
        clean = self.held()
        self.store = self.new_store()
        self.add(files[0])
        chance = random.Random(1)
        program = [sys.executable, "-B", str(ROOT / "results" / "skidproof"), "store", "add", "--store", self.store, "--jobs", "2", *files]
        for _ in range(4):
            with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as loader:
                time.sleep(chance.uniform(0.2, 0.9))
                loader.send_signal(signal.SIGKILL)
            with self.open() as store:
                for run in store.runs().itertuples():
                    self.assertEqual(len(store.run_rows(run.id)), run.row_count)
        self.add(*files)
        self.assertEqual(self.held(), clean)

    # Questions.

    def test_queries_filter_and_page(self):
        self.add(*map(str, fleet.write(self.folder / "fleet", 5, 3, 5, 6, jobs=1)))
        with self.open() as store:
            everything, cursor = store.query("measurements", limit=None)
            self.assertIsNone(cursor)
            self.assertEqual(len(everything), 3 * 5 * 6)
            paged, cursor = [], None
            while True:
                frame, cursor = store.query("measurements", limit=7, after=cursor)
                paged += frame.itertuples(index=False)
                if cursor is None:
                    break
            self.assertEqual([tuple(row) for row in paged], [tuple(row) for row in everything.itertuples(index=False)])
            self.assertEqual(len(store.query("measurements", machine="lab0001")[0]), 30)
            self.assertEqual(len(store.query("measurements", machine="lab*", figure="memory.*")[0]), 90)
            self.assertEqual(len(store.query("measurements", figure="nothing*")[0]), 0)
            since, until = query_moment("2026-01-06"), query_moment("2026-01-08")
            self.assertEqual(len(store.query("runs", since=since, until=until)[0]), 6)
            self.assertEqual(len(store.query("tests", run=everything.run[0])[0]), 10)
            for kind in verb.KINDS:
                store.query(kind, machine="direct", limit=3)
            for bad in ({"after": "x"}, {"after": "WzFd"}, {"status": "splendid"}, {"erratum": "X1"}, {"test": "x"}):
                with self.assertRaises(cli.Complaint):
                    store.query("measurements", **bad)
        out, said = self.verb("query", "tests", "--store", self.store, "--status", "pass", "--limit", 3, "--json", "-")
        page = json.loads(out)
        self.assertEqual((len(page["rows"]), page["rows"][0]["status"]), (3, "pass"))
        out, _ = self.verb("query", "tests", "--store", self.store, "--status", "pass", "--limit", 3, "--json", "-", "--after",
                           page["after"])
        self.assertNotIn(page["rows"][-1], json.loads(out)["rows"])
        _, said = self.verb("query", "runs", "--store", self.store, "--limit", 2)
        self.assertIn("more: --after", said)

    def test_pages_never_hold_everything(self):
        self.add(*map(str, fleet.write(self.folder / "fleet", 5, 2, 5, 6, jobs=1)))
        from skidproof.store import query
        with self.open() as store, mock.patch.object(query, "PAGE", 8):
            sizes = [len(rows) for _, rows, _ in store.pages("measurements", limit=None)]
        self.assertEqual((max(sizes), sum(sizes)), (8, 60))

    def test_the_sql_of_the_documentation_runs(self):
        self.add(*map(str, fleet.write(self.folder / "fleet", 5, 1, 5, 6, jobs=1)))
        page = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
        examples = [block.split("```")[0] for block in page.split("```sql\n")[1:]]
        self.assertEqual(len(examples), 3)
        with self.engine().connect() as connection:
            answers = [connection.exec_driver_sql(sql.replace("lab0042", "lab0000")).fetchall() for sql in examples]
        self.assertEqual(len(answers[0]), 5)

    # Old runs.

    def test_prune_removes_whole_runs_and_nothing_else(self):
        files = list(map(str, fleet.write(self.folder / "fleet", 5, 3, 6, 5, jobs=1)))
        self.add(*files)
        everything = self.held()
        listed = self.verb("prune", "--store", self.store, "--keep-nights", 2, "--dry-run")[0]
        self.assertIn("12 runs", listed)
        self.assertEqual(self.held(), everything)
        self.verb("prune", "--store", self.store, "--keep-nights", 2)
        held = self.held()
        self.assertEqual((held["runs"][0], held["measurements"][0], held["verdicts"][0]), (6, 30, 60))
        self.verb("prune", "--store", self.store, "--before", "2026-01-10")
        self.assertEqual(self.held()["runs"][0], 3)
        with self.open() as store:
            run = store.runs().id[0]
        self.verb("prune", "--store", self.store, "--run", run, "--run", "not there", expect=64)
        held = self.held()
        self.assertEqual((held["runs"][0], held["run_lines"][0], held["evidence"][0] > 0), (2, 2 * 28, True))
        self.add(*files)
        self.assertEqual(self.held(), everything)
        for bad in (("--before", "yesterday"), ("--keep-nights", "0"), ()):
            self.verb("prune", "--store", self.store, *bad, expect=64)

    def test_change_points_are_kept_and_go_with_their_runs(self):
        self.add_text(text_of(run_of("r1")) + text_of(run_of("r2")))
        point = {"subject": 1, "figure": 1, "before_run": 1, "after_run": 2, "before": 1.5, "after": 2.0, "effect": 5.0, "low": 0.4,
                 "high": 0.6, "p": 1e-6, "attributed": [["microcode", "0x1", "0x2"]], "computed": None}
        with self.open() as store:
            store.replace_change_points([point])
            found = store.change_points(1).iloc[0]
            self.assertEqual((found.after_id, found.attributed, found["name"]), ("r2", [["microcode", "0x1", "0x2"]], "memory.latency"))
            self.assertEqual(store.fleet().change_points[0], 1)
        self.verb("prune", "--store", self.store, "--run", "r1")
        with self.open() as store:
            self.assertEqual(len(store.change_points()), 0)

    # Versions.

    def test_migrations_make_what_the_schema_says(self):
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext
        engine = database.open_engine(self.store, create=True)[0]
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
            self.assertEqual(compare_metadata(context, schema.metadata), [])
        self.assertEqual(database.revisions()[-1][0], schema.REVISION)

    def test_older_and_newer_stores(self):
        engine = database.engine_of(database.location(self.store))
        database.migrate(engine, "0001")
        path = self.file(text_of(run_of()))
        _, said = self.verb("add", "--store", self.store, path, expect=2)
        self.assertIn("skidproof store migrate", said)
        out, _ = self.verb("migrate", "--store", self.store, "--dry-run")
        self.assertIn("would do: 0002", out)
        self.verb("add", "--store", self.store, path, expect=2)
        self.verb("migrate", "--store", self.store)
        self.verb("add", "--store", self.store, path)
        self.assertIn("up to date", self.verb("migrate", "--store", self.store)[0])
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        for action in (("add", path), ("query", "runs"), ("migrate",), ("prune", "--keep-nights", "1")):
            _, said = self.verb(action[0], "--store", self.store, *action[1:], expect=2)
            self.assertIn("newer skidproof", said)

    def test_another_programs_tables_are_left_alone(self):
        engine = database.engine_of(database.location(self.store))
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE recipes (name TEXT)")
        _, said = self.verb("add", "--store", self.store, self.file(text_of(run_of())), expect=2)
        self.assertIn("another program's tables", said)

    def test_a_reader_cannot_write(self):
        self.add_text(text_of(run_of()))
        with self.open() as store, self.assertRaises(sqlalchemy.exc.DBAPIError), store.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM measurements")


def query_moment(words):
    from skidproof.store import query
    return query.moment(words)


def _load_quietly(name, files):
    with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        code = verb.main(["add", "--store", name, "--jobs", "1", *files])
    os._exit(code)


class SqliteStoreTest(StoreCases, Case):
    def setUp(self):
        super().setUp()
        self.stores = 0
        self.store = self.new_store()

    def new_store(self):
        self.stores += 1
        return str(self.folder / f"store{self.stores}.db")

    def test_what_is_no_store(self):
        broken = self.file("this is no database, but it is long enough to be one\n" * 100, "broken.db")
        _, said = self.verb("query", "runs", "--store", broken, expect=2)
        self.assertIn("is not an SQLite database", said)
        self.assertTrue(pathlib.Path(broken).read_text().startswith("this is no database"))
        _, said = self.verb("query", "runs", "--store", self.folder / "missing.db", expect=64)
        self.assertIn("there is no store", said)
        self.assertFalse((self.folder / "missing.db").exists())
        for name, words in (("mysql://u:secret@h/d", "not supported"), ("sqlite://", "needs a file"), (str(self.folder), "is a folder")):
            _, said = self.verb("add", "--store", name, broken, expect=64)
            self.assertIn(words, said)
            self.assertNotIn("secret", said)
        for bad in (["query", "bogus"], ["add", "--jobs", "0"], [], ["add", str(self.folder / "nothing.jsonl")],
                    ["query", "runs", "--since", "later", "--store", self.store]):
            self.verb(*bad, expect=64)

    def test_a_full_disk_leaves_what_was_whole(self):
        files = list(map(str, fleet.write(self.folder / "fleet", 5, 4, 40, 20, jobs=1)))
        self.add(*files)
        clean = self.held()
        self.store = self.new_store()
        self.add(files[0])

        def no_more():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            size = max(os.path.getsize(path) for path in map(str, self.folder.glob(f"{pathlib.Path(self.store).name}*"))) + 100_000
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = subprocess.run([sys.executable, "-B", str(ROOT / "results" / "skidproof"), "store", "add", "--store", self.store, *files],
                              preexec_fn=no_more, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.strip().splitlines()), 2, done.stderr)
        self.assertIn("skidproof: ", done.stderr)
        with self.open() as store:
            for run in store.runs().itertuples():
                self.assertEqual(len(store.run_rows(run.id)), run.row_count)
        self.add(*files)
        self.assertEqual(self.held(), clean)

    def test_errors_in_plain_words(self):
        url = database.location("x.db")
        for words, expected in (("database or disk is full", "disk is full"), ("attempt to write a readonly database", "cannot be written"),
                                ("database disk image is malformed", "is damaged"), ("unable to open database file", "cannot be opened"),
                                ("database is locked", "in use")):
            complaint = database.complaint(url, sqlite3.OperationalError(words))
            self.assertIn(expected, complaint.message)
            self.assertTrue(complaint.advice)

    def test_the_environment_names_the_store(self):
        with mock.patch.dict(os.environ, {"SKIDPROOF_STORE": self.store}):
            self.verb("add", self.file(text_of(run_of())))
            self.assertIn("r1", self.verb("query", "runs")[0])
        self.assertTrue(pathlib.Path(self.store).exists())

    def test_fuzzed_files(self):
        """A bounded part of results/bench/fuzz_load.py."""
        tally = fuzz_load.fuzz(seed=1, files=60, folder=self.folder)
        self.assertEqual(tally["files"], 60)
        self.assertGreater(tally["rows"], 500)


@unittest.skipUnless(postgres_server.programs(), "Debian's postgresql is not installed: apt-get install postgresql")
class PostgresStoreTest(StoreCases, Case):
    BROKEN_FILES = 20  # what is broken is seen before a database is

    @classmethod
    def setUpClass(cls):
        cls.server = postgres_server.Server({"fsync": "off"}).start()
        cls.addClassCleanup(cls.server.stop)
        cls.databases = 0

    def setUp(self):
        super().setUp()
        self.store = self.new_store()

    def new_store(self):
        PostgresStoreTest.databases += 1
        return self.server.create(f"store{self.databases}")

    def test_what_is_no_store(self):
        _, said = self.verb("query", "runs", "--store", self.server.url("missing"), expect=2)
        self.assertIn("createdb missing", said)
        _, said = self.verb("query", "runs", "--store", "postgresql://u:secret@127.0.0.1:1/x", expect=2)
        self.assertIn("does not answer", said)
        self.assertNotIn("secret", said)
        _, said = self.verb("query", "runs", "--store", self.store, expect=2)
        self.assertIn("holds no results yet", said)

    def test_a_database_that_goes_away_is_said_and_nothing_is_half_loaded(self):
        text = text_of(run_of())
        self.add_text(text_of(run_of("r0")))
        engine, url = database.open_engine(self.store)
        loader = load.Loader(engine, url)
        loader.load("x", io.BytesIO(text.encode()))
        with self.engine().connect() as connection:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skidproof' "
                                       "AND pid <> pg_backend_pid()")
        with self.assertRaises(cli.Complaint) as raised, database.plain_words(url):
            loader.flush()
        self.assertIn("went away", raised.exception.message)
        self.assertEqual(self.held()["runs"][0], 1)
        self.assertEqual(self.add_text(text)["runs"]["loaded"], 1)


if __name__ == "__main__":
    unittest.main()
