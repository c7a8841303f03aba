"""Prometheus' text format [Prometheus, "Exposition formats"], for the node-exporter's textfile folder and for a scrape.

Names and labels are those of `skidproof errata --batch prometheus`, with the host, the core and the provenance on every series.
There are no time stamps: the textfile collector refuses files that have them.

What there is of series is bounded: for each host, machine and core type, 8 for each suite of tests, one for each test that failed
(at most MOST_FAILED), one for each figure (at most MOST_FIGURES), 3 for each erratum of the catalogue, and some twenty more.
"""

import collections
import dataclasses
import datetime
import decimal
import re

from skidproof import rows
from skidproof.export import common

MOST_FAILED = 100
MOST_FIGURES = 5000
EXPOSURES = ("none", "workaround-in-place", "exposed", "unknown")

# Units of rows in Prometheus' base units: the metric's suffix, and the power of ten, or of two, that leads there. Both are exact.
UNITS = {
    "s": ("seconds", 0), "ms": ("seconds", -3), "us": ("seconds", -6), "ns": ("seconds", -9), "ps": ("seconds", -12),
    "Hz": ("hertz", 0), "kHz": ("hertz", 3), "MHz": ("hertz", 6), "GHz": ("hertz", 9),
    "B": ("bytes", 0), "kB": ("bytes", 3), "MB": ("bytes", 6), "GB": ("bytes", 9),
    "B/s": ("bytes_per_second", 0), "kB/s": ("bytes_per_second", 3), "MB/s": ("bytes_per_second", 6),
    "GB/s": ("bytes_per_second", 9),
    "B/cycle": ("bytes_per_cycle", 0),
    "%": ("ratio", -2), "bool": ("bool", 0),
    **{unit: (unit, 0) for unit in ("cycles", "instructions", "loads", "stores", "uops", "records", "branches")},
}
TAKEN = {"host", "machine", "core", "provenance", "name", "statistic", "unit", "job", "instance", "le", "quantile"}

HELP = {
    "run_info": "What was run, on what, with what; always 1.",
    "run_started_timestamp_seconds": "When the run began, since the epoch.",
    "run_finished_timestamp_seconds": "When the run ended, since the epoch.",
    "run_duration_seconds": "How long the run took.",
    "run_complete": "1 where the run came to its end, 0 where it was cut short.",
    "run_exit_code": "Exit code of the run: 0 held, 1 a property failed, 2 the harness failed, 77 nothing could run.",
    "tests": "Tests of a suite by status, repetitions counted one by one.",
    "test_failed": "Repetitions of a test that ended so; only what failed has a series.",
    "defects": "Deliberate defects of the model by whether the suites caught them.",
    "qualification_held": "1 where every defect was caught and no conforming machine accused.",
    "erratum_listed": "What is published of an erratum and this processor, as a label.",
    "erratum_observed": "What the erratum's reproducer saw, as a label.",
    "erratum_contradiction": "1 where an erratum was reproduced that is listed as absent, mended or unknown.",
    "errata": "Errata by exposure.",
    "errata_verdict": "Exit code of the check: 0 none, 1 workaround in place, 2 exposed, 3 unknown.",
}


@dataclasses.dataclass
class Series:
    """Series by metric and labels, and what had to be left out."""

    found: dict = dataclasses.field(default_factory=dict)
    notices: list = dataclasses.field(default_factory=list)

    def add(self, metric, value, **labels):
        """A series that was there before with the same labels is replaced."""
        self.found.setdefault(metric, {})[tuple(labels.items())] = value

    def text(self):
        return "".join(self._metric(metric) for metric in sorted(self.found, key=_order))

    def _metric(self, metric):
        said = HELP.get(metric) or _measured_help(metric)
        lines = [f"# HELP skidproof_{metric} {said}", f"# TYPE skidproof_{metric} gauge"]
        lines += [f"skidproof_{metric}{{{','.join(map(_label, labels))}}} {value}" for labels, value in self.found[metric].items()]
        return "\n".join(lines) + "\n"


def metrics_text(runs):
    """The text of these runs (a list of rows.Run); the last run of each machine and verb wins where several speak of the same."""
    return collect(runs).text()


def collect(runs):
    """As metrics_text, but gives Series, with `notices` of what lost against a later run or was over the bounds."""
    series = Series()
    lasts, last_tested, last_errata = {}, {}, {}
    for run in sorted(runs, key=_begin):
        for machine in common.machine_names(run):
            facts = common.about(run, machine)
            key = (facts["host"], machine, facts["core_type"], _verb(run))
            if key in lasts:
                series.notices.append(f"run {lasts.pop(key).name} on {machine} is left out: {run.name} is later")
            lasts[key] = run  # in the order of time, for what two verbs measure
            if any(row["machine"] == machine for row in [*run.tests, *run.open_tests]):
                last_tested[key[:3]] = run
            if any(row["machine"] == machine for row in run.errata):
                last_errata[key[:3]] = run
    for (*subject, verb), run in lasts.items():
        host, machine, core = subject
        labels = {"host": host, "machine": machine, "core": core, "provenance": common.provenance(run, machine)}
        _add_run(series, run, machine, labels, verb)
        _add_measurements(series, run, machine, labels)
        if last_tested.get(tuple(subject)) is run:
            _add_tests(series, run, machine, labels)
        if last_errata.get(tuple(subject)) is run:
            _add_errata(series, run, machine, labels)
    return series


