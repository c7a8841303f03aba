"""Takes results files apart into runs and the columns of their rows, in bounded memory, and says what is wrong with them.

The rows come out with the ids of `Dictionaries`, which the loader turns into the database's.
"""

import dataclasses
import datetime
import functools
import hashlib
import json
import math
import re

from skidproof import rows as rows_module

PIECE = 8 << 20        # bytes of a run's lines that are kept before the loader takes them
LONGEST_LINE = 64 << 20
OPEN_RUNS = 16         # runs of one file without an end row that further rows are looked up in
PROBLEMS_KEPT = 100    # of one file
KEY_BYTES = 400        # of a text that is part of an index
SHAPES_KEPT = 20_000   # heads of lines that are known
NAMES_KEPT = 200_000   # of the dictionaries, between files
STATUSES = ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")  # of verdicts, as the store counts them
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1

# Most of what a fleet sends are measurements and tests as the writer writes them. They are taken apart without parsing them whole: the
# head of a line, up to the first number, is looked up among those that were parsed before, and an expression takes the rest. What
# is written otherwise goes the long way, and comes out the same.
_NUMBER = rb"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,2})?"
_COUNT = rb"(0|[1-9][0-9]{0,8})"
_LONG_COUNT = rb"(0|[1-9][0-9]{0,17})"
_WORD = rb'"[^"\\]*"'
_SIMPLE = rb'"[ !#-\[\]-~]*"'  # in any case a JSON string
PLAIN = re.compile(
    rb',"value":(' + _NUMBER + rb')(,"unit":' + _WORD + rb',"statistic":' + _WORD + rb'),"n":([1-9][0-9]{0,8}),"low":(null|' + _NUMBER +
    rb'),"high":(null|' + _NUMBER + rb')(,"interval":' + _WORD + rb',"parameters":\{[^{}]*\}),"noise":\{"involuntary_switches":' + _COUNT +
    rb',"migrations":' + _COUNT + rb',"smi":' + _COUNT + rb',"steal_s":(' + _NUMBER + rb')\}\}\r?\n?').fullmatch
PLAIN_START, PLAIN_SPLIT = b'{"type":"measurement",', b',"value":'
PLAIN_TEST = re.compile(
    rb',"duration_s":(' + _NUMBER + rb'),"seed":' + _LONG_COUNT + rb',"repetition":' + _COUNT + rb',"iterations":' + _LONG_COUNT +
    rb',"comparisons":' + _LONG_COUNT + rb',"failures":\[\],"evidence":(\{.*\})(,"stage":' + _WORD + rb',"erratum":' + _WORD +
    rb'),"repetitions":\{"n":' + _COUNT + rb',"k":' + _COUNT + rb',"voided":' + _COUNT + rb',"rate":(' + _NUMBER + rb'),"low":(null|' +
    _NUMBER + rb'),"high":(null|' + _NUMBER + rb')\}\}\r?\n?').fullmatch
TEST_START, TEST_SPLIT = b'{"type":"test",', b',"duration_s":'
PLAIN_BEGIN = re.compile(
    rb'\{"type":"test-start","machine":(' + _SIMPLE + rb'),"microarch":' + _SIMPLE + rb',"id":(' + _SIMPLE +
    rb'),"clauses":\[(?:' + _SIMPLE + rb'(?:,' + _SIMPLE + rb')*)?\],"seed":' + _LONG_COUNT + rb',"repetition":' + _COUNT +
    rb',"started":' + _SIMPLE + rb'\}\r?\n?').fullmatch
BEGIN_START = b'{"type":"test-start",'
TEST_HEAD_KEYS = {"type", "machine", "microarch", "id", "clauses", "citations", "status", "skip_category", "reason"}
PLAIN_KEYS = {"type", "machine", "microarch", "name", "value", "unit", "statistic", "n", "low", "high", "interval", "parameters", "noise"}
NOISE = ("involuntary_switches", "migrations", "smi", "steal_s")


