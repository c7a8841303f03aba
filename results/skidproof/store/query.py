"""Questions to the store, a page at a time. Everything that a user gives is a bound parameter."""

import base64
import datetime
import fnmatch
import json

from sqlalchemy import Text, cast, select, tuple_

from skidproof.cli import usage
from skidproof.store import schema

KINDS = ("runs", "machines", "tests", "measurements", "errata", "evidence", "failures")
PAGE = 1000
_r, _s, _rs, _f, _t = (table.c for table in (schema.runs, schema.subjects, schema.run_subjects, schema.figures, schema.tests))


def moment(words):
    """A date or a time as the user writes it, as a datetime in UTC."""
    try:
        found = datetime.datetime.fromisoformat(words.replace("Z", "+00:00"))
    except ValueError:
        raise usage(f"'{words}' is no date", "write 2026-11-25 or 2026-11-25T10:15:00Z (UTC)") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


def pages(connection, kind, *, machine=None, test=None, figure=None, status=None, erratum=None, run=None, since=None, until=None,
          limit=PAGE, after=None):
    """Yields (columns, rows, cursor) for each page; the cursor is what `after` takes to go on there, None behind the last.

    machine: a host, a machine's name or a glob of either. test, figure: globs. status, erratum, run: exact. since, until: datetimes.
    limit: rows in all; None pages through everything.
    """
    if kind not in KINDS:
        raise usage(f"there is nothing of the kind '{kind}'", f"there are: {', '.join(KINDS)}")
    fact, key = _FACTS[kind]
    columns = [fact.c[name] for name in key]
    conditions = _conditions(connection, kind, fact, machine, test, figure, status, erratum, run, since, until)
    last = None if after is None else _key_of(after, key)
    left = limit
    while conditions is not None and (left is None or left > 0):
        count = PAGE if left is None else min(PAGE, left)
        inner = select(fact).where(*conditions).order_by(*columns).limit(count + 1)
        if last is not None:
            inner = inner.where(tuple_(*columns) > tuple_(*last))
        inner = inner.subquery("fact")
        outer = _OUTER[kind](inner.c, inner)
        found = connection.execute(outer.add_columns(*(inner.c[name].label(f"key_{name}") for name in key))
                                   .order_by(*(inner.c[name] for name in key))).all()
        more, found = len(found) > count, found[:count]
        names = [column.name for column in outer.selected_columns]
        last = tuple(found[-1][len(names):]) if found else last
        yield names, [tuple(row[:len(names)]) for row in found], _cursor(last) if more else None
        if not more:
            return
        left = None if left is None else left - len(found)


def _cursor(key):
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _key_of(cursor, key):
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        found = None
    if not isinstance(found, list) or len(found) != len(key) or not all(
            isinstance(one, str if name in ("id", "core_type") else int) and (isinstance(one, str) or abs(one) < 1 << 31)
            for name, one in zip(key, found)):
        raise usage(f"'{cursor}' is no place to go on from", "give --after what the page before said, with the same kind")
    return found


def _matching(connection, column, key, pattern):
    """The keys whose column matches the glob."""
    return [number for number, words in connection.execute(select(key, column)) if fnmatch.fnmatchcase(words, pattern)]


def _conditions(connection, kind, fact, machine, test, figure, status, erratum, run, since, until):
    """What the rows must hold; None where nothing can."""
    found = []

    def among(column, numbers):
        found.append(column.in_(numbers))
        return bool(numbers)

    if machine is not None:
        subjects = [row.subject for row in connection.execute(select(_s.subject, _s.host, _s.machine))
                    if fnmatch.fnmatchcase(row.host, machine) or fnmatch.fnmatchcase(row.machine, machine)]
        if kind == "runs":
            found.append(fact.c.run.in_(select(_rs.run).where(_rs.subject.in_(subjects))))
        elif not among(fact.c.subject, subjects):
            return None
    for option, words, kinds, column, name, key in (
            ("--test", test, ("tests", "evidence", "failures"), "test", _t.id, _t.test),
            ("--figure", figure, ("measurements",), "figure", _f.name, _f.figure)):
        if words is not None:
            if kind not in kinds:
                raise usage(f"{option} does not go with {kind}", f"it goes with {', '.join(kinds)}")
            if not among(fact.c[column], _matching(connection, name, key, words)):
                return None
    if status is not None:
        if kind not in ("tests", "machines"):
            raise usage(f"--status does not go with {kind}", "it goes with tests and machines")
        if status not in schema.STATUSES:
            raise usage(f"there is no status '{status}'", f"there are: {', '.join(schema.STATUSES)}")
        found.append(fact.c.status == status if kind == "tests" else fact.c[status] > 0)
    if erratum is not None:
        if kind not in ("errata", "tests"):
            raise usage(f"--erratum does not go with {kind}", "it goes with errata and tests")
        found.append(fact.c.id == erratum if kind == "errata" else fact.c.erratum == erratum)
    wanted = [condition for words, condition in (
        (run, _r.id == run), (since, since and _r.started >= since), (until, until and _r.started < until)) if words is not None]
    if wanted and kind == "runs":
        found += wanted
    elif wanted:
        found.append(fact.c.run.in_(select(_r.run).where(*wanted)))
    return found


