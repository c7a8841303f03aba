"""The page of one run or several: first what a newcomer must know, then everything that the rows hold."""

import re

from skidproof import rows
from skidproof.report import facts, machine_parts, tests
from skidproof.report.parts import (MEANINGS, REAL, SHOWN_STATUSES, Cell, Ids, badge, bullets, card, cards, clipped, code, contents,
                                    details,
                                    document, figure, machines_of, number, plural, provenance_kind, section, status_cell, table, text,
                                    warning)

MOST_RUNS = 12  # shown in full
FIRST_FAILURES = 5


def page(sources, plots, written, overview=()):
    """The HTML. `plots`: {id(run): [(machine, [Plot])]}; `overview`: plots over all runs; `written`: when, as text."""
    runs = [run for source in sources for run in source.runs]
    shown = shown_runs(runs)
    ids = Ids()
    for name in ("main", "theme"):
        ids.new(name)
    title = "Skidproof report" + (f" · {runs[0].name}" if len(runs) == 1 else f" · {len(runs)} runs" if runs else "")
    anchors = {id(run): ids.new(f"run{index + 1}") for index, run in enumerate(shown)}
    several = together(runs, overview, ids) if len(runs) > 1 else ""
    alone = overview if len(runs) == 1 else ()
    parts = {id(run): run_parts(run, [p for _, drawn in plots.get(id(run), []) for p in drawn] + list(alone), ids) for run in shown}
    if len(runs) == 1:
        lead = at_a_glance(runs[0], ids) + contents(parts[id(runs[0])][1])
    else:
        lead = over_runs(runs, anchors, ids) + contents([*several_entries(several),
                                                         *((anchors[id(run)], f"Run {run.name}") for run in shown)])
    body = [several]
    for run in shown:
        glance = at_a_glance(run, ids, 3) if len(runs) > 1 else ""
        body.append(run_section(run, anchors[id(run)], glance + parts[id(run)][0]))
    return document(title, problems_of(sources) + lead, "\n".join(body), written, ", ".join(s.path for s in sources))


def shown_runs(runs):
    """All in their order; of very many, those that did not hold and the first of the others."""
    if len(runs) <= MOST_RUNS:
        return runs
    chosen = {id(run) for run in sorted(runs, key=lambda run: judge(run)[0] not in ("fail", "error"))[:MOST_RUNS]}
    return [run for run in runs if id(run) in chosen]


def problems_of(sources):
    lines = [f"{code(clipped(s.path, 400))}: {text(clipped(p, 400))}" for s in sources for p in s.problems]
    if not lines:
        return ""
    shown = lines[:50] + ([f"and {len(lines) - 50:,} more"] if len(lines) > 50 else [])
    return warning("<b>Not everything could be read.</b>" + (bullets(shown) if len(lines) < 6 else
                                                            details(plural(len(lines), "line"), bullets(shown))))


# --------------------------------------------------------------------------------------------------------
# The first screen.

def judge(run):
    """(status, one sentence): what this run says of its machine."""
    counts = run.counts()
    held = counts["pass"] + counts["xpass"]
    if run.end is None or run.open_tests:
        return "error", "Cut short: nothing can be said of what did not run."
    if run.qualification:
        q = run.qualification
        if q["held"]:
            return "pass", (f"The suites held: every one of {number(q.get('defects', 0))} defects was caught, and no conforming model "
                            f"accused.")
        return "fail", f"The suites did not hold: {number(q.get('caught', 0))} of {number(q.get('defects', 0))} defects were caught."
    reproduced = [row["id"] for row in run.errata if row["observed"] == "reproduced"]
    if reproduced and not counts["fail"]:
        return "xfail", (f"{plural(len(reproduced), 'erratum', 'errata')} of {len(run.errata):,} reproduced: "
                         f"{', '.join(map(str, reproduced[:6]))}.")
    if run.fuzz:
        return ("pass", "No random case broke a promise.") if run.fuzz["held"] else ("fail", "A random case broke a promise.")
    if counts["fail"]:
        of = f" of {counts['fail'] + held:,} that were judged"
        return "fail", f"Not every promise held: {plural(counts['fail'], 'test')}{of} failed again and again."
    if counts["error"]:
        return "error", f"{plural(counts['error'], 'test')} could not be judged; no promise was seen broken."
    if held:
        return "pass", f"Every promise that could be tested held: {plural(held, 'test')} passed, none failed."
    if run.tests:
        return "skip", "Nothing was judged: no test both ran and compared anything."
    if run.errata:
        return "observed", f"{plural(len(run.errata), 'erratum', 'errata')} looked up, none reproduced."
    if run.measurements:
        return "observed", (f"Characterized: {plural(len(run.measurements), 'figure')} measured. Figures are no verdict; compare them "
                            f"over time.")
    return "skip", "The run holds no result."


