"""The store's tables, the same in SQLite and PostgreSQL. docs/store.md describes them for people.

Keys are integers, because a fleet has millions of measurements. The tables of facts have no foreign keys: checking three of them
for each measurement costs more than loading it; only the loader writes them, in the transaction of their run.
"""

from sqlalchemy import (JSON, BigInteger, Boolean, Column, DateTime, Float, ForeignKey, Index, Integer, LargeBinary,
                        MetaData, Table, Text, UniqueConstraint)

from skidproof.store.values import STATUSES

REVISION = "0002"  # the newest file in migrations/versions

metadata = MetaData(naming_convention={
    "pk": "%(table_name)s_pk", "uq": "%(table_name)s_%(column_0_N_name)s_key", "fk": "%(table_name)s_%(column_0_name)s_fk",
    "ix": "%(table_name)s_%(column_0_N_name)s_index", "ck": "%(table_name)s_%(constraint_name)s"})

BIG = BigInteger().with_variant(Integer(), "sqlite")
TIME = DateTime(timezone=True)
REAL = Float(53)


def _table(name, *rest, clustered=False):
    return Table(name, metadata, *rest, sqlite_with_rowid=not clustered)


def _key(name):
    return Column(name, Integer, primary_key=True, autoincrement=False)


runs = _table(
    "runs", Column("run", Integer, primary_key=True), Column("id", Text, nullable=False, unique=True),
    Column("started", TIME), Column("finished", TIME), Column("version", Text), Column("command", JSON), Column("seed", Text),
    Column("schema", Integer), Column("reason", Text), Column("exit", Integer), Column("duration_s", REAL), Column("tape", Text),
    Column("whole", Boolean, nullable=False), Column("row_count", BIG, nullable=False), Column("digest", Text, nullable=False),
    Column("head_digest", Text, nullable=False), Column("source", Text), Column("loaded", TIME, nullable=False),
    Index(None, "started"))
run_lines = _table(  # the rows themselves: see lines.py
    "run_lines", Column("run", Integer, ForeignKey("runs.run"), primary_key=True, autoincrement=False), _key("part"),
    Column("body", LargeBinary, nullable=False))
subjects = _table(
    "subjects", Column("subject", Integer, primary_key=True), Column("host", Text, nullable=False), Column("machine", Text, nullable=False),
    Column("core_type", Text, nullable=False), UniqueConstraint("host", "machine", "core_type"))
