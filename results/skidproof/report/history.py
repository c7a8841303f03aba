"""The page of one machine's history: what changed and when, every figure's course, the verdicts that were not always the same."""

import datetime

from skidproof import rows
from skidproof.report import spark
from skidproof.report.parts import (REAL, SHOWN_STATUSES, Cell, Ids, Sections, badge, bullets, card, cards, clipped, code, date, details,
                                    figure, number, plural, status_cell, table, text)
from skidproof.report.stored import (RANK, attributed_words, effect_words, figure_words, kind_of, machine_words, moment, night,
                                     parameters_words, plain,
                                     records, value)

FACTS = ("microcode", "os", "bios", "version", "hypervisor")
MOST_TRENDS = 12
MOST_STRIPS = 60


def history_page(store, subject):
    """The HTML of `subject`'s history out of an open store."""
    facts = store.facts(subject)
    about = {"subject": subject, **named(store, subject)}
    if len(facts):
        about |= {name: plain(facts[name].iloc[-1]) for name in ("provenance", "microarch")}
    verdicts = store.verdicts(subject)
    return page_of(about, facts, store.history(subject), store.change_points(subject), verdicts, flaky_of(verdicts, facts))


def named(store, subject):
    """host, machine and core_type of a subject: store.subjects() looks at every night of the fleet for more than that."""
    from skidproof.store import schema
    from sqlalchemy import select
    with store.engine.connect() as connection:
        found = connection.execute(select(schema.subjects).where(schema.subjects.c.subject == subject)).first()
    return dict(found._mapping) if found else {}


def flaky_of(verdicts, facts):
    """The flaky tests among the verdicts of one machine (trends.flaky), as a frame; None where nothing ever failed."""
    if not len(verdicts) or not verdicts["status"].isin(("fail", "error")).any():
        return None
    from skidproof import trends  # scipy takes half a second to load
    nights = [{"run": row["run"], **{fact: value(row, fact) for fact in FACTS}} for row in records(facts)]
    found = trends.flaky(verdicts, nights)
    return found[found.kind == "flaky"]


def page_of(about, facts, history, changes, verdicts, flaky=None, written=None):
    """The HTML from the store's frames (`about` is a mapping, `flaky` may be None)."""
    written = written or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    nights = Nights(facts)
    figures = figures_of(history, changes, nights)
    changed = [f for f in figures if f.changes]
    tests = Verdicts(verdicts, nights)
    ids = Ids()
    banner = f"{'SILICON' if kind_of(about) == 'SILICON' else badge_words(about)} · {machine_words(about)}"
    sections = Sections(ids)
    for one in changed[:MOST_TRENDS]:  # their names are known before the table that links to them
        one.anchor = f"figure-{slug_of(ids, one)}"
    sections.add("Figures over time", overview(figures, nights))
    sections.add("Figures that changed", trends_part(changed, nights, banner, ids))
    sections.add("Verdicts that changed", tests.strips())
    sections.add("Flaky tests", flaky_part(flaky))
    sections.add("What changed on the machine", facts_part(nights))
    sections.add("All values and nights", every_value(figures, nights) + all_nights(nights))
    title = f"History of {machine_words(about)}"
    return sections.page(title, lead(about, nights, figures, changed, tests, flaky, title), written)


def slug_of(ids, one):
    name = ids.new(f"figure-{one.words}")
    ids.taken.discard(name)
    return name.removeprefix("figure-")


def badge_words(about):
    return {"MODEL": "MODEL — not silicon", "VIRTUAL LAB": "VIRTUAL LAB — not silicon",
            "NATIVE": "NATIVE — silicon, by its TSC"}.get(kind_of(about), "UNKNOWN")


class Nights:
    """The subject's runs in order, and where each stands."""

    def __init__(self, facts):
        self.rows = records(facts)
        self.rows.sort(key=lambda row: str(value(row, "started")))
        self.index = {row["run"]: i for i, row in enumerate(self.rows)}
        self.labels = [night(value(row, "started", None)) for row in self.rows]
        self.marks = []  # (index, fact, before, after)
        for i in range(1, len(self.rows)):
            for fact in FACTS:
                before, after = (str(value(self.rows[j], fact)) for j in (i - 1, i))
                if before != after:
                    self.marks.append((i, fact, before, after))

    def __len__(self):
        return len(self.rows)


