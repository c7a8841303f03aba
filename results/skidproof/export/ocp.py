"""JSON Lines of the Open Compute Project's Test and Validation Output Specification, version 2.0
[opencomputeproject/ocp-diag-core, json_spec/README.md].

One stream is one test run on one device under test, so each run and machine has a stream of its own. Each suite is a step, and so are
the measurements and the errata. What the specification has no word for stands in the verdict and the message of a diagnosis, and
whole in an extension.
"""

import json
import re

from skidproof import rows
from skidproof.export import common

CPU, SOFTWARE, KERNEL, BIOS, MICROCODE = "cpu", "skidproof", "kernel", "bios", "microcode"
DIAGNOSES = {"pass": "PASS", "xpass": "PASS", "fail": "FAIL"}  # all others: UNKNOWN
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
NEVER = "1970-01-01T00:00:00Z"  # of rows that lost their run row, and with it the only time that there was
VALIDATORS = {"==": "EQUAL", "!=": "NOT_EQUAL", "<": "LESS_THAN", "<=": "LESS_THAN_OR_EQUAL", ">": "GREATER_THAN",
              ">=": "GREATER_THAN_OR_EQUAL"}
COMPARISON = re.compile(r"(.+) (==|!=|<=|>=|<|>) (.+)", re.DOTALL)


def documents(runs):
    """[((run id, machine), text)], one stream each."""
    return [((run.name, machine), _Stream(run, machine).text()) for run in runs for machine in common.machine_names(run)]


