"""Opens databases: SQLite by path, PostgreSQL by URL; their version; what their errors mean in plain words."""

import contextlib
import logging
import os
import pathlib
import re

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from skidproof.cli import Complaint, usage
from skidproof.store import schema

DEFAULT = "skidproof.db"
BUSY_MS = 60_000


def location(name=None):
    """The URL of what the user named: a URL, or the path of an SQLite file; by default $SKIDPROOF_STORE, then skidproof.db here."""
    name = os.fspath(name) if name else os.environ.get("SKIDPROOF_STORE") or DEFAULT
    if name.startswith("postgres://"):
        name = "postgresql://" + name[len("postgres://"):]
    if not re.match(r"[a-z][a-z0-9+]*:", name):
        return sqlalchemy.engine.URL.create("sqlite", database=name)
    try:
        url = make_url(name)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise usage(f"'{_without_password(name)}' is no database", "give a file, or postgresql://USER@HOST/DATABASE") from None
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql") or url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg2"):
        raise usage(f"'{kind}' databases are not supported", "give a file (SQLite), or postgresql://USER@HOST/DATABASE")
    if kind == "sqlite" and url.database in (None, "", ":memory:"):
        raise usage("a store needs a file", "give its path: skidproof store add --store results.db …")
    return url


def _without_password(name):
    return re.sub(r"//([^:/@]*):[^@]*@", r"//\1:***@", name)


def shown(url):
    """How the user knows it, without the password."""
    return url.database if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


def is_sqlite(engine):
    return engine.dialect.name == "sqlite"


def engine_of(url, read_only=False):
    """An engine whose connections are ready to use. It opens none itself."""
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # what went wrong is said once, as a Complaint
    if url.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_MS / 1000})
        event.listen(engine, "connect", lambda connection, record: _prepare_sqlite(connection, read_only))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine
    url = url.set(drivername="postgresql+psycopg2")
    options = "-c client_encoding=UTF8 -c timezone=UTC" + (" -c default_transaction_read_only=on" if read_only else "")
    # One connection stays open for what follows, and is looked at before it is used again: the server may have gone away.
    return sqlalchemy.create_engine(url, pool_size=1, max_overflow=-1, pool_pre_ping=True, connect_args={
        "options": options, "application_name": "skidproof", "connect_timeout": 10, "keepalives_idle": 30})


def _prepare_sqlite(connection, read_only):
    connection.isolation_level = None  # transactions begin where this package says so
    connection.execute("PRAGMA foreign_keys = ON")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    else:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA wal_autocheckpoint = 8000")


@contextlib.contextmanager
def plain_words(url):
    """Turns what the database's driver raises into Complaint."""
    try:
        yield
    except Complaint:
        raise
    except sqlalchemy.exc.DBAPIError as error:
        raise complaint(url, error.orig) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] in ("sqlite3", "psycopg2"):
            raise complaint(url, error) from error
        raise


def complaint(url, error):
    """What this driver's error means, and what to do."""
    words = " ".join(str(error).split()) or type(error).__name__
    low, name = words.lower(), shown(url)
    if url.get_backend_name() == "sqlite":
        for sign, what, advice in (
                ("not a database", "is not an SQLite database", "name another file: this one stays as it is"),
                ("malformed", "is damaged", "restore it from a copy, or load the results files into a new one"),
                ("disk is full", "cannot grow: the disk is full", "make room and run the same command again"),
                ("readonly", "cannot be written", "make the file and its folder writable"),
                ("unable to open", "cannot be opened", "is the folder there, and may you write in it?"),
                ("locked", "is in use by another program", "try again when it has finished"),
                ("disk i/o", "cannot be read or written: input/output error", "look at the disk; then run the same command again")):
            if sign in low:
                return Complaint(f"{name} {what}", advice)
        return Complaint(f"{name}: {words}", "see docs/store.md")
    code = getattr(error, "pgcode", None) or ""
    if "no password supplied" in low or "password authentication" in low or code.startswith("28"):
        return Complaint(f"{name} refuses the user or the password", "check both; ~/.pgpass or PGPASSWORD can hold the password")
    if "does not exist" in low and "database" in low:
        return Complaint(f"{name}: there is no such database", f"create it: createdb {url.database}")
    if code == "53100" or "no space left" in low:
        return Complaint(f"{name} cannot grow: its disk is full", "make room there and run the same command again")
    if code == "42501" or "permission denied" in low or code == "25006":
        return Complaint(f"{name} does not allow that: {words}", "connect as a user who may, or GRANT it")
    if not code or code.startswith(("08", "57")):
        return Complaint(f"{name} does not answer, or went away: {words}", "is it running and reachable? then run the same command again")
    return Complaint(f"{name}: {words}", "see docs/store.md")