def caveat(run):
    kinds = {provenance_kind(name, run.machine_row(name)) for name in machines_of(run)}
    said = []
    if kinds & {"MODEL", "VIRTUAL LAB"}:
        said.append("No silicon was asked: this is the model of a processor, which says whether the suites and the manual's reading agree.")
    if any(run.machine_row(name).get("defects") for name in machines_of(run)):
        said.append("The model is broken on purpose; failures are what was hoped for.")
    if "UNKNOWN" in kinds or not kinds:
        said.append("The rows do not say what kind of machine this was.")
    return f"<p>{' '.join(said)}</p>" if said else ""


def at_a_glance(run, ids, level=2):
    status, sentence = judge(run)
    bad = tests.failed(run)
    items = [f'{status_cell(t["status"])} {link_to(t, ids)}' for t in bad[:FIRST_FAILURES]]
    if len(bad) > FIRST_FAILURES:
        items.append(f"and {len(bad) - FIRST_FAILURES:,} more, below")
    missed = [defect for defect in run.defects if not defect["caught"]]
    items += [f"{status_cell('fail', 'missed')} {code(clipped(d['id'], 200))} {text(clipped(d.get('microarch', ''), 60))}"
              for d in missed[:FIRST_FAILURES]]
    if len(missed) > FIRST_FAILURES:
        items.append(f"and {len(missed) - FIRST_FAILURES:,} more, below")
    what = f"<h{level}>What did not hold</h{level}>" + bullets(items) if items else ""
    steps = next_steps(run, bad)
    if run.tests and not bad:
        what = f"<p>{status_cell('pass', 'No test failed.')}</p>"
    return (f'<div class="verdict {status}"><p>{status_cell(status, sentence)}</p><p>{" ".join(badges(run))}</p>{caveat(run)}{what}'
            f"<h{level}>What to do next</h{level}>{bullets(steps)}</div>{cut_short(run)}{run_cards(run)}{in_one_line(run)}")


def link_to(test, ids):
    name = ids.links.get(id(test))
    return f'<a href="#{name}">{code(clipped(test["id"], 300))}</a>' if name else code(clipped(test["id"], 300))


def next_steps(run, bad):
    steps = []
    machine = re.split("[+~]", (machines_of(run) or ["auto"])[0])[0]  # without its defect, its roughness
    if run.end is None or run.open_tests:
        steps.append(f"Look at what was running when it stopped, then go on: {code('skidproof run --resume DIR')}.")
    broken = [t for t in bad if t["status"] == "fail"]
    if broken:
        first = broken[0]
        steps.append(f"Read the first failure below, then run it again: {code(again(run, machine, first))}.")
        clauses = tests.clauses_of(first)
        if clauses:
            steps.append(f"What was promised: {code('skidproof explain ' + clipped(clauses[0], 60))}.")
    if any(not d["caught"] for d in run.defects):
        steps.append(f"A defect that nothing catches is a promise that nothing checks: {code('skidproof explain ID')} says what it breaks.")
    if any(t["status"] == "error" for t in bad):
        steps.append(f"An error is the harness's, not the processor's: {code('skidproof doctor')} says what is missing here.")
    if any(t["status"] == "skip" and t.get("skip_category") in ("no-pmu", "no-privilege") for t in run.tests):
        steps.append(f"Tests were skipped for want of access: {code('skidproof doctor')} names the command that mends it.")
    if run.tests and not bad:
        steps.append("See what was skipped, and why, before calling the processor good.")
    if not steps or not bad:
        steps.append(f"Keep it for comparison: {code('skidproof store add ' + shell_word(clipped(run.path, 200)))}; "
                     f"two results against one another: {code('skidproof compare A B')}.")
    return steps


