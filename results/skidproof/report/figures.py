"""Draws the plots of one machine's rows. Every plot carries the machine's name and provenance."""

import dataclasses
import io
import math
import re

import matplotlib

matplotlib.use("Agg")
from matplotlib import colors, ticker  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

from skidproof import rows  # noqa: E402

# Ink and paper are marked by colours that nothing else uses, so that the copy of the SVG inside the page
# can take the page's own (light or dark).
INK = "#1f2329"
PAPER = "#fffffe"
# Okabe and Ito's palette ("Color Universal Design", 2008): told apart by colour-blind readers.
BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, GREY = "#56b4e9", "#cc79a7", "#8a9199"
YELLOW = "#f0e442"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, GREY)
MARKERS = "osD^vP*"
STATUS_COLOURS = {"pass": GREEN, "fail": VERMILLION, "error": PURPLE, "skip": GREY, "xfail": ORANGE, "xpass": SKY,
                  "observed": BLUE, "disturbed": YELLOW}
STATUS_SIGNS = {"pass": "✓", "fail": "✗", "error": "!", "skip": "–", "xfail": "x", "xpass": "X", "observed": "o", "disturbed": "~"}
BANNERS = {  # provenance: words, band, hatched
    "MODEL": ("MODEL — not silicon", ORANGE, True),
    "VIRTUAL LAB": ("VIRTUAL LAB — not silicon", ORANGE, True),
    "NATIVE": ("NATIVE — silicon, timed by TSC", BLUE, False),
    "SILICON": ("SILICON", BLUE, False),
    "UNKNOWN": ("UNKNOWN MACHINE — provenance not recorded", GREY, True),
}
WIDTH = 9.0  # inches
BAND, HEAD = 0.30, 0.30
MAX_PANELS = 12
MAX_LINES = 60

matplotlib.rcParams.update({
    "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 8, "xtick.labelsize": 8,
    "ytick.labelsize": 8, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.facecolor": "none", "figure.facecolor": PAPER, "savefig.facecolor": PAPER,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GREY,
    "grid.alpha": 0.25, "grid.linewidth": 0.6, "axes.unicode_minus": False, "axes.axisbelow": True, "legend.frameon": False,
    "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "sans-serif"], "axes.titlelocation": "left",
    "hatch.linewidth": 2.0,
})


@dataclasses.dataclass
class Plot:
    name: str      # of its files
    title: str
    caption: str
    svg: str       # a whole document
    png: bytes

    def inline_svg(self):
        """The SVG for inside a page: the page's ink on the page's paper."""
        start = self.svg.index("<svg")
        svg = self.svg[start:].replace(INK, "currentColor").replace(PAPER, "none")
        return re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)


@dataclasses.dataclass
class Subject:
    """Whose plots these are."""

    run: rows.Run
    machine: str

    def __post_init__(self):
        self.row = self.run.machine_row(self.machine)
        self.provenance = rows.provenance(self.machine, self.row)
        self.tests = [t for t in self.run.tests if t["machine"] == self.machine]
        self.measurements = [m for m in self.run.measurements if m["machine"] == self.machine]

    def label(self):
        broken = self.row.get("defects") or []
        return self.machine + (f" · DEFECT {', '.join(map(str, broken))}" if broken else "")


def plots_of(run, machine):
    """All plots for which this machine has rows."""
    subject = Subject(run, machine)
    found = []
    for draw in (draw_matrix, draw_skid, draw_pdir, draw_lateness, draw_latency, draw_bandwidth, draw_fusion,
                 draw_misprediction):
        found.extend(draw(subject))
    return found


# --------------------------------------------------------------------------------------------------------
# What all plots share.

def new_figure(height):
    """A figure with room for `height` inches of plot below its band and title."""
    total = height + BAND + HEAD
    figure = Figure(figsize=(WIDTH, total))
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0.005, 0, 0.99, height / total), h_pad=0.06, w_pad=0.06))
    return figure


