"""Loads results files: each run whole, in one transaction, or not at all."""

import contextlib
import datetime
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

import sqlalchemy

from skidproof.store import database, lines, schema
from skidproof.store.forms import Dictionaries
from skidproof.store.reader import PIECE, STATUSES, Problem, Reader
from skidproof.store.values import clean, decode, digest_of, key_text

BATCH_RUNS = 256   # short runs of one transaction
ATTEMPTS = 5       # of a transaction that other loaders stand in the way of
DICTIONARY_LOCK, RUN_LOCKS = 8131002, 8131003  # of PostgreSQL's advisory locks
TABLES = ("runs", "run_subjects", "run_lines", "measurements", "verdicts", "evidence", "failures", "errata", "defects",
          "qualifications", "unmeasured", "other_rows")
COLUMNS = {name: [column.name for column in schema.metadata.tables[name].columns] for name in TABLES}
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


# COPY's text format, by type.
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_COPY = {type(None): {None: "\\N"}.get, bool: {True: "t", False: "f"}.get, int: int.__repr__, float: float.__repr__,
         str: lambda value: value if value.isprintable() and "\\" not in value else value.translate(_ESCAPES),
         bytes: lambda value: "\\\\x" + value.hex()}


def copy_line(row):
    return "\t".join([_COPY[type(value)](value) for value in row]) + "\n"


class SqliteTarget:
    """Writes rows into SQLite. `lock` lets the processes of one command take turns without polling."""

    def __init__(self, engine, lock=None):
        self.engine, self.lock = engine, lock or contextlib.nullcontext()
        self.connection = engine.connect().execution_options(autocommit=False)
        self.dbapi = self.connection.connection.dbapi_connection
        self.held = contextlib.ExitStack()
        self.buffers = {name: [] for name in TABLES}

    def begin(self, ids):
        self.held.enter_context(self.lock)
        self.dbapi.execute("BEGIN IMMEDIATE")

    def hold(self, ids):
        """The whole database is ours."""

    def commit(self):
        self.dbapi.execute("COMMIT")
        self.held.close()

    def rollback(self):
        for rows in self.buffers.values():
            rows.clear()
        with contextlib.suppress(Exception):
            self.dbapi.execute("ROLLBACK")
        self.held.close()

    def stored(self, ids):
        found = {}
        for at in range(0, len(ids), 500):
            some = ids[at:at + 500]
            for run, name, count, digest in self.dbapi.execute(
                    f'SELECT run, id, row_count, digest FROM runs WHERE id IN ({",".join("?" * len(some))})', some):
                found[name] = (run, count, digest)
        return found

    def number(self):
        """Of the next run."""
        return self.dbapi.execute("SELECT coalesce(max(run), 0) FROM runs").fetchone()[0] + 1

    def collected(self, put):
        """What `put` brings into the buffers, which is kept out of them."""
        mine, self.buffers = self.buffers, {name: [] for name in TABLES}
        try:
            put()
            return self.buffers
        finally:
            self.buffers = mine

    def add(self, collected):
        for table, rows in collected.items():
            self.buffers[table] += rows

    def resolve(self, dictionaries):
        for kind, key, columns in _DICTIONARIES:
            found, names = dictionaries.found[kind], list(dictionaries.numbers[kind])
            where = " AND ".join(f"{column} = ?" for column in columns)
            for name in names[len(found):]:
                values = _key_of(kind, name)
                row = self.dbapi.execute(f"SELECT {key} FROM {kind} WHERE {where}", values).fetchone()
                if row is None:
                    full = _values_of(kind, name)
                    marks = ",".join("?" * len(full))
                    row = (self.dbapi.execute(f"INSERT INTO {kind} ({','.join(_all_columns(kind))}) VALUES ({marks})", full).lastrowid,)
                if kind == "tests":
                    self._clauses(row[0], name)
                found.append(row[0])

    def _clauses(self, test, name):
        _, clauses, stage = name
        self.dbapi.execute("UPDATE tests SET clauses = ?, stage = ? WHERE test = ? AND (clauses, stage) IS NOT (?, ?)",
                           (clauses, stage, test, clauses, stage))
        self.dbapi.executemany("INSERT OR IGNORE INTO clauses (clause, test) VALUES (?, ?)", [(c, test) for c in _clause_list(clauses)])

    def stretch(self, number, stretch, ids):
        """The measurements that were never parsed."""
        self.buffers["measurements"] += stretch.rows(ids, ids.found["subjects"], number)

    def rows(self, table, rows):
        self.buffers[table] += rows

    def send(self, first=0):
        """Writes what is in the buffers, whose runs count from `first`."""
        for table, rows in self.buffers.items():
            if rows:
                marks = ",".join(f"? + {first}" if column == "run" else "?" for column in COLUMNS[table])
                self.dbapi.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
                rows.clear()

    def update_run(self, number, columns):
        self.connection.execute(sqlalchemy.text(
            "UPDATE runs SET " + ", ".join(f'"{name}" = :{name}' for name in columns) + " WHERE run = :run"), {**columns, "run": number})

    def finish(self):
        """On the disk, whatever happens from here on."""
        self.dbapi.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self):
        self.connection.close()


