"""`skidproof trends`: what changed in the history of each machine, when, and together with what.

`change_points`, `attribute` and `flaky` work on arrays and frames alone. docs/trends.md has the method and its limits.
"""

import collections
import dataclasses
import datetime
import fnmatch
import json
import os
import sys

import numpy as np
import pandas as pd

from skidproof import cli, ranks

RATE = 0.01  # of what is called a change, how much may be chance
LOWER_IS_BETTER = {"ns", "us", "ms", "s", "cycles"}
HIGHER_IS_BETTER = {"GB/s", "MB/s", "B/cycle", "GHz", "MHz"}
# What a machine row or a run row says that can explain a step, and what people call it.
FACTS = {"microcode": "microcode", "os": "kernel", "bios": "BIOS", "version": "skidproof", "hypervisor": "hypervisor"}


def direction(unit, effect, name=""):
    """"better", "worse", or "" where the unit does not say which way is good. A gain is good in any unit."""
    if not effect or unit not in LOWER_IS_BETTER | HIGHER_IS_BETTER:
        return ""
    lower = unit in LOWER_IS_BETTER and not name.endswith(".gain")
    return "better" if (effect < 0) == lower else "worse"


@dataclasses.dataclass(frozen=True)
class ChangePoint:
    """One change in one series. Nights are columns of the array that was searched."""

    series: int           # the line of the array
    index: int            # the first night of the new level
    last: int             # the last night of the old one, which is earlier than index - 1 where nights are missing between
    before: float         # medians of the nights since the change before this one, and until the next
    after: float
    effect: float         # Hodges and Lehmann's shift, with its 95 % interval
    low: float
    high: float
    p: float              # how often pure noise would look so changed at its most changed night
    kind: str = "step"    # or "drift": a line describes the whole better than a step; then `index` is where a step would fit best

    def relative(self, value=None):
        """The effect (or `low`, `high`) as a share of the level before; NaN where that is 0."""
        value = self.effect if value is None else value
        return value / abs(self.before) if self.before else float("nan")


def change_points(values, *, rate=RATE, drift=False):
    """The steps in many series.

    values: array [series, nights], NaN where a night is missing. rate: what share of the changes called may be false. drift: also
    return the series that go up or down steadily. Returns ChangePoints in order of series and night.

    Each series is searched by Mann and Whitney's rank sum over all splits; p-values are exact, corrected for the choice among the
    splits and for serial correlation; what is called is chosen among all series by Benjamini and Hochberg's procedure. A series
    that changed is searched again on both sides of its change.
    """
    values = np.asarray(values, float)
    if values.ndim != 2:
        raise ValueError("values must have two dimensions: series and nights")
    if not values.size:
        return []
    lines, columns, counts = ranks.compact(values)
    phi = ranks.correlation(lines, counts)
    white, left = ranks.whitened(lines, counts, phi)
    found, testable = ranks.scan(white, counts, left, rate=rate)
    limit = ranks.benjamini_hochberg(found.p[testable], rate)
    called = np.nonzero(testable & (found.p <= limit))[0]
    search = _Search(lines, white, counts, left, limit)
    search.split([(row, 0, counts[row]) for row in called])
    search.settle()
    result = []
    for row in called:
        cuts = search.cuts.get(row, {})
        if drift and row in search.drifts and not cuts:
            cuts = {search.drifts[row][0]: (search.drifts[row][1], "drift")}
        places = sorted(cuts)
        for place, start, end in zip(places, [0, *places[:-1]], [*places[1:], counts[row]]):
            before, after = lines[row, start:place], lines[row, place:end]
            factor = float(ranks.inflation(end - start, phi[row])[0, place - start - 1])
            shift = ranks.hodges_lehmann(before, after, inflation=factor)
            p, kind = cuts[place]
            result.append(ChangePoint(int(row), int(columns[row, place]), int(columns[row, place - 1]), float(np.median(before)),
                                      float(np.median(after)), shift.effect, shift.low, shift.high, p, kind))
    return result


