"""What a characterization says of a machine: the shape that was inferred, and its figures by level of the memory hierarchy.

The report's table, `characterize --compare` and its page are made of this. Nothing here needs more than Python itself.
"""

import dataclasses
import json
import re

from skidproof import rows

NOT_CLEAR = "not clear"
REAL = ("NATIVE", "SILICON")  # provenances
SMALLEST, LARGEST = 1e-12, 2.0**64  # in a plot
COVERED = 90     # per cent; below, an interval judges nothing
SPOILED = {"disturbed": "disturbed", "in_company": "in company"}  # parameter: words
NEAR = 0.10  # of a published figure: so far a window's or a table's measured size may lie from it
# Sections of the sheet, and what their lines are called. A shape that is not here comes last, by its own name.
SHAPES = {
    "Caches": {"shape.l1d.size": "L1 data cache", "shape.l1d.ways": "L1 data cache, ways", "shape.line": "cache line",
               "shape.l2.size": "L2 cache", "shape.l2.ways": "L2 cache, ways", "shape.l3.size": "L3 cache"},
    "Translation": {"shape.dtlb.reach": "data TLB", "shape.stlb.reach": "second-level TLB", "shape.tlb.walk": "page walk"},
    "Branch prediction": {"shape.btb.reach": "branch targets kept", "shape.return_stack.depth": "return stack",
                          "shape.history.length": "branch history", "shape.pattern.length": "pattern learnt",
                          "shape.indirect.targets": "indirect targets"},
    "Core": {"shape.rob.size": "reorder buffer", "shape.load_queue.size": "load queue", "shape.store_queue.size": "store queue",
             "shape.scheduler.size": "scheduler", "shape.vector_scheduler.size": "scheduler of vectors",
             "shape.int_registers.size": "integer registers", "shape.vector_registers.size": "vector registers",
             "shape.vector256_registers.size": "vector registers, 256 bits", "shape.uop_cache.reach": "uop cache",
             "shape.code.reach": "straight code at full rate",
             "shape.move_elimination.mov": "MOV without a cycle", "shape.move_elimination.movaps": "MOVAPS without a cycle",
             "shape.zeroing_idiom.xor": "XOR to zero at rename", "shape.zeroing_idiom.pxor": "PXOR to zero at rename",
             "shape.immediate_at_rename.add": "ADD of constants at rename"},
}
WORDS = {name: words for section in SHAPES.values() for name, words in section.items()}
PLACES = {name: place for place, name in enumerate(WORDS)}
LEVELS = (("L1", "shape.l1d.size"), ("L2", "shape.l2.size"), ("L3", "shape.l3.size"))
STREAMS = ("load", "store", "copy")
OTHERS, INSTRUCTIONS = "Other shapes", "Instructions"  # titles of sections
FOOTPRINTS = tuple(1 << power for power in (14, 18, 20, 23, 26, 28))  # looked at where the levels are not known


# ---- Values ----

@dataclasses.dataclass(frozen=True)
class Value:
    """What stands in a cell of the sheet: a figure with its interval, or why there is none."""

    value: float | None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    note: str = ""      # which of several this was: "nt 32"
    at: str = ""        # the footprint that it was measured at
    why: str = ""       # why there is no figure
    told: object = None
    published: object = None
    source: str = ""
    spoiled: str = ""   # how others disturbed half of its samples or more

    @property
    def interval(self):
        return (self.low, self.high) if self.low is not None and self.high is not None else None

    def document(self):
        found = {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, "")}
        return found | ({"value": None} if self.value is None else {})


def is_number(value):
    return rows.is_a(value, (int, float)) and rows.is_finite(value)


def covers(row):
    """Whether what a row calls its interval is one: of a sample or two nothing covers the median."""
    covered = re.match(r"(\d+(?:\.\d+)?) ?%", str(row.get("interval", "")))
    return covered is None or float(covered[1]) >= COVERED


def is_drawable(value):
    """Whether a number is one that a plot has room for; measurements are."""
    return is_number(value) and (value == 0 or SMALLEST < abs(value) < LARGEST)


def spoiled_words(row):
    """"disturbed", "in company": what others did beside half of a row's samples or more."""
    counted = [(words, parameters_of(row).get(name), row.get("n")) for name, words in SPOILED.items()]
    return ", ".join(words for words, many, n in counted if is_number(many) and is_number(n) and many > 0 and 2 * many >= n)


