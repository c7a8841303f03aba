"""The page of a fleet: each machine's last night, what does not hold where, errata by machine, what changed last, flaky tests."""

import datetime
import glob

from skidproof import rows
from skidproof.report.history import flaky_of
from skidproof.report.parts import (BADGES, SHOWN_STATUSES, Cell, Ids, Sections, badge, bullets, card, cards, clipped, code, date,
                                    details, number, plural, status_cell, table, text)
from skidproof.report.stored import (RANK, attributed_words, effect_words, figure_words, json_of, kind_of, machine_words, moment, night,
                                     records, value)
from skidproof.report.tests import clause_order

WEIGHTY = ("fail", "error", "disturbed", "xfail")  # what the clause matrix shows
MOST_MACHINES = 150   # whose verdicts are asked for, the worst first
MOST_CLAUSES = 40
MOST_ERRATA = 40
MOST_CHANGES = 2000
MOST_WATCHED = 8      # machines whose verdicts are searched for flaky tests
LATE_DAYS = 2         # a machine whose last night is so much older than the fleet's newest was not seen


def fleet_page(store, link=None):
    """The HTML of all subjects of an open store. `link`: a function from a subject's number to the address of its history, for who
    serves the pages side by side."""
    subjects = records(store.fleet())
    bad = last_verdicts(store, sorted((s for s in subjects if weight(s)), key=lambda s: -weight(s))[:MOST_MACHINES])
    return page_of(subjects, bad, clauses_of(store) if bad else {}, latest_errata(store.errata()), records(store.change_points()),
                   flaky_tests(store, subjects), link=link)


def page_of(subjects, bad, clauses, errata, changes, flaky, written=None, link=None):
    """The HTML. `bad`: {subject: [(test, status)]} of last nights; `clauses`: {test: [clause]}; the others are lists of mappings."""
    written = written or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    ids = Ids()
    sections = Sections(ids)
    sections.add("Machines", machines(subjects, link))
    sections.add("Clauses that did not hold", clause_matrix(subjects, bad, clauses))
    sections.add("Errata by machine", errata_summary(errata) + errata_matrix(errata))
    sections.add("Newest changes", newest(changes))
    sections.add("Flaky tests", flaky_table(flaky))
    return sections.page("Fleet", lead(subjects, errata, changes, flaky), written)


def weight(subject):
    return sum(w * (value(subject, s, 0) or 0) for s, w in zip(WEIGHTY, (10**6, 10**4, 1, 1)))


def verdict_of(subject):
    """The status that stands for the machine's last night."""
    for status in ("fail", "error"):
        if value(subject, status, 0):
            return status
    return "pass" if value(subject, "pass", 0) or value(subject, "xpass", 0) else "skip" if value(subject, "skip", 0) else "observed"


# --------------------------------------------------------------------------------------------------------
# What is asked of the store.

def last_verdicts(store, subjects):
    """{subject: [(test, status)]}: what weighs in the last night of each of them."""
    found = {}
    for subject in subjects:
        seen = []
        for status in WEIGHTY:
            if value(subject, status, 0):
                frame, _ = store.query("tests", machine=glob.escape(str(subject["host"])), run=subject["last_run"], status=status,
                                       limit=2000)
                seen += [(row["test"], status) for row in records(frame) if row["machine"] == subject["machine"]
                         and value(row, "core_type") == value(subject, "core_type")]
        found[subject["subject"]] = seen
    return found


def clauses_of(store):
    """{test: [clause]}."""
    from skidproof.store import schema
    from sqlalchemy import select
    with store.engine.connect() as connection:
        found = connection.execute(select(schema.tests.c.id, schema.tests.c.clauses)).all()
    return {name: [str(clause) for clause in json_of(clauses) or []] for name, clauses in found}


def latest_errata(frame):
    """Of each machine and erratum the newest row."""
    if frame is None or not len(frame):
        return []
    keys = [name for name in ("host", "machine", "core_type", "id") if name in frame]
    return records(frame.drop_duplicates(keys, keep="last"))


def flaky_tests(store, subjects):
    """(machine, row of trends.flaky) of the machines that now and then have a night that fails."""
    from skidproof.store import schema
    from sqlalchemy import case, func, select
    nights = schema.run_subjects.c
    odd = func.sum(case((nights.fail + nights.error > 0, 1), else_=0))
    question = select(nights.subject, odd.label("odd"), func.count().label("nights")).group_by(nights.subject).having(odd > 0)
    with store.engine.connect() as connection:
        found = sorted(connection.execute(question).all(), key=lambda row: (row.odd == row.nights, -row.odd))[:MOST_WATCHED]
    named = {subject["subject"]: subject for subject in subjects}
    lines = []
    for subject, _, _ in found:
        if subject in named:
            lines += [(named[subject], row) for row in records(flaky_of(store.verdicts(subject), store.facts(subject)))]
    return lines


