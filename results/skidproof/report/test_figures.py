"""Plots of tests: verdicts by clause, and the histograms of their evidence (skid, PDIR, lateness)."""

import math
import re

from matplotlib import colors, ticker
from matplotlib.patches import Rectangle

from skidproof import rows
from skidproof.report.drawing import (BLUE, GREEN, INK, MAX_LINES, MAX_PANELS, STATUS_COLOURS, VERMILLION, chunks,
                                      finish, legend_room, new_figure, plain, shorten)
from skidproof.report.parts import SIGNS, Cell, clipped, code, number, text
from skidproof.report.tests import by_clause, clause_order, verdict_of

PER_LINE = 24  # clauses


def draw_clauses(subject):
    """A tile for each clause, with the worst verdict of its tests."""
    counts = by_clause(subject.tests)
    if not counts:
        return []
    groups = {}
    for clause in counts:
        groups.setdefault(clause_order(clause)[0], []).append(clause)
    lines = [(letter if start == 0 else "", found[start:start + PER_LINE])
             for letter, found in groups.items() for start in range(0, len(found), PER_LINE)]
    figure = new_figure(0.31 * len(lines) + 0.45)
    axes = figure.subplots()
    totals = {}
    for y, (_, found) in enumerate(lines):
        for x, clause in enumerate(found):
            status = verdict_of(counts[clause])
            totals[status] = totals.get(status, 0) + 1
            tile(axes, x, y, status, f"{shorten(clause, 6)} {SIGNS[status]}", 0.96, 0.9)
    axes.set_xlim(-0.6, PER_LINE - 0.4)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks([y for y, (letter, _) in enumerate(lines) if letter], [plain(shorten(letter, 12)) for letter, _ in lines if letter])
    bare(axes)
    axes.set_xticks([])
    legend_of(figure, totals)
    seen = [s for s in reversed(rows.STATUSES) if any(c.get(s) for c in counts.values())]
    data = (("clause", "worst", *seen), [(Cell(code(clause), place), text(verdict_of(found)), *(number(found.get(s)) for s in seen))
                                         for place, (clause, found) in enumerate(counts.items())], range(2, 2 + len(seen)))
    return [finish(figure, subject, "tests", "Verdict by clause",
                   "A tile for each clause of the manual that a test cites, with the worst verdict of its tests; a skip shows only where "
                   "nothing "
                   "of the clause ran.", data)]


def tile(axes, x, y, status, words, width, height):
    axes.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, color=STATUS_COLOURS[status], linewidth=0))
    axes.text(x, y, plain(words), ha="center", va="center", fontsize=6.5,
              color="#ffffff" if status in ("observed",) else "#000000")


def bare(axes):
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def legend_of(figure, totals):
    there = [s for s in reversed(rows.STATUSES) if totals.get(s)]
    figure.legend([Rectangle((0, 0), 1, 1, color=STATUS_COLOURS[s]) for s in there], [f"{SIGNS[s]} {s} {totals[s]}" for s in there],
                  loc="lower left", ncol=len(rows.STATUSES))
    figure.get_layout_engine().set(rect=legend_room(figure))


def histogram_data(items, what):
    """Every value of every histogram, with what the clause allows."""
    lines = [(code(clipped(test["id"], 300)), text(clipped(name, 100)), number(value), number(count),
              ("yes" if value in expected else "no") if expected else "not said")
             for test, name, _, bins, expected in items for value, count in bins.items()]
    return (("test", "histogram", what, "count", "allowed"), lines, (2, 3))


def label_of(test, name, prefix):
    """A test's short label: without its suite, with the histogram's name where that says more."""
    label = test["id"].split(".", 1)[-1]
    return label if name in (prefix, label) else f"{label} · {name}"


COUNTER = re.compile(r"\bPMC\d+\.?")


def merged_over_counters(items):
    """One line for the tests that differ in the counter alone, as long as each saw only what is allowed."""
    merged, groups = [], {}
    for test, name, unit, bins, expected in items:
        label, counters = COUNTER.subn("", test["id"])
        if not counters or not expected or set(bins) - set(expected):
            merged.append((test, name, unit, bins, expected))
            continue
        key = (label.rstrip("/."), name, unit, frozenset(expected))
        if key not in groups:
            groups[key] = [dict(test, id=key[0]), dict(), 0]
            merged.append((key, name, unit, bins, expected))
        group = groups[key]
        for value, count in bins.items():
            group[1][value] = group[1].get(value, 0) + count
        group[2] += 1
    out = []
    for first, name, unit, bins, expected in merged:
        if isinstance(first, tuple):
            test, bins, counters = groups[first]
            if counters > 1:
                test = dict(test, id=f"{test['id']}  ({counters} counters)")
            bins = dict(sorted(bins.items()))
        else:
            test = first
        out.append((test, name, unit, bins, expected))
    return out


