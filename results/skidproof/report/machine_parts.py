"""Tables of a characterization: the shape of a machine, its figures by level, its instructions; and the sheet of several."""

from skidproof import shape
from skidproof.report.parts import Cell, badge, clipped, code, number, status_cell, table, text

SIGNS = {"agrees": ("pass", "agrees"), "near": ("pass", "within 10 %"), "differs": ("observed", "differs")}


def shape_table(run, machine):
    """What was inferred, beside what CPUID says and what was published; what is not clear, with its reason."""
    facts = shape.shape_of(run, machine)
    lines = []
    for fact in facts:
        found = fact.found
        if found.value is None:
            lines.append((text(clipped(fact.words, 200)), status_cell("skip", shape.NOT_CLEAR), text(clipped(found.why, 400)), "", "", ""))
            continue
        lines.append((text(clipped(fact.words, 200)), Cell(f"<b>{text(shape.value_text(found))}</b>", found.value), text(between(found)),
                      said_cell(found, found.told), said_cell(found, found.published), text(clipped(found.source, 200))))
    if not lines:
        return ""
    heads = ("what", "inferred", "lies between, or why it is not clear", "CPUID says", "published", "source")
    empty = [place for place in range(2, len(heads)) if not any(line[place] for line in lines)]
    keep = [place for place in range(len(heads)) if place not in empty]
    return table(f"Shape of {machine}", [heads[i] for i in keep], [tuple(line[i] for i in keep) for line in lines], tools=False,
                 sortable=False, whole=True)


def between(found):
    """The last size that was seen within and the first beyond, where they are not the same."""
    if not found.interval or found.low == found.high:
        return unit_words(found.unit)
    return f"{shape.amount(found.low, found.unit)} and {shape.amount(found.high, found.unit)} {unit_words(found.unit)}".rstrip()


def unit_words(unit):
    return "" if unit in ("bytes", "bool") else clipped(unit, 40)


def said_cell(found, said):
    if said is None or isinstance(said, (dict, list)):
        return ""
    shown = text(clipped(shape.amount(said, found.unit), 100))
    verdict = shape.agreement(found, said)
    return f"{shown} {status_cell(*SIGNS[verdict])}" if verdict else shown


def of_machine(run, machine):
    """All tables of one machine."""
    one = shape.Machine(run, machine)
    body = shape_table(run, machine)
    sections = [section for section in shape.sheet([one]) if section.title not in (*shape.SHAPES, shape.OTHERS, shape.INSTRUCTIONS)]
    lines = [(text(section.title), text(line.words), *figure_cells(line.cells[0], line.unit)) for section in sections
             for line in section.lines]
    if lines:
        body += table(f"In figures: {machine}", ("of", "what", "figure", "unit", "interval", "where, which"), lines, (2,), row_head=1, tools=False,
                      whole=True)
    return body


def figure_cells(cell, unit):
    if cell.value is None:
        return Cell(text(shape.NOT_CLEAR)), "", "", text(clipped(cell.why, 300))
    span = f"{shape.amount(cell.low, cell.unit)} … {shape.amount(cell.high, cell.unit)}" if cell.interval else "too few samples"
    return (Cell(text(shape.value_text(cell)), cell.value), text(clipped(cell.unit or unit, 40)), text(span),
            text(clipped(", ".join(filter(None, (cell.at, cell.note))), 120)))


def instructions(run, machine):
    """Latency and throughput of each instruction."""
    found = {}
    for row in run.measurements:
        name = shape.parameters_of(row).get("instruction")
        if row["machine"] == machine and row["name"] in ("instruction.latency", "instruction.throughput") and name is not None:
            found.setdefault(str(name), {})[row["name"].removeprefix("instruction.")] = row
    if not found:
        return ""
    lines = []
    for name, kinds in found.items():
        cells = []
        for kind in ("latency", "throughput"):
            row = kinds.get(kind)
            low, high = (row.get("low"), row.get("high")) if row else (None, None)
            cells += [Cell(number(row["value"], 3), row["value"]), f"{number(low, 3)} … {number(high, 3)}" if low is not None else ""] if row \
                else ["", ""]
        lines.append((code(clipped(name, 200)), *cells))
    unit = next(row["unit"] for kinds in found.values() for row in kinds.values())
    heads = ("instruction", f"latency ({unit})", "interval", f"each, of many independent ({unit})", "interval")
    return table(f"Instructions of {machine}", heads, lines, (1, 2, 3, 4))


# ---- Several machines ----

def machine_head(machine):
    return f"{machine.letter} {machine.name}" + ("" if machine.provenance in ("NATIVE", "SILICON") else f" ({machine.provenance})")


def machine_table(machines):
    lines = [(f"<b>{text(m.letter)}</b>", badge(m.provenance), code(clipped(m.name, 200)), text(clipped(", ".join(m.facts()), 400)),
              code(clipped(m.run.name, 100)), code(clipped(m.run.path, 300))) for m in machines]
    return table("Machines compared", ("", "what it is", "machine", "what is known of it", "run", "file"), lines, tools=False, sortable=False,
                 wide=True)


def sheet_table(section, machines):
    """A section of the sheet: a column a machine; `differs` stands where it lies apart from the first."""
    heads = ("what", "unit", *map(machine_head, machines))
    lines = [(text(line.words), text("" if line.unit == "bytes" else line.unit),
              *(sheet_cell(cell, away, line.unit) for cell, away in zip(line.cells, line.apart))) for line in section.lines]
    return table(section.title, heads, lines, tools=len(lines) > 24, wide=True, whole=len(lines) <= 24)


def sheet_cell(cell, away, unit):
    if cell is None:
        return '<span class="soft">–</span>'
    if cell.value is None:
        return Cell(status_cell("skip", shape.NOT_CLEAR) + f'<br><span class="soft">{text(clipped(cell.why, 300))}</span>')
    shown = f"<b>{text(shape.value_text(cell))}</b>" + (f" {text(cell.unit)}" if cell.unit not in (unit, "bytes") else "")
    span = f" {shape.amount(cell.low, cell.unit)} … {shape.amount(cell.high, cell.unit)}" if cell.interval and cell.low != cell.high else ""
    span = span if cell.interval else " ±?"
    rest = ", ".join(filter(None, (cell.at, cell.note)))
    shown += f'<span class="soft">{text(span)}{text(f" ({rest})") if rest else ""}</span>'
    for label, said in (("CPUID", cell.told), ("published", cell.published)):
        if said is not None and shape.agreement(cell, said) == "differs":
            shown += f'<br><span class="soft">{label}: {text(shape.amount(said, cell.unit))}</span>'
    return Cell(shown + (" " + status_cell("observed", "differs") if away else ""), cell.value)
