"""What a store holds, whatever numbers its rows got: for comparing stores that were filled in different ways."""

import hashlib

from sqlalchemy import select

from skidproof.store import lines, schema

TEXTS = {"measurements": ("interval",), "verdicts": ("reason",), "evidence": ("name",)}


def contents(engine, keep=False):
    """table -> (number of rows, checksum) with keys spelled out; with keep, the rows instead, sorted."""
    with engine.connect() as connection:
        names = {
            "run": dict(map(tuple, connection.execute(select(schema.runs.c.run, schema.runs.c.id)))),
            "subject": {row[0]: tuple(row[1:]) for row in connection.execute(select(schema.subjects))},
            "figure": {row[0]: tuple(row[1:]) for row in connection.execute(select(schema.figures))},
            "test": dict(map(tuple, connection.execute(select(schema.tests.c.test, schema.tests.c.id)))),
        }
        texts = dict(map(tuple, connection.execute(select(schema.texts.c.text, schema.texts.c.words))))
        found = {}
        for table in schema.metadata.sorted_tables:
            if table is schema.run_lines:
                rows = ((names["run"][number], place, row) for number in names["run"]
                        for place, row in enumerate(lines.rows(connection, number)))
            else:
                found_rows = connection.execution_options(stream_results=True).execute(select(table))
                rows = (_spelled(table, row, names, texts) for row in found_rows)
            found[table.name] = sorted(map(repr, rows)) if keep else _sum(rows)
    return found


def _spelled(table, row, names, texts):
    out = []
    for column, value in zip(table.columns, row):
        if table is schema.runs and column.name in ("run", "source", "loaded") or table.name == "texts" and column.name == "text":
            continue
        if column.name in TEXTS.get(table.name, ()):
            value = None if value is None else texts[value]
        elif column.name in names and not (column.name == table.name[:-1] and table.name in ("subjects", "figures", "tests")):
            value = names[column.name][value]
        elif column.name in names:
            continue
        if hasattr(value, "replace") and hasattr(value, "tzinfo"):
            value = value.replace(tzinfo=None)
        out.append(value)
    return tuple(out)


def _sum(rows):
    count = total = 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.blake2b(repr(row).encode("utf-8", "backslashreplace"), digest_size=8).digest(), "big")
    return count, total % (1 << 64)
