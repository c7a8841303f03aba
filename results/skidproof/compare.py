"""`skidproof compare A B`: which figures and verdicts of two runs, or of two sets of runs, differ, and how surely.

docs/trends.md has the method and what a single pair of runs can show.
"""

import collections
import dataclasses
import json
import math
import os
import re
import sys

import numpy as np
import pandas as pd
from scipy import special, stats

from skidproof import cli, ranks, rows, trends

RATE = 0.01           # of the figures called different, how much may be chance
PRIOR_NOISE = 0.003   # how far a quiet figure moves from one run to the next before anything is known of this machine …
PRIOR_WEIGHT = 6      # … which counts as much as so many figures
RESIDENT_BYTES = 32 << 10  # a working set in the first-level cache is found by virtual address: where its pages lie does not matter
FACTS = ("host", "brand", "microarch", "microcode", "os", "bios", "hypervisor", "core_type", "family", "model", "stepping")
# Parameters that are results themselves: with them, no figure would meet itself again.
MEASURED_PARAMETERS = {"slot_cycles", "verdict"}
FAILED = {"fail", "error"}
KINDS = ("worse", "better", "erratum", "disturbed", "coverage", "other")


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    name: str            # as the user named it
    machine: str
    provenance: str      # model, virtual-lab, native, silicon, unknown
    runs: list           # their ids
    started: list        # of each run, ISO 8601; empty where a run does not say it
    facts: dict          # what the machine rows say: key → list of the different values
    problems: list       # what could not be read


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    figures: a row a figure: name, unit, statistic, parameters (canonical JSON), a, b (medians over the runs), runs_a, runs_b, effect, low,
    high (absolute, 95 % interval), relative, relative_low, relative_high (shares of |a|), p, q (adjusted for the number of figures),
    differs, direction (better, worse or ""), detectable (the smallest relative change that would have been called), noise, test.
    verdicts: a row a test whose verdicts differ or may: id, a, b (statuses with counts), failed_a, tried_a, failed_b, tried_b, p, q, kind
    (worse, better, erratum, disturbed, coverage, other), erratum, clauses.
    common: what all figures share: shift, clock, words, corrected, differs.
    """

    a: Side
    b: Side
    figures: pd.DataFrame
    verdicts: pd.DataFrame
    common: dict
    notes: list
    rate: float

    @property
    def differing(self):
        return self.figures[self.figures.differs]

    @property
    def worse(self):
        """Whether anything differs for the worse, or in a way that the unit does not judge."""
        return bool((self.differing.direction != "better").any() or (self.verdicts.kind == "worse").any()
                    or (self.common["differs"] and self.common["direction"] != "better"))


# ---- What rows say ----

def figure_key(row):
    """(name, unit, statistic, parameters as canonical JSON) of a measurement row, without what the row measured itself."""
    parameters = {key: value for key, value in (row.get("parameters") or {}).items() if key not in MEASURED_PARAMETERS}
    return row["name"], row["unit"], str(row.get("statistic", "")), json.dumps(parameters, sort_keys=True, ensure_ascii=False)


def standard_error(row):
    """The standard error of a row's value by what its `interval` is; NaN where it has none."""
    low, high, n = row.get("low"), row.get("high"), row.get("n") or 0
    if not all(rows.is_a(v, (int, float)) and math.isfinite(v) for v in (low, high)) or high < low or n < 2:
        return math.nan
    width, words = high - low, str(row.get("interval", ""))
    share = re.match(r"(\d+(?:\.\d+)?) ?%", words)
    if share and 0 < float(share[1]) < 100:
        return width / 2 / float(special.ndtri(0.5 + float(share[1]) / 200))
    if words == "quartiles":
        return math.sqrt(math.pi / 2) * width / 1.349 / math.sqrt(n)
    if words == "range":  # the expected range of n normal values, by Blom's approximation of the largest
        return math.sqrt(math.pi / 2) * width / (2 * float(special.ndtri((n - 0.375) / (n + 0.25)))) / math.sqrt(n)
    return width / 2 / 1.96


def values_of(runs, machine):
    """{figure key: (values, standard errors, fewest repetitions)}, one value a run."""
    found = collections.defaultdict(list)
    for run in runs:
        of_run = collections.defaultdict(list)
        for row in run.measurements:
            if row["machine"] == machine:
                of_run[figure_key(row)].append(row)
        for key, these in of_run.items():
            found[key].append((float(np.median([row["value"] for row in these])),
                               float(np.median([standard_error(row) for row in these])), min(row.get("n") or 1 for row in these)))
    return {key: (np.array([v for v, _, _ in these]), np.array([e for _, e, _ in these]), min(n for _, _, n in these))
            for key, these in found.items()}


def noise_class(name, parameters):
    """What kind of noise a figure has from run to run. Beyond the first-level cache, and for what goes past the caches, it matters where
    the pages lie and what the neighbours do: no single run shows that."""
    size = parameters.get("bytes")
    past = rows.is_a(size, (int, float)) and size > RESIDENT_BYTES or str(parameters.get("kind", "")).startswith("non-temporal")
    return "placed" if past else f"core {name}"