def finish(figure, subject, name, title, caption):
    """Adds the band that says whose figures these are and the title, and renders."""
    height = figure.get_size_inches()[1]
    words, colour, hatched = BANNERS[subject.provenance]
    bottom = 1 - BAND / height
    figure.add_artist(Rectangle((0, bottom), 1, BAND / height, facecolor=colour, linewidth=0,
                                edgecolor="#b97f00" if hatched else colour, hatch="///" if hatched else None))
    for x, text, side in ((0.01, words, "left"), (0.99, f"{subject.label()} · run {shorten(subject.run.name, 40)}", "right")):
        figure.text(x, bottom + BAND / height / 2, text, ha=side, va="center", fontsize=9, fontweight="bold",
                    color="#000000" if hatched else "#ffffff",
                    bbox={"facecolor": colour, "edgecolor": "none", "pad": 2.5})
    figure.text(0.01, bottom - 0.55 * HEAD / height, title, ha="left", va="center", fontsize=11, fontweight="bold")
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=130, metadata={"Software": "skidproof report"})
    with matplotlib.rc_context({"svg.hashsalt": f"{subject.run.name}/{subject.machine}/{name}"}):
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "skidproof report", "Title": title})
    return Plot(name, title, caption, svg.getvalue(), png.getvalue())


def shorten(text, length):
    text = str(text)
    return text if len(text) <= length else "…" + text[-(length - 1):]


def plain(text):
    """Text that matplotlib must not take for mathematics."""
    return str(text).replace("$", r"\$")


def chunks(items, size):
    """Equal parts of at most `size`, with the suffix of their file names."""
    count = math.ceil(len(items) / size)
    size = math.ceil(len(items) / count) if count else 0
    for index in range(count):
        yield ("" if count == 1 else f"-{index + 1}"), items[index * size:(index + 1) * size]


def bytes_text(value):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} B"


def plain_log_ticks(axis):
    axis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


# --------------------------------------------------------------------------------------------------------
# Tests.

def suite_of(test_id):
    """`Prefix/Suite.Test/Param` → `Suite`."""
    return test_id.split(".")[0].split("/")[-1]


def worst_by_id(tests):
    """{id: worst status}: a test that was repeated is as good as its worst repetition."""
    found = {}
    for test in tests:
        before = found.get(test["id"], "pass")
        found[test["id"]] = min(before, test["status"], key=rows.STATUSES.index)
    return found


def draw_matrix(subject):
    if not subject.tests:
        return []
    by_suite = {}
    for test_id, status in worst_by_id(subject.tests).items():
        by_suite.setdefault(suite_of(test_id), []).append(status)
    per_line = 40
    lines = []  # (suite or "", statuses)
    for suite, statuses in by_suite.items():
        for start in range(0, len(statuses), per_line):
            lines.append((suite if start == 0 else "", statuses[start:start + per_line]))
    figure = new_figure(0.24 * len(lines) + 0.75)
    axes = figure.subplots()
    for y, (_, statuses) in enumerate(lines):
        for x, status in enumerate(statuses):
            axes.add_patch(Rectangle((x - 0.44, y - 0.42), 0.88, 0.84, color=STATUS_COLOURS[status], linewidth=0))
            axes.text(x, y, STATUS_SIGNS[status], ha="center", va="center", fontsize=7,
                      color="#ffffff" if status in ("pass", "fail", "error", "observed") else "#000000")
    axes.set_xlim(-0.6, per_line - 0.4)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks([y for y, (suite, _) in enumerate(lines) if suite],
                    [f"{suite}  ({len(by_suite[suite])})" for suite, _ in lines if suite])
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    counts = {s: list(sum(by_suite.values(), [])).count(s) for s in reversed(rows.STATUSES)}
    handles = [Rectangle((0, 0), 1, 1, color=STATUS_COLOURS[s]) for s in counts if counts[s]]
    names = [f"{STATUS_SIGNS[s]} {s} {counts[s]}" for s in counts if counts[s]]
    figure.legend(handles, names, loc="lower left", ncol=len(rows.STATUSES))
    figure.get_layout_engine().set(rect=legend_room(figure))
    return [finish(figure, subject, "tests", "Test matrix",
                   "One cell per test, in the order of the run; repeated tests show their worst result.")]


def legend_room(figure):
    """The layout's rectangle with room for one line of legend below."""
    height = figure.get_size_inches()[1]
    room = 0.28 / height
    return (0.005, room, 0.99, (height - BAND - HEAD) / height - room)


