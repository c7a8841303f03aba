"""Plots of a characterization: staircase, bandwidth, translation, forwarding, cores, branches, windows, code. Of one machine, or with
several on one another."""

import dataclasses

from skidproof import shape
from skidproof.report import measured_figures
from skidproof.report.curves import Heat, Line, Mark, Panel, draw_heats, draw_panels
from skidproof.report.drawing import CYCLE, INK, bytes_text
from skidproof.report.parts import REAL

# What ends on which curve, and what its mark is called.
MARKS = {
    "memory.latency": (("shape.l1d.size", "L1"), ("shape.l2.size", "L2"), ("shape.l3.size", "L3")),
    "bandwidth": (("shape.l1d.size", "L1"), ("shape.l2.size", "L2"), ("shape.l3.size", "L3")),
    "tlb.latency": (("shape.dtlb.reach", "data TLB"), ("shape.stlb.reach", "second-level TLB")),
    "branch.btb": (("shape.btb.reach", "reach"),), "branch.history": (("shape.history.length", "reach"),),
    "branch.pattern": (("shape.pattern.length", "reach"),),
    "branch.return_stack": (("shape.return_stack.depth", "depth"),), "branch.indirect": (("shape.indirect.targets", "reach"),),
    "code.footprint": (("shape.uop_cache.reach", "uop cache"),),
}
REACHES = (("branch.taken", "branches", "Taken branches"), ("branch.btb", "branches", "Branch targets (BTB)"),
           ("branch.history", "length", "Taken branches remembered"), ("branch.pattern", "length", "Length of a pattern"),
           ("branch.return_stack", "depth", "Depth of calls"),
           ("branch.indirect", "targets", "Targets of an indirect branch"), ("branch.alignment", "offset", "Offset in the code"))
# Curves that are differences: what is drawn, what 0 means.
DIFFERENCES = {"branch.history": ("more than at random", "0: no cheaper than at random")}
# Of which structure a filler's window is: words in the filler's name, by the first that fits.
WINDOWS = (("vector", "shape.vector_registers.size"), ("xmm", "shape.vector_registers.size"), ("ymm", "shape.vector_registers.size"),
           ("depend", "shape.scheduler.size"), ("sched", "shape.scheduler.size"), ("load", "shape.load_queue.size"),
           ("store", "shape.store_queue.size"), ("nop", "shape.rob.size"), ("add", "shape.int_registers.size"),
           ("mov", "shape.int_registers.size"), ("int", "shape.int_registers.size"))
FORWARDING = "Load after a store to the same bytes"
TRANSFER = "How long a cache line takes from one CPU to another, one way: the mean of both."
MOST_HEATS = 8


# ---- Lines ----

def parameter(row, key):
    value = shape.parameters_of(row).get(key)
    return value if shape.is_drawable(value) else None


def point(row, x):
    low, high = (row.get(key) for key in ("low", "high"))
    ok = shape.is_drawable(low) and shape.is_drawable(high) and low <= row["value"] <= high
    return (x, row["value"], low if ok else row["value"], high if ok else row["value"])


def label_words(key, value):
    shown = bytes_text(value) if key in ("bytes", "stride", "border") and shape.is_number(value) else str(value)
    return shown if key in ("kind", "page", "filler", "place", "order", "bytes") else f"{key.replace('_', ' ')} {shown}"


def order_of(value):
    """Numbers by size, also inside words."""
    words = "".join(c if c.isdigit() else " " for c in str(value)).split()
    return ("".join(c for c in str(value) if not c.isdigit()).replace("regular-", ""), [int(w) for w in words[:3]])


def lines_of(found, x, labels=None):
    """A Line for each combination of the other parameters, which names it by those that are not the same everywhere."""
    groups = {}
    for row in found:
        others = {k: v for k, v in (shape.rows.figure_parameters(row) or {}).items() if k != x and not isinstance(v, (dict, list))}
        if parameter(row, x) is not None:
            groups.setdefault(tuple(sorted((k, str(v)) for k, v in others.items())), (others, []))[1].append(row)
    values = {}
    for others, _ in groups.values():
        for key, value in others.items():
            values.setdefault(key, set()).add(str(value))
    told = [key for key in values if len(values[key]) > 1 or sum(key in o for o, _ in groups.values()) < len(groups)]
    lines = []
    for others, these in sorted(groups.values(), key=lambda group: [order_of(group[0].get(key, "")) for key in told]):
        words = ", ".join(label_words(key, others[key]) for key in told if key in others)
        lines.append(Line(words or "all", [point(row, parameter(row, x)) for row in these]))
    return lines


