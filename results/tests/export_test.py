"""Every format is read by a reader that is not ours, and has the same counts, whatever stands in the rows."""

import atexit
import contextlib
import csv
import functools
import http.server
import io
import json
import os
import pathlib
import random
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree

import junitparser
import pandas
import tap.parser
from prometheus_client.parser import text_string_to_metric_families

import ocp_check
import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

import skidproof.export  # noqa: E402
from skidproof import cli, rows  # noqa: E402
from skidproof.export import common, junit, ocp, prometheus, tables, tap as tap_format  # noqa: E402

FORMATS = ("junit", "tap", "csv", "prometheus", "ocp")
EXPECTED_TO_FAIL = tap_format.EXPECTED_TO_FAIL
# What each status becomes: JUnit's element, whether TAP's point is ok and which directive it has, OCP's diagnosis.
MEANING = {
    "pass": ("", True, "", "PASS"), "xpass": ("", True, EXPECTED_TO_FAIL, "PASS"), "fail": ("failure", False, "", "FAIL"),
    "error": ("error", False, "", "UNKNOWN"), "skip": ("skipped", True, "SKIP", "UNKNOWN"),
    "xfail": ("skipped", False, EXPECTED_TO_FAIL, "UNKNOWN"),
    "observed": ("skipped", True, "SKIP", "UNKNOWN"), "disturbed": ("skipped", True, "SKIP", "UNKNOWN"),
}
PERL = r"""
use TAP::Parser; use JSON::PP; use Encode;
$| = 1;
while (my $file = <STDIN>) {
  chomp $file;
  my $parser = TAP::Parser->new({source => $file}); my @points; my $bail = JSON::PP::false;
  while (my $r = $parser->next) {
    push @points, [$r->is_actual_ok ? JSON::PP::true : JSON::PP::false, $r->directive] if $r->is_test;
    $bail = JSON::PP::true if $r->is_bailout;
    $points[-1][2] = $r->data->{status} if $r->is_yaml;
  }
  print encode_json({points => \@points, errors => [$parser->parse_errors], bail => $bail, planned => $parser->tests_planned}), "\n";
}
"""
HOSTILE = (
    "<script>&\"'", "]]>", "\x00\x01\x1b[31m", "\ud800", "\ufffe\uffff", "# SKIP all", "# todo", "a\nnot ok 9 - b", "\nBail out! x",
    "\r\n1..0\r\n", "\\", "\\\\\"", "\\n", "\"} 1\nup{", "{}", "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'", "'=1",
    ",", ";", "\"\"", "'; DROP TABLE runs;--", "\u2028\x85\x0b\x0c", "\u202e", "ä€𝄞", "a: b", "- c", "...", "---", "~", "x" * 2000, " ",
    "  lead", "trail  ", ".", "a.b", "%s", "${HOME}", "__name__", "host", "le", "0x", "1e5", "NaN", "\u200b", "＃", "＝1")


def source_of(lines):
    source = rows.Source("test")
    rows.read_stream(source, [json.dumps(row).encode() + b"\n" for row in lines])
    return source


def runs_of(lines):
    return [skidproof.export._tidy(run) for run in source_of(lines).runs]


def statuses_of(runs):
    return [one.status for run in runs for one in common.outcomes(run)]


