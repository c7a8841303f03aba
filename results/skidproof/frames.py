"""Results files as pandas data frames, for notebooks.

Every frame has the columns `run` (its id), `machine` (the name in the row: `model:sandy-bridge`, `direct` …) and
`provenance` (`model`, `virtual-lab`, `native`, `silicon` or `unknown`), so that a model's figure never passes for silicon's.
"""

import dataclasses
import glob
import os

import pandas as pd

from skidproof import rows as rows_module
from skidproof.rows import Source

# Columns that are there even where no row is, with their types.
COLUMNS = {
    "runs": {"run": "string", "started": "datetime64[ns, UTC]", "finished": "datetime64[ns, UTC]", "version": "string", "seed": "UInt64",
             "command": "object", "reason": "string", "exit": "Int64", "duration_s": "float64", "path": "string"},
    "machines": {"run": "string", "machine": "string", "provenance": "string", "host": "string", "brand": "string", "family": "Int64",
                 "model": "Int64", "stepping": "Int64", "microcode": "string", "microarch": "string", "hypervisor": "string",
                 "core_type": "string", "os": "string", "bios": "string", "defects": "object"},
    "tests": {"run": "string", "machine": "string", "provenance": "string", "id": "string", "status": "string", "clauses": "object",
              "skip_category": "string", "reason": "string", "erratum": "string", "duration_s": "float64", "seed": "UInt64",
              "repetition": "Int64", "iterations": "Int64", "comparisons": "Int64", "failures": "object", "evidence": "object",
              "n": "Int64", "k": "Int64"},
    "measurements": {"run": "string", "machine": "string", "provenance": "string", "name": "string", "value": "float64", "unit": "string",
                     "statistic": "string", "n": "Int64", "low": "float64", "high": "float64", "interval": "string"},
    "errata": {"run": "string", "machine": "string", "provenance": "string", "id": "string", "core_type": "string", "listed": "string",
               "observed": "string", "contradiction": "boolean", "exposure": "string", "title": "string"},
    "defects": {"run": "string", "machine": "string", "provenance": "string", "id": "string", "clause": "string", "microarch": "string",
                "caught": "boolean", "caught_by": "object", "tests_run": "Int64"},
}


@dataclasses.dataclass(frozen=True)
class Rows:
    """What results files hold, one frame for each kind of row."""

    runs: pd.DataFrame          # one line a run: run, started, finished, version, seed, exit, reason …; exit is missing where it was cut short
    machines: pd.DataFrame      # one line for each run and machine: host, brand, microcode, kernel (`os`), BIOS …
    tests: pd.DataFrame         # one line for each repetition of a test: id, status, clauses, reason, evidence …
    measurements: pd.DataFrame  # one line a figure: name, value, unit, low, high …, and a column for each parameter
    errata: pd.DataFrame        # the listed and the observed verdict on each erratum
    defects: pd.DataFrame       # of qualifications: which defect was caught, and by what
    problems: pd.DataFrame      # path and words: what could not be read, and runs that were cut short

    def histogram(self, name: str) -> pd.DataFrame:
        """The evidence histograms of this name: run, machine, id (of the test), value, count; `name` is `skid`, `pdir-spread` …"""
        found = []
        for test in self.tests.itertuples():
            for key, item in test.evidence.items():
                if isinstance(item, dict) and item.get("kind") == "histogram" and name in (key, item.get("name")):
                    found += [(test.run, test.machine, test.id, value, count) for value, count in rows_module.bins_of(item).items()]
        return pd.DataFrame(found, columns=["run", "machine", "id", "value", "count"])


def _frame(kind: str, lines: list) -> pd.DataFrame:
    frame = pd.DataFrame(lines)
    wanted = COLUMNS[kind]
    for column, dtype in wanted.items():
        if column not in frame:
            frame[column] = pd.Series([None] * len(frame), dtype="object")
        if dtype.startswith("datetime"):
            frame[column] = pd.to_datetime(frame[column], utc=True, errors="coerce")
        elif dtype == "float64":
            frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(dtype)
        elif dtype != "object":
            frame[column] = frame[column].astype(dtype)
    return frame[[*wanted, *(c for c in frame.columns if c not in wanted)]]


def _row(run, row: dict, *left_out: str) -> dict:
    line = {key: value for key, value in row.items() if key not in ("type", *left_out)}
    provenance = rows_module.provenance(row["machine"], run.machine_row(row["machine"])).lower().replace(" ", "-")
    return {"run": run.name, **line, "provenance": provenance}


def _paths(path) -> list:
    if isinstance(path, (list, tuple, set)):
        return [name for one in path for name in _paths(one)]
    name = os.fspath(path)
    if os.path.isdir(name):
        found = sorted(glob.glob(os.path.join(glob.escape(name), "**", "*.jsonl"), recursive=True))
        if not found:
            raise FileNotFoundError(f"no *.jsonl file below {name}")
        return found
    if not os.path.exists(name):
        raise FileNotFoundError(f"there is no {name}")
    return [name]


def read(path) -> Rows:
    """Reads a results file, a folder (and all below it), or several of either.

    Rows that are broken are left out and named in `problems`. Raises FileNotFoundError where nothing is there, and ValueError
    where nothing could be read.
    """
    sources = [rows_module.read_source(name) for name in dict.fromkeys(_paths(path))]
    lines = {kind: [] for kind in COLUMNS}
    problems = [(source.path, problem) for source in sources for problem in source.problems]
    for source in sources:
        for run in source.runs:
            _read_run(source, run, lines)
            if run.end is None:
                problems.append((source.path, f"run {run.name} was cut short: it has no end row"))
    if not any(source.readable for source in sources):
        raise ValueError("nothing could be read: " + "; ".join(f"{name}: {problem}" for name, problem in problems[:5]))
    return Rows(**{kind: _frame(kind, found) for kind, found in lines.items()}, problems=pd.DataFrame(problems, columns=["path", "problem"]))


def _read_run(source: Source, run, lines: dict):
    end = run.end or {}
    lines["runs"].append({"run": run.name, **{k: run.run.get(k) for k in ("started", "version", "seed", "command")},
                          **{k: end.get(k) for k in ("finished", "reason", "exit", "duration_s")}, "path": source.path})
    lines["machines"] += [_row(run, row, "name") for row in run.machines]
    for row in run.tests:
        tried = row.get("repetitions") or {}
        lines["tests"].append({"evidence": {}, **_row(run, row, "repetitions"), "n": tried.get("n"), "k": tried.get("k")})
    for row in run.measurements:
        line = _row(run, row, "parameters", "noise", "counts")
        taken = {*line, "provenance"}
        for key, value in {**row.get("parameters", {}), **row.get("noise", {})}.items():
            line[f"{key}_" if key in taken else key] = value
        line |= {f"counted_{key}": value for key, value in (row.get("counts") or {}).items()}
        lines["measurements"].append(line)
    lines["errata"] += [_row(run, row) for row in run.errata]
    lines["defects"] += [_row(run, row) for row in run.defects]
