"""The page of a comparison of two runs, or two sets of runs: what differs, by how much, how surely; and what could not have been seen."""

import datetime

from skidproof.report import spark
from skidproof.report.parts import (REAL, Cell, Ids, Sections, badge, bullets, card, cards, clipped, code, date, details, figure, number,
                                    plural, status_cell, table, text, warning)
from skidproof.report.stored import figure_words, json_of, kind_of, moment, parameters_words, records, value

MOST_DRAWN = 40
KINDS = {"worse": ("fail", "worse"), "better": ("pass", "better"), "erratum": ("xfail", "an erratum's"),
         "disturbed": ("disturbed", "disturbed"),
         "coverage": ("skip", "run on one side only"), "other": ("observed", "differs")}


def comparison_page(comparison, written=None):
    """The HTML of a skidproof.compare.Comparison."""
    written = written or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    figures, verdicts = records(comparison.figures), records(comparison.verdicts)
    ids = Ids()
    sections = Sections(ids)
    sections.add("Figures side by side", forest(comparison, figures, ids))
    sections.add("Verdicts that differ", verdict_table(verdicts))
    sections.add("The two sides", sides(comparison))
    sections.add("All figures", figure_table(figures))
    title = f"{clipped(comparison.a.name, 80)} against {clipped(comparison.b.name, 80)}"
    return sections.page(title, lead(comparison, figures, verdicts), written)


def side_words(side):
    return badge(kind_of({"machine": side.machine, "provenance": side.provenance})) + " " + code(clipped(side.machine, 200))


def lead(comparison, figures, verdicts):
    differing = [row for row in figures if row["differs"]]
    moved = {way: sum(row.get("direction") == way for row in differing) for way in ("worse", "better")}
    weighty = [row for row in verdicts if row.get("kind") in ("worse", "better")]
    common = comparison.common or {}
    if comparison.worse:
        status, sentence = "fail", "They differ, and not only for the better."
    elif differing or weighty or common.get("differs"):
        status, sentence = "pass", "They differ for the better alone."
    else:
        status, sentence = "pass", f"No difference was found in {plural(len(figures), 'figure')} and the verdicts."
    said = [text(clipped(w, 600)) for w in ([common["words"]] if common.get("words") else []) + list(comparison.notes)]
    kinds = [kind_of({"machine": side.machine, "provenance": side.provenance}) for side in (comparison.a, comparison.b)]
    if kinds[0] != kinds[1]:
        said.insert(0, "<b>The two sides are of different kinds:</b> a difference between a model and silicon says nothing of a change.")
    elif kinds[0] not in REAL:
        said.insert(0, "Neither side is silicon.")
    seen = sorted(row["detectable"] for row in figures if value(row, "detectable", None) is not None)
    if seen:
        said.append(f"Half of the figures would have shown a change of {100 * seen[len(seen) // 2]:.2g} %; "
                    f"one of ten needs {100 * seen[min(len(seen) * 9 // 10, len(seen) - 1)]:.2g} % or more.")
    said.append(f"Of the figures called different, {100 * comparison.rate:.2g} % may be chance.")
    top = [f"{status_cell('fail' if row.get('direction') != 'better' else 'pass', row.get('direction') or 'differs')} "
           f"{code(figure_words(row))}: "
           f"{text(relative_words(row))}" for row in differing[:5]]
    top += [f"{status_cell(*KINDS.get(row.get('kind'), KINDS['other']))} {code(clipped(row['id'], 200))}: {text(row['a'])} → "
            f"{text(row['b'])}" for row in weighty[:5]]
    left = len(differing) + len(weighty) - len(top)
    if left > 0:
        top.append(f"and {left:,} more, below")
    problems = [f"{code(clipped(side.name, 200))}: {text(clipped(p, 300))}" for side in (comparison.a, comparison.b) for p in side.problems]
    shown = [card(words, f"{n:,}") for words, n in (("figures compared", len(figures)), ("differ", len(differing)),
                                                    ("worse", moved["worse"]),
             ("better", moved["better"]), ("verdicts that differ", len(verdicts)))]
    what = f"<h2>What differs</h2>{bullets(top)}" if top else ""
    return ((warning("<b>Not everything could be read.</b>" + bullets(problems[:50])) if problems else "")
            + f'<div class="verdict {status}"><p>{status_cell(status, sentence)}</p><p>A: {side_words(comparison.a)} · B: '
              f'{side_words(comparison.b)}</p>'
            f"{''.join(f'<p>{words}</p>' for words in said)}{what}</div>{cards(shown)}")


