"""The schema accepts what the C++ types write and refuses rows that lie or lack something."""

import contextlib
import copy
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
SAMPLES = os.environ.get("SKIDPROOF_RESULTS_SAMPLES")  # the C++ program that writes a row of every type


def validate(*arguments, **options):
    return subprocess.run([RESULTS / "validate", *arguments], capture_output=True, text=True, **options)


def load_validate():
    """The same program in this process: many small files are checked, and starting it takes longer."""
    loader = importlib.machinery.SourceFileLoader("validate", str(RESULTS / "validate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("validate", loader))
    loader.exec_module(module)
    return module


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.validate = load_validate()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def verdict_on(self, *rows):
        path = self.folder / "rows.jsonl"
        sample_runs.write(path, rows)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exit_code = self.validate.main([str(path)])
        return subprocess.CompletedProcess([], exit_code, printed.getvalue())


class CppRows(Files):
    def setUp(self):
        super().setUp()
        if not SAMPLES:
            self.skipTest("SKIDPROOF_RESULTS_SAMPLES does not name the program results_samples (ctest sets it)")
        self.path = self.folder / "samples.jsonl"
        subprocess.run([SAMPLES, self.path], check=True)

    def test_every_row_that_the_types_write_is_valid(self):
        done = validate(self.path)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_every_type_of_the_schema_is_written(self):
        schema = json.loads((RESULTS / "schema" / "v1.json").read_text())
        written = {json.loads(line)["type"] for line in self.path.read_text().splitlines()}
        self.assertEqual(written, set(schema["properties"]["type"]["enum"]))

    def test_no_row_can_lose_a_required_field(self):
        schema = json.loads((RESULTS / "schema" / "v1.json").read_text())
        rows = {row["type"]: row for row in map(json.loads, self.path.read_text().splitlines())}
        bad = []
        for kind, row in rows.items():
            for field in {*schema["$defs"][kind]["required"], "machine", "type"}:
                bad.append({k: v for k, v in row.items() if k != field})
        done = self.verdict_on(*bad)
        self.assertIn(f"{len(bad)} of {len(bad)} rows violate", done.stdout)

    def test_closed_lists_are_the_same_in_cpp_and_in_the_schema(self):
        schema = json.loads((RESULTS / "schema" / "v1.json").read_text())
        words = [w for w in schema["$defs"]["test"]["properties"]["skip_category"]["enum"] if w]
        source = (RESULTS / "row.cc").read_text()
        listed = source.split("name_of(SkipCategory category) {")[1].split("};")[0]
        self.assertEqual(words, [w for w in listed.split('"') if w.replace("-", "").isalpha()])
        statuses = source.split("name_of(Status status) {")[1].split("};")[0]
        self.assertEqual(schema["$defs"]["test"]["properties"]["status"]["enum"],
                         [w for w in statuses.split('"') if w.isalpha()])
        stages = (RESULTS.parent / "harness" / "check" / "stage.h").read_text().split("name_of(Stage stage) {")[1].split("};")[0]
        self.assertEqual([w for w in schema["$defs"]["test"]["properties"]["stage"]["enum"] if w],
                         [w for w in stages.split('"') if w.replace("-", "").isalpha()])


class BadRows(Files):
    def changed(self, **changes):
        row = sample_runs.test_rows("model:sandy-bridge", "PebsReload.Loads")[1]
        return row | changes

    def assert_refused(self, row, where):
        done = self.verdict_on(row)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"rows.jsonl:1: {where}: ", done.stdout)

    def test_the_unchanged_row_is_valid(self):
        self.assertEqual(self.verdict_on(self.changed()).returncode, 0)

    def test_fields_may_be_added(self):
        self.assertEqual(self.verdict_on(self.changed(added_later={"a": 1})).returncode, 0)

    def test_a_vacuous_pass(self):
        self.assert_refused(self.changed(comparisons=0), "comparisons")
        self.assert_refused(self.changed(iterations=0), "iterations")

    def test_a_failure_without_a_message(self):
        self.assert_refused(self.changed(status="fail"), "failures")

    def test_a_skip_without_category_or_reason(self):
        self.assert_refused(self.changed(status="skip", reason="why"), "skip_category")
        self.assert_refused(self.changed(status="skip", skip_category="no-pmu"), "reason")
        self.assert_refused(self.changed(status="skip", skip_category="bad-mood", reason="why"), "skip_category")

    def test_a_pass_with_a_skip_category(self):
        self.assert_refused(self.changed(skip_category="no-pmu"), "skip_category")

    def test_an_erratum_goes_with_the_outcomes_that_it_explains(self):
        self.assertEqual(self.verdict_on(self.changed(status="xpass", erratum="BJ58", reason="listed")).returncode, 0)
        self.assert_refused(self.changed(status="xfail", erratum="", reason="listed", failures=["x"]), "erratum")
        self.assert_refused(self.changed(erratum="BJ58"), "erratum")

    def test_an_observation_without_what_was_seen(self):
        self.assertEqual(self.verdict_on(self.changed(status="observed", evidence={"observed": {"a": 1}})).returncode, 0)
        self.assert_refused(self.changed(status="observed"), "evidence")

    def test_a_disturbance_has_a_reason(self):
        self.assertEqual(self.verdict_on(self.changed(status="disturbed", reason="never again")).returncode, 0)
        self.assert_refused(self.changed(status="disturbed"), "reason")

    def test_repetitions_are_a_share(self):
        self.assert_refused(self.changed(repetitions={"n": 1, "k": 0, "voided": 0, "rate": 2, "low": 0, "high": 1}), "repetitions.rate")
        self.assert_refused(self.changed(stage="roof"), "stage")

    def test_a_measurement_that_is_missing_says_why(self):
        start = {"type": "measurement-start", "machine": "native", "microarch": "", "name": "m", "started": "2026-05-01T12:34:56Z"}
        row = {"type": "unmeasured", "machine": "native", "microarch": "", "name": "m", "reason": "no event counts it"}
        self.assertEqual(self.verdict_on(start, row).returncode, 0)
        self.assert_refused(start | {"started": "today"}, "started")
        self.assert_refused(row | {"reason": ""}, "reason")

    def test_rows_of_an_older_version(self):
        row = self.changed()
        for field in ("stage", "erratum", "repetitions"):
            del row[field]
        end = sample_runs.end_row("native", [])
        del end["counts"]["observed"], end["counts"]["disturbed"]
        self.assertEqual(self.verdict_on(row, end).returncode, 0)

    def test_unknown_words(self):
        self.assert_refused(self.changed(status="passed"), "status")
        self.assert_refused(self.changed(type="tset"), "type")

    def test_a_row_without_machine(self):
        self.assert_refused(self.changed(machine=""), "machine")

    def test_evidence_of_a_known_kind_and_another_shape(self):
        skid = sample_runs.histogram("skid", "instructions", {1: 5})
        self.assertEqual(self.verdict_on(self.changed(evidence={"skid": skid})).returncode, 0)
        bad = copy.deepcopy(skid)
        bad["bins"][0].append(1)
        self.assert_refused(self.changed(evidence={"skid": bad}), "evidence.skid.bins.0")

    def test_another_schema(self):
        self.assert_refused(sample_runs.run_row("native", "x") | {"schema": 2}, "schema")

    def test_measurements_that_are_no_numbers(self):
        row = sample_runs.measurement("native", "memory.latency", float("nan"), "ns", 1, 2)
        self.assert_refused(row, "line")
        self.assert_refused(row | {"value": None}, "value")

    def test_a_defect_caught_by_nobody(self):
        row = {"type": "defect", "machine": "model:x", "microarch": "x", "id": "d", "clause": "R1", "brief": "", "caught": True,
               "caught_by": [], "tests_run": 3, "duration_s": 1}
        self.assert_refused(row, "caught_by")


class Command(Files):
    def test_exit_codes(self):
        self.assertEqual(validate().returncode, 64)
        self.assertEqual(validate("--what").returncode, 64)
        self.assertEqual(validate("--help").returncode, 0)
        self.assertEqual(validate(self.folder / "missing").returncode, 2)
        empty = self.folder / "empty"
        empty.touch()
        self.assertEqual(validate(empty).returncode, 1)

    def test_a_line_that_breaks_off_is_named(self):
        path = self.folder / "rows.jsonl"
        path.write_text(json.dumps(sample_runs.run_row("native", "x")) + '\n{"type":"te')
        done = validate(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rows.jsonl:2: line: not JSON", done.stdout)

    def test_standard_input(self):
        text = json.dumps(sample_runs.run_row("native", "x")) + "\n"
        self.assertEqual(validate("-", input=text).returncode, 0)


if __name__ == "__main__":
    unittest.main()
