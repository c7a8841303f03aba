"""`skidproof characterize --compare FILE…`: characterized machines side by side, as a sheet and as a page with their curves on one another.

The program measures; it hands over to here what it has measured before.
"""

import datetime
import os
import pathlib
import shutil
import sys
import textwrap

from skidproof import cli, rows, shape
from skidproof.report.tidy import tidy
from skidproof.shape import REAL

PAGE = "comparison.html"
NARROWEST, WIDEST, USUAL = 80, 120, 100  # columns; the last where no terminal says how many it has
KINDS = {"MODEL": "MODEL", "VIRTUAL LAB": "VIRTUAL LAB", "NATIVE": "native", "SILICON": "silicon", "UNKNOWN": "UNKNOWN"}
ABSENT = "–"
MARK = "*"
MOST_REASONS = 40

EPILOG = """\
Each FILE is a result file, the folder of a run, or run:ID of a store; each machine in it that was characterized is a column. Marked with *
is what differs from the first column by more than the intervals allow: those of one run, which do not show what differs from run to run.

Exit codes: 0 compared; 2 a file cannot be read, or holds no measurement; 64 bad usage.
"""


def parse(arguments):
    parser = cli.Parser("characterize", description="Characterized machines side by side.", epilog=EPILOG)
    parser.add_argument("--compare", nargs="+", metavar="FILE", required=True, action="extend",
                        help="results of skidproof characterize: files, folders, run:ID of the store")
    parser.add_argument("--out", metavar="DIR", help=f"folder for {PAGE} (default: where the first FILE is)")
    parser.add_argument("--store", metavar="STORE", help="where run:ID is looked up (default: $SKIDPROOF_STORE, then skidproof.db here)")
    parser.add_argument("--json", metavar="FILE", help='the sheet as JSON; "-" is standard output')
    return parser.parse_args(arguments)


# ---- What is compared ----

def sources_of(name, store):
    """The Sources that a FILE means. Complaint where there is none."""
    kind, _, identity = name.partition(":")
    if kind == "run" and identity and not os.path.exists(name):
        from skidproof import store as stores
        with stores.open(store) as opened:
            return [rows.source_of(name, opened.run_rows(identity))]
    path = pathlib.Path(name)
    own = path / "measurements.jsonl"
    if path.is_dir() and own.exists():
        return [rows.read_source(str(own))]
    return [rows.read_source(file) for file in cli.result_files([name])]


def machines_of(name, store):
    """The machines that a FILE holds. Complaint where it holds none, or is of a schema that nobody here knows."""
    sources = sources_of(name, store)
    for source in sources:
        if source.other_schema is not None:
            raise cli.Complaint(f"'{source.path}' has rows of schema {source.other_schema!r}; this program reads schema 1",
                                "compare it with the skidproof that wrote it")
        for problem in source.problems:
            cli.complain(f"{source.path}: {problem}")
        for run in source.runs:
            if run.measurements and run.end is None:
                cli.complain(f"{source.path}: run {run.name} was cut short: it has no end row")
    found = shape.machines_of([tidy(run) for source in sources for run in source.runs])
    if not found:
        raise cli.Complaint(f"'{name}' holds no measurement", "give what `skidproof characterize` wrote: its folder, or measurements.jsonl")
    return found


def notes_on(machines):
    """What must be known before anything is read out of the sheet."""
    kinds = {machine.provenance for machine in machines}
    notes = []
    if len(kinds) > 1 and not kinds <= set(REAL):
        notes.append("These are not all silicon: what a model, a virtual lab or an unknown machine says is not what silicon does.")
    elif not kinds <= set(REAL):
        notes.append("None of these is silicon.")
    if len({(m.run.name, m.name) for m in machines}) < len(machines):
        notes.append("The same run stands here more than once.")
    return notes