@functools.cache
def perl():
    """One for all files: to begin takes it longer than to read one."""
    process = subprocess.Popen(["perl", "-e", PERL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    atexit.register(process.communicate)
    return process


def perl_points(text):
    with tempfile.NamedTemporaryFile(suffix=".tap") as file:
        file.write(text.encode())
        file.flush()
        print(file.name, file=perl().stdin, flush=True)
        return json.loads(perl().stdout.readline())


def series_of(text):
    """{(name, labels): value}; fails where a series comes twice."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def raw(words):
    """A text cell as it was before it was made harmless for spreadsheets."""
    return words[1:] if words.startswith("'") else words


class Readers(unittest.TestCase):
    """What a foreign reader makes of each format, compared with the rows."""

    promtool = True

    def check_all(self, runs):
        self.check_junit(runs)
        self.check_tap(runs)
        self.check_csv(runs)
        self.check_prometheus(runs)
        self.check_ocp(runs)

    def check_junit(self, runs):
        text = junit.document(runs)
        found = []
        for suite in junitparser.JUnitXml.fromstring(text.encode()):
            cases = list(suite)
            for kind, total in (("failure", suite.failures), ("error", suite.errors), ("skipped", suite.skipped)):
                self.assertEqual(total, sum(case.result != [] and case.result[0]._tag == kind for case in cases))
            self.assertEqual(suite.tests, len(cases))
            found += [case.result[0]._tag if case.result else "" for case in cases]
        statuses = statuses_of(runs)
        self.assertCountEqual(found, [MEANING[status][0] for status in statuses])
        root = xml.etree.ElementTree.fromstring(text)
        self.check_junit_structure(root)
        self.assertEqual((int(root.get("tests")), int(root.get("failures"))), (len(statuses), statuses.count("fail")))
        names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
        self.assertEqual(len(set(names)), len(names), "a reader that knows tests by class and name loses one")

    def check_junit_structure(self, root):
        """As the schema of Jenkins' xUnit plugin has it: which elements and attributes, and properties first."""
        totals = {"name", "tests", "failures", "errors", "skipped", "time"}
        attributes = {"testsuites": totals, "testsuite": {"id", "hostname", "timestamp", *totals}, "properties": set(),
                      "property": {"name", "value"}, "testcase": {"classname", "name", "time"}, "failure": {"type", "message"},
                      "error": {"type", "message"}, "skipped": {"type", "message"}, "system-out": set()}
        inner = {"testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}, "properties": {"property"},
                 "testcase": {"failure", "error", "skipped", "system-out"}}
        for element in root.iter():
            self.assertLessEqual(set(element.attrib), attributes[element.tag])
            self.assertLessEqual({child.tag for child in element}, inner.get(element.tag, set()))
            if element.tag == "testsuite":
                self.assertEqual([child.tag for child in element].index("properties"), 0)

    def check_tap(self, runs):
        text = tap_format.document(runs)
        statuses = statuses_of(runs)
        wanted = [MEANING[status][1:3] for status in statuses]
        lines = list(tap.parser.Parser().parse_text(text))
        points = [line for line in lines if line.category == "test"]
        self.assertEqual([(point.ok, EXPECTED_TO_FAIL if point.todo else "SKIP" if point.skip else "") for point in points], wanted)
        self.assertEqual([line.expected_tests for line in lines if line.category == "plan"], [len(points)])
        self.assertEqual([point.yaml_block["status"] if point.yaml_block else "pass" for point in points], statuses)
        self.assertEqual(sum(line.category == "unknown" for line in lines), 0)
        cut_short = any(run.end is None for run in runs)
        self.assertEqual([line.category == "bail" for line in lines].count(True), cut_short)
        complaints = perl_points(text)["errors"]
        self.assertEqual([one for one in complaints if "later than 13" not in one], [] if not cut_short else complaints[1:])
        seen = perl_points(text.replace("version 14", "version 13", 1))  # the newest that this reader knows
        self.assertEqual(([(ok, directive) for ok, directive, *_ in seen["points"]], seen["bail"]), (wanted, cut_short))
        self.assertEqual([(point[2:] or ["pass"])[0] for point in seen["points"]], statuses)
        if not cut_short:
            self.assertEqual(seen["errors"], [])

    def check_csv(self, runs):
        counts = {"measurements": sum(len(run.measurements) for run in runs), "tests": len(statuses_of(runs)),
                  "errata": sum(len(run.errata) for run in runs)}
        for name, text in tables.documents(runs).items():
            frame = pandas.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
            self.assertEqual(len(frame), counts[name], name)
            lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
            self.assertEqual(frame.values.tolist(), lines[1:])
            for cell in (cell for line in lines for cell in line):
                harmless = not cell or cell[0] not in "=+-@\t\r\n"
                self.assertTrue(harmless or self.is_number(cell), repr(cell))
        frame = self.frame(runs, "measurements")
        self.assertEqual(list(map(float, frame["value"])), [float(row["value"]) for run in runs for row in run.measurements])
        wanted = [row["name"] for run in runs for row in run.measurements]
        self.assertEqual(list(map(raw, frame["name"])), [common.visible(name, keep="\t\r\n") for name in wanted])
        self.assertEqual(list(self.frame(runs, "tests")["status"]), statuses_of(runs))

    def frame(self, runs, name):
        return pandas.read_csv(io.StringIO(tables.documents(runs)[name], newline=""), dtype=str, keep_default_na=False)

    def is_number(self, cell):
        try:
            return isinstance(float(cell), float)
        except ValueError:
            return False

    def check_prometheus(self, runs):
        text = prometheus.metrics_text(runs)
        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f]", "a null byte ends the text for Prometheus' own reader")
        found = series_of(text)
        if len(runs) == 1 and runs[0].tests:
            for status in rows.STATUSES:
                counted = [value for (name, labels), value in found.items() if name == "skidproof_tests" and ("status", status) in labels]
                self.assertEqual(sum(counted), statuses_of(runs).count(status), status)
        if self.promtool:
            done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def check_ocp(self, runs):
        types_seen = []
        for _, text in ocp.documents(runs):
            self.assertEqual(ocp_check.problems(text)[:3], [])
            steps = [json.loads(line).get("testStepArtifact", {}) for line in text.splitlines()]
            for step in steps:
                json.dumps(step, ensure_ascii=False).encode()  # no half of a pair
            types_seen += [step["diagnosis"]["type"] for step in steps if "diagnosis" in step]
        self.assertCountEqual(types_seen, [MEANING[status][3] for status in statuses_of(runs)])


class Samples(Readers):
    def test_every_outcome_is_read_as_documented(self):
        runs = runs_of(sample_runs.model_run())
        self.assertEqual(set(statuses_of(runs)), set(rows.STATUSES))
        self.check_all(runs)

    def test_runs_of_two_machines_with_errata_and_one_that_was_cut_short(self):
        cut_short = [row for row in sample_runs.small_model_run() if row["type"] != "end"]
        cut_short.append(sample_runs.test_rows("model:sandy-bridge", "PebsSkid.Hangs")[0])
        runs = runs_of([*cut_short, *sample_runs.native_run(), *errata_run()])
        self.assertEqual(statuses_of(runs)[:2], ["pass", "error"])
        self.check_all(runs)

    def test_what_has_no_tests(self):
        self.check_all(runs_of(sample_runs.small_run()))
        self.check_all(runs_of([sample_runs.run_row("native", "bare")]))

    def test_the_same_test_twice_and_on_two_machines(self):
        lines = sample_runs.small_model_run()
        again = sample_runs.test_rows("model:sandy-bridge", "PebsSkid.One", "fail", repetition=1, failures=["no"])
        other = [row | {"machine": "model:skylake"} for row in sample_runs.test_rows("", "PebsSkid.One")]
        self.check_all(runs_of([*lines[:-1], *again, *other, lines[-1], *lines]))

    def test_words_stand_where_the_format_has_no_such_outcome(self):
        runs = runs_of(sample_runs.model_run())
        cases = {case.name: case for suite in junitparser.JUnitXml.fromstring(junit.document(runs).encode()) for case in suite}
        points = {point.yaml_block["id"]: point for point in tap.parser.Parser().parse_text(tap_format.document(runs))
                  if point.category == "test" and point.yaml_block}
        diagnoses = {}
        for line in ocp.documents(runs)[0][1].splitlines():
            one = json.loads(line).get("testStepArtifact", {}).get("diagnosis", {"verdict": ""})
            diagnoses[one["verdict"]] = one.get("message", "")
        for test, status, words in (("PebsReload.Known", "xfail", "xfail: the promise was broken, and erratum X1 explains it"),
                                    ("PebsReload.Once", "disturbed", "disturbed: it failed, but noise voids that"),
                                    ("PebsEdges.Open", "observed", "observed: nothing promises an outcome: last record: past the maximum")):
            self.assertIn(words, cases[test.partition(".")[2]].result[0].message)
            self.assertIn(words, points[test].directive.reason)
            self.assertIn(words, diagnoses[f"skidproof-{status}"])
        self.assertIn("xpass: the promise held, though erratum X2 is listed", cases["KnownAndHeld"].system_out)
        self.assertIn("erratum X2", points["PebsReload.KnownAndHeld"].directive.reason)
        self.assertIn("needs-sibling: the core has one thread", cases["AnyThread"].result[0].message)
        self.assertIn("IP 0x1014 is 2 instructions", cases["IsOneInstruction/split_access_pmc2"].result[0].text)
        noted = sample_runs.test_rows("native", "A.b", "fail", failures=["a.cc:1: 5 is not 4"], reason="X3 does not explain this")
        failure = next(iter(next(iter(junitparser.JUnitXml.fromstring(junit.document(runs_of(noted)).encode()))))).result[0]
        self.assertEqual(failure.message, "a.cc:1: 5 is not 4")
        self.assertIn("X3 does not explain this", failure.text)

    def test_names_in_tap_are_escaped_and_whole_in_the_diagnostics(self):
        lines = sample_runs.test_rows("native", "A.b\\c # SKIP \nd", "fail", failures=["no"])
        point = [line for line in tap.parser.Parser().parse_text(tap_format.document(runs_of(lines))) if line.category == "test"][0]
        self.assertEqual(point.description, "- native A.b\\\\c \N{FULLWIDTH NUMBER SIGN} SKIP \\nd")
        self.assertEqual(point.yaml_block["id"], "A.b\\c # SKIP \nd")

    def test_provenance_stands_beside_every_figure(self):
        runs = runs_of(sample_runs.model_run())
        self.assertTrue(all(("provenance", "model") in labels for _, labels in series_of(prometheus.metrics_text(runs))))
        self.assertEqual(set(self.frame(runs, "tests")["provenance"]), {"model"})
        suite = next(iter(junitparser.JUnitXml.fromstring(junit.document(runs).encode())))
        properties = {one.name: one.value for one in suite.properties()}
        self.assertEqual((properties["provenance"], properties["seed"], properties["run"]), ("model", "1", "sample-model"))
        self.assertIn("(model)", tap_format.document(runs))
        self.assertIn('"info": "provenance: model"', ocp.documents(runs)[0][1])

    def test_figures_come_back_equal(self):
        runs = runs_of(sample_runs.native_run())
        measured = {(row["name"], row["parameters"].get("bytes"), row["parameters"].get("page")): row["value"]
                    for row in runs[0].measurements}
        frame = pandas.read_csv(io.StringIO(tables.documents(runs)["measurements"], newline=""), float_precision="round_trip")
        for line in frame[frame["name"] == "memory.latency"].to_dict("records"):
            self.assertEqual(line["value"], measured["memory.latency", line["parameter.bytes"], line["parameter.page"]])
        latencies = 0
        for (name, labels), value in series_of(prometheus.metrics_text(runs)).items():
            labels = dict(labels)
            if labels.get("name") == "memory.latency":
                latencies += 1
                row = measured["memory.latency", int(labels["bytes"]), labels["page"]]
                self.assertEqual((name, value), ("skidproof_measurement_seconds", float(f"{row!r}e-9")))
        self.assertEqual(latencies, len(frame[frame["name"] == "memory.latency"]))

    def test_a_validator_says_what_was_compared(self):
        compared = {"placing.on_path >= kExpected": {"times": 1, "seen": 216, "expected": 200},
                    "ip == *next": {"times": 2, "seen": {"first": "0x1"}, "expected": {"first": "0x1"}},
                    "records > 4": {"times": 2, "seen": {"least": 5, "most": 9}, "expected": 4}, "held": {"times": 1, "seen": True}}
        lines = sample_runs.test_rows("native", "A.b", evidence={"compared": compared})
        steps = [json.loads(line).get("testStepArtifact", {}) for line in ocp.documents(runs_of(lines))[0][1].splitlines()]
        seen = {one["measurement"]["name"]: one["measurement"] for one in steps if "measurement" in one}
        self.assertEqual(seen["placing.on_path"]["validators"],
                         [{"name": "placing.on_path >= kExpected", "type": "GREATER_THAN_OR_EQUAL", "value": 200}])
        self.assertEqual((seen["records"]["value"], seen["records"]["validators"][0]["type"]), (5, "GREATER_THAN"))
        self.assertNotIn("validators", seen["ip == *next"])
        self.assertEqual(seen["held"]["value"], True)


class Qualification(Readers):
    def test_machines_that_were_made_to_be_broken_are_no_machines(self):
        machine = "model:sandy-bridge"
        defect = {"type": "defect", "microarch": "sandy-bridge", "clause": "R12", "brief": "", "tests_run": 9, "duration_s": 1}
        lines = [sample_runs.run_row(machine, "q"), sample_runs.machine_row(machine, "model"),
                 *({**defect, "machine": f"{machine}+{name}", "id": name, "caught": name != "c", "caught_by": ["A.b"]} for name in "abc"),
                 {"type": "qualification", "machine": machine, "held": False}, sample_runs.end_row(machine, [], 1)]
        runs = runs_of(lines)
        self.check_all(runs)
        found = series_of(prometheus.metrics_text(runs))
        defects = {dict(labels)["caught"]: value for (name, labels), value in found.items() if name == "skidproof_defects"}
        self.assertEqual(defects, {"true": 2, "false": 1})
        self.assertEqual([value for (name, _), value in found.items() if name == "skidproof_qualification_held"], [0])
        self.assertEqual(ocp.documents(runs)[0][1].count('"skidproof-defect"'), 3)
        self.assertEqual(len(ocp.documents(runs)), 1)


class PrometheusText(Readers):
    def test_the_last_run_of_a_machine_and_verb_wins(self):
        late = sample_runs.model_run()
        late[0] = late[0] | {"id": "late", "started": "2024-05-02T12:00:00.000Z"}
        host = [row | ({"host": "other"} if row["type"] == "machine" else {}) for row in sample_runs.model_run()]
        for order in ([*late, *sample_runs.model_run(), *host], [*host, *sample_runs.model_run(), *late]):
            collected = prometheus.collect(runs_of(order))
            infos = [dict(labels) for name, labels in series_of(collected.text()) if name == "skidproof_run_info"]
            self.assertEqual({(labels["host"], labels["run"]) for labels in infos}, {("unknown", "late"), ("other", "sample-model")})
            self.assertEqual(len(collected.notices), 1)
            self.assertIn("late is later", collected.notices[0])

    def test_names_and_labels_are_those_of_the_errata_verb(self):
        found = series_of(prometheus.metrics_text(runs_of(errata_run())))
        by_name = {}
        for (name, labels), value in found.items():
            by_name.setdefault(name, []).append((dict(labels), value))
        labels, value = by_name["skidproof_erratum_listed"][0]
        self.assertEqual([labels[name] for name in ("machine", "core", "erratum", "verdict")], ["native", "", "E1", "affected"])
        self.assertEqual(value, 1)
        self.assertEqual({labels["exposure"]: value for labels, value in by_name["skidproof_errata"]},
                         {"none": 0, "workaround-in-place": 0, "exposed": 1, "unknown": 1})
        self.assertEqual(by_name["skidproof_errata_verdict"][0][1], 2)
        self.assertEqual([value for labels, value in by_name["skidproof_erratum_contradiction"]], [0, 1])
        source = (RESULTS.parent / "harness/errata/formats.cc").read_text()
        for name in ("erratum_listed", "erratum_observed", "erratum_contradiction", "errata", "errata_verdict"):
            self.assertIn(f'"skidproof_{name}"', source)
            self.assertIn(f'"{prometheus.HELP[name]}"', source, "the node-exporter refuses a metric with two help texts")

    def test_series_are_bounded(self):
        lines = [sample_runs.run_row("native", "many")]
        for number in range(prometheus.MOST_FAILED + 30):
            lines += sample_runs.test_rows("native", f"A.t{number}", "fail", failures=["no"])
        collected = prometheus.collect(runs_of(lines))
        self.assertEqual(len(collected.found["test_failed"]), prometheus.MOST_FAILED)
        self.assertIn("130 tests failed, and 100 have a series", collected.notices[0])
        self.assertEqual(sum(value for labels, value in collected.found["tests"].items() if ("status", "fail") in labels), 130)

    def test_units_and_parameters(self):
        lines = [sample_runs.run_row("native", "units"),
                 sample_runs.measurement("native", "a", 2.5, "ns", 1, 2, host="x", le="1", **{"a-B": 1, "a b": 2}),
                 sample_runs.measurement("native", "a", 3.25, "GHz", 1, 2, slot_cycles=0.11, verdict="fused"),
                 sample_runs.measurement("native", "a", 4, "furlongs", 1, 2)]
        found = {name: (dict(labels), value) for (name, labels), value in series_of(prometheus.metrics_text(runs_of(lines))).items()}
        labels, value = found["skidproof_measurement_seconds"]
        self.assertEqual((value, labels["host"], labels["parameter_host"], labels["parameter_le"], labels["a_b"], labels["a_b_"]),
                         (2.5e-9, "unknown", "x", "1", "2", "1"))
        self.assertEqual(found["skidproof_measurement_hertz"][1], 3.25e9)
        self.assertEqual(set(found["skidproof_measurement_hertz"][0]), {"host", "machine", "core", "provenance", "name", "statistic"})
        self.assertEqual(found["skidproof_measurement"][0]["unit"], "furlongs")


def errata_run():
    machine = "native"
    row = {"type": "erratum", "machine": machine, "microarch": "", "id": "E1", "aliases": ["E2"], "title": "=title, with \"quotes\"",
           "core_type": "", "listed": "affected", "listed_by": "code", "listed_why": "it is", "fixed_from": None, "observed": "not-run",
           "observed_why": "", "tries": 0, "shown": 0, "excluded_rate": None, "exposure": "exposed", "exposure_why": "",
           "contradiction": False}
    other = row | {"id": "E3", "listed": "unknown", "exposure": "unknown", "contradiction": True}
    run = sample_runs.run_row(machine, "errata") | {"command": ["skidproof", "errata"]}
    return [run, sample_runs.machine_row(machine, "silicon"), row, other, sample_runs.end_row(machine, [], 2)]


class HostileStrings(Readers):
    """Arbitrary strings in every field of every row; a seeded loop, so that a failure comes again."""

    def words(self, rng):
        return "".join(rng.choice(HOSTILE) if rng.random() < 0.6 else chr(rng.randrange(rng.choice((128, 0x2100, 0x110000))))
                       for _ in range(rng.randrange(1, 4)))

    def spoil(self, rng, value, key=""):
        """The same shape with other strings; what tells rows apart and which status they have stays."""
        if key in ("type", "status", "schema"):
            return value
        if isinstance(value, str):
            return self.words(rng) if rng.random() < 0.5 else value
        if isinstance(value, list):
            return [self.spoil(rng, one) for one in value]
        if isinstance(value, dict):
            inner = key in ("parameters", "evidence", "compared", "observed", "citations")
            return {self.words(rng) if inner and rng.random() < 0.4 else name: self.spoil(rng, one, name) for name, one in value.items()}
        return value

    def run_of(self, rng):
        lines = [row for row in sample_runs.model_run(rng.random()) if row["type"] in ("run", "machine", "end") or rng.random() < 0.12]
        lines[2:2] = rng.sample([row for row in sample_runs.native_run() if row["type"] == "measurement"], 5)
        lines[2:2] = [row for row in errata_run() if row["type"] == "erratum"]
        machine = self.words(rng)
        lines = [self.spoil(rng, row) | {"machine": machine} for row in lines]
        return lines if rng.random() < 0.8 else lines[:-1]

    def test_every_format_reads_back_the_same_counts(self):
        for seed in range(60):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                lines = self.run_of(rng) + (self.run_of(rng) if rng.random() < 0.3 else [])
                runs = runs_of(lines)
                self.promtool = seed % 3 == 0  # a process for each
                self.assertEqual(len(statuses_of(runs)) > 0, any(row["type"] in ("test", "test-start") for row in lines))
                self.check_all(runs)


class Verb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model.jsonl"
        sample_runs.write(self.model, sample_runs.model_run())

    def export(self, *arguments, exit_code=0, **rest):
        command = [sys.executable, "-B", RESULTS / "skidproof", "export", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, cwd=self.folder, **rest)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return done

    def test_standard_output_and_files(self):
        for kind in ("junit", "tap", "prometheus", "ocp"):
            text = self.export("--format", kind, self.model).stdout
            self.export("--format", kind, self.model, "--out", self.folder / f"{kind}.txt")
            self.assertEqual((self.folder / f"{kind}.txt").read_bytes(), text)
            self.assertTrue(text.endswith(b"\n"))
        self.assertTrue(self.export("--format", "csv", "--table", "tests", self.model).stdout.startswith(b"run,run_started,host"))

    def test_folders(self):
        for kind in FORMATS:
            self.export("--format", kind, self.model, "--out", f"{self.folder}/out/")
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()}, {
            "skidproof.xml", "skidproof.tap", "skidproof.prom", "measurements.csv", "tests.csv", "errata.csv",
            "sample-model-model-sandy-bridge.ocp.jsonl"})
        self.assertEqual(stat.S_IMODE((self.folder / "out/skidproof.prom").stat().st_mode), 0o666 & ~self.umask())

    def umask(self):
        was = os.umask(0)
        os.umask(was)
        return was

    def test_the_newest_results_by_default(self):
        for name in ("20240101T000000Z-a", "20240102T000000Z-b"):
            (self.folder / "skidproof-out" / name).mkdir(parents=True)
            sample_runs.write(self.folder / "skidproof-out" / name / "results.jsonl", [sample_runs.run_row("native", name)])
        text = self.export("--format", "prometheus").stdout.decode()
        self.assertIn("20240102T000000Z-b", text)
        self.assertNotIn("20240101T000000Z-a", text)

    def test_says_what_it_wrote(self):
        summary = json.loads(self.export("--format", "csv", self.model, "--out", f"{self.folder}/t/", "--json", "-").stdout)
        self.assertEqual((len(summary["files"]), summary["counts"]["fail"], summary["runs"]), (3, 1, ["sample-model"]))
        self.export("--format", "tap", self.model, "--out", self.folder / "x.tap", "--json", self.folder / "s.json")
        self.assertEqual(json.loads((self.folder / "s.json").read_text())["counts"], summary["counts"])

    def test_bad_usage(self):
        for words in ([], ["--format", "xml"], ["--format", "csv", self.model], ["--format", "tap", "--table", "tests", self.model],
                      ["--format", "tap", "--store", "x.db"], ["--format", "tap", "--run", "1"], ["--format", "tap", "none.jsonl"],
                      ["--format", "tap", "--json", "-", self.model], ["--format", "tap", "--store", "x.db", "--run", "1", self.model],
                      ["--format", "csv", self.model, "--out", "file.csv"], ["--format", "tap"]):
            done = self.export(*words, exit_code=64)
            self.assertEqual(done.stdout, b"", words)
            self.assertGreaterEqual(len(done.stderr.splitlines()), 2, "what is wrong, and what to do")

    def test_broken_rows_are_named_and_the_rest_is_exported(self):
        path = self.folder / "broken.jsonl"
        lines = self.model.read_bytes().splitlines(keepends=True)
        broken = b'{nonsense\n{"type":"run","schema":9,"machine":"m","id":"x"}\n'
        path.write_bytes(b"".join(lines[:9]) + broken + b"".join(lines[9:40]) + lines[40][:20])
        done = self.export("--format", "tap", path)
        self.assertIn(b"line 10: not JSON", done.stderr)
        self.assertIn(b"line 11: a `run` row of schema 9", done.stderr)
        self.assertIn(b"the last line breaks off", done.stderr)
        self.assertIn(b"was cut short", done.stderr)
        self.assertTrue(done.stdout.splitlines()[-1].startswith(b"Bail out! cut short: sample-model"))
        self.assertEqual(done.stdout.count(b"\nok "), sum(b'"type": "test"' in line and b'"status": "pass"' in line for line in lines[:40]))

    def test_a_run_that_comes_twice(self):
        copy = self.folder / "copy.jsonl"
        copy.write_bytes(self.model.read_bytes())
        once = self.export("--format", "tap", self.model).stdout
        done = self.export("--format", "tap", self.model, copy)
        self.assertEqual(done.stdout, once)
        self.assertIn(b"is exported once", done.stderr)
        sample_runs.write(copy, sample_runs.model_run(2))
        self.assertIn(b"both are exported", self.export("--format", "tap", self.model, copy).stderr)

    def test_nothing_readable(self):
        for content in (b"", b"garbage\n", b"\xff\xfe\n", b"[]\n"):
            (self.folder / "bad.jsonl").write_bytes(content)
            done = self.export("--format", "junit", "bad.jsonl", "--out", "x.xml", exit_code=2)
            self.assertIn(b"nothing to export", done.stderr)
            self.assertFalse((self.folder / "x.xml").exists())

    def test_a_place_that_cannot_be_written(self):
        done = self.export("--format", "junit", self.model, "--out", f"{self.model}/x.xml", exit_code=2)
        self.assertIn(b"cannot write", done.stderr)
        self.export("--format", "junit", self.model, "--out", "/proc/none/x.xml", exit_code=2)
        with open("/dev/full", "wb") as full:
            done = subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "export", "--format", "tap", self.model], stdout=full,
                                  stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"No space left", done.stderr)

    def test_a_disk_that_fills_leaves_what_was_there(self):
        target = self.folder / "prom" / "skidproof.prom"
        self.export("--format", "prometheus", self.model, "--out", target)
        before = target.read_bytes()
        limit = len(before) // 2
        done = self.export("--format", "prometheus", self.model, "--out", target, exit_code=2,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertIn(b"cannot write", done.stderr)
        self.assertEqual((target.read_bytes(), list(target.parent.iterdir())), (before, [target]))

    def test_a_device_is_written_to_and_not_replaced(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
        self.export("--format", "tap", self.model, "--out", fifo)
        self.assertTrue(reader.communicate()[0].startswith(b"TAP version 14"))
        self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))

    def test_ocp_is_one_run_and_machine_a_stream(self):
        other = self.folder / "other.jsonl"
        sample_runs.write(other, sample_runs.native_run())
        self.assertIn(b"name a folder", self.export("--format", "ocp", self.model, other, exit_code=64).stderr)
        self.export("--format", "ocp", self.model, other, "--out", "streams/")
        found = sorted((self.folder / "streams").iterdir())
        self.assertEqual([ocp_check.problems(path.read_text()) for path in found], [[], []])

    def test_help_waits_for_nothing_heavy(self):
        heavy = "pandas", "matplotlib", "scipy", "sqlalchemy"
        code = (f"import sys; sys.path.insert(0, {str(RESULTS)!r}); sys.dont_write_bytecode = True; from skidproof import cli; "
                f"code = cli.main(['export', '--format', 'tap', {str(self.model)!r}]); "
                f"sys.exit(code or any(m in sys.modules for m in {heavy!r}))")
        self.assertEqual(subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode, 0)