class _Stream:
    def __init__(self, run, machine):
        self.run, self.machine, self.lines, self.steps = run, machine, [], 0
        self.facts = common.about(run, machine)
        self.outcomes = [one for one in common.outcomes(run) if one.machine == machine]
        self.begin = _time(run.run.get("started"), _time((run.end or {}).get("finished"), NEVER))
        self.end = _time((run.end or {}).get("finished"), self.begin)

    def text(self):
        self.put({"schemaVersion": {"major": 2, "minor": 0}}, self.begin)
        self.put({"testRunArtifact": {"testRunStart": self.start()}}, self.begin)
        self.log("INFO", f"the provenance of these results: {self.facts['provenance']}")
        self.measurements()
        for suite in dict.fromkeys(one.suite for one in self.outcomes):
            self.suite(suite, [one for one in self.outcomes if one.suite == suite])
        self.errata()
        self.qualification()
        if self.run.end is None:
            message = "the run was cut short: its results have no end"
            error = {"symptom": "skidproof-cut-short", "message": message, "softwareInfoIds": [SOFTWARE]}
            self.put({"testRunArtifact": {"error": error}}, self.end)
        status, result = self.verdict()
        self.put({"testRunArtifact": {"testRunEnd": {"status": status, "result": result}}}, self.end)
        return "".join(line + "\n" for line in self.lines)

    def verdict(self):
        seen = {one.status for one in self.outcomes}
        if self.run.end is None:
            return "ERROR", "NOT_APPLICABLE"
        if "fail" in seen:
            return "COMPLETE", "FAIL"
        if "error" in seen or self.run.end.get("exit") == 2 and not self.run.errata:
            return "ERROR", "NOT_APPLICABLE"
        if seen & {"pass", "xpass"}:
            return "COMPLETE", "PASS"
        return "SKIP", "NOT_APPLICABLE"  # nothing was judged: figures alone, or tests that said nothing

    def put(self, what, when):
        self.lines.append(json.dumps({**what, "sequenceNumber": len(self.lines), "timestamp": when}))

    def log(self, severity, message):
        self.put({"testRunArtifact": {"log": {"severity": severity, "message": message}}}, self.begin)

    def start(self):
        facts, row = self.facts, self.run.machine_row(self.machine)
        software = [(SOFTWARE, "APPLICATION", "skidproof", facts["version"]), (KERNEL, "SYSTEM", facts["os"], ""),
                    (BIOS, "FIRMWARE", facts["bios"], ""),
                    (MICROCODE, "FIRMWARE", "microcode" if facts["microcode"] else "", facts["microcode"])]
        cpu = {"hardwareInfoId": CPU, "name": facts["brand"] or self.machine, "partType": "CPU", "manufacturer": facts["vendor"],
               "version": "-".join(f"{row[key]:02x}" for key in ("family", "model", "stepping") if rows.is_a(row.get(key), int))}
        platform = [f"{name}: {facts[name]}" for name in ("provenance", "microarch", "core_type", "hypervisor", "defects") if facts[name]]
        dut = {"dutInfoId": "1", "name": f"{facts['host']} {self.machine}", "platformInfos": [{"info": info} for info in platform],
               "softwareInfos": [_without_empty({"softwareInfoId": key, "softwareType": kind, "name": name, "version": version})
                                 for key, kind, name, version in software if name],
               "hardwareInfos": [_without_empty(cpu)], "metadata": {"machine": row}}
        return {"name": "skidproof", "version": facts["version"] or "unknown", "commandLine": facts["command"],
                "parameters": {"seed": self.run.run.get("seed"), "machine": self.machine}, "dutInfo": dut,
                "metadata": {"run": self.run.name, "provenance": facts["provenance"], "tape": facts["tape"]}}

    def step(self, name, when):
        self.steps += 1
        put = _Step(self, str(self.steps))
        put({"testStepStart": {"name": name}}, when)
        return put

    def measurements(self):
        figures = {}
        for row in self.run.measurements:
            if row["machine"] == self.machine:
                figures.setdefault((row["name"], row["unit"], common.text(row.get("statistic", ""))), []).append(row)
        unmeasured = [row for row in self.run.unmeasured if row["machine"] == self.machine]
        if not figures and not unmeasured:
            return
        put = self.step("measurements", self.begin)
        for number, ((name, unit, statistic), found) in enumerate(figures.items(), start=1):
            if len(found) == 1:
                alone = {"name": name, "value": found[0]["value"], "unit": unit, "hardwareInfoId": CPU, "metadata": _metadata(found[0])}
                put({"measurement": alone}, self.begin)
                continue
            put.series(f"{put.number}-{number}", {"name": name, "unit": unit, "metadata": {"statistic": statistic}},
                       [(row["value"], _metadata(row)) for row in found], self.begin)
        for row in unmeasured:
            put({"log": {"severity": "WARNING", "message": f"{row['name']} was not measured: {row['reason']}"}}, self.begin)
        put({"testStepEnd": {"status": "COMPLETE"}}, self.end)

    def suite(self, name, outcomes):
        put = self.step(name or "tests", _time(outcomes[0].started, self.begin))
        when = self.begin
        for one in outcomes:
            when = _time(one.started, when)
            self.test(put, one, when)
        seen = {one.status for one in outcomes}
        put({"testStepEnd": {"status": "ERROR" if "error" in seen else "SKIP" if seen == {"skip"} else "COMPLETE"}}, when)

    def test(self, put, one, when):
        put.evidence(one, when)
        if one.status == "error":
            put({"error": {"symptom": "skidproof-test-error", "message": f"{one.id}: {one.words}", "softwareInfoIds": [SOFTWARE]}}, when)
        message = "; ".join([one.id, *one.story])
        put({"diagnosis": {"verdict": f"skidproof-{one.status}", "type": DIAGNOSES.get(one.status, "UNKNOWN"), "message": message,
                           "hardwareInfoId": CPU, "subcomponent": {"type": "FUNCTION", "name": one.suite or one.id}}}, when)
        content = {key: value for key, value in one.row.items() if key not in ("type", "evidence", "citations")}
        put({"extension": {"name": "skidproof-test", "content": {**content, "status": one.status}}}, when)

    def errata(self):
        found = [row for row in self.run.errata if row["machine"] == self.machine]
        if not found:
            return
        put = self.step("errata", self.begin)
        for row in found:
            content = {key: value for key, value in row.items() if key != "type"}
            put({"extension": {"name": "skidproof-erratum", "content": content}}, self.end)
        put({"testStepEnd": {"status": "COMPLETE"}}, self.end)


    def qualification(self):
        """Which deliberately broken machines the suites caught: of the suites, not of this machine, so no diagnosis."""
        found = [*self.run.defects, *([self.run.qualification] if self.run.qualification else [])]
        if not found or self.run.run.get("machine") != self.machine:
            return
        put = self.step("qualification", self.begin)
        for row in found:
            content = {key: value for key, value in row.items() if key != "type"}
            put({"extension": {"name": f"skidproof-{row['type']}", "content": content}}, self.end)
        put({"testStepEnd": {"status": "COMPLETE"}}, self.end)


