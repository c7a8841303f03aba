"""Removes old runs and all that hangs on them."""

import hashlib

from sqlalchemy import func, select, text

from skidproof.store import database, lines, schema
from skidproof.store.targets import RUN_LOCKS

BATCH = 100  # runs of one transaction
_r, _rs = schema.runs.c, schema.run_subjects.c


def prune(engine, keep_nights=None, before=None, runs=None, dry_run=False):
    """Removes runs: of each subject all but the newest `keep_nights`, those that started before a datetime, or those of these ids.

    A run stays where any of its subjects still needs it. Returns ([(id, started, rows)] removed, [ids that are not there]).
    """
    with engine.connect() as connection:
        chosen = select(_r.run, _r.id, _r.started, _r.row_count).order_by(_r.started, _r.run)
        missing = []
        if runs is not None:
            runs = list(dict.fromkeys(runs))
            found = [row for at in range(0, len(runs), 500) for row in connection.execute(chosen.where(_r.id.in_(runs[at:at + 500])))]
            there = {row.id for row in found}
            missing = [run for run in runs if run not in there]
        elif before is not None:
            found = connection.execute(chosen.where(_r.started < before)).all()
        else:
            place = func.row_number().over(partition_by=_rs.subject, order_by=(_r.started.desc(), _rs.run.desc())).label("place")
            ranked = select(_rs.run, place).join(schema.runs, _r.run == _rs.run).subquery()
            old = select(ranked.c.run).group_by(ranked.c.run).having(func.min(ranked.c.place) > keep_nights)
            found = connection.execute(chosen.where(_r.run.in_(old))).all()
    if not dry_run:
        for at in range(0, len(found), BATCH):
            _remove(engine, [(row.run, row.id) for row in found[at:at + BATCH]])
    return [(row.id, row.started, row.row_count) for row in found], missing


def _remove(engine, runs):
    with engine.begin() as connection:
        if database.is_sqlite(engine):
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:  # a loader that extends one of them waits, and finds it gone
            keys = sorted(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big", signed=True) for _, name in runs)
            connection.execute(text("SELECT pg_advisory_xact_lock(:locks, key) FROM (SELECT unnest(:keys) AS key ORDER BY 1) AS keys"),
                               {"locks": RUN_LOCKS, "keys": keys})
        lines.delete(connection, runs)
