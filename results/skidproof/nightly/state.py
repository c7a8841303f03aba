"""What outlives a crash: the night that runs, the last one, and what is left out until a person says otherwise."""

import datetime
import json
import os
import pathlib

from skidproof.cli import Complaint, usage, whole_file

SCHEMA = 1
_NAME = "state.json"


def now():
    """The time as rows have it, in UTC to the second."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def boot_id():
    """Which boot of this machine it is."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def save(path, document):
    """Replaces a JSON file whole, and comes back when it is on the disk. OSError."""
    with whole_file(path) as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class State:
    """`current` is the night that runs, or that ran when the machine was lost; `last` the last one that is over (both dicts as night
    makes them, or None); `left_out` a list of {kind: test|step, name, since, night, reason}."""

    def __init__(self, folder, current=None, last=None, left_out=None):
        self.folder, self.current, self.last, self.left_out = folder, current, last, left_out or []

    def save(self):
        save(self.folder / _NAME, {"schema": SCHEMA, "current": self.current, "last": self.last, "left_out": self.left_out})

    def names_left_out(self, kind):
        return [one["name"] for one in self.left_out if one["kind"] == kind]

    def leave_out(self, kind, name, night, reason):
        """Once for each name; the first reason stays."""
        if name not in self.names_left_out(kind):
            self.left_out.append({"kind": kind, "name": name, "since": now(), "night": night, "reason": reason})

    def allow(self, names):
        """Takes them back in. Complaint (64) for one that is not left out; nothing has changed then."""
        there = [one["name"] for one in self.left_out]
        for name in names:
            if name not in there:
                raise usage(f"'{name}' is not left out", "left out are: " + (", ".join(there) or "none"))
        self.left_out = [one for one in self.left_out if one["name"] not in names]


def _problem(document):
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return f"it is not of schema {SCHEMA}"
    for key in ("current", "last"):
        night = document.get(key)
        if night is not None and not (isinstance(night, dict) and isinstance(night.get("id"), str) and isinstance(night.get("steps"), list)):
            return f"`{key}` is no night"
    left_out = document.get("left_out")
    if not isinstance(left_out, list) or not all(isinstance(one, dict) and {"kind", "name", "since", "night", "reason"} <= one.keys()
                                                 for one in left_out):
        return "`left_out` is no list of what is left out"
    return None


def load(folder):
    """The State of this folder, empty where none was saved. Complaint (2) where it is damaged: what is left out would be unknown."""
    path = folder / _NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return State(folder)
    except (ValueError, RecursionError) as error:
        document, problem = None, f"not JSON ({error})"
    else:
        problem = _problem(document)
    if problem:
        raise Complaint(f"'{path}' is damaged: {problem}",
                        "it says which tests are left out since the machine was lost in them; look at the night.json files, then move it away")
    return State(folder, document["current"], document["last"], document["left_out"])