# --------------------------------------------------------------------------------------------------------
# The parts of the page.

def machine_cell(subject):
    return code(machine_words(subject))


def machines(subjects, link=None):
    there = [s for s in SHOWN_STATUSES if any(value(subject, s, 0) for subject in subjects)]
    lines = []
    for subject in sorted(subjects, key=lambda s: (-weight(s), str(value(s, "host")), str(value(s, "machine")))):
        verdict, kind = verdict_of(subject), kind_of(subject)
        named = machine_cell(subject)
        if link:
            named = f'<a href="{text(link(subject["subject"]))}">{named}</a>'
        lines.append((named, Cell(status_cell(verdict), RANK[verdict]), badge(kind),
                      text(clipped(value(subject, "microarch"), 60)),
                      text(clipped(value(subject, "microcode"), 60)), text(clipped(value(subject, "os"), 80)),
                      Cell(date(moment(value(subject, "last_started", None))), moment(value(subject, "last_started", None))),
                      *(number(value(subject, s, None)) for s in there), number(value(subject, "change_points", None)),
                      number(value(subject, "errata_reproduced", None)), number(value(subject, "runs", None))))
    heads = ("machine", "last night", "what it is", "microarch", "microcode", "kernel", "started", *there, "changes", "errata shown",
             "nights")
    return table("Machines, those whose last night did not hold first", heads, lines, range(7, 10 + len(there)), wide=True) if lines else ""


def clause_matrix(subjects, bad, clauses):
    """Clause × machine, of what did not hold: where everything held there is nothing to look up."""
    seen, machines_of_clause = {}, {}
    for subject, found in bad.items():
        for test, status in found:
            for clause in clauses.get(test) or ["no clause"]:
                before = seen.setdefault(subject, {}).get(clause, "xfail")
                seen[subject][clause] = min(before, status, key=RANK.get)
                machines_of_clause.setdefault(clause, set()).add(subject)
    if not seen:
        held = status_cell("pass", "Every clause held in the last night of every machine, as far as it could be tested.")
        return f"<p>{held}</p>" if subjects else ""
    chosen = sorted(sorted(machines_of_clause, key=lambda c: -len(machines_of_clause[c]))[:MOST_CLAUSES], key=clause_order)
    named = {subject["subject"]: subject for subject in subjects}
    lines = [(machine_cell(named[subject]), *(Cell(status_cell(found[c]), RANK[found[c]]) if c in found else "" for c in chosen))
             for subject, found in seen.items()]
    left = len(machines_of_clause) - len(chosen)
    said = f"<p>{plural(len(subjects) - len(seen), 'machine')} had nothing of this in the last night." + (
        f" The {len(chosen)} clauses that did not hold on most machines are shown, {left:,} others are not.</p>" if left else "</p>")
    return said + table("Clause by machine: what did not hold in the last night", ("machine", *chosen), lines, wide=True)


SIGNS = {"reproduced": "fail", "not-reproduced": "pass", "error": "error", "not-run": "skip"}


def errata_summary(errata):
    by_id = {}
    for row in errata:
        by_id.setdefault(row["id"], []).append(row)
    lines = []
    for name, found in by_id.items():
        reproduced = [row for row in found if row["observed"] == "reproduced"]
        odd = [row for row in found if value(row, "contradiction", False)]
        listed = sum(row["listed"] == "affected" for row in found)
        if not (reproduced or odd or listed):
            continue
        where = reproduced or odd
        hosts = ", ".join(dict.fromkeys(machine_words(row) for row in where[:200]))
        shown = text(hosts) if len(where) < 3 else details(plural(len(where), "machine"), f"<p>{text(hosts)}</p>")
        lines.append((code(clipped(name, 60)), number(listed),
                      Cell(status_cell("fail", f"{len(reproduced):,}") if reproduced else "0", len(reproduced)),
                      number(sum(row["observed"] == "not-reproduced" for row in found)), number(len(odd)),
                      text(clipped(value(found[0], "title"), 300)), shown))
    lines.sort(key=lambda line: -line[2].order)
    heads = ("erratum", "listed on", "reproduced on", "tried in vain on", "contradictions", "what it is", "where it shows")
    return table("Errata over the fleet", heads, lines, (1, 2, 3, 4), wide=True) if lines else ""


