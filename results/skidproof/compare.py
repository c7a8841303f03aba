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
    """(name, unit, statistic, parameters as canonical JSON) of a measurement row, as rows.figure_parameters gives them."""
    parameters = json.dumps(rows.figure_parameters(row) or {}, sort_keys=True, ensure_ascii=False)
    return row["name"], row["unit"], str(row.get("statistic", "")), parameters


def standard_error(row):
    """The standard error of a row's value by what its `interval` is; NaN where it has none."""
    low, high, n = row.get("low"), row.get("high"), row.get("n") or 0
    if not all(rows.is_a(v, (int, float)) and math.isfinite(v) for v in (low, high)) or high < low or n < 2:
        return math.nan
    width, words = high - low, str(row.get("interval", ""))
    covered = re.match(r"(\d+(?:\.\d+)?) ?%", words)
    if covered and 0 < float(covered[1]) < 100:
        return width / 2 / float(special.ndtri(0.5 + float(covered[1]) / 200))
    if words == "quartiles":
        return math.sqrt(math.pi / 2) * width / 1.349 / math.sqrt(n)
    if words == "range":  # the expected range of n normal values, by Blom's approximation of the largest
        return math.sqrt(math.pi / 2) * width / (2 * float(special.ndtri((n - 0.375) / (n + 0.25)))) / math.sqrt(n)
    return width / 2 / 1.96


def values_of(runs, machine):
    """{figure key: (values, standard errors, fewest repetitions, costs of a slot or NaN)}, one value a run. Rows of fusion say what one
    issue slot cost at their time; it is another where a neighbour shares the core."""
    found = collections.defaultdict(list)
    for run in runs:
        of_run = collections.defaultdict(list)
        for row in run.measurements:
            if row["machine"] == machine:
                of_run[figure_key(row)].append(row)
        for key, these in of_run.items():
            slots = [(row.get("parameters") or {}).get("slot_cycles") for row in these]
            slots = [slot for slot in slots if rows.is_a(slot, (int, float)) and slot > 0]
            found[key].append((float(np.median([row["value"] for row in these])),
                               float(np.median([standard_error(row) for row in these])), min(row.get("n") or 1 for row in these),
                               float(np.median(slots)) if slots else math.nan))
    return {key: (np.array([one[0] for one in these]), np.array([one[1] for one in these]), min(one[2] for one in these),
                  np.array([one[3] for one in these])) for key, these in found.items()}


def noise_class(parameters):
    """What kind of noise a figure has from run to run. Beyond the first-level cache, and for what goes past the caches, it matters where
    the pages lie and what the neighbours do: no single run shows that."""
    size = parameters.get("bytes")
    past = rows.is_a(size, (int, float)) and size > RESIDENT_BYTES or str(parameters.get("kind", "")).startswith("non-temporal")
    return "placed" if past else "core"


# ---- Figures ----

def compare_figures(a, b, rate=RATE):
    """(figures, common) of what values_of returned for both sides."""
    keys = [key for key in a if key in b]
    absolute = {key[:2] for key in keys if min(a[key][0].min(), b[key][0].min()) <= 0}  # a family with values around 0 has no ratios
    lines = []
    for key in keys:
        name, unit, statistic, parameters = key
        (va, ea, na, sa), (vb, eb, nb, sb) = a[key], b[key]
        # Where a slot did not cost the same, the figure cannot be known better than by the difference.
        shared = abs(math.log(np.median(sb) / np.median(sa))) if np.isfinite([*sa, *sb]).all() else 0.0
        line = {"name": name, "unit": unit, "statistic": statistic, "parameters": parameters, "a": float(np.median(va)),
                "b": float(np.median(vb)), "runs_a": len(va), "runs_b": len(vb), "log": key[:2] not in absolute,
                "class": noise_class(json.loads(parameters)), "verdict": unit == "bool"}
        if line["log"]:
            ea, eb, va, vb = ea / va, eb / vb, np.log(va), np.log(vb)
        else:
            shared *= max(abs(line["a"]), abs(line["b"]))
        moved = ranks.hodges_lehmann(va, vb)
        line |= {"va": va, "vb": vb, "shift": moved.effect, "span": (moved.low - moved.effect, moved.high - moved.effect), "n": min(na, nb),
                 "error": math.sqrt(sum(np.median(np.nan_to_num(e) ** 2) / len(e) for e in (ea, eb)) + shared**2)}  # that of a usual run
        line["freedom"], line["between"] = _spread(va, vb)
        lines.append(line)
    judged = [line for line in lines if not line["verdict"]]
    common = _common_shift(judged)
    for line in judged:
        if common["corrected"] and line["unit"] in TIME_SIGN and line["log"] and not line["name"].startswith("clock."):
            line["shift"] -= TIME_SIGN[line["unit"]] * common["shift"]
            line["vb"] = line["vb"] - TIME_SIGN[line["unit"]] * common["shift"]
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