class _Search:
    """Binary segmentation of the series that changed, all of them a level at a time."""

    def __init__(self, lines, white, counts, phi, limit):
        self.lines, self.white, self.counts, self.phi, self.limit = lines, white, counts, phi, limit
        self.cuts = {}    # row → {place in the line: (p, kind)}
        self.drifts = {}  # row → (place, p)

    def scan(self, parts):
        """The best split of each (row, start, end): (place in the line, p)."""
        return self._scan([self.white[row, start:end] for row, start, end in parts], parts)

    def _scan(self, pieces, parts):
        if not parts:
            return []
        sizes = np.array([len(piece) for piece in pieces])
        block = np.full((len(parts), sizes.max()), np.nan)
        for line, piece in zip(block, pieces):
            line[:len(piece)] = piece
        found, _ = ranks.scan(block, sizes, self.phi[[row for row, _, _ in parts]], limit=self.limit)
        return [(start + split, p) for (_, start, _), split, p in zip(parts, found.split, found.p)]

    def split(self, parts, straight=True):
        """Cuts these (row, start, end), and what comes of them. `straight`: where a line does as well as steps, there are none."""
        while parts:
            changed = [(part, place, p) for part, (place, p) in zip(parts, self.scan(parts)) if p <= self.limit]
            sloping = [(part, place, p) for part, place, p in changed
                       if straight and slopes(self.lines[part[0], part[1]:part[2]], [place - part[1]])]
            slanted = {part for part, _, _ in sloping}
            parts = []
            for (row, start, end), place, p in changed:
                if (row, start, end) not in slanted:
                    self.cuts.setdefault(row, {})[place] = (float(p), "step")
                    parts += [(row, start, place), (row, place, end)]
            self._straighten(sloping)

    def _straighten(self, sloping):
        """Parts that a line describes as well as one step does: they are stairs, or a step on a slope, or a slope."""
        if not sloping:
            return
        sizes = np.array([end - start for (_, start, end), _, _ in sloping])
        lines, white = (np.full((len(sloping), sizes.max()), np.nan) for _ in range(2))
        for number, (row, start, end) in enumerate(part for part, _, _ in sloping):
            lines[number, :end - start], white[number, :end - start] = self.lines[row, start:end], self.white[row, start:end]
        stairs = _Search(lines, white, sizes, self.phi[[row for (row, _, _), _, _ in sloping]], self.limit)
        stairs.split([(number, 0, size) for number, size in enumerate(sizes)], straight=False)
        stairs.settle()
        rest = []
        for number, ((row, start, end), place, p) in enumerate(sloping):
            steps = stairs.cuts.get(number, {})
            if len(steps) > 1 and not slopes(lines[number, :end - start], sorted(steps)):
                self.cuts.setdefault(row, {}).update({start + step: found for step, found in steps.items()})
            else:
                rest.append(((row, start, end), place, p))
        flat = self._scan([flattened(self.white[row, start:end]) for (row, start, end), _, _ in rest], [part for part, _, _ in rest])
        for ((row, _, _), place, p), (flat_place, flat_p) in zip(rest, flat):
            if flat_p <= self.limit:
                self.cuts.setdefault(row, {})[flat_place] = (float(flat_p), "step")
            else:
                self.drifts.setdefault(row, (place, float(p)))

    def settle(self):
        """Each of several changes again, between its neighbours alone: where it then fits best, and whether it still stands."""
        for _ in range(2):
            parts = []
            for row, cuts in self.cuts.items():
                places = sorted(cuts)
                if len(places) > 1:
                    parts += [((row, start, end), place) for place, start, end
                              in zip(places, [0, *places[:-1]], [*places[1:], self.counts[row]])]
            moved = {}
            for ((row, _, _), _), (place, p) in zip(parts, self.scan([part for part, _ in parts])):
                moved.setdefault(row, {})
                if p <= self.limit:
                    moved[row][place] = (float(p), "step")
            for row, cuts in moved.items():
                # The strongest stays whatever its neighbours say: the whole series was called.
                self.cuts[row] = cuts or dict([min(self.cuts[row].items(), key=lambda cut: cut[1][0])])


# How much likelier a step must be than a line, as the logarithm of the ratio: so much a night, and no more than so much.
STEP_MARGIN, STEP_MARGIN_MOST = 0.09, 8.0


