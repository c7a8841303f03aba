#!/usr/bin/python3
"""Measures the store on a simulated fleet: loading against what the databases can do alone, and what people wait for.

usage: results/bench/load.py [--machines 1000] [--nights 90] [--figures 60] [--seed 1] [--fleet DIR]
                             [--only sqlite|postgresql] [--sizes 10,3,1] [--json FILE]

At 1/10, 1/3 and the full number of machines it loads the fleet with `skidproof store add` and, in the same run, the rows that this
made into empty tables of the same kind, with the same indexes: by bare COPY through one connection into PostgreSQL (Debian's, which it
starts itself in a temporary folder), by executemany in one transaction into SQLite. Then it asks for one machine's history and for
the fleet. Exit code 1 where a target is missed: half the bare speed, 1 s, 3 s.
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(RESULTS), str(RESULTS / "bench"), str(RESULTS / "tests")]

import fleet  # noqa: E402
import postgres_server  # noqa: E402
import skidproof.store  # noqa: E402
from skidproof.store import database, load, schema  # noqa: E402

HISTORY_S, FLEET_S, RATIO = 1.0, 3.0, 0.5
FIRST_OF_ALL = ("subjects", "figures", "tests", "texts", "clauses")  # tables that the others speak of


def add(store, files):
    """(seconds, seconds of its processors) that `skidproof store add` takes; the database server's are not in it."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-B", str(RESULTS / "skidproof"), "store", "add", "--store", store, *map(str, files)], check=True,
                   stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tables():
    """All tables with rows, in an order in which they can be filled."""
    return [*FIRST_OF_ALL, *load.TABLES]


def bare_copy(server, source, folder):
    """Seconds that COPY takes for the rows of the database `source` in a new one, one connection, one transaction."""
    for table in tables():
        with open(folder / table, "wb") as out, database.engine_of(database.location(server.url(source))).connect() as connection:
            connection.connection.cursor().copy_expert(f"COPY {table} TO STDOUT", out)
    target = server.create("bare")
    engine, _ = database.open_engine(target, create=True)
    seconds = 0.0
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        for table in tables():
            with open(folder / table, "rb") as stream:
                began = time.monotonic()
                cursor.copy_expert(f"COPY {table} FROM STDIN", stream, 1 << 18)
                seconds += time.monotonic() - began
            (folder / table).unlink()
        began = time.monotonic()
        connection.connection.commit()
        seconds += time.monotonic() - began
    engine.dispose()
    server.drop("bare")
    return seconds


def bare_executemany(source, target):
    """Seconds that executemany takes for the rows of the SQLite file `source` in a new one, in one transaction."""
    database.open_engine(target, create=True)[0].dispose()
    before = database.engine_of(database.location(source)).raw_connection()
    after = database.engine_of(database.location(target)).raw_connection()
    after.execute("BEGIN IMMEDIATE")
    seconds = 0.0
    for table in tables():
        rows = before.execute(f"SELECT * FROM {table}").fetchall()
        marks = ",".join("?" * len(schema.metadata.tables[table].columns))
        began = time.monotonic()
        after.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        seconds += time.monotonic() - began
        del rows
    began = time.monotonic()
    after.execute("COMMIT")
    after.execute("PRAGMA wal_checkpoint(PASSIVE)")
    seconds += time.monotonic() - began
    before.close()
    after.close()
    return seconds


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
    if kind == "postgresql":
        url = server.create("ours")
        ours, processor = add(url, files)
        bare = bare_copy(server, "ours", folder)
        history, whole = waits(url, asked.seed)
        with database.engine_of(database.location(url)).connect() as connection:
            size = connection.exec_driver_sql("SELECT pg_database_size('ours')").scalar()
        server.drop("ours")
    else:
        path = folder / "ours.db"
        ours, processor = add(str(path), files)
        bare = bare_executemany(str(path), str(folder / "bare.db"))
        history, whole = waits(str(path), asked.seed)
        size = path.stat().st_size
        for name in ("ours", "bare"):
            for extra in ("", "-wal", "-shm"):
                (folder / f"{name}.db{extra}").unlink(missing_ok=True)
    line = {"database": kind, "machines": count, "runs": runs, "measurements": runs * asked.figures, "load_s": round(ours, 2),
            "load_cpu_s": round(processor, 2),
            "bare_s": round(bare, 2), "ratio": round(bare / ours, 3), "measurements_per_s": round(runs * asked.figures / ours),
            "history_s": round(history, 3), "fleet_s": round(whole, 3), "megabytes": round(size / 1e6)}
    print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    return line


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name, default in (("machines", 1000), ("nights", 90), ("figures", 60), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--fleet", help="files that fleet.py made with the same numbers; without it they are made")
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--sizes", default="10,3,1", help="divisors of the number of machines")
    parser.add_argument("--folder", help="where the databases go (default: the temporary folder)")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args(arguments)
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