def _spread(a, b):
    """(degrees of freedom, variance from run to run within the sides). Where some runs are far off, as a neighbour makes them, it is large:
    of so few runs nobody knows which ones are."""
    freedom = len(a) + len(b) - 2
    return freedom, float(sum(((side - np.median(side)) ** 2).sum() for side in (a, b)) / freedom) if freedom else math.nan


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
    if clock is not None:
        by_clock = abs(clock + shift) <= max(PRIOR_NOISE, abs(shift) / 4)
    else:
        by_clock = not cycles or abs(np.median(cycles)) < PRIOR_NOISE
    words = f"everything that does not leave the core is {slower} in time" + (
        ": the core clock, which is not held against each figure" if by_clock else ", and its clock does not explain it")
    return {"shift": shift, "clock": clock, "words": words, "corrected": bool(by_clock), "differs": True,
            "direction": "worse" if shift > 0 else "better"}


def _noise(lines):
    """The standard error of each line's shift: what the intervals say, and what the runs differ by otherwise. That is seen in the spread
    between the runs of a set and, for single runs, in how far other figures of the same kind moved (as moderated variances: Smyth 2004)."""
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line["class"], line["log"], "" if line["log"] else (line["name"], line["unit"])].append(line)
    for (_, log, _), group in groups.items():
        size = 1.0 if log else float(np.median([max(abs(line["a"]), abs(line["b"])) for line in group])) or 1.0
        for line in group:
            weight = 1 / line["runs_a"] + 1 / line["runs_b"]
            # The same quantity in another unit, or on other pages, would move with it: it says nothing about noise.
            others = [other for other in group if not _same(line, other)]
            moved = np.array([_unexplained(other) for other in others])
            prior = (PRIOR_NOISE * size) ** 2
            # Scale and tails by what half of the others and nine of ten of them keep within: among the rest may be a real change.
            tails = _tails(np.maximum(moved, math.sqrt(prior)))
            between = (np.quantile(moved, 0.9) / stats.t.ppf(0.95, tails)) ** 2 if len(moved) else 0.0
            between = max((len(moved) * between + PRIOR_WEIGHT * prior) / (len(moved) + PRIOR_WEIGHT), prior)
            own = line["freedom"]
            by_class = line["error"] ** 2 + between * weight
            line["own"] = own
            believed = min(PRIOR_WEIGHT, tails)  # the more the others differ among themselves, the less they say of this one
            line["spread"] = math.sqrt((own * line["between"] * weight + believed * by_class) / (own + believed) if own else by_class)
            # Welch and Satterthwaite: who is judged by a wide interval of few repetitions is judged by heavier tails.
            # Repetitions follow one another within a neighbour's burst, so they count as half as many.
            parts = ((line["error"] ** 2, max((line["n"] - 1) / 2, 2)), (between * weight, min(len(moved) + PRIOR_WEIGHT, tails)))
            alone = by_class**2 / sum(part**2 / freedom for part, freedom in parts)
            line["freedom"] = own + believed if own else min(alone, tails)
    for group in groups.values():
        for line in group:  # intervals promise too much on a machine with neighbours: by how much, the others of the kind say
            others = np.sort([abs(other["shift"]) / other["spread"] for other in group if not _same(line, other)])
            kept = others[:math.ceil(0.9 * len(others))]
            line["excess"] = max(1.0, math.sqrt(float((kept ** 2).mean()) / 0.62)) if len(kept) >= 5 and not line["own"] else 1.0
            line["noise"] = line["spread"] * line["excess"]