def slopes(piece, places):
    """Whether steps at these places describe the values no better than a straight line does. What each leaves counts up to four times
    what is usual, so that odd nights decide nothing; each further step has its price (Schwarz's criterion)."""
    by_step = np.abs(np.concatenate([part - np.median(part) for part in np.split(piece, places)]))
    flat = flattened(piece)
    by_line = np.abs(flat - np.median(flat))
    usual = 4 * min(np.median(by_step), np.median(by_line))
    if not usual:  # most nights lie exactly on one of the two
        return np.median(by_line) < np.median(by_step)
    left_by_step, left_by_line = (np.minimum(left, usual).sum() for left in (by_step, by_line))
    margin = min(STEP_MARGIN * len(piece), STEP_MARGIN_MOST) + 2 * (len(places) - 1) * np.log(len(piece))
    return len(piece) * np.log(left_by_line / left_by_step) < margin


def flattened(piece):
    """The values less the line through them: Theil and Sen's median slope."""
    time = np.arange(len(piece))
    first, second = np.triu_indices(len(piece), 1)
    slope = np.median((piece[second] - piece[first]) / (second - first))
    return piece - slope * time


# ---- What changed with it ----

NEAR = 2  # nights: a step's place is no surer than that


def attribute(change, before, after):
    """What changed on a machine between the last night before a step and the first night after it.

    change: a ChangePoint, or None; before, after: mappings with the keys of FACTS (more do no harm). Returns a list of (what, before,
    after); empty where the machine says the same on both nights, and for a drift, which begins on no night."""
    if change is not None and change.kind != "step":
        return []
    found = []
    for what in FACTS:
        one, other = _fact(before, what), _fact(after, what)
        if one != other and (one or other):
            found.append((what, one, other))
    return found


def _fact(facts, what):
    value = facts.get(what)
    return "" if value is None or value != value else str(value)


def _transitions(facts):
    """[(night, what, before, after)] of a subject's nights (dicts in order)."""
    return [(night, *item) for night in range(1, len(facts)) for item in attribute(None, facts[night - 1], facts[night])]


# ---- Verdicts ----

GOOD, BAD = {"pass", "xpass"}, {"fail", "error", "xfail"}


def flaky(verdicts, facts=None, *, rate=RATE):
    """The tests of one machine that do not always pass, and how: a frame id, kind, rate, low, high, nights, failed, flips, disturbed,
    since, before, after, p, attributed.

    verdicts: a frame with id, run, started, status (one row a repetition), in any order. facts: one dict a night with `run` and the keys of
    FACTS, in order; without it, nothing is known to have changed.

    kind: `flaky`: the verdict goes back and forth without anything having changed; `rate` is the share of failed nights since `since`, with
    its exact interval (Clopper and Pearson). `changed`: it changed once, between the runs `before` and `after`; p is Fisher's, corrected
    for the choice of the night. `fails`: on every night since `since`. Nights that were skipped, disturbed or observed say neither.
    """
    columns = ["id", "kind", "rate", "low", "high", "nights", "failed", "flips", "disturbed", "since", "before", "after", "p", "attributed"]
    if not len(verdicts):
        return pd.DataFrame(columns=columns)
    ordered = verdicts.sort_values("started", kind="stable")
    runs = list(dict.fromkeys([fact["run"] for fact in facts] if facts else ordered.run))
    column = {run: place for place, run in enumerate(runs)}
    tests = list(dict.fromkeys(ordered.id))
    line = {test: place for place, test in enumerate(tests)}
    bad, seen, disturbed = (np.zeros((len(tests), len(runs))) for _ in range(3))
    for test, run, status in zip(ordered.id, ordered.run, ordered.status):
        if run not in column:
            continue
        place = line[test], column[run]
        seen[place] += status in GOOD | BAD
        bad[place] += status in BAD
        disturbed[place] += status == "disturbed"
    with np.errstate(invalid="ignore"):
        share = np.where(seen > 0, bad / seen, np.nan)  # of a night's repetitions
    cuts = collections.defaultdict(list)
    for change in change_points(share, rate=rate):
        cuts[change.series].append(change)
    by_night = facts or [{}] * len(runs)
    found = []
    for place, test in enumerate(tests):
        nights = np.nonzero(np.isfinite(share[place]))[0]
        values = share[place, nights]
        if not len(nights) or not values.any():
            continue
        states = (values > 0).astype(int)
        turns = [(nights[i - 1], nights[i]) for i in range(1, len(nights)) if states[i] != states[i - 1]]
        idle = sum(not attribute(None, by_night[one], by_night[two]) for one, two in turns)
        mixed = bool(((values > 0) & (values < 1)).any())  # failed and passed in one night
        cut = cuts[place][-1] if cuts[place] else None
        tail = values[nights >= cut.index] if cut else values
        within = int((np.diff((tail > 0).astype(int)) != 0).sum()) >= 2 or bool(((tail > 0) & (tail < 1)).any())
        one = {"id": test, "nights": len(nights), "failed": int((values > 0).sum()), "flips": len(turns),
               "disturbed": int((disturbed[place] > 0).sum()), "since": runs[nights[0]], "before": None, "after": None, "p": None,
               "attributed": []}
        if (mixed or len(turns) >= 2 and idle >= 2) and (within or not cut):
            kind = "flaky"
        else:
            kind = "changed" if turns else "fails"
        if cut or kind == "changed":
            last, index = (cut.last, cut.index) if cut else turns[-1]
            one |= {"since": runs[index], "before": runs[last], "after": runs[index], "p": cut.p if cut else None,
                    "attributed": attribute(None, by_night[last], by_night[index])}
            tail = values[nights >= index]
        failed = int((tail > 0).sum())
        low, high = ranks.clopper_pearson(failed, len(tail))
        found.append(one | {"kind": kind, "rate": failed / len(tail), "low": low, "high": high})
    return pd.DataFrame(found, columns=columns)


