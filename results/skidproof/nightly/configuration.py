"""The configuration file: every option, its default, and what may stand there."""

import dataclasses
import pathlib
import re
import tomllib

from skidproof.cli import usage

DEFAULT_PATH = "/etc/skidproof/nightly.toml"
STAGES = ("read", "write", "count", "one-record", "buffer", "interrupt", "branch-trace", "edges")
PARTS = ("clock", "latency", "strides", "caches", "bandwidth", "forwarding", "fusion", "misprediction", "instructions", "windows", "code",
         "cores")
# Of the verbs that are called: what the night itself decides, so that `options` may not.
DECIDED = {
    "run": {"--machine", "--cpu", "--core", "--filter", "--until", "--seed", "--repeat", "--deadline", "--out", "--json", "--resume", "--"},
    "characterize": {"--cpu", "--quick", "--only", "--out", "--json"},
    "errata": {"--machine", "--cpu", "--core", "--active", "--repeat", "--deadline", "--out", "--json", "--from", "--inventory", "--batch"},
}


@dataclasses.dataclass(frozen=True)
class Option:
    """`kinds` are the types that a value may have; check(value) is what is wrong with one of the right type, or None."""

    default: object
    kinds: tuple
    check: object = lambda value: None


def _flag(default):
    return Option(default, (bool,))


def _text(default, check=lambda value: None):
    return Option(default, (str,), check)


def _whole(default, low, high):
    return Option(default, (int,), lambda value: None if low <= value <= high else f"must be from {low} to {high}")


def _seconds(default):
    return Option(default, (int, float), lambda value: None if 1 <= value <= 1e6 else "must be from 1 to 1000000 seconds")


def _one_of(default, choices):
    return Option(default, (str,), lambda value: None if value in choices else "must be one of: " + ", ".join(c or '""' for c in choices))


def _words(allowed=None):
    def check(value):
        if not all(isinstance(word, str) for word in value):
            return "must be a list of strings"
        strange = [word for word in value if allowed and word not in allowed]
        return f"has '{strange[0]}'; there are: {', '.join(allowed)}" if strange else None
    return Option([], (list,), check)


def _options_of(verb):
    def check(value):
        if not all(isinstance(word, str) for word in value):
            return "must be a list of strings"
        taken = [word for word in value if word.split("=")[0] in DECIDED[verb]]
        return f"may not have {taken[0]}: the night decides that, or has an option for it" if taken else None
    return Option([], (list,), check)


def _machine(value):
    if value == "auto":
        return "may not be auto, which is a model where the driver is missing: say direct, native, or model:<microarch>"
    if value in ("direct", "native") or re.fullmatch(r"(model|tape):.+", value):
        return None
    return "must be direct, native, model:<microarch> or tape:FILE"


def _cpu(value):
    if value == "auto" or isinstance(value, int) and value >= 0:
        return None
    return 'must be the number of a CPU, or "auto"'


def _absolute(*words):
    def check(value):
        return None if value in words or value.startswith("/") else "must be an absolute path" + "".join(f', or "{w}"' for w in words)
    return check


OPTIONS = {
    "machine": {
        "name": _text("direct", _machine),
        "cpu": Option("auto", (int, str), _cpu),
        "core": _one_of("", ("", "P", "E")),
    },
    "folders": {
        "state": _text("/var/lib/skidproof", _absolute()),
        "nights": _text("", _absolute("")),
        "textfile": _text("auto", _absolute("auto", "")),
        "free_mib": _whole(512, 0, 1 << 30),
    },
    "run": {
        "enabled": _flag(True),
        "filter": _text("*", lambda value: None if value else "must not be empty: * is everything"),
        "until": _one_of("edges", STAGES),
        "seed": _whole(1, 0, 2**63 - 1),
        "repeat": _whole(1, 1, 1_000_000),
        "deadline_s": _seconds(14400),
        "resume": _whole(2, 0, 100),
        "options": _options_of("run"),
    },
    "characterize": {
        "enabled": _flag(True),
        "quick": _flag(False),
        "only": _words(PARTS),
        "deadline_s": _seconds(1800),
        "options": _options_of("characterize"),
    },
    "errata": {
        "enabled": _flag(True),
        "active": _flag(True),
        "repeat": _whole(10, 1, 1_000_000),
        "exposed": _one_of("held", ("held", "failed")),
        "deadline_s": _seconds(3600),
        "options": _options_of("errata"),
    },
    "export": {"enabled": _flag(True), "junit": _flag(True), "deadline_s": _seconds(300)},
    "store": {"enabled": _flag(True), "url": _text(""), "keep_nights": _whole(0, 0, 100_000), "deadline_s": _seconds(1800)},
    "trends": {"enabled": _flag(True), "deadline_s": _seconds(1800)},
    "report": {"enabled": _flag(True), "deadline_s": _seconds(900)},
    "retention": {"nights": _whole(60, 0, 100_000)},
}
TEXTFILE = "/var/lib/prometheus/node-exporter"  # where Debian's node exporter looks
_KINDS = {bool: "true or false", str: "a string", int: "a whole number", float: "a number", list: "a list"}


