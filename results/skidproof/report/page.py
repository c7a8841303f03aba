"""Writes the page: one self-contained HTML file for any number of runs."""

import html
import json
import pathlib

from skidproof import rows

STYLE = pathlib.Path(__file__).with_name("style.css")
SCRIPT = """
for (const field of document.querySelectorAll('input[type=search]')) {
  field.addEventListener('input', () => {
    const word = field.value.toLowerCase();
    for (const row of field.closest('details').querySelectorAll('tbody tr'))
      row.hidden = !row.textContent.toLowerCase().includes(word);
  });
}
"""
BADGES = {"MODEL": "MODEL — not silicon", "VIRTUAL LAB": "VIRTUAL LAB — not silicon", "NATIVE": "NATIVE — silicon, TSC only",
          "SILICON": "SILICON", "UNKNOWN": "UNKNOWN — provenance not recorded"}
MOST_BINS = 40


def text(value):
    return html.escape(str(value), quote=True)


def number(value, digits=4):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def code(value):
    return f'<span class="id">{text(value)}</span>'


def table(heads, lines, numeric=()):
    """HTML of a table; cells are HTML already."""
    def cells(tag, values):
        return "".join(f"<{tag}{' class=n' if i in numeric else ''}>{v}</{tag}>" for i, v in enumerate(values))
    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def details(summary, body, is_open=False):
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{body}</details>"


def status_cell(status):
    return f'<span class="s {status}">{status}</span>'


# --------------------------------------------------------------------------------------------------------
# The page.

