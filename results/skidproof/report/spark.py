"""Small drawings over nights, written as SVG by hand: a page shows sixty of them, and each takes matplotlib a twentieth of a second.

Colours are the page's own (style.css), so that they follow light and dark.
"""

import math

from skidproof.report.parts import SIGNS, text

LETTERS = {"microcode": "M", "os": "K", "bios": "B", "version": "V", "hypervisor": "H"}
WORDS = {"microcode": "microcode", "os": "kernel", "bios": "BIOS", "version": "skidproof", "hypervisor": "hypervisor"}
MOST_POINTS = 400  # of a line; more nights than that are thinned


def finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def scale(values, low, high, turned=True):
    """A function from values to places between `low` and `high`; the middle where all are equal."""
    found = [v for v in values if finite(v)]
    least, most = (min(found), max(found)) if found else (0, 0)
    span = most - least
    if not span or not math.isfinite(span):
        return lambda value: (low + high) / 2
    return (lambda value: high - (value - least) / span * (high - low)) if turned else (lambda value: low
                                                                                        + (value - least) / span * (high - low))


def pieces(points):
    """Runs of points without a hole between them."""
    run = []
    for point in points:
        if finite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def path_of(points, y):
    return " ".join("M" + "L".join(f"{x:.1f} {y(value):.1f}" for x, value in run) for run in pieces(points))


def thinned(nights):
    step = max(1, math.ceil(nights / MOST_POINTS))
    return range(0, nights, step)


def sparkline(values, changes=(), words=""):
    """The course of one figure, a point a night (None where it is missing), dashed where it changed."""
    width, height = 176, 30
    nights = len(values)
    across = (width - 8) / max(nights - 1, 1)
    y = scale(values, 3, height - 3)
    points = [(4 + i * across, values[i]) for i in thinned(nights)]
    lines = "".join(f'<path d="M{4 + (i - 0.5) * across:.1f} 0V{height}" stroke="var(--fail)" stroke-width="1.5" stroke-dasharray="3 2"/>'
                    for i in changes)
    alone = "".join(f'<circle cx="{run[0][0]:.1f}" cy="{y(run[0][1]):.1f}" r="1.3" fill="var(--mark)"/>' for run in pieces(points)
                    if len(run) == 1)
    last = next(((x, v) for x, v in reversed(points) if finite(v)), None)
    dot = f'<circle cx="{last[0]:.1f}" cy="{y(last[1]):.1f}" r="2.2" fill="var(--mark)"/>' if last else ""
    return (f'<svg class="spark" viewBox="0 0 {width} {height}" role="img" aria-label="{text(words)}">{lines}'
            f'<path d="{path_of(points, y)}" fill="none" stroke="var(--mark)" stroke-width="1.4"/>{alone}{dot}</svg>')


def trend(points, changes, marks, unit, banner):
    """A figure over the nights. `points`: (night's label, value, low, high); `changes`: (index, before, after, words);
    `marks`: (index, fact, before, after), what else changed then. `banner`: whose figure it is."""
    width, height, left, right, top, bottom = 900, 250, 70, 12, 62, 28
    nights = len(points)
    across = (width - left - right) / max(nights - 1, 1)
    spread = [v for _, value, low, high in points for v in (value, low, high)]
    y = scale(spread, top, height - bottom)

    def x(night):
        return left + night * across if nights > 1 else (left + width - right) / 2

    out = [f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" font-family="system-ui, DejaVu Sans, sans-serif" '
           f'font-size="11">',
           f'<text x="0" y="12" font-weight="700" fill="currentColor">{text(banner)}</text>', axis(spread, y, width, left, right, unit),
           nights_axis(points, x, height)]
    chosen = thinned(nights)
    for run in pieces([(i, points[i][2] if finite(points[i][3]) else None) for i in chosen]):
        lower = [f"{x(i):.1f} {y(low):.1f}" for i, low in run]
        upper = [f"{x(i):.1f} {y(points[i][3]):.1f}" for i, _ in reversed(run)]
        out.append(f'<path d="M{"L".join(lower + upper)}Z" fill="var(--mark)" fill-opacity=".22"/>')
    out.append(f'<path d="{path_of([(x(i), points[i][1]) for i in chosen], y)}" fill="none" stroke="var(--mark)" stroke-width="1.6"/>')
    if nights <= 150:
        out += [f'<circle cx="{x(i):.1f}" cy="{y(points[i][1]):.1f}" r="2" fill="var(--mark)"/>' for i in range(nights)
                if finite(points[i][1])]
    for index, fact, before, after in marks:
        out.append(f'<g><title>{text(WORDS.get(fact, fact))}: {text(before)} to {text(after)}</title>'
                   f'<path d="M{x(index) - across / 2:.1f} {top - 14}V{height - bottom}" stroke="var(--soft)" stroke-dasharray="1 3"/>'
                   f'<text x="{x(index) - across / 2:.1f}" y="{top - 18}" text-anchor="middle" font-weight="700" fill="var(--soft)">'
                   f'{text(LETTERS.get(fact, "?"))}</text></g>')
    out += change_marks(changes, x, across, nights, y, top, height - bottom)
    return "".join(out) + "</svg>"