class Figure:
    """One figure's course: by night (value, low, high), with its changes."""

    def __init__(self, about, nights):
        self.about, self.words, self.anchor = about, figure_words(about), ""
        self.unit = str(value(about, "unit"))
        self.points = [(None, None, None)] * nights
        self.changes = []  # (index, mapping)

    def last(self):
        return next((point[0] for point in reversed(self.points) if point[0] is not None), None)


def figures_of(history, changes, nights):
    """All figures, those with the newest changes first."""
    found = {}
    if history is not None and len(history):
        columns = [history[name].tolist() for name in ("figure", "run", "value", "low", "high")]
        heads = history.drop_duplicates("figure")
        for row in records(heads[[c for c in ("figure", "name", "unit", "statistic", "parameters") if c in heads]]):
            found[row["figure"]] = Figure(row, len(nights))
        for name, run, *numbers in zip(*columns):
            if run in nights.index:
                found[name].points[nights.index[run]] = tuple(plain(v) for v in numbers)
    for change in records(changes):
        one = found.get(change["figure"])
        if one and change.get("after_run") in nights.index:
            one.changes.append((nights.index[change["after_run"]], change))
    for one in found.values():
        one.changes.sort(key=lambda pair: pair[0])
    return sorted(found.values(), key=lambda one: (-one.changes[-1][0] if one.changes else 1, one.words))


def overview(figures, nights):
    lines = []
    for one in figures:
        newest = one.changes[-1] if one.changes else None
        when = nights.labels[newest[0]] if newest else ""
        said = f"{one.words}: {len(one.changes)} changes" if newest else f"{one.words}: no change found"
        name = code(clipped(value(one.about, "name", "?"), 200))
        named = f'<a href="#{one.anchor}">{name}</a>' if one.anchor else name
        lines.append((named, text(clipped(parameters_words(value(one.about, "parameters")), 200)),
                      spark.sparkline([p[0] for p in one.points], [i for i, _ in one.changes], clipped(said, 250)),
                      Cell(number(one.last(), 5), one.last()), text(clipped(one.unit, 40)),
                      text(effect_words(newest[1])) if newest else '<span class="soft">none</span>', date(when),
                      text(clipped(attributed_words(newest[1].get("attributed")), 300)) if newest else ""))
    heads = ("figure", "parameters", "course", "last", "unit", "newest change", "since", "together with")
    return table("Every figure over the nights, those that changed last on top", heads, lines, (3,), wide=True) if lines else ""


def trends_part(changed, nights, banner, ids):
    parts = []
    for one in changed[:MOST_TRENDS]:
        points = [(nights.labels[i], *one.points[i]) for i in range(len(nights))]
        changes = [(i, value(c, "before", None), value(c, "after", None), effect_words(c)) for i, c in one.changes]
        svg = spark.trend(points, changes, nights.marks[-40:], one.unit, banner)
        said = "; ".join(f"{nights.labels[i]}: {effect_words(c)}"
                         + (f", together with {w}" if (w := attributed_words(c.get('attributed'))) else "")
                         for i, c in one.changes)
        data = (("night", "value", "low", "high", "version", "microcode"),
                [(date(label), *(Cell(number(v, 6), v) if v is not None else "" for v in point),
                  text(clipped(value(row, "version"), 60)), text(clipped(value(row, "microcode"), 60)))
                 for label, point, row in zip(nights.labels, one.points, nights.rows)], (1, 2, 3))
        drawn = figure(svg, one.words, f"{said}. Band: the interval of each night. Dashed orange-red: a change, with the levels around it. "
                       "Letters: M microcode, K kernel, B BIOS, V Skidproof, H hypervisor became another.", data, ids)
        parts.append(drawn)
    left = changed[MOST_TRENDS:]
    if left:
        lines = [(code(one.words), date(nights.labels[i]), text(effect_words(c)), text(clipped(attributed_words(c.get("attributed")), 300)))
                 for one in left for i, c in one.changes]
        parts.append(table("More figures that changed", ("figure", "since", "effect", "together with"), lines))
    return "".join(parts)