# ---- Figures ----

def compare_figures(a, b, rate=RATE):
    """(figures, common) of what values_of returned for both sides."""
    keys = [key for key in a if key in b]
    absolute = {key[:2] for key in keys if min(a[key][0].min(), b[key][0].min()) <= 0}  # a family with values around 0 has no ratios
    lines = []
    for key in keys:
        name, unit, statistic, parameters = key
        (va, ea, na), (vb, eb, nb) = a[key], b[key]
        line = {"name": name, "unit": unit, "statistic": statistic, "parameters": parameters, "a": float(np.median(va)),
                "b": float(np.median(vb)), "runs_a": len(va), "runs_b": len(vb), "log": key[:2] not in absolute,
                "class": noise_class(name, json.loads(parameters)), "verdict": unit == "bool"}
        if line["log"]:
            ea, eb, va, vb = ea / va, eb / vb, np.log(va), np.log(vb)
        line |= {"va": va, "vb": vb, "shift": ranks.hodges_lehmann(va, vb).effect, "n": min(na, nb),
                 "error": float(np.sqrt((np.nan_to_num(ea) ** 2).sum() / len(ea) ** 2 + (np.nan_to_num(eb) ** 2).sum() / len(eb) ** 2))}
        freedom = len(va) + len(vb) - 2
        line["freedom"] = freedom
        line["between"] = (((va - va.mean()) ** 2).sum() + ((vb - vb.mean()) ** 2).sum()) / freedom if freedom else math.nan
        lines.append(line)
    judged = [line for line in lines if not line["verdict"]]
    common = _common_shift(judged)
    for line in judged:
        if common["corrected"] and line["unit"] in TIME_SIGN and line["log"] and not line["name"].startswith("clock."):
            line["shift"] -= TIME_SIGN[line["unit"]] * common["shift"]
    _noise(judged)
    _test(judged, rate)
    for line in lines:
        if line["verdict"]:
            line |= {"p": math.nan, "q": math.nan, "differs": line["a"] != line["b"], "low": math.nan, "high": math.nan, "noise": math.nan,
                     "effect": line["b"] - line["a"], "relative": math.nan, "relative_low": math.nan, "relative_high": math.nan,
                     "detectable": math.nan, "test": "equality"}
        line["direction"] = trends.direction(line["unit"], line["effect"], line["name"]) if line["differs"] else ""
    columns = ["name", "unit", "statistic", "parameters", "a", "b", "runs_a", "runs_b", "effect", "low", "high", "relative", "relative_low",
               "relative_high", "p", "q", "differs", "direction", "detectable", "noise", "test"]
    frame = pd.DataFrame(lines, columns=columns)
    frame["differs"] = frame.differs.astype(bool)
    return frame.sort_values(["differs", "p"], ascending=[False, True], kind="stable", ignore_index=True), common


TIME_SIGN = {"ns": 1, "us": 1, "ms": 1, "s": 1, "GB/s": -1, "MB/s": -1}  # a slower clock moves them this way


def _common_shift(lines):
    """Whether all that is measured in time moved by one factor, as another clock does it; what the clock and the cycles say."""
    nothing = {"shift": 0.0, "clock": None, "words": "", "corrected": False, "differs": False, "direction": ""}
    moved = np.array([TIME_SIGN[line["unit"]] * line["shift"] for line in lines
                      if line["unit"] in TIME_SIGN and line["log"] and line["class"] != "placed"])
    clock = next((line["shift"] for line in lines if line["name"] == "clock.core" and line["log"]), None)
    nothing["clock"] = clock
    if len(moved) < 5:
        return nothing
    shift = float(np.median(moved))
    agree = np.mean(np.abs(moved - shift) <= max(PRIOR_NOISE, abs(shift) / 4))
    if abs(shift) < 2 * PRIOR_NOISE or agree < 0.8:
        return nothing
    cycles = [line["shift"] for line in lines if line["unit"] == "cycles" and line["log"] and line["class"] != "placed"]
    slower = f"{abs(math.expm1(shift)):.1%} {'slower' if shift > 0 else 'faster'}"
    by_clock = abs(clock + shift) <= max(PRIOR_NOISE, abs(shift) / 4) if clock is not None else not cycles or abs(np.median(cycles)) < PRIOR_NOISE
    words = (f"everything that does not leave the core is {slower} in time: the core clock, which is not held against each figure" if by_clock
             else f"everything that does not leave the core is {slower} in time, and its clock does not explain it")
    return {"shift": shift, "clock": clock, "words": words, "corrected": bool(by_clock), "differs": True,
            "direction": "worse" if shift > 0 else "better"}


