"""What all pages are built of: text that cannot be markup, tables, badges, figures with their data, and the page around them."""

import dataclasses
import html
import itertools
import pathlib
import re

from skidproof import rows

FOLDER = pathlib.Path(__file__).parent
BADGES = {"MODEL": "MODEL — not silicon", "VIRTUAL LAB": "VIRTUAL LAB — not silicon", "NATIVE": "NATIVE — silicon, TSC only",
          "SILICON": "SILICON", "UNKNOWN": "UNKNOWN — provenance not recorded"}
REAL = ("NATIVE", "SILICON")
SIGNS = {"pass": "✓", "fail": "✗", "error": "!", "skip": "–", "xfail": "x", "xpass": "X", "observed": "o", "disturbed": "~"}
SHOWN_STATUSES = ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")
MEANINGS = {
    "pass": "held, with evidence", "fail": "a promise was broken, again and again", "error": "the harness could not judge",
    "skip": "not run here, for the reason given", "xfail": "failed as a published erratum of this processor says",
    "xpass": "held, although an erratum is published", "observed": "nothing is promised; this was seen",
    "disturbed": "failed once, spoiled by noise or never again",
}
FIRST_LINES = 200   # of a table that are in the page from the start; the script brings the others
LONGEST_CELL = 4000

# A lone surrogate, or what XML and HTML do not allow, must not break the page.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def text(value):
    """The value as text that cannot be markup, whatever it holds."""
    return html.escape(FORBIDDEN.sub("\ufffd", str(value)), quote=True)


def clipped(value, length=LONGEST_CELL):
    shown = str(value)
    return shown if len(shown) <= length else shown[:length] + " …"


def number(value, digits=4):
    """Escaped: 1,234 · 0.01234 · nothing for None; what is no number as it is."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(clipped(value))
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}"
    return f"{value:.{digits}g}" if isinstance(value, float) or abs(value) < 10**300 else text(clipped(value, 40))


def plural(count, one, many=None):
    """"1 test", "2,000 tests"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def code(value):
    return f'<span class="id">{text(value)}</span>'


def date(value):
    """A day or a moment that does not break."""
    return f"<time>{text(value)}</time>" if value else ""


def status_cell(status, words=None):
    """A status by sign and word, so that its colour says nothing alone."""
    long = " long" if len(words or "") > 24 else ""
    return (f'<span class="s{long} {text(status)}"><span aria-hidden="true">{text(SIGNS.get(status, "?"))}</span> {text(words or status)}'
            f'</span>')


def badge(provenance):
    return f'<span class="badge{"" if provenance in REAL else " model"}">{text(BADGES[provenance])}</span>'


def provenance_of(word):
    """The store's word (`virtual-lab`) as the badges know it; what they do not know is unknown."""
    kind = str(word or "").upper().replace("-", " ")
    return kind if kind in BADGES else "UNKNOWN"


def provenance_kind(name, row):
    return rows.provenance(str(name), row)


def machines_of(run):
    """The machines that the rows speak of, in the order of appearance; a qualification's defects, each on a machine of its own, are
    none."""
    found = [run.run, *run.machines, *run.tests, *run.measurements, *run.errata]
    names = [row["machine"] for row in found if row.get("machine")]
    if run.defects and names:
        names = names[:1]
    return list(dict.fromkeys(names)) or run.machine_names()[:1]


@dataclasses.dataclass
class Cell:
    """A cell whose order or class differs from its words."""

    shown: str           # HTML
    order: object = None  # what sorting goes by
    kind: str = ""       # its class


class Ids:
    """Names of parts that are unique in a page."""

    def __init__(self):
        self.taken = set()
        self.links = {}  # {id(row): the name of the part that shows it}

    def new(self, words):
        stem = re.sub(r"[^a-z0-9]+", "-", str(words).lower())[:60].strip("-") or "part"
        for count in itertools.count(1):
            name = stem if count == 1 else f"{stem}-{count}"
            if name not in self.taken:
                self.taken.add(name)
                return name


def cell_html(tag, value, numeric):
    cell = value if isinstance(value, Cell) else Cell(value)
    names = " ".join(filter(None, ("n" if numeric else "", cell.kind)))
    order = f' data-v="{text(cell.order)}"' if cell.order is not None else ""
    kind = f' class="{names}"' if names else ""
    return f"<{tag}{kind}{order}>{cell.shown}</{tag}>"


def line_html(line, numeric, row_head):
    if isinstance(line, str):
        return line
    cells = []
    for index, value in enumerate(line):
        if index == row_head:
            cells.append(cell_html("th", value, index in numeric).replace("<th", '<th scope="row"', 1))
        else:
            cells.append(cell_html("td", value, index in numeric))
    return f"<tr>{''.join(cells)}</tr>"


def table(caption, heads, lines, numeric=(), row_head=0, tools=None, sortable=True, first=FIRST_LINES, wide=False,
          whole=False):
    """HTML of a table in a region of its own that scrolls. `caption` and `heads` are text, cells are HTML or Cell; `row_head`
    is the column that names the line; a line may also be its HTML. From a dozen lines on it has a filter (`tools` decides
    otherwise). Lines beyond `first` wait in a template until they are asked for. `whole`: it does not scroll downwards."""
    numeric = set(numeric)
    lines = list(lines)
    tools = len(lines) > 11 if tools is None else tools
    sortable = sortable and len(lines) > 1
    head = "".join(
        f'<th scope="col"{" class=n" if i in numeric else ""}{" aria-sort=none" if sortable and h else ""}>'
        + (f'<button type="button">{text(h)}</button>' if sortable and h else text(h) or '<span class="away">more</span>') + "</th>"
        for i, h in enumerate(heads))
    body = "".join(line_html(line, numeric, row_head) for line in lines[:first])
    parts = [f'<div class="sheet{" wide" if wide else ""}{" whole" if whole else ""}">']
    if tools:
        parts.append(f'<p class="tools"><label>Filter <span class="away">{text(caption)}</span> <input type="search" autocomplete="off">'
                     f'</label> '
                     f'<output class="soft">{plural(len(lines), "line")}</output></p>')
    parts.append(f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}"><table><caption>{text(caption)}</caption>'
                 f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
    if len(lines) > first:
        rest = "".join(line_html(line, numeric, row_head) for line in lines[first:])
        parts.append(f'<template>{rest}</template><p class="more"><button type="button" class="show-all">Show all {len(lines):,}</button> '
                     f'<span class="soft">the first {first:,} are shown; filter and sorting go over all</span></p>')
    parts.append("</div>")
    return "".join(parts)


