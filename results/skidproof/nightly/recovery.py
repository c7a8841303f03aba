"""What a step that never ended left behind: which test or measurement was running, and a results file that says so."""

import dataclasses
import datetime
import json
import os
import pathlib

from skidproof import rows
from skidproof.nightly import state


@dataclasses.dataclass
class Evidence:
    """A results file as it was found. `lines` are its whole rows, as they stand there."""

    path: pathlib.Path
    lines: list = dataclasses.field(default_factory=list)
    torn: bool = False  # the last line breaks off
    run: rows.Run | None = None
    ended: bool = False

    @property
    def test(self):
        """The test-start row of the test that was running; None between two tests."""
        return self.run.open_tests[-1] if self.run and self.run.open_tests and not self.ended else None

    @property
    def measurement(self):
        """The same of a measurement."""
        return self.run.open_measurements[-1] if self.run and self.run.open_measurements and not self.ended else None


def examine(path):
    """The Evidence in a results file of one run; without `run` where there is no file or no row. OSError."""
    evidence = Evidence(pathlib.Path(path))
    try:
        text = evidence.path.read_bytes()
    except FileNotFoundError:
        return evidence
    whole, _, rest = text.rpartition(b"\n")
    evidence.torn = bool(rest)
    source = rows.Source(str(path))
    for line in whole.split(b"\n") if whole else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if rows.row_problem(row) is None:
            evidence.lines.append(line)
            rows.add_row(source, row)
    evidence.run = source.runs[-1] if source.runs else None
    evidence.ended = evidence.run is not None and evidence.run.end is not None
    return evidence


def cause(boot_then, boot_now):
    """Why nothing came after, as far as it can be known."""
    if boot_then != boot_now:
        return "the machine was started anew since: a hang, a crash or a reboot"
    return "the machine was not started anew since: the process hung, crashed or was killed"


def _test_row(start, reason):
    return {"type": "test", "machine": start["machine"], "microarch": start.get("microarch", ""), "id": start["id"],
            "clauses": start.get("clauses", []), "citations": {}, "status": "error", "skip_category": None, "reason": reason,
            "duration_s": 0, "seed": start.get("seed", 0), "repetition": start.get("repetition", 0), "iterations": 0, "comparisons": 0,
            "failures": [], "evidence": {}}


def _seconds_between(start, end):
    try:
        return max(0.0, (datetime.datetime.fromisoformat(end) - datetime.datetime.fromisoformat(start)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _last_time(run):
    """When the last row was written that says a time."""
    times = [row.get("started") for row in (run.run, *run.test_starts, *run.open_measurements)]
    return max((t for t in times if isinstance(t, str)), default="")


LOST, BROKEN_OFF = "machine lost", "rows broken off"


def words_of(evidence, why, what=LOST):
    """"machine lost at test X: …"."""
    if evidence.test:
        started = evidence.test.get("started", "an unknown time")
        return f"{what} at test {evidence.test['id']}: it had started at {started} and nothing came after; {why}"
    if evidence.measurement:
        return f"{what} at measurement {evidence.measurement['name']}: nothing came after; {why}"
    return f"{what} between two rows: {why}" if evidence.run else f"{what} before the first row: {why}"


def write_ended(evidence, path, why, what=LOST):
    """Writes the run as it would stand there had its last words been said: the rows that are whole, an `error` row for the test or an
    `unmeasured` one for the measurement that was running, an `end` row. The original stays. Where `path` is there it is replaced.
    OSError."""
    run, reason = evidence.run, words_of(evidence, why, what)
    machine = (run.machine_names() or ["none"])[-1]
    more = []
    if evidence.measurement:
        start = evidence.measurement
        more.append({"type": "unmeasured", "machine": start["machine"], "microarch": start.get("microarch", ""), "name": start["name"],
                     "reason": reason})
    counts = run.counts()
    if evidence.test:
        more.append(_test_row(evidence.test, reason))
        counts["error"] += 1
    more.append({"type": "end", "machine": machine, "finished": state.now()[:-1] + ".000Z", "counts": counts, "exit": 2, "reason": reason,
                 "duration_s": _seconds_between(run.run.get("started"), _last_time(run))})
    _write(path, evidence.lines + [json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in more])


def write_resumable(evidence, path):
    """A copy of the rows that are whole, for `run --resume` to go on with. OSError."""
    _write(path, evidence.lines)


def _write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as stream:
        stream.writelines(line + b"\n" for line in lines)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
