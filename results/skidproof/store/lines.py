"""The rows of a run as its file held them, in their order: table `run_lines`.

A part is a line of JSON and compressed JSON Lines. Of those an object is a row; an array, [microarch, machine], stands for a
measurement whose columns hold all its numbers. The first line says which they are, in their order: [subject, figure, how many figures
from there on] and so on.
"""

import json
import zlib

import sqlalchemy
from sqlalchemy import select

from skidproof.store import schema
from skidproof.store.forms import NOISE
from skidproof.store.values import decode


def pack(lines):
    """Lines (bytes, (subject, Shape) or stretch) as the second half of a part."""
    return zlib.compress(b"\n".join([
        line if type(line) is bytes else line[1].stand_in if type(line) is tuple else line.lines() for line in lines]), 1)


def part(lines, packed, ids, subjects):
    """A part for the database; ids: forms.Ids, subjects: the database's numbers of them."""
    spans = []
    for line in lines:
        if type(line) is not bytes:
            for subject, figure, count in ((subjects[line[0]], ids[line[1]][0], 1),) if type(line) is tuple else line.spans(ids, subjects):
                if spans and spans[-1][0] == subject and spans[-1][1] + spans[-1][2] == figure:
                    spans[-1][2] += count
                else:
                    spans.append([subject, figure, count])
    return b"%b\n%b" % (json.dumps(spans, separators=(",", ":")).encode(), packed)


def rows(connection, run):
    """Yields the rows of a run (its number), one after the other."""
    parts = select(schema.run_lines.c.part).where(schema.run_lines.c.run == run).order_by(schema.run_lines.c.part)
    for (number,) in connection.execute(parts).all():
        body = connection.execute(select(schema.run_lines.c.body).where(
            schema.run_lines.c.run == run, schema.run_lines.c.part == number)).scalar()
        spans, packed = bytes(body).split(b"\n", 1)
        measured = _measured(connection, run, json.loads(spans))
        for line in zlib.decompress(packed).decode("utf-8").split("\n"):
            row = decode(line)
            yield _measurement(next(measured), *row) if isinstance(row, list) else row


def _measured(connection, run, spans):
    """Yields the columns of the measurements of a part, in their order. They are asked for by their whole keys: a subject's measurements
    of all its nights lie between them."""
    m, f, t = schema.measurements.c, schema.figures.c, schema.texts.c
    question = (select(schema.measurements, f.name, f.unit, f.statistic, f.parameters, t.words)
                .join(schema.figures, f.figure == m.figure).outerjoin(schema.texts, t.text == m.interval).where(m.run == run))
    keys = [(subject, figure + place) for subject, figure, count in spans for place in range(count)]
    for begin in range(0, len(keys), 500):
        some = keys[begin:begin + 500]
        found = {}
        for subject in {subject for subject, _ in some}:
            for one in connection.execute(question.where(m.subject == subject, m.figure.in_([key[1] for key in some if key[0] == subject]))):
                found[subject, one.figure] = one
        yield from (found[key] for key in some)


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