def document_of(machines, sections):
    """The sheet as JSON."""
    return {
        "machines": [{"letter": m.letter, "file": m.run.path, "run": m.run.name, "machine": m.name,
                      "provenance": m.provenance.lower().replace(" ", "-"), "facts": m.facts()} for m in machines],
        "notes": notes_on(machines),
        "sections": [{"title": section.title,
                      "lines": [{"what": line.words, "unit": line.unit, "differs": line.differs,
                                 "cells": [None if cell is None else cell.document() | {"apart": away}
                                           for cell, away in zip(line.cells, line.apart)]} for line in section.lines]}
                     for section in sections]}


# ---- The sheet as text ----

def half_width(cell):
    """"±1.7": the farther side of the interval; "±?" where too few samples make none."""
    if cell.interval is None:
        return " ±?"
    half = max(cell.high - cell.value, cell.value - cell.low)
    shown = f"{half:.2g}"
    return f" ±{shown}" if half > 0 and half >= 0.0005 * abs(cell.value) else ""


def cell_text(cell, away, unit, inferred=False):
    """A cell without its mark: figure, interval, and what belongs to it."""
    if cell is None:
        return ABSENT
    if cell.value is None:
        return shape.NOT_CLEAR
    words = shape.value_text(cell) + (range_text(cell) if inferred else half_width(cell))
    if cell.unit != unit and cell.unit != "bytes":
        words += f" {cell.unit}"
    if cell.note:
        words += f" ({cell.note})"
    for label, said in (("CPUID", cell.told), ("published", cell.published)):
        if said is not None and shape.agreement(cell, said) not in ("agrees", ""):
            words += f" [{label} {shape.amount(said, cell.unit)}]"
    return cli.printable(" ".join(words.split())) + (f" {MARK}" if away else "")


def range_text(cell):
    """How far up an inferred size may reach, where it is not known to the unit."""
    if cell.interval is None or cell.high <= cell.value or cell.high - cell.value < 0.01 * abs(cell.value):
        return ""
    return f"–{shape.amount(cell.high, cell.unit)}"


def is_shape(section):
    return section.title in shape.SHAPES or section.title == shape.OTHERS


def shown_lines(section):
    """(lines, words on what was left out): of the instructions only those that differ, where machines are compared."""
    if section.title != shape.INSTRUCTIONS:
        return section.lines, ""
    differing = [line for line in section.lines if line.differs]
    left = len(section.lines) - len(differing)
    return differing, f"{left} figures of instructions do not differ, or stand on one side only: the page has them" if left else ""


def line_words(line):
    unit = "" if line.unit in ("", "bytes") or line.unit in line.words else f" ({line.unit})"
    return cli.printable(" ".join((line.words + unit).split()))


def text_of(machines, sections, width, color=False):
    """The sheet for people: at most `width` columns wide; machines that do not fit stand in further blocks."""
    paints = {"bold": "\33[1m", "dim": "\33[2m"} if color else {}
    return "\n".join(paints.get(style, "") + cli.printable(words) + ("\33[0m" if style in paints else "")
                     for style, words in lines_of(machines, sections, width))


def lines_of(machines, sections, width):
    """(style, text) of each line."""
    out = []
    for machine in machines:
        what = f"{KINDS[machine.provenance]}{'' if machine.provenance in REAL else ' — not silicon'}"
        words = f"{what}: {machine.name}, {', '.join(machine.facts()) or 'nothing is said of it'}"
        out += wrapped(words, width, f"{machine.letter}  ", "   ") + wrapped(f"{machine.run.path} (run {machine.run.name})", width, "   ", "   ")
    for note in notes_on(machines):
        out += wrapped(note, width, style="bold")
    told = [(section, *shown_lines(section)) for section in sections]
    label = min(max((len(line_words(line)) for _, lines, _ in told for line in lines), default=10) + 3, 38)
    for block in blocks(machines, told, label, width):
        out += block_lines(machines, told, block, label, width)
    out += reasons(machines, width)
    if any(" ±?" in words for block in blocks(machines, told, label, width) for _, texts, _ in block for of in texts for words in of):
        out += [("", ""), *wrapped("±? too few samples for an interval: not held against anything.", width)]
    said = (f"{MARK} differs from {machines[0].letter}, or from the first that has a figure, by more than both intervals allow; they are those "
            "of one run each.") if len(machines) > 1 else "One machine alone: nothing to compare it with."
    return [*out, ("", ""), *wrapped(said, width)]


