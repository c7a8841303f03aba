"""What the pages over the store take from its data frames: columns that may be missing, times, labels of figures."""

import json
import math

from skidproof import rows
from skidproof.report.parts import clipped, provenance_of

RANK = {status: rank for rank, status in enumerate(rows.STATUSES)}  # 0 is the worst


def value(row, name, default=""):
    """A cell of a frame's row (a mapping); the default for what is missing or no value."""
    found = row.get(name, default)
    if found is None or found != found:
        return default
    return found


def records(frame):
    """The rows as mappings of plain Python values, None for what is missing."""
    if frame is None or not len(frame):
        return []
    return [{k: plain(v) for k, v in row.items()} for row in frame.to_dict("records")]


def plain(found):
    if hasattr(found, "item"):
        found = found.item()
    if found is None or (isinstance(found, float) and math.isnan(found)) or type(found).__name__ in ("NAType", "NaTType"):
        return None
    return found


def night(when):
    """"2026-11-25", of a time stamp or its text."""
    return str(when)[:10] if when is not None and when == when else ""


def moment(when):
    return str(when)[:16].replace("T", " ") if when is not None and when == when else ""


def json_of(found):
    """A JSON column as the database hands it: parsed, or as text."""
    if isinstance(found, str):
        try:
            return json.loads(found)
        except ValueError:
            return found
    return found


def parameters_words(found):
    """"page 4KiB, bytes 1,048,576" of the canonical JSON of a figure's parameters."""
    found = json_of(found)
    if not isinstance(found, dict):
        return str(found or "")
    return ", ".join(f"{k} {v:,}" if isinstance(v, int) and not isinstance(v, bool) else f"{k} {v}" for k, v in found.items())


def figure_words(row):
    """The name of a figure with its parameters, for labels."""
    inside = parameters_words(value(row, "parameters"))
    return clipped(f"{value(row, 'name', '?')}" + (f" ({inside})" if inside else ""), 200)


def machine_words(row):
    """host/machine, and the type of core where there is one."""
    core = value(row, "core_type")
    return clipped(f"{value(row, 'host', 'unknown')}/{value(row, 'machine', '?')}" + (f" {core}" if core else ""), 200)


def kind_of(row):
    """The provenance as the badges know it; a machine whose name says model is one, whatever the store says."""
    machine, said = str(value(row, "machine")), str(value(row, "provenance"))
    return rows.provenance(machine, {"provenance": said}) if said in ("", "model", "virtual-lab", "silicon") else provenance_of(said)


def attributed_words(found):
    """"microcode 0x28 to 0x2f" of a change's attribution: (what, before, after), or mappings of these."""
    words = []
    for one in json_of(found) or []:
        if isinstance(one, dict):
            one = (one.get("what", one.get("fact", "?")), one.get("before", ""), one.get("after", ""))
        if isinstance(one, (list, tuple)) and len(one) >= 3:
            words.append(f"{one[0]} {one[1] or 'not known'} to {one[2] or 'not known'}")
        else:
            words.append(str(one))
    return ", ".join(words)


def effect_words(row):
    """"+12.3 % (11.8 to 12.9)" where the level before says what a share is, else in the figure's unit."""
    before, effect, low, high = (value(row, name, None) for name in ("before", "effect", "low", "high"))
    if effect is None:
        return ""
    if before:
        shares = [100 * v / abs(before) if v is not None else None for v in (effect, low, high)]
        inside = f" ({shares[1]:+.3g} to {shares[2]:+.3g})" if None not in shares else ""
        return f"{shares[0]:+.3g} %{inside}"
    return f"{effect:+.4g}"