def marks_of(machine, kind):
    found = []
    for name, words in MARKS.get(kind, ()):
        for fact in machine.shape:
            if fact.name == name and fact.found.value and shape.is_drawable(fact.found.value):
                found.append(Mark(f"{words} {shape.value_text(fact.found)}", fact.found.value, fact.found.high))
    return tuple(found)


def marks_together(marked):
    """The marks of several machines, (letter, colour, marks) each: one where they found the same."""
    found = {}
    for letter, colour, marks in marked:
        for mark in marks:
            found.setdefault((mark.label, mark.x), []).append((letter, colour, mark))
    return tuple(Mark(f"{' '.join(letter for letter, _, _ in these)} {label}", x, max(m.beyond or x for _, _, m in these),
                      these[0][1] if len(these) == 1 else INK) for (label, x), these in found.items())


def of_unit(found, unit):
    return [row for row in found if row["unit"] == unit]


def units_of(found):
    return list(dict.fromkeys(row["unit"] for row in found))


def machine_of(subject):
    return shape.Machine(subject.run, subject.machine)


# ---- One machine ----

def draw_staircase(subject):
    return by_unit(subject, "memory.latency", "memory-latency", "Memory latency",
                   "Dependent loads through a random cycle; each step is a level of the memory hierarchy. Dashed: the sizes that were "
                   "inferred from it and from conflicts.", "bytes", "working set", "latency per load", "memory.latency", scale="bytes", log=True)


def by_unit(subject, name, file, title, caption, x, x_words, y_words, marks="", scale="log", log=False, but=""):
    """A plot for each unit of these rows but one: one wide panel."""
    found = [row for row in measured_figures.measured(subject, name) if parameter(row, x) is not None and row["unit"] != but]
    if scale != "linear":
        found = [row for row in found if parameter(row, x) > 0]
    plots, machine = [], machine_of(subject)
    for index, unit in enumerate(units_of(found)):
        items = of_unit(found, unit)
        panel = Panel("", x_words, f"{y_words} ({unit})", lines_of(items, x), marks_of(machine, marks), scale, log)
        plots.append(draw_panels(subject, file + (f"-{index + 1}" if index else ""), title, caption, [panel],
                                 items, 1, 3.4))
    return plots


def draw_bandwidth(subject):
    plots = []
    for stream, caption in (("load", "Streams of loads over a buffer, by the width of each."),
                            ("store", "Streams of stores over a buffer, regular, non-temporal and by string instruction."),
                            ("copy", "Copies from one buffer to another; bytes count once.")):
        plots += by_unit(subject, f"{stream}.bandwidth", f"{stream}-bandwidth", f"{stream.capitalize()} bandwidth", caption, "bytes", "buffer",
                         f"{stream} bandwidth", "bandwidth", scale="bytes", log=True, but="B/cycle")  # of few sizes
    return plots


def draw_strides(subject):
    return by_unit(subject, "memory.stride_latency", "stride-latency", "Latency by stride",
                   "Dependent loads this far apart: in order they show what the prefetchers foresee, at random what they do not.",
                   "stride", "stride", "latency per load", scale="bytes")


def draw_translation(subject):
    return by_unit(subject, "tlb.latency", "translation", "Cost of translation",
                   "What a load costs more where it needs so many pages; each step is the end of a TLB.", "pages", "pages in use",
                   "added per load", "tlb.latency")


def draw_conflicts(subject):
    found = measured_figures.measured(subject, "cache.conflict")
    groups = {}
    for row in found:
        if parameter(row, "lines") is not None:
            level = str(shape.parameters_of(row).get("level", "?"))
            groups.setdefault(level, []).append(row)
    panels = [Panel(level, "lines of one set", f"per load ({rows[0]['unit']})", lines_of(rows, "lines"), scale="linear")
              for level, rows in groups.items()]
    return [draw_panels(subject, "conflicts", "Conflicts in a set", "Lines that lie a stride apart fall into one set of a cache; more of them "
                        "than it has ways do not stay.", panels, found)] if panels else []


def draw_scaling(subject):
    panels, items = [], []
    for stream in shape.STREAMS:
        found = [row for row in measured_figures.measured(subject, f"scaling.{stream}") if parameter(row, "cpus")]
        items += found
        if found:
            panels.append(Panel(stream, "CPUs", f"all together ({found[0]['unit']})", lines_of(of_unit(found, found[0]["unit"]), "cpus"),
                                scale="linear", log=True))
    return [draw_panels(subject, "scaling", "Bandwidth of several CPUs", "The same stream on so many CPUs at once, each over a buffer of its own.",
                        panels, items, columns=3)] if panels else []


