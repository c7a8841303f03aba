#!/usr/bin/python3
"""Loads results files that are broken in many ways, and looks at what became of them.

usage: results/bench/fuzz_load.py --seconds 600 [--seed 1] [--store postgresql://…]

After each file, by a count of its own: no crash, every good row of a readable run is in the store and comes back, in order, and
what the tables hold is consistent. The first file that breaks this is kept and named. Without --store it uses SQLite.
"""

import argparse
import io
import json
import pathlib
import random
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(RESULTS), str(RESULTS / "bench"), str(RESULTS / "tests")]

import fleet  # noqa: E402
import sample_runs  # noqa: E402
from skidproof import rows as rows_module  # noqa: E402
from skidproof.store import api, database, load, reader, values  # noqa: E402

WORDS = ("", "\\u0000", "\\ud800", "x" * 700, "'; DROP TABLE runs; --", "\\n", "{", '\\"', "é", "=1+1", "null")
VALUES = ("null", "true", "-1", "1e999", "99999999999999999999999999", "0.1e-9", "[]", "{}", '""', '"x"', "[[[[]]]]", "NaN", "-0",
          "1E5", "01", "4294967296")
MACHINE = "direct"  # every run of these files; runs of several machines are the unit tests'


def originals():
    """Lists of lines, a run each."""
    values, facts, _ = fleet.simulate(9, 2, 3, 8)
    runs = []
    for machine in range(2):
        for line in fleet.machine_file(9, machine, values[machine], facts[machine], fleet.figure_list(8)).splitlines():
            if '"type":"run"' in line[:20]:
                runs.append([])
            runs[-1].append(line.encode())
    for rows in (sample_runs.model_run(2)[:120], sample_runs.native_run(2)[:60]):
        for row in rows:
            row["machine"] = MACHINE
        runs.append([json.dumps(row, separators=random.Random(1).choice([(",", ":"), (", ", ": ")])).encode() for row in rows])
    return runs


def mutated(chance, line):
    """The line, changed a little: bytes, numbers, words, structure."""
    kind = chance.randrange(8)
    at = chance.randrange(len(line)) if line else 0
    if kind == 0:
        return line[:at]
    if kind == 1:
        return line[:at] + bytes([chance.randrange(256)]).replace(b"\n", b" ") + line[at + 1:]
    if kind == 2:
        return line[:at] + line[at + chance.randrange(1, 20):]
    if kind == 3:
        return line[:at] + line[chance.randrange(len(line) + 1):]
    places = [index for index, byte in enumerate(line) if byte == 0x3a]
    if kind in (4, 5) and places:  # another value behind a colon
        at = chance.choice(places) + 1
        end = min((found for found in (line.find(b",", at), line.find(b"}", at)) if found > 0), default=len(line))
        return line[:at] + chance.choice(VALUES).encode() + line[end:]
    quotes = [index for index, byte in enumerate(line) if byte == 0x22]
    if kind == 6 and quotes:
        at = chance.choice(quotes) + 1
        return line[:at] + chance.choice(WORDS).encode() + line[at:]
    return line + chance.choice((b" ", b"\r", b"{}", b",", b"\x00"))


def make_file(chance, runs, number):
    """(bytes, ids): some runs with fresh ids, some of their lines mutated, lost, doubled or torn."""
    out, rate = [], chance.choice((0, 0.01, 0.05, 0.3))
    for index in range(chance.randrange(1, 5)):
        lines = list(chance.choice(runs))
        head = json.loads(lines[0]) | {"id": f"f{number}-{index}", "machine": MACHINE}
        lines[0] = json.dumps(head, separators=(",", ":")).encode()
        if chance.random() < 0.2:
            lines = lines[:chance.randrange(1, len(lines) + 1)]
        for line in lines:
            out.append(mutated(chance, line) if chance.random() < rate else line)
            if chance.random() < rate / 10:
                out.append(chance.choice(lines[1:] or lines))
    data = b"\n".join(out) + b"\n"
    return data[:chance.randrange(len(data))] if chance.random() < 0.2 else data


