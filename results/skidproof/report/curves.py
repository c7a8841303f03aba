"""Curves in panels, with what was inferred marked on them, and heat maps: what plots of measurements are drawn with."""

import dataclasses
import math

from matplotlib import cm, colormaps, ticker
from matplotlib.colors import BoundaryNorm, LogNorm, Normalize
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from skidproof.report.drawing import (CYCLE, INK, MARKERS, MAX_PANELS, WIDTH, bytes_text, finish, legend_room, new_figure, plain,
                                      plain_log_ticks, shorten)
from skidproof.report.measured_figures import data_of, statistics_of

LETTER = 0.062      # inches of a letter of a mark's label
LEGEND = 2.0        # inches beside a panel that its legend takes
LEGEND_LINE = 0.09  # of a panel's height that a line of a legend inside takes: so much more room is above the curves
MOST_LINES = 24     # of a panel
MOST_MARKS = 14
SHADES = 24         # of a heat map
MOST_WRITTEN = 24   # columns of a heat map into which values are written


@dataclasses.dataclass
class Line:
    label: str
    points: list         # of (x, value, low, high)
    colour: str = ""     # by its place where it is not said
    hollow: bool = False  # no silicon


@dataclasses.dataclass
class Mark:
    """What was inferred, at its place on the x-axis."""

    label: str
    x: float
    beyond: float | None = None
    colour: str = INK


@dataclasses.dataclass
class Panel:
    title: str
    x: str
    y: str
    lines: list
    marks: tuple = ()
    scale: str = "log"    # of x: "log", "linear", "bytes"
    log: bool = False     # of y
    items: list = dataclasses.field(default_factory=list)  # the rows behind it
    zero: str = ""       # of a difference: what it means that it is 0