def _noise(lines):
    """The standard error of each line's shift: what the intervals say, and what the runs differ by otherwise. That is seen in the spread
    between the runs of a set and, for single runs, in how far other figures of the same kind moved (as moderated variances: Smyth 2004)."""
    groups = collections.defaultdict(list)
    for line in lines:
        line["unit_noise"] = 1.0
        groups[line["class"], line["log"], "" if line["log"] else line["unit"]].append(line)
    for (kind, log, _), group in groups.items():
        size = 1.0 if log else float(np.median([max(abs(line["a"]), abs(line["b"])) for line in group])) or 1.0
        for line in group:
            weight = 1 / line["runs_a"] + 1 / line["runs_b"]
            # The same quantity in another unit, or on other pages, would move with it: it says nothing about noise.
            others = [other for other in group if not _same(line, other)]
            moved = np.sort([abs(other["shift"]) / math.sqrt(1 / other["runs_a"] + 1 / other["runs_b"]) for other in others])
            prior = (PRIOR_NOISE * size) ** 2
            tails = math.inf
            if kind == "placed":  # scale and tails by what half of the others and nine of ten of them keep within
                tails = _tails(moved)
                between = (np.quantile(moved, 0.9) / stats.t.ppf(0.95, tails)) ** 2 if len(moved) else 0.0
            else:  # without the fifth that moved most, among which a real change may be
                kept = moved[:math.ceil(0.8 * len(moved))]
                between = float((kept ** 2).mean()) / 0.44 if len(kept) else 0.0  # what normal values have left without that fifth
            between = max((len(moved) * between + PRIOR_WEIGHT * prior) / (len(moved) + PRIOR_WEIGHT), prior / 9)
            own = line["freedom"]
            by_class = line["error"] ** 2 + between * weight
            line["own"] = own
            line["spread"] = math.sqrt((own * line["between"] * weight + PRIOR_WEIGHT * by_class) / (own + PRIOR_WEIGHT) if own else by_class)
            # Welch and Satterthwaite: who is judged by a wide interval of few repetitions is judged by heavier tails.
            parts = ((line["error"] ** 2, max(line["n"] - 1, 2)), (between * weight, min(len(moved) + PRIOR_WEIGHT, tails)))
            line["freedom"] = own + PRIOR_WEIGHT if own else by_class**2 / sum(part**2 / freedom for part, freedom in parts)
            line["freedom"] = min(line["freedom"], tails)
    for group in groups.values():
        for line in group:  # intervals promise too much on a machine with neighbours: by how much, the others of the kind say
            others = np.sort([abs(other["shift"]) / other["spread"] for other in group if not _same(line, other)])
            kept = others[:math.ceil(0.9 * len(others))]
            line["excess"] = max(1.0, math.sqrt(float((kept ** 2).mean()) / 0.62)) if len(kept) >= 5 and not line["own"] else 1.0
            line["noise"] = line["spread"] * line["excess"]


TAILS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, math.inf)  # degrees of freedom of Student's t, from Cauchy's to the normal


def _tails(moved):
    """The degrees of freedom of a t distribution of which half and nine of ten lie as these sizes do. A few sizes say little: those get
    heavy tails."""
    if len(moved) < 10 or not np.median(moved):
        return 2.0
    ratio = np.quantile(moved, 0.9) / np.median(moved)
    return next((freedom for freedom in TAILS[::-1] if stats.t.ppf(0.95, freedom) / stats.t.ppf(0.75, freedom) >= ratio), TAILS[0])


def _same(one, other):
    """Whether two lines stand for the same quantity."""
    return one["name"] == other["name"] and _quantity(one) == _quantity(other)


def _quantity(line):
    if "quantity" not in line:
        line["quantity"] = json.dumps({k: v for k, v in json.loads(line["parameters"]).items() if k != "page"}, sort_keys=True)
    return line["quantity"]


def _test(lines, rate):
    for line in lines:
        attainable = 2 / special.binom(line["runs_a"] + line["runs_b"], line["runs_a"])
        freedom = line["freedom"]
        if min(line["runs_a"], line["runs_b"]) > 1 and attainable <= rate / max(len(lines), 1):
            line["p"], line["test"] = ranks.two_sided(line["va"], line["vb"]), "rank sum"
        else:
            line["p"], line["test"] = 2 * float(stats.t.sf(abs(line["shift"]) / line["noise"], freedom)), "moderated t"
    q = ranks.adjusted([line["p"] for line in lines])
    for line, adjusted in zip(lines, q):
        line["q"], line["differs"] = float(adjusted), bool(adjusted <= rate)
        half = float(stats.t.ppf(0.975, line["freedom"])) * line["noise"]
        needed = float(stats.t.ppf(1 - rate / len(lines) / 2, line["freedom"])) * line["noise"]
        ends = (line["shift"], line["shift"] - half, line["shift"] + half)
        if line["log"]:
            relative = [math.expm1(min(end, 700)) for end in ends]
            absolute = [share * line["a"] for share in relative]
            line["detectable"] = math.expm1(min(needed, 700))
        else:
            absolute = ends
            relative = [end / abs(line["a"]) if line["a"] else math.nan for end in ends]
            line["detectable"] = needed / abs(line["a"]) if line["a"] else math.nan
        line["effect"], line["low"], line["high"] = absolute
        line["relative"], line["relative_low"], line["relative_high"] = relative
