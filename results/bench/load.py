#!/usr/bin/python3
"""Measures the store on a simulated fleet: loading against what the databases can do alone, and what people wait for.

usage: results/bench/load.py [--machines 1000] [--nights 90] [--figures 60] [--seed 1] [--fleet DIR]
                             [--only sqlite|postgresql] [--sizes 10,3,1] [--repeat 3] [--json FILE]

At 1/10, 1/3 and the full number of machines it loads the fleet with `skidproof store add`, from the start of the program to its end, and
then, in the same run, the rows that this made into empty tables of the same kind: all tables, with the same indexes, settings and
durability at the end, in the order in which the files bring them. That is done by bare COPY (text format, rows ready in a file) through
one connection in one transaction into PostgreSQL (Debian's, which it starts itself in a temporary folder), and by executemany of
rows ready in memory in one transaction into SQLite. So the bare side reads no results file, looks nothing up, packs no rows, and checks
nothing; and it uses one connection where `add` uses a process for each processor. Both are done --repeat times, by turns; the medians
count. Then it asks for one machine's history and for the fleet. Exit code 1 where a target is missed: half the bare speed, 1 s, 3 s.
Without the module skidproof_forms (ci/build makes it) nothing is measured: loading would be three times slower.

load_cpu_s and bare_cpu_s are what all processors did for either side, the database server's part included; for a busy machine they
say more than seconds do.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(RESULTS), str(RESULTS / "bench"), str(RESULTS / "tests")]

import fleet  # noqa: E402
import postgres_server  # noqa: E402
import skidproof.store  # noqa: E402
from skidproof.store import database, forms, schema, targets  # noqa: E402

HISTORY_S, FLEET_S, RATIO = 1.0, 3.0, 0.5
FIRST_OF_ALL = ("subjects", "figures", "tests", "texts", "clauses")  # tables that the others speak of


class Clock:
    """Seconds, and seconds of the processors: of this process, of those it waited for and of the database server."""

    def __init__(self, server=None):
        self.server, self.seconds, self.processors = server, 0.0, 0.0

    def __enter__(self):
        self.began = (time.monotonic(), self._processors())

    def __exit__(self, *_):
        self.seconds += time.monotonic() - self.began[0]
        self.processors += self._processors() - self.began[1]

    def _processors(self):
        used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return used + (server_processors(self.server) if self.server else 0)


def server_processors(server):
    """Seconds of the server's processes, those that ended included."""
    main, ticks = server.process.pid, 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if main in (int(path.parent.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15] if int(path.parent.name) == main else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def add(store, files, server=None):
    """Clock of `skidproof store add`."""
    clock = Clock(server)
    with clock:
        subprocess.run([sys.executable, "-B", str(RESULTS / "skidproof"), "store", "add", "--store", store, *map(str, files)], check=True,
                       stdout=subprocess.DEVNULL)
    return clock


def tables():
    """All tables with rows, in an order in which they can be filled."""
    return [*FIRST_OF_ALL, *targets.TABLES]


def in_file_order(table):
    """SQL that gives a table's rows as the files bring them: run by run, and by what came first in them."""
    keys = [column.name for column in schema.metadata.tables[table].primary_key.columns]
    if "run" not in keys:
        return f"SELECT * FROM {table} ORDER BY {','.join(keys)}"
    rest = [f"t.{key}" for key in keys if key != "run"]
    return f"SELECT t.* FROM {table} t JOIN runs r ON r.run = t.run ORDER BY {','.join(['r.source', 'r.started', *rest])}"


def bare_copy(server, source, folder):
    """Clock of COPY for the rows of the database `source` in a new one, one connection, one transaction."""
    for table in tables():
        with open(folder / table, "wb") as out, database.engine_of(database.location(server.url(source))).connect() as connection:
            connection.connection.cursor().copy_expert(f"COPY ({in_file_order(table)}) TO STDOUT", out)
    target = server.create("bare")
    engine, _ = database.open_engine(target, create=True)
    checkpoint(target)
    clock = Clock(server)
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        for table in tables():
            with open(folder / table, "rb") as stream:
                with clock:
                    cursor.copy_expert(f"COPY {table} FROM STDIN", stream, 1 << 18)
            (folder / table).unlink()
        with clock:
            connection.connection.commit()
    engine.dispose()
    server.drop("bare")
    return clock


def checkpoint(url):
    """What was written before is on the disk: it is not paid for by what follows."""
    with database.engine_of(database.location(url)).connect() as connection:
        connection.exec_driver_sql("CHECKPOINT")


def bare_executemany(source, target):
    """Clock of executemany for the rows of the SQLite file `source` in a new one, in one transaction."""
    database.open_engine(target, create=True)[0].dispose()
    before = database.engine_of(database.location(source)).raw_connection()
    after = database.engine_of(database.location(target)).raw_connection()
    after.execute("BEGIN IMMEDIATE")
    clock = Clock()
    for table in tables():
        rows = before.execute(in_file_order(table)).fetchall()
        marks = ",".join("?" * len(schema.metadata.tables[table].columns))
        with clock:
            after.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        del rows
    with clock:
        after.execute("COMMIT")
        after.execute("PRAGMA wal_checkpoint(PASSIVE)")
    before.close()
    after.close()
    return clock


def waits(store, seed):
    """(slowest of 10 machines' histories, of 3 fleets) in seconds."""
    with skidproof.store.open(store) as opened:
        subjects = list(opened.subjects().subject)
        history = []
        for subject in random.Random(seed).sample(subjects, min(10, len(subjects))):
            began = time.monotonic()
            opened.history(subject)
            opened.verdicts(subject)
            opened.change_points(subject)
            opened.errata(subject)
            history.append(time.monotonic() - began)
        whole = []
        for _ in range(3):
            began = time.monotonic()
            opened.fleet()
            whole.append(time.monotonic() - began)
    return max(history), max(whole)


def measure(kind, count, files, asked, folder, server):
    """One line of the table."""
    runs = count * asked.nights
    ours, bare = [], []
    for _ in range(asked.repeat):
        if kind == "postgresql":
            store = server.create("ours")
            checkpoint(store)
            ours.append(add(store, files, server))
            bare.append(bare_copy(server, "ours", folder))
        else:
            store = str(folder / "ours.db")
            ours.append(add(store, files))
            bare.append(bare_executemany(store, str(folder / "bare.db")))
        if len(ours) == asked.repeat:
            history, whole = waits(store, asked.seed)
            size = size_of(store)
        if kind == "postgresql":
            server.drop("ours")
        for path in folder.glob("*.db*"):
            path.unlink()
    load_s, load_cpu_s, bare_s, bare_cpu_s = (statistics.median(getattr(clock, what) for clock in clocks)
                                              for clocks in (ours, bare) for what in ("seconds", "processors"))
    ratios = sorted(theirs.seconds / mine.seconds for mine, theirs in zip(ours, bare))
    line = {"database": kind, "machines": count, "runs": runs, "measurements": runs * asked.figures, "load_s": round(load_s, 2),
            "load_cpu_s": round(load_cpu_s, 2), "bare_s": round(bare_s, 2), "bare_cpu_s": round(bare_cpu_s, 2),
            "ratio": round(statistics.median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios],
            "measurements_per_s": round(runs * asked.figures / load_s), "history_s": round(history, 3), "fleet_s": round(whole, 3),
            "megabytes": round(size / 1e6)}
    print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    return line


def size_of(store):
    """Bytes of the database."""
    if "://" not in store:
        return pathlib.Path(store).stat().st_size
    with database.engine_of(database.location(store)).connect() as connection:
        return connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar()


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name, default in (("machines", 1000), ("nights", 90), ("figures", 60), ("seed", 1), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--fleet", help="files that fleet.py made with the same numbers; without it they are made")
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--sizes", default="10,3,1", help="divisors of the number of machines")
    parser.add_argument("--folder", help="where the databases go (default: the temporary folder)")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args(arguments)
    if forms.module is None:
        parser.error("the module skidproof_forms is not built: run ci/build first")
    lines = []
    with tempfile.TemporaryDirectory(prefix="skidproof-load-", dir=asked.folder) as name:
        folder = pathlib.Path(name)
        if asked.fleet:
            files = sorted(pathlib.Path(asked.fleet).glob("*.jsonl"))[:asked.machines]
        else:
            files = fleet.write(folder / "fleet", asked.seed, asked.machines, asked.nights, asked.figures)
        for kind in ("postgresql", "sqlite"):
            if asked.only not in (None, kind):
                continue
            server = postgres_server.Server(folder=asked.folder).start() if kind == "postgresql" else None
            try:
                for divisor in map(int, asked.sizes.split(",")):
                    count = max(1, len(files) // divisor)
                    lines.append(measure(kind, count, files[:count], asked, folder, server))
            finally:
                if server:
                    server.stop()
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    missed = [line for line in lines if line["ratio"] < RATIO or line["history_s"] >= HISTORY_S or line["fleet_s"] >= FLEET_S]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
