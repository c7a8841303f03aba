"""CSV [RFC 4180]: one table for each kind of row, with a header.

A spreadsheet runs a cell that begins like a formula. Text that does is written with an apostrophe before it, and so is text that
begins with an apostrophe, so that whoever takes the first one off again has what was there. Numbers stay numbers.
"""

import csv
import io

from skidproof.export import common

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
           "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")
PLACE = ("run", "run_started", "host", "machine", "core_type", "provenance", "microarch", "microcode")
NOISE = ("involuntary_switches", "migrations", "smi", "steal_s")


def documents(runs):
    """{"measurements": CSV text, "tests": …, "errata": …}"""
    return {"measurements": _measurements(runs), "tests": _tests(runs), "errata": _errata(runs)}


def _place(run, machine):
    row = run.machine_row(machine)
    return [run.name, run.run.get("started"), row.get("host") or "unknown", machine, row.get("core_type"), common.provenance(run, machine),
            row.get("microarch"), row.get("microcode")]


def _measurements(runs):
    lines = [(run, row) for run in runs for row in run.measurements]
    names = sorted({name for _, row in lines for name in row.get("parameters", {})})
    plain = ("name", "value", "unit", "statistic", "n", "low", "high", "interval")
    header = [*PLACE, *plain, *NOISE, *(f"parameter.{name}" for name in names)]
    return _table(header, ([*_place(run, row["machine"]), *map(row.get, plain), *map(row.get("noise", {}).get, NOISE),
                            *map(row.get("parameters", {}).get, names)] for run, row in lines))


def _tests(runs):
    plain = ("skip_category", "erratum", "seed", "repetition", "duration_s", "iterations", "comparisons", "stage")
    tried = ("n", "k", "voided", "rate", "low", "high")
    header = [*PLACE, "id", "suite", "status", "words", "started", *plain, *tried, "clauses", "failures", "evidence"]
    return _table(header, ([*_place(run, one.machine), one.id, one.suite, one.status, one.words, one.started, *map(one.row.get, plain),
                            *map(one.row.get("repetitions", {}).get, tried), " ".join(one.clauses), "\n".join(one.failures),
                            one.evidence] for run in runs for one in common.outcomes(run)))


def _errata(runs):
    plain = ("listed", "listed_by", "listed_why", "fixed_from", "observed", "observed_why", "tries", "shown", "excluded_rate", "exposure",
             "exposure_why", "contradiction", "title")
    header = [*PLACE, "id", "erratum_core_type", *plain, "aliases"]
    return _table(header, ([*_place(run, row["machine"]), row["id"], row.get("core_type"), *map(row.get, plain), row.get("aliases")]
                           for run in runs for row in run.errata))


def _table(header, lines):
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(map(cell, header))
    writer.writerows(map(cell, line) for line in lines)
    return stream.getvalue()


def cell(value):
    """A number as it is, nothing for null, anything else as text that no spreadsheet runs."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    words = common.visible(common.text(value), keep="\t\r\n")
    return f"'{words}" if words.startswith(FORMULA) else words