TAILS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # degrees of freedom of Student's t, from Cauchy's: figures of one kind are not equally noisy
FEW_TAILS = 3.0


def _tails(moved):
    """The degrees of freedom of a t distribution of which half and nine of ten lie as these sizes do. A few sizes say little: those get
    heavy tails."""
    if len(moved) < 10:
        return FEW_TAILS
    ratio = np.quantile(moved, 0.9) / np.median(moved)
    return next((freedom for freedom in TAILS[::-1] if stats.t.ppf(0.95, freedom) / stats.t.ppf(0.75, freedom) >= ratio), TAILS[0])


def _unexplained(line):
    """How far a figure moved beyond its own interval, for single runs on both sides."""
    beyond = max(0.0, line["shift"] ** 2 - (1.96 * line["error"]) ** 2)
    return math.sqrt(beyond / (1 / line["runs_a"] + 1 / line["runs_b"]))


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
        if line["test"] == "rank sum":
            span, needed = line["span"], _separating(line["va"], line["vb"], rate / len(lines))
        else:
            span, needed = (-half, half), float(stats.t.ppf(1 - rate / len(lines) / 2, line["freedom"])) * line["noise"]
        ends = (line["shift"], line["shift"] + span[0], line["shift"] + span[1])
        if line["log"]:
            relative = [math.expm1(min(end, 700)) for end in ends]
            absolute = [part * line["a"] for part in relative]
            line["detectable"] = math.expm1(min(needed, 700))
        else:
            absolute = ends
            relative = [end / abs(line["a"]) if line["a"] else math.nan for end in ends]
            line["detectable"] = needed / abs(line["a"]) if line["a"] else math.nan
        line["effect"], line["low"], line["high"] = absolute
        line["relative"], line["relative_low"], line["relative_high"] = relative


def _separating(a, b, p):
    """By how much `b` would have to be moved from where it lies as `a` does, up or down, for the rank sum test to give this p."""
    differences = np.sort(np.subtract.outer(a, b), axis=None)
    differences -= np.median(differences)
    smaller = int(np.searchsorted(ranks.untied_tails(len(a) + len(b))[min(len(a), len(b))], p / 2, side="right"))  # so many pairs may disagree
    return math.inf if smaller == 0 else float(max(differences[len(differences) - smaller], -differences[smaller - 1]))


# ---- Verdicts ----

def compare_verdicts(a, b, rate=RATE):
    """The tests whose verdicts differ: a frame as in Comparison. `a` and `b` are lists of test rows."""
    sides = [collections.defaultdict(list), collections.defaultdict(list)]
    for side, found in zip(sides, (a, b)):
        for row in found:
            side[row["id"]].append(row)
    lines = []
    for test in dict.fromkeys([*sides[0], *sides[1]]):
        here = [side.get(test, []) for side in sides]
        statuses = [collections.Counter(row["status"] for row in found) for found in here]
        shares = [{status: count / len(found) for status, count in said.items()} for said, found in zip(statuses, here)]
        if shares[0] == shares[1]:
            continue
        (failed_a, tried_a), (failed_b, tried_b) = (_tries(found) for found in here)
        p = (float(stats.fisher_exact([[failed_a, tried_a - failed_a], [failed_b, tried_b - failed_b]])[1])
             if tried_a and tried_b else math.nan)
        last = (here[1] or here[0])[-1]
        erratum = next((row["erratum"] for found in here[::-1] for row in found if row.get("erratum")), "")
        lines.append({"id": test, "a": _words(statuses[0]), "b": _words(statuses[1]), "failed_a": failed_a, "tried_a": tried_a,
                      "failed_b": failed_b, "tried_b": tried_b, "p": p, "kind": _kind(*statuses, p, rate), "erratum": erratum,
                      "clauses": last.get("clauses", [])})
    columns = ["id", "a", "b", "failed_a", "tried_a", "failed_b", "tried_b", "p", "q", "kind", "erratum", "clauses"]
    for line, q in zip(lines, ranks.adjusted([line["p"] for line in lines])):
        line["q"] = float(q)
    frame = pd.DataFrame(lines, columns=columns)
    return frame.sort_values("kind", key=lambda kinds: kinds.map(KINDS.index), kind="stable", ignore_index=True)


