"""Where rows go: into SQLite by executemany, into PostgreSQL by COPY, with the numbers of what they speak of."""

import contextlib
import hashlib
import io
import json

import sqlalchemy

from skidproof.store import schema
from skidproof.store.values import digest_of, key_text

DICTIONARY_LOCK, RUN_LOCKS = 8131002, 8131003  # of PostgreSQL's advisory locks
TABLES = ("runs", "run_subjects", "run_lines", "measurements", "verdicts", "evidence", "failures", "errata", "defects",
          "qualifications", "unmeasured", "other_rows")
COLUMNS = {name: [column.name for column in schema.metadata.tables[name].columns] for name in TABLES}


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
