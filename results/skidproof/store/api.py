"""What other programs ask the store for, as pandas frames."""

import pandas as pd
import sqlalchemy
from sqlalchemy import func, select

from skidproof.cli import usage
from skidproof.store import database, lines, query, schema

_r, _s, _rs, _f, _t = (table.c for table in (schema.runs, schema.subjects, schema.run_subjects, schema.figures, schema.tests))
STATUSES = schema.STATUSES


def _python(value):
    """numpy's numbers are foreign to the databases' drivers."""
    return value.item() if hasattr(value, "item") else value


class Store:
    """A store that is open for reading. Each question opens its own connection, so threads may share it."""

    def __init__(self, engine, url):
        self.engine, self.url = engine, url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.engine.dispose()

    def _frame(self, question, times=("started", "finished", "last_started", "computed", "loaded")):
        with database.plain_words(self.url), self.engine.connect() as connection:
            result = connection.execute(question)
            frame = pd.DataFrame(result.fetchall(), columns=list(result.keys()))
        for name in times:
            if name in frame:
                frame[name] = pd.to_datetime(frame[name], utc=True)
        return frame

    def runs(self):
        """One row a run, by `started`: the columns of the table `runs`."""
        return self._frame(select(schema.runs).order_by(_r.started, _r.run))

    def subjects(self):
        """One row a subject: subject, host, machine, core_type, provenance, microarch, microcode, os, bios, hypervisor, brand, and of
        its last run: last_run (its id), last_started, version, a count for each status; runs is the number of its runs."""
        place = func.row_number().over(partition_by=_rs.subject, order_by=(_r.started.desc(), _rs.run.desc())).label("place")
        ranked = select(_rs.subject, _rs.run, place, func.count().over(partition_by=_rs.subject).label("runs")).join(
            schema.runs, _r.run == _rs.run).subquery()
        return self._frame(
            select(_s.subject, _s.host, _s.machine, _s.core_type, _rs.provenance, _rs.microarch, _rs.microcode, _rs.os, _rs.bios,
                   _rs.hypervisor, _rs.brand, _r.id.label("last_run"), _r.started.label("last_started"), _r.version, ranked.c.runs,
                   *(_rs[status] for status in STATUSES))
            .select_from(ranked).join(schema.run_subjects, (_rs.run == ranked.c.run) & (_rs.subject == ranked.c.subject))
            .join(schema.runs, _r.run == ranked.c.run).join(schema.subjects, _s.subject == ranked.c.subject)
            .where(ranked.c.place == 1).order_by(_s.host, _s.machine, _s.core_type))

    def fleet(self):
        """subjects(), and for each the number of its change points, and of the errata that its last run with errata reproduced."""
        frame = self.subjects()
        points, errata = schema.change_points.c, schema.errata.c
        changed = self._frame(select(points.subject, func.count().label("change_points")).group_by(points.subject))
        latest = select(errata.subject, func.max(errata.run).label("run")).group_by(errata.subject).subquery()
        shown = self._frame(select(errata.subject, func.count().label("errata_reproduced"))
                            .join(latest, (latest.c.subject == errata.subject) & (latest.c.run == errata.run))
                            .where(errata.observed == "reproduced").group_by(errata.subject))
        for more in (changed, shown):
            frame = frame.merge(more, on="subject", how="left")
        return frame.fillna({"change_points": 0, "errata_reproduced": 0}).astype({"change_points": int, "errata_reproduced": int})

    def history(self, subject):
        """One row a measurement of the subject, by `started`: figure, name, unit, statistic, parameters (canonical JSON), run, run_id,
        started, version, provenance, microcode, os, bios, value, low, high, n."""
        m = schema.measurements.c
        figures = self._frame(select(schema.figures).where(_f.figure.in_(
            select(m.figure).where(m.subject == int(subject)).distinct())))
        values = self._frame(select(m.figure, m.run, m.value, m.low, m.high, m.n).where(m.subject == int(subject)))
        nights = self.facts(subject)[["run", "run_id", "started", "version", "provenance", "microcode", "os", "bios"]]
        nights = nights.reset_index(names="night")
        frame = values.merge(nights, on="run").merge(figures, on="figure").sort_values(["night", "figure"], ignore_index=True)
        return frame[["figure", "name", "unit", "statistic", "parameters", "run", "run_id", "started", "version", "provenance", "microcode",
                      "os", "bios", "value", "low", "high", "n"]]

    def facts(self, subject):
        """One row a night of the subject, by `started`: run, run_id, started, version, provenance, microcode, os, bios, hypervisor …"""
        rest = [column for column in _rs if column.name not in ("run", "subject")]
        return self._frame(select(_rs.run, _r.id.label("run_id"), _r.started, _r.finished, _r.version, _r.whole, *rest)
                           .join(schema.runs, _r.run == _rs.run).where(_rs.subject == int(subject)).order_by(_r.started, _rs.run))

    def verdicts(self, subject):
        """One row a verdict on the subject, by `started`: test, id, run, run_id, started, repetition, status, skip_category, reason,
        erratum, n, k, voided, rate, low, high, …"""
        v = schema.verdicts.c
        rest = [v[name] for name in ("repetition", "status", "skip_category", "erratum", "duration_s", "seed", "iterations", "comparisons",
                                     "n", "k", "voided", "rate", "low", "high")]
        return self._frame(select(v.test, _t.id, v.run, _r.id.label("run_id"), _r.started, *rest, schema.texts.c.words.label("reason"))
                           .join(schema.tests, _t.test == v.test).join(schema.runs, _r.run == v.run)
                           .outerjoin(schema.texts, schema.texts.c.text == v.reason)
                           .where(v.subject == int(subject)).order_by(_r.started, v.run, v.test, v.repetition))

    def errata(self, subject=None):
        """One row an errata row, by `started`: the columns of the table `errata`, host, machine, run_id, started, provenance."""
        e = schema.errata.c
        question = (select(_s.host, _s.machine, _r.id.label("run_id"), _r.started, _rs.provenance, schema.errata)
                    .join(schema.subjects, _s.subject == e.subject).join(schema.runs, _r.run == e.run)
                    .join(schema.run_subjects, (_rs.run == e.run) & (_rs.subject == e.subject))
                    .order_by(_r.started, e.run, e.id, e.core_type))
        return self._frame(question if subject is None else question.where(e.subject == int(subject)))

    def change_points(self, subject=None):
        """One row a step that was found in a history: the columns of the table, and of the figure name, unit, statistic, parameters; host,
        machine; before_id, after_id and started of the runs beside it."""
        points = schema.change_points.c
        before = schema.runs.alias()
        question = (select(_s.host, _s.machine, _f.name, _f.unit, _f.statistic, _f.parameters, before.c.id.label("before_id"),
                           _r.id.label("after_id"), _r.started, schema.change_points)
                    .join(schema.subjects, _s.subject == points.subject).join(schema.figures, _f.figure == points.figure)
                    .join(schema.runs, _r.run == points.after_run).outerjoin(before, before.c.run == points.before_run)
                    .order_by(_r.started, points.subject, points.figure))
        return self._frame(question if subject is None else question.where(points.subject == int(subject)))

    def run_rows(self, run_id):
        """The rows of a run exactly as its file held them, in their order. Complaint where there is no such run."""
        return list(self.iter_rows(run_id))

    def iter_rows(self, run_id):
        """The same, one after the other."""
        for _, found in self.rows_of([run_id]):
            yield from found

    def rows_of(self, run_ids):
        """Yields (id, its rows one after the other) of many runs, over one connection; the rows are to be taken before the next run."""
        with database.plain_words(self.url), self.engine.connect() as connection:
            for run_id in run_ids:
                run = connection.execute(select(_r.run).where(_r.id == run_id)).scalar()
                if run is None:
                    raise usage(f"there is no run '{run_id}' in {database.shown(self.url)}", "list them: skidproof store query runs")
                yield run_id, lines.rows(connection, run)

    def last_runs(self):
        """Ids: of each subject the last run of each verb (`run`, `characterize`, `errata` …), by `started`."""
        with database.plain_words(self.url), self.engine.connect() as connection:
            found = connection.execute(select(_rs.subject, _r.id, _r.command).join(schema.runs, _r.run == _rs.run).order_by(_r.started, _r.run))
            last = {(subject, str(command[1]) if isinstance(command, list) and len(command) > 1 else ""): name for subject, name, command in found}
        return list(dict.fromkeys(last.values()))

    def state(self):
        """{"runs", "loaded", "computed"}: it changes whenever a run was loaded or removed, or change points were computed."""
        with database.plain_words(self.url), self.engine.connect() as connection:
            runs, loaded = connection.execute(select(func.count(), func.max(_r.loaded))).one()
            computed = connection.execute(select(func.max(schema.change_points.c.computed))).scalar()
        return {"runs": runs, "loaded": loaded, "computed": computed}

    def query(self, kind, limit=query.PAGE, after=None, **filters):
        """(frame, cursor): a page of a kind of rows, and what `after` takes for the next page (None: that was the last).

        Filters are those of query.pages; limit=None reads everything at once, which pages() does not."""
        names, found, cursor = [], [], None
        for names, rows, cursor in self.pages(kind, limit=limit, after=after, **filters):
            found += rows
        return pd.DataFrame(found, columns=names), cursor

    def pages(self, kind, **filters):
        """Yields (columns, rows, cursor): see query.pages."""
        with database.plain_words(self.url), self.engine.connect() as connection:
            yield from query.pages(connection, kind, **filters)

    def replace_change_points(self, points, subjects=None):
        """Writes change points (dicts with the columns of the table) in place of those there are, of these subjects or of all."""
        engine = database.engine_of(self.url)
        table = schema.change_points
        with database.plain_words(self.url), engine.begin() as connection:
            where = sqlalchemy.true() if subjects is None else table.c.subject.in_(list(map(int, subjects)))
            connection.execute(sqlalchemy.delete(table).where(where))
            if points:
                connection.execute(sqlalchemy.insert(table), [{name: _python(value) for name, value in point.items()} for point in points])