# ---- A whole store ----

@dataclasses.dataclass(frozen=True)
class Trends:
    """What the histories of a store hold.

    changes: a row a step: subject, host, machine, provenance, figure, name, unit, statistic, parameters, before_run, after_run, before_id,
    after_id, started, before, after, effect, low, high, relative, relative_low, relative_high, direction, p, kind, attributed (dicts:
    what, before, after, nights (how many later than the step; 0 as a rule), took, showed (of the subjects that took the same change, how
    many show a step in a figure of this name with it)).
    verdicts: what `flaky` returns, with subject, host, machine, provenance.
    """

    changes: pd.DataFrame
    verdicts: pd.DataFrame
    subjects: int
    series: int
    nights: int


CHANGE_COLUMNS = ["subject", "host", "machine", "provenance", "figure", "name", "unit", "statistic", "parameters", "before_run",
                  "after_run", "before_id", "after_id", "started", "before", "after", "effect", "low", "high", "relative",
                  "relative_low", "relative_high", "direction", "p", "kind", "attributed"]


def find(store, *, since=None, hosts=None, rate=RATE):
    """The Trends of a store (skidproof.store.open), of the nights since `since` and the hosts that match the glob `hosts`."""
    subjects = store.subjects()
    if hosts:
        subjects = subjects[[fnmatch.fnmatchcase(str(host), hosts) for host in subjects.host]]
    blocks, owners, told, verdicts = [], [], {}, []
    for subject in subjects.itertuples():
        facts = store.facts(subject.subject)
        if since is not None:
            facts = facts[facts.started >= since]
        nights = told[subject.subject] = facts.to_dict("records")
        column = {run: place for place, run in enumerate(facts.run)}
        history = store.history(subject.subject)
        history = history[history.run.isin(column)]
        if len(history):
            codes, figures = pd.factorize(history.figure)
            block = np.full((len(figures), len(nights)), np.nan)
            block[codes, history.run.map(column)] = history.value
            blocks.append(block)
            firsts = history.drop_duplicates("figure").set_index("figure")
            owners += [(subject, int(figure), firsts.loc[figure]) for figure in figures]
        of_subject = flaky(store.verdicts(subject.subject), nights, rate=rate) if nights else []
        if len(of_subject):
            ids = dict(zip(facts.run, facts.run_id))
            for name in ("since", "before", "after"):
                of_subject[name] = [ids.get(run) for run in of_subject[name]]
            verdicts.append(of_subject.assign(subject=subject.subject, host=subject.host, machine=subject.machine,
                                              provenance=subject.provenance))
    width = max((block.shape[1] for block in blocks), default=0)
    values = np.full((len(owners), width), np.nan)
    place = 0
    for block in blocks:
        values[place:place + len(block), :block.shape[1]] = block
        place += len(block)
    lines = []
    for change in change_points(values, rate=rate, drift=True):
        subject, figure, row = owners[change.series]
        nights = told[subject.subject]
        before, after = nights[change.last], nights[change.index]
        lines.append({"subject": int(subject.subject), "host": subject.host, "machine": subject.machine, "provenance": subject.provenance,
                      "figure": figure, **{key: row[key] for key in ("name", "unit", "statistic", "parameters")},
                      "before_run": int(before["run"]), "after_run": int(after["run"]), "before_id": before["run_id"],
                      "after_id": after["run_id"], "started": after["started"],
                      **{key: getattr(change, key) for key in ("before", "after", "effect", "low", "high", "p", "kind")},
                      **{f"relative{key}": change.relative(value) for key, value in
                         (("", None), ("_low", change.low), ("_high", change.high))},
                      "direction": direction(row["unit"], change.effect, row["name"]), "attributed": _explained(change, nights)})
    _count_elsewhere(lines, told)
    changes = pd.DataFrame(lines, columns=CHANGE_COLUMNS)
    shown = pd.concat(verdicts, ignore_index=True) if verdicts else flaky(pd.DataFrame())
    return Trends(changes, shown, len(subjects), len(owners), int(np.isfinite(values).any(axis=0).sum()))