def axis(spread, y, width, left, right, unit):
    found = [v for v in spread if finite(v)]
    if not found:
        return ""
    out = [f'<text x="0" y="42" fill="var(--soft)">{text(unit)}</text>']
    for value in nice_ticks(min(found), max(found)):
        out.append(f'<path d="M{left} {y(value):.1f}H{width - right}" stroke="var(--line)"/>'
                   f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="currentColor">{value:.5g}</text>')
    return "".join(out)


def nice_ticks(low, high, count=4):
    """Round values between the two."""
    span = high - low
    if not span or not math.isfinite(span):
        return [low]
    rough = span / count
    size = 10 ** math.floor(math.log10(rough))
    step = next((m * size for m in (1, 2, 5, 10) if m * size >= rough), rough)
    first = math.ceil(low / step)
    ticks = [i * step for i in range(first, first + count + 3) if i * step <= high]
    return ticks or [low]


def nights_axis(points, x, height):
    step = max(1, math.ceil(len(points) / 8))
    return "".join(f'<text x="{x(i):.1f}" y="{height - 8}" text-anchor="{"start" if i == 0 else "middle"}" '
                   f'fill="currentColor">{text(points[i][0])}</text>'
                   for i in range(0, len(points), step) if i == 0 or len(points) - i > step / 3)


def change_marks(changes, x, across, nights, y, top, bottom):
    out = []
    ends = [index for index, *_ in changes] + [nights]
    for place, (index, before, after, words) in enumerate(changes):
        at = x(index) - across / 2
        start = ends[place - 1] if place else 0
        out.append(f'<g><title>{text(words)}</title><path d="M{at:.1f} {top - 6}V{bottom}" stroke="var(--fail)" stroke-width="2" '
                   f'stroke-dasharray="6 3"/>')
        for first, last, level in ((start, index - 1, before), (index, ends[place + 1] - 1, after)):
            if finite(level):
                out.append(f'<path d="M{x(first):.1f} {y(level):.1f}H{x(max(last, first)):.1f}" stroke="var(--fail)" stroke-width="2"/>')
        anchor = "end" if index > nights * 0.7 else "start"
        out.append(f'<text x="{at + (-5 if anchor == "end" else 5):.1f}" y="30" text-anchor="{anchor}" font-weight="700" '
                   f'fill="var(--fail)">'
                   f"{text(words) if place < 3 else ''}</text></g>")
    return out


def strip(statuses, words=""):
    """The verdicts of one test, a cell a night ("" where it did not run), each run of equal ones with its sign."""
    nights = len(statuses)
    cell = max(2.0, min(10.0, 560 / max(nights, 1)))
    out = [f'<svg class="strip" width="{nights * cell:.0f}" height="18" viewBox="0 0 {nights * cell:.1f} 18" role="img" '
           f'aria-label="{text(words)}">']
    start = 0
    for end in range(1, nights + 1):
        if end < nights and statuses[end] == statuses[start]:
            continue
        status = statuses[start]
        if status:
            wide = (end - start) * cell
            out.append(f'<rect x="{start * cell:.1f}" y="1" width="{max(wide - 0.6, 1):.1f}" height="16" fill="var(--{status})"/>')
            if wide >= 6:
                out.append(f'<text x="{start * cell + wide / 2:.1f}" y="13" font-size="9" font-weight="700" text-anchor="middle" '
                           f'fill="var(--paper)">{text(SIGNS[status])}</text>')
        start = end
    return "".join(out) + "</svg>"


def forest(lines, zero=0.0, unit="%", good=""):
    """Effects with their intervals. `lines`: (label, effect, low, high, called)."""
    row, left, width = 20, 330, 900
    height = 34 + row * len(lines)
    found = [v for _, *three, _ in lines for v in three if finite(v)] + [zero]
    least, most = min(found), max(found)
    pad = (most - least) * 0.05 or 1.0
    x = scale([least - pad, most + pad], left + 10, width - 90, turned=False)
    out = [f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" font-family="system-ui, DejaVu Sans, sans-serif" '
           f'font-size="11">']
    for tick in nice_ticks(least, most, 5):
        out.append(f'<path d="M{x(tick):.1f} 6V{height - 22}" stroke="var(--line)"/><text x="{x(tick):.1f}" y="{height - 6}" '
                   f'text-anchor="middle" '
                   f'fill="currentColor">{tick:+.4g} {text(unit)}</text>')
    out.append(f'<path d="M{x(zero):.1f} 6V{height - 22}" stroke="currentColor"/>')
    for place, (label, effect, low, high, called) in enumerate(lines):
        middle = 16 + row * place
        colour = "var(--fail)" if called else "var(--soft)"
        out.append(f'<text x="{left - 4}" y="{middle + 4}" text-anchor="end" fill="currentColor">{text(shortened(label, 52))}</text>')
        if finite(low) and finite(high):
            out.append(f'<path d="M{x(low):.1f} {middle}H{x(high):.1f}" stroke="{colour}" stroke-width="2"/>')
        if finite(effect):
            out.append(f'<rect x="{x(effect) - 4:.1f}" y="{middle - 4}" width="8" height="8" fill="{colour}"/>'
                       f'<text x="{width - 84}" y="{middle + 4}" fill="{colour}" font-weight="{700 if called else 400}">'
                       f'{"● " if called else ""}{effect:+.3g} {text(unit)}</text>')
    return "".join(out) + "</svg>"


def shortened(words, length):
    return words if len(words) <= length else words[:length - 1] + "…"