def draw_skid(subject):
    found = merged_over_counters(rows.histograms(subject.tests, "skid"))
    plots = []
    by_unit = {}
    for item in found:
        by_unit.setdefault(item[2], []).append(item)
    for unit_index, (unit, items) in enumerate(by_unit.items()):
        for suffix, part in chunks(items, MAX_LINES):
            name = "skid" + (f"-unit{unit_index + 1}" if unit_index else "") + suffix
            plots.append(draw_skid_part(subject, name, unit, part))
    return plots


def columns_of(items, most=24):
    """(label, low, high) of the columns. One for each value that occurs; when these are more than `most`,
    the commonest and every expected value keep their own, and runs of others between them share one."""
    values = sorted(set().union(*(bins for _, _, _, bins, _ in items)))
    kept = set(values)
    if len(values) > most:
        totals = {v: sum(bins.get(v, 0) for _, _, _, bins, _ in items) for v in values}
        kept = set(sorted(values, key=lambda v: -totals[v])[:most // 2])
        kept |= set().union(*(expected for _, _, _, _, expected in items))
    columns = []
    for value in values:
        if value not in kept and columns and columns[-1][0] is None:
            columns[-1] = (None, columns[-1][1], value)
        else:
            columns.append((value if value in kept else None, value, value))
    return [(f"{low:g}" if low == high else f"{low:g}…{high:g}", low, high) for _, low, high in columns]


def draw_skid_part(subject, name, unit, items):
    columns = columns_of(items)
    figure = new_figure(1.75 + 0.5 + 0.21 * len(items))
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, max(0.21 * len(items), 0.3)))
    draw_skid_sum(top, columns, items)
    draw_skid_lines(below, columns, items)
    below.set_xticks(range(len(columns)), [label for label, _, _ in columns],
                     rotation=90 if max(len(label) for label, _, _ in columns) > 4 else 0)
    below.set_xlabel(f"skid ({unit or 'no unit given'})")
    return finish(figure, subject, name, "Skid",
                  "Where the recorded IP lies behind the event. Above: all records of these tests. Below: share of "
                  "each test's records in per cent. Orange-red lies outside what the clause allows; a frame marks what it allows.",
                  histogram_data(items, f"skid ({unit})" if unit else "skid"))


def inside(bins, low, high):
    return sum(count for value, count in bins.items() if low <= value <= high)


def draw_skid_sum(axes, columns, items):
    for x, (_, low, high) in enumerate(columns):
        allowed = other = unsaid = 0
        for _, _, _, bins, expected in items:
            count = inside(bins, low, high)
            good = sum(n for v, n in bins.items() if low <= v <= high and v in expected)
            if expected:
                allowed, other = allowed + good, other + count - good
            else:
                unsaid += count
        present = [(n, c) for n, c in ((allowed, GREEN), (unsaid, BLUE), (other, VERMILLION)) if n]
        width = 0.8 / max(len(present), 1)  # side by side: stacked bars lie on a logarithmic axis
        for place, (count, colour) in enumerate(present):
            middle = x + (place - (len(present) - 1) / 2) * width
            axes.bar(middle, count, width=width * 0.92, color=colour)
            if len(columns) <= 10:
                axes.text(middle, count, f"{count:,}", ha="center", va="bottom", fontsize=7)
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(axes.get_ylim()[1], 10) * 2)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_ylabel("records")
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    handles = [Rectangle((0, 0), 1, 1, color=c) for c in (GREEN, BLUE, VERMILLION)]
    axes.legend(handles, ("allowed by the clause", "no expectation stated", "not allowed"), loc="lower right",
                bbox_to_anchor=(1, 1), ncol=3, borderaxespad=0)


