"""Takes results files apart into runs and the columns of their rows, in bounded memory, and says what is wrong with them.

The rows come out with the ids of `Dictionaries`, which the loader turns into the database's.
"""

import dataclasses
import io
import json

from skidproof import rows as rows_module
from skidproof.store import forms
from skidproof.store.forms import MEASUREMENT_KEYS, NOISE, TEST_HEAD_KEYS, TEST_SPLIT, Shape, TestShape
from skidproof.store.run_rows import RunRows
from skidproof.store.values import (INT32, bool_or_none, clean, decode, int_or_none, json_or_none, key_text, real_or_none, seed_text,
                                    text_or_none, time_or_none)

BLOCK = 1 << 17        # bytes of a file that are taken apart at once
PIECE = 8 << 20        # bytes of a run's lines that are kept before the loader takes them
LONGEST_LINE = 64 << 20
OPEN_RUNS = 16         # runs of one file without an end row that further rows are looked up in
PROBLEMS_KEPT = 100    # of one file
MACHINE_START = b'{"type":"machine",'


@dataclasses.dataclass
class Problem:
    line: int
    words: str
    lost: bool  # something of the file is not in the store


class Reader:
    """Reads one file. take(run, last) is called with every run: last=False when a piece of a long one is ready, which the loader
    takes with run.clear(); last=True when nothing more of it will come."""

    def __init__(self, source, dictionaries, take):
        self.source, self.dictionaries, self.take = source, dictionaries, take
        self.lines_of, self.key_of = (forms.module.Lines, forms.module.key_of) if forms.module else (forms.Lines, lambda line: None)
        self.current = None
        self.open = {}            # runs without an end row, oldest first; the key is their place
        self.lost_run = ""        # why the rows of the run that is read cannot be loaded
        self.stray = None         # first line, last line, number, why
        self.problems, self.problem_count, self.lost = [], 0, False
        self.rows = self.runs = self.bytes = 0
        self.handlers = {"machine": self._machine, "test-start": self._test_start, "test": self._test, "measurement": self._measurement,
                         "unmeasured": self._unmeasured, "defect": self._defect, "qualification": self._qualification,
                         "erratum": self._erratum, "fuzz": self._other, "inventory": self._other, "errata-summary": self._other,
                         "qualification-shard": self._other, "end": self._end}

    def problem(self, line, words, lost=True):
        self.problem_count += 1
        self.lost |= lost
        if len(self.problems) < PROBLEMS_KEPT or lost and not any(problem.lost for problem in self.problems):
            self.problems.append(Problem(line, words, lost))

    def read(self, stream, progress=None):
        """Reads the stream to its end."""
        number = 0
        for block in iter(lambda: stream.read(BLOCK), b""):
            if not block.endswith(b"\n"):
                block += stream.readline(LONGEST_LINE)
            items = self.lines_of(block, self.dictionaries.shapes)
            while True:
                run = self.current
                found = items.next(run is not None and bool(run.subjects), len(self.open) == 1)
                if found is None:
                    break
                if type(found) is bytes:
                    number += 1
                    if run is None or not (found.startswith(MACHINE_START) and self._known_machine(run, found)):
                        self._other_line(number, found, stream)
                elif self._known(run, found):
                    number += found.count
                else:
                    for line in io.BytesIO(found.raw):
                        number += 1
                        self._other_line(number, line, stream)
            self.bytes += len(block)
            for run in list(self.open.values()):
                if run.size > PIECE:
                    self._piece(run)
            if progress:
                progress(self.bytes)
        self._say_stray()
        for run in list(self.open.values()):
            self._close(run)
        if not self.rows and not self.runs and not self.problem_count:
            self.problem(0, "is empty: no rows")

    def _other_line(self, number, raw, stream):
        """Parses a line, unless it is too long for that or blank."""
        if len(raw) >= LONGEST_LINE and (len(raw) > LONGEST_LINE or not raw.endswith(b"\n")):
            rest = raw
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST_LINE)
                self.bytes += len(rest)
            self._bad(number, f"longer than {LONGEST_LINE >> 20} MB: that is no row", raw)
        elif raw.strip():
            self._line(number, raw)

    def _known(self, run, stretch):
        """Takes a stretch of known lines; False where something of it is new or comes again, so that they are to be parsed."""
        subjects, tests = run.subjects, stretch.tests
        keys = stretch.take(subjects)
        if keys is None or not all(shape.machine in subjects for shape, *_ in tests):
            return False
        keys += [hash(("test", subjects[shape.machine], shape.id, repetition)) for shape, repetition, *_ in tests]
        fresh = set(keys)
        if len(fresh) != len(keys) or not run.seen.isdisjoint(fresh):
            return False
        evidence = [self._evidence_of(said) for *_, said in tests]
        if None in evidence:
            return False
        run.seen |= fresh
        for (shape, repetition, duration, seed, iterations, comparisons, *tried, _), found in zip(tests, evidence):
            subject = subjects[shape.machine]
            run.count_verdict(subject, shape.status)
            run.add("verdicts", subject, shape.test, repetition, shape.status, *shape.said, duration, seed, iterations, comparisons, *tried)
            run.add("evidence", subject, shape.test, repetition, found)
        run.test_rows += len(tests)
        if stretch.test_open is not None:
            run.open_test = stretch.test_open
        run.stretches.append(stretch)
        run.lines.append(stretch)
        self._count(run, stretch.raw, stretch.count)
        return True

    def _evidence_of(self, said):
        """The rows that evidence in JSON makes; None where it is none."""
        found = self.dictionaries.lines.get(said)
        if found is None:
            try:
                found = self._evidence_rows(decode(said.decode("utf-8")))
            except (ValueError, RecursionError):
                return None
            self.dictionaries.remember_line(said, found)
        return found

    def _remember_test(self, raw, row, test):
        """So that the next one like this is known."""
        key = self.key_of(raw)
        if key is None:
            return
        try:
            head = decode(raw[:raw.find(TEST_SPLIT)].decode("utf-8") + "}")
        except (ValueError, RecursionError):
            return
        if head.keys() == TEST_HEAD_KEYS and all(head[name] == row[name] for name in TEST_HEAD_KEYS):
            reason = row["reason"]
            self.dictionaries.remember(key, TestShape(
                row["machine"], test, row["id"], row["status"],
                (text_or_none(row["skip_category"]), self._text(reason) if reason else None, text_or_none(row["erratum"]) or None)))

    def _known_machine(self, run, raw):
        """Takes a machine row that said the same in another run."""
        known = self.dictionaries.lines.get(raw)
        if known is None or len(self.open) > 1:
            return False
        run.claims.add(known[0])
        self._settle(run, *known)
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        return True

    def _line(self, number, raw):
        try:
            row = decode(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            torn = not raw.endswith(b"\n")
            what = "nested too deep" if isinstance(error, RecursionError) else f"not JSON ({error})"
            return self._bad(number, "the last line breaks off: writing was cut short" if torn else what, raw)
        problem = rows_module.row_problem(row)
        if problem:
            return self._bad(number, problem, raw, isinstance(row, dict) and row.get("type") == "run")
        if not raw.endswith(b"\n") and row["type"] == "run" and not row.get("id"):
            return self._bad(number, "a `run` row without an id", raw, True)
        if row["type"] == "run":
            return self._run(number, row, raw)
        run = self._run_of(number, row["machine"])
        if run is None:
            return None
        if self.handlers.get(row["type"], self._nothing)(run, number, row, raw) is not None:
            return None  # it stands for itself among the lines
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        if run.end is not None:
            self._close(run)
        return None

    def _count(self, run, raw, count=1):
        run.raw.append(raw)
        run.count += count
        run.size += len(raw)
        if run.size > PIECE and run.end is None:
            self._piece(run)

    def _piece(self, run):
        run.close_piece()
        self.take(run, False)
        run.clear()

    def _bad(self, number, words, raw, is_run=False):
        self.problem(number, words)
        if self.current is not None:
            self.current.damaged = True
            self.current.open_test = False
        if is_run or raw.startswith((b'{"type":"run",', b'{"type": "run",')):  # what follows is not of the run before
            self.current = None
            self.lost_run = "its `run` row is unusable"

    def _run(self, number, row, raw):
        self._say_stray()
        self.lost_run = ""
        if not row["id"]:
            return self._bad(number, "a `run` row without an id", raw, True)
        if len(self.open) >= OPEN_RUNS:
            self._close(next(iter(self.open.values())))
        for run in self.open.values():
            if run.id == key_text(row["id"]):
                self._close(run)
                break
        run = self.current = RunRows(row, self.source, number)
        self.open[number] = run
        self.runs += 1
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        if time_or_none(row.get("started")) is None:
            self.problem(number, f"run {run.id} does not say when it started", lost=False)
        return None

    def _run_of(self, number, machine):
        """The run that a row of this machine belongs to; None where there is none."""
        run = self.current
        if run is not None and (len(self.open) == 1 or machine in run.claims):
            return run
        others = [other for other in self.open.values() if machine in other.claims]
        if run is not None and not others:
            return run
        if others and not self.lost_run:
            run = others[-1]
            if not run.damaged:
                run.damaged = True
                self.problem(number, f"a row of run {run.id} among those of another: two programs wrote this file at once", lost=False)
            return run
        why = self.lost_run or ("its run had ended: two programs may have written this file" if self.runs else
                                "no `run` row stands before it")
        if self.stray and self.stray[3] != why:
            self._say_stray()
        self.stray = (self.stray[0], number, self.stray[2] + 1, why) if self.stray else (number, number, 1, why)
        return None

    def _say_stray(self):
        if self.stray:
            first, last, count, why = self.stray
            self.problem(first, f"not loaded: {why}" if count == 1 else f"{count} rows up to line {last} not loaded: {why}")
            self.stray = None

    def _close(self, run):
        run.close_piece()
        if not run.facts:
            self._place(run, run.row["machine"], {})
        self.open = {line: other for line, other in self.open.items() if other is not run}
        if self.current is run:
            self.current = None
        if run.end is None:
            self.problem(run.line, f"run {run.id} was cut short: it has no end row", lost=False)
        self.rows += run.count
        self.take(run, True)

    # Rows by type. Each returns something only where it has put its line among the run's itself.

    def _place(self, run, machine, row):
        """The subject of the machine from here on."""
        key = (key_text(text_or_none(row.get("host")) or "unknown"), key_text(machine), key_text(text_or_none(row.get("core_type")) or ""))
        provenance = rows_module.provenance(machine, row).lower().replace(" ", "-")
        return self._settle(run, machine, self.dictionaries.number("subjects", key), (
            provenance, *(text_or_none(row.get(name)) for name in ("vendor", "brand")),
            *(int_or_none(row.get(name), INT32) for name in ("family", "model", "stepping")),
            *(text_or_none(row.get(name)) for name in ("microcode", "microarch", "hypervisor", "os", "bios")),
            bool_or_none(row.get("pmu")), bool_or_none(row.get("sibling_thread")), json_or_none(row.get("capabilities")),
            json_or_none(row.get("defects"))))

    def _settle(self, run, machine, subject, facts):
        run.subjects[machine] = subject
        run.facts[subject] = facts
        return subject

    def _machine(self, run, number, row, raw):
        machine = row["machine"]
        run.claims.add(machine)
        subject = self._place(run, machine, row)
        self.dictionaries.remember_line(raw, (machine, subject, run.facts[subject]))

    def _subject(self, run, row):
        subject = run.subjects.get(row["machine"])
        if subject is None:
            subject = self._place(run, row["machine"], {})
        return subject

    def _text(self, words):
        return self.dictionaries.number("texts", clean(words))

    def _test_start(self, run, number, row, raw):
        if run.open_test and self._rivals(run, row["machine"]):
            return self._mixed(run, number, row["machine"])
        run.open_test = True
        return None

    def _rivals(self, run, machine):
        return [other for other in self.open.values() if other is not run and machine in other.claims]

    def _mixed(self, run, number, machine):
        """Rows of two runs of one machine cannot be told apart: both end at their last good row."""
        for other in (run, *self._rivals(run, machine)):
            other.damaged = True
            self._close(other)
        self.current = None
        self.lost_run = "two runs of one machine are mixed here: two programs wrote this file at once"
        self.stray = (number, number, 1, self.lost_run)
        return True

    def _test(self, run, number, row, raw):
        subject, dictionaries = self._subject(run, row), self.dictionaries
        repetition = row.get("repetition", 0)
        if int_or_none(repetition, INT32) is None:
            self.problem(number, "a `test` row with an unusable `repetition`: kept, but not among the verdicts", lost=False)
            return None
        run.open_test = False
        run.test_rows += 1
        clauses = [clause for clause in row.get("clauses", ()) if isinstance(clause, str)]
        test = dictionaries.number("tests", (key_text(row["id"]), json_or_none(clauses), text_or_none(row.get("stage")) or ""))
        if not run.once("test", subject, row["id"], repetition):
            if self._rivals(run, row["machine"]):
                return self._mixed(run, number, row["machine"])
            self.problem(number, f"a second verdict on {row['id']}: kept, but not among the verdicts", lost=False)
            run.damaged = True
            return None
        run.count_verdict(subject, row["status"])
        tried = row.get("repetitions") or {}
        reason = row.get("reason")
        run.add("verdicts", subject, test, repetition, row["status"], text_or_none(row.get("skip_category")),
                self._text(reason) if reason else None, text_or_none(row.get("erratum")) or None, real_or_none(row.get("duration_s")),
                seed_text(row.get("seed")), int_or_none(row.get("iterations")), int_or_none(row.get("comparisons")),
                int_or_none(tried.get("n"), INT32), int_or_none(tried.get("k"), INT32), int_or_none(tried.get("voided"), INT32),
                real_or_none(tried.get("rate")), real_or_none(tried.get("low")), real_or_none(tried.get("high")))
        run.add("evidence", subject, test, repetition, self._evidence_rows(row.get("evidence", {})))
        for index, message in enumerate(row.get("failures", ())):
            words = message if isinstance(message, str) else json_or_none(message)
            run.add("failures", subject, test, repetition, index, clean(words or ""))
        self._remember_test(raw, row, test)
        return None

    def _evidence_rows(self, evidence):
        """(name, figure, text) of each."""
        rows = {}
        for name, value in evidence.items():
            if isinstance(value, dict) and "kind" not in value:
                for part, inner in value.items():
                    self._evidence(rows, f"{name}/{part}", inner)
            else:
                self._evidence(rows, name, value)
        return list(rows.values())

    def _evidence(self, rows, name, value):
        """A figure as a number; what has more to it as JSON text too, with the number that counts: what was seen, how many there were."""
        name = self._text(name)
        if name in rows:
            return
        figure, text = real_or_none(value), None
        if isinstance(value, bool):
            figure, text = float(value), json_or_none(value)
        elif isinstance(value, str):
            text = clean(value)
        elif isinstance(value, dict):
            text = json_or_none(value)
            counted = sum(rows_module.bins_of(value).values()) if value.get("kind") == "histogram" else value.get("seen")
            figure = real_or_none(counted)
        elif figure is None or isinstance(value, int) and int(figure) != value:
            text = json_or_none(value)
        rows[name] = (name, figure, text)

    def _measurement(self, run, number, row, raw):
        subject = self._subject(run, row)
        statistic = row.get("statistic")
        figure_key = (key_text(row["name"]), key_text(row["unit"]), key_text(statistic if isinstance(statistic, str) else ""),
                      key_text(json_or_none(rows_module.figure_parameters(row) or {}) or ""))
        value = real_or_none(row["value"])
        if value is None:
            self.problem(number, "a `measurement` row whose value is beyond a double: kept, but not among the measurements", lost=False)
            return None
        figure = self.dictionaries.number("figures", figure_key)
        key = subject << 32 | figure
        if key in run.seen:
            self.problem(number, f"{row['name']} is measured a second time: kept, but not among the measurements", lost=False)
            return None
        run.seen.add(key)
        interval = self._text(row["interval"]) if isinstance(row.get("interval"), str) else None
        noise = row.get("noise") or {}
        columns = (value, real_or_none(row.get("low")), real_or_none(row.get("high")), int_or_none(row.get("n"), INT32), interval,
                   *(int_or_none(noise.get(name), INT32) for name in NOISE[:3]), real_or_none(noise.get("steal_s")))
        run.add("measurements", subject, figure, *columns)
        if not self._is_plain(row, figure_key, columns):
            return None
        stand_in = json.dumps([row["microarch"], row["machine"]], separators=(",", ":")).encode()
        line_key = self.key_of(raw)
        run.lines.append((subject, self.dictionaries.remember((figure, interval, stand_in) if line_key is None else line_key,
                                                              Shape(row["machine"], figure, interval, stand_in))))
        self._count(run, raw)
        return True

    def _is_plain(self, row, figure_key, columns):
        """Whether its columns say all that it says."""
        return (row.keys() == MEASUREMENT_KEYS and row["noise"].keys() == set(NOISE) and
                isinstance(row["interval"], str) and row["interval"] == clean(row["interval"]) and
                figure_key == (row["name"], row["unit"], row["statistic"], json_or_none(row["parameters"])) and
                (*columns[:4], *columns[5:]) == tuple(row[name] for name in ("value", "low", "high", "n")) + tuple(map(row["noise"].get, NOISE)))

    def _unmeasured(self, run, number, row, raw):
        run.add("unmeasured", self._subject(run, row), self._next(run, "unmeasured"), clean(row["name"]), clean(row["reason"]))

    def _next(self, run, table):
        run.numbers[table] += 1
        return run.numbers[table] - 1

    def _other(self, run, number, row, raw):
        said = json_or_none(row)
        if said is not None:
            run.add("other_rows", self._subject(run, row), self._next(run, "other_rows"), row["type"], said)

    def _defect(self, run, number, row, raw):
        subject, key = self._subject(run, row), (key_text(row["id"]), key_text(text_or_none(row.get("microarch")) or ""))
        if not run.once("defect", subject, key):
            return self.problem(number, f"a second row on the defect {row['id']}: kept, but not in the table", lost=False)
        return run.add("defects", subject, *key, text_or_none(row.get("clause")), text_or_none(row.get("brief")), row["caught"],
                       json_or_none(row.get("caught_by")), int_or_none(row.get("tests_run")), real_or_none(row.get("duration_s")))

    def _qualification(self, run, number, row, raw):
        subject = self._subject(run, row)
        if not run.once("qualification", subject):
            return self.problem(number, "a second `qualification` row: kept, but not in the table", lost=False)
        return run.add("qualifications", subject, json_or_none(row.get("microarchs")), *(int_or_none(row.get(name)) for name in (
            "seeds", "conforming_runs", "conforming_failures")), json_or_none(row.get("accused_by")), int_or_none(row.get("defects")),
            int_or_none(row.get("caught")), json_or_none(row.get("missed")), json_or_none(row.get("tests_without_catch")), row["held"],
            real_or_none(row.get("duration_s")))

    def _erratum(self, run, number, row, raw):
        subject = self._subject(run, row)
        key = (key_text(row["id"]), key_text(text_or_none(row.get("core_type")) or ""))
        if not run.once("erratum", subject, key):
            return self.problem(number, f"a second row on the erratum {row['id']}: kept, but not in the table", lost=False)
        words = {name: text_or_none(row.get(name)) for name in (
            "microarch", "title", "listed_by", "listed_why", "fixed_from", "observed_why", "exposure", "exposure_why")}
        return run.add("errata", subject, *key, words["microarch"], json_or_none(row.get("aliases")), words["title"], clean(row["listed"]),
                       words["listed_by"], words["listed_why"], words["fixed_from"], clean(row["observed"]), words["observed_why"],
                       int_or_none(row.get("tries")), int_or_none(row.get("shown")), real_or_none(row.get("excluded_rate")),
                       words["exposure"], words["exposure_why"], bool_or_none(row.get("contradiction")))

    def _end(self, run, number, row, raw):
        run.end = row
        began, ended = time_or_none(run.row.get("started")), time_or_none(row.get("finished"))
        if began and ended and ended < began:
            self.problem(number, f"run {run.id} ends before it starts: the machine's clock went backwards", lost=False)
        counts = row.get("counts")
        here = run.test_rows
        if counts and here:
            said = sum(count for count in counts.values() if int_or_none(count) is not None)
            if said != here:
                run.damaged = True
                self.problem(number, f"run {run.id} ends with {said} verdicts, and {here} are here", lost=False)

    def _nothing(self, run, number, row, raw):
        """A test or a measurement begins: there is nothing to know of it but its line."""
