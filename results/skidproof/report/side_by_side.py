"""The page of `skidproof characterize --compare`: the sheet of several machines, and their curves on one another."""

from skidproof.report import machine_parts, shape_figures
from skidproof.report.drawing import Everybody
from skidproof.report.parts import REAL, Ids, Sections, badge, bullets, card, cards, clipped, code, figure, plural, status_cell, text, warning


class Side(Everybody):
    """The subject of a plot over these machines alone: in doubt, not silicon."""

    def __init__(self, machines):
        super().__init__([machine.run for machine in machines])
        kinds = {machine.provenance for machine in machines}
        self.provenance = kinds.pop() if len(kinds) == 1 else "MIXED"
        self.machines = machines

    def label(self):
        return ", ".join(f"{m.letter} {m.name}" for m in self.machines[:6]) + (" …" if len(self.machines) > 6 else "")

    def origin(self):
        return plural(len(self.machines), "machine")


def page_of(machines, sections, written):
    """The HTML. `sections`: the sheet."""
    ids = Ids()
    parts = Sections(ids)
    parts.add("The machines", machine_parts.machine_table(machines))
    parts.add("Sheet", "".join(machine_parts.sheet_table(section, machines) for section in sections))
    plots = shape_figures.side_by_side(Side(machines), machines)
    parts.add("Curves on one another", "".join(figure(p.inline_svg(), p.title, p.caption, p.data, ids) for p in plots))
    return parts.page(f"{plural(len(machines), 'machine')} side by side", lead(machines, sections), written)


def lead(machines, sections):
    lines = [line for section in sections for line in section.lines]
    differing = [line for line in lines if line.differs]
    unclear = [fact for machine in machines for fact in machine.shape if fact.found.value is None]
    kinds = {machine.provenance for machine in machines}
    sentence = f"{plural(len(differing), 'figure')} of {len(lines):,} differ by more than the intervals allow." if len(machines) > 1 else \
        "One machine alone: nothing to compare it with."
    said = ""
    if len(kinds) > 1 and not kinds <= set(REAL):
        said = warning("<b>These are not all silicon:</b> what a model, a virtual lab or an unknown machine says is not what silicon does.")
    elif not kinds <= set(REAL):
        said = warning("<b>None of these is silicon.</b>")
    items = [f"<b>{text(m.letter)}</b> {badge(m.provenance)} {code(clipped(m.name, 100))} {text(clipped(', '.join(m.facts()), 200))}"
             for m in machines[:12]]
    if len(machines) > 12:
        items.append(f"and {len(machines) - 12:,} more, below")
    shown = [card(words, f"{count:,}") for words, count in (("machines", len(machines)), ("figures", len(lines)), ("differ", len(differing)),
                                                            ("sizes not clear", len(unclear)))]
    hint = "<p>The intervals are those of one run each; how far a figure moves from run to run, several runs of a machine show.</p>"
    return f'{said}<div class="verdict observed"><p>{status_cell("observed", sentence)}</p>{bullets(items)}{hint}</div>{cards(shown)}'