def _tries(found):
    """(failed, tried) over the repetitions of these test rows; what said nothing does not count."""
    failed = tried = 0
    for row in found:
        said = row.get("repetitions") or {}
        if row["status"] in ("skip", "observed"):
            continue
        n, k = said.get("n") or 0, said.get("k") or 0
        if n:
            failed, tried = failed + k, tried + n
        else:
            failed, tried = failed + (row["status"] in FAILED | {"xfail"}), tried + 1
    return failed, tried


def _words(said):
    if not said:
        return "not run"
    return next(iter(said)) if len(said) == 1 else ", ".join(f"{count}× {status}" for status, count in said.most_common())


def _kind(a, b, p, rate):
    """What a difference of these statuses is. Where both sides failed sometimes, chance is asked; a verdict that all runs of each side
    agree on needs no more: the program gave it after its own repetitions."""
    said_a, said_b = set(a) - {"disturbed"}, set(b) - {"disturbed"}
    if said_a == said_b or not said_a or not said_b and (a and b):
        return "disturbed" if a and b else "coverage"
    if not (said_a - {"skip"}) or not (said_b - {"skip"}):
        return "coverage"
    fails_a, fails_b = said_a & FAILED, said_b & FAILED
    if bool(fails_a) != bool(fails_b):
        mixed = len(said_a - {"skip"}) > 1 or len(said_b - {"skip"}) > 1
        if mixed and not p <= rate:
            return "other"
        return "worse" if fails_b else "better"
    if (said_a | said_b) & {"xfail", "xpass"} and not fails_a:
        return "erratum"
    return "other"


# ---- The sides ----

def machines_of(name, runs, problems):
    """How many results the runs hold of each machine. Complaint where there are none."""
    if not runs:
        raise cli.Complaint(f"'{name}' holds no run", problems[0] if problems else "name results files (*.jsonl) with a run row")
    counts = collections.Counter(row["machine"] for run in runs for row in (*run.measurements, *run.tests))
    if not counts:
        raise cli.Complaint(f"'{name}' holds neither a figure nor a verdict", "nothing of it can be compared")
    return counts


def _describe(name, runs, machine, problems):
    facts = {}
    found = [run.machine_row(machine) for run in runs]
    for key in FACTS:
        facts[key] = list(dict.fromkeys(str(row[key]) for row in found if row.get(key) not in (None, "")))
    facts["version"] = list(dict.fromkeys(str(run.run["version"]) for run in runs if run.run.get("version")))
    provenance = rows.provenance(machine, next((row for row in found if row), {})).lower().replace(" ", "-")
    return Side(name, machine, provenance, [run.name for run in runs], [str(run.run.get("started", "")) for run in runs], facts, problems)


