"""Reads results files (JSON Lines, schema 1) into runs, and says what could not be read."""

import dataclasses
import json
import math
import sys

# What the report relies on, per row type. A row without these is reported, not drawn.
REQUIRED = {
    "run": {"id": str},
    "machine": {"name": str},
    "test-start": {"id": str},
    "test": {"id": str, "status": str},
    "measurement-start": {"name": str},
    "unmeasured": {"name": str, "reason": str},
    "measurement": {"name": str, "value": (int, float), "unit": str},
    "defect": {"id": str, "caught": bool},
    "qualification": {"held": bool},
    "qualification-shard": {"units": dict},
    "fuzz": {"held": bool},
    "erratum": {"id": str, "listed": str, "observed": str},
    "inventory": {"verdict": int},
    "errata-summary": {"id": str},
    "end": {"reason": str},
}
# Fields that have a shape whenever they are there.
SHAPES = {
    "clauses": list, "citations": dict, "failures": list, "evidence": dict, "parameters": dict, "noise": dict,
    "capabilities": list, "defects": None, "counts": dict, "command": list, "caught_by": list, "missed": list,
    "reason": str, "microarch": str, "duration_s": (int, float), "n": int,
    "stage": str, "erratum": str, "repetitions": dict,
}
STATUSES = ("fail", "error", "disturbed", "xfail", "skip", "observed", "xpass", "pass")  # worst first


@dataclasses.dataclass
class Run:
    """The rows from one `run` row to the next, or to the end of the file."""

    path: str
    run: dict = dataclasses.field(default_factory=dict)
    machines: list = dataclasses.field(default_factory=list)
    tests: list = dataclasses.field(default_factory=list)
    measurements: list = dataclasses.field(default_factory=list)
    defects: list = dataclasses.field(default_factory=list)
    qualification: dict | None = None
    fuzz: dict | None = None
    errata: list = dataclasses.field(default_factory=list)
    end: dict | None = None
    unmeasured: list = dataclasses.field(default_factory=list)
    test_starts: list = dataclasses.field(default_factory=list)
    open_tests: list = dataclasses.field(default_factory=list)  # started and never finished
    open_measurements: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return self.run.get("id") or self.path

    def machine_names(self):
        """Every machine that a row names, in the order of appearance."""
        rows = [self.run, *self.machines, *self.tests, *self.measurements, *self.defects]
        return list(dict.fromkeys(row["machine"] for row in rows if row.get("machine")))

    def machine_row(self, name):
        return next((row for row in self.machines if row.get("machine") == name), {})

    def counts(self):
        """Tests by status, repetitions counted one by one."""
        found = dict.fromkeys(STATUSES, 0)
        for test in self.tests:
            found[test["status"]] += 1
        return found

    def is_empty(self):
        return not (self.run or self.machines or self.tests or self.measurements or self.defects
                    or self.qualification or self.fuzz or self.end or self.unmeasured or self.open_tests
                    or self.open_measurements or self.errata)


@dataclasses.dataclass
class Source:
    """One file: its runs and its problems."""

    path: str
    runs: list = dataclasses.field(default_factory=list)
    problems: list = dataclasses.field(default_factory=list)
    readable: bool = False  # it has at least one row
    other_schema: object = None  # that of a run which this package does not read


def provenance(name, machine_row):
    """MODEL, VIRTUAL LAB, SILICON, NATIVE or UNKNOWN. In doubt, not silicon."""
    said = machine_row.get("provenance")
    if name.startswith("model") or said == "model":
        return "MODEL"
    if name.startswith("virtual-lab") or said == "virtual-lab":
        return "VIRTUAL LAB"
    if name == "native":
        return "NATIVE"
    if name == "direct" or said == "silicon":
        return "SILICON"
    return "UNKNOWN"


def refuse_constant(word):
    raise ValueError(f"{word} is not JSON")


def is_a(value, kind):
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, kind)


