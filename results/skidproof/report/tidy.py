"""What the report takes from rows, by its shape: a field of another shape is left out, so that no page fails for an odd row.

The reader (skidproof.rows) already left out rows that lack what makes them rows, and said so.
"""

import math

from skidproof.report.parts import FORBIDDEN


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def is_text(value):
    return isinstance(value, str)


def is_flag(value):
    return isinstance(value, bool)


def is_list(value):
    return isinstance(value, list)


def is_object(value):
    return isinstance(value, dict)


def is_scalar(value):
    return value is None or isinstance(value, (str, bool)) or is_number(value)


FIELDS = {
    "run": {"id": is_text, "command": is_list, "version": is_text, "started": is_text, "seed": is_scalar, "tape": is_text},
    "machine": {"brand": is_text, "vendor": is_text, "family": is_scalar, "model": is_scalar, "stepping": is_scalar, "microcode": is_text,
                "microarch": is_text, "hypervisor": is_text, "host": is_text, "provenance": is_text, "tape": is_text, "defects": is_list},
    "test": {"clauses": is_list, "citations": is_object, "failures": is_list, "evidence": is_object, "reason": is_text, "erratum": is_text,
             "skip_category": is_text, "comparisons": is_count, "iterations": is_count, "seed": is_scalar, "repetition": is_scalar,
             "duration_s": is_number, "repetitions": is_object},
    "measurement": {"low": is_number, "high": is_number, "n": is_count, "parameters": is_object, "noise": is_object, "statistic": is_text,
                    "interval": is_text, "value": is_number, "counts": is_object, "counts_agree": is_flag, "counts_differ": is_text},
    "defect": {"clause": is_text, "brief": is_text, "microarch": is_text, "caught_by": is_list, "tests_run": is_count},
    "qualification": {"defects": is_count, "caught": is_count, "conforming_runs": is_count, "conforming_failures": is_count,
                      "missed": is_list,
                      "accused_by": is_list, "tests_without_catch": is_list},
    "fuzz": {"violations": is_count, "cases": is_count, "records": is_count, "violation": is_object},
    "erratum": {"contradiction": is_flag, "core_type": is_text, "exposure": is_text, "title": is_text},
    "unmeasured": {},
    "end": {"exit": is_scalar, "duration_s": is_number},
}
NUMBERS_OF_REPETITIONS = ("n", "k", "low", "high")


def clean(value):
    """Text without characters that neither HTML nor a file in UTF-8 can hold, in whatever the value is."""
    if isinstance(value, str):
        return FORBIDDEN.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(v) for v in value]
    if isinstance(value, dict):
        return {clean(k): clean(v) for k, v in value.items()}
    return value


def tidy_row(row):
    """The row without the fields that have another shape than the report takes."""
    wanted = FIELDS.get(row.get("type"), {})
    tidied = {key: value for key, value in clean(row).items() if key not in wanted or wanted[key](value)}
    if "repetitions" in tidied:
        tidied["repetitions"] = {k: v for k, v in tidied["repetitions"].items() if k not in NUMBERS_OF_REPETITIONS or is_number(v)}
    if "noise" in tidied:
        tidied["noise"] = {k: v for k, v in tidied["noise"].items() if is_number(v)}
    if "failures" in tidied:
        tidied["failures"] = list(map(str, tidied["failures"]))
    return tidied


def tidy(run):
    """Makes every row of the run what the report takes; a measurement without a usable value is no measurement."""
    for kind in ("machines", "tests", "measurements", "defects", "errata", "unmeasured", "open_tests", "open_measurements"):
        setattr(run, kind, list(map(tidy_row, getattr(run, kind))))
    run.measurements = [row for row in run.measurements if "value" in row]
    run.run = tidy_row(run.run)
    for kind in ("qualification", "fuzz", "end"):
        row = getattr(run, kind)
        setattr(run, kind, tidy_row(row) if row else row)
    return run
