#!/usr/bin/python3
"""Runs the real program: exit codes, what goes to standard output, and rows that validate.

usage: python3 cli_test.py SKIDPROOF [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "results" / "schema" / "v1.json"
MODEL = "model:sandy-bridge"
QUICK = "PebsReload.LoadsTheResetSlotAfterEveryRecord/*"

skidproof_program = None


class Done:
    def __init__(self, process):
        self.exit = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def skidproof(self, *arguments, **options):
        environment = dict(os.environ, **options.pop("environment", {}))
        return Done(
            subprocess.run(
                [skidproof_program, *arguments],
                cwd=self.folder,
                env=environment,
                capture_output="stdout" not in options,
                text=True,
                timeout=300,
                **options,
            )
        )

    def assert_refused(self, done, code, *words):
        self.assertEqual(done.exit, code, done.err)
        self.assertEqual(done.out, "")
        for word in words:
            self.assertIn(word, done.err)
        self.assertEqual(list(self.folder.iterdir()), [], "a refused command leaves nothing behind")

    def assert_valid(self, rows):
        import jsonschema

        validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
        for row in rows:
            problems = [error.message for error in validator.iter_errors(row)]
            self.assertEqual(problems, [], row)
        self.assertEqual(rows[0]["type"], "run")
        self.assertEqual(rows[-1]["type"], "end")


class Usage(CliTest):
    def test_nothing_at_all_prints_the_help(self):
        done = self.skidproof()
        self.assertEqual(done.exit, 64)
        self.assertIn("characterize", done.err)

    def test_help_is_not_an_error(self):
        for verb in ([], ["run"], ["qualify"], ["fuzz"], ["list"], ["explain"], ["doctor"], ["characterize"], ["report"], ["traceability"]):
            done = self.skidproof(*verb, "--help")
            self.assertEqual(done.exit, 0, verb)
            self.assertIn("skidproof", done.out)
            self.assertEqual(done.err, "")

    def test_version(self):
        self.assertRegex(self.skidproof("--version").out, r"^skidproof \d+\.\d+\.\d+\n$")

    def test_an_unknown_verb(self):
        self.assert_refused(self.skidproof("characterise"), 64, "characterise", "did you mean characterize?")

    def test_an_unknown_flag(self):
        self.assert_refused(self.skidproof("run", "--frobnicate"), 64, "frobnicate", "skidproof run --help")

    def test_a_bad_number(self):
        self.assert_refused(self.skidproof("run", "--seed", "many"), 64, "seed")
        self.assert_refused(self.skidproof("run", "--repeat", "0"), 64, "repeat")

    def test_an_unknown_machine(self):
        self.assert_refused(self.skidproof("run", "--machine", "nativ"), 64, "'nativ'", "native")

    def test_an_unknown_microarch(self):
        done = self.skidproof("run", "--machine", "model:sandybridge")
        self.assert_refused(done, 64, "sandybridge", "sandy-bridge")

    def test_an_unknown_defect(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", "reset-nevr")
        self.assert_refused(done, 64, "reset-nevr", "reset-never")
        self.assert_refused(self.skidproof("qualify", "--defect", "reset-nevr"), 64, "reset-never")

    def test_a_defect_that_does_not_apply(self):
        done = self.skidproof("run", "--machine", "model:nehalem", "--defect", "pdir-absent")
        self.assert_refused(done, 64, "pdir-absent")

    def test_a_defect_of_silicon(self):
        self.assert_refused(self.skidproof("run", "--machine", "native", "--defect", "reset-never"), 64, "model")

    def test_a_filter_that_matches_nothing(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", "NoSuch.*")
        self.assert_refused(done, 64, "NoSuch.*", "PebsReload")

    def test_a_googletest_filter_that_matches_nothing(self):
        done = self.skidproof("run", "--machine", MODEL, "--json", "-", "--", "--gtest_filter=NoSuch.*")
        self.assertEqual(done.exit, 64)
        self.assertEqual(done.rows()[-1]["exit"], 64)

    def test_a_flag_that_googletest_does_not_know(self):
        self.assert_refused(self.skidproof("run", "--", "--frobnicate"), 64, "--frobnicate")

    def test_only_run_passes_flags_on(self):
        self.assert_refused(self.skidproof("doctor", "--", "--gtest_shuffle"), 64, "only `run`")

    def test_an_unknown_part(self):
        self.assert_refused(self.skidproof("characterize", "--only", "latencies"), 64, "latency")

    def test_a_cpu_that_is_not_there(self):
        self.assert_refused(self.skidproof("characterize", "--cpu", "1000"), 64, "1000")


class Catalogue(CliTest):
    def test_every_kind_lists_and_explains(self):
        for kind in ("kernels", "clauses", "tests", "microarchs", "defects", "machines"):
            listed = self.skidproof("list", kind, "--json", "-")
            self.assertEqual(listed.exit, 0, kind)
            entries = json.loads(listed.out)
            self.assertGreater(len(entries), 3, kind)
            explained = self.skidproof("explain", entries[0]["id"], "--json", "-")
            self.assertEqual(explained.exit, 0, kind)
            self.assertIn(kind.rstrip("s"), [one["kind"] for one in json.loads(explained.out)])
            text = self.skidproof("list", kind).out
            self.assertEqual(len(text.splitlines()), len(entries), kind)

    def test_a_clause_names_its_source_tests_and_defects(self):
        out = self.skidproof("explain", "R19").out
        for word in ("SDM", "PebsReload.", "reset-never"):
            self.assertIn(word, out)

    def test_unknown_names(self):
        self.assert_refused(self.skidproof("list", "kernel-names"), 64, "kernels")
        self.assert_refused(self.skidproof("explain", "reset-nevr"), 64, "reset-never")

    def test_json_to_a_place_that_cannot_be_written(self):
        done = self.skidproof("list", "kernels", "--json", "/dev/full")
        self.assertEqual(done.exit, 2)
        self.assertIn("/dev/full", done.err)

    def test_standard_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.skidproof("list", "tests", stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.exit, 2)
        self.assertIn("standard output", done.err)


class Doctor(CliTest):
    def test_it_says_what_direct_lacks_and_what_mends_it(self):
        done = self.skidproof("doctor", "--json", "-")
        self.assertEqual(done.exit, 0)
        findings = json.loads(done.out)["findings"]
        direct = [one for one in findings if one["section"] == "machines" and one["name"] == "direct"]
        self.assertTrue(direct)
        for one in direct:
            self.assertEqual(one["health"], "bad")
            self.assertTrue(one["mend"])
        self.assertIn("model:sandy-bridge", self.skidproof("doctor").out)

    def test_it_knows_when_the_report_cannot_be_drawn(self):
        # A Python that cannot find matplotlib: -S would do, but only the environment is ours.
        (self.folder / "matplotlib.py").write_text("raise ImportError('hidden by the test')\n", encoding="utf-8")
        done = self.skidproof("doctor", "--json", "-", environment={"PYTHONPATH": str(self.folder)})
        report = [one for one in json.loads(done.out)["findings"] if one["name"] == "report"]
        self.assertEqual(report[0]["health"], "bad")
        self.assertIn("python3-matplotlib", report[0]["mend"])


class Run(CliTest):
    def test_json_alone_stands_on_standard_output(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "-", "--seed", "9")
        self.assertEqual(done.exit, 0, done.err)
        rows = done.rows()
        self.assert_valid(rows)
        self.assertEqual(rows[0]["seed"], 9)
        self.assertEqual(rows[1]["type"], "machine")
        self.assertEqual(rows[1]["provenance"], "model")
        self.assertTrue(all(row["machine"] == MODEL for row in rows))
        tests = [row for row in rows if row["type"] == "test"]
        self.assertTrue(tests)
        for row in tests:
            self.assertEqual(row["status"], "pass")
            self.assertGreater(row["iterations"], 0)
            self.assertGreater(row["comparisons"], 0)
        self.assertEqual(rows[-1]["counts"]["pass"], len(tests))
        self.assertEqual(rows[-1]["reason"], "completed")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_text_says_that_it_is_a_model(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK)
        self.assertEqual(done.exit, 0)
        self.assertIn("MODEL of Sandy Bridge, not silicon", done.out)
        self.assertNotIn("\x1b", done.out)
        files = list(self.folder.glob("skidproof-out/*/results.jsonl"))
        self.assertEqual(len(files), 1)
        self.assertIn(str(files[0].relative_to(self.folder)), done.out)
        self.assert_valid([json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()])

    def test_auto_says_how_it_chose(self):
        done = self.skidproof("run", "--filter", QUICK)
        self.assertEqual(done.exit, 0)
        self.assertIn("direct does not work here", done.out)

    def test_a_broken_model_fails_with_clause_evidence_and_seed(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", "reset-never", "--filter", QUICK, "--out", "o")
        self.assertEqual(done.exit, 1)
        for word in ("R19", "SDM", "pebs_reload.cc:", "MODEL of a broken Sandy Bridge", "again: skidproof run"):
            self.assertIn(word, done.out)
        self.assertNotIn("counted(", done.out)
        again = re.search(r"again: skidproof (.*)", done.out).group(1)
        arguments = [word.strip("'") for word in again.split()]
        self.assertEqual(self.skidproof(*arguments).exit, 1)
        rows = [json.loads(line) for line in (self.folder / "o" / "results.jsonl").read_text().splitlines()]
        self.assert_valid(rows)
        self.assertEqual(rows[0]["machine"], MODEL + "+reset-never")

    def test_repeat_counts_seeds_up(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--repeat", "3", "--json", "-")
        tests = [row for row in done.rows() if row["type"] == "test"]
        self.assertEqual({(row["repetition"], row["seed"]) for row in tests}, {(0, 1), (1, 2), (2, 3)})

    def test_the_same_seed_gives_the_same_evidence(self):
        first, second = (
            self.skidproof("run", "--machine", MODEL, "--filter", "PebsSkid.*", "--json", "-").rows()
            for _ in range(2)
        )
        evidence = [[row["evidence"] for row in rows if row["type"] == "test"] for rows in (first, second)]
        self.assertEqual(evidence[0], evidence[1])

    def test_without_a_sibling_thread(self):
        done = self.skidproof("run", "--machine", MODEL, "--no-sibling", "--filter", QUICK, "--json", "-")
        self.assertIs(done.rows()[1]["sibling_thread"], False)

    def test_googletest_flags_pass_through(self):
        done = self.skidproof(
            "run", "--machine", MODEL, "--defect", "reset-never", "--filter", QUICK, "--json", "-", "--", "--gtest_fail_fast"
        )
        self.assertEqual(done.exit, 1)
        self.assertEqual([row["status"] for row in done.rows() if row["type"] == "test"][0], "fail")

    def test_direct_is_77_with_every_reason(self):
        self.assert_refused(self.skidproof("run", "--machine", "direct"), 77, "/dev/skidproof", "mend:")
        done = self.skidproof("run", "--machine", "direct", "--json", "-")
        self.assertEqual(done.exit, 77)
        self.assert_valid(done.rows())
        self.assertEqual(done.rows()[-1]["exit"], 77)
        self.assertIn("/dev/skidproof", done.rows()[-1]["reason"])

    def test_native_has_nothing_to_run(self):
        done = self.skidproof("run", "--machine", "native", "--json", "-")
        self.assertEqual(done.exit, 77)
        rows = done.rows()
        self.assert_valid(rows)
        self.assertEqual({row["skip_category"] for row in rows if row["type"] == "test"}, {"no-pmu"})


class Trouble(CliTest):
    def test_an_output_folder_below_a_file(self):
        (self.folder / "file").write_text("in the way", encoding="utf-8")
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--out", "file/below")
        self.assertEqual(done.exit, 2)
        self.assertEqual(done.out, "")
        self.assertIn("file/below", done.err)
        self.assertIn("--out DIR", done.err)

    def test_a_full_disk(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "/dev/full")
        self.assertEqual(done.exit, 2)
        self.assertIn("no room", done.err)

    def test_a_disk_that_fills_up(self):
        # A limit on the size of files stands in for the disk: the writer sees the same refusal.
        command = 'ulimit -f 24; exec "$0" run --machine model:sandy-bridge --filter "PebsSkid.*" --out o'
        done = Done(
            subprocess.run(
                ["bash", "-c", command, skidproof_program],
                cwd=self.folder, capture_output=True, text=True, timeout=120,
            )
        )
        self.assertEqual(done.exit, 2, done.err)
        self.assertIn("no room", done.err)
        rows = [json.loads(line) for line in (self.folder / "o" / "results.jsonl").read_text().splitlines()]
        self.assertGreater(len(rows), 3)
        self.assertEqual(rows[0]["type"], "run")
        if rows[-1]["type"] == "end":
            self.assertEqual(rows[-1]["exit"], 2)

    def interrupt(self, number):
        process = subprocess.Popen(
            [skidproof_program, "run", "--machine", MODEL, "--repeat", "1000", "--json", "rows.jsonl"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        path = self.folder / "rows.jsonl"
        for _ in range(1000):
            if path.exists() and path.read_text(encoding="utf-8").count('"test"') >= 3:
                break
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=30)
        return process.returncode, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def test_ctrl_c_ends_the_rows_and_the_run(self):
        code, rows = self.interrupt(signal.SIGINT)
        self.assertEqual(code, 2)
        self.assert_valid(rows)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGINT")
        self.assertEqual(rows[-1]["exit"], 2)

    def test_sigterm_does_too(self):
        code, rows = self.interrupt(signal.SIGTERM)
        self.assertEqual(code, 2)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGTERM")

    def test_a_deadline(self):
        done = self.skidproof("run", "--machine", MODEL, "--repeat", "1000", "--deadline", "0.5", "--json", "-")
        self.assertEqual(done.exit, 2)
        self.assert_valid(done.rows())
        self.assertIn("deadline of 0.5 s passed", done.rows()[-1]["reason"])
        self.assertLess(done.rows()[-1]["duration_s"], 5)

    def test_a_reader_that_leaves(self):
        command = '"$0" run --machine model:sandy-bridge --json - | head -3; echo "${PIPESTATUS[0]}"'
        done = Done(
            subprocess.run(["bash", "-c", command, skidproof_program], cwd=self.folder, capture_output=True, text=True, timeout=60)
        )
        self.assertEqual(done.out.splitlines()[-1], "2")
        self.assertIn("stopped reading", done.err)


class Fuzz(CliTest):
    def fuzz_row(self, done):
        rows = done.rows()
        self.assert_valid(rows)
        return [row for row in rows if row["type"] == "fuzz"][0]

    def test_a_conforming_model_holds(self):
        done = self.skidproof("fuzz", "--machine", MODEL, "--cases", "300", "--seed", "5", "--json", "-")
        row = self.fuzz_row(done)
        self.assertEqual(done.exit, 0, done.err)
        self.assertEqual((row["held"], row["cases"], row["violation"]), (True, 300, {}))
        self.assertGreater(row["exact_records"], 100)
        self.assertGreater(row["refused"], 100)

    def test_the_cases_do_not_depend_on_the_number_of_workers(self):
        counts = []
        for jobs in ("1", "3"):
            done = self.skidproof("fuzz", "--machine", MODEL, "--cases", "900", "--jobs", jobs, "--json", "-")
            row = self.fuzz_row(done)
            counts.append([row[field] for field in ("cases", "runs", "records", "exact_records", "writes", "interrupts")])
        self.assertEqual(*counts)

    def test_a_violation_is_small_and_comes_again(self):
        done = self.skidproof("fuzz", "--machine", MODEL, "--defect", "reset-off-by-one", "--out", "found")
        self.assertEqual(done.exit, 1, done.err)
        self.assertIn("VIOLATION", done.out)
        replay = self.folder / "found" / "fuzz-1.json"
        document = json.loads(replay.read_text())
        self.assertLessEqual(len(document["instructions"]), 20)
        again = self.skidproof("fuzz", "--replay", str(replay), "--json", "-")
        self.assertEqual(again.exit, 1)
        violation = self.fuzz_row(again)["violation"]
        for field in ("check", "clause", "expected", "seen"):
            self.assertEqual(violation[field], document[field])
        innocent = self.skidproof("fuzz", "--replay", str(replay), "--machine", MODEL, "--json", "-")
        self.assertEqual(innocent.exit, 0, innocent.err)

    def test_what_cannot_be(self):
        self.assert_refused(self.skidproof("fuzz", "--machine", "model:sandy-brige"), 64, "sandy-bridge")
        self.assert_refused(self.skidproof("fuzz", "--defect", "skid-nne"), 64, "skid-none")
        self.assert_refused(self.skidproof("fuzz", "--deadline", "5x"), 64, "--deadline")
        self.assert_refused(self.skidproof("fuzz", "--replay", "nothing.json"), 64, "nothing.json")
        self.assert_refused(self.skidproof("fuzz", "--machine", "native"), 77, "PMU")
        broken = self.folder / "broken.json"
        broken.write_text("{}")
        done = self.skidproof("fuzz", "--replay", "broken.json")
        self.assertEqual(done.exit, 64)
        self.assertIn("this is no fuzz case", done.err)


class Qualify(CliTest):
    def test_a_caught_defect(self):
        done = self.skidproof(
            "qualify", "--microarch", "sandy-bridge", "--defect", "reset-never", "--seeds", "1", "--json", "-"
        )
        rows = done.rows()
        self.assert_valid(rows)
        defect = [row for row in rows if row["type"] == "defect"]
        self.assertEqual([(row["id"], row["caught"]) for row in defect], [("reset-never", True)])
        self.assertTrue(all(test.startswith("Pebs") for test in defect[0]["caught_by"]))
        summary = [row for row in rows if row["type"] == "qualification"][0]
        self.assertEqual((summary["defects"], summary["caught"], summary["conforming_runs"]), (1, 1, 2))
        self.assertEqual(done.exit == 0, summary["held"])

    def test_the_matrix_does_not_depend_on_the_number_of_workers(self):
        defects = ("reset-never", "skid-none", "pmi-never", "status-not-set", "lvt-status-writable")
        matrices = []
        for jobs in ("1", "4"):
            done = self.skidproof(
                "qualify", "--microarch", "nehalem", "--seeds", "1", "--jobs", jobs,
                *(word for defect in defects for word in ("--defect", defect)), "--matrix", "matrix.json", "--out", jobs,
            )
            self.assertEqual(done.exit, 0, done.out + done.err)
            matrices.append(json.loads((self.folder / "matrix.json").read_text(encoding="utf-8")))
            self.assertEqual(json.loads((self.folder / jobs / "matrix.json").read_text(encoding="utf-8")), matrices[-1])
        self.assertEqual(matrices[0], matrices[1])
        self.assertEqual(len(matrices[0]["defects"]), len(defects))
        for defect in matrices[0]["defects"]:
            self.assertEqual(len(defect["caught_by"]), 1, "one catch ends the search")
            self.assertEqual(set(defect) & {"id", "clause", "microarch"}, {"id", "clause", "microarch"})

    def test_a_defect_that_does_not_apply(self):
        done = self.skidproof("qualify", "--microarch", "nehalem", "--defect", "pdir-absent")
        self.assert_refused(done, 64, "none of these defects")

    def test_ctrl_c(self):
        process = subprocess.Popen(
            [skidproof_program, "qualify", "--json", "rows.jsonl"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 2)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assert_valid(rows)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGINT")


class Traceability(CliTest):
    kept = None  # the rows, made once: they cost a run of every suite

    def setUp(self):
        super().setUp()
        if Traceability.kept is None:
            self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "run.jsonl").exit, 0)
            qualify = ("qualify", "--microarch", "sandy-bridge", "--defect", "reset-never", "--seeds", "1", "--out", "rows")
            self.assertEqual(self.skidproof(*qualify).exit, 0)
            Traceability.kept = tempfile.TemporaryDirectory()
            shutil.copytree(self.folder, Traceability.kept.name, dirs_exist_ok=True)
        shutil.copytree(Traceability.kept.name, self.folder, dirs_exist_ok=True)
        self.rows = ("--from", "run.jsonl", "rows")

    @classmethod
    def tearDownClass(cls):
        if Traceability.kept is not None:
            Traceability.kept.cleanup()

    def trace(self, *arguments):
        return self.skidproof("traceability", *self.rows, *arguments)

    def test_rows_say_where_a_test_passed_and_what_it_caught(self):
        document = json.loads(self.trace("--json", "-").out)
        clauses = {clause["id"]: clause for clause in document["clauses"]}
        r19 = clauses["R19"]
        self.assertTrue(r19["tested"])
        test = "PebsReload.LoadsTheResetSlotAfterEveryRecord"
        self.assertIn((test, ["sandy-bridge"]), [(one["id"], one["passed_on"]) for one in r19["tests"]])
        caught = {one["id"]: one["caught_by"] for one in r19["defects"]}
        self.assertEqual(len(caught["reset-never"]), 1, "the first that caught it, of the clause's own tests")
        self.assertIn(caught["reset-never"][0], [one["id"] for one in r19["tests"]])
        self.assertEqual(caught["reset-to-zero"], [])
        self.assertFalse(clauses["P5"]["tested"], "cited, but no row says that it ran")
        self.assertIn("ran nowhere", clauses["P5"]["reason"])
        self.assertIn("reset-to-zero", document["not_caught"])

    def test_a_fresh_page_and_a_stale_one(self):
        self.assertEqual(self.trace("--out", "page.md").exit, 0)
        fresh = self.trace("--check", "page.md")
        self.assertEqual((fresh.exit, fresh.out, fresh.err), (0, "", ""))
        page = self.folder / "page.md"
        page.write_text(page.read_text(encoding="utf-8").replace("| R19 |", "| R20 |"), encoding="utf-8")
        stale = self.trace("--check", "page.md")
        self.assertEqual(stale.exit, 1)
        self.assertIn("stale", stale.err)
        self.assertIn("ci/traceability", stale.err)
        self.assertEqual(self.trace("--check", "absent.md").exit, 1)

    def test_requirements(self):
        short = self.trace("--require-coverage", "90")
        self.assertEqual(short.exit, 1)
        self.assertIn("P5", short.err)
        self.assertEqual(self.trace("--require-coverage", "0.5").exit, 0)
        self.assertEqual(self.trace("--require-excerpts").exit, 1)
        self.assertEqual(self.trace("--require-defects").exit, 0, "what these rows test, some defect breaks")
        self.assertEqual(self.trace("--require-coverage", "101").exit, 64)

    def test_rows_of_a_broken_model_prove_nothing(self):
        self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--defect", "skid-none", "--json", "broken.jsonl")
        self.rows = ("--from", "broken.jsonl")
        self.assert_message(self.trace(), 2, "conforming")

    def test_rows_that_were_cut_short(self):
        lines = (self.folder / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (self.folder / "run.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
        self.assert_message(self.trace(), 2, "cut short")

    def test_without_rows_a_citation_is_what_counts(self):
        self.rows = ()
        done = self.trace()
        self.assertEqual(done.exit, 0)
        self.assertIn("Made without rows", done.out)
        self.assertIn("| P5 |", done.out)

    def assert_message(self, done, code, word):
        self.assertEqual(done.exit, code)
        self.assertIn(word, done.err)


class Characterize(CliTest):
    def test_the_clock(self):
        done = self.skidproof("characterize", "--quick", "--only", "clock", "--repetitions", "3", "--json", "-")
        self.assertEqual(done.exit, 0, done.err)
        rows = done.rows()
        self.assert_valid(rows)
        clock = [row for row in rows if row.get("name") == "clock.core"]
        self.assertEqual(clock[0]["unit"], "GHz")
        self.assertTrue(0.5 < clock[0]["value"] < 8)
        self.assertEqual(rows[1]["provenance"], "silicon")


class Report(CliTest):
    def test_without_results(self):
        done = self.skidproof("report")
        self.assert_refused(done, 64, "skidproof run")

    def test_a_file_that_is_not_there(self):
        self.assert_refused(self.skidproof("report", "no.jsonl"), 64, "no.jsonl")

    def test_without_matplotlib(self):
        (self.folder / "rows.jsonl").write_text("{}\n", encoding="utf-8")
        (self.folder / "matplotlib.py").write_text("raise ImportError('hidden by the test')\n", encoding="utf-8")
        done = self.skidproof("report", "rows.jsonl", environment={"PYTHONPATH": str(self.folder)})
        self.assertEqual(done.exit, 2)
        self.assertIn("apt-get install python3-matplotlib", done.err)

    def test_the_newest_results_become_a_page(self):
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", QUICK).exit, 0)
        done = self.skidproof("report", "--json", "-")
        self.assertEqual(done.exit, 0, done.err)
        page = self.folder / json.loads(done.out)["report"]
        self.assertIn("Sandy Bridge".lower(), page.read_text(encoding="utf-8").lower().replace("-", " "))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    skidproof_program = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