def relative_words(row):
    """"+5.1 % (4.6 to 5.5)" of B against A; without a ratio, the difference itself."""
    shares = [value(row, name, None) for name in ("relative", "relative_low", "relative_high")]
    if shares[0] is not None:
        inside = f" ({100 * shares[1]:+.3g} to {100 * shares[2]:+.3g})" if None not in shares else ""
        return f"{100 * shares[0]:+.3g} %{inside}"
    effect = value(row, "effect", None)
    return "" if effect is None else f"{effect:+.4g} {value(row, 'unit')}"


def forest(comparison, figures, ids):
    shown = [row for row in figures if value(row, "relative", None) is not None]
    if not shown:
        return ""
    called = [row for row in shown if row["differs"]]
    called.sort(key=lambda row: -abs(row["relative"]))
    chosen = (called + [row for row in shown if not row["differs"]])[:MOST_DRAWN]
    lines = [(figure_words(row), *(100 * v if (v := value(row, name, None)) is not None else None
                                   for name in ("relative", "relative_low", "relative_high")),
              bool(row["differs"])) for row in chosen]
    kinds = " / ".join(dict.fromkeys(kind_of({"machine": s.machine, "provenance": s.provenance}) for s in (comparison.a, comparison.b)))
    caption = (f"B against A ({kinds}), with 95 % intervals. Orange-red with ●: called different, after a correction for looking at "
               f"{len(figures):,} figures. "
               f"{plural(len(called), 'figure')} called"
               + (f"; the {len(chosen)} shown are the largest of these, then the nearest to being called."
                                                             if len(shown) > len(chosen) else "."))
    return figure(spark.forest(lines), "Effects", caption, figure_data(chosen), ids)


HEADS = ("figure", "parameters", "B against A", "verdict", "A", "B", "unit", "runs", "q", "would have shown")


def figure_data(figures):
    lines = []
    for row in figures:
        way = row.get("direction") or "differs"
        said = status_cell("pass" if way == "better" else "fail",
                           way) if row["differs"] else '<span class="soft">no difference found</span>'
        detectable = value(row, "detectable", None)
        lines.append((code(clipped(row["name"], 200)), text(clipped(parameters_words(value(row, "parameters")), 200)),
                      Cell(text(relative_words(row)), value(row, "relative", None)), Cell(said, 0 if row["differs"] else 1),
                      number(value(row, "a", None), 5),
                      number(value(row, "b", None), 5), text(clipped(row["unit"], 40)),
                      f"{number(value(row, 'runs_a', None))} / {number(value(row, 'runs_b', None))}",
                      Cell(number(value(row, "q", None), 2), value(row, "q", None)), f"{100 * detectable:.2g} %" if detectable is not None
                      else ""))
    return HEADS, lines, (2, 4, 5, 8, 9)


def figure_table(figures):
    heads, lines, numeric = figure_data(figures)
    return table("All figures of both sides, those that differ first", heads, lines, numeric, wide=True) if lines else ""


def verdict_table(verdicts):
    lines = []
    for row in verdicts:
        status, words = KINDS.get(row.get("kind"), KINDS["other"])
        clauses = json_of(row.get("clauses"))
        clauses = " ".join(map(str, clauses)) if isinstance(clauses, (list, tuple)) else str(clauses or "")
        lines.append((code(clipped(row["id"], 300)), status_cell(status, words), text(clipped(row["a"], 200)), text(clipped(row["b"], 200)),
                      Cell(number(value(row, "q", None), 2), value(row, "q", None)), text(clipped(value(row, "erratum"), 60)),
                      text(clipped(clauses, 200))))
    return table("Tests whose verdicts differ", ("test", "what", "A", "B", "q", "erratum", "clauses"), lines, (4,),
                 wide=True) if lines else ""


def sides(comparison):
    a, b = comparison.a, comparison.b
    lines = [("machine", side_words(a), side_words(b), "")]
    for fact in dict.fromkeys([*a.facts, *b.facts]):
        here, there = (", ".join(str(v) for v in side.facts.get(fact, []) if v not in (None, "")) for side in (a, b))
        if here or there:
            lines.append((text(fact), text(clipped(here, 300)), text(clipped(there, 300)), status_cell("observed", "differs")
                          if here != there else ""))
    shown = table("What is known of both", ("fact", "A", "B", "differs"), lines, sortable=False)
    for name, side in (("A", a), ("B", b)):
        runs = [(code(clipped(run, 200)), date(moment(when))) for run, when in zip(side.runs, side.started)]
        shown += details(f"Runs of {name}, {text(clipped(side.name, 200))} ({len(runs):,})",
                         table(f"Runs of {name}", ("run", "started"), runs))
    return shown
