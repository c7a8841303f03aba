"""What most lines say, so that they need not be parsed whole, and the numbers of what they speak of.

Most of what a fleet sends are measurements and tests as the writer writes them. The module skidproof_forms, of results/forms, takes
such lines apart, and what is the same from night to night is looked up among what was parsed before. What is written otherwise goes
the long way, as everything does where the module is not built, and comes out the same: three times slower.
"""

import dataclasses
import importlib.machinery
import importlib.util
import io
import os
import pathlib

SHAPES_KEPT = 20_000   # keys of lines that are known
LINES_KEPT, LINE_BYTES = 10_000, 2000  # of what comes again as it was
NAMES_KEPT = 200_000   # of the dictionaries, between files
INTERFACE = 1          # of the module
TEST_SPLIT = b',"duration_s":'
TEST_HEAD_KEYS = {"type", "machine", "microarch", "id", "clauses", "citations", "status", "skip_category", "reason"}
MEASUREMENT_KEYS = {"type", "machine", "microarch", "name", "value", "unit", "statistic", "n", "low", "high", "interval",
                    "parameters", "noise"}
NOISE = ("involuntary_switches", "migrations", "smi", "steal_s")


class Lines:
    """The lines of a block, none of them known: what the module's Lines is where there is no module."""

    def __init__(self, block, shapes):
        self.left = io.BytesIO(block)

    def next(self, known, starts):
        return self.left.readline() or None


def _module():
    """skidproof_forms: where $SKIDPROOF_FORMS says, where it was installed, or where the source tree builds it; None without one."""
    package = pathlib.Path(__file__).resolve().parents[1]
    places = [package.parents[3] / "lib" / "skidproof", package.parents[1] / "build" / "release" / "results"]
    if "SKIDPROOF_FORMS" in os.environ:
        places = [os.environ["SKIDPROOF_FORMS"]]
    spec = importlib.machinery.PathFinder.find_spec("skidproof_forms", [str(place) for place in places if place])
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if module.INTERFACE == INTERFACE else None


module = _module()


@dataclasses.dataclass(eq=False, slots=True)
class Shape:
    """What the measurements of one figure have in common, all but their numbers."""

    machine: str
    figure: int
    interval: int
    stand_in: bytes  # what stands for the row among the run's lines


@dataclasses.dataclass(eq=False, slots=True)
class TestShape:
    """What the rows of one test without failures have in common, all but their numbers and evidence."""

    machine: str
    test: int
    id: str
    status: str
    said: tuple    # skip_category, reason, erratum


class Ids(dict):
    """Of a Shape the database's numbers of (figure, interval), and them as COPY takes them."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __missing__(self, shape):
        figure, interval = self.found["figures"][shape.figure], self.found["texts"][shape.interval]
        known = self[shape] = (figure, interval, b"%d\t%d" % (figure, interval))
        return known


class Dictionaries:
    """Gives each subject, figure, test and text a number of this process; `found` has the database's, once they are known."""

    KINDS = ("subjects", "figures", "tests", "texts")

    def __init__(self):
        self.clear()

    def clear(self):
        self.numbers = {kind: {} for kind in self.KINDS}
        self.shapes = {}
        self.lines = {}       # what comes again as it was: machine rows, and the evidence of tests
        self.forget_found()

    def forget_found(self):
        """After a rollback: what was added to the database is not there."""
        self.found = {kind: [] for kind in self.KINDS}
        self.ids = Ids(self.found)

    def number(self, kind, key):
        numbers = self.numbers[kind]
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
        return number

    def resolved(self):
        """Whether the database's numbers are known of all."""
        return all(len(self.found[kind]) == len(self.numbers[kind]) for kind in self.KINDS)

    def large(self):
        return sum(map(len, self.numbers.values())) > NAMES_KEPT

    def remember(self, key, shape):
        """Keeps the shape of a line; the shape that is kept."""
        if len(self.shapes) >= SHAPES_KEPT:
            self.shapes.clear()
            self.ids.clear()
        return self.shapes.setdefault(key, shape)

    def remember_line(self, said, meaning):
        if len(said) <= LINE_BYTES:
            if len(self.lines) >= LINES_KEPT:
                self.lines.clear()
            self.lines[said] = meaning