def version(connection):
    """The revision of the database's tables; None where there are none of ours."""
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def tables_of(connection):
    return set(sqlalchemy.inspect(connection).get_table_names())


def revisions(since=None):
    """(revision, words) of the migrations after `since`, oldest first."""
    from alembic.script import ScriptDirectory
    found = [(script.revision, script.doc) for script in ScriptDirectory(str(_migrations())).walk_revisions()][::-1]
    names = [revision for revision, _ in found]
    return found[names.index(since) + 1:] if since else found


def _migrations():
    return pathlib.Path(__file__).with_name("migrations")


def migrate(engine, revision="head"):
    """Brings the tables up to the revision, in one transaction; creates them where there are none."""
    from alembic import command
    from alembic.config import Config
    if is_sqlite(engine):
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as connection:
        if not is_sqlite(engine):  # whoever comes second finds it done
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(8131001)")
        else:
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
        command.upgrade(config, revision)


def open_engine(name=None, create=False, read_only=False):
    """(engine, url) of a database that has this version's tables. create: makes it where it is missing or empty.
    Complaint where it is missing, unreachable, of another version or not ours."""
    url = location(name)
    file = pathlib.Path(url.database) if url.get_backend_name() == "sqlite" else None
    if file is not None and not create and not file.exists():
        raise usage(f"there is no store '{file}'", "make one: skidproof store add RESULT…; or name another with --store")
    if file is not None and file.is_dir():
        raise usage(f"'{file}' is a folder", "name a file in it")
    engine = engine_of(url, read_only)
    with plain_words(url):
        with engine.connect() as connection:
            found = version(connection)
            others = tables_of(connection) - {"alembic_version"} if found is None else ()
        if found is None:
            if others:
                raise Complaint(f"{shown(url)} holds another program's tables", "give the store a database of its own")
            if not create:
                raise Complaint(f"{shown(url)} holds no results yet", "load some: skidproof store add RESULT…")
            migrate(engine)
        elif found != schema.REVISION:
            _refuse_version(url, found)
    return engine, url


def migration_steps(name=None):
    """(url, version, [(revision, words)] that are missing) of an existing store. Complaint as of open_engine."""
    url = location(name)
    if url.get_backend_name() == "sqlite" and not pathlib.Path(url.database).exists():
        raise usage(f"there is no store '{url.database}'", "make one: skidproof store add RESULT…; or name another with --store")
    with plain_words(url), engine_of(url, read_only=True).connect() as connection:
        found = version(connection)
    if found is None:
        raise Complaint(f"{shown(url)} holds no results yet", "load some: skidproof store add RESULT…")
    known = [revision for revision, _ in revisions()]
    if found not in known:
        _refuse_version(url, found)
    return url, found, revisions(found)


def _refuse_version(url, found):
    if found in [revision for revision, _ in revisions()]:
        raise Complaint(f"{shown(url)} is of an older skidproof (tables of version {found}, not {schema.REVISION})",
                        "bring it up to date: skidproof store migrate")
    raise Complaint(f"{shown(url)} is of a newer skidproof (tables of version {found}; this one knows up to {schema.REVISION})",
                    "use that skidproof, or a newer one")
