"""ci/mutants.json: mutants that no suite can tell from the original, each with the reason.

An entry is {"file", "function", "source", "operator", "change", "nth", "reason"}: what Mutant.key() holds, without
line numbers, so that it survives the moving of code. `nth` may be left out for 0. One with `change` is narrow: it speaks
of one mutant. One without is broad: it speaks of every mutant of its line (`source`), or without that of its function,
which may be a pattern ("TagArray::*"); `operator` narrows both.
"""

import fnmatch
import json

FIELDS = ("file", "function", "source", "operator", "change", "nth", "reason")


class BadEntry(Exception):
    pass


def load(path):
    """The entries. Raises BadEntry for one that says too little or too much."""
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for number, entry in enumerate(entries, 1):
        unknown = set(entry) - set(FIELDS)
        missing = {"file", "function", "reason"} - set(entry)
        if "change" in entry:
            missing |= {"source", "operator"} - set(entry)
        if unknown or missing:
            raise BadEntry(f"{path}: entry {number}: " + ", ".join(
                [f"no field {name!r}" for name in sorted(missing)] + [f"unknown field {name!r}" for name in sorted(unknown)]))
        if len(entry["reason"].split()) < 3:
            raise BadEntry(f"{path}: entry {number}: the reason says too little: {entry['reason']!r}")
    return entries


def speaks_of(entry, mutant):
    if entry["file"] != mutant.file or not fnmatch.fnmatchcase(mutant.function, entry["function"]):
        return False
    if "source" in entry and entry["source"] != mutant.source:
        return False
    if "operator" in entry and entry["operator"] != mutant.operator:
        return False
    return "change" not in entry or (entry["change"], entry.get("nth", 0)) == (mutant.change(), mutant.nth)


def entry_of(mutant, reason):
    """The narrowest entry for a mutant."""
    entry = {"file": mutant.file, "function": mutant.function, "source": mutant.source, "operator": mutant.operator,
             "change": mutant.change()}
    if mutant.nth:
        entry["nth"] = mutant.nth
    return {**entry, "reason": reason}


def match(entries, mutants):
    """({mutant: its entry}, [entry that speaks of no mutant])."""
    listed, used = {}, set()
    for mutant in mutants:
        for number, entry in enumerate(entries):
            if speaks_of(entry, mutant):
                listed.setdefault(mutant, entry)
                used.add(number)
    return listed, [entry for number, entry in enumerate(entries) if number not in used]


def moved_to(entry, mutants):
    """Files where a stale entry would speak of something, had it named them."""
    return sorted({mutant.file for mutant in mutants if speaks_of({**entry, "file": mutant.file}, mutant)})
