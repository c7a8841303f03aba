"""Is a stream of JSON Lines what version 2.0 of the OCP Test and Validation Output Specification asks for?

The rules are those of opencomputeproject/ocp-diag-core, json_spec/README.md: which artifacts there are, which fields they must and
may have, which values, what belongs together. As a program: python3 ocp_check.py FILE…
"""

import json
import re
import sys

TEXT, COUNT, NUMBER, FLAG, FIGURE, OBJECT = "text", "count", "number", "flag", "figure", "object"
KINDS = {
    TEXT: lambda v: isinstance(v, str),
    COUNT: lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
    NUMBER: lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    FLAG: lambda v: isinstance(v, bool),
    FIGURE: lambda v: isinstance(v, (str, bool, int, float)),
    OBJECT: lambda v: isinstance(v, dict),
}
STATUS = {"COMPLETE", "ERROR", "SKIP"}
VALIDATOR = {"type!": {"EQUAL", "NOT_EQUAL", "LESS_THAN", "LESS_THAN_OR_EQUAL", "GREATER_THAN", "GREATER_THAN_OR_EQUAL", "REGEX_MATCH",
                       "REGEX_NO_MATCH", "IN_SET", "NOT_IN_SET"}, "value!": FIGURE, "name": TEXT, "metadata": OBJECT}
PLACE = {"file!": TEXT, "line!": NUMBER}
PART = {"name!": TEXT, "type": {"UNSPECIFIED", "ASIC", "ASIC-SUBSYSTEM", "BUS", "FUNCTION", "CONNECTOR"}, "location": TEXT, "version": TEXT,
        "revision": TEXT}
SOFTWARE = {"name!": TEXT, "softwareInfoId!": TEXT, "version": TEXT, "revision": TEXT, "computerSystem": TEXT,
            "softwareType": {"UNSPECIFIED", "FIRMWARE", "SYSTEM", "APPLICATION"}}
HARDWARE = {"name!": TEXT, "hardwareInfoId!": TEXT, **{key: TEXT for key in (
    "version", "revision", "location", "serialNumber", "partNumber", "partType", "manufacturer", "manufacturerPartNumber", "odataId",
    "computerSystem", "manager")}}
DUT = {"dutInfoId!": TEXT, "name": TEXT, "platformInfos": [{"info!": TEXT}], "softwareInfos": [SOFTWARE], "hardwareInfos": [HARDWARE],
       "metadata": OBJECT}
LOG = {"severity!": {"INFO", "DEBUG", "WARNING", "ERROR", "FATAL"}, "message!": TEXT, "sourceLocation": PLACE}
ERROR = {"symptom!": TEXT, "message": TEXT, "softwareInfoIds": [TEXT], "sourceLocation": PLACE}
RUN = {
    "testRunStart": {"name!": TEXT, "version!": TEXT, "commandLine!": TEXT, "parameters!": OBJECT, "dutInfo!": DUT, "metadata": OBJECT},
    "testRunEnd": {"status!": STATUS, "result!": {"NOT_APPLICABLE", "PASS", "FAIL"}},
    "log": LOG, "error": ERROR,
}
STEP = {
    "testStepStart": {"name!": TEXT}, "testStepEnd": {"status!": STATUS}, "log": LOG, "error": ERROR,
    "measurement": {"name!": TEXT, "value!": FIGURE, "unit": TEXT, "validators": [VALIDATOR], "hardwareInfoId": TEXT, "subcomponent": PART,
                    "metadata": OBJECT},
    "measurementSeriesStart": {"name!": TEXT, "measurementSeriesId!": TEXT, "unit": TEXT, "validators": [VALIDATOR],
                               "hardwareInfoId": TEXT, "subcomponent": PART, "metadata": OBJECT},
    "measurementSeriesElement": {"index!": COUNT, "value!": FIGURE, "timestamp!": TEXT, "measurementSeriesId!": TEXT, "metadata": OBJECT},
    "measurementSeriesEnd": {"measurementSeriesId!": TEXT, "totalCount!": COUNT},
    "diagnosis": {"verdict!": TEXT, "type!": {"PASS", "FAIL", "UNKNOWN"}, "message": TEXT, "hardwareInfoId": TEXT, "subcomponent": PART,
                  "sourceLocation": PLACE},
    "extension": {"name!": TEXT, "content!": OBJECT},
}
TOGETHER = {("SKIP", "NOT_APPLICABLE"), ("ERROR", "NOT_APPLICABLE"), ("COMPLETE", "PASS"), ("COMPLETE", "FAIL")}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def problems(text):
    """Everything that is wrong with the stream, as words."""
    found = []
    lines = text.split("\n")
    if lines.pop():
        found.append("the last line does not end")
    artifacts = []
    for number, line in enumerate(lines):
        try:
            artifacts.append(json.loads(line, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word))))
        except ValueError as error:
            return [*found, f"line {number}: {error}"]
    check = _Check(found)
    for number, artifact in enumerate(artifacts):
        check.artifact(number, artifact)
    check.whole(artifacts)
    return found


