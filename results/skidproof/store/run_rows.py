"""A run as far as its file was read, by table."""

import hashlib

from skidproof.store import lines
from skidproof.store.values import (INT32, STATUSES, int_or_none, json_or_none, key_text, real_or_none, seed_text, text_or_none,
                                    time_or_none)


class RunRows:
    """A run as far as it was read: what its rows say, by table, since the loader last took it."""

    def __init__(self, row, source, line):
        self.row, self.source, self.line = row, source, line
        self.id = key_text(row["id"])
        self.claims = {row["machine"]}
        self.subjects, self.facts = {}, {}
        self.hasher = hashlib.sha256()
        self.head_digest = ""
        self.count = 0
        self.end = None
        self.damaged = False      # lines of it are missing, or those of another run mixed in
        self.counts = {}          # of verdicts, by subject, in the order of STATUSES
        self.test_rows = 0
        self.seen = set()         # verdicts, figures … that may be there once
        self.open_test = False
        self.numbers = dict.fromkeys(("unmeasured", "other_rows"), 0)
        self.state = None         # the loader's
        self.clear()

    def clear(self):
        self.packed = b""         # `lines`, once they are complete
        self.tables = {}
        self.stretches = []       # known lines, whose measurements are in no table here
        self.lines = []           # bytes of a line, (subject, Shape) of a measurement that its columns say all of, or a stretch
        self.raw = []             # the lines as they came, for the digest
        self.size = 0

    def add(self, table, *row):
        rows = self.tables.get(table)
        if rows is None:
            rows = self.tables[table] = []
        rows.append(row)

    def once(self, *key):
        """Whether this is the first of its key."""
        key = hash(key)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def count_verdict(self, subject, status):
        counts = self.counts.get(subject)
        if counts is None:
            counts = self.counts[subject] = [0] * len(STATUSES)
        counts[STATUSES.index(status)] += 1

    def close_piece(self):
        """Takes the lines into the digest, and packs them."""
        self.packed = lines.pack(self.lines)
        if self.raw:
            if not self.head_digest:
                self.head_digest = hashlib.sha256(self.raw[0].rstrip(b"\r\n")).hexdigest()
            raw = b"".join(self.raw)
            self.hasher.update(raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw)
            if not self.raw[-1].endswith(b"\n"):
                self.hasher.update(b"\n")

    def raw_lines(self):
        """The lines since the loader last took some, one by one."""
        raw = b"".join(self.raw).split(b"\n")
        return raw if raw[-1] else raw[:-1]

    def columns(self):
        """Of the table `runs`, without `run`, `source` and `loaded`."""
        row, end = self.row, self.end or {}
        return {"id": self.id, "started": time_or_none(row.get("started")), "finished": time_or_none(end.get("finished")),
                "version": text_or_none(row.get("version")), "command": json_or_none(row.get("command")),
                "seed": seed_text(row.get("seed")),
                "schema": row.get("schema"), "reason": text_or_none(end.get("reason")), "exit": int_or_none(end.get("exit"), INT32),
                "duration_s": real_or_none(end.get("duration_s")), "tape": text_or_none(row.get("tape")),
                "whole": self.end is not None and not self.damaged, "row_count": self.count, "digest": self.hasher.hexdigest(),
                "head_digest": self.head_digest}
