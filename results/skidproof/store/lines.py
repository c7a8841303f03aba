"""The rows of a run as its file held them, in their order: table `run_lines`.

A part is compressed JSON Lines. An object is a row; an array stands for a measurement whose columns hold all its numbers:
[figure, subject, microarch, machine].
"""

import json
import zlib

import sqlalchemy
from sqlalchemy import select

from skidproof.store import schema
from skidproof.store.forms import NOISE
from skidproof.store.values import decode


def pack(lines, ids):
    """A part of lines (bytes, or Shape) for the database; ids: forms.Ids."""
    return zlib.compress(b"\n".join([line if type(line) is bytes else ids[line][4] for line in lines]), 1)


def rows(connection, run):
    """Yields the rows of a run (its number), one after the other."""
    m, f, t = schema.measurements.c, schema.figures.c, schema.texts.c
    subjects = [row.subject for row in connection.execute(
        select(schema.run_subjects.c.subject).where(schema.run_subjects.c.run == run))]
    columns = None
    parts = select(schema.run_lines.c.part).where(schema.run_lines.c.run == run).order_by(schema.run_lines.c.part)
    for (part,) in connection.execute(parts).all():
        body = connection.execute(select(schema.run_lines.c.body).where(
            schema.run_lines.c.run == run, schema.run_lines.c.part == part)).scalar()
        for line in zlib.decompress(bytes(body)).decode("utf-8").split("\n"):
            row = decode(line)
            if isinstance(row, list):
                if columns is None:
                    found = connection.execute(
                        select(schema.measurements, f.name, f.unit, f.statistic, f.parameters, t.words)
                        .join(schema.figures, f.figure == m.figure).outerjoin(schema.texts, t.text == m.interval)
                        .where(m.subject.in_(subjects), m.run == run))
                    columns = {(one.figure, one.subject): one for one in found}
                row = _measurement(columns[(row[0], row[1])], *row[2:])
            yield row


def _measurement(column, microarch, machine):
    return {"type": "measurement", "machine": machine, "microarch": microarch, "name": column.name, "value": column.value,
            "unit": column.unit, "statistic": column.statistic, "n": column.n, "low": column.low, "high": column.high,
            "interval": column.words, "parameters": json.loads(column.parameters),
            "noise": {name: getattr(column, name) for name in NOISE}}


def delete(connection, runs):
    """Removes runs (a list of (run, id)) and all that hangs on them."""
    numbers = [run for run, _ in runs]
    for begin in range(0, len(numbers), 200):
        some = numbers[begin:begin + 200]
        subjects = [row.subject for row in connection.execute(
            select(schema.run_subjects.c.subject).where(schema.run_subjects.c.run.in_(some)).distinct())]
        for table in schema.BY_SUBJECT:
            for at in range(0, len(subjects), 200):
                connection.execute(sqlalchemy.delete(table).where(table.c.subject.in_(subjects[at:at + 200]), table.c.run.in_(some)))
        points = schema.change_points
        connection.execute(sqlalchemy.delete(points).where(points.c.after_run.in_(some) | points.c.before_run.in_(some)))
        for table in (*schema.BY_RUN, schema.runs):
            connection.execute(sqlalchemy.delete(table).where(table.c.run.in_(some)))