def _begin(run):
    return common.text(run.run.get("started", ""))


def _verb(run):
    command = run.run.get("command")
    return common.text(command[1]) if isinstance(command, list) and len(command) > 1 else ""


def _add_run(series, run, machine, labels, verb):
    facts = common.about(run, machine)
    named = {name: facts[name] for name in ("run", "version", "seed", "microarch", "microcode", "brand", "hypervisor", "os", "bios",
                                            "defects")}
    series.add("run_info", 1, **labels, verb=verb, **named)
    by_verb = {**labels, "verb": verb}
    end = run.end or {}
    for what, when in (("started", run.run.get("started")), ("finished", end.get("finished"))):
        seconds = _epoch(when)
        if seconds is not None:
            series.add(f"run_{what}_timestamp_seconds", seconds, **by_verb)
    if "duration_s" in end:
        series.add("run_duration_seconds", _number(end["duration_s"]), **by_verb)
    series.add("run_complete", int(run.end is not None), **by_verb)
    if rows.is_a(end.get("exit"), int):
        series.add("run_exit_code", end["exit"], **by_verb)
    caught = [row["caught"] for row in run.defects] if run.run.get("machine") == machine else []
    for is_caught in (True, False) if caught else ():
        series.add("defects", caught.count(is_caught), **labels, caught=str(is_caught).lower())
    if run.qualification and run.qualification["machine"] == machine:
        series.add("qualification_held", int(run.qualification["held"]), **labels)


def _add_tests(series, run, machine, labels):
    outcomes = [one for one in common.outcomes(run) if one.machine == machine]
    counts = collections.Counter((one.suite, one.status) for one in outcomes)
    for suite in sorted({one.suite for one in outcomes}):
        for status in sorted(rows.STATUSES):
            series.add("tests", counts[suite, status], **labels, suite=suite, status=status)
    failed = {}
    for one in outcomes:
        if one.status in ("fail", "error"):
            failed[one.suite, one.id, one.status] = failed.get((one.suite, one.id, one.status), 0) + 1
    for (suite, name, status), times in list(failed.items())[:MOST_FAILED]:
        series.add("test_failed", times, **labels, suite=suite, test=name, status=status)
    if len(failed) > MOST_FAILED:
        series.notices.append(f"run {run.name} on {machine}: {len(failed)} tests failed, and {MOST_FAILED} have a series of their own")


def _add_measurements(series, run, machine, labels):
    measured = [row for row in run.measurements if row["machine"] == machine]
    for row in measured[:MOST_FIGURES]:
        suffix, exponent = UNITS.get(row["unit"], ("", 0))
        unit = {} if suffix else {"unit": row["unit"]}
        figure = {"name": row["name"], "statistic": common.text(row.get("statistic", "")), **unit}
        figure |= parameter_labels(rows.figure_parameters(row) or {})
        series.add(f"measurement_{suffix}" if suffix else "measurement", _number(row["value"], exponent), **labels, **figure)
    if len(measured) > MOST_FIGURES:
        series.notices.append(f"run {run.name} on {machine}: {len(measured) - MOST_FIGURES} figures over {MOST_FIGURES} are left out")


def parameter_labels(parameters):
    """Labels of a figure's parameters: names that a label may have, none twice."""
    labels = {}
    for name in sorted(parameters):
        safe = re.sub(r"[^a-z0-9_]", "_", name.lower())
        if safe in TAKEN or not re.match(r"[a-z]", safe):
            safe = f"parameter_{safe}"
        while safe in labels:
            safe += "_"
        labels[safe] = common.text(parameters[name])
    return labels


def _add_errata(series, run, machine, labels):
    errata = [row for row in run.errata if row["machine"] == machine]
    whole = {name: value for name, value in labels.items() if name != "core"}
    for row in errata:
        of = {**labels, "core": common.text(row.get("core_type", "")), "erratum": row["id"]}
        series.add("erratum_listed", 1, **of, verdict=row["listed"])
        series.add("erratum_observed", 1, **of, verdict=row["observed"])
        series.add("erratum_contradiction", int(row.get("contradiction") is True), **of)
    counts = {exposure: sum(row.get("exposure") == exposure for row in errata) for exposure in EXPOSURES}
    for exposure, count in counts.items():
        series.add("errata", count, **whole, exposure=exposure)
    verdict = next((code for code, exposure in ((2, "exposed"), (3, "unknown"), (1, "workaround-in-place")) if counts[exposure]), 0)
    series.add("errata_verdict", verdict, **whole)


def _number(value, exponent=0):
    """The decimal digits of the row with the point moved: no rounding of ours comes between the file and the series."""
    if not rows.is_a(value, (int, float)):
        return "NaN"
    moved = decimal.Decimal(repr(value)).scaleb(exponent)
    return f"{moved:f}" if -20 < moved.adjusted() < 20 else str(moved)


def _epoch(when):
    try:
        moment = datetime.datetime.fromisoformat(common.text(when).replace("Z", "+00:00"))
        return f"{moment.timestamp():.3f}" if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _label(pair):
    value = common.visible(pair[1], keep="\n")
    return f'{pair[0]}="' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _order(metric):
    return (list(HELP).index(metric), "") if metric in HELP else (len(HELP), metric)


def _measured_help(metric):
    unit = metric.removeprefix("measurement").strip("_").replace("_", " ")
    return f"Figures in {unit}, with what they were measured at as labels." if unit else "Figures in other units, which are a label."
