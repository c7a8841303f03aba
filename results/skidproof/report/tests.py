"""The parts of a run's page that speak of tests: what failed, what an erratum explains, what was skipped, all of them, clause by clause."""

import json

from skidproof import rows
from skidproof.report.parts import (Cell, clipped, code, details, number, plural, status_cell, table, text)

MOST_BINS = 40
MOST_FAILURES = 200
OPEN_FAILURES = 20


def suite_of(test_id):
    """`Prefix/Suite.Test/Param` → `Suite`."""
    return test_id.split(".")[0].split("/")[-1]


def clauses_of(test):
    return [str(clause) for clause in test.get("clauses", [])]


def by_clause(tests):
    """{clause: {status: tests}}, the clauses in the order of their letters and numbers."""
    found = {}
    for test in tests:
        for clause in clauses_of(test):
            counts = found.setdefault(clause, {})
            counts[test["status"]] = counts.get(test["status"], 0) + 1
    return dict(sorted(found.items(), key=lambda item: clause_order(item[0])))


def clause_order(clause):
    """R9 before R10, D13 before D13a."""
    letters = clause.rstrip("abcdefghijklmnopqrstuvwxyz0123456789")
    digits = clause[len(letters):].rstrip("abcdefghijklmnopqrstuvwxyz")
    return (letters, int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 0, clause)


def verdict_of(counts):
    """The status that stands for {status: tests} of one clause: its worst, but one that held somewhere is no skip."""
    said = [s for s in rows.STATUSES if counts.get(s) and s != "skip"]
    return said[0] if said else "skip" if counts.get("skip") else ""


def failed(run):
    bad = [t for t in run.tests if t["status"] in ("fail", "error")]
    bad.sort(key=lambda t: rows.STATUSES.index(t["status"]))
    return bad


def failures(run, ids):
    bad = failed(run)
    if not bad:
        return ""
    return listed(bad, ids, MOST_FAILURES)


def explained(run, ids):
    """Failures that decide nothing: what an erratum of this processor explains, and what noise voids."""
    parts = []
    for status, head in (("xfail", "Failed as a listed erratum says"), ("disturbed", "Disturbed: failed, and not again without noise")):
        found = [t for t in run.tests if t["status"] == status]
        if found:
            parts.append(details(f"{head} ({len(found):,})", listed(found, ids, MOST_FAILURES)))
    held = [t for t in run.tests if t["status"] == "xpass"]
    if held:
        lines = [(code(t["id"]), text(t.get("erratum", "")), text(clipped(t.get("reason", "")))) for t in held]
        parts.append(details(f"Held, although an erratum is listed ({len(held):,})",
                             table("Held, although an erratum is listed", ("test", "erratum", "why it is listed"), lines)))
    return "".join(parts)


def observed(run):
    """What nothing promises, as it was seen; of tests that assert something besides as well."""
    lines = []
    for test in run.tests:
        seen = test.get("evidence", {}).get("observed")
        for what, value in seen.items() if isinstance(seen, dict) else ():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append((code(test["id"]), status_cell(test["status"]), text(clipped(what, 400)), code(clipped(shown, 400))))
    if not lines:
        return ""
    return details(f"Observed, where nothing is promised ({len(lines):,})",
                   table("Observed, where nothing is promised", ("test", "status", "what", "seen"), lines))


def listed(tests, ids, most):
    """Failures in full, the first twenty open."""
    head = "".join(failure(t, ids) for t in tests[:OPEN_FAILURES])
    rest = tests[OPEN_FAILURES:most]
    if rest:
        head += details(f"{len(rest)} more", "".join(failure(t, ids) for t in rest))
    if len(tests) > most:
        lines = [(code(t["id"]), status_cell(t["status"]), text(clipped((t.get("failures") or [t.get("reason", "")])[0], 300)))
                 for t in tests[most:]]
        head += details(f"{len(tests) - most:,} more, in short",
                        table("More that did not hold", ("test", "status", "what it said first"), lines))
    return head


def rate(test):
    """"failed in 3 of 4 attempts (19.4 to 99.4 %)"; nothing where it was not judged, or never failed."""
    repetitions = test.get("repetitions", {})
    n, k, low, high = (repetitions.get(field) for field in ("n", "k", "low", "high"))
    if not n or not k:
        return ""
    interval = f" ({100 * low:.3g} to {100 * high:.3g} %)" if rows.is_a(low, (int, float)) and rows.is_a(high, (int, float)) else ""
    return f" · failed in {number(k)} of {number(n)} attempts{interval}"


def failure(test, ids):
    citations = test.get("citations", {})
    quoted = "".join(f"<blockquote><b>{text(c)}</b> {text(clipped(citations.get(c, 'no citation recorded')))}</blockquote>"
                     for c in clauses_of(test))
    messages = "".join(f"<pre>{text(clipped(m))}</pre>" for m in test.get("failures", [])[:50])
    reason = f"<p>{text(clipped(test['reason']))}</p>" if test.get("reason") else ""
    about = (f"{text(test['machine'])} · seed {text(test.get('seed', '?'))} · repetition {text(test.get('repetition', 0))} · "
             f"{number(test.get('iterations', 0))} executed, {number(test.get('comparisons', 0))} compared{rate(test)}")
    name = ids.links[id(test)] = ids.new(f"failure-{test['id']}")
    return (f'<div class="failure {test["status"]}" id="{name}"><h4>{status_cell(test["status"])} {code(test["id"])}</h4>'
            f'<p class="soft">{about}</p>{quoted}{reason}{messages}{evidence(test)}</div>')