def errata_matrix(errata):
    shown = [row for row in errata if row["observed"] in ("reproduced", "error") or value(row, "contradiction", False)]
    counts = {}
    for row in shown:
        counts[row["id"]] = counts.get(row["id"], 0) + 1
    chosen = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_ERRATA]
    by_machine = {}
    for row in errata:
        by_machine.setdefault(machine_words(row), {})[row["id"]] = row
    lines = []
    for machine, found in by_machine.items():
        if not any(name in found and found[name] in shown for name in chosen):
            continue
        lines.append((code(machine), *(erratum_cell(found.get(name)) for name in chosen)))
    return table("Errata by machine, where one shows", ("machine", *chosen), lines, wide=True) if lines else ""


def erratum_cell(row):
    if row is None:
        return ""
    status = SIGNS.get(row["observed"], "skip")
    listed = " L" if row["listed"] == "affected" else ""
    odd = " <b>!</b>" if value(row, "contradiction", False) else ""
    return Cell(status_cell(status, row["observed"]) + (f'<abbr title="listed as affected">{listed}</abbr>' if listed else "") + odd,
                RANK.get(status, 9))


def newest(changes):
    found = sorted(changes, key=lambda row: str(value(row, "started")), reverse=True)[:MOST_CHANGES]
    lines = [(code(machine_words(row)), code(figure_words(row)), date(night(value(row, "started", None))),
              number(value(row, "before", None), 5),
              number(value(row, "after", None), 5), text(clipped(value(row, "unit"), 40)), text(effect_words(row)),
              text(clipped(attributed_words(row.get("attributed")), 300))) for row in found]
    heads = ("machine", "figure", "since", "before", "after", "unit", "effect", "together with")
    return table("Figures that changed, newest first", heads, lines, (3, 4), wide=True) if lines else ""


def flaky_table(flaky):
    lines = []
    for subject, row in flaky[:1000]:
        rate = value(row, "rate", None)
        lines.append((code(clipped(value(row, "id", "?"), 300)), machine_cell(subject), Cell(f"{100 * rate:.3g} %", rate)
                      if rate is not None else "",
                      number(value(row, "nights", None))))
    return table("Tests that fail now and then", ("test", "machine", "fails in", "nights"), lines, (2, 3)) if lines else ""


def lead(subjects, errata, changes, flaky):
    if not subjects:
        return (f'<div class="verdict skip"><p>{status_cell("skip", "The store holds no machine.")}</p><p>Fill it: '
                f'{code("skidproof store add FILE")}.</p></div>')
    verdicts = [verdict_of(subject) for subject in subjects]
    count = {status: verdicts.count(status) for status in rows.STATUSES}
    newest_night = max(night(value(s, "last_started", None)) for s in subjects)
    late = [s for s in subjects if late_by(s, newest_night) > LATE_DAYS]
    status = next(s for s in ("fail", "error", "pass", "observed", "skip") if count[s])
    said = {"fail": f"On {count['fail']:,} of {plural(len(subjects), 'machine')} a promise was broken in the last night.",
            "error": f"On {plural(count['error'], 'machine')} something could not be judged; none was seen to break a promise."}
    sentence = said.get(status, f"No promise was broken in the last night of {plural(len(subjects), 'machine')}.")
    kinds = {kind: sum(kind_of(s) == kind for s in subjects) for kind in BADGES}
    steps = [f"{plural(len(late), 'machine')} not seen since {LATE_DAYS} days before the newest night ({text(newest_night)}): "
             + ", ".join(code(machine_words(s)) for s in late[:5]) + (" …" if len(late) > 5 else "")] if late else []
    worst = sorted((s for s in subjects if verdict_of(s) in ("fail", "error")), key=lambda s: -weight(s))[:5]
    steps += [f"{status_cell(verdict_of(s))} {machine_cell(s)}: "
              f"{code('skidproof report --store … --machine ' + machine_words(s).split(' ')[0])}" for s in worst]
    shown = [card("machines", f"{len(subjects):,}")] + [card(f"machines: {s}", f"{count[s]:,}", s) for s in SHOWN_STATUSES if count[s]]
    shown += [card(words, f"{n:,}") for words, n in (("changes of figures", len(changes)), ("flaky tests", len(flaky)),
              ("errata reproduced", len({r["id"] for r in errata if r["observed"] == "reproduced"}))) if n]
    badges = " ".join(f"{badge(kind)} {n:,}" for kind, n in kinds.items() if n)
    return (f'<div class="verdict {status}"><p>{status_cell(status, sentence)}</p><p>{badges}</p><p>Newest night: {text(newest_night)}.</p>'
            f"<h2>Where to look first</h2>{bullets(steps or ['Nothing needs a look: see what changed, below.'])}</div>{cards(shown)}")


def late_by(subject, newest_night):
    try:
        return (datetime.date.fromisoformat(newest_night) - datetime.date.fromisoformat(night(value(subject, "last_started", None)))).days
    except ValueError:
        return 0