def _who(c, table, *more):
    """The columns that say of which run and machine a fact is, and its joins."""
    columns = [_r.id.label("run"), _r.started, _s.host, _s.machine, _s.core_type, _rs.provenance, *more]
    joined = table.join(schema.runs, _r.run == c.run).join(schema.subjects, _s.subject == c.subject)
    return columns, joined.join(schema.run_subjects, (_rs.run == c.run) & (_rs.subject == c.subject))


def _runs(c, table):
    return select(*(c[name] for name in ("id", "started", "finished", "version", "exit", "reason", "whole", "row_count", "duration_s",
                                         "seed", "command", "source", "loaded"))).select_from(table)


def _machines(c, table):
    joined = table.join(schema.runs, _r.run == c.run).join(schema.subjects, _s.subject == c.subject)
    rest = [column for column in c if column.name not in ("run", "subject", "provenance")]
    return select(_r.id.label("run"), _r.started, _r.version, _s.host, _s.machine, _s.core_type, c.provenance, *rest).select_from(joined)


def _measurements(c, table):
    columns, joined = _who(c, table, _f.name, c.value, _f.unit, _f.statistic, c.low, c.high, c.n, schema.texts.c.words.label("interval"),
                           _f.parameters, c.involuntary_switches, c.migrations, c.smi, c.steal_s)
    return select(*columns).select_from(joined.join(schema.figures, _f.figure == c.figure)
                                        .outerjoin(schema.texts, schema.texts.c.text == c.interval))


def _tests(c, table):
    rest = [c[name] for name in ("erratum", "duration_s", "seed", "iterations", "comparisons", "n", "k", "voided", "rate", "low", "high")]
    columns, joined = _who(c, table, _t.id.label("test"), c.repetition, c.status, c.skip_category,
                           schema.texts.c.words.label("reason"), *rest)
    return select(*columns).select_from(joined.join(schema.tests, _t.test == c.test)
                                        .outerjoin(schema.texts, schema.texts.c.text == c.reason))


def _evidence(c, table):
    columns, joined = _who(c, table, _t.id.label("test"), c.repetition, schema.texts.c.words.label("name"), c.value, c.text)
    return select(*columns).select_from(joined.join(schema.tests, _t.test == c.test).join(schema.texts, schema.texts.c.text == c.name))


def _failures(c, table):
    columns, joined = _who(c, table, _t.id.label("test"), c.repetition, c.number, c.message)
    return select(*columns).select_from(joined.join(schema.tests, _t.test == c.test))


def _errata(c, table):
    rest = [cast(column, Text).label(column.name) if column.name == "aliases" else column for column in c
            if column.name not in ("run", "subject", "id", "core_type")]
    columns, joined = _who(c, table, c.id, *rest)
    return select(*columns).select_from(joined)


_FACTS = {kind: (table, [column.name for column in table.primary_key.columns]) for kind, table in (
    ("runs", schema.runs), ("machines", schema.run_subjects), ("tests", schema.verdicts), ("measurements", schema.measurements),
    ("errata", schema.errata), ("evidence", schema.evidence), ("failures", schema.failures))}
_OUTER = {"runs": _runs, "machines": _machines, "tests": _tests, "measurements": _measurements, "errata": _errata, "evidence": _evidence,
          "failures": _failures}