def _refuse(word):
    raise ValueError(f"{word} is not JSON")


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=True).encode
decode = json.JSONDecoder(parse_constant=_refuse).decode


def clean(words):
    """A text as both databases take it: without NUL and without lone surrogates, which are shown instead."""
    if "\0" in words:
        words = words.replace("\0", "\\u0000")
    try:
        words.encode()
    except UnicodeEncodeError:
        words = words.encode("utf-8", "backslashreplace").decode()
    return words


def key_text(words):
    """A text short enough for an index; of a longer one the beginning and a digest."""
    words = clean(words)
    if len(words) * 4 <= KEY_BYTES or len(raw := words.encode()) <= KEY_BYTES:
        return words
    return f"{raw[:KEY_BYTES - 60].decode(errors='ignore')}… {hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def text_or_none(value):
    return clean(value) if isinstance(value, str) else None


def int_or_none(value, most=INT64):
    return value if isinstance(value, int) and not isinstance(value, bool) and -most <= value <= most else None


def real_or_none(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def bool_or_none(value):
    return value if isinstance(value, bool) else None


def json_or_none(value):
    """As JSON text; None for what is not there, or what JSON cannot say."""
    if value is None:
        return None
    try:
        return _encode(value)
    except (ValueError, RecursionError):
        return None


def time_or_none(value):
    """YYYY-MM-DD HH:MM:SS.ffffff, in UTC."""
    if not isinstance(value, str) or not value.endswith("Z"):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value[:-1])
    except ValueError:
        return None
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0") if moment.tzinfo is None else None


def digest_of(words):
    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What the measurements of one figure have in common, all but their numbers."""

    subject: int
    figure: int
    interval: int
    stand_in: str  # what stands for the row among the run's lines, behind the ids of the figure and the subject
    key: int       # of the subject and the figure


class Dictionaries:
    """Gives each subject, figure, test and text a number of this process; `found` has the database's, once they are known."""

    KINDS = ("subjects", "figures", "tests", "texts")

    def __init__(self):
        self.clear()

    def clear(self):
        self.numbers = {kind: {} for kind in (*self.KINDS, "places")}
        self.found = {kind: [] for kind in self.KINDS}
        self.shapes = {}

    def forget_found(self):
        """After a rollback: what was added to the database is not there."""
        for kind in self.KINDS:
            self.found[kind] = []

    def number(self, kind, key):
        numbers = self.numbers[kind]
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
        return number

    def large(self):
        return sum(map(len, self.numbers.values())) > NAMES_KEPT

    def remember(self, key, shape):
        """Keeps the shape of a line; the shape that is kept."""
        if len(self.shapes) >= SHAPES_KEPT:
            self.shapes.clear()
        return self.shapes.setdefault(key, shape)


@dataclasses.dataclass
class Problem:
    line: int
    words: str
    lost: bool  # something of the file is not in the store


class RunRows:
    """A run as far as it was read: what its rows say, by table, since the loader last took it."""

    def __init__(self, row, source, line):
        self.row, self.source, self.line = row, source, line
        self.id = key_text(row["id"])
        self.claims = {row["machine"]}
        self.subjects, self.facts = {}, {}
        self.place = None         # stands for `subjects`
        self.hasher = hashlib.blake2b(digest_size=16)
        self.head_digest = ""
        self.count = 0
        self.end = None
        self.damaged = False      # lines of it are missing, or those of another run mixed in
        self.counts = {}          # of verdicts, by subject, in the order of STATUSES
        self.test_rows = 0
        self.seen = set()         # verdicts, figures … that may be there once
        self.open_test = None
        self.numbers = dict.fromkeys(("unmeasured", "other_rows"), 0)
        self.state = None         # the loader's
        self.clear()

    def clear(self):
        self.tables = {}
        self.plain = []           # (Shape, match groups) of measurements
        self.lines = []           # bytes of a line, or the Shape of a measurement that can be built from its columns
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
        """Takes the lines into the digest."""
        if self.raw:
            if not self.head_digest:
                self.head_digest = hashlib.blake2b(self.raw[0].rstrip(b"\r\n"), digest_size=16).hexdigest()
            self.hasher.update(b"".join(self.raw).replace(b"\r\n", b"\n"))
            if not self.raw[-1].endswith(b"\n"):
                self.hasher.update(b"\n")

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