def evidence(test):
    items = test.get("evidence", {})
    return details(f"evidence ({len(items)})", "".join(evidence_item(k, v) for k, v in list(items.items())[:60]),
                   is_open=test["status"] in ("fail", "error")) if items else ""


def evidence_item(key, item):
    if isinstance(item, dict) and item.get("kind") == "histogram":
        return f"<p>{text(clipped(item.get('name', key), 200))} ({text(clipped(item.get('unit', ''), 200))})</p>" + bars(item)
    if isinstance(item, dict) and item.get("kind") == "series":
        xs, ys = (item.get(axis) if isinstance(item.get(axis), list) else [] for axis in "xy")
        shown = ", ".join(f"{number(x)}: {number(y)}" for x, y in list(zip(xs, ys))[:200])
        return (f"<p>{text(key)} ({text(clipped(item.get('unit', ''), 200))} over {text(clipped(item.get('x_label', 'x'), 200))}): "
                f"{shown}</p>")
    shown = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    return f"<p>{text(clipped(key, 200))}: {code(clipped(shown))}</p>"


def bars(histogram):
    bins = rows.bins_of(histogram)
    if not bins:
        return "<p>empty</p>"
    expected = histogram.get("expected")
    expected = expected if isinstance(expected, list) else []
    most = max(bins.values())
    lines = [f'<span>{number(v)}</span><span>× {number(n)}</span>'
             f'<i class="{"out" if expected and v not in expected else ""}" style="width:{100 * n / most:.1f}%"></i>'
             for v, n in list(bins.items())[:MOST_BINS]]
    more = f"<p>and {len(bins) - MOST_BINS} more values</p>" if len(bins) > MOST_BINS else ""
    outside = [v for v in bins if expected and v not in expected]
    said = f'<p>Not allowed: {text(", ".join(f"{v:g}" for v in outside[:20]))}</p>' if outside else ""
    return f'<div class="bins">{"".join(lines)}</div>{more}{said}'


def skips(run):
    """Folded by category, and in it by reason: a newcomer reads six lines, not four hundred."""
    found = {}
    for test in run.tests:
        if test["status"] == "skip":
            reasons = found.setdefault(str(test.get("skip_category")), {})
            reasons.setdefault(test.get("reason", ""), []).append(test["id"])
    if not found:
        return ""
    folds = []
    for category, reasons in sorted(found.items(), key=lambda item: -sum(map(len, item[1].values()))):
        total = sum(map(len, reasons.values()))
        lines = [(text(clipped(reason)), number(len(tests)), ids_cell(tests)) for reason, tests in
                 sorted(reasons.items(), key=lambda item: -len(item[1]))]
        folds.append(details(f"{text(category)}: {plural(total, 'test')}, {plural(len(reasons), 'reason')}",
                             table(f"Skipped: {category}", ("reason", "tests", "which"), lines, (1,))))
    return "".join(folds)


def ids_cell(names, most=500):
    shown = "<br>".join(code(clipped(i, 300)) for i in names[:most]) + (f"<br>and {len(names) - most:,} more" if len(names) > most else "")
    return shown if len(names) <= 2 else details(f"{code(clipped(names[0], 300))} and {len(names) - 1:,} more", shown)


def clause_table(run):
    """Clause × status, in numbers."""
    counts = by_clause(run.tests)
    if not counts:
        return ""
    there = [s for s in ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")
             if any(c.get(s) for c in counts.values())]
    lines = []
    for place, (clause, found) in enumerate(counts.items()):
        worst = verdict_of(found)
        lines.append((Cell(code(clause), place), Cell(status_cell(worst), rows.STATUSES.index(worst)),
                      *(number(found.get(s)) for s in there)))
    caption = "Tests of each clause by status; a test of several clauses counts for each"
    return table(caption, ("clause", "verdict", *there), lines, range(2, 2 + len(there)))


def all_tests(run):
    if not run.tests:
        return ""
    lines = [(code(t["id"]), Cell(status_cell(t["status"]), rows.STATUSES.index(t["status"])), text(clipped(" ".join(clauses_of(t)), 300)),
              number(t.get("iterations")), number(t.get("comparisons")), number(1000 * t.get("duration_s", 0), 3), scalars(t))
             for t in run.tests]
    shown = table("All tests", ("test", "status", "clauses", "executed", "compared", "ms", "evidence"), lines, (3, 4, 5), tools=True,
                  wide=True)
    return details(f"All tests ({len(run.tests):,})", shown)


def scalars(test):
    """The evidence that fits on a line: plain values, and each histogram's commonest value."""
    words = []
    for key, item in test.get("evidence", {}).items():
        if isinstance(item, (int, float, str)):
            words.append(f"{key} {number(item) if not isinstance(item, str) else item[:60]}")
        elif isinstance(item, dict) and item.get("kind") == "histogram":
            bins = rows.bins_of(item)
            if bins:
                words.append(f"{key} mostly {max(bins, key=bins.get):g} ({sum(bins.values()):,})")
    return f'<span class="soft">{text(clipped("; ".join(words[:8]), 400))}</span>'