class _Step:
    """Puts artifacts of one step."""

    def __init__(self, stream, number):
        self.stream, self.number, self.series_count = stream, number, 0

    def __call__(self, what, when):
        self.stream.put({"testStepArtifact": {**what, "testStepId": self.number}}, when)

    def series(self, name, head, elements, when):
        self({"measurementSeriesStart": {**head, "measurementSeriesId": name, "hardwareInfoId": CPU}}, when)
        for index, (value, metadata) in enumerate(elements):
            element = {"index": index, "value": value, "timestamp": when, "measurementSeriesId": name, "metadata": metadata}
            self({"measurementSeriesElement": element}, when)
        self({"measurementSeriesEnd": {"measurementSeriesId": name, "totalCount": len(elements)}}, when)

    def evidence(self, one, when):
        """Comparisons as measurements with a validator, histograms as series, other numbers as measurements."""
        about = {"hardwareInfoId": CPU, "metadata": {"test": one.id}}
        for name, item in one.evidence.items():
            if name == "compared" and isinstance(item, dict):
                for expression, compared in item.items():
                    whole = {"metadata": {"test": one.id, "compared": compared}}
                    self({"measurement": {**_compared(expression, compared), **about, **whole}}, when)
            elif isinstance(item, dict) and item.get("kind") == "histogram":
                self.series_count += 1
                metadata = {"test": one.id, "expected": item.get("expected")}
                head = {"name": name, "unit": common.text(item.get("unit", "")), "metadata": metadata}
                self.series(f"{self.number}-histogram-{self.series_count}", head,
                            [(value, {"count": count}) for value, count in rows.bins_of(item).items()], when)
            else:
                value = item if isinstance(item, (int, float)) else common.text(item)
                self({"measurement": {"name": name, "value": value, **about}}, when)


def _compared(expression, compared):
    """A measurement of what was seen, with the validator that the expression is where both sides are of a kind that has one."""
    if not isinstance(compared, dict):
        return {"name": expression, "value": common.text(compared)}
    seen, expected = compared.get("seen"), compared.get("expected")
    parts = COMPARISON.fullmatch(expression)
    sign = parts[2] if parts else ""
    extreme = {">": "least", ">=": "least", "<": "most", "<=": "most"}.get(sign)
    if isinstance(seen, dict) and extreme in seen:  # of several comparisons: the one that came nearest to failing
        seen = seen[extreme]
    value = seen if isinstance(seen, (int, float, str)) else common.text(seen)
    numbers = rows.is_a(seen, (int, float)) and rows.is_a(expected, (int, float))
    words = type(seen) is type(expected) and isinstance(seen, (str, bool)) and sign in ("==", "!=")
    if sign and (numbers or words):
        return {"name": parts[1], "value": value, "validators": [{"name": expression, "type": VALIDATORS[sign], "value": expected}]}
    return {"name": expression, "value": value}


def _metadata(row):
    return {key: row.get(key) for key in ("statistic", "n", "low", "high", "interval", "parameters", "noise") if key in row}


def _without_empty(fields):
    return {key: value for key, value in fields.items() if value != ""}


def _time(when, otherwise):
    return when if isinstance(when, str) and TIME.fullmatch(when) else otherwise
