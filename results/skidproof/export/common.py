"""What all formats share: which runs, what became of each test and in which words, evidence as figures, text made harmless."""

import dataclasses
import json
import math
import re

from skidproof import rows

# What a status says where a format has no such outcome.
XFAIL = "xfail: the promise was broken, and erratum {erratum} explains it"
XPASS = "xpass: the promise held, though erratum {erratum} is listed"
OBSERVED = "observed: nothing promises an outcome"
DISTURBED = "disturbed: it failed, but noise voids that or it never came again"
HALVES = re.compile("[\ud800-\udfff]")
CUT_SHORT = "the run was cut short in this test: it has no result"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One repetition of one test on one machine."""

    machine: str
    id: str        # `PebsSkid.IsOne/PMC0`
    again: int     # 1, and more where the same test of the same machine comes again in the run
    status: str    # one of rows.STATUSES; "error" where the run was cut short in it
    started: str   # UTC; empty where not known
    row: dict      # the test row, or the test-start row of one without an end

    @property
    def suite(self):
        return self.id.partition(".")[0] if "." in self.id else ""

    @property
    def name(self):
        """The id without its suite, unique within the run and the machine."""
        plain = self.id.partition(".")[2] if "." in self.id else self.id
        return plain if self.again == 1 else f"{plain} [{self.again}]"

    @property
    def failures(self):
        return [text(one) for one in self.row.get("failures", [])]

    @property
    def story(self):
        """The words, and what else the row says in words: each once."""
        return [one for one in dict.fromkeys([self.words, *self.failures, self.row.get("reason", "")]) if one and (
            one == self.words or one not in self.words)]

    @property
    def evidence(self):
        return self.row.get("evidence", {})

    @property
    def clauses(self):
        return [text(one) for one in self.row.get("clauses", [])]

    @property
    def duration_s(self):
        return max(0, self.row.get("duration_s", 0))

    @property
    def words(self):
        """Why it has its status, in one sentence or more; empty for a pass."""
        reason, erratum = self.row.get("reason", ""), self.row.get("erratum", "")
        if self.row.get("type") == "test-start":
            return CUT_SHORT
        if self.status == "skip":
            return f"{text(self.row.get('skip_category') or 'skip')}: {reason}"
        if self.status == "fail":
            return next(iter(self.failures), reason) or self.status
        if self.status == "error":
            return reason or next(iter(self.failures), self.status)
        said = {"xfail": XFAIL, "xpass": XPASS, "observed": OBSERVED, "disturbed": DISTURBED}.get(self.status, "")
        said = said.format(erratum=erratum)
        seen = self.evidence.get("observed")
        if self.status == "observed" and isinstance(seen, dict):
            reason = ", ".join(f"{key}: {text(value)}" for key, value in seen.items())
        return f"{said}: {reason}" if said and reason else said


def outcomes(run):
    """Every test of the run in the order of its rows; those that never ended come last, as errors."""
    starts, seen, found = {}, {}, []
    for row in run.test_starts:
        starts.setdefault(_key(row), []).append(text(row.get("started", "")))
    for row in [*run.tests, *run.open_tests]:
        times = starts.get(_key(row))
        place = (row["machine"], row["id"])
        seen[place] = seen.get(place, 0) + 1
        found.append(Outcome(*place, seen[place], row.get("status", "error"), times.pop(0) if times else "", row))
    return found


def _key(row):
    return (row["machine"], row["id"], text(row.get("repetition", 0)))


def machine_names(run):
    """The machines of a run in the order of appearance; not those that were made to be broken, which only a defect row names."""
    found = [run.run, *run.machines, *run.tests, *run.open_tests, *run.measurements, *run.unmeasured, *run.errata]
    return list(dict.fromkeys(row["machine"] for row in found if row.get("machine")))


def about(run, machine):
    """Text by name: what must stand wherever a figure of this run and machine is shown."""
    row = run.machine_row(machine)
    command = run.run.get("command")
    facts = {"run": run.name, "machine": machine, "provenance": provenance(run, machine), "host": row.get("host") or "unknown"}
    facts |= {name: run.run.get(name) for name in ("version", "seed", "started")}
    facts["command"] = " ".join(map(text, command)) if isinstance(command, list) else None
    facts |= {name: row.get(name) for name in ("microarch", "microcode", "brand", "vendor", "core_type", "hypervisor", "os", "bios")}
    facts["defects"] = " ".join(map(text, row["defects"])) if isinstance(row.get("defects"), list) else None
    facts["tape"] = row.get("tape") or run.run.get("tape")
    return {name: "" if value is None else text(value) for name, value in facts.items()}


def provenance(run, machine):
    """model, virtual-lab, native, silicon or unknown."""
    return rows.provenance(machine, run.machine_row(machine)).lower().replace(" ", "-")


def figures(evidence):
    """(name, value) of each evidence figure; a value is a number, a boolean or text. Histograms and comparisons in words."""
    found = []
    for name, item in evidence.items():
        kind = item.get("kind") if isinstance(item, dict) else None
        if name == "compared" and isinstance(item, dict):
            found += [(expression, _compared(one)) for expression, one in item.items()]
        elif kind == "histogram":
            bins = ", ".join(f"{value}: {count}" for value, count in rows.bins_of(item).items())
            found.append((name, f"{bins or 'empty'} ({text(item.get('unit', ''))})"))
        elif kind == "series":
            y = item.get("y")
            found.append((name, f"{len(y) if isinstance(y, list) else 0} points ({text(item.get('unit', ''))})"))
        else:
            found.append((name, item if isinstance(item, (int, float)) else text(item)))
    return found


def _compared(one):
    if not isinstance(one, dict):
        return text(one)
    expected = f", expected {text(one['expected'])}" if "expected" in one else ""
    return f"seen {text(one.get('seen'))}{expected}, {text(one.get('times'))} times"


def text(value):
    """Any JSON value as text: strings as they are, others as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def visible(words, keep=""):
    r"""What moves a cursor, ends a line or has no meaning as text is shown as `\x1b`; `keep` names characters that may stay."""
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in words)


def tidy(value):
    """JSON values that every format can hold: no halves of surrogate pairs, and none for a number beyond a double."""
    if isinstance(value, str):
        return value if value.isascii() or not HALVES.search(value) else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [tidy(one) for one in value]
    if isinstance(value, dict):
        return {tidy(key): tidy(one) for key, one in value.items()}
    return value