def wrapped(words, width, first="", rest="", style=""):
    return [(style, line) for line in textwrap.wrap(cli.printable(" ".join(words.split())), width, initial_indent=first,
                                                    subsequent_indent=rest)]


def column_texts(told, place):
    return [[cell_text(line.cells[place], line.apart[place], line.unit, is_shape(section)) for line in lines] for section, lines, _ in told]


def head_of(machine):
    return machine.letter + (f" {KINDS[machine.provenance]}" if machine.provenance not in REAL else "")


def blocks(machines, told, label, width):
    """Lists of (place, texts, columns) of the machines that stand beside one another."""
    found, room = [[]], width - label
    for place, machine in enumerate(machines):
        texts = column_texts(told, place)
        wide = max(max((len(t) for of in texts for t in of), default=0), len(head_of(machine)))
        wide = min(wide, width - label - 1) + 2
        if found[-1] and wide - 2 > room:
            found.append([])
            room = width - label
        found[-1].append((place, texts, wide))
        room -= wide
    return found


def block_lines(machines, told, block, label, width):
    out = [("", ""), ("bold", (" " * label + "".join(head_of(machines[place]).ljust(wide) for place, _, wide in block)).rstrip())]
    for index, (section, lines, left) in enumerate(told):
        shown = [(at, line) for at, line in enumerate(lines) if any(line.cells[place] is not None for place, _, _ in block)]
        if not shown and not left:
            continue
        out += [("", "")] * (len(out) > 2) + [("bold", section.title)]
        for at, line in shown:
            words = [clip(texts[index][at], wide - 2).ljust(wide) for _, texts, wide in block]
            out.append(("", (clip("  " + line_words(line), label - 1).ljust(label) + "".join(words)).rstrip()))
        out += wrapped(left, width, "  ", "  ", "dim")
    return out


def clip(words, length):
    return words if len(words) <= length else words[:length - 1] + "…"


def reasons(machines, width):
    """What was looked for and is not clear, and why."""
    found = [(machine.letter, fact) for machine in machines for fact in machine.shape if fact.found.value is None]
    out = [("", ""), ("bold", "Not clear")] if found else []
    for letter, fact in found[:MOST_REASONS]:
        out += wrapped(f"{letter} {fact.words}: {fact.found.why}", width, "  ", "     ")
    return out + ([("", f"  and {len(found) - MOST_REASONS} more")] if len(found) > MOST_REASONS else [])


# ---- The verb ----

def folder_for(options):
    if options.out:
        return pathlib.Path(options.out)
    first = pathlib.Path(options.compare[0])
    if first.is_dir():
        return first
    return first.parent if first.is_file() else pathlib.Path(cli.OUTPUTS) / "comparison"


def width_of_terminal():
    return min(max(shutil.get_terminal_size((USUAL, 24)).columns, NARROWEST), WIDEST)


def main(arguments):
    options = parse(arguments)
    machines = [machine for name in options.compare for machine in machines_of(name, options.store)]
    for machine, letter in zip(machines, shape.letters()):
        machine.letter = letter
    sections = shape.sheet(machines)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    folder = folder_for(options)
    document = document_of(machines, sections) | {"page": str(folder / PAGE)}
    cli.answer(options.json, cli.plain(document), text_of(machines, sections, width_of_terminal(), color))
    sys.stdout.flush()
    from skidproof.report import side_by_side  # matplotlib: the sheet does not wait for it
    page = side_by_side.page_of(machines, sections, datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with cli.whole_file(folder / PAGE, "wb") as stream:
            stream.write(page.encode("utf-8", "replace"))
    except OSError as error:
        cli.complain(f"cannot write {error.filename or folder / PAGE}: {error.strerror}", "choose another place with --out DIR")
        return cli.EXIT_HARNESS
    if options.json != "-":
        print(f"\n{folder / PAGE}: the same with curves")
    return cli.EXIT_HELD