# --------------------------------------------------------------------------------------------------------
# Histograms of evidence.

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
                  "each test's records in per cent. Orange-red lies outside what the clause allows; a frame marks what it allows.")


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
        plots.append(finish(figure, subject, prefix + suffix, title, caption))
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


# --------------------------------------------------------------------------------------------------------
# Measurements.

def measured(subject, name):
    return [m for m in subject.measurements if m["name"] == name]


def number(row, field):
    value = row.get("parameters", {}).get(field)
    return value if rows.is_a(value, (int, float)) and value > 0 else None


def spread(row):
    """(low, high), or the value twice where the row has no spread."""
    low, high = row.get("low"), row.get("high")
    ok = rows.is_a(low, (int, float)) and rows.is_a(high, (int, float))
    return (low, high) if ok else (row["value"], row["value"])


def draw_curves(subject, name, parameter, words):
    """Value over parameters.bytes, a line for each value of the other parameters, a figure for each unit."""
    plots = []
    found = [m for m in measured(subject, name) if number(m, "bytes")]
    for index, unit in enumerate(dict.fromkeys(m["unit"] for m in found)):
        items = [m for m in found if m["unit"] == unit]
        figure = new_figure(3.4)
        axes = figure.subplots()
        lines = {}
        for row in items:
            lines.setdefault(line_label(row, parameter), []).append(row)
        for place, (label, points) in enumerate(lines.items()):
            draw_line(axes, label, points, place)
        draw_bytes_axis(axes, items)
        axes.set_xlabel(words["x"])
        axes.set_ylabel(f"{words['y']} ({unit})")
        axes.set_title(f"{statistics_of(items)}")
        axes.legend(loc=words["legend"], ncol=2 if len(lines) > 4 else 1)
        plots.append(finish(figure, subject, words["file"] + (f"-{index + 1}" if index else ""), words["title"], words["caption"]))
    return plots


def line_label(row, parameter):
    others = {k: v for k, v in row.get("parameters", {}).items() if k not in ("bytes", parameter)}
    head = str(row.get("parameters", {}).get(parameter, "")) or "all"
    return plain(", ".join([head, *(f"{k} {v}" for k, v in others.items() if not isinstance(v, (dict, list)))]))


def draw_line(axes, label, points, place):
    points = sorted(points, key=lambda m: number(m, "bytes"))
    sizes = [number(m, "bytes") for m in points]
    colour = CYCLE[place % len(CYCLE)]
    axes.fill_between(sizes, [spread(m)[0] for m in points], [spread(m)[1] for m in points], color=colour, alpha=0.2, linewidth=0)
    axes.plot(sizes, [m["value"] for m in points], color=colour, marker=MARKERS[place % len(MARKERS)],
              markersize=3.5, linewidth=1.4, label=label)