def value_of(row, note="", at=""):
    """A measurement row as a Value."""
    parameters = parameters_of(row)
    spoiled = spoiled_words(row)
    note = ", ".join(filter(None, (note, spoiled)))
    low, high = (row[key] if is_number(row.get(key)) and covers(row) else None for key in ("low", "high"))
    return Value(row["value"], row["unit"], low, high, note, at, "", parameters.get("told"), parameters.get("published"),
                 str(parameters.get("source", "")), spoiled)


def parameters_of(row):
    parameters = row.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def key_of(row):
    """What a row was measured at, as one text."""
    return json.dumps(rows.figure_parameters(row) or {}, sort_keys=True, ensure_ascii=False)


def apart(a, b):
    """Whether two values differ by more than their intervals allow; None where that cannot be judged, as where others spoiled one."""
    if a is None or b is None or a.value is None or b.value is None or a.unit != b.unit or not a.interval or not b.interval:
        return None
    if a.spoiled or b.spoiled:
        return None
    return (a.low > b.high or b.low > a.high) and value_text(a) != value_text(b)


def agreement(found, said):
    """"agrees", "near" or "differs": of what was inferred with what CPUID says or what was published; "" where either is no number."""
    if found.value is None or not is_number(said):
        return ""
    low, high = found.interval or (found.value, found.value)
    if found.value == said or low <= said <= high:
        return "agrees"
    return "near" if abs(found.value - said) <= NEAR * abs(said) else "differs"


def bytes_text(value):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} B"