def compare(a, b, *, names=("A", "B"), rate=RATE, machine=None, problems=((), ()), across=False):
    """Compares two lists of rows.Run. Complaint where they hold nothing, or a model meets silicon (unless `across`)."""
    counts = [machines_of(name, runs, said) for name, runs, said in zip(names, (a, b), problems)]
    machines = []
    for count, other, name in zip(counts, counts[::-1], names):
        if machine and machine not in count:
            raise cli.usage(f"'{name}' has nothing of the machine '{machine}'", f"it has: {', '.join(count)}")
        shared = [m for m, _ in (count + other).most_common() if m in count and m in other]
        machines.append(machine or (shared or [count.most_common(1)[0][0]])[0])
    sides = [_describe(name, runs, m, list(said)) for name, runs, m, said in zip(names, (a, b), machines, problems)]
    kinds = [side.provenance in ("silicon", "native") for side in sides]
    notes = []
    if kinds[0] != kinds[1]:
        if not across:
            raise cli.usage(f"'{names[0]}' is {sides[0].machine} ({sides[0].provenance}), '{names[1]}' is {sides[1].machine} "
                            f"({sides[1].provenance}): a model's results say nothing about silicon",
                            "compare like with like, or insist with --across")
        notes.append("A MODEL IS COMPARED WITH SILICON: nothing below says that a machine changed")
    for key in ("machine", *FACTS, "version"):
        said = [[side.machine] if key == "machine" else side.facts[key] for side in sides]
        if said[0] != said[1] and (said[0] or said[1]):
            notes.append(f"{trends.FACTS.get(key, key)}: {' and '.join(said[0]) or 'not said'} → {' and '.join(said[1]) or 'not said'}")
    if set(sides[0].runs) & set(sides[1].runs):
        notes.append("both sides hold the same run")
    figures, common = compare_figures(values_of(a, machines[0]), values_of(b, machines[1]), rate)
    tests = ([row for run in runs for row in run.tests if row["machine"] == m] for runs, m in zip((a, b), machines))
    return Comparison(*sides, figures, compare_verdicts(*tests, rate), common, notes, rate)


def load(words, store=None):
    """(runs, problems) of what a user named: files and folders, several with commas; `run:ID` and `host:NAME@FROM..TO` of a store."""
    runs, problems = [], []
    paths = []
    for word in words.split(",") if not os.path.exists(words) else [words]:
        kind, _, rest = word.partition(":")
        if kind in ("run", "host") and rest and not os.path.exists(word):
            from skidproof import store as stores
            with stores.open(store) as opened:
                for run_id in [rest] if kind == "run" else _nights(opened, rest):
                    source = rows.Source(word)
                    for row in opened.run_rows(run_id):
                        rows.add_row(source, row)
                    runs += source.runs
        elif not word:
            raise cli.usage(f"'{words}' has an empty name", "separate names with one comma")
        else:
            paths.append(word)
    for path in cli.result_files(paths) if paths else []:
        source = rows.read_source(path)
        runs += source.runs
        problems += [f"{path}: {problem}" for problem in source.problems]
    return runs, problems


def _nights(store, words):
    """The ids of the runs of a host, from one day to another (both included)."""
    host, _, when = words.partition("@")
    first, dots, last = when.partition("..")
    try:
        first = pd.Timestamp(first or "1970-01-01", tz="UTC")
        last = pd.Timestamp(last or "2200-01-01", tz="UTC") if dots or not when else first
    except ValueError as error:
        raise cli.usage(f"'{when}' is no span of days", "write host:NAME@2026-11-01..2026-11-25") from error
    if last == last.normalize():
        last += pd.Timedelta(days=1)
    subjects = store.subjects()
    subjects = subjects[subjects.host == host]
    if not len(subjects):
        raise cli.usage(f"the store has no host '{host}'", "list them: skidproof store query machines")
    facts = pd.concat([store.facts(int(subject)) for subject in subjects.subject]).drop_duplicates("run_id").sort_values("started")
    found = list(facts[(facts.started >= first) & (facts.started < last)].run_id)
    if not found:
        raise cli.usage(f"the store has no run of '{host}' in {when or 'its history'}", "list them: skidproof store query runs")
    return found


# ---- The verb ----

EPILOG = """\
A and B are results files, folders of them, or several of either with commas between; with a store also run:ID and
host:NAME@FROM..TO (days, both included). Several runs on a side make it a set, which shows far smaller differences.

Examples:
  skidproof compare before.jsonl after.jsonl
  skidproof compare monday,tuesday,wednesday thursday --plot effects.svg
  skidproof compare --store lab.db host:lab7@2026-11-01..2026-11-10 host:lab7@2026-11-12..2026-11-25

Exit codes: 0 nothing differs for the worse; 1 a figure or verdict does, or a figure differs whose unit does not say which way is
good; 2 a side cannot be read; 64 bad usage.
"""