class Verdicts:
    """The verdicts by test and night."""

    def __init__(self, frame, nights):
        self.nights, self.changed, self.last = nights, [], {}
        if frame is None or not len(frame):
            return
        ranks = frame["status"].astype(str).map(RANK).fillna(RANK["error"]).astype("int8")
        worst = ranks.groupby([frame["id"].astype("category"), frame["run"]], observed=True, sort=False).min()
        by_test = worst.groupby(level=0, observed=True)
        differ = by_test.max() != by_test.min()
        names = list(differ.index[differ.to_numpy()])
        if nights.rows:
            runs_seen = worst.index.get_level_values(1)
            newest = max((nights.index[run] for run in set(runs_seen) if run in nights.index), default=None)
            if newest is not None:
                of_last = worst[runs_seen == nights.rows[newest]["run"]]
                self.last = {rows.STATUSES[rank]: int(count) for rank, count in of_last.value_counts().items()}
                self.bad = [name for name, rank in of_last.groupby(level=0, observed=True).min().items() if rank <= RANK["error"]]
        some = worst[worst.index.get_level_values(0).isin(set(names))]
        courses = {name: [""] * len(nights) for name in names}
        for (name, run), rank in some.items():
            if run in nights.index:
                courses[name][nights.index[run]] = rows.STATUSES[rank]
        self.changed = sorted(courses.items(), key=lambda item: (-turns(item[1]), item[0]))

    bad = ()

    def strips(self):
        lines = []
        for name, course in self.changed[:400]:
            counts = {s: course.count(s) for s in SHOWN_STATUSES if s in course}
            said = ", ".join(f"{s} {n}" for s, n in counts.items())
            last = next((s for s in reversed(course) if s), "")
            drawn = spark.strip(course, clipped(f"{name} over {len(course)} nights: {said}", 250)) if len(lines) < MOST_STRIPS else ""
            since = last_turn(course)
            lines.append((code(clipped(name, 300)), Cell(status_cell(last), RANK.get(last, 9)), date(self.nights.labels[since])
                          if since is not None else "",
                          number(turns(course)), text(said), drawn))
        heads = ("test", "now", "since", "turns", "nights by verdict", "course, oldest night first")
        return table("Tests whose verdict was not always the same", heads, lines, (3,), wide=True) if lines else ""


def turns(course):
    """How often the verdict became another, nights without one left out."""
    said = [s for s in course if s]
    return sum(a != b for a, b in zip(said, said[1:]))


def last_turn(course):
    """The index of the first night of the verdict that stands now."""
    said = [(i, s) for i, s in enumerate(course) if s]
    found = said[0][0] if said else None
    for (_, before), (i, after) in zip(said, said[1:]):
        if before != after:
            found = i
    return found


def flaky_part(flaky):
    lines = []
    for row in records(flaky)[:500]:
        rate, low, high = (value(row, name, None) for name in ("rate", "low", "high"))
        interval = f"{100 * low:.3g} to {100 * high:.3g} %" if low is not None and high is not None else ""
        lines.append((code(clipped(value(row, "id", "?"), 300)), Cell(f"{100 * rate:.3g} %", rate) if rate is not None else "",
                      text(interval),
                      number(value(row, "nights", None))))
    return table("Tests that fail now and then, with their rate", ("test", "fails in", "95 % interval", "nights"), lines,
                 (1, 3)) if lines else ""


def facts_part(nights):
    lines = [(date(nights.labels[i]), text(spark.WORDS[fact]), code(clipped(before or "not known", 200)),
              code(clipped(after or "not known", 200)))
             for i, fact, before, after in reversed(nights.marks)]
    return table("What became another, newest first", ("night", "what", "before", "after"), lines) if lines else ""