def amount(value, unit):
    """A number in its unit, without the unit's name but for bytes."""
    if not is_number(value):
        return str(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "bool":
        return "yes" if value else "no"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e7 else f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"


def value_text(found):
    return NOT_CLEAR if found.value is None else amount(found.value, found.unit)


# ---- The shape ----

@dataclasses.dataclass(frozen=True)
class Fact:
    """A line of the shape: its name, what people call it, what was found."""

    name: str
    at: str       # parameters as text, where the same was asked more than once
    found: Value

    @property
    def words(self):
        return words_of(self.name) + (f", {self.at}" if self.at else "")


def words_of(name):
    return WORDS.get(name) or name.removeprefix("shape.").replace(".", " ").replace("_", " ")


def parameter_words(parameters):
    return ", ".join(f"{key.replace('_', ' ')} {bytes_text(value) if key == 'bytes' and is_number(value) else value}"
                     for key, value in parameters.items() if not isinstance(value, (dict, list)))


def shape_of(run, machine):
    """The Facts of a machine in the order of the sheet. What is both inferred and not clear was inferred at other parameters."""
    found = {}
    for row in run.measurements:
        if row["machine"] == machine and row["name"].startswith("shape."):
            found[row["name"], key_of(row)] = Fact(row["name"], parameter_words(rows.figure_parameters(row) or {}), value_of(row))
    named = {name for name, _ in found}
    for row in run.unmeasured:
        if row["machine"] == machine and row["name"].startswith("shape.") and row["name"] not in named:
            found[row["name"], ""] = Fact(row["name"], "", Value(None, why=row["reason"]))
    alone = {}
    for name, _ in found:
        alone[name] = alone.get(name, 0) + 1
    facts = [fact if alone[fact.name] > 1 else dataclasses.replace(fact, at="") for fact in found.values()]
    return sorted(facts, key=lambda fact: (PLACES.get(fact.name, len(PLACES)), fact.name if fact.name not in PLACES else ""))


def section_of(name):
    return next((title for title, names in SHAPES.items() if name in names), OTHERS)


# ---- A machine ----

@dataclasses.dataclass
class Machine:
    """The characterization of one machine in one run."""

    run: rows.Run
    name: str
    letter: str = ""

    def __post_init__(self):
        self.row = self.run.machine_row(self.name)
        self.provenance = rows.provenance(self.name, self.row)
        self.rows = {}
        for row in self.run.measurements:
            if row["machine"] == self.name:
                self.rows.setdefault(row["name"], []).append(row)
        self.shape = shape_of(self.run, self.name)
        self.levels = {}  # name: (size of the level before, its own)
        before = 0
        for level, shape in LEVELS:
            fact = next((f for f in self.shape if f.name == shape and f.found.value is not None), None)
            if fact is None:
                break
            self.levels[level] = (before, fact.found.value)
            before = fact.found.value

    def measured(self, name, unit=None):
        """The rows of this name in this unit; where there are none, in the one that there is: nothing is converted, and cells of different
        units are not judged against one another."""
        found = self.rows.get(name, [])
        units = [row["unit"] for row in found]
        return [row for row in found if row["unit"] == (unit if unit in units else units[0])]

    def drawn(self, name, unit=None):
        return [row for row in self.measured(name, unit) if is_drawable(row["value"])]

    def facts(self):
        """What identifies it, as texts."""
        row = self.row
        known = [row.get("host"), row.get("brand") or row.get("vendor"),
                 f"microcode {row['microcode']}" if row.get("microcode") else "", row.get("microarch"),
                 f"under {row['hypervisor']}" if row.get("hypervisor") else ""]
        return [str(fact) for fact in known if fact]


def machines_of(runs):
    """Each machine of these runs for which figures were measured."""
    return [Machine(run, name) for run in runs for name in dict.fromkeys(row["machine"] for row in run.measurements)]


def letters():
    """A … Z, AA …"""
    count = 0
    while True:
        name, number = "", count
        while number >= 0:
            name = chr(ord("A") + number % 26) + name
            number = number // 26 - 1
        yield name
        count += 1


def size_of(row):
    size = parameters_of(row).get("bytes")
    return size if is_number(size) and size > 0 else None


def footprint_of(machine, found, level):
    """The footprint, of these rows, that stands for a level: well inside it and well outside the one before, if there is such."""
    sizes = {size_of(row) for row in found} - {None}
    if level not in machine.levels:
        return None
    before, own = machine.levels[level]
    inside = [s for s in sizes if 2 * before <= s <= own / 2] or [s for s in sizes if before < s <= own]
    return max(inside, default=None)


# ---- Lines of the sheet ----

@dataclasses.dataclass
class Line:
    words: str
    unit: str
    cells: list        # of Value or None, one a machine
    same: bool = False  # only what was measured at the same footprint is held against one another

    @property
    def apart(self):
        """Of each cell: whether it differs from the first machine's that has a figure."""
        first = next((cell for cell in self.cells if cell is not None and cell.value is not None), None)
        return [cell is not first and self.judge(first, cell) for cell in self.cells]

    @property
    def differs(self):
        return any(self.judge(a, b) for i, a in enumerate(self.cells) for b in self.cells[:i])

    def judge(self, a, b):
        return bool(apart(a, b)) and not (self.same and a.at != b.at)


@dataclasses.dataclass
class Section:
    title: str
    lines: list


def line(words, unit, cells, same=False):
    """A line, or nothing where no machine has anything to say. Its unit is that of the figures where they agree."""
    cells = list(cells)
    if all(cell is None for cell in cells):
        return []
    units = {cell.unit for cell in cells if cell is not None and cell.value is not None}
    return [Line(words, unit if not units else units.pop() if len(units) == 1 else "", cells, same)]


def best(found, way=max, note=lambda row: ""):
    """The largest (or smallest) of these rows, as a Value."""
    row = way(found, key=lambda row: row["value"], default=None)
    return None if row is None else value_of(row, note(row), bytes_text(size) if (size := size_of(row)) else "")


def of_level(machine, found, level, way, note=lambda row: ""):
    """The best of these rows at the footprint that stands for a level."""
    size = footprint_of(machine, found, level)
    if size is not None:
        return best([row for row in found if size_of(row) == size], way, note)
    return Value(None, why="the level's size is not clear") if found and machine.shape and level not in machine.levels else None


def page_words(page):
    return f"{str(page).replace('KiB', ' KiB').replace('MiB', ' MiB').replace('GiB', ' GiB')} pages" if page else "any pages"


def kind_words(row):
    """"32 B", "nt 32 B", "rep movsb": how a stream went."""
    kind = str(parameters_of(row).get("kind", ""))
    name, _, width = kind.rpartition("-")
    if not width.isdigit():
        return kind.replace("non-temporal", "nt").replace("-", " ")
    return {"regular": "", "non-temporal": "nt ", "non-temporal-tight": "nt tight ",
            "non-temporal-striped": "nt striped "}.get(name, f"{name} ") + f"{width} B"


def shape_sections(machines):
    found = {}
    for place, machine in enumerate(machines):
        for fact in machine.shape:
            found.setdefault((fact.name, fact.at), [None] * len(machines))[place] = fact.found
    order = sorted(found, key=lambda key: (PLACES.get(key[0], len(PLACES)), key if key[0] not in PLACES else ()))
    sections = {title: [] for title in (*SHAPES, OTHERS)}
    for name, at in order:
        sections[section_of(name)] += line(words_of(name) + (f", {at}" if at else ""), "", found[name, at])
    return [Section(title, lines) for title, lines in sections.items() if lines]


def of_page(found, page):
    return [row for row in found if str(parameters_of(row).get("page", "")) == page]


def latency_lines(machines):
    lines = []
    pages = sorted({str(parameters_of(row).get("page", "")) for m in machines for row in m.measured("memory.latency")},
                   key=lambda page: (len(page.rstrip("KMGiB")), page))
    pages.sort(key=lambda page: "MiB" in page or "GiB" in page)
    for level in levels_of(machines):
        unit = "cycles" if level != "L3" else "ns"
        for page in pages[:1] if level == "L1" else pages:
            lines += line(f"{level}, {page_words(page)}", unit, (of_level(m, of_page(m.measured("memory.latency", unit), page), level, min) for m in machines))
    lines += line("both TLBs missed, adds", "cycles", (best(m.measured("tlb.walk", "cycles"), min) for m in machines))
    for page in pages:
        lines += largest_line(machines, "memory.latency", "ns", lambda found, page=page: of_page(found, page),
                              lambda size, page=page: f"{size}, {page_words(page)}", min)
    if not all({"L1", "L2"} <= m.levels.keys() for m in machines):
        for size in FOOTPRINTS:
            for page in pages[-1:]:
                lines += line(f"{bytes_text(size)}, {page_words(page)}", "ns",
                              (best([r for r in of_page(m.measured("memory.latency", "ns"), page) if size_of(r) == size], min)
                               for m in machines))
    return lines


def levels_of(machines):
    """The levels whose size is clear on one of these machines."""
    return [level for level, _ in LEVELS if any(level in machine.levels for machine in machines)]


def largest_line(machines, name, unit, choose, words, way, note=lambda row: ""):
    """The line of the largest footprint, which is beyond all caches where memory allowed it; of different ones it says which."""
    largest = []
    for machine in machines:
        found = [row for row in choose(machine.measured(name, unit)) if size_of(row)]
        size = max(map(size_of, found), default=None)
        largest.append((size, [row for row in found if size_of(row) == size]))
    sizes = {size for size, _ in largest} - {None}
    cells = []
    for size, found in largest:
        cell = best(found, way, note)
        several = [cell.note, cell.at] if cell and len(sizes) > 1 else []
        cells.append(dataclasses.replace(cell, note=", ".join(filter(None, several))) if several else cell)
    return line(words(bytes_text(next(iter(sizes))) if len(sizes) == 1 else "largest"), unit, cells, True) if sizes else []


def bandwidth_lines(machines):
    lines = []
    for stream in STREAMS:
        name = f"{stream}.bandwidth"
        for level in levels_of(machines):
            lines += line(f"{stream}, {level}", "GB/s", (of_level(m, m.measured(name, "GB/s"), level, max, kind_words) for m in machines))
        lines += largest_line(machines, name, "GB/s", list, lambda size, stream=stream: f"{stream}, {size}", max, kind_words)
        if not all({"L1", "L2"} <= m.levels.keys() for m in machines):
            for size in FOOTPRINTS[:4]:
                lines += line(f"{stream}, {bytes_text(size)}", "GB/s",
                              (best([r for r in m.measured(name) if size_of(r) == size], max, kind_words) for m in machines))
        lines += line(f"{stream}, CPUs together", "GB/s",
                      (best([row for row in m.measured(f"scaling.{stream}") if parameters_of(row).get("cpus", 0) != 1], max,
                            lambda row: f"{parameters_of(row).get('cpus', '?')} CPUs") for m in machines))
    return lines


def branch_lines(machines):
    lines = line("misprediction", "cycles", (best(m.measured("branch.mispredict_penalty", "cycles"), min) for m in machines))
    lines += line("taken branch, at best", "cycles", (best(m.measured("branch.taken", "cycles"), min) for m in machines))
    fused = [[row["value"] for row in m.measured("fusion.fused")] for m in machines]
    lines += line("pairs that fuse", "", (exactly(sum(v > 0 for v in found), "", f"of {len(found)}") if found else None for found in fused))
    return lines


def core_lines(machines):
    lines = line("core clock", "GHz", (best(m.measured("clock.core", "GHz")) for m in machines))
    lines += line("TSC", "GHz", (best(m.measured("clock.tsc", "GHz")) for m in machines))
    for name, words in (("clock.rdtsc", "RDTSC"), ("clock.rdtscp", "RDTSCP")):
        lines += line(words, "cycles", (best(m.measured(name, "cycles"), min) for m in machines))
    lines += line("store forwarded, at best", "cycles", (best(of_verdict(m, "forwarded"), min) for m in machines))
    lines += line("store blocked, at worst", "cycles", (best(of_verdict(m, "blocked"), max) for m in machines))
    lines += line("4 KiB alias, at worst", "cycles", (best(m.measured("store.alias_4k", "cycles")) for m in machines))
    for name in ("split.load", "split.store"):
        borders = dict.fromkeys(str(parameters_of(row).get("border", "")) for m in machines for row in m.measured(name))
        for border in borders:
            lines += line(f"{name.removeprefix('split.')} {border_words(border)}", "cycles",
                          (best([row for row in m.measured(name, "cycles") if str(parameters_of(row).get("border", "")) == border])
                           for m in machines))
    lines += line("core to core, median", "ns", (middle(m.measured("core.transfer", "ns")) for m in machines))
    lines += line("core to core, at worst", "ns", (best(m.measured("core.transfer", "ns"), note=pair_words) for m in machines))
    lines += line("memory, idle", "ns", (best(m.measured("memory.loaded_latency", "ns"), min) for m in machines))
    lines += line("memory, most loaded", "ns", (best(m.measured("memory.loaded_latency", "ns"), note=load_words) for m in machines))
    return lines + counted_lines(machines)


def counted_lines(machines):
    """How far a machine's counters agree with the figures: where it has a PMU."""
    lines = []
    for name, words, of in (("check.instructions", "instructions as declared", "runs"), ("check.cycles", "cycles as by the TSC", "samples")):
        lines += line(words, "%", (share_of(m.measured(name), of) for m in machines))
    return lines + line("figures that counts contradict", "", (contradicted(m) for m in machines))


def share_of(found, of):
    n = sum(row.get("n") or 0 for row in found)
    return exactly(100 * sum(row["value"] * (row.get("n") or 0) for row in found) / n, "%", f"of {n} {of}") if n else None


def contradicted(machine):
    judged = [row["counts_agree"] for name, found in machine.rows.items() if not name.startswith("check.")
              for row in found if isinstance(row.get("counts_agree"), bool)]
    return exactly(judged.count(False), "", f"of {len(judged)}") if judged else None


def exactly(value, unit, note):
    """What was counted, and has no spread."""
    return Value(value, unit, value, value, note)


def of_verdict(machine, verdict):
    """The pairs of store and load of which the rows say this; all of them where no row says anything."""
    found = machine.measured("store.forwarding", "cycles")
    judged = [row for row in found if "verdict" in parameters_of(row)]
    return [row for row in judged if parameters_of(row)["verdict"] == verdict] if judged else found


def border_words(border):
    return {"none": "across no border", "line": "across two lines", "page": "across two pages"}.get(border, f"across {border}")


def middle(found):
    found = sorted(found, key=lambda row: row["value"])
    return value_of(found[len(found) // 2]) if found else None


def pair_words(row):
    parameters = parameters_of(row)
    return f"{parameters.get('from', '?')} to {parameters.get('to', '?')}"


def load_words(row):
    bandwidth = parameters_of(row).get("bandwidth")
    return f"at {bandwidth:.3g} GB/s" if is_number(bandwidth) else ""


def instruction_lines(machines):
    lines = []
    names = list(dict.fromkeys(str(parameters_of(row).get("instruction")) for m in machines for kind in ("latency", "throughput")
                               for row in m.measured(f"instruction.{kind}")))
    for name in names:
        for kind in ("latency", "throughput"):
            lines += line(f"{name}, {kind}", "cycles",
                          (best([row for row in m.measured(f"instruction.{kind}", "cycles")
                                 if str(parameters_of(row).get("instruction")) == name], min) for m in machines))
    return lines


def sheet(machines):
    """The Sections: the shape, then latency and bandwidth by level, branches, the core, instructions."""
    sections = shape_sections(machines)
    for title, lines in (("Latency of a load", latency_lines(machines)), ("Bandwidth, best kind", bandwidth_lines(machines)),
                         ("Branches", branch_lines(machines)), ("Core and its neighbours", core_lines(machines)),
                         (INSTRUCTIONS, instruction_lines(machines))):
        if lines:
            sections.append(Section(title, lines))
    return sections
