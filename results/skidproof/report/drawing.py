"""What all plots share: their look, the band that says whose figures they are, and how they are rendered."""

import dataclasses
import io
import math
import re
import warnings

import matplotlib

matplotlib.use("Agg")
warnings.filterwarnings("ignore", message="Glyph .* missing from current font")
from matplotlib import ticker  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

from skidproof import rows  # noqa: E402
from skidproof.report.parts import FORBIDDEN, machines_of  # noqa: E402

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
BANNERS = {  # provenance: words, band, hatched
    "MODEL": ("MODEL — not silicon", ORANGE, True),
    "VIRTUAL LAB": ("VIRTUAL LAB — not silicon", ORANGE, True),
    "NATIVE": ("NATIVE — silicon, timed by TSC", BLUE, False),
    "SILICON": ("SILICON", BLUE, False),
    "MIXED": ("SEVERAL KINDS OF MACHINE — their names say which", GREY, True),
    "UNKNOWN": ("UNKNOWN MACHINE — provenance not recorded", GREY, True),
}
WIDTH = 9.0  # inches
RESOLUTION = 130  # dots an inch, of a PNG
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
    "hatch.linewidth": 2.0, "text.parse_math": False,
})


@dataclasses.dataclass
class Plot:
    name: str      # of its files
    title: str
    caption: str
    svg: str       # a whole document
    png: bytes
    data: tuple = ()  # its numbers: heads, lines of HTML cells, the numeric columns

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

    def origin(self):
        return f"run {shorten(self.run.name, 40)}"

    def label(self):
        broken = self.row.get("defects") or []
        broken = broken if isinstance(broken, list) else [broken]
        return self.machine + (f" · DEFECT {', '.join(map(str, broken))}" if broken else "")


@dataclasses.dataclass
class Everybody:
    """The subject of a plot over several machines: in doubt, not silicon."""

    runs: list
    name: str = "all"

    def __post_init__(self):
        kinds = {rows.provenance(name, run.machine_row(name)) for run in self.runs for name in machines_of(run)}
        self.provenance = kinds.pop() if len(kinds) == 1 else "MIXED" if kinds else "UNKNOWN"

    def label(self):
        return f"{len({name for run in self.runs for name in machines_of(run)})} machines"

    def origin(self):
        return f"{len(self.runs)} runs"


# --------------------------------------------------------------------------------------------------------
# What all plots share.

def new_figure(height):
    """A figure with room for `height` inches of plot below its band and title."""
    total = height + BAND + HEAD
    figure = Figure(figsize=(WIDTH, total))
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0.005, 0, 0.99, height / total), h_pad=0.06, w_pad=0.06))
    return figure


def finish(figure, subject, name, title, caption, data=()):
    """Adds the band that says whose figures these are and the title, and renders."""
    height = figure.get_size_inches()[1]
    words, colour, hatched = BANNERS[subject.provenance]
    bottom = 1 - BAND / height
    figure.add_artist(Rectangle((0, bottom), 1, BAND / height, facecolor=colour, linewidth=0,
                                edgecolor="#b97f00" if hatched else colour, hatch="///" if hatched else None))
    for x, text, side in ((0.01, words, "left"), (0.99, plain(shorten(f"{subject.label()} · {subject.origin()}", 100)), "right")):
        figure.text(x, bottom + BAND / height / 2, text, ha=side, va="center", fontsize=9, fontweight="bold",
                    color="#000000" if hatched else "#ffffff",
                    bbox={"facecolor": colour, "edgecolor": "none", "pad": 2.5})
    figure.text(0.01, bottom - 0.55 * HEAD / height, title, ha="left", va="center", fontsize=11, fontweight="bold")
    png, svg = io.BytesIO(), io.StringIO()
    # Laid out once, for both: savefig() would do it anew, and draw twice besides.
    figure.set_dpi(RESOLUTION)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure).print_png(png, metadata={"Software": "skidproof report"})
    with matplotlib.rc_context({"svg.hashsalt": f"{subject.origin()}/{subject.label()}/{name}"}):
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": "skidproof report", "Title": title})
    return Plot(name, title, caption, svg.getvalue(), png.getvalue(), data)


def shorten(text, length):
    text = str(text)
    return text if len(text) <= length else "…" + text[-(length - 1):]


def plain(text):
    """Text on one line, of characters that XML allows."""
    return FORBIDDEN.sub("\ufffd", " ".join(str(text).split()))


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


def legend_room(figure):
    """The layout's rectangle with room for one line of legend below."""
    height = figure.get_size_inches()[1]
    room = 0.28 / height
    return (0.005, room, 0.99, (height - BAND - HEAD) / height - room)