def grid_of(figure, count, columns, heights=None):
    """Axes of so many panels; `heights` are the rows', in proportion."""
    grid = figure.add_gridspec(math.ceil(count / columns), columns, height_ratios=heights)
    return [figure.add_subplot(grid[place // columns, place % columns]) for place in range(count)]


def draw_panels(subject, name, title, caption, panels, items=(), columns=2, height=2.5, shared=False):
    """One plot of these panels, and the measurements behind it. `shared`: one legend for all panels, below them."""
    panels = panels[:MAX_PANELS]
    columns = min(columns, len(panels))
    figure = new_figure(height * math.ceil(len(panels) / columns))
    shared = shared and any(len(panel.lines) > 1 for panel in panels)
    if shared:
        figure.get_layout_engine().set(rect=legend_room(figure))
    for axes, panel in zip(grid_of(figure, len(panels), columns), panels):
        draw_panel(axes, panel, WIDTH / columns, "" if shared else "beside" if columns == 1 else "best")
    if shared:
        handles = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=min(len(handles), 6))
    if len(panels) == 1 and not panels[0].title:
        figure.axes[0].set_title(statistics_of(items))
    else:
        caption = with_statistics(caption, items)
    return finish(figure, subject, name, title, caption, data_of(items))


def with_statistics(caption, items):
    said = statistics_of(items)
    return caption + (f" {said[0].upper()}{said[1:]}." if said else "")


def draw_zero(axes, words):
    """The line at which a difference is none, with room above it for the words."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 0.15 * (max(high, 0) - low)))
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    axes.annotate(words, (0, 0), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points", va="bottom",
                  fontsize=7, color=INK)


def draw_panel(axes, panel, width, legend):
    """A panel `width` inches wide; `legend`: "beside" it, where it is "best" inside, or nowhere."""
    lines = panel.lines[:MOST_LINES]
    legend = legend if len(lines) > 1 else ""
    for place, line in enumerate(lines):
        draw_line(axes, line, place)
    if panel.scale == "bytes":
        bytes_axis(axes, [p[0] for line in lines for p in line.points])
    elif panel.scale == "log" and all(p[0] > 0 for line in lines for p in line.points):
        count_axis(axes, [p[0] for line in lines for p in line.points])
    if panel.log and all(p[1] > 0 for line in lines for p in line.points):
        axes.set_yscale("log")
        plain_log_ticks(axes.yaxis)
    elif all(p[1] >= 0 for line in lines for p in line.points):
        room = 1.08 + (LEGEND_LINE * len(lines) if legend == "best" else 0)
        axes.set_ylim(bottom=0, top=max([p[3] for line in lines for p in line.points] + [1e-9]) * room)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_title(plain(shorten(panel.title, 60)))
    if panel.zero:
        draw_zero(axes, panel.zero)
    draw_marks(axes, panel.marks, width - 0.9 - (LEGEND if legend == "beside" else 0))
    if legend == "beside":
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    elif legend:
        axes.legend(loc="best", fontsize=7)


def draw_line(axes, line, place):
    points = sorted(line.points)
    colour = line.colour or CYCLE[place % len(CYCLE)]
    xs = [p[0] for p in points]
    axes.fill_between(xs, [p[2] for p in points], [p[3] for p in points], color=colour, alpha=0.2, linewidth=0)
    style = {"linestyle": "--", "markerfacecolor": "none"} if line.hollow else {"linestyle": ("-", ":", "-.")[place // len(CYCLE) % 3]}
    axes.plot(xs, [p[1] for p in points], color=colour, marker=MARKERS[(place + place // len(CYCLE)) % len(MARKERS)], markersize=3 if len(points) < 80 else 0,
              linewidth=1.3, label=plain(shorten(line.label, 44)), **style)


def bytes_axis(axes, sizes):
    axes.set_xscale("log", base=2)
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    step = max(1, math.ceil((high - low) / (10 if axes.get_subplotspec().get_gridspec().ncols == 1 else 5)))
    ticks = [2.0 ** exponent for exponent in range(low, high + 1, step)]
    axes.set_xticks(ticks, [bytes_text(t) for t in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def count_axis(axes, counts):
    """Logarithmic where the counts span more than a few doublings."""
    if max(counts) < 6 * min(counts):
        return
    axes.set_xscale("log", base=2)
    low, high = math.floor(math.log2(min(counts))), math.ceil(math.log2(max(counts)))
    step = max(1, math.ceil((high - low) / 8))
    axes.set_xticks([2.0 ** e for e in range(low, high + 1, step)], [f"{2.0 ** e:g}" for e in range(low, high + 1, step)])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


# ---- Marks ----

def rows_of(spans):
    """For each (left, right) the lowest row in which it overlaps none before it."""
    ends, found = [], []
    for left, right in spans:
        row = next((i for i, end in enumerate(ends) if left >= end), len(ends))
        ends[row:row + 1] = [right]
        found.append(row)
    return found


def draw_marks(axes, marks, width):
    """Vertical lines with their names in rows above the curves, so that none lies on another."""
    marks = sorted((m for m in marks if m.x > 0 or axes.get_xscale() == "linear"), key=lambda m: m.x)[:MOST_MARKS]
    if not marks:
        return
    widen(axes, [m.x for m in marks])
    to_share = axes.transData + axes.transAxes.inverted()
    placed = []
    for mark in marks:
        label = plain(shorten(mark.label, 30))
        half = min(len(label) * LETTER / max(width, 1) / 2, 0.5)
        at = min(max(to_share.transform((mark.x, 1))[0], half), 1 - half)
        placed.append((at - half, at + half))
    rows = rows_of([(left, right + 0.01) for left, right in placed])
    inches = max(axes.get_position().height * axes.figure.get_size_inches()[1], 0.8)
    share = min(0.15 / inches, 0.09)
    make_room(axes, share * (max(rows) + 1) + 0.02)
    for mark, (left, right), row in zip(marks, placed, rows):
        if mark.beyond is not None and mark.beyond > mark.x:
            axes.axvspan(mark.x, mark.beyond, color=mark.colour, alpha=0.12, linewidth=0)
        axes.axvline(mark.x, ymax=1 - share * (row + 1), color=mark.colour, linewidth=0.9, linestyle=(0, (4, 2)), alpha=0.8)
        axes.text((left + right) / 2, 1 - share * (row + 0.5), plain(shorten(mark.label, 30)), transform=axes.transAxes, fontsize=7,
                  ha="center", va="center", color=INK)


def widen(axes, xs):
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, *xs), max(high, *xs))


def make_room(axes, share):
    """Leaves this share of the height above what is drawn."""
    low, high = axes.get_ylim()
    share = min(share, 0.6)
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** (share / (1 - share)))
    else:
        axes.set_ylim(low, high + (high - low) * share / (1 - share))


# ---- Heat maps ----

@dataclasses.dataclass
class Heat:
    title: str
    x: str
    y: str
    columns: list   # names
    rows: list      # names
    cells: dict     # {(column, row) by index: value}


def shades_of(values):
    """(colours, norm) for these values; a ratio of more than 8 between them is drawn in equal ratios."""
    low, high = min(values), max(values)
    if high <= low:
        high = low + max(abs(low), 1) * 0.01
    if low > 0 and high / low > 8:
        edges = [low * (high / low) ** (i / SHADES) for i in range(SHADES + 1)]
    else:
        edges = [low + (high - low) * i / SHADES for i in range(SHADES + 1)]
    return colormaps["cividis"].resampled(SHADES), BoundaryNorm(edges, SHADES), LogNorm(low, high) if low > 0 and high / low > 8 else Normalize(low, high)


def heat_height(heat):
    return min(max(len(heat.rows) * (0.3 if len(heat.rows) <= 12 else 0.19), 0.8), 9.0) + 0.75


def draw_heats(subject, name, title, caption, heats, unit, items=(), columns=1):
    """One plot of these heat maps, in the same shades."""
    values = [v for heat in heats for v in heat.cells.values()]
    columns = min(columns, len(heats))
    heights = [max(map(heat_height, heats[i:i + columns])) for i in range(0, len(heats), columns)]
    figure = new_figure(sum(heights))
    colours, steps, scale = shades_of(values)
    panels = grid_of(figure, len(heats), columns, heights)
    for axes, heat in zip(panels, heats):
        draw_heat(axes, heat, colours, steps, columns)
    if min(values) < max(values):
        bar = figure.colorbar(cm.ScalarMappable(scale, colours), ax=panels, fraction=0.03, pad=0.01, aspect=30)
        bar.set_label(unit)
        bar.outline.set_visible(False)
        if isinstance(scale, LogNorm):
            plain_log_ticks(bar.ax.yaxis)
    else:  # shades say nothing: the cells have their value, the title its unit
        for axes, heat in zip(panels, heats):
            axes.set_title(plain(shorten(f"{heat.title}, {unit}" if heat.title else f"in {unit}", 60)))
    return finish(figure, subject, name, title, with_statistics(caption, items), data_of(items))


def draw_heat(axes, heat, colours, steps, columns):
    by_shade = {}
    for (x, y), value in heat.cells.items():
        by_shade.setdefault(int(min(max(steps(value), 0), SHADES - 1)), []).append((x, y))
    for shade, places in sorted(by_shade.items()):  # one path a shade: a matrix of a hundred CPUs stays small
        corners, codes = [], []
        for x, y in places:
            corners += [(x - 0.5, y - 0.5), (x + 0.5, y - 0.5), (x + 0.5, y + 0.5), (x - 0.5, y + 0.5), (x - 0.5, y - 0.5)]
            codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        axes.add_patch(PathPatch(Path(corners, codes), facecolor=colours(shade), edgecolor=colours(shade), linewidth=0.2))
    if len(heat.columns) * columns <= MOST_WRITTEN:
        most = max(map(abs, heat.cells.values()))
        for (x, y), value in heat.cells.items():
            red, green, blue, _ = colours(int(min(max(steps(value), 0), SHADES - 1)))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            axes.text(x, y, f"{value:.0f}" if most >= 100 else f"{value:.3g}", ha="center", va="center", fontsize=6.5,
                      color="#ffffff" if dark else "#000000")
    axes.set_xlim(-0.5, len(heat.columns) - 0.5)
    axes.set_ylim(len(heat.rows) - 0.5, -0.5)
    some_ticks(axes.set_xticks, heat.columns, max(1, math.ceil(len(heat.columns) * columns / 32)))
    some_ticks(axes.set_yticks, heat.rows, max(1, math.ceil(len(heat.rows) / 60)))
    axes.tick_params(length=0, labelsize=7)
    axes.set_xlabel(heat.x)
    axes.set_ylabel(heat.y)
    axes.set_title(plain(shorten(heat.title, 60)))
    axes.grid(False)
    axes.spines[:].set_visible(False)


def some_ticks(put, names, step):
    put(range(0, len(names), step), [plain(shorten(str(name), 24)) for name in names[::step]])

