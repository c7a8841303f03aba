"""The parts of a run's page that are not tests: qualification, errata, fuzzing, what identifies the run, measurements."""

from skidproof.report.parts import Cell, clipped, code, details, number, status_cell, table, text
from skidproof.report.tests import ids_cell


def held_words(held):
    return status_cell("pass", "held") if held else status_cell("fail", "did not hold")


def qualification(run):
    if not run.defects and not run.qualification:
        return ""
    parts = []
    if run.qualification:
        q = run.qualification
        parts.append(f"<p>{held_words(q['held'])}: {number(q.get('caught', 0))} of {number(q.get('defects', 0))} defects caught; "
                     f"{number(q.get('conforming_failures', 0))} accusations in {number(q.get('conforming_runs', 0))} conforming runs.</p>")
        for label, field in (("Missed", "missed"), ("Accused a conforming model", "accused_by"),
                             ("Tests that caught no defect", "tests_without_catch")):
            names = q.get(field)
            if names and isinstance(names, list):
                shown = ", ".join(code(clipped(i, 200)) for i in names[:500])
                parts.append(f"<p>{label}: {shown}</p>" if len(names) < 20 else details(f"{label} ({len(names):,})", f"<p>{shown}</p>"))
    if run.defects:
        lines = [(code(d["id"]), Cell(status_cell("pass", "caught") if d["caught"] else status_cell("fail", "missed"), int(d["caught"])),
                  text(clipped(d.get("brief", ""), 400)), text(d.get("clause", "")), text(d.get("microarch", "")),
                  number(d.get("tests_run")),
                  ids_cell(d.get("caught_by", []))) for d in sorted(run.defects, key=lambda d: d["caught"])]
        shown = table("Defects, those that were missed first",
                      ("defect", "outcome", "what it does", "clause", "microarch", "tests", "caught by"),
                      lines, (5,), tools=True, first=100, wide=True)
        parts.append(details(f"All defects ({len(lines):,})", shown, is_open=len(lines) <= 40))
    return "".join(parts)


def worth_showing(row):
    """Neither verdict says anything of the others."""
    return row["observed"] != "not-run" or row["listed"] not in ("not-affected", "unknown")


def errata_order(row):
    return (not row.get("contradiction"), row["observed"] != "reproduced", row["listed"] != "affected")


ERRATA_SIGNS = {"reproduced": "fail", "not-reproduced": "pass", "not-run": "skip", "error": "error"}


def observed_words(row):
    seen = status_cell(ERRATA_SIGNS.get(row["observed"], "skip"), row["observed"])
    return seen + (" · <b>contradiction</b>" if row.get("contradiction") else "")


def errata(run):
    """What is listed and what was observed, contradictions first; what neither says anything of is left out."""
    shown = sorted(filter(worth_showing, run.errata), key=errata_order)
    if not shown:
        return ""
    lines = [(code(row["id"]), text(clipped(row["machine"], 200)), text(row.get("core_type", "")), text(row["listed"]), observed_words(row),
              text(row.get("exposure", "")), text(clipped(row.get("title", ""), 400))) for row in shown]
    heads = ("erratum", "machine", "core", "listed", "observed", "exposure", "what it is")
    if not any(row.get("core_type") for row in shown):
        heads, lines = heads[:2] + heads[3:], [line[:2] + line[3:] for line in lines]
    return table(f"Errata ({len(shown)} of {len(run.errata)} listed here, or tried)", heads, lines, wide=True)


def fuzz(run):
    if not run.fuzz:
        return ""
    f = run.fuzz
    parts = [f"<p>{held_words(f['held'])}: {number(f.get('violations', 0))} violations in {number(f.get('cases', 0))} cases with "
             f"{number(f.get('records', 0))} records.</p>"]
    found = f.get("violation") if isinstance(f.get("violation"), dict) else {}
    for label in ("clause", "promise", "expected", "seen", "file"):
        if found.get(label):
            parts.append(f"<p>{label}: {text(clipped(found[label]))}</p>")
    return "".join(parts)


def metadata(run):
    pairs = [("file", run.path)]
    for row in (run.run, *run.machines, run.end or {}):
        pairs += [(f"{row['type']}.{k}" if row.get("type") else k, metadata_value(v)) for k, v in row.items()
                  if k not in ("type", "machine")]
    shown = "".join(f"<dt>{text(clipped(k, 200))}</dt><dd>{text(clipped(v))}</dd>" for k, v in pairs if v not in ("", None))
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
    missing = [(code(clipped(m["name"], 300)), text(clipped(m["reason"]))) for m in run.unmeasured]
    missing = table("Not measured", ("what", "why"), missing) if missing else ""
    if not run.measurements:
        return details(f"Not measured ({len(run.unmeasured):,})", missing) if missing else ""
    lines = []
    for m in run.measurements:
        noise = ", ".join(f"{k} {number(v)}" for k, v in m.get("noise", {}).items() if v)
        spread = f"{number(m.get('low'))} … {number(m.get('high'))}" if m.get("low") is not None else ""
        lines.append((code(clipped(m["name"], 300)), text(clipped(metadata_value(m.get("parameters", {})), 400)),
                      Cell(number(m["value"]), m["value"]),
                      text(clipped(m["unit"], 100)), spread, text(clipped(m.get("statistic", ""), 100)), number(m.get("n")),
                      text(clipped(m["machine"], 200)), text(clipped(noise, 300))))
    heads = ("measurement", "parameters", "value", "unit", "spread", "statistic", "n", "machine", "noise")
    shown = table("All measurements", heads, lines, (2, 6), tools=True, wide=True)
    return details(f"All measurements ({len(run.measurements):,})", shown + missing)