def parse(arguments):
    parser = cli.Parser("compare", description="Which figures and verdicts of two runs, or of two sets of runs, differ.", epilog=EPILOG)
    parser.add_argument("a", metavar="A", help="what was before")
    parser.add_argument("b", metavar="B", help="what is now")
    parser.add_argument("--store", metavar="STORE",
                        help="where run: and host: are looked up (default: $SKIDPROOF_STORE, then skidproof.db here)")
    parser.add_argument("--machine", metavar="NAME", help="of this machine of the rows (default: the one with most results on both sides)")
    parser.add_argument("--rate", type=cli.share, default=RATE, metavar="SHARE",
                        help="of the figures called different, how much may be chance (default: %(default)s)")
    parser.add_argument("--across", action="store_true", help="compare a model with silicon all the same")
    parser.add_argument("--all", action="store_true", help="list the figures that do not differ too, with what could have been seen")
    parser.add_argument("--plot", metavar="FILE", help="draw the effects with their intervals (.svg, .png, .pdf)")
    parser.add_argument("--html", metavar="FILE", help="the same as a page that opens from disk")
    parser.add_argument("--json", metavar="FILE", help='everything as one JSON object; "-" is standard output')
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    (a, problems_a), (b, problems_b) = (load(words, options.store) for words in (options.a, options.b))
    for problem in (*problems_a, *problems_b):
        cli.complain(problem)
    found = compare(a, b, names=(options.a, options.b), rate=options.rate, machine=options.machine, problems=(problems_a, problems_b),
                    across=options.across)
    if options.plot:
        plot(found, options.plot)
    if options.html:
        from skidproof.report.comparison import comparison_page
        with cli.whole_file(options.html) as stream:
            stream.write(comparison_page(found))
    cli.answer(options.json, as_json(found), text(found, options.all, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return cli.EXIT_FAILED if found.worse else cli.EXIT_HELD


def as_json(found):
    """The comparison as plain values; what is not a finite number is null."""
    figures = found.figures.assign(parameters=found.figures.parameters.map(json.loads)).to_dict("records")
    return cli.plain({"a": dataclasses.asdict(found.a), "b": dataclasses.asdict(found.b), "notes": found.notes, "rate": found.rate,
                      "common": found.common, "worse": found.worse, "figures": figures, "verdicts": found.verdicts.to_dict("records")})


def percent(part):
    if not math.isfinite(part):
        return "?"
    return f"{part:+.1%}" if abs(part) < 10 else f"×{1 + part:.3g}"


def figure_words(name, parameters):
    parameters = json.loads(parameters)
    return name + "".join(f" {key}={value}" for key, value in parameters.items())


def text(found, everything=False, color=False):
    """The comparison for people: first what differs."""
    paint = {"worse": "\33[31m", "better": "\33[32m", "bold": "\33[1m", "plain": "\33[0m"} if color else collections.defaultdict(str)
    lines = []
    for label, side in (("A", found.a), ("B", found.b)):
        count = f"{len(side.runs)} runs" if len(side.runs) > 1 else side.runs[0]
        lines.append(f"{label}  {side.name}: {side.machine} ({side.provenance}), {count}")
    lines += [f"   {paint['bold']}{note}{paint['plain']}" for note in found.notes]
    if found.common["words"]:
        lines.append(f"   {paint['bold']}{found.common['words']}{paint['plain']}")
    verdicts = found.verdicts if everything else found.verdicts[found.verdicts.kind.isin(("worse", "better", "erratum", "other"))]
    if len(verdicts):
        lines += ["", "Verdicts that differ"]
        table = [(v.kind, v.id, f"{v.a} → {v.b}", f"{v.failed_a} of {v.tried_a} → {v.failed_b} of {v.tried_b} failed",
                  "" if math.isnan(v.p) else f"p {v.p:.2g}", v.erratum) for v in verdicts.itertuples()]
        lines += _table(table, paint)
    left = found.verdicts.kind.value_counts()
    if not everything and left.get("disturbed", 0) + left.get("coverage", 0):
        lines.append(f"  {left.get('disturbed', 0)} more were disturbed by noise, {left.get('coverage', 0)} ran on one side only "
                     "(--all lists them)")
    figures = found.figures if everything else found.differing
    if len(figures):
        lines += ["", "Figures" if everything else "Figures that differ"]
        table = []
        for f in figures.itertuples():
            said = (f.direction or "differs") if f.differs else "same"
            span = "" if math.isnan(f.relative) else f"({percent(f.relative_low)} … {percent(f.relative_high)})"
            sure = f"q {f.q:.2g}" if not math.isnan(f.q) else ""
            table.append((said, figure_words(f.name, f.parameters), f"{f.a:.4g} → {f.b:.4g} {f.unit}", percent(f.relative), span, sure,
                          f"{percent(f.detectable)} could be seen" if everything and math.isfinite(f.detectable) else ""))
        lines += _table(table, paint)
    seen = found.figures[found.figures.unit != "bool"]
    lines.append("")
    if not len(found.figures) and not len(found.verdicts):
        lines.append("Nothing stands on both sides, or all verdicts are the same.")
    else:
        lines.append(f"{len(found.differing)} of {len(found.figures)} figures and {len(verdicts)} verdicts differ.")
    if len(seen):
        sharp = int((seen.detectable <= 0.05).sum())
        lines.append(f"A change of 5 % would have been called in {sharp} of {len(seen)} figures; the others are too noisy for so few runs."
                     if sharp < len(seen) else "A change of 5 % would have been called in any of them.")
    return cli.printable("\n".join(lines)) if not color else "\n".join(lines)


def _table(table, paint):
    table = [tuple(cli.printable(cell) for cell in line) for line in table]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = []
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths)]
        shade = paint[line[0]] if line[0] in ("worse", "better") else ""
        lines.append(("  " + shade + cells[0] + (paint["plain"] if shade else "") + "  " + "  ".join(cells[1:])).rstrip())
    return lines


