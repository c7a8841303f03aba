#!/usr/bin/python3
"""Ends loading at random moments, loads again, and compares what is there with a clean load, by counts and checksums of all tables.

usage: results/bench/crash.py [--kills 50] [--server-kills 5] [--full-disks 3] [--machines 12] [--nights 40] [--figures 40] [--seed 1]

kill -9 of the loader (half of the times into SQLite, half into PostgreSQL), kill -9 of the PostgreSQL server, a disk that fills up (a
small tmpfs under the SQLite file, and under PostgreSQL's data; this needs root). Exit code 1 where anything differs.
"""

import argparse
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(RESULTS), str(RESULTS / "bench"), str(RESULTS / "tests")]

import fleet  # noqa: E402
import postgres_server  # noqa: E402
from skidproof.store import database  # noqa: E402
from store_contents import contents  # noqa: E402


def command(store, files):
    return [sys.executable, "-B", str(RESULTS / "skidproof"), "store", "add", "--store", store, *map(str, files)]


def add(store, files):
    """Loads; returns (exit code, the words on stderr, seconds)."""
    began = time.monotonic()
    done = subprocess.run(command(store, files), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip(), time.monotonic() - began


def held(store):
    engine = database.open_engine(store)[0]
    try:
        return contents(engine)
    finally:
        engine.dispose()


def whole(store):
    """The number of runs, each of which has as many rows as it says."""
    from skidproof.store import api, lines
    engine, url = database.open_engine(store, read_only=True)
    runs = api.Store(engine, url).runs()
    with engine.connect() as connection:
        for run in runs.itertuples():
            count = sum(1 for _ in lines.rows(connection, run.run))
            assert count == run.row_count, f"run {run.id} says {run.row_count} rows and has {count}"
    engine.dispose()
    return len(runs)


class Series:
    """Counts and says how each end went."""

    def __init__(self, clean):
        self.clean, self.bad, self.amid = clean, 0, 0

    def compare(self, what, store, partly):
        found = held(store)
        wrong = [table for table in self.clean if found[table] != self.clean[table]]
        self.bad += bool(wrong)
        print(f"{what}: {partly} runs were there; loaded again: {'differs in ' + ', '.join(wrong) if wrong else 'equal'}", flush=True)


def kill_loader(series, store, files, moment, what):
    with subprocess.Popen(command(store, files), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as loader:
        try:
            loader.wait(moment)
        except subprocess.TimeoutExpired:
            loader.send_signal(signal.SIGKILL)
            series.amid += 1
    partly = whole(store) if _exists(store) else 0
    code, words, _ = add(store, files)
    assert code == 0, words
    series.compare(what, store, partly)


def _exists(store):
    """Whether the loader came as far as making the tables."""
    from skidproof.cli import Complaint
    try:
        database.open_engine(store)[0].dispose()
        return True
    except Complaint:
        return False


def kill_server(series, server, files, moment, number):
    store = server.create(f"crash{number}")
    with subprocess.Popen(command(store, files), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as loader:
        time.sleep(moment)
        server.kill()
        words = loader.stderr.read().strip()
        code = loader.wait()
    assert code in (0, 2), (code, words)
    assert code == 0 or len(words.splitlines()) == 2, words
    server.start()
    partly = whole(store) if _exists(store) else 0
    again, said, _ = add(store, files)
    assert again == 0, said
    said = words.splitlines()[0] if words else "done"
    series.compare(f"kill -9 of PostgreSQL after {moment:.2f} s (the loader said: {said})", store, partly)
    server.drop(f"crash{number}")


def fill_disk(series, folder, files, kilobytes, number):
    """SQLite on a tmpfs that is too small, which then grows."""
    mount = folder / f"small{number}"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(mount)], check=True)
    try:
        store = str(mount / "store.db")
        code, words, _ = add(store, files)
        assert code == 2 and len(words.splitlines()) == 2, (code, words)
        subprocess.run(["mount", "-o", "remount,size=4g", str(mount)], check=True)
        partly = whole(store) if _exists(store) else 0
        code, said, _ = add(store, files)
        assert code == 0, said
        series.compare(f"SQLite's disk full at {kilobytes} kB (said: {words.splitlines()[0]})", store, partly)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def fill_server_disk(series, folder, files, kilobytes):
    """PostgreSQL on a tmpfs that has only so much left."""
    mount = folder / "server"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,mode=0755", "tmpfs", str(mount)], check=True)
    server = postgres_server.Server({"max_wal_size": "64MB", "min_wal_size": "32MB"}, folder=str(mount))
    try:
        server.start()
        store = server.create("full")
        used = shutil.disk_usage(mount).used // 1024
        subprocess.run(["mount", "-o", f"remount,size={used + kilobytes}k", str(mount)], check=True)
        code, words, _ = add(store, files)
        assert code == 2 and len(words.splitlines()) == 2, (code, words)
        subprocess.run(["mount", "-o", "remount,size=4g", str(mount)], check=True)
        if server.process.poll() is not None:
            server.start()
        server.wait()
        partly = whole(store) if _exists(store) else 0
        code, said, _ = add(store, files)
        assert code == 0, said
        series.compare(f"PostgreSQL's disk full after {kilobytes} kB (said: {words.splitlines()[0]})", store, partly)
    finally:
        server.stop()
        subprocess.run(["umount", "-l", str(mount)], check=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name, default in (("kills", 50), ("server-kills", 5), ("full-disks", 3), ("machines", 12), ("nights", 40),
                          ("figures", 40), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args(arguments)
    chance = random.Random(asked.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skidproof-crash-"))
    folder.chmod(0o711)  # the server is another user
    server = postgres_server.Server()
    try:
        files = fleet.write(folder / "fleet", asked.seed, asked.machines, asked.nights, asked.figures, jobs=1)
        clean_store = str(folder / "clean.db")
        code, words, seconds = add(clean_store, files)
        assert code == 0, words
        series = Series(held(clean_store))
        size = pathlib.Path(clean_store).stat().st_size // 1024
        server.start()
        code, words, of_postgres = add(server.create("clean"), files)
        assert code == 0, words
        print(f"a clean load takes {seconds:.1f} s into SQLite and {of_postgres:.1f} s into PostgreSQL: {series.clean['runs'][0]} runs, "
              f"{series.clean['measurements'][0]} measurements", flush=True)
        for number in range(asked.kills):
            postgres = number % 2 == 1
            store = server.create(f"kill{number}") if postgres else str(folder / f"kill{number}.db")
            moment = chance.uniform(0.1, of_postgres if postgres else seconds)
            name = "PostgreSQL" if postgres else "SQLite"
            kill_loader(series, store, files, moment, f"kill -9 of the loader into {name} after {moment:.2f} s")
            if postgres:
                server.drop(f"kill{number}")
            else:
                for path in folder.glob(f"kill{number}.db*"):
                    path.unlink()
        for number in range(asked.server_kills):
            kill_server(series, server, files, chance.uniform(0.3, of_postgres), number)
        for number in range(asked.full_disks):
            if number % 3 == 2:
                fill_server_disk(series, folder, files, int(size * chance.uniform(0.3, 0.8)))
            else:
                fill_disk(series, folder, files, int(size * chance.uniform(0.3, 0.8)), number)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{series.amid} of {asked.kills} loaders were killed before they had ended")
    print("all equal a clean load" if not series.bad else f"{series.bad} differ")
    return 1 if series.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
