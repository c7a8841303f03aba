"""TAP 14 [testanything.org, "TAP 14 specification"].

Readers of TAP 13 take a `#` in a description for the begin of a directive, escaped or not, and would count another outcome. So it
stands there as `＃`; the exact name is the `id` of the diagnostics, whose YAML is of the kind that Perl's TAP::Parser reads, too:
lists of mappings, one scalar a line, strings in double quotes.
"""

from skidproof.export import common

SEVERITIES = {"fail": "fail", "error": "error"}
EXPECTED_TO_FAIL = "todo".upper()


def document(runs):
    """Version, plan, points, and `Bail out!` where a run was cut short."""
    tested = [(run, common.outcomes(run)) for run in runs]
    count = sum(len(outcomes) for _, outcomes in tested)
    lines = ["TAP version 14", f"1..{count}" + ("" if count else " # SKIP no tests were run")]
    number = 0
    for run, outcomes in tested:
        for machine in common.machine_names(run):
            facts = common.about(run, machine)
            words = (f"run {run.name} on {machine} ({facts['provenance']}), host {facts['host']}, "
                     f"microcode {facts['microcode'] or 'unknown'}, skidproof {facts['version']}, seed {facts['seed']}")
            lines.append(f"# {_line(words)}")
        for one in outcomes:
            number += 1
            lines += _point(number, one, common.about(run, one.machine))
    cut_short = [run.name for run in runs if run.end is None]
    if cut_short:
        lines.append(f"Bail out! cut short: {', '.join(map(_line, cut_short))}")
    return "\n".join(lines) + "\n"


def _point(number, one, facts):
    ok = one.status not in ("fail", "error", "xfail")
    line = f"{'ok' if ok else 'not ok'} {number} - {_description(one)}"
    if one.status in ("xfail", "xpass"):
        line += f" # {EXPECTED_TO_FAIL} {_line(one.words)}"
    elif one.status in ("skip", "observed", "disturbed"):
        line += f" # SKIP {_line(one.words)}"
    return [line, *(_diagnostics(one, facts) if one.status != "pass" else [])]


def _diagnostics(one, facts):
    row = one.row
    said = [("id", one.id), ("status", one.status), ("severity", SEVERITIES.get(one.status, "comment")), ("message", "\n".join(one.story)),
            ("run", facts["run"]), ("machine", one.machine), ("provenance", facts["provenance"]), ("clauses", " ".join(one.clauses)),
            ("erratum", row.get("erratum") or None), ("seed", row.get("seed")), ("duration_s", row.get("duration_s"))]
    tried = row.get("repetitions", {})
    said += [(name, tried.get(key)) for name, key in (("repetitions", "n"), ("failed", "k"), ("voided", "voided"))]
    lines = ["---", *(f"{name}: {_scalar(value)}" for name, value in said if value is not None)]
    lines += _list("failures", ([("message", words)] for words in one.failures))
    lines += _list("evidence", ([("name", name), ("value", value)] for name, value in common.figures(one.evidence)))
    return [f"  {line}" for line in [*lines, "..."]]


def _list(name, items):
    lines = [f"{'    ' if number else '  - '}{key}: {_scalar(value)}" for item in items for number, (key, value) in enumerate(item)]
    return [f"{name}:", *lines] if lines else []


def _scalar(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        digits = repr(value)
        return digits if "." in digits or "e" not in digits else digits.replace("e", ".0e")  # YAML 1.1 wants the point
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(map(_escaped, common.text(value))) + '"'


def _escaped(c):
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    code = ord(c)
    return {"\n": "\\n", "\t": "\\t"}.get(c) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")


def _description(one):
    words = f"{one.machine} {one.suite}.{one.name}" if one.suite else f"{one.machine} {one.name}"
    return _line(words.replace("\\", "\\\\")).replace("#", "\N{FULLWIDTH NUMBER SIGN}")


def _line(words):
    return common.visible(words)