def page(sources, plots, written):
    """`plots`: {id(run): [(machine, [Plot])]}; `written`: when, as text."""
    runs = [run for source in sources for run in source.runs]
    title = "Skidproof report" + (f" · {runs[0].name}" if len(runs) == 1 else f" · {len(runs)} runs" if runs else "")
    parts = [f"<h1>{text(title)}</h1>", problems_of(sources)]
    if len(runs) > 1:
        parts.append(contents(runs))
    parts.extend(section(run, index, plots.get(id(run), [])) for index, run in enumerate(runs))
    parts.append(f'<p class="soft">Written {text(written)} from {text(", ".join(s.path for s in sources))}.</p>')
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{text(title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>"
            + "\n".join(parts) + f"<script>{SCRIPT}</script></body></html>\n")


def problems_of(sources):
    lines = [f"<li>{code(s.path)}: {text(p)}</li>" for s in sources for p in s.problems]
    if not lines:
        return ""
    shown = lines[:50] + ([f"<li>and {len(lines) - 50} more</li>"] if len(lines) > 50 else [])
    return f'<div class="warn"><b>Not everything could be read.</b><ul>{"".join(shown)}</ul></div>'


CONTENTS = ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")


def contents(runs):
    lines = []
    for index, run in enumerate(runs):
        counts = run.counts()
        lines.append((f'<a href="#run{index + 1}">{text(run.name)}</a>', " ".join(badges(run)), ending(run),
                      *(number(counts[s]) for s in CONTENTS), number(len(run.measurements))))
    return table(("run", "machine", "end", *CONTENTS, "measurements"), lines, range(3, 4 + len(CONTENTS)))


def badges(run):
    found = []
    for name in run.machine_names():
        row = run.machine_row(name)
        kind = rows.provenance(name, row)
        plain = kind in ("NATIVE", "SILICON")
        found.append(f'<span class="badge {"" if plain else "model"}">{text(BADGES[kind])}</span> {code(name)}')
        if row.get("tape"):
            found.append(f'<span class="badge model">replay of {text(row["tape"])}, not measured anew</span>')
        if row.get("defects"):
            found.append(f'<span class="badge broken">broken on purpose: {text(", ".join(map(str, row["defects"])))}</span>')
    return found


def ending(run):
    if run.end is None:
        return '<span class="s fail">cut short: no end row</span>'
    return text(f"{run.end['reason']}, exit {run.end.get('exit', '?')}")


def section(run, index, plots):
    kinds = [rows.provenance(n, run.machine_row(n)) for n in run.machine_names()]
    silicon = kinds and all(kind in ("NATIVE", "SILICON") for kind in kinds)
    parts = [f'<section class="run {"" if silicon else "model"}" id="run{index + 1}">',
             f"<h2>Run {text(run.name)}</h2><p>{' '.join(badges(run))}</p>", in_one_line(run),
             cut_short(run), cards(run), errata(run), failures(run), explained(run), observed(run), qualification(run), fuzz(run), plots_part(plots), skips(run),
             metadata(run), all_tests(run), measurements(run), "</section>"]
    return "\n".join(part for part in parts if part)


def in_one_line(run):
    """What identifies the run and its machine."""
    words = []
    for row in run.machines:
        words += [row.get("brand") or row.get("vendor"), f"family {row.get('family', '?')} model {row.get('model', '?')} stepping {row.get('stepping', '?')}",
                  f"microcode {row.get('microcode') or 'not readable'}", row.get("microarch"),
                  f"under {row['hypervisor']}" if row.get("hypervisor") else "", row.get("host")]
    for label, field in (("seed", "seed"), ("version", "version"), ("started", "started")):
        if field in run.run:
            words.append(f"{label} {run.run[field]}")
    shown = " · ".join(text(w) for w in words if w)
    command = " ".join(map(str, run.run.get("command", [])))
    return f'<p class="soft">{shown}' + (f"<br>{code(command)}" if command else "") + "</p>"


def cut_short(run):
    if run.end is not None and run.end["reason"] == "completed" and not run.open_tests and not run.open_measurements:
        return ""
    said = ("<b>This run was cut short:</b> it has no <code>end</code> row. What follows is what was on the disk."
            if run.end is None else f"<b>The run ended: {text(run.end['reason'])}.</b>")
    opened = "".join(f"<li>{code(s.get('id') or s['name'])} had started and never finished</li>" for s in run.open_tests + run.open_measurements)
    return f'<div class="warn">{said}<ul>{opened}</ul></div>'


def cards(run):
    counts = run.counts()
    items = [(s, counts[s]) for s in ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")
             if counts[s] or s in ("pass", "fail")]
    shown = [f'<div class="card {s}"><b>{n:,}</b>{s}</div>' for s, n in items if run.tests]
    extra = [("measurements", len(run.measurements)), ("values compared", sum(t.get("comparisons", 0) for t in run.tests)),
             ("defects caught", f"{sum(d['caught'] for d in run.defects)} of {len(run.defects)}" if run.defects else 0)]
    shown += [f'<div class="card"><b>{number(n)}</b>{label}</div>' for label, n in extra if n]
    if run.end is not None:
        shown.append(f'<div class="card"><b>{text(run.end.get("exit", "?"))}</b>exit code</div>')
        if "duration_s" in run.end:
            shown.append(f'<div class="card"><b>{number(run.end["duration_s"], 3)} s</b>duration</div>')
    return f'<div class="cards">{"".join(shown)}</div>'


# --------------------------------------------------------------------------------------------------------
# Tests.

def failures(run):
    bad = [t for t in run.tests if t["status"] in ("fail", "error")]
    if not bad:
        return '<p><span class="s pass">No test failed.</span></p>' if run.tests else ""
    bad.sort(key=lambda t: rows.STATUSES.index(t["status"]))
    return "<h3>Tests that did not hold</h3>" + listed(bad)


def explained(run):
    """Failures that decide nothing: what an erratum of this processor explains, and what noise voids."""
    parts = []
    for status, head in (("xfail", "Failed as a listed erratum says"), ("disturbed", "Disturbed: failed, and not again without noise")):
        found = [t for t in run.tests if t["status"] == status]
        if found:
            parts.append(details(f"{head} ({len(found)})", listed(found)))
    held = [t for t in run.tests if t["status"] == "xpass"]
    if held:
        lines = [(text(t.get("erratum", "")), code(t["id"]), text(t.get("reason", ""))) for t in held]
        parts.append(details(f"Held, although an erratum is listed ({len(held)})", table(("erratum", "test", ""), lines)))
    return "".join(parts)


def observed(run):
    """What nothing promises, as it was seen; of tests that assert something besides as well."""
    lines = []
    for test in run.tests:
        seen = test.get("evidence", {}).get("observed")
        for what, value in seen.items() if isinstance(seen, dict) else ():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append((status_cell(test["status"]), code(test["id"]), text(what), code(shown[:400])))
    return details(f"Observed, where nothing is promised ({len(lines)})", table(("status", "test", "what", "seen"), lines)) if lines else ""


def listed(tests):
    """Failures in full, the first twenty open."""
    head = "".join(failure(t) for t in tests[:20])
    rest = details(f"{len(tests) - 20} more", "".join(failure(t) for t in tests[20:])) if len(tests) > 20 else ""
    return head + rest


def rate(test):
    """"failed in 3 of 4 attempts (19.4 to 99.4 %)"; nothing where it was not judged, or never failed."""
    repetitions = test.get("repetitions", {})
    n, k, low, high = (repetitions.get(field) for field in ("n", "k", "low", "high"))
    if not n or not k:
        return ""
    interval = f" ({100 * low:.3g} to {100 * high:.3g} %)" if rows.is_a(low, (int, float)) and rows.is_a(high, (int, float)) else ""
    return f" · failed in {number(k)} of {number(n)} attempts{interval}"


def failure(test):
    citations = test.get("citations", {})
    quoted = "".join(f"<blockquote><b>{text(c)}</b> {text(citations.get(c, 'no citation recorded'))}</blockquote>"
                     for c in test.get("clauses", []))
    messages = "".join(f"<pre>{text(m)}</pre>" for m in test.get("failures", []))
    reason = f"<p>{text(test['reason'])}</p>" if test.get("reason") else ""
    about = (f"{text(test['machine'])} · seed {text(test.get('seed', '?'))} · repetition {text(test.get('repetition', 0))} · "
             f"{number(test.get('iterations', 0))} executed, {number(test.get('comparisons', 0))} compared{rate(test)}")
    return (f'<div class="failure {test["status"]}">{status_cell(test["status"])} {code(test["id"])} '
            f'<span class="soft">{about}</span>{quoted}{reason}{messages}{evidence(test)}</div>')


def evidence(test):
    items = test.get("evidence", {})
    return details(f"evidence ({len(items)})", "".join(evidence_item(k, v) for k, v in items.items()),
                   is_open=test["status"] in ("fail", "error")) if items else ""


def evidence_item(key, item):
    if isinstance(item, dict) and item.get("kind") == "histogram":
        return f"<p>{text(item.get('name', key))} ({text(item.get('unit', ''))})</p>" + bars(item)
    if isinstance(item, dict) and item.get("kind") == "series":
        points = list(zip(item.get("x") or [], item.get("y") or []))
        shown = ", ".join(f"{number(x)}: {number(y)}" for x, y in points[:200])
        return f"<p>{text(key)} ({text(item.get('unit', ''))} over {text(item.get('x_label', 'x'))}): {shown}</p>"
    shown = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    return f"<p>{text(key)}: {code(shown if len(shown) <= 4000 else shown[:4000] + ' …')}</p>"


def bars(histogram):
    bins = rows.bins_of(histogram)
    if not bins:
        return "<p>empty</p>"
    expected = histogram.get("expected") or []
    most = max(bins.values())
    lines = [f'<span>{number(v)}</span><span>{number(n)}</span>'
             f'<i class="{"out" if expected and v not in expected else ""}" style="width:{100 * n / most:.1f}%"></i>'
             for v, n in list(bins.items())[:MOST_BINS]]
    more = f"<p>and {len(bins) - MOST_BINS} more values</p>" if len(bins) > MOST_BINS else ""
    return f'<div class="bins">{"".join(lines)}</div>{more}'


def skips(run):
    found = {}
    for test in run.tests:
        if test["status"] == "skip":
            found.setdefault((str(test.get("skip_category")), test.get("reason", "")), []).append(test["id"])
    if not found:
        return ""
    lines = [(text(category), text(reason), number(len(ids)), ids_cell(ids)) for (category, reason), ids in sorted(found.items())]
    return "<h3>Skipped</h3>" + table(("category", "reason", "tests", ""), lines, (2,))


def ids_cell(ids):
    shown = "<br>".join(code(i) for i in ids)
    return shown if len(ids) <= 2 else details(f"{code(ids[0])} …", shown)


def all_tests(run):
    if not run.tests:
        return ""
    lines = [(status_cell(t["status"]), code(t["id"]), text(" ".join(map(str, t.get("clauses", [])))), number(t.get("iterations")),
              number(t.get("comparisons")), number(1000 * t.get("duration_s", 0), 3), scalars(t)) for t in run.tests]
    shown = table(("status", "test", "clauses", "executed", "compared", "ms", "evidence"), lines, (3, 4, 5))
    return details(f"All tests ({len(run.tests)})", '<input type="search" placeholder="filter: status, name, clause …">' + shown)


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
    return f'<span class="soft">{text("; ".join(words[:8]))}</span>'


# --------------------------------------------------------------------------------------------------------
# The rest.

def qualification(run):
    if not run.defects and not run.qualification:
        return ""
    parts = ["<h3>Qualification</h3>"]
    if run.qualification:
        q = run.qualification
        held = status_cell("pass") + " held" if q["held"] else status_cell("fail") + " did not hold"
        parts.append(f"<p>{held}: {number(q.get('caught', 0))} of {number(q.get('defects', 0))} defects caught; "
                     f"{number(q.get('conforming_failures', 0))} accusations in {number(q.get('conforming_runs', 0))} conforming runs.</p>")
        for label, field in (("Missed", "missed"), ("Accused a conforming model", "accused_by"),
                             ("Tests that caught no defect", "tests_without_catch")):
            if q.get(field):
                parts.append(f"<p>{label}: {', '.join(code(i) for i in q[field])}</p>")
    if run.defects:
        lines = [(status_cell("pass") + " caught" if d["caught"] else status_cell("fail") + " missed", code(d["id"]), text(d.get("brief", "")),
                  text(d.get("clause", "")), text(d.get("microarch", "")), number(d.get("tests_run")), ids_cell(d.get("caught_by", [])))
                 for d in sorted(run.defects, key=lambda d: d["caught"])]
        parts.append(table(("", "defect", "what it does", "clause", "microarch", "tests", "caught by"), lines, (5,)))
    return "".join(parts)


def errata(run):
    """What is listed and what was observed, contradictions first; what neither says anything of is left out."""
    shown = [row for row in run.errata if row["observed"] != "not-run" or row["listed"] not in ("not-affected", "unknown")]
    if not shown:
        return ""
    shown.sort(key=lambda row: (not row.get("contradiction"), row["observed"] != "reproduced", row["listed"] != "affected"))
    lines = [f'<tr><td>{code(row["id"])}</td><td>{text(row.get("core_type", ""))}</td><td>{text(row["listed"])}</td>'
             f'<td>{text(row["observed"])}{" · <b>contradiction</b>" if row.get("contradiction") else ""}</td>'
             f'<td>{text(row.get("exposure", ""))}</td><td>{text(row.get("title", ""))}</td></tr>' for row in shown]
    return (f'<h3>Errata ({len(shown)} of {len(run.errata)} listed here, or tried)</h3><table><tr><th>erratum</th><th>core</th>'
            f'<th>listed</th><th>observed</th><th>exposure</th><th>what it is</th></tr>{"".join(lines)}</table>')


def fuzz(run):
    if not run.fuzz:
        return ""
    f = run.fuzz
    held = status_cell("pass") + " held" if f["held"] else status_cell("fail") + " did not hold"
    parts = ["<h3>Fuzzing</h3>",
             f"<p>{held}: {number(f.get('violations', 0))} violations in {number(f.get('cases', 0))} cases with "
             f"{number(f.get('records', 0))} records.</p>"]
    found = f.get("violation") or {}
    for label in ("clause", "promise", "expected", "seen", "file"):
        if found.get(label):
            parts.append(f"<p>{label}: {text(str(found[label]))}</p>")
    return "".join(parts)


def plots_part(plots):
    figures = [f"<figure>{p.inline_svg()}<figcaption><b>{text(p.title)}.</b> {text(p.caption)}</figcaption></figure>"
               for _, machine_plots in plots for p in machine_plots]
    return "<h3>Plots</h3>" + "".join(figures) if figures else ""


def metadata(run):
    pairs = [("file", run.path)]
    for row in (run.run, *run.machines, run.end or {}):
        pairs += [(f"{row['type']}.{k}" if row.get("type") else k, metadata_value(v)) for k, v in row.items() if k not in ("type", "machine")]
    shown = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in pairs if v not in ("", None))
    return details("Run and machine", f"<dl>{shown}</dl>")


def metadata_value(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return value


def measurements(run):
    missing = "".join(f"<li>{code(m['name'])}: {text(m['reason'])}</li>" for m in run.unmeasured)
    missing = f"<p>Not measured:</p><ul>{missing}</ul>" if missing else ""
    if not run.measurements:
        return details(f"Not measured ({len(run.unmeasured)})", missing) if missing else ""
    lines = []
    for m in run.measurements:
        noise = ", ".join(f"{k} {number(v)}" for k, v in m.get("noise", {}).items() if v)
        lines.append((code(m["name"]), text(metadata_value(m.get("parameters", {}))), number(m["value"]), text(m["unit"]),
                      f"{number(m.get('low'))} … {number(m.get('high'))}" if m.get("low") is not None else "", text(m.get("statistic", "")),
                      number(m.get("n")), text(m["machine"]), text(noise)))
    shown = table(("measurement", "parameters", "value", "unit", "spread", "statistic", "n", "machine", "noise"), lines, (2, 6))
    return details(f"All measurements ({len(run.measurements)})", '<input type="search" placeholder="filter">' + shown + missing)
