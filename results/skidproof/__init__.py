"""Reads what `skidproof` writes, for notebooks and for the verbs that look at results.

    import skidproof
    rows = skidproof.read("skidproof-out/20261125T101500Z-1a2b")
    rows.measurements.query("name == 'memory.latency'")[["bytes", "value", "low", "high"]]

`skidproof.frames` has what `read` returns, `skidproof.rows` the rows as they stand in the files, `skidproof.store` the
history of many runs.
"""

__all__ = ["read"]


def __getattr__(name):  # pandas takes most of a second to load, which no verb but its own should wait for
    if name == "read":
        from skidproof.frames import read
        return read
    raise AttributeError(f"module 'skidproof' has no attribute {name!r}")