def good_rows(data):
    """(id -> rows of the runs of a file, by the plainest reading of its rules; whether a rule for mixed files may have cut it)."""
    found, current, ended, cut, unended = {}, None, False, False, set()
    for raw in data.split(b"\n"):
        try:
            row = json.loads(raw.decode("utf-8"), parse_constant=rows_module.refuse_constant)
            good = rows_module.row_problem(row) is None and not (row["type"] == "run" and not row["id"])
        except (ValueError, RecursionError):
            row, good = None, False
        if not good:
            is_run = isinstance(row, dict) and row.get("type") == "run" or raw.startswith((b'{"type":"run",', b'{"type": "run",'))
            if raw.strip() and is_run:
                current = None
            continue
        if row["type"] == "run":
            cut |= bool(unended)  # a run before is open: rows may be taken for its own
            current, ended = values.key_text(row["id"]), False
            if current in found:
                cut = True
            found[current] = []
            unended.add(current)
        elif current is None or ended:
            continue
        if current is not None:
            found[current].append(row)
            ended = row["type"] == "end"
            if ended:
                unended.discard(current)
    return found, cut


def check(store, data, report, before):
    """Raises AssertionError where a good row is lost, or one is there that the file has not. `before`: ids of the runs that were there;
    one of those may be refused."""
    expected, cut = good_rows(data)
    runs = {run.id: run for run in store.runs().itertuples()}
    assert cut or before.issuperset(report.runs["refused"]), report.runs
    for run in report.runs["refused"]:
        expected.pop(run, None)
    total = 0
    for run, rows in expected.items():
        stored = store.run_rows(run) if run in runs else []
        total += len(stored)
        if not cut:
            assert _same(stored, rows), f"run {run}: {len(rows)} good rows, {len(stored)} in the store"
        if run in runs:
            assert runs[run].row_count == len(stored), f"run {run}: row_count {runs[run].row_count}, {len(stored)} rows"
    return total, cut


def _same(left, right):
    return json.dumps(load._plain_numbers(left), sort_keys=True) == json.dumps(load._plain_numbers(right), sort_keys=True)


def consistent(engine):
    """No fact without its run, subject or name."""
    with engine.connect() as connection:
        for table in ("measurements", "verdicts", "evidence", "failures", "errata", "defects", "unmeasured", "other_rows",
                      "qualifications"):
            lost = connection.exec_driver_sql(
                f"SELECT count(*) FROM {table} f LEFT JOIN run_subjects r ON r.run = f.run AND r.subject = f.subject "
                "WHERE r.run IS NULL").scalar()
            assert lost == 0, f"{lost} rows of {table} without their run"
        counted = connection.exec_driver_sql(
            'SELECT sum(pass + fail + error + skip + xfail + xpass + observed + disturbed) FROM run_subjects').scalar() or 0
        there = connection.exec_driver_sql("SELECT count(*) FROM verdicts").scalar()
        assert counted == there, f"{there} verdicts, {counted} counted"


def fuzz(seed, folder, seconds=None, files=None, name=None):
    """Runs until the time is over or the files are; returns a tally. AssertionError where something is wrong."""
    chance, runs, began = random.Random(seed), originals(), time.monotonic()
    name = name or str(pathlib.Path(folder) / "fuzz.db")
    engine, url = database.open_engine(name, create=True)
    loader, store = load.Loader(engine, url), api.Store(engine, url)
    tally = {"seed": seed, "files": 0, "rows": 0, "bytes": 0, "problems": 0, "ambiguous": 0}
    piece = reader.PIECE
    try:
        while (seconds is None or time.monotonic() - began < seconds) and (files is None or tally["files"] < files):
            data = make_file(chance, runs, tally["files"])
            reader.PIECE = load.PIECE = chance.choice((piece, piece, 3000))
            before = set(store.runs().id)
            try:
                report = loader.load("fuzzed", io.BytesIO(data))
                loader.flush()
                if chance.random() < 0.1:
                    loader.load("again", io.BytesIO(data))
                    loader.flush()
                rows, cut = check(store, data, report, before)
                tally["rows"] += rows
                tally["ambiguous"] += cut
                if tally["files"] % 50 == 49:
                    consistent(engine)
                    _empty(engine)
            except BaseException:
                kept = pathlib.Path(folder) / f"failing-{seed}-{tally['files']}.jsonl"
                kept.write_bytes(data)
                print(f"the file is {kept}", file=sys.stderr)
                raise
            tally["files"] += 1
            tally["bytes"] += len(data)
            tally["problems"] += report.problem_count
        consistent(engine)
    finally:
        reader.PIECE = load.PIECE = piece
        loader.close()
    return tally


def _empty(engine):
    from skidproof.store import prune
    prune.prune(engine, keep_nights=5)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    asked = parser.parse_args(arguments)
    folder = tempfile.mkdtemp(prefix="skidproof-fuzz-")
    print(json.dumps(fuzz(asked.seed, folder, seconds=asked.seconds, name=asked.store)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