def again(run, machine, test):
    words = ["skidproof run", "--machine", shell_word(machine)]
    for name in machines_of(run):
        for defect in run.machine_row(name).get("defects") or []:
            words += ["--defect", shell_word(str(defect))]
    return " ".join([*words, "--seed", str(test.get("seed", run.run.get("seed", 1))), "--filter", shell_word(clipped(test["id"], 200))])


def shell_word(words):
    plain = all(c.isalnum() or c in "_-./:+@=," for c in words)
    return words if plain and words else "'" + words.replace("'", "'\\''") + "'"


def badges(run):
    found = []
    for name in machines_of(run)[:20]:
        row = run.machine_row(name)
        found.append(f"{badge(provenance_kind(name, row))} {code(clipped(name, 200))}")
        if row.get("tape"):
            found.append(f'<span class="badge model">replay of {text(clipped(row["tape"], 200))}, not measured anew</span>')
        if row.get("defects"):
            found.append(f'<span class="badge broken">broken on purpose: {text(clipped(", ".join(map(str, defect_list(row))), 200))}'
                         f'</span>')
    return found


def defect_list(row):
    return row["defects"] if isinstance(row["defects"], list) else [row["defects"]]


def in_one_line(run):
    """What identifies the run and its machine."""
    words = []
    for row in run.machines[:4]:
        words += [row.get("brand") or row.get("vendor"),
                  f"family {row.get('family', '?')} model {row.get('model', '?')} stepping {row.get('stepping', '?')}",
                  f"microcode {row.get('microcode') or 'not readable'}", row.get("microarch"),
                  f"events of {row.get('event_list', '?')}, read from a file" if row.get("event_list_file") else "",
                  f"under {row['hypervisor']}" if row.get("hypervisor") else "", row.get("host")]
    for label, field in (("seed", "seed"), ("version", "version"), ("started", "started")):
        if field in run.run:
            words.append(f"{label} {run.run[field]}")
    shown = " · ".join(text(clipped(w, 300)) for w in words if w)
    command = " ".join(map(str, run.run.get("command", [])))
    return f'<p class="soft">{shown}' + (f"<br>{code(clipped(command, 1000))}" if command else "") + "</p>"


def cut_short(run):
    if run.end is not None and run.end["reason"] == "completed" and not run.open_tests and not run.open_measurements:
        return ""
    said = ("<b>This run was cut short:</b> it has no <code>end</code> row. What follows is what was on the disk."
            if run.end is None else f"<b>The run ended: {text(clipped(run.end['reason']))}.</b>")
    opened = [f"{code(clipped(s.get('id') or s['name'], 300))} had started and never finished" for s in run.open_tests
              + run.open_measurements]
    return warning(said + bullets(opened[:50]))


def run_cards(run):
    counts = run.counts()
    shown = [card(s, f"{counts[s]:,}", s, MEANINGS[s]) for s in SHOWN_STATUSES if run.tests and (counts[s] or s in ("pass", "fail"))]
    extra = [("measurements", len(run.measurements)), ("values compared", sum(t.get("comparisons", 0) for t in run.tests)),
             ("defects caught", f"{sum(d['caught'] for d in run.defects):,} of {len(run.defects):,}" if run.defects else 0)]
    shown += [card(label, f"{n:,}" if isinstance(n, int) else n) for label, n in extra if n]
    if run.end is not None:
        shown.append(card("exit code", run.end.get("exit", "?")))
        if "duration_s" in run.end:
            shown.append(card("duration", f"{run.end['duration_s']:.3g} s"))
    return cards(shown)


# --------------------------------------------------------------------------------------------------------
# Several runs.