def every_value(figures, nights):
    lines = []
    for one in figures:  # thousands of lines, so their HTML is put together here
        head, unit = f'<tr><th scope="row">{code(one.words)}</th><td>', f"</td><td>{text(one.unit)}</td></tr>"
        for label, (middle, low, high) in zip(nights.labels, one.points):
            if middle is not None:
                lines.append(f'{head}{text(label)}</td><td class="n">{middle:.6g}</td><td class="n">{number(low, 6)}</td><td '
                             f'class="n">{number(high, 6)}{unit}')
    heads = ("figure", "night", "value", "low", "high", "unit")
    return details(f"All values ({len(lines):,})", table("All values", heads, lines, (2, 3, 4), first=50)) if lines else ""


def all_nights(nights):
    lines = [(date(moment(value(row, "started", None))), code(clipped(value(row, "run_id", row["run"]), 100)),
              *(text(clipped(value(row, fact), 100)) for fact in FACTS)) for row in reversed(nights.rows)]
    heads = ("started", "run", *(spark.WORDS[fact] for fact in FACTS))
    return details(f"All nights ({len(lines):,})", table("All nights, newest first", heads, lines, first=50)) if lines else ""


def lead(about, nights, figures, changed, tests, flaky, title):
    bad = tests.last.get("fail", 0) + tests.last.get("error", 0)
    kind = kind_of(about)
    if not len(nights):
        status, sentence = "skip", "The store holds no night of this machine."
    elif tests.last.get("fail"):
        status, sentence = "fail", f"Last night not every promise held: {plural(tests.last['fail'], 'test')} failed."
    elif bad:
        status, sentence = "error", f"Last night {plural(bad, 'test')} could not be judged."
    elif tests.last.get("pass") or tests.last.get("xpass"):
        status, sentence = "pass", "Last night every promise that could be tested held."
    else:
        status, sentence = "observed", (f"{plural(len(figures), 'figure')} over {plural(len(nights), 'night')}; no test was judged last "
                                        f"night.")
    said = []
    if changed:
        newest = changed[0].changes[-1]
        said.append(f"{plural(len(changed), 'figure')} of {len(figures):,} changed, the last at {date(nights.labels[newest[0]])}.")
    elif figures:
        said.append(f"None of {plural(len(figures), 'figure')} changed.")
    if tests.changed:
        said.append(f"{plural(len(tests.changed), 'test')} did not always end the same.")
    failing = bullets([status_cell("fail", "fail or error") + " " + code(clipped(name, 300)) for name in tests.bad[:5]]
                      + ([f"and {len(tests.bad) - 5:,} more"] if len(tests.bad) > 5 else []))
    steps = []
    if tests.bad and len(nights):
        steps.append(f"Read last night's failures: {code('skidproof report --store … ' + clipped(value(nights.rows[-1], 'run_id'), 80))} "
                     f"or the run's own report.")
    if changed:
        steps.append("Read the figures that changed below: what else became another that night stands beside each.")
    if not steps:
        steps.append("Nothing to do: come back after the next night.")
    shown = [card(s, f"{tests.last[s]:,}", s) for s in SHOWN_STATUSES if tests.last.get(s)]
    shown += [card(words, f"{n:,}") for words, n in (("nights", len(nights)), ("figures", len(figures)), ("changed figures", len(changed)),
                                                    ("flaky tests", len(flaky) if flaky is not None else 0)) if n]
    now = nights.rows[-1] if len(nights) else {}
    words = [f"{spark.WORDS[fact]} {value(now, fact)}" for fact in FACTS if value(now, fact)]
    words += [str(value(about, "microarch")), f"last night {moment(value(now, 'started', None))}" if now else ""]
    model = "" if kind in REAL else "<p>These are no figures of silicon.</p>"
    return (f'<div class="verdict {status}"><p>{status_cell(status, sentence)}</p><p>{badge(kind)} {code(machine_words(about))}</p>{model}'
            f"<p>{' '.join(said)}</p>{failing}<h2>What to do next</h2>{bullets(steps)}</div>{cards(shown)}"
            f'<p class="soft">{" · ".join(text(clipped(w, 200)) for w in words if w)}</p>')