run_subjects = _table(
    "run_subjects", Column("run", Integer, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
    Column("subject", Integer, ForeignKey("subjects.subject"), primary_key=True, autoincrement=False),
    Column("provenance", Text, nullable=False), Column("vendor", Text), Column("brand", Text), Column("family", Integer),
    Column("model", Integer), Column("stepping", Integer), Column("microcode", Text), Column("microarch", Text), Column("hypervisor", Text),
    Column("os", Text), Column("bios", Text), Column("pmu", Boolean), Column("sibling_thread", Boolean), Column("capabilities", JSON),
    Column("defects", JSON), *(Column(status, Integer, nullable=False) for status in STATUSES), Index(None, "subject", "run"))
figures = _table(
    "figures", Column("figure", Integer, primary_key=True), Column("name", Text, nullable=False), Column("unit", Text, nullable=False),
    Column("statistic", Text, nullable=False), Column("parameters", Text, nullable=False),
    UniqueConstraint("name", "unit", "statistic", "parameters"))
texts = _table("texts", Column("text", Integer, primary_key=True), Column("digest", Text, nullable=False, unique=True),
               Column("words", Text, nullable=False))
measurements = _table(
    "measurements", _key("subject"), _key("figure"), _key("run"), Column("value", REAL, nullable=False), Column("low", REAL),
    Column("high", REAL), Column("n", Integer), Column("interval", Integer), Column("involuntary_switches", Integer),
    Column("migrations", Integer), Column("smi", Integer), Column("steal_s", REAL), clustered=True)
tests = _table("tests", Column("test", Integer, primary_key=True), Column("id", Text, nullable=False, unique=True),
               Column("clauses", JSON), Column("stage", Text))
clauses = _table("clauses", Column("clause", Text, primary_key=True),
                 Column("test", Integer, ForeignKey("tests.test"), primary_key=True, autoincrement=False), Index(None, "test"))
verdicts = _table(
    "verdicts", _key("subject"), _key("test"), _key("run"), _key("repetition"), Column("status", Text, nullable=False),
    Column("skip_category", Text), Column("reason", Integer), Column("erratum", Text), Column("duration_s", REAL), Column("seed", Text),
    Column("iterations", BIG), Column("comparisons", BIG), Column("n", Integer), Column("k", Integer), Column("voided", Integer),
    Column("rate", REAL), Column("low", REAL), Column("high", REAL), clustered=True)
evidence = _table(
    "evidence", _key("subject"), _key("test"), _key("run"), _key("repetition"), _key("name"), Column("value", REAL), Column("text", Text),
    clustered=True)
failures = _table(
    "failures", _key("subject"), _key("test"), _key("run"), _key("repetition"), _key("number"), Column("message", Text, nullable=False),
    clustered=True)
errata = _table(
    "errata", _key("subject"), _key("run"), Column("id", Text, primary_key=True), Column("core_type", Text, primary_key=True),
    Column("microarch", Text), Column("aliases", JSON), Column("title", Text), Column("listed", Text, nullable=False),
    Column("listed_by", Text), Column("listed_why", Text), Column("fixed_from", Text), Column("observed", Text, nullable=False),
    Column("observed_why", Text), Column("tries", BIG), Column("shown", BIG), Column("excluded_rate", REAL), Column("exposure", Text),
    Column("exposure_why", Text), Column("contradiction", Boolean), Index(None, "id"), clustered=True)
defects = _table(
    "defects", _key("subject"), _key("run"), Column("id", Text, primary_key=True), Column("microarch", Text, primary_key=True),
    Column("clause", Text), Column("brief", Text), Column("caught", Boolean, nullable=False), Column("caught_by", JSON),
    Column("tests_run", BIG), Column("duration_s", REAL), clustered=True)
qualifications = _table(
    "qualifications", _key("subject"), _key("run"), Column("microarchs", JSON), Column("seeds", BIG), Column("conforming_runs", BIG),
    Column("conforming_failures", BIG), Column("accused_by", JSON), Column("defects", BIG), Column("caught", BIG), Column("missed", JSON),
    Column("tests_without_catch", JSON), Column("held", Boolean, nullable=False), Column("duration_s", REAL), clustered=True)
unmeasured = _table("unmeasured", _key("subject"), _key("run"), _key("number"), Column("name", Text, nullable=False),
                    Column("reason", Text, nullable=False), clustered=True)
other_rows = _table(  # row types that have no table of their own: fuzz, inventory, errata-summary, qualification-shard
    "other_rows", _key("subject"), _key("run"), _key("number"), Column("type", Text, nullable=False), Column("row", JSON, nullable=False),
    clustered=True)
change_points = _table(
    "change_points", Column("subject", Integer, ForeignKey("subjects.subject"), primary_key=True, autoincrement=False),
    Column("figure", Integer, ForeignKey("figures.figure"), primary_key=True, autoincrement=False),
    Column("after_run", Integer, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
    Column("before_run", Integer, ForeignKey("runs.run")), Column("before", REAL), Column("after", REAL), Column("effect", REAL),
    Column("low", REAL), Column("high", REAL), Column("p", REAL), Column("attributed", JSON), Column("computed", TIME),
    Index(None, "after_run"), Index(None, "before_run"))

# What hangs on a run, in the order in which it can be deleted. Those of the first list are found by their subject first.
BY_SUBJECT = (measurements, verdicts, evidence, failures, errata, defects, qualifications, unmeasured, other_rows)
BY_RUN = (run_lines, run_subjects)