def over_runs(runs, anchors, ids):
    judged = [(run, *judge(run)) for run in runs]
    bad = sum(status in ("fail", "error") for _, status, _ in judged)
    status = next((s for s in ("fail", "error", "pass", "observed", "skip") if any(j[1] == s for j in judged)), "skip")
    sentence = (f"{bad:,} of {len(runs):,} runs did not hold." if bad
                else f"All {len(runs):,} runs held, as far as they judge anything.") if runs else \
        "The files hold no run."
    lines = []
    for run, verdict, words in judged:
        counts = run.counts()
        name = code(clipped(run.name, 100))
        named = f'<a href="#{anchors[id(run)]}">{name}</a>' if id(run) in anchors else name
        lines.append((named, Cell(status_cell(verdict, words), rows.STATUSES.index(verdict)), " ".join(badges(run)), ending(run),
                      *(number(counts[s]) if run.tests else "" for s in SHOWN_STATUSES), number(len(run.measurements))))
    heads = ("run", "verdict", "machine", "end", *SHOWN_STATUSES, "measurements")
    left = len(runs) - len(anchors)
    more = f"<p>{left:,} runs that held are in this table alone; a report of their files shows them in full.</p>" if left else ""
    shown = table("The runs of this report", heads, lines, range(4, 5 + len(SHOWN_STATUSES)), wide=True) if runs else ""
    return f'<div class="verdict {status}"><p>{status_cell(status, sentence)}</p>{more}</div>{shown}'


def ending(run):
    if run.end is None:
        return status_cell("fail", "cut short: no end row")
    return text(clipped(f"{run.end['reason']}, exit {run.end.get('exit', '?')}", 200))


def together(runs, overview, ids):
    """What only several runs say: clause by machine, errata by machine."""
    body = "".join(figure(p.inline_svg(), p.title, p.caption, p.data, ids) for p in overview)
    return section("together", "All runs together", body + clause_by_machine(runs)) if body else ""


def several_entries(body):
    return [("together", "All runs together")] if body else []


def clause_by_machine(runs):
    columns = {}
    for run in runs:
        for name in machines_of(run):
            there = [t for t in run.tests if t["machine"] == name]
            if there:
                columns.setdefault(name, []).extend(there)
    if len(columns) < 2:
        return ""
    names = list(columns)[:40]
    counted = [tests.by_clause(columns[name]) for name in names]
    clauses = sorted(set().union(*counted), key=tests.clause_order)
    lines = []
    for place, clause in enumerate(clauses):
        verdicts = [tests.verdict_of(found.get(clause, {})) for found in counted]
        cells = [Cell(status_cell(v), rows.STATUSES.index(v)) if v else "" for v in verdicts]
        lines.append((Cell(code(clause), place), *cells))
    return table("Clause by machine: the worst verdict of its tests", ("clause", *names), lines, wide=True)


# --------------------------------------------------------------------------------------------------------
# One run.

def run_section(run, name, body):
    kinds = [provenance_kind(n, run.machine_row(n)) for n in machines_of(run)]
    silicon = kinds and all(kind in REAL for kind in kinds)
    return (f'<section class="run {"" if silicon else "model"}" aria-labelledby="{name}"><h2 id="{name}">Run '
            f'{text(clipped(run.name, 200))}</h2>'
            f"{body}</section>")


def run_parts(run, plots, ids):
    """(HTML, [(id, words)] for the contents) of all but the first screen."""
    entries, parts = [], []

    def add(words, body):
        if body:
            name = ids.new(words)
            entries.append((name, words))
            parts.append(section(name, text(words), body, 3))

    measured = [name for name in machines_of(run) if any(m["machine"] == name for m in run.measurements)]
    add("Shape of the machine", "".join(machine_parts.of_machine(run, name) for name in measured))
    add("Tests that did not hold", tests.failures(run, ids))
    add("Explained, disturbed, observed", tests.explained(run, ids) + tests.observed(run))
    add("Errata", facts.errata(run))
    add("Qualification", facts.qualification(run))
    add("Fuzzing", facts.fuzz(run))
    add("Figures", "".join(figure(p.inline_svg(), p.title, p.caption, p.data, ids) for p in plots))
    add("Instructions", "".join(machine_parts.instructions(run, name) for name in measured))
    add("Clauses", tests.clause_table(run))
    add("Skipped", tests.skips(run))
    add("All rows", facts.metadata(run) + tests.all_tests(run) + facts.measurements(run))
    return "\n".join(parts), entries