class Configuration:
    """configuration["run"]["filter"], with defaults where the file says nothing."""

    def __init__(self, path="", values=None):
        values = values or {}
        self.path = str(path)
        self.tables = {table: {name: values.get(table, {}).get(name, option.default) for name, option in options.items()}
                       for table, options in OPTIONS.items()}

    def __getitem__(self, table):
        return self.tables[table]

    @property
    def state_folder(self):
        return pathlib.Path(self["folders"]["state"])

    @property
    def nights_folder(self):
        return pathlib.Path(self["folders"]["nights"] or self.state_folder / "nights")

    @property
    def textfile_folder(self):
        """None: nothing is exported there."""
        said = self["folders"]["textfile"]
        if said == "auto":
            return pathlib.Path(TEXTFILE) if pathlib.Path(TEXTFILE).is_dir() else None
        return pathlib.Path(said) if said else None

    @property
    def store_url(self):
        return self["store"]["url"] or str(self.state_folder / "skidproof.db")


def _line_of(text, table, key=None):
    """The number of the line on which this table or key stands; None where it is written in another way."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if header:
            current = header.group(1).strip("\"'")
            if key is None and current == table:
                return number
            continue
        assigned = re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", line)
        if not assigned:
            continue
        name = f"{current}.{assigned.group(1)}" if current else assigned.group(1)
        if name in ((table, f"{table}.{key}") if key is not None else (table,)):
            return number
    return None


def _is(value, kinds):
    return type(value) in kinds  # to Python, true is an integer


def read(path):
    """The Configuration of a file. Complaint (64) that names key and line of what is wrong, or why it cannot be read."""
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise usage(f"there is no configuration file '{path}'",
                    "copy nightly.toml from share/skidproof or ci/nightly there; every option in it has its default") from None
    except OSError as error:
        raise usage(f"'{path}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise usage(f"'{path}' is not UTF-8 (byte {error.start})", "TOML is UTF-8 text") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise usage(f"'{path}' is not TOML: {error}", "texts stand in quotes, and each key stands once in its [table]") from None

    def wrong(what, table, key=None):
        line = _line_of(text, table, key)
        return usage(f"{path}{f':{line}' if line else ''}: {what}", "docs/nightly.md has every option; so has the nightly.toml that came along")

    for table, found in values.items():
        if table not in OPTIONS:
            raise wrong(f"there is no [{table}]; there are: {', '.join(OPTIONS)}", table)
        if not isinstance(found, dict):
            raise wrong(f"'{table}' is a table: write [{table}] and its options below", table)
        for key, value in found.items():
            option = OPTIONS[table].get(key)
            if option is None:
                raise wrong(f"[{table}] has no option '{key}'; it has: {', '.join(OPTIONS[table])}", table, key)
            if not _is(value, option.kinds):
                raise wrong(f"{table}.{key} must be {' or '.join(_KINDS[kind] for kind in option.kinds)}, and is {value!r}", table, key)
            problem = option.check(value)
            if problem:
                raise wrong(f"{table}.{key} {problem}", table, key)
    return Configuration(path, values)