class Scraped(unittest.TestCase):
    """results/bench/scrape.py: a real Prometheus, a real node-exporter."""

    def scrape(self, *arguments):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lines = sample_runs.native_run()
        path = pathlib.Path(folder.name) / "rows.jsonl"
        sample_runs.write(path, [*lines[:2], *lines[2::9], lines[-1], *sample_runs.model_run()])
        return subprocess.run([sys.executable, "-B", RESULTS / "bench/scrape.py", *arguments, path], capture_output=True, text=True)

    def test_promql_answers_with_the_figures_of_the_file(self):
        done = self.scrape()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("textfile: 23 figures and 8 counts of tests asked for by PromQL, 0 otherwise", done.stdout)

    def test_a_service_that_shows_other_figures_is_found_out(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'skidproof_run_info{host="unknown",machine="native"} 1\n')

            def log_message(self, *words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = self.scrape("--serve", f"http://127.0.0.1:{server.server_port}/metrics")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("WRONG: serve: skidproof_measurement", done.stdout)


class OutOfAStore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = str(self.folder / "x.db")
        for name, run in (("m", sample_runs.model_run()), ("n", sample_runs.native_run())):
            sample_runs.write(self.folder / f"{name}.jsonl", run)
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "store", "add", "--store", self.store, self.folder], check=True, capture_output=True)

    def test_a_stored_run_exports_as_its_file(self):
        for kind in FORMATS:
            for name, arguments in (("file", [str(self.folder / "m.jsonl")]), ("store", ["--store", self.store, "--run", "sample-model"])):
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(skidproof.export.main(["--format", kind, "--out", f"{self.folder}/{name}/", *arguments]), 0)
        for path in (self.folder / "file").iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "store" / path.name).read_bytes())

    def test_a_run_that_is_not_there(self):
        with self.assertRaises(cli.Complaint) as caught:
            skidproof.export.main(["--format", "tap", "--store", self.store, "--run", "none"])
        self.assertEqual(caught.exception.exit_code, 64)


if __name__ == "__main__":
    unittest.main()