def _explained(change, nights):
    """What changed at the step; where nothing did, what changed next to it."""
    found = [(0, item) for item in attribute(change, nights[change.last], nights[change.index])]
    if not found and change.kind == "step":
        first, last = max(change.last - NEAR, 0), min(change.index + NEAR, len(nights) - 1)
        found = [(night + first - change.index, item) for night, *item in _transitions(nights[first:last + 1])]
    return [{"what": what, "before": before, "after": after, "nights": offset} for offset, (what, before, after) in found]


def _count_elsewhere(lines, told):
    """Adds to each explanation how many subjects took the same change, and how many of them show a step in such a figure with it."""
    took, showed = collections.defaultdict(set), collections.defaultdict(set)
    for subject, nights in told.items():
        for _, *item in _transitions(nights):
            took[tuple(item)].add(subject)
    for line in lines:
        for item in line["attributed"]:
            showed[item["what"], item["before"], item["after"], line["name"]].add(line["subject"])
    for line in lines:
        for item in line["attributed"]:
            same = item["what"], item["before"], item["after"]
            item["showed"] = len(showed[(*same, line["name"])])
            item["took"] = len(took[same] | showed[(*same, line["name"])])


def update(store, *, rate=RATE):
    """Computes the change points of the whole store and writes them into it in place of those it has. Returns the Trends."""
    found = find(store, rate=rate)
    now = datetime.datetime.now(datetime.timezone.utc)
    columns = ("subject", "figure", "before_run", "after_run", "before", "after", "effect", "low", "high", "p", "attributed")
    steps = found.changes[found.changes.kind == "step"]
    finite = {"low", "high"}  # an interval can be open where nights are few
    store.replace_change_points([{key: None if key in finite and not np.isfinite(line[key]) else line[key] for key in columns}
                                 | {"computed": now} for line in steps.to_dict("records")])
    return found


# ---- The verb ----

EPILOG = """\
Examples:
  skidproof trends                                   the whole store; its change points are written into it
  skidproof trends --store postgresql://lab@db/results --since 2026-11-01
  skidproof trends --host 'lab00*' --json -

Exit codes: 0 computed, whatever was found; 2 the store cannot be read or written; 64 bad usage.
"""


def parse(arguments):
    parser = cli.Parser("trends", description="What changed in the history of each machine, when, and together with what.", epilog=EPILOG)
    parser.add_argument("--store", metavar="STORE",
                        help="an SQLite file or postgresql://… (default: $SKIDPROOF_STORE, then skidproof.db here)")
    parser.add_argument("--host", metavar="GLOB", help="only these hosts; nothing is written then")
    parser.add_argument("--since", metavar="DATE", type=date,
                        help="only nights since then, such as 2026-11-01 (UTC); nothing is written then")
    parser.add_argument("--rate", type=cli.share, default=RATE, metavar="SHARE",
                        help="of the changes called, how much may be chance (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--json", metavar="FILE", help='what was found as one JSON object; "-" is standard output')
    return parser.parse_args(arguments)