def draw_loaded(subject):
    found = [row for row in measured_figures.measured(subject, "memory.loaded_latency") if parameter(row, "bandwidth") is not None]
    if not found:
        return []
    panel = loaded_panel(found, Line("all", []))
    return [draw_panels(subject, "loaded-latency", "Loaded latency", "Latency of dependent loads while other CPUs move this much.",
                        [panel], found, 1, 3.0)]


def loaded_panel(found, alone):
    """Latency over bandwidth, a line for each number of streams where each was slowed down by several delays."""
    groups = {}
    for row in found:
        groups.setdefault(parameter(row, "streams"), []).append(row)
    if len(groups) == len(found):
        groups = {None: found}
    lines = [Line(alone.label if streams is None else f"{streams} streams", [point(row, parameter(row, "bandwidth")) for row in rows])
             for streams, rows in sorted(groups.items(), key=lambda g: g[0] or 0)]
    return Panel("", "bandwidth of the others (GB/s)", f"latency per load ({found[0]['unit']})", lines, scale="linear")


def forwarding_heats(found, prefix=""):
    """A heat map for each place and way of addressing: pairs of sizes by offset."""
    groups = {}
    for row in found:
        if None not in (parameter(row, "store_bytes"), parameter(row, "load_bytes"), parameter(row, "offset")):
            others = [str(shape.parameters_of(row)[key]) for key in ("place", "address") if key in shape.parameters_of(row)]
            groups.setdefault(", ".join(others), []).append(row)
    heats = []
    for words, here in groups.items():
        pairs = sorted({(parameter(row, "store_bytes"), parameter(row, "load_bytes")) for row in here})
        offsets = sorted({parameter(row, "offset") for row in here})
        cells = {(offsets.index(parameter(row, "offset")), pairs.index((parameter(row, "store_bytes"), parameter(row, "load_bytes")))):
                 row["value"] for row in here}
        heats.append(Heat(f"{prefix}{words}", "offset of the load from the store, bytes", "store → load, bytes",
                          [f"{o:g}" for o in offsets], [f"{s:g} → {q:g}" for s, q in pairs], cells))
    return heats


def draw_forwarding(subject):
    found = measured_figures.measured(subject, "store.forwarding")
    found = of_unit(found, units_of(found)[0]) if found else []
    heats = forwarding_heats(found)
    if not heats:
        return []
    return [draw_heats(subject, "store-forwarding", "Store-to-load forwarding", f"{FORWARDING}, by both sizes and by where the load begins in "
                       "it: dark is forwarded, light waits until the store is in the cache.", heats,
                       f"store and load ({found[0]['unit']})", found)]


def draw_stores(subject):
    """4 KiB aliases, and accesses across a border."""
    plots = by_unit(subject, "store.alias_4k", "alias-4k", "4 KiB aliases", "A load whose address agrees with an earlier store's in its low "
                    "twelve bits, this far beside it.", "offset", "offset, bytes", "added per load", scale="linear")
    found = [m for m in subject.measurements if m["name"] in ("split.load", "split.store")]
    return plots + measured_figures.draw_bars(subject, found, "splits", "Accesses across a border", "What an access costs that lies on both "
                                              "sides of a line's or a page's end.", split_label, "per access") if found else plots


def split_label(row):
    parameters = shape.parameters_of(row)
    return f"{row['name'].removeprefix('split.')} of {parameters.get('bytes', '?')} B {shape.border_words(str(parameters.get('border', '?')))}"


def transfer_heat(found, title=""):
    here = [row for row in found if None not in (parameter(row, "from"), parameter(row, "to"))]
    cpus = sorted({parameter(row, key) for row in here for key in ("from", "to")})
    place = {cpu: index for index, cpu in enumerate(cpus)}
    names = [f"{cpu:g}" for cpu in cpus]
    return Heat(title, "to CPU", "from CPU", names, names,
                {(place[parameter(row, "to")], place[parameter(row, "from")]): row["value"] for row in here}) if here else None


def draw_transfer(subject):
    plots = []
    found = measured_figures.measured(subject, "core.transfer")
    for index, unit in enumerate(units_of(found)):
        heat = transfer_heat(of_unit(found, unit))
        if heat:
            plots.append(draw_heats(subject, "core-to-core" + (f"-{index + 1}" if index else ""), "Core to core",
                                    TRANSFER, [heat], unit,
                                    of_unit(found, unit)))
    return plots