def draw_bytes_axis(axes, items):
    axes.set_xscale("log", base=2)
    if all(m["value"] > 0 for m in items):
        axes.set_yscale("log")
        plain_log_ticks(axes.yaxis)
    sizes = [number(m, "bytes") for m in items]
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    step = max(1, math.ceil((high - low) / 10))
    ticks = [2.0 ** exponent for exponent in range(low, high + 1, step)]
    axes.set_xticks(ticks, [bytes_text(t) for t in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def statistics_of(items):
    """"median, band: quartiles, n 21 … 31", as far as the rows say."""
    kinds = sorted({str(m.get("statistic", "")) for m in items} - {""})
    intervals = sorted({str(m.get("interval", "")) for m in items if m.get("low") is not None} - {""})
    counts = [m["n"] for m in items if "n" in m]
    parts = [" / ".join(kinds)] if kinds else []
    if intervals:
        parts.append("spread: " + " / ".join(intervals))
    if counts:
        parts.append(f"n {min(counts)}" + (f" … {max(counts)}" if min(counts) != max(counts) else ""))
    return plain(", ".join(parts))


def draw_latency(subject):
    return draw_curves(subject, "memory.latency", "page", {
        "x": "working set", "y": "latency per load", "file": "memory-latency", "title": "Memory latency",
        "caption": "Dependent loads through a random cycle; each step is a level of the memory hierarchy.",
        "legend": "upper left"})


def draw_bandwidth(subject):
    return draw_curves(subject, "store.bandwidth", "kind", {
        "x": "buffer", "y": "store bandwidth", "file": "store-bandwidth", "title": "Store bandwidth",
        "caption": "Streams of stores over a buffer, regular and non-temporal.", "legend": "upper right"})


def draw_bars(subject, found, name, title, caption, label, x_label):
    plots = []
    for index, unit in enumerate(dict.fromkeys(m["unit"] for m in found)):
        items = [m for m in found if m["unit"] == unit]
        figure = new_figure(0.21 * len(items) + 0.95)
        axes = figure.subplots()
        values = [m["value"] for m in items]
        low = [max(0, m["value"] - spread(m)[0]) for m in items]
        high = [max(0, spread(m)[1] - m["value"]) for m in items]
        axes.barh(range(len(items)), values, color=BLUE, height=0.7, alpha=0.85,
                  xerr=(low, high), error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2})
        axes.set_yticks(range(len(items)), [plain(shorten(label(m), 48)) for m in items])
        axes.set_ylim(len(items) - 0.4, -0.6)
        axes.axvline(0, color=INK, linewidth=0.8)
        right = max(max(v + h for v, h in zip(values, high)), 0)
        for y, (value, reach) in enumerate(zip(values, high)):
            axes.annotate(f"{value:.3g}", (max(value + reach, 0), y), xytext=(4, 0), textcoords="offset points",
                          va="center", fontsize=7)
        axes.set_xlim(right=right * 1.08 if right else None)
        axes.set_xlabel(f"{x_label} ({unit})")
        axes.set_title(statistics_of(items))
        axes.grid(axis="y", visible=False)
        plots.append(finish(figure, subject, name + (f"-{index + 1}" if index else ""), title, caption))
    return plots


def pair_of(row):
    return str(row.get("parameters", {}).get("pair", "?"))


def draw_fusion(subject):
    found = measured(subject, "fusion.gain")
    caption = "Time saved by a macro-fusible pair against the same pair kept apart; about zero means that it does not fuse."
    splits = [re.split(r"\s*\+\s*|\s+(?=j)", pair_of(m)) for m in found]
    same_unit = len({m["unit"] for m in found}) == 1
    if len(found) > 24 and same_unit and all(len(s) == 2 for s in splits):
        return [draw_fusion_grid(subject, found, splits, caption)]
    found = sorted(found, key=lambda m: -m["value"])
    return draw_bars(subject, found, "fusion-gain", "Macro-fusion gain", caption, pair_of, "gain per pair")


def draw_fusion_grid(subject, found, splits, caption):
    firsts = list(dict.fromkeys(s[0] for s in splits))
    jumps = list(dict.fromkeys(s[1] for s in splits))
    figure = new_figure(0.27 * len(firsts) + 1.0)
    axes = figure.subplots()
    most = max(max(abs(m["value"]) for m in found), 1e-12)
    digits = min(max(2 - math.floor(math.log10(most)), 0), 6)
    for row, (first, jump) in zip(found, splits):
        x, y = jumps.index(jump), firsts.index(first)
        strength = min(abs(row["value"]) / most, 1)
        colour = BLUE if row["value"] >= 0 else VERMILLION
        axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, color=colour, alpha=0.05 + 0.95 * strength, linewidth=0))
        axes.text(x, y, f"{row['value']:.{digits}f}", ha="center", va="center", fontsize=7, color="#ffffff" if strength > 0.6 else INK)
    axes.set_xlim(-0.6, len(jumps) - 0.4)
    axes.set_ylim(len(firsts) - 0.4, -0.6)
    axes.set_xticks(range(len(jumps)), [plain(j) for j in jumps])
    axes.set_yticks(range(len(firsts)), [plain(f) for f in firsts])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(f"gain per pair ({found[0]['unit']}), {statistics_of(found)}")
    return finish(figure, subject, "fusion-gain", "Macro-fusion gain", caption)


def draw_misprediction(subject):
    found = [m for m in subject.measurements if m["name"].startswith("branch.mispredict")]
    return draw_bars(subject, found, "misprediction", "Misprediction penalty",
                     "Extra time of a branch whose direction cannot be predicted.", misprediction_label, "penalty per misprediction")


def misprediction_label(row):
    words = [f"{k} {v}" for k, v in row.get("parameters", {}).items() if not isinstance(v, (dict, list))]
    return ", ".join(words) or row["name"]