class _Check:
    def __init__(self, found):
        self.found, self.steps, self.series, self.ids = found, {}, {}, set()

    def artifact(self, number, artifact):
        kinds = [key for key in artifact if key not in ("sequenceNumber", "timestamp")]
        self.expect(number, artifact.get("sequenceNumber") == number, "sequenceNumber")
        self.expect(number, TIME.fullmatch(str(artifact.get("timestamp"))), "timestamp")
        self.expect(number, kinds == [("schemaVersion" if number == 0 else kinds[0] if kinds else "")], f"kinds {kinds}")
        if kinds == ["schemaVersion"]:
            self.expect(number, artifact["schemaVersion"] == {"major": 2, "minor": 0}, "schemaVersion")
        elif kinds == ["testRunArtifact"]:
            self.one_of(number, RUN, artifact["testRunArtifact"])
        elif kinds == ["testStepArtifact"]:
            step = dict(artifact["testStepArtifact"])
            name = step.pop("testStepId", None)
            self.expect(number, isinstance(name, str), "testStepId")
            self.one_of(number, STEP, step)
            self.in_step(number, name, *next(iter(step.items())))

    def one_of(self, number, shapes, item):
        self.expect(number, len(item) == 1 and set(item) <= set(shapes), f"artifact {list(item)}")
        for key, value in item.items():
            self.shape(number, shapes.get(key, {}), value, key)

    def shape(self, number, shape, value, name):
        if isinstance(shape, set):
            self.expect(number, value in shape, f"{name} {value!r}")
        elif isinstance(shape, list):
            self.expect(number, isinstance(value, list), name)
            for one in value:
                self.shape(number, shape[0], one, name)
        elif isinstance(shape, str):
            self.expect(number, KINDS[shape](value), f"{name} is no {shape}: {value!r}")
        else:
            fields = {key.rstrip("!"): inner for key, inner in shape.items()}
            self.expect(number, set(value) <= set(fields), f"{name} has {sorted(set(value) - set(fields))}")
            self.expect(number, all(key.rstrip("!") in value for key in shape if key.endswith("!")), f"{name} lacks a field")
            for key, one in value.items():
                self.shape(number, fields.get(key, OBJECT), one, f"{name}.{key}")

    def in_step(self, number, name, kind, item):
        if kind == "testStepStart":
            self.expect(number, name not in self.steps, f"step {name} begins again")
            self.steps[name] = "open"
            return
        self.expect(number, self.steps.get(name) == "open", f"{kind} outside of step {name}")
        if kind == "testStepEnd":
            self.steps[name] = "ended"
        if kind == "measurementSeriesStart":
            self.expect(number, item["measurementSeriesId"] not in self.series, "a series begins again")
            self.series[item["measurementSeriesId"]] = 0
        if kind == "measurementSeriesElement":
            self.expect(number, self.series.get(item["measurementSeriesId"]) == item["index"], "index")
            self.series[item["measurementSeriesId"]] = item["index"] + 1
        if kind == "measurementSeriesEnd":
            self.expect(number, self.series.pop(item["measurementSeriesId"], None) == item["totalCount"], "totalCount")
        for key in ("hardwareInfoId", "softwareInfoIds"):
            for one in [item[key]] if isinstance(item.get(key), str) else item.get(key, []):
                self.ids.add(one)

    def whole(self, artifacts):
        kinds = [next(iter(artifact.get("testRunArtifact", {})), "") for artifact in artifacts]
        self.expect(0, kinds[1:2] == ["testRunStart"] and kinds.count("testRunStart") == 1, "testRunStart is not second")
        self.expect(0, kinds[-1:] == ["testRunEnd"] and kinds.count("testRunEnd") == 1, "testRunEnd is not last")
        self.expect(0, set(self.steps.values()) <= {"ended"}, "a step does not end")
        self.expect(0, not self.series, "a series does not end")
        end = artifacts[-1]["testRunArtifact"]["testRunEnd"]
        self.expect(0, (end["status"], end["result"]) in TOGETHER, f"{end}")
        dut = artifacts[1]["testRunArtifact"]["testRunStart"]["dutInfo"]
        known = [one["softwareInfoId"] for one in dut["softwareInfos"]] + [one["hardwareInfoId"] for one in dut["hardwareInfos"]]
        self.expect(0, len(set(known)) == len(known) and self.ids <= set(known), f"ids {self.ids} of {known}")

    def expect(self, number, holds, what):
        if not holds:
            self.found.append(f"line {number}: {what}")


if __name__ == "__main__":
    bad = [f"{name}: {problem}" for name in sys.argv[1:] for problem in problems(open(name, encoding="utf-8").read())]
    sys.exit("\n".join(bad[:20]) or 0)