def is_finite(value):
    """Whether a number is one that a double holds."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def row_problem(row):
    """Why this JSON value is no row that the report can use; None when it is one."""
    if not isinstance(row, dict) or not isinstance(row.get("type"), str):
        return "JSON, but not a row: an object with a `type`"
    kind = row["type"]
    if kind not in REQUIRED:
        return f"rows of type `{kind}` are not known"
    if not isinstance(row.get("machine"), str) or not row["machine"]:
        return f"a `{kind}` row that does not name its machine"
    for field, shape in REQUIRED[kind].items():
        if not is_a(row.get(field), shape):
            return f"a `{kind}` row without a usable `{field}`"
    for field, shape in SHAPES.items():
        if shape and field in row and not is_a(row[field], shape):
            return f"a `{kind}` row with an unusable `{field}`"
    if kind == "test" and row["status"] not in STATUSES:
        return f"a `test` row with the unknown status `{row['status']}`"
    if kind == "measurement" and not is_finite(row["value"]):
        return "a `measurement` row whose value is not finite"
    if kind == "run" and (type(row.get("schema")) is not int or row["schema"] != 1):  # to Python, 1.0 and true are 1
        return f"a `run` row of schema {row.get('schema')!r}; this report reads schema 1"
    return None


def add_row(source, row):
    kind = row["type"]
    if kind == "run" or not source.runs:
        source.runs.append(Run(source.path))
    run = source.runs[-1]
    if kind == "run":
        run.run = row
    elif kind == "machine":
        run.machines.append(row)
    elif kind == "test-start":
        run.test_starts.append(row)
        run.open_tests.append(row)
    elif kind == "test":
        run.tests.append(row)
        run.open_tests = [s for s in run.open_tests if key_of(s) != key_of(row)]
    elif kind == "measurement-start":
        run.open_measurements.append(row)
    elif kind in ("measurement", "unmeasured"):
        (run.measurements if kind == "measurement" else run.unmeasured).append(row)
        run.open_measurements = [s for s in run.open_measurements if s["name"] != row["name"]]
    elif kind == "defect":
        run.defects.append(row)
    elif kind == "qualification":
        run.qualification = row
    elif kind == "fuzz":
        run.fuzz = row
    elif kind == "erratum":
        run.errata.append(row)
    elif kind == "end":
        run.end = row


# Parameters that are results themselves, or stand beside one: with them, no figure would meet itself again on another night, or
# beside another machine.
MEASURED_PARAMETERS = {"slot_cycles", "verdict", "bandwidth", "told", "published", "source", "disturbed", "in_company"}


def figure_parameters(row):
    """What a measurement's figure was measured at, which is part of the figure's identity."""
    parameters = row.get("parameters")
    if not isinstance(parameters, dict) or not MEASURED_PARAMETERS & parameters.keys():
        return parameters
    return {key: value for key, value in parameters.items() if key not in MEASURED_PARAMETERS}


def key_of(row):
    return (row["machine"], row["id"], row.get("repetition", 0))


def note_schema(source, row):
    """Of a row with a problem: whether it begins a run of another schema."""
    if isinstance(row, dict) and row.get("type") == "run" and "schema" in row and (type(row["schema"]) is not int or row["schema"] != 1):
        source.other_schema = row["schema"]


def read_stream(source, stream):
    for number, raw in enumerate(stream, start=1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw.decode("utf-8"), parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            broken_off = not raw.endswith(b"\n")
            what = "the last line breaks off: writing was cut short" if broken_off else f"not JSON ({error})"
            source.problems.append(f"line {number}: {what}")
            continue
        problem = row_problem(row)
        if problem:
            source.problems.append(f"line {number}: {problem}")
            note_schema(source, row)
            continue
        source.readable = True
        add_row(source, row)


def read_source(path):
    """Reads one file ("-" is standard input); never raises for what is in it or that it is missing."""
    source = Source(path)
    try:
        if path == "-":
            read_stream(source, sys.stdin.buffer)
        else:
            with open(path, "rb") as stream:
                read_stream(source, stream)
    except OSError as error:
        source.problems.append(f"cannot be read: {error.strerror}")
    if not source.readable and not source.problems:
        source.problems.append("is empty: no rows")
    source.runs = [run for run in source.runs if not run.is_empty()]
    return source


def source_of(name, found):
    """The same from rows that are at hand, such as a store's."""
    source = Source(name)
    for row in found:
        problem = row_problem(row)
        if problem:
            source.problems.append(problem)
            note_schema(source, row)
        else:
            source.readable = True
            add_row(source, row)
    return source


def histograms(tests, prefix):
    """(test, name, unit, {value: count}, expected values) of each evidence histogram whose name or key
    begins so and that holds anything."""
    found = []
    for test in tests:
        for key, item in test.get("evidence", {}).items():
            if not isinstance(item, dict) or item.get("kind") != "histogram":
                continue
            name = str(item.get("name") or key)
            if not (name.startswith(prefix) or key.startswith(prefix)):
                continue
            bins = bins_of(item)
            if bins:
                expected = {v for v in item.get("expected") or [] if is_a(v, (int, float))}
                found.append((test, name, str(item.get("unit", "")), bins, expected))
    return found


def weights_of(test, name):
    """{value: weight} of the histogram of this name: the shares that the clause gives its values; empty where not said."""
    weights = {}
    for key, item in test.get("evidence", {}).items():
        if isinstance(item, dict) and item.get("kind") == "histogram" and str(item.get("name") or key) == name:
            for pair in item.get("weights") or []:
                if isinstance(pair, list) and len(pair) == 2 and all(is_a(n, (int, float)) for n in pair):
                    weights[pair[0]] = pair[1]
    return weights


def bins_of(histogram):
    """{value: count} of a histogram's evidence; bins that are not pairs of numbers are left out."""
    bins = {}
    listed = histogram.get("bins")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, list) and len(item) == 2 and is_a(item[0], (int, float)) and is_a(item[1], int):
            if item[1] > 0 and is_finite(item[0]):
                bins[item[0]] = bins.get(item[0], 0) + item[1]
    return dict(sorted(bins.items()))