def details(summary, body, is_open=False, name=""):
    """Folded; `summary` and `body` are HTML."""
    return f"<details{f' id={name}' if name else ''}{' open' if is_open else ''}><summary>{summary}</summary>{body}</details>"


def warning(body):
    return f'<div class="warn" role="note">{body}</div>'


def bullets(items):
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""


def card(words, value, kind="", meaning=""):
    """One count; `words` and `value` are text."""
    sign = f'<span aria-hidden="true">{text(SIGNS[words])}</span> ' if words in SIGNS else ""
    title = f' title="{text(meaning)}"' if meaning else ""
    return f'<li class="card {text(kind)}"{title}><b>{text(value)}</b> <span>{sign}{text(words)}</span></li>'


def cards(items):
    return f'<ul class="cards">{"".join(items)}</ul>' if items else ""


def figure(svg, title, caption, data, ids, description=""):
    """A drawing (an SVG element), its caption, and below it its numbers: `data` is (heads, lines of HTML, numeric columns)."""
    name = ids.new(f"figure-{title}")
    folded = ""
    if data and data[1]:
        heads, lines, numeric = data
        folded = details(f'Data of this figure <span class="away">({text(title)})</span>',
                         table(f"{title}: the numbers", heads, lines, numeric, first=50))
    return (f'<figure id="{name}"><div class="scroll drawing" role="region" tabindex="0" aria-label="{text(title)}, drawn">'
            f"{accessible(svg, name, title, description or caption)}</div>"
            f"<figcaption><b>{text(title)}.</b> {text(caption)}</figcaption>{folded}</figure>")


def accessible(svg, name, title, description):
    """The SVG as one image with a name and a description; what it names inside is its own."""
    svg = re.sub(r"<title>.*?</title>|<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]*)"', lambda m: f'id="{name}-{m[1]}"', svg)
    svg = re.sub(r'(xlink:href="|href="|url\()#', lambda m: f"{m[1]}#{name}-", svg)
    words = f"<title id={name}-title>{text(title)}</title><desc id={name}-desc>{text(clipped(description, 600))}</desc>"
    return re.sub(r"<svg\b([^>]*)>", lambda m: f'<svg{m[1]} role="img" aria-labelledby="{name}-title" '
                                               f'aria-describedby="{name}-desc">{words}',
                  svg, count=1)


def section(name, heading, body, level=2, kind=""):
    """A named part of the page; nothing where there is no body."""
    if not body:
        return ""
    named = (f' class="{kind}"' if kind else "") + (f' aria-labelledby="{name}"' if level == 2 else "")  # not every part is a landmark
    return f'<section{named}><h{level} id="{name}">{heading}</h{level}>{body}</section>'


def contents(entries, words="Contents"):
    """`entries`: (id, text) of what is in the page."""
    links = "".join(f'<li><a href="#{name}">{text(shown)}</a></li>' for name, shown in entries)
    return f'<nav class="contents" aria-label="{text(words)}"><h2>{text(words)}</h2><ol>{links}</ol></nav>' if entries else ""


class Sections:
    """The parts of a page, which its contents list."""

    def __init__(self, ids):
        self.ids, self.entries, self.bodies = ids, [], []

    def add(self, words, inside):
        """Nothing where there is nothing inside."""
        if inside:
            name = self.ids.new(words)
            self.entries.append((name, words))
            self.bodies.append(section(name, text(words), inside))

    def page(self, title, lead, written):
        """The whole document; `written`: when, as text."""
        return document(title, lead + contents(self.entries), "\n".join(self.bodies), written)


def told_apart(body):
    """Regions of the same name get a number: who walks from region to region hears which."""
    counts = {}

    def numbered(match):
        counts[match[2]] = counts.get(match[2], 0) + 1
        return match[0] if counts[match[2]] == 1 else f'{match[1]}{match[2]} ({counts[match[2]]})"'
    return re.sub(r'(role="region" tabindex="0" aria-label=")([^"]*)"', numbered, body)


def document(title, lead, body, written, sources=""):
    """The whole page. `lead` is the first screen, `body` the rest, both HTML; the others are text."""
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    script = (FOLDER / "script.js").read_text(encoding="utf-8")
    origin = f" from {text(clipped(sources, 2000))}" if sources else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="skidproof report">
<title>{text(clipped(title, 200))}</title><style>{style}</style></head>
<body><a class="leap" href="#main">Skip to the content</a>
<header><p class="brand"><b>Skidproof</b> report</p><p><button type="button" id="theme" hidden>Colours: as the system</button></p></header>
<main id="main" tabindex="-1">
<h1>{text(clipped(title, 200))}</h1>
{told_apart(lead + body)}
</main>
<footer><p>Written {text(written)}{origin}. This page needs no other file and no network.</p></footer>
<script>{script}</script></body></html>
"""