def date(words):
    return pd.to_datetime(words, utc=True)


def main(arguments):
    from skidproof import store as stores
    options = parse(arguments)
    with stores.open(options.store) as store:
        if options.dry_run or options.since is not None or options.host:
            found = find(store, since=options.since, hosts=options.host, rate=options.rate)
        else:
            found = update(store, rate=options.rate)
    cli.answer(options.json, as_json(found), text(found, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return cli.EXIT_HELD


def as_json(found):
    """The trends as plain values; what is not a finite number is null."""
    changes = found.changes.assign(parameters=[json.loads(words) for words in found.changes.parameters]).to_dict("records")
    return cli.plain({"subjects": found.subjects, "series": found.series, "nights": found.nights, "changes": changes,
                      "verdicts": found.verdicts.to_dict("records")})


def why(item, name):
    """One explanation in words: "microcode 0x2a → 0x2b: 20 of 412 machines that took it show a step in memory.latency"."""
    when = f", {abs(item['nights'])} nights {'later' if item['nights'] > 0 else 'earlier'}" if item.get("nights") else ""
    words = f"{FACTS[item['what']]} {item['before'] or 'not said'} → {item['after'] or 'not said'}{when}"
    if item["took"] < 2:
        return words
    return f"{words}: {item['showed']} of {item['took']} machines that took it show a step in {name}"


def text(found, color=False):
    """The trends for people."""
    red, green, plain = ("\33[31m", "\33[32m", "\33[0m") if color else ("", "", "")
    shade = {"worse": red, "better": green}
    lines = []
    for kind, title in (("step", "Figures that changed"), ("drift", "Figures that go up or down steadily")):
        of_kind = found.changes[found.changes.kind == kind].sort_values(["started", "host"], kind="stable")
        if not len(of_kind):
            continue
        lines += [*([""] if lines else []), title]
        table, notes = [], []
        for c in of_kind.itertuples():
            parameters = "".join(f" {key}={value}" for key, value in json.loads(c.parameters).items())
            table.append((c.direction or "changed", f"{c.started:%Y-%m-%d}", f"{c.host} {c.machine} ({c.provenance})",
                          f"{c.name}{parameters}", f"{c.before:.4g} → {c.after:.4g} {c.unit}",
                          f"{c.relative:+.1%} ({c.relative_low:+.1%} … {c.relative_high:+.1%})",
                          f"p {c.p:.1g}"))
            notes.append([why(item, c.name) for item in c.attributed] or
                         (["nothing that the machine says of itself changed then"] if kind == "step" else []))
        table = [tuple(cli.printable(cell) for cell in line) for line in table]
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        for line, why_lines in zip(table, notes):
            cells = [cell.ljust(width) for cell, width in zip(line, widths)]
            first = shade.get(line[0], "") + cells[0] + (plain if line[0] in shade else "")
            lines.append("  " + "  ".join([first, *cells[1:]]).rstrip())
            lines += ["      " + cli.printable(words) for words in why_lines]
    if len(found.verdicts):
        lines += [*([""] if lines else []), "Tests that do not always pass"]
        for v in found.verdicts.sort_values(["kind", "host", "id"]).itertuples():
            share = f"{v.rate:.0%} of nights fail ({v.low:.0%} … {v.high:.0%})"
            words = {"flaky": f"flaky: {share}, {v.flips} changes in {v.nights} nights", "fails": f"fails on all of {v.nights} nights",
                     "changed": f"changed with {v.after}; since then {share}"}[v.kind]
            lines.append("  " + cli.printable(f"{v.host} {v.machine} ({v.provenance})  {v.id}  {words}"))
            lines += ["      " + cli.printable(f"{FACTS[what]} {before or 'not said'} → {after or 'not said'}")
                      for what, before, after in v.attributed]
    steps = int((found.changes.kind == "step").sum())
    lines += [*([""] if lines else []),
              f"{steps} changes in {found.series} series of {found.subjects} machines, over up to {found.nights} nights."]
    return "\n".join(lines)
