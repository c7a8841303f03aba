"""The history of many runs, in SQLite or PostgreSQL.

    import skidproof.store
    store = skidproof.store.open("skidproof.db")          # or postgresql://user@host/database
    machine = store.subjects().iloc[0].subject
    store.history(machine).query("name == 'memory.latency'")

What has a history is a subject: a host, the machine in it that answered (`direct`, `native`, `model:skylake` …) and its core
type. Runs come in the order of their `started`. docs/store.md describes the tables.
"""

__all__ = ["Store", "open"]


def open(url_or_path=None, create=False):  # pylint: disable=redefined-builtin
    """Opens a store for reading: a path (SQLite), or postgresql://…; by default $SKIDPROOF_STORE, then skidproof.db in this folder.

    create: makes the tables where there are none. Raises skidproof.cli.Complaint where it is missing, unreachable, of another
    version, or another program's.
    """
    from skidproof.store import api, database
    if create:
        database.open_engine(url_or_path, create=True)[0].dispose()
    engine, url = database.open_engine(url_or_path, read_only=True)
    return api.Store(engine, url)


def __getattr__(name):  # SQLAlchemy takes a while to load
    if name == "Store":
        from skidproof.store.api import Store
        return Store
    raise AttributeError(f"module 'skidproof.store' has no attribute {name!r}")
