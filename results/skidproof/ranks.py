"""Rank statistics behind `trends` and `compare`: nothing here assumes that noise is normal.

Everything works on arrays; no rows, no store. The sources stand in docs/trends.md.
"""

import dataclasses
import functools

import numpy as np
from scipy import special, stats

EXACT_NIGHTS = 128  # up to so many values the rank sum's distribution is counted out; beyond, a saddlepoint stands for it
MIN_SEGMENT = 3     # two odd nights in a row are no change yet, whatever their p-value
BATCH = 4096        # series worked on at a time, which bounds the memory


def benjamini_hochberg(p, rate):
    """The limit below which p-values are called so that the expected share of false ones among all called is at most `rate`
    (Benjamini and Hochberg 1995); 0 where none is."""
    p = np.sort(np.asarray(p, float))
    held = np.nonzero(p <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))[0]
    return rate * (held[-1] + 1) / len(p) if len(held) else 0.0


def adjusted(p):
    """Benjamini and Hochberg's adjusted p-values: the smallest rate at which each would be called. NaN stays NaN and is no test."""
    p = np.asarray(p, float)
    result = np.full(p.shape, np.nan)
    tested = np.nonzero(~np.isnan(p))[0]
    order = tested[np.argsort(p[tested], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    result[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1)
    return result


def clopper_pearson(k, n, confidence=0.95):
    """The exact interval of the probability behind k of n (Clopper and Pearson 1934); (0, 1) for n = 0."""
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else float(stats.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(stats.beta.ppf(1 - tail, k + 1, n - k))
    return low, high


def doubled_ranks(block):
    """Twice the midranks along each line of an array without holes, as integers, and whether the line has ties."""
    lines, count = block.shape
    order = np.argsort(block, axis=1, kind="stable")
    ordered = np.take_along_axis(block, order, 1)
    opens = np.ones((lines, count), bool)
    opens[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    closes = np.ones((lines, count), bool)
    closes[:, :-1] = opens[:, 1:]
    place = np.arange(count)
    first = np.maximum.accumulate(np.where(opens, place, 0), axis=1)
    last = np.minimum.accumulate(np.where(closes, place, count)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty((lines, count), np.int64)
    np.put_along_axis(ranks, order, first + last + 2, 1)
    return ranks, ~opens.all(axis=1)


# ---- The distribution of a rank sum ----

@functools.lru_cache(maxsize=256)
def untied_tails(count):
    """For k = 0 … count // 2: P(U <= u) for u = 0 … k (count - k), where U is Mann and Whitney's statistic of k among `count`
    values without ties. Counted out by their recurrence; right to the last tail, because only positive numbers are added."""
    half = count // 2
    ways = np.zeros((half + 1, half * (count - half) + 1))
    ways[0, 0] = 1
    for i in range(1, count + 1):  # of the values 1 … i, the largest is in the sample and exceeds i - k others, or it is not
        for k in range(min(i, half), 0, -1):
            ways[k, i - k:] += ways[k - 1, :ways.shape[1] - (i - k)]
    return [np.minimum(np.cumsum(ways[k, :k * (count - k) + 1]) / special.binom(count, k), 1) for k in range(half + 1)]


def tied_tails(ranks, half=None):
    """The same for given doubled midranks, as (lower, upper): lower[k][s] = P(S <= s), upper[k][s] = P(S >= s) of the sum S of k
    of them, s from 0; for k up to `half`, or up to half of them."""
    count, half = len(ranks), len(ranks) // 2 if half is None else half
    top = int(np.sort(ranks)[::-1][:half].sum())
    ways = np.zeros((half + 1, top + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :top + 1 - rank].copy()
    share = ways / special.binom(count, np.arange(half + 1))[:, None]
    return np.minimum(np.cumsum(share, axis=1), 1), np.minimum(np.cumsum(share[:, ::-1], axis=1)[:, ::-1], 1)


def saddlepoint_tail(ranks, k, total):
    """P(S >= total) and P(S <= total) for the sum S of k of these doubled midranks, by Skovgaard's double saddlepoint with the
    lattice's correction (1987): for more values than can be counted out."""
    a = (ranks - ranks.mean()) / ranks.std()
    step = (2 if len(np.unique(ranks)) == len(ranks) else 1) / ranks.std()
    centre = (total - k * ranks.mean()) / ranks.std()

    def upper(values, s):
        s = s - step / 2
        most = np.sort(values)[::-1][:k].sum()
        if s >= most:
            return 0.0
        if s <= step:
            return 1.0  # only tails are of use
        level, tilt = np.log(k / (len(values) - k)), 0.0
        for _ in range(100):
            share = special.expit(level + tilt * values)
            weight = share * (1 - share)
            hessian = np.array([[weight.sum(), (weight * values).sum()], [(weight * values).sum(), (weight * values * values).sum()]])
            miss = np.array([share.sum() - k, (share * values).sum() - s])
            try:
                move = np.linalg.solve(hessian, miss)
            except np.linalg.LinAlgError:
                break
            move *= min(1, 2 / (np.abs(move).max() + 1e-300))
            level, tilt = level - move[0], tilt - move[1]
            if np.abs(move).max() < 1e-10:
                break
        flat = np.log(k / (len(values) - k))
        rate = 2 * ((len(values) * np.log1p(np.exp(flat)) - flat * k)
                    - (np.logaddexp(0, level + tilt * values).sum() - level * k - tilt * s))
        r = np.sqrt(max(rate, 1e-12))
        determinant = max(float(np.linalg.det(hessian)), 1e-300)
        u = 2 * np.sinh(tilt * step / 2) / step * np.sqrt(determinant / (k * (1 - k / len(values))))
        return float(np.clip(special.ndtr(-r) + np.exp(-r * r / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / r), 0, 1))

    return upper(a, centre), upper(-a, -centre)


def two_sided(before, after):
    """The exact two-sided p-value of Mann and Whitney's test of two samples, ties by their conditional distribution."""
    ranks, tied = doubled_ranks(np.concatenate([before, after])[None, :])
    ranks, k, count = ranks[0], len(before), len(before) + len(after)
    total = int(ranks[:k].sum())
    if not k or k == count:
        return 1.0
    if count <= EXACT_NIGHTS and not tied[0]:
        below = (k * (count - k) - abs(total - k * (count + 1))) // 2
        return float(min(1.0, 2 * untied_tails(count)[min(k, count - k)][below]))
    return sum_p(ranks, k, total)


def sum_p(ranks, k, total):
    """The two-sided p-value of the sum `total` of k of these doubled midranks: counted out where that is cheap enough."""
    count = len(ranks)
    if k > count // 2:
        k, total = count - k, int(ranks.sum()) - total
    if count > EXACT_NIGHTS and k * k * count * count > 2e9:
        return min(1.0, 2 * min(saddlepoint_tail(ranks, k, total)))
    lower, upper = tied_tails(ranks, k)
    return float(min(1.0, 2 * min(lower[k, total], upper[k, total])))


# ---- The effect ----

@dataclasses.dataclass(frozen=True)
class Shift:
    """How far `after` lies above `before`."""

    effect: float
    low: float
    high: float


def hodges_lehmann(before, after, confidence=0.95, inflation=1.0):
    """Hodges and Lehmann's shift: the median of all differences, with the interval that Mann and Whitney's test does not refuse.
    `inflation` is the factor by which serial correlation enlarges the variance. The interval is infinite where the samples are too
    few for this confidence."""
    before, after = np.asarray(before, float), np.asarray(after, float)
    differences = np.sort(np.subtract.outer(after, before), axis=None)
    m, n = len(before), len(after)
    if inflation == 1.0 and m + n <= EXACT_NIGHTS:
        outside = int(np.searchsorted(untied_tails(m + n)[min(m, n)], (1 - confidence) / 2, side="right"))
    else:
        spread = np.sqrt(inflation * m * n * (m + n + 1) / 12)
        outside = int(np.floor(m * n / 2 + special.ndtri((1 - confidence) / 2) * spread))
    low, high = (differences[outside - 1], differences[-outside]) if outside > 0 else (-np.inf, np.inf)
    return Shift(float(np.median(differences)), float(low), float(high))


# ---- Serial correlation ----

def inflation(count, phi):
    """By what factor an AR(1) of `phi` enlarges the variance of the difference of the means before and after each split
    k = 1 … count - 1; `phi` has one value a line."""
    phi = np.clip(np.atleast_1d(np.asarray(phi, float)), 0, 0.95)[:, None]
    lag = np.arange(count)
    power = phi ** lag  # of 0: 1, 0, 0 …

    # Sum of phi^|i-j| over the first k values, and over all pairs (first k, rest).
    inner = np.cumsum(np.concatenate([np.ones((len(phi), 1)), 1 + 2 * np.cumsum(power[:, 1:], axis=1)], axis=1), axis=1)
    whole = inner[:, -1:]
    k = np.arange(1, count)
    left, right = inner[:, :-1], inner[:, -2::-1]
    across = (whole - left - right) / 2
    variance = left / k**2 + right / (count - k) ** 2 - 2 * across / (k * (count - k))
    return variance / (1 / k + 1 / (count - k))


def serial_correlation(rank_lines, splits):
    """The lag-1 correlation of the ranks of each line after its best split has been taken out, and the count of values, corrected
    for the bias that taking out brings."""
    count = rank_lines.shape[1]
    x = rank_lines - (count + 1.0)
    total = np.cumsum(x, axis=1)
    place = np.arange(count)
    k = np.asarray(splits)[:, None]
    head = np.take_along_axis(total, np.maximum(k - 1, 0), 1)
    mean = np.where(place < k, head / np.maximum(k, 1), (total[:, -1:] - head) / np.maximum(count - k, 1))
    x = x - mean
    power = (x * x).sum(axis=1)
    lagged = (x[:, 1:] * x[:, :-1]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(power > 0, (lagged / power + SELECTION_BIAS / (count + 5)) * (1 + SELECTION_SHRINK / count), 0)


# Once the best split is taken out, the correlation comes out too small: measured on AR(1) noise of 0, 0.3 and 0.6 and 12 to 120 values.
SELECTION_BIAS, SELECTION_SHRINK = 4.2, 9.0
PRIOR_SERIES = 10      # what is believed of serial correlation before any series was seen weighs as much as so many series
PRIOR_SPREAD = 0.15


def pooled_correlation(phi, counts):
    """What to believe of each series' serial correlation, given all: the estimates are drawn to their common median as far as their
    scatter is that of the estimation alone (empirical Bayes), and one standard error is added, because too little costs false
    alarms and too much only some power."""
    phi, counts = np.asarray(phi, float), np.asarray(counts, float)
    if not len(phi):
        return phi
    centre = np.median(phi) * len(phi) / (len(phi) + PRIOR_SERIES)
    error = (1 - min(centre, 0.9) ** 2) * (1 + SELECTION_SHRINK / counts) ** 2 / counts
    scatter = (1.4826 * np.median(np.abs(phi - np.median(phi)))) ** 2
    between = max(0.0, scatter - float(np.median(error)))
    between = (len(phi) * between + PRIOR_SERIES * PRIOR_SPREAD**2) / (len(phi) + PRIOR_SERIES)
    weight = between / (between + error)
    return np.clip(centre + weight * (phi - centre) + np.sqrt(weight * error), 0, 0.95)


# ---- The scan over all splits ----

@dataclasses.dataclass
class Scan:
    """The best split of each series: values before it (0: none), its p-value, and the p-value corrected for the choice among all
    splits. Corrected only where it can be at most the limit that was asked for; 1 elsewhere."""

    split: np.ndarray
    single: np.ndarray
    p: np.ndarray


def _sums(ranks):
    """Twice the rank sum of the first k = 1 … count - 1 less its mean."""
    count = ranks.shape[1]
    return np.cumsum(ranks, axis=1)[:, :-1] - np.arange(1, count) * (count + 1)


def _deflate(p, factor):
    """What a two-sided p-value is worth where the variance is `factor` times what it supposes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(factor == 1.0, p, 2 * special.ndtr(special.ndtri(p / 2) / np.sqrt(factor)))


NODES, WEIGHTS = (np.polynomial.legendre.leggauss(12)[0] + 1) / 2, np.polynomial.legendre.leggauss(12)[1] / 2


def _any_split(mass, count):
    """P(at least one split is so extreme), from the probability of each split k = MIN_SEGMENT … in the columns of `mass`: each counts
    only as far as its neighbour is not extreme too (the bound of Hunter and Worsley over the chain of splits), the share of
    which comes from the normal distribution with the neighbours' correlation."""
    k = np.arange(MIN_SEGMENT + 1, MIN_SEGMENT + mass.shape[1])
    rho = np.sqrt((k - 1) * (count - k) / (k * (count - k + 1.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = -special.ndtri(mass[:, :-1])
        result = mass[:, 0].copy()
        fresh = np.zeros_like(mass[:, 1:])
        for node, weight in zip(NODES, WEIGHTS):
            z = -special.ndtri(node * mass[:, 1:])
            fresh += weight * special.ndtr((edge - rho * z) / np.sqrt(1 - rho * rho))
    fresh[mass[:, 1:] == 0] = 0
    return result + (mass[:, 1:] * fresh).sum(axis=1)


def _attained(levels, t):
    """The largest of the ascending `levels` that is at most t; 0 where none is."""
    place = np.searchsorted(levels, t, side="right")
    return np.where(place > 0, levels[np.maximum(place - 1, 0)], 0.0)


def _corrected(t, count, factor, tails):
    """Two-sided p-values t of the best of all splits → corrected for the choice. `tails(k)` are the attainable one-sided
    probabilities of split k, as (lower, upper), ascending; None where they are too many to list."""
    splits = np.arange(MIN_SEGMENT, count - MIN_SEGMENT + 1)
    factor = factor[:, MIN_SEGMENT - 1:count - MIN_SEGMENT]
    with np.errstate(divide="ignore"):
        z = special.ndtri(t / 2)
    raw = np.where(factor == 1.0, t[:, None] / 2, special.ndtr(z[:, None] * np.sqrt(factor)))  # on the scale without correlation
    result = 0
    for side in (0, 1):
        mass = np.empty(raw.shape)
        for column, k in enumerate(splits):
            levels = tails(k)
            if levels is None:
                mass[:, column] = np.where(raw[:, column] >= 1 / special.binom(count, k), raw[:, column], 0)
            else:
                mass[:, column] = _attained(levels[side], raw[:, column] * (1 + 1e-12))
        mass = np.where(factor == 1.0, mass, _deflate(2 * mass, factor) / 2)
        result = result + _any_split(np.nan_to_num(mass), count)
        if levels is not None and levels[0] is levels[1]:
            return np.minimum(2 * result, 1)
    return np.minimum(result, 1)


def _tied(ranks):
    count, (lower, upper) = len(ranks), tied_tails(ranks)

    def tails(k):
        small = min(k, count - k)
        low, high = lower[small], upper[small][::-1]
        return (low, high) if k == small else (high, low)

    return tails, lower, upper


def _tied_p(ranks, lower, upper):
    """The exact two-sided p-value of each split 1 … count - 1 of one line with ties."""
    count, total = len(ranks), int(ranks.sum())
    result = np.ones(count - 1)
    sums = np.cumsum(ranks)[:-1]
    for k in range(MIN_SEGMENT, count - MIN_SEGMENT + 1):
        small, s = (k, sums[k - 1]) if k <= count // 2 else (count - k, total - sums[k - 1])
        result[k - 1] = min(1.0, 2 * min(lower[small, s], upper[small, s]))
    return result


def _normal_p(ranks):
    """The same by the normal approximation, for the choice of what is worth counting out."""
    count = ranks.shape[1]
    k = np.arange(1, count)
    spread = ((ranks - (count + 1.0)) ** 2).sum(axis=1)[:, None] / (count - 1.0) * k * (count - k) / count
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(np.abs(_sums(ranks)) / np.sqrt(spread))
    p = 2 * special.ndtr(-z)
    p[:, :MIN_SEGMENT - 1], p[:, count - MIN_SEGMENT:] = 1, 1
    return p


class Block:
    """Series of one length without holes: their ranks, and the p-value of each split."""

    def __init__(self, block):
        self.count = block.shape[1]
        self.ranks, self.tied = doubled_ranks(block)
        self.exact = self.count <= EXACT_NIGHTS

    def splits(self):
        """p-values (series × splits 1 … count - 1): exact without ties; with ties about right, and `refine` mends them."""
        if not self.exact:
            return _normal_p(self.ranks)
        n = self.count
        sums = np.abs(_sums(self.ranks)).astype(float)
        squares = ((self.ranks - (n + 1.0)) ** 2).sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):  # ties make the sums smaller: as large as without them
            sums = np.where(self.tied[:, None], np.nan_to_num(sums * np.sqrt(n * (n * n - 1) / 3 / squares)), sums)
        p = np.ones(sums.shape)
        tails = untied_tails(n)
        for k in range(MIN_SEGMENT, n - MIN_SEGMENT + 1):
            below = np.maximum((k * (n - k) - sums[:, k - 1]) // 2, 0).astype(int)
            p[:, k - 1] = np.minimum(1, 2 * tails[min(k, n - k)][below])
        return p

    def tails(self):
        """The attainable one-sided probabilities of each split without ties, for `_corrected`."""
        if not self.exact:
            return lambda k: None
        tails = untied_tails(self.count)
        return lambda k: (tails[min(k, self.count - k)],) * 2

    def refine(self, row, factor):
        """(split, its p-value deflated by `factor`, corrected p-value) of one series, ties and all."""
        ranks = self.ranks[row]
        factor = factor[None, :]
        if not self.exact:
            p = _deflate(_normal_p(ranks[None, :]), factor)[0]
            k = int(np.argmin(p)) + 1
            single = sum_p(ranks, k, int(ranks[:k].sum()))
            single = float(_deflate(np.array([single]), factor[0, k - 1:k])[0])
            return k, single, float(_corrected(np.array([single]), self.count, factor, self.tails())[0])
        tails, lower, upper = _tied(ranks)
        p = _deflate(_tied_p(ranks, lower, upper), factor[0])
        k = int(np.argmin(p)) + 1
        return k, float(p[k - 1]), float(_corrected(p[k - 1:k], self.count, factor, tails)[0])


def whitened(lines, counts, phi):
    """The lines with their serial correlation taken out: each value less `phi` times the one before. A step stays one, and what is
    left is exchangeable, so that the exact distribution holds. Lines of few distinct values keep their correlation, because their
    order would hardly change; returns (lines, what correlation is left in each)."""
    phi = np.where(_distinct(lines) * 3 >= counts, phi, 0), phi
    rows = np.nonzero(phi[0] > 0)[0]
    result, left = lines.copy(), phi[1].copy()
    if len(rows) and lines.shape[1] > 1:
        part, factor = lines[rows], phi[0][rows, None]
        start = np.nanmedian(part[:, :5], axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            result[rows] = part - factor * np.concatenate([start, part[:, :-1]], axis=1)
        left[rows] = 0
    return result, left


def _distinct(lines):
    """How many different values each line has; NaN stands last."""
    ordered = np.sort(lines, axis=1)
    with np.errstate(invalid="ignore"):
        return (ordered[:, 1:] > ordered[:, :-1]).sum(axis=1) + np.isfinite(ordered[:, :1]).sum(axis=1)


def compact(values):
    """Each line's finite values moved to its front: (values, their columns, how many)."""
    holes = ~np.isfinite(values)
    columns = np.argsort(holes, axis=1, kind="stable")
    return np.take_along_axis(values, columns, 1), columns, (~holes).sum(axis=1)


def _blocks(lines, counts):
    """Rows of equal length, in batches: (rows, Block)."""
    for count in np.unique(counts[counts >= 2 * MIN_SEGMENT]):
        rows = np.nonzero(counts == count)[0]
        for start in range(0, len(rows), BATCH):
            part = rows[start:start + BATCH]
            yield part, Block(lines[part, :count])


def _possible(low, rate, tests):
    """A bound on what Benjamini and Hochberg's threshold can be, given lower bounds of the p-values."""
    low, limit = np.sort(low), rate
    while True:
        smaller = rate * np.searchsorted(low, limit, side="right") / max(tests, 1)
        if smaller >= limit:
            return limit
        limit = smaller


def correlation(lines, counts):
    """What to believe of the serial correlation of each line of compacted values; 0 where there is too little to say."""
    estimate, known = np.zeros(len(lines)), np.zeros(len(lines), bool)
    for rows, block in _blocks(lines, counts):
        estimate[rows] = serial_correlation(block.ranks, block.splits().argmin(axis=1) + 1)
        known[rows] = (block.ranks != block.ranks[:, :1]).any(axis=1)
    estimate[known] = pooled_correlation(estimate[known], counts[known])
    return estimate


def scan(lines, counts, phi, *, limit=None, rate=None):
    """The best split of each line of compacted values.

    Give `limit` (the largest p-value of interest) or `rate` (the false discovery rate among all lines that can be tested).
    `phi` is the serial correlation of each line. Returns (Scan, which lines can be tested)."""
    size = len(lines)
    result = Scan(np.zeros(size, int), np.ones(size), np.ones(size))
    low, testable = np.ones(size), np.zeros(size, bool)
    blocks = list(_blocks(lines, counts))
    for rows, block in blocks:
        testable[rows] = (block.ranks != block.ranks[:, :1]).any(axis=1)
        p = block.splits()
        p = _deflate(p, inflation(block.count, phi[rows]))
        result.split[rows] = p.argmin(axis=1) + 1
        result.single[rows] = low[rows] = p.min(axis=1)
        if block.exact:
            low[rows[block.tied]] /= 4  # what is counted out can be smaller than what the tables without ties say
        else:
            low[rows] = 2 * special.ndtr(1.15 * special.ndtri(low[rows] / 2))
    if limit is None:
        limit = _possible(low[testable], rate, int(testable.sum()))
    for rows, block in blocks:  # the choice among splits by tables without ties, which says what is worth counting out
        near = rows[testable[rows] & (low[rows] <= limit)]
        if len(near):
            low[near] = _corrected(low[near], block.count, inflation(block.count, phi[near]), block.tails())
    if rate is not None:
        limit = _possible(low[testable], rate, int(testable.sum()))
    for rows, block in blocks:
        wanted = testable[rows] & (low[rows] <= limit)
        rough = block.tied if block.exact else np.ones(len(rows), bool)
        for place in np.nonzero(wanted & rough)[0]:
            row = rows[place]
            found = block.refine(place, inflation(block.count, phi[row])[0])
            result.split[row], result.single[row], result.p[row] = found
        sharp = rows[wanted & ~rough]
        if len(sharp):
            result.p[sharp] = low[sharp]
    return result, testable