COPY_PLAIN = ("COPY measurements (subject, figure, interval, value, low, high, n, involuntary_switches, migrations, smi, steal_s, run) "
              "FROM STDIN (NULL 'null')")


class PostgresTarget:
    """Writes rows into PostgreSQL by COPY."""

    def __init__(self, engine):
        self.connection = engine.connect().execution_options(autocommit=False)
        self.dbapi = self.connection.connection.dbapi_connection
        self.dbapi.autocommit = True
        self.cursor = self.dbapi.cursor()
        self.cursor.execute("SET synchronous_commit = off")  # finish() waits once for all
        self.second = engine.connect()  # dictionaries are committed at once, for all loaders
        self.dictionary = self.second.connection.dbapi_connection
        self.dictionary.autocommit = False
        self.dictionary.cursor().execute("SET synchronous_commit = off")
        self.dictionary.commit()
        self.buffers = {name: [] for name in TABLES}
        self.measurements = []  # that were never parsed, for COPY_PLAIN
        self.copy = {name: f"COPY {name} ({','.join(_quoted(columns))}) FROM STDIN" for name, columns in COLUMNS.items()}

    def begin(self, ids):
        self.cursor.execute("BEGIN")
        self.hold(ids)

    def hold(self, ids):
        """Whoever loads the same runs waits; in order, so that nobody waits in a circle."""
        keys = sorted(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big", signed=True) for name in ids)
        self.cursor.execute("SELECT pg_advisory_xact_lock(%s, key) FROM (SELECT unnest(%s::int[]) AS key ORDER BY 1) AS keys",
                            (RUN_LOCKS, keys))

    def commit(self):
        self.cursor.execute("COMMIT")

    def rollback(self):
        for rows in (self.measurements, *self.buffers.values()):
            rows.clear()
        for connection in (self.dbapi, self.dictionary):
            with contextlib.suppress(Exception):
                connection.cursor().execute("ROLLBACK")

    def stored(self, ids):
        self.cursor.execute("SELECT id, run, row_count, digest FROM runs WHERE id = ANY(%s)", (list(ids),))
        return {name: rest for name, *rest in self.cursor.fetchall()}

    def numbers(self, count):
        self.cursor.execute("SELECT nextval(pg_get_serial_sequence('runs', 'run')) FROM generate_series(1, %s)", (count,))
        return [number for (number,) in self.cursor.fetchall()]

    def number(self):
        return self.numbers(1)[0]

    def resolve(self, dictionaries):
        from psycopg2.extras import execute_values
        if dictionaries.resolved():
            return
        found = {}
        try:
            with self.dictionary.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (DICTIONARY_LOCK,))
                for kind, key, columns in _DICTIONARIES:
                    names = list(dictionaries.numbers[kind])[len(dictionaries.found[kind]):]
                    full = {_key_of(kind, name): _values_of(kind, name) for name in names}
                    if not full:
                        continue
                    ids = {}
                    select_known = (f"SELECT {','.join('t.' + c for c in columns)}, t.{key} FROM {kind} t JOIN (VALUES %s) AS v "
                                    f"({','.join(columns)}) USING ({','.join(columns)})")
                    for step in (1, 2):
                        missing = [name for name in full if name not in ids]
                        if step == 2 and missing:
                            execute_values(cursor, f"INSERT INTO {kind} ({','.join(_all_columns(kind))}) VALUES %s ON CONFLICT DO NOTHING",
                                           [full[name] for name in missing], page_size=1000)
                        for at in range(0, len(missing), 1000):
                            rows = execute_values(cursor, select_known, missing[at:at + 1000], page_size=1000, fetch=True)
                            ids.update((tuple(row[:-1]), row[-1]) for row in rows)
                    found[kind] = [ids[_key_of(kind, name)] for name in names]
                    if kind == "tests":
                        self._clauses(cursor, names, found[kind])
                cursor.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                self.dictionary.rollback()
            raise
        for kind, ids in found.items():
            dictionaries.found[kind] += ids

    def _clauses(self, cursor, names, tests):
        for (_, clauses, stage), test in zip(names, tests):
            cursor.execute("UPDATE tests SET clauses = %s, stage = %s WHERE test = %s AND (clauses::text, stage) IS DISTINCT FROM (%s, %s)",
                           (clauses, stage, test, clauses, stage))
            for clause in _clause_list(clauses):
                cursor.execute("INSERT INTO clauses (clause, test) VALUES (%s, %s) ON CONFLICT DO NOTHING", (clause, test))

    def stretch(self, number, stretch, ids):
        self.measurements.append(stretch.copy(ids, ids.found["subjects"], str(number)))

    def rows(self, table, rows):
        self.buffers[table].append("".join(map(copy_line, rows)).encode())

    def send(self):
        for copy, rows in ((COPY_PLAIN, self.measurements), *((self.copy[table], rows) for table, rows in self.buffers.items())):
            if rows:
                self.cursor.copy_expert(copy, io.BytesIO(b"".join(rows)), 1 << 18)
                rows.clear()

    def update_run(self, number, columns):
        self.cursor.execute("UPDATE runs SET " + ", ".join(f'"{name}" = %({name})s' for name in columns) + " WHERE run = %(run)s",
                            {**columns, "run": number})

    def finish(self):
        """A commit that waits for the disk makes those before it durable."""
        self.cursor.execute("SET synchronous_commit = on")
        self.cursor.execute("SELECT pg_current_xact_id()")
        self.cursor.execute("SET synchronous_commit = off")

    def close(self):
        self.connection.close()
        self.second.close()


def _quoted(columns):
    return [f'"{column}"' for column in columns]


_DICTIONARIES = (("subjects", "subject", ("host", "machine", "core_type")),
                 ("figures", "figure", ("name", "unit", "statistic", "parameters")),
                 ("tests", "test", ("id",)), ("texts", "text", ("digest",)))


def _all_columns(kind):
    more = {"tests": ("id", "clauses", "stage"), "texts": ("digest", "words")}
    return more.get(kind) or next(columns for name, _, columns in _DICTIONARIES if name == kind)


def _key_of(kind, name):
    return (name[0],) if kind == "tests" else (digest_of(name),) if kind == "texts" else name


def _values_of(kind, name):
    return (digest_of(name), name) if kind == "texts" else name


def _clause_list(clauses):
    return list(dict.fromkeys(map(key_text, json.loads(clauses))))


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
