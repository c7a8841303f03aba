"""Loads results files: each run whole, in one transaction, or not at all."""

import contextlib
import datetime
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

from skidproof.store import database, lines
from skidproof.store.forms import Dictionaries
from skidproof.store.reader import PIECE, Problem, Reader
from skidproof.store.targets import COLUMNS, PostgresTarget, SqliteTarget
from skidproof.store.values import STATUSES, clean, decode

BATCH_RUNS = 256   # short runs of one transaction
ATTEMPTS = 5       # of a transaction that other loaders stand in the way of
NO_COUNTS = (0,) * len(STATUSES)
OUTCOMES = ("loaded", "extended", "there", "shorter", "refused")


class FileReport:
    """What became of one file. runs: outcome -> ids."""

    def __init__(self, path):
        self.path, self.rows, self.bytes, self.lost, self.problem_count = path, 0, 0, False, 0
        self.problems = []
        self.runs = {outcome: [] for outcome in OUTCOMES}

    def failed(self):
        """Something of the file is not in the store."""
        return self.lost or bool(self.runs["refused"])

    def add_problem(self, line, words):
        self.problems.append(Problem(line, words, True))
        self.problem_count += 1
        self.lost = True


class Loader:
    """Loads file after file through one connection. Reports are final after finish()."""

    def __init__(self, engine, url, lock=None):
        self.engine, self.url = engine, url
        self.sqlite = database.is_sqlite(engine)
        self.target = SqliteTarget(engine, lock) if self.sqlite else PostgresTarget(engine)
        self.dictionaries = Dictionaries()
        self.batch, self.batch_ids, self.batch_size = [], set(), 0  # (run, report)
        self.long = []                        # runs of which a part is in the open transaction
        self.again = set()                    # ids of long runs that replace what is stored
        self.report = None

    def load(self, path, stream, progress=None, replace=()):
        """Loads one seekable stream; returns its FileReport."""
        if self.dictionaries.large():
            self.flush()
            self.dictionaries.clear()
        report = self.report = FileReport(path)
        self.again, self.replace = set(), frozenset(replace)
        reader = Reader(path, self.dictionaries, self._take)
        try:
            reader.read(stream, progress)
            if self.long:
                raise AssertionError("a run was never closed")
        except BaseException:
            self._undo()
            raise
        report.rows, report.bytes, report.lost = reader.rows, reader.bytes, reader.lost
        report.problems, report.problem_count = reader.problems, reader.problem_count
        if self.again:
            self.flush()
            stream.seek(0)
            second = self.load(path, stream, progress, self.again)
            report.runs["extended"] += second.runs["extended"]
        return report

    def _undo(self):
        self.target.rollback()
        self.dictionaries.forget_found()
        self.batch, self.batch_ids, self.batch_size, self.long = [], set(), 0, []

    def finish(self):
        self.flush()
        self.target.finish()

    def close(self):
        self.target.close()

    def _take(self, run, last):
        if run.state is None and last:
            if run.id in self.batch_ids:
                self.flush()
            self.batch.append((run, self.report))
            self.batch_ids.add(run.id)
            self.batch_size += run.size
            if len(self.batch) >= BATCH_RUNS or self.batch_size > PIECE:
                self.flush()
            return
        if run.state is None:
            self.flush()
            self._begin_long(run)
        self._long_piece(run, last)

    # Short runs: many in one transaction.

    def flush(self):
        """Commits the runs that are waiting. Inside a long run's transaction it leaves the commit to that."""
        if not self.batch:
            return
        for attempt in range(1, ATTEMPTS + 1):
            try:
                outcomes = self._flush_once()
                break
            except Exception as error:
                self.target.rollback()
                self.dictionaries.forget_found()
                if attempt == ATTEMPTS or self.long or not _stood_in_the_way(error):
                    raise
        for (run, report), outcome in zip(self.batch, outcomes):
            report.runs[outcome].append(run.id)
        self.batch, self.batch_ids, self.batch_size = [], set(), 0

    def _flush_once(self):
        ids = [run.id for run, _ in self.batch]
        if self.sqlite:
            ahead = self._put_ahead(ids)
        else:
            self.target.resolve(self.dictionaries)
        if self.long:
            self.target.hold(ids)
        else:
            self.target.begin(ids)
        stored = self.target.stored(ids)
        outcomes, new = [], []
        for place, (run, _) in enumerate(self.batch):
            known = stored.get(run.id)
            outcome = "loaded" if known is None else self._compare(known, run.count, run.hasher.hexdigest(), lambda: map(_hash, run.raw_lines()))
            outcomes.append(outcome)
            if outcome == "extended":
                lines.delete(self.connection(), [(known[0], run.id)])
            if outcome in ("loaded", "extended"):
                new.append((place, run))
        if new and self.sqlite:
            self.target.resolve(self.dictionaries)
            for place, run in new:
                if place in ahead:
                    self.target.add(ahead[place])
                else:
                    self._put_whole(place, run)
            self.target.send(self.target.number())
        elif new:
            for (_, run), number in zip(new, self.target.numbers(len(new))):
                self._put_whole(number, run)
            self.target.send()
        if not self.long:
            self.target.commit()
        return outcomes

    def _put_ahead(self, ids):
        """What can be done before other loaders have to wait: the rows of runs that look new, with their places in the batch for
        numbers."""
        if not self.dictionaries.resolved():
            return {}
        known = self.target.stored(ids)
        return {place: self.target.collected(lambda: self._put_whole(place, run))
                for place, (run, _) in enumerate(self.batch) if run.id not in known}

    def _put_whole(self, number, run):
        self.target.rows("runs", [self._run_row(number, run)])
        self._put(number, run, 0)
        self._put_facts(number, run)

    def connection(self):
        """SQLAlchemy's, in the transaction that is open."""
        return self.target.connection

    def _compare(self, known, count, digest, hashes):
        """What a run is to the stored one of its id."""
        number, stored_count, stored_digest = known
        if count == stored_count and digest == stored_digest:
            return "there"
        old = [_hash_row(row) for row in lines.rows(self.connection(), number)]
        new = list(hashes())
        if old[:1] != new[:1]:
            return "refused"
        if old == new:
            return "there"
        if len(new) > len(old) and _within(old, new):
            return "extended"
        return "shorter" if len(new) < len(old) and _within(new, old) else "refused"

    def _run_row(self, number, run):
        columns = run.columns() | {"run": number, "source": clean(str(run.source)), "loaded": _now()}
        if not self.sqlite:
            for name in ("started", "finished", "loaded"):
                columns[name] = columns[name] and columns[name] + "+00"
        return tuple(columns[name] for name in COLUMNS["runs"])

    def _put(self, number, run, part):
        """Rows of a run, as far as they are read, into the target's buffers."""
        found = self.dictionaries.found
        subjects, figures, tests, texts = (found[kind] for kind in Dictionaries.KINDS)
        if run.lines:
            self.target.rows("run_lines", [(number, part, lines.part(run.lines, run.packed, self.dictionaries.ids, subjects))])
        for stretch in run.stretches:
            self.target.stretch(number, stretch, self.dictionaries.ids)
        for table, rows in run.tables.items():
            if table == "measurements":
                rows = [(subjects[s], figures[f], number, *rest[:4], None if rest[4] is None else texts[rest[4]], *rest[5:])
                        for s, f, *rest in rows]
            elif table == "verdicts":
                rows = [(subjects[s], tests[t], number, repetition, status, skip, None if reason is None else texts[reason], *rest)
                        for s, t, repetition, status, skip, reason, *rest in rows]
            elif table == "evidence":
                rows = [(subjects[s], tests[t], number, repetition, texts[name], value, text)
                        for s, t, repetition, said in rows for name, value, text in said]
            elif table == "failures":
                rows = [(subjects[s], tests[t], number, *rest) for s, t, *rest in rows]
            else:
                rows = [(subjects[s], number, *rest) for s, *rest in rows]
            self.target.rows(table, rows)

    def _put_facts(self, number, run):
        subjects = self.dictionaries.found["subjects"]
        self.target.rows("run_subjects", [
            (number, subjects[subject], *facts, *run.counts.get(subject, NO_COUNTS)) for subject, facts in run.facts.items()])

    # A long run: its own transaction, piece by piece.

    def _begin_long(self, run):
        if self.long:
            self.target.hold([run.id])
        else:
            self.target.begin([run.id])
        self.long.append(run)
        known = self.target.stored([run.id]).get(run.id)
        if known is not None and run.id not in self.replace:
            run.state = ("compare", known, [])
            return
        if known is not None:
            lines.delete(self.connection(), [(known[0], run.id)])
        number = self.target.number()
        run.state = ("insert", number, [0], "loaded" if known is None else "extended")
        self.target.rows("runs", [self._run_row(number, run)])
        self.target.send()

    def _long_piece(self, run, last):
        if run.state[0] == "compare":
            _, known, hashes = run.state
            hashes += map(_hash, run.raw_lines())
            outcome = self._compare(known, run.count, run.hasher.hexdigest(), lambda: hashes) if last else None
            if outcome == "extended":
                self.again.add(run.id)
                outcome = None
        else:
            _, number, parts, outcome = run.state
            self.target.resolve(self.dictionaries)
            self._put(number, run, parts[0])
            parts[0] += 1
            if last:
                self._put_facts(number, run)
            self.target.send()
            if last:
                columns = dict(zip(COLUMNS["runs"], self._run_row(number, run)))
                self.target.update_run(number, columns)
        if last:
            self.long.remove(run)
            if not self.long:
                self.target.commit()
            if outcome:
                self.report.runs[outcome].append(run.id)


