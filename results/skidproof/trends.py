"""`skidproof trends`: what changed in the history of each machine, when, and together with what.

`change_points`, `attribute` and `flaky` work on arrays and frames alone. docs/trends.md has the method and its limits.
"""

import dataclasses
import json
import sys

import numpy as np

from skidproof import ranks

RATE = 0.01  # of what is called a change, how much may be chance
LOWER_IS_BETTER = {"ns", "us", "ms", "s", "cycles"}
HIGHER_IS_BETTER = {"GB/s", "MB/s", "GHz", "MHz"}
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

    def split(self, parts):
        while parts:
            changed = [(part, place, p) for part, (place, p) in zip(parts, self.scan(parts)) if p <= self.limit]
            sloping = [(part, place, p) for part, place, p in changed if slopes(self.lines[part[0], part[1]:part[2]], place - part[1])]
            slanted = {part for part, _, _ in sloping}
            parts = []
            for (row, start, end), place, p in changed:
                if (row, start, end) not in slanted:
                    self.cuts.setdefault(row, {})[place] = (float(p), "step")
                    parts += [(row, start, place), (row, place, end)]
            flat = [flattened(self.white[row, start:end]) for (row, start, end), _, _ in sloping]
            again = self._scan(flat, [part for part, _, _ in sloping])
            for ((row, start, end), place, p), (flat_place, flat_p) in zip(sloping, again):
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


def slopes(piece, place):
    """Whether a step at `place` describes the values no better than a straight line does. What each leaves counts up to four times
    what is usual, so that odd nights decide nothing."""
    by_step = np.abs(np.concatenate([part - np.median(part) for part in (piece[:place], piece[place:])]))
    flat = flattened(piece)
    by_line = np.abs(flat - np.median(flat))
    usual = 4 * min(np.median(by_step), np.median(by_line))
    if not usual:  # most nights lie exactly on one of the two
        return np.median(by_line) < np.median(by_step)
    left_by_step, left_by_line = (np.minimum(left, usual).sum() for left in (by_step, by_line))
    return len(piece) * np.log(left_by_line / left_by_step) < min(STEP_MARGIN * len(piece), STEP_MARGIN_MOST)


def flattened(piece):
    """The values less the line through them: Theil and Sen's median slope."""
    time = np.arange(len(piece))
    first, second = np.triu_indices(len(piece), 1)
    slope = np.median((piece[second] - piece[first]) / (second - first))
    return piece - slope * time