def draw_branches(subject):
    panels, items, machine = [], [], machine_of(subject)
    for name, key, title in REACHES:
        found = [row for row in measured_figures.measured(subject, name) if parameter(row, key) is not None]
        if found:
            found = of_unit(found, units_of(found)[0])
            items += found
            words, zero = DIFFERENCES.get(name, ("per branch", ""))
            panels.append(Panel(title, key, f"{words} ({found[0]['unit']})", lines_of(found, key), marks_of(machine, name),
                                "linear" if key == "offset" else "log", zero=zero))
    return [draw_panels(subject, "branch-reach", "Branch prediction", "What a branch costs as there is more to remember. Of taken branches "
                        "remembered, what one costs that goes as another so many before it, less what it costs at random: below 0 while that is "
                        "remembered. Dashed: how far it was found to reach.", panels, items)] if panels else []


def window_mark(machine, filler):
    name = next((shape_name for words, shape_name in WINDOWS if words in str(filler).lower()), None)
    facts = [fact for fact in machine.shape if fact.name == name and fact.found.value]
    return tuple(Mark(f"{shape.words_of(f.name)} {shape.value_text(f.found)}", f.found.value, f.found.high) for f in facts[:1])


def fillers_of(found):
    return list(dict.fromkeys(str(shape.parameters_of(row).get("filler", "")) for row in found if parameter(row, "count") is not None))


def of_filler(found, filler):
    return [row for row in found if str(shape.parameters_of(row).get("filler", "")) == filler and parameter(row, "count") is not None]


def draw_windows(subject):
    found, machine = measured_figures.measured(subject, "window.time"), machine_of(subject)
    panels = [Panel(filler, "instructions between two misses", f"time ({of_filler(found, filler)[0]['unit']})",
                    lines_of(of_filler(found, filler), "count"), window_mark(machine, filler), "linear") for filler in fillers_of(found)]
    return [draw_panels(subject, "windows", "Windows of the core", "Two loads that miss, with this many instructions between them: where the "
                        "second no longer fits in beside the first, both times add up.", panels, found)] \
        if panels else []


def draw_code(subject):
    return by_unit(subject, "code.footprint", "code-footprint", "Cost by code size", "A loop of so many bytes of code; each step is where "
                   "it leaves the uop cache, the L1 instruction cache, L2.", "bytes", "code", "per instruction", "code.footprint", scale="bytes")


# ---- Several machines on one another ----

def line_of_machine(machine, rows, x, place):
    return Line(machine_label(machine), [point(row, parameter(row, x)) for row in rows], CYCLE[place % len(CYCLE)],
                machine.provenance not in REAL)


def machine_label(machine):
    what = "" if machine.provenance in REAL else f" {machine.provenance}"
    return f"{machine.letter}{what} {machine.row.get('host') or machine.name}"


def overlaid(machines, title, name, x, x_words, y_words, unit, choose=lambda rows: rows, marks="", scale="log", log=False):
    """A Panel with a line a machine, or None."""
    lines, marked, items = [], [], []
    for place, machine in enumerate(machines):
        rows = [r for r in choose(machine.drawn(name, unit)) if parameter(r, x) is not None and (scale == "linear" or parameter(r, x) > 0)]
        if rows and rows[0]["unit"] == unit:
            lines.append(line_of_machine(machine, rows, x, place))
            items += of_machine(machine, rows)
            marked.append((machine.letter, CYCLE[place % len(CYCLE)], marks(machine) if callable(marks) else marks_of(machine, marks)))
    return Panel(title, x_words, f"{y_words} ({unit})", lines, marks_together(marked), scale, log, items) if lines else None


def of_machine(machine, rows):
    """The rows for a table of several machines."""
    return [row | {"parameters": {"machine": machine_label(machine), **shape.parameters_of(row)}} for row in rows]


def best_by_size(rows):
    """Of each footprint the best kind."""
    found = {}
    for row in rows:
        size = shape.size_of(row)
        if size and (size not in found or row["value"] > found[size]["value"]):
            found[size] = row
    return list(found.values())


def pages_of(machines):
    return sorted({str(shape.parameters_of(r).get("page", "")) for m in machines for r in m.drawn("memory.latency")},
                  key=lambda page: ("MiB" in page, "GiB" in page, page))