def _now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")


def _stood_in_the_way(error):
    """Another loader's transaction made this one fail; again it will do."""
    while error is not None:
        if getattr(error, "pgcode", None) in ("40001", "40P01", "23505"):
            return True
        error = getattr(error, "orig", None)
    return False


def _plain_numbers(value):
    """JSON values that are equal become the same text."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain_numbers(inner) for key, inner in value.items()}
    return [_plain_numbers(inner) for inner in value] if isinstance(value, list) else value


def _hash_row(row):
    return hashlib.blake2b(json.dumps(_plain_numbers(row), sort_keys=True).encode(), digest_size=8).digest()


def _hash(raw):
    return _hash_row(decode(raw.decode("utf-8")))


def _within(few, many):
    """Whether all of `few` are in `many`, in the same order."""
    rest = iter(many)
    return all(one in rest for one in few)


@contextlib.contextmanager
def opened(path):
    """(stream, problem) of a results file: a seekable stream, and what was wrong with unpacking it. "-" is standard input; .gz and
    .zst are unpacked into a temporary file, as far as they can be."""
    with contextlib.ExitStack() as stack:
        if path == "-":
            yield _spooled(stack, sys.stdin.buffer)
        elif path.endswith(".gz"):
            yield _spooled(stack, stack.enter_context(gzip.open(path)))
        elif path.endswith(".zst"):
            os.stat(path)
            process = stack.enter_context(subprocess.Popen(["zstd", "-dcq", "--", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            stream, problem = _spooled(stack, process.stdout)
            words = process.stderr.read().decode(errors="replace").strip()
            yield stream, (words or "zstd failed") if process.wait() else problem
        else:
            stream = stack.enter_context(open(path, "rb", buffering=1 << 20))
            yield (stream, None) if stream.seekable() else _spooled(stack, stream)


def _spooled(stack, source):
    stream, problem = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=PIECE)), None
    try:
        shutil.copyfileobj(source, stream, 1 << 16)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"unpacking it ends early: {error}"
    stream.seek(0)
    return stream, problem