def draw_skid_lines(axes, columns, items):
    shade = colors.LogNorm(0.1, 100, clip=True)
    for y, (_, _, _, bins, expected) in enumerate(items):
        total = sum(bins.values())
        for x, (_, low, high) in enumerate(columns):
            allowed = low == high and low in expected  # expected values never share a column
            share = 100 * inside(bins, low, high) / total
            if share > 0:
                colour = (GREEN if allowed else VERMILLION) if expected else BLUE
                strength = 0.25 + 0.75 * float(shade(max(share, 0.1)))
                axes.add_patch(Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, color=colour, alpha=strength, linewidth=0))
                axes.text(x, y, percent(share), ha="center", va="center", fontsize=7,
                          color="#ffffff" if strength > 0.75 else INK)
            if allowed:
                axes.add_patch(Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, fill=False, edgecolor=GREEN, linewidth=1))
    axes.set_xlim(-0.6, len(columns) - 0.4)
    axes.set_ylim(len(items) - 0.4, -0.6)
    axes.set_yticks(range(len(items)), [plain(shorten(label_of(t, n, "skid"), 60)) for t, n, _, _, _ in items], fontsize=7)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def percent(share):
    if share >= 99.95:
        return "100"
    return f"{share:.1f}" if share >= 0.1 else "<0.1"


def draw_pdir(subject):
    return draw_panels(subject, "pdir", "PDIR distribution",
                       "Share of the samples at each position of the loop; the dashed steps are the shares in proportion (a fused pair "
                       "counts as two). Behind a long-latency instruction ordinary samples pile up, PDIR's do not.",
                       uniform=True)


def draw_lateness(subject):
    return draw_panels(subject, "pmi-lateness", "PMI lateness",
                       "How long after the record that reached the threshold its interrupt came.", uniform=False)


def draw_panels(subject, prefix, title, caption, uniform):
    found = rows.histograms(subject.tests, prefix)
    plots = []
    for suffix, items in chunks(found, MAX_PANELS):
        columns = 1 if len(items) == 1 else 2
        lines = math.ceil(len(items) / columns)
        figure = new_figure(1.9 * lines + 0.3)
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, item in zip(panels, items):
            draw_panel(axes, item, prefix, uniform)
        for axes in panels[len(items):]:
            axes.set_visible(False)
        plots.append(finish(figure, subject, prefix + suffix, title, caption, histogram_data(items, "value")))
    return plots


def draw_panel(axes, item, prefix, uniform):
    test, name, unit, bins, expected = item
    total = sum(bins.values())
    values = list(bins)
    wide = values[-1] - values[0] > 150
    width = (values[-1] - values[0]) / 60 if wide else 0.85
    edges = [values[0] + width * i for i in range(61)] if wide else None
    if wide:
        shares = [0.0] * 60
        for value, count in bins.items():
            shares[min(int((value - values[0]) / width), 59)] += 100 * count / total
        axes.bar(edges[:-1], shares, width=width * 0.95, align="edge", color=BLUE)
    else:
        colour = [VERMILLION if expected and v not in expected else BLUE for v in values]
        axes.bar(values, [100 * n / total for n in bins.values()], width=width, color=colour)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=10))
        if len(values) < 3:  # the default axis would go by tenths
            axes.set_xlim(values[0] - 3, values[-1] + 3)
    weights = rows.weights_of(test, name)
    if uniform and not wide:
        draw_proportion(axes, weights or dict.fromkeys(values, 1))
    axes.set_title(plain(shorten(label_of(test, name, prefix), 56)), fontsize=8)
    axes.set_xlabel(f"{unit or 'no unit given'}   ({concentration(bins) if uniform else summary(bins)})", fontsize=7.5)
    axes.set_ylabel("% of " + ("samples" if uniform else "interrupts"))
    axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)


def draw_proportion(axes, weights):
    """The share of each value in proportion: a dashed step over it."""
    total = sum(weights.values()) or 1
    for value, weight in weights.items():
        axes.hlines(100 * weight / total, value - 0.5, value + 0.5, color=INK, linewidth=1, linestyle=(0, (3, 1.5)))
    axes.set_xlim(min(weights) - 0.7, max(weights) + 0.7)


def concentration(bins):
    total, most = sum(bins.values()), max(bins, key=bins.get)
    return f"n {total:,} · most at {most:,}: {100 * bins[most] / total:.1f} %"


def summary(bins):
    total = sum(bins.values())
    text = [f"n {total:,}"]
    for label, share in (("median", 0.5), ("p99", 0.99)):
        seen = 0
        for value, count in bins.items():
            seen += count
            if seen >= share * total:
                text.append(f"{label} {value:,}")
                break
    return " · ".join(text + [f"max {max(bins):,}"])