def all_of(machines, name, key):
    return list(dict.fromkeys(str(shape.parameters_of(r).get(key, "")) for m in machines for r in m.drawn(name)))


def with_value(key, value):
    return lambda rows: [row for row in rows if str(shape.parameters_of(row).get(key, "")) == value]


def side_by_side(subject, machines):
    """All plots over several machines."""
    plots = []

    def add(name, title, caption, panels, columns=2, height=2.7):
        panels = [panel for panel in panels if panel]
        if panels:
            plots.append(draw_panels(subject, name, title, caption, panels, [row for panel in panels for row in panel.items], columns, height,
                                     shared=len(panels) > 1))

    for unit, suffix in (("cycles", ""), ("ns", "-2")):
        add(f"latency{suffix}", f"Memory latency, {unit}", "Dependent loads through a random cycle, a line a machine.",
            [overlaid(machines, shape.page_words(page), "memory.latency", "bytes", "working set", "per load", unit,
                      with_value("page", page), "memory.latency", "bytes", True) for page in pages_of(machines)], 1, 3.2)
    add("bandwidth", "Bandwidth", "Of each footprint the best kind of stream, a line a machine.",
        [overlaid(machines, stream, f"{stream}.bandwidth", "bytes", "buffer", stream, "GB/s", best_by_size, "", "bytes", True)
         for stream in shape.STREAMS], 2)
    add("scaling", "Bandwidth of several CPUs", "The most that so many CPUs move together.",
        [overlaid(machines, stream, f"scaling.{stream}", "cpus", "CPUs", stream, "GB/s", best_by_cpus, "", "linear", True)
         for stream in shape.STREAMS], 3)
    add("loaded", "Loaded latency", "Latency while others move this much.",
        [overlaid(machines, "", "memory.loaded_latency", "bandwidth", "bandwidth of the others (GB/s)", "per load", "ns", scale="linear")], 1)
    add("translation", "Translation", "What a load costs more where it needs so many pages.",
        [overlaid(machines, "", "tlb.latency", "pages", "pages in use", "added per load", "cycles", marks="tlb.latency")], 1)
    panels = []
    for name, key, title in REACHES:
        for spacing in all_of(machines, name, "spacing"):
            words, zero = DIFFERENCES.get(name, ("per branch", ""))
            panel = overlaid(machines, title + (f", spacing {spacing}" if spacing else ""), name, key, key, words, "cycles",
                             with_value("spacing", spacing), name, "linear" if key == "offset" else "log")
            panels.append(panel and dataclasses.replace(panel, zero=zero))
    add("branches", "Branch prediction", "What a branch costs as there is more to remember.", panels)
    add("windows", "Windows of the core", "Two loads that miss, with this many instructions between them.",
        [overlaid(machines, filler, "window.time", "count", "instructions between two misses", "time", "cycles",
                  with_value("filler", filler), lambda m, filler=filler: window_mark(m, filler), "linear") for filler in all_of(machines, "window.time", "filler")])
    add("code", "Cost by code size", "A loop of so many bytes of code.",
        [overlaid(machines, "", "code.footprint", "bytes", "code", "per instruction", "cycles", marks="code.footprint", scale="bytes")], 1)
    found = [(m, m.drawn("store.forwarding", "cycles")) for m in machines]
    heats = [heat for m, rows in found for heat in forwarding_heats(rows, f"{machine_label(m)}: ")][:MOST_HEATS]
    if heats:
        plots.append(draw_heats(subject, "forwarding", "Store-to-load forwarding", f"{FORWARDING}: dark is forwarded.", heats, "cycles",
                                [row for m, rows in found for row in of_machine(m, rows)], 2))
    found = [(m, m.drawn("core.transfer", "ns")) for m in machines]
    heats = [heat for m, rows in found if (heat := transfer_heat(rows, machine_label(m)))][:MOST_HEATS]
    if heats:
        plots.append(draw_heats(subject, "core-to-core", "Core to core", TRANSFER, heats, "ns",
                                [row for m, rows in found for row in of_machine(m, rows)], 2))
    return plots


def best_by_cpus(rows):
    found = {}
    for row in rows:
        cpus = parameter(row, "cpus")
        if cpus is not None and (cpus not in found or row["value"] > found[cpus]["value"]):
            found[cpus] = row
    return list(found.values())


OF_A_MACHINE = (draw_staircase, draw_bandwidth, draw_strides, draw_translation, draw_conflicts, draw_scaling, draw_loaded, draw_transfer,
                draw_forwarding, draw_stores, draw_branches, draw_windows, draw_code)
