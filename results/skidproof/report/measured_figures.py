"""What plots of measurements share; macro-fusion and misprediction."""

import math
import re

from matplotlib.patches import Rectangle

from skidproof import rows, shape
from skidproof.report import parts
from skidproof.report.drawing import BLUE, INK, VERMILLION, finish, new_figure, plain, shorten

MOST_BARS = 60


def data_of(items):
    """The measurements behind a plot."""
    keys = list(dict.fromkeys(k for m in items for k, v in m.get("parameters", {}).items() if not isinstance(v, (dict, list))))[:8]
    lines = [(*(parts.number(m.get("parameters", {}).get(k)) for k in keys), parts.Cell(parts.number(m["value"]), m["value"]),
              parts.number(m.get("low")), parts.number(m.get("high")), parts.text(parts.clipped(m["unit"], 60)), parts.number(m.get("n")))
             for m in items]
    return ((*keys, "value", "low", "high", "unit", "n"), lines, (*range(len(keys), len(keys) + 3), len(keys) + 4))


def measured(subject, name):
    return [m for m in subject.measurements if m["name"] == name and shape.is_drawable(m["value"])]


def spread(row):
    """(low, high), or the value twice where the row has no spread."""
    low, high = row.get("low"), row.get("high")
    ok = rows.is_a(low, (int, float)) and rows.is_a(high, (int, float))
    return (low, high) if ok else (row["value"], row["value"])


def intervals_of(items):
    """["68 … 97 % of the median", "quartiles"]: what the rows call their intervals, those that differ in coverage alone as one."""
    coverages = {}
    for m in items:
        words = str(m.get("interval", ""))
        if m.get("low") is None or not words:
            continue
        covered = re.match(r"(\d+(?:\.\d+)?) ?% ?(.*)", words)
        coverages.setdefault(covered[2] if covered else words, set()).update({float(covered[1])} if covered else ())
    said = []
    for words, shares in sorted(coverages.items()):
        least_and_most = " … ".join(f"{share:g}" for share in sorted({min(shares), max(shares)})) if shares else ""
        said.append(f"{least_and_most} % {words}".strip() if shares else words)
    return said


def statistics_of(items):
    """"median, spread: quartiles, n 21 … 31", as far as the rows say."""
    kinds = sorted({str(m.get("statistic", "")) for m in items} - {""})
    intervals = intervals_of(items)
    counts = [m["n"] for m in items if "n" in m]
    parts = [" / ".join(kinds)] if kinds else []
    if intervals:
        parts.append("spread: " + " / ".join(intervals))
    if counts:
        parts.append(f"n {min(counts)}" + (f" … {max(counts)}" if min(counts) != max(counts) else ""))
    return plain(", ".join(parts))


def draw_bars(subject, found, name, title, caption, label, x_label):
    plots = []
    for index, unit in enumerate(dict.fromkeys(m["unit"] for m in found)):
        items = [m for m in found if m["unit"] == unit][:MOST_BARS]
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
        plots.append(finish(figure, subject, name + (f"-{index + 1}" if index else ""), title, caption, data_of(items)))
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
    return finish(figure, subject, "fusion-gain", "Macro-fusion gain", caption, data_of(found))


def draw_misprediction(subject):
    found = [m for m in subject.measurements if m["name"].startswith("branch.mispredict")]
    return draw_bars(subject, found, "misprediction", "Misprediction penalty",
                     "Extra time of a branch whose direction cannot be predicted.", misprediction_label, "penalty per misprediction")


def misprediction_label(row):
    words = [f"{k} {v}" for k, v in row.get("parameters", {}).items() if not isinstance(v, (dict, list))]
    return ", ".join(words) or row["name"]