def plot(found, path):
    """A forest plot: the relative effect of each figure with its interval; what differs is marked. At most 60, the surest first."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "skidproof"
    from matplotlib import pyplot
    shown = found.figures[np.isfinite(found.figures.relative.astype(float))].head(60).iloc[::-1]
    figure, axes = pyplot.subplots(figsize=(9, 1.6 + 0.22 * max(len(shown), 1)), layout="constrained")
    for place, f in enumerate(shown.itertuples()):
        shade = {"worse": "#b3261e", "better": "#1b7f3b"}.get(f.direction, "#000000") if f.differs else "#7a7a7a"
        axes.plot([100 * f.relative_low, 100 * f.relative_high], [place, place], color=shade, lw=1.5)
        axes.plot(100 * f.relative, place, "D" if f.differs else "o", color=shade, ms=5 if f.differs else 3)
    axes.axvline(0, color="#000000", lw=0.8)
    axes.set_yticks(range(len(shown)), [f"{figure_words(f.name, f.parameters)} [{f.unit}]"[:90] for f in shown.itertuples()], fontsize=6)
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xlabel("change from A to B, % (95 % intervals; diamonds differ)")
    axes.set_title(f"{found.a.name} ({found.a.machine}, {found.a.provenance}) → {found.b.name} ({found.b.machine}, {found.b.provenance})",
                   fontsize=8)
    kind = str(path).rsplit(".", 1)[-1].lower()
    if kind not in ("svg", "png", "pdf"):
        raise cli.usage(f"--plot {path}: the name does not say a kind of picture", "end it in .svg, .png or .pdf")
    with cli.whole_file(path, "wb") as stream:
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    pyplot.close(figure)