def seed_text(value):
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64 else None


class Reader:
    """Reads one file. take(run, last) is called with every run: last=False when a piece of a long one is ready, which the loader
    takes with run.clear(); last=True when nothing more of it will come."""

    def __init__(self, source, dictionaries, take):
        self.source, self.dictionaries, self.take = source, dictionaries, take
        self.current = None
        self.open = {}            # runs without an end row, oldest first; the key is their place
        self.lost_run = ""        # why the rows of the run that is read cannot be loaded
        self.stray = None         # first line, last line, number, why
        self.problems, self.problem_count, self.lost = [], 0, False
        self.rows = self.runs = self.bytes = 0
        self.handlers = {"machine": self._machine, "test-start": self._test_start, "test": self._test, "measurement": self._measurement,
                         "unmeasured": self._unmeasured, "defect": self._defect, "qualification": self._qualification,
                         "erratum": self._erratum, "fuzz": self._other, "inventory": self._other, "errata-summary": self._other,
                         "end": self._end}

    def problem(self, line, words, lost=True):
        self.problem_count += 1
        self.lost |= lost
        if len(self.problems) < PROBLEMS_KEPT or lost and not any(problem.lost for problem in self.problems):
            self.problems.append(Problem(line, words, lost))

    def read(self, stream, progress=None):
        """Reads the stream to its end."""
        for number, raw in enumerate(iter(functools.partial(stream.readline, LONGEST_LINE), b""), start=1):
            self.bytes += len(raw)
            if progress and not number & 4095:
                progress(self.bytes)
            run = self.current
            if run is not None and (
                    raw.startswith(PLAIN_START) and self._known_measurement(run, raw) or
                    raw.startswith(TEST_START) and self._known_test(run, raw) or
                    raw.startswith(BEGIN_START) and self._plain_begin(run, raw)):
                continue
            if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    self.bytes += len(rest)
                self._bad(number, f"longer than {LONGEST_LINE >> 20} MB: that is no row", raw)
            elif raw.strip():
                self._line(number, raw)
        self._say_stray()
        for run in list(self.open.values()):
            self._close(run)
        if not self.rows and not self.runs and not self.problem_count:
            self.problem(0, "is empty: no rows")

    def _known_measurement(self, run, raw):
        """Takes a measurement whose like was parsed before; False where it was not."""
        at = raw.find(PLAIN_SPLIT)
        match = PLAIN(raw, at) if at > 0 else None
        if match is None:
            return False
        value, unit, n, low, high, tail, switches, migrations, smi, steal = match.groups()
        shape = self.dictionaries.shapes.get((run.place, raw[:at], unit, tail))
        if shape is None or shape.key in run.seen:
            return False
        run.seen.add(shape.key)
        run.plain.append((shape, value, n, low, high, switches, migrations, smi, steal))
        run.lines.append(shape)
        run.raw.append(raw)
        run.count += 1
        run.size += len(raw)
        if run.size > PIECE:
            self._piece(run)
        return True

    def _known_test(self, run, raw):
        """The same of a test without failures."""
        at = raw.find(TEST_SPLIT)
        shape = self.dictionaries.shapes.get((run.place, raw[:at])) if at > 0 else None
        match = PLAIN_TEST(raw, at) if shape else None
        if match is None:
            return False
        duration, seed, repetition, iterations, comparisons, evidence, tail, n, k, voided, rate, low, high = match.groups()
        subject, tests, test_id, status, *before = shape
        test = tests.get(tail)
        repetition = int(repetition)
        if test is None or hash(("test", subject, test_id, repetition)) in run.seen:
            return False
        try:
            found = decode(evidence.decode("utf-8"))
        except (ValueError, RecursionError):
            return False
        run.once("test", subject, test_id, repetition)
        run.open_test = None
        run.test_rows += 1
        test, erratum = test
        run.count_verdict(subject, status)
        run.add("verdicts", subject, test, repetition, status, *before, erratum, float(duration), seed.decode(), int(iterations),
                int(comparisons), int(n), int(k), int(voided), float(rate), None if low == b"null" else float(low),
                None if high == b"null" else float(high))
        self._all_evidence(run, subject, test, repetition, found)
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        return True

    def _remember_test(self, run, raw, row, subject, test):
        """So that the next one like this is known."""
        at = raw.find(TEST_SPLIT)
        match = PLAIN_TEST(raw, at) if at > 0 else None
        if match is None:
            return
        try:
            head = decode(raw[:at].decode("utf-8") + "}")
        except (ValueError, RecursionError):
            return
        if head.keys() == TEST_HEAD_KEYS and all(head[name] == row[name] for name in TEST_HEAD_KEYS):
            reason = row["reason"]
            shape = self.dictionaries.remember((run.place, raw[:at]), (
                subject, {}, row["id"], row["status"], text_or_none(row["skip_category"]), self._text(reason) if reason else None))
            shape[1][match.group(7)] = (test, text_or_none(row["erratum"]) or None)

    def _plain_begin(self, run, raw):
        """Takes a test-start row: there is nothing to know of it but its line."""
        match = PLAIN_BEGIN(raw)
        if match is None or len(self.open) > 1:
            return False
        machine, test, _, repetition = match.groups()
        run.open_test = (machine[1:-1].decode(), test[1:-1].decode(), int(repetition))
        if not run.open_test[0] or not run.open_test[1]:
            return False
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        return True

    def _line(self, number, raw):
        try:
            row = decode(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            torn = not raw.endswith(b"\n")
            what = "nested too deep" if isinstance(error, RecursionError) else f"not JSON ({error})"
            return self._bad(number, "the last line breaks off: writing was cut short" if torn else what, raw)
        problem = rows_module.row_problem(row)
        if problem:
            return self._bad(number, problem, raw, isinstance(row, dict) and row.get("type") == "run")
        if not raw.endswith(b"\n") and row["type"] == "run" and not row.get("id"):
            return self._bad(number, "a `run` row without an id", raw, True)
        if row["type"] == "run":
            return self._run(number, row, raw)
        run = self._run_of(number, row["machine"])
        if run is None:
            return None
        if self.handlers.get(row["type"], self._nothing)(run, number, row, raw) is not None:
            return None  # it stands for itself among the lines
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        if run.end is not None:
            self._close(run)
        return None

    def _count(self, run, raw):
        run.raw.append(raw)
        run.count += 1
        run.size += len(raw)
        if run.size > PIECE and run.end is None:
            self._piece(run)

    def _piece(self, run):
        run.close_piece()
        self.take(run, False)
        run.clear()

    def _bad(self, number, words, raw, is_run=False):
        self.problem(number, words)
        if self.current is not None:
            self.current.damaged = True
            self.current.open_test = None
        if is_run or raw.startswith((b'{"type":"run",', b'{"type": "run",')):  # what follows is not of the run before
            self.current = None
            self.lost_run = "its `run` row is unusable"

    def _run(self, number, row, raw):
        self._say_stray()
        self.lost_run = ""
        if not row["id"]:
            return self._bad(number, "a `run` row without an id", raw, True)
        if len(self.open) >= OPEN_RUNS:
            self._close(next(iter(self.open.values())))
        for run in self.open.values():
            if run.id == key_text(row["id"]):
                self._close(run)
                break
        run = self.current = RunRows(row, self.source, number)
        self.open[number] = run
        self.runs += 1
        run.lines.append(raw.rstrip(b"\r\n"))
        self._count(run, raw)
        if time_or_none(row.get("started")) is None:
            self.problem(number, f"run {run.id} does not say when it started", lost=False)
        return None

    def _run_of(self, number, machine):
        """The run that a row of this machine belongs to; None where there is none."""
        run = self.current
        if run is not None and (len(self.open) == 1 or machine in run.claims):
            return run
        others = [other for other in self.open.values() if machine in other.claims]
        if run is not None and not others:
            return run
        if others and not self.lost_run:
            run = others[-1]
            if not run.damaged:
                run.damaged = True
                self.problem(number, f"a row of run {run.id} among those of another: two programs wrote this file at once", lost=False)
            return run
        why = self.lost_run or ("its run had ended: two programs may have written this file" if self.runs else
                                "no `run` row stands before it")
        if self.stray and self.stray[3] != why:
            self._say_stray()
        self.stray = (self.stray[0], number, self.stray[2] + 1, why) if self.stray else (number, number, 1, why)
        return None

    def _say_stray(self):
        if self.stray:
            first, last, count, why = self.stray
            self.problem(first, f"not loaded: {why}" if count == 1 else f"{count} rows up to line {last} not loaded: {why}")
            self.stray = None

    def _close(self, run):
        run.close_piece()
        if not run.facts:
            self._place(run, run.row["machine"], {})
        self.open = {line: other for line, other in self.open.items() if other is not run}
        if self.current is run:
            self.current = None
        if run.end is None:
            self.problem(run.line, f"run {run.id} was cut short: it has no end row", lost=False)
        self.rows += run.count
        self.take(run, True)

    # Rows by type. Each returns something only where it has put its line among the run's itself.

    def _place(self, run, machine, row):
        """The subject of the machine from here on."""
        key = (key_text(text_or_none(row.get("host")) or "unknown"), key_text(machine), key_text(text_or_none(row.get("core_type")) or ""))
        subject = run.subjects[machine] = self.dictionaries.number("subjects", key)
        run.place = self.dictionaries.number("places", tuple(sorted(run.subjects.items())))
        provenance = rows_module.provenance(machine, row).lower().replace(" ", "-")
        run.facts[subject] = (
            provenance, *(text_or_none(row.get(name)) for name in ("vendor", "brand")),
            *(int_or_none(row.get(name), INT32) for name in ("family", "model", "stepping")),
            *(text_or_none(row.get(name)) for name in ("microcode", "microarch", "hypervisor", "os", "bios")),
            bool_or_none(row.get("pmu")), bool_or_none(row.get("sibling_thread")), json_or_none(row.get("capabilities")),
            json_or_none(row.get("defects")))
        return subject

    def _machine(self, run, number, row, raw):
        run.claims.add(row["machine"])
        self._place(run, row["machine"], row)

    def _subject(self, run, row):
        subject = run.subjects.get(row["machine"])
        if subject is None:
            subject = self._place(run, row["machine"], {})
        return subject

    def _text(self, words):
        return self.dictionaries.number("texts", clean(words))

    def _test_start(self, run, number, row, raw):
        key = (row["machine"], row["id"], row.get("repetition"))
        if run.open_test and self._rivals(run, row["machine"]):
            return self._mixed(run, number, row["machine"])
        run.open_test = key
        return None

    def _rivals(self, run, machine):
        return [other for other in self.open.values() if other is not run and machine in other.claims]

    def _mixed(self, run, number, machine):
        """Rows of two runs of one machine cannot be told apart: both end at their last good row."""
        for other in (run, *self._rivals(run, machine)):
            other.damaged = True
            self._close(other)
        self.current = None
        self.lost_run = "two runs of one machine are mixed here: two programs wrote this file at once"
        self.stray = (number, number, 1, self.lost_run)
        return True

    def _test(self, run, number, row, raw):
        subject, dictionaries = self._subject(run, row), self.dictionaries
        repetition = row.get("repetition", 0)
        if int_or_none(repetition, INT32) is None:
            self.problem(number, "a `test` row with an unusable `repetition`: kept, but not among the verdicts", lost=False)
            return None
        run.open_test = None
        run.test_rows += 1
        clauses = [clause for clause in row.get("clauses", ()) if isinstance(clause, str)]
        test = dictionaries.number("tests", (key_text(row["id"]), json_or_none(clauses), text_or_none(row.get("stage")) or ""))
        if not run.once("test", subject, row["id"], repetition):
            if self._rivals(run, row["machine"]):
                return self._mixed(run, number, row["machine"])
            self.problem(number, f"a second verdict on {row['id']}: kept, but not among the verdicts", lost=False)
            run.damaged = True
            return None
        run.count_verdict(subject, row["status"])
        tried = row.get("repetitions") or {}
        reason = row.get("reason")
        run.add("verdicts", subject, test, repetition, row["status"], text_or_none(row.get("skip_category")),
                self._text(reason) if reason else None, text_or_none(row.get("erratum")) or None, real_or_none(row.get("duration_s")),
                seed_text(row.get("seed")), int_or_none(row.get("iterations")), int_or_none(row.get("comparisons")),
                int_or_none(tried.get("n"), INT32), int_or_none(tried.get("k"), INT32), int_or_none(tried.get("voided"), INT32),
                real_or_none(tried.get("rate")), real_or_none(tried.get("low")), real_or_none(tried.get("high")))
        self._all_evidence(run, subject, test, repetition, row.get("evidence", {}))
        for index, message in enumerate(row.get("failures", ())):
            words = message if isinstance(message, str) else json_or_none(message)
            run.add("failures", subject, test, repetition, index, clean(words or ""))
        self._remember_test(run, raw, row, subject, test)
        return None

    def _all_evidence(self, run, subject, test, repetition, evidence):
        names = set()
        for name, value in evidence.items():
            if isinstance(value, dict) and "kind" not in value:
                for part, inner in value.items():
                    self._evidence(run, subject, test, repetition, f"{name}/{part}", inner, names)
            else:
                self._evidence(run, subject, test, repetition, name, value, names)

    def _evidence(self, run, subject, test, repetition, name, value, names):
        """A figure as a number; what has more to it as JSON text too, with the number that counts: what was seen, how many there were."""
        name = self._text(name)
        if name in names:
            return
        names.add(name)
        figure, text = real_or_none(value), None
        if isinstance(value, bool):
            figure, text = float(value), json_or_none(value)
        elif isinstance(value, str):
            text = clean(value)
        elif isinstance(value, dict):
            text = json_or_none(value)
            counted = sum(rows_module.bins_of(value).values()) if value.get("kind") == "histogram" else value.get("seen")
            figure = real_or_none(counted)
        elif figure is None or isinstance(value, int) and int(figure) != value:
            text = json_or_none(value)
        run.add("evidence", subject, test, repetition, name, figure, text)

    def _measurement(self, run, number, row, raw):
        subject = self._subject(run, row)
        statistic = row.get("statistic")
        figure_key = (key_text(row["name"]), key_text(row["unit"]), key_text(statistic if isinstance(statistic, str) else ""),
                      key_text(json_or_none(rows_module.figure_parameters(row) or {}) or ""))
        value = real_or_none(row["value"])
        if value is None:
            self.problem(number, "a `measurement` row whose value is beyond a double: kept, but not among the measurements", lost=False)
            return None
        figure = self.dictionaries.number("figures", figure_key)
        key = subject << 32 | figure
        if key in run.seen:
            self.problem(number, f"{row['name']} is measured a second time: kept, but not among the measurements", lost=False)
            return None
        run.seen.add(key)
        at = raw.find(PLAIN_SPLIT)
        match = PLAIN(raw, at) if at > 0 else None
        interval = self._text(row["interval"]) if isinstance(row.get("interval"), str) else None
        if match and self._is_plain(row, figure_key):
            shape = Shape(subject, figure, interval, json.dumps(row["microarch"]) + "," + json.dumps(row["machine"]), key)
            value, unit, n, low, high, tail, switches, migrations, smi, steal = match.groups()
            self.dictionaries.remember((run.place, raw[:at], unit, tail), shape)
            run.plain.append((shape, value, n, low, high, switches, migrations, smi, steal))
            run.lines.append(shape)
            self._count(run, raw)
            return True
        noise = row.get("noise") or {}
        run.add("measurements", subject, figure, value, real_or_none(row.get("low")), real_or_none(row.get("high")),
                int_or_none(row.get("n"), INT32), interval, *(int_or_none(noise.get(name), INT32) for name in NOISE[:3]),
                real_or_none(noise.get("steal_s")))
        return None

    def _is_plain(self, row, figure_key):
        """Whether its columns say all that it says."""
        return (row.keys() == PLAIN_KEYS and row["noise"].keys() == set(NOISE) and
                figure_key == (row["name"], row["unit"], row["statistic"], json_or_none(row["parameters"])) and
                clean(row["interval"]) == row["interval"])

    def _unmeasured(self, run, number, row, raw):
        run.add("unmeasured", self._subject(run, row), self._next(run, "unmeasured"), clean(row["name"]), clean(row["reason"]))

    def _next(self, run, table):
        run.numbers[table] += 1
        return run.numbers[table] - 1

    def _other(self, run, number, row, raw):
        said = json_or_none(row)
        if said is not None:
            run.add("other_rows", self._subject(run, row), self._next(run, "other_rows"), row["type"], said)

    def _defect(self, run, number, row, raw):
        subject, key = self._subject(run, row), (key_text(row["id"]), key_text(text_or_none(row.get("microarch")) or ""))
        if not run.once("defect", subject, key):
            return self.problem(number, f"a second row on the defect {row['id']}: kept, but not in the table", lost=False)
        return run.add("defects", subject, *key, text_or_none(row.get("clause")), text_or_none(row.get("brief")), row["caught"],
                       json_or_none(row.get("caught_by")), int_or_none(row.get("tests_run")), real_or_none(row.get("duration_s")))

    def _qualification(self, run, number, row, raw):
        subject = self._subject(run, row)
        if not run.once("qualification", subject):
            return self.problem(number, "a second `qualification` row: kept, but not in the table", lost=False)
        return run.add("qualifications", subject, json_or_none(row.get("microarchs")), *(int_or_none(row.get(name)) for name in (
            "seeds", "conforming_runs", "conforming_failures")), json_or_none(row.get("accused_by")), int_or_none(row.get("defects")),
            int_or_none(row.get("caught")), json_or_none(row.get("missed")), json_or_none(row.get("tests_without_catch")), row["held"],
            real_or_none(row.get("duration_s")))

    def _erratum(self, run, number, row, raw):
        subject = self._subject(run, row)
        key = (key_text(row["id"]), key_text(text_or_none(row.get("core_type")) or ""))
        if not run.once("erratum", subject, key):
            return self.problem(number, f"a second row on the erratum {row['id']}: kept, but not in the table", lost=False)
        words = {name: text_or_none(row.get(name)) for name in (
            "microarch", "title", "listed_by", "listed_why", "fixed_from", "observed_why", "exposure", "exposure_why")}
        return run.add("errata", subject, *key, words["microarch"], json_or_none(row.get("aliases")), words["title"], clean(row["listed"]),
                       words["listed_by"], words["listed_why"], words["fixed_from"], clean(row["observed"]), words["observed_why"],
                       int_or_none(row.get("tries")), int_or_none(row.get("shown")), real_or_none(row.get("excluded_rate")),
                       words["exposure"], words["exposure_why"], bool_or_none(row.get("contradiction")))

    def _end(self, run, number, row, raw):
        run.end = row
        began, ended = time_or_none(run.row.get("started")), time_or_none(row.get("finished"))
        if began and ended and ended < began:
            self.problem(number, f"run {run.id} ends before it starts: the machine's clock went backwards", lost=False)
        counts = row.get("counts")
        here = run.test_rows
        if counts and here:
            said = sum(count for count in counts.values() if int_or_none(count) is not None)
            if said != here:
                run.damaged = True
                self.problem(number, f"run {run.id} ends with {said} verdicts, and {here} are here", lost=False)

    def _nothing(self, run, number, row, raw):
        """A test or a measurement begins: there is nothing to know of it but its line."""
