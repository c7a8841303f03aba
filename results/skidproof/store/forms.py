"""The forms in which the writer writes most lines, so that they need not be parsed whole, and the numbers of what they speak of.

Most of what a fleet sends are measurements and tests as the writer writes them. An expression takes such a line apart, and what is the
same from night to night is looked up among what was parsed before. What is written otherwise goes the long way, and comes out the
same.
"""

import dataclasses
import re

SHAPES_KEPT = 20_000   # heads of lines that are known
NUMBERS_KEPT = 10_000
LINES_KEPT, LINE_BYTES = 10_000, 2000  # of what comes again as it was
NAMES_KEPT = 200_000   # of the dictionaries, between files

# Characters are taken possessively, groups are not: the first Pythons 3.11 take half of one, "6." for a
# number (CPython issue 106052).
_NUMBER = rb"-?(?!0[0-9])[0-9]{1,15}+(?:\.[0-9]{1,40}+)?(?:[eE][-+]?[0-9]{1,2}+)?"
_COUNT = rb"((?!0[0-9])[0-9]{1,9}+)"
_LONG_COUNT = rb"((?!0[0-9])[0-9]{1,18}+)"
_WORD = rb'"[^"\\\n]*+"'
_SIMPLE = rb'"[ !#-\[\]-~]*+"'  # in any case a JSON string
_MEASUREMENT = (
    rb'(\{"type":"measurement","machine":' + _WORD + rb',"microarch":' + _WORD + rb',"name":' + _WORD + rb'),"value":(' + _NUMBER +
    rb')(,"unit":' + _WORD + rb',"statistic":' + _WORD + rb'),"n":([1-9][0-9]{0,8}+),"low":(null|' + _NUMBER + rb'),"high":(null|' +
    _NUMBER + rb')(,"interval":' + _WORD + rb',"parameters":\{[^{}\n]*+\}),"noise":\{([^{}\n]*+)\}\}')
# All lines of a block, each as (line, head, value, unit, n, low, high, tail, noise); all but the line are empty where it is no
# measurement of this form.
take_apart = re.compile(rb"((?:" + _MEASUREMENT + rb"(?=\r?\n)|)[^\n]*+\n|[^\n]++)").findall
PLAIN_TEST = re.compile(
    rb',"duration_s":(' + _NUMBER + rb'),"seed":' + _LONG_COUNT + rb',"repetition":' + _COUNT + rb',"iterations":' + _LONG_COUNT +
    rb',"comparisons":' + _LONG_COUNT + rb',"failures":\[\],"evidence":(\{.*\})(,"stage":' + _WORD + rb',"erratum":' + _WORD +
    rb'),"repetitions":\{([^{}]*)\}\}\r?\n?').fullmatch
TEST_START, TEST_SPLIT = b'{"type":"test",', b',"duration_s":'
PLAIN_BEGIN = re.compile(
    rb'\{"type":"test-start","machine":(?!"")' + _SIMPLE + rb',"microarch":' + _SIMPLE + rb',"id":(?!"")' + _SIMPLE +
    rb',"clauses":\[(?:' + _SIMPLE + rb'(?:,' + _SIMPLE + rb')*)?\],"seed":' + _LONG_COUNT + rb',"repetition":' + _COUNT +
    rb',"started":' + _SIMPLE + rb'\}\r?\n?').fullmatch
BEGIN_START, MACHINE_START = b'{"type":"test-start",', b'{"type":"machine",'
TEST_HEAD_KEYS = {"type", "machine", "microarch", "id", "clauses", "citations", "status", "skip_category", "reason"}
MEASUREMENT_KEYS = {"type", "machine", "microarch", "name", "value", "unit", "statistic", "n", "low", "high", "interval",
                    "parameters", "noise"}
NOISE = ("involuntary_switches", "migrations", "smi", "steal_s")


@dataclasses.dataclass(eq=False, slots=True)
class Shape:
    """What the measurements of one figure have in common, all but their numbers."""

    subject: int
    figure: int
    interval: int
    stand_in: str  # what stands for the row among the run's lines, behind the ids of the figure and the subject
    key: int       # of the subject and the figure


class Numbers(dict):
    """Of texts of numbers that often come again: the numbers and the texts; None where the text is not of the form."""

    def __init__(self, form, *kinds):
        super().__init__()
        self.form, self.kinds = form, kinds

    def __missing__(self, words):
        if len(self) >= NUMBERS_KEPT:
            self.clear()
        match = self.form(words)
        known = self[words] = match and (
            tuple([None if text == b"null" else kind(text) for kind, text in zip(self.kinds, match.groups())]), b"\t".join(match.groups()))
        return known


noises = Numbers(re.compile(rb'"involuntary_switches":' + _COUNT + rb',"migrations":' + _COUNT + rb',"smi":' + _COUNT + rb',"steal_s":(' +
                            _NUMBER + rb")").fullmatch, int, int, int, float)
repetitions = Numbers(re.compile(rb'"n":' + _COUNT + rb',"k":' + _COUNT + rb',"voided":' + _COUNT + rb',"rate":(' + _NUMBER +
                                 rb'),"low":(null|' + _NUMBER + rb'),"high":(null|' + _NUMBER + rb")").fullmatch,
                      int, int, int, float, float, float)


class Ids(dict):
    """Of a Shape the database's numbers of (subject, figure, interval), them as COPY takes them, and its stand-in among a run's lines."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __missing__(self, shape):
        subject, figure = self.found["subjects"][shape.subject], self.found["figures"][shape.figure]
        interval = self.found["texts"][shape.interval]
        known = self[shape] = (subject, figure, interval, b"%d\t%d\t%d" % (subject, figure, interval),
                               b"[%d,%d,%b]" % (figure, subject, shape.stand_in.encode()))
        return known


class Dictionaries:
    """Gives each subject, figure, test and text a number of this process; `found` has the database's, once they are known."""

    KINDS = ("subjects", "figures", "tests", "texts")

    def __init__(self):
        self.clear()

    def clear(self):
        self.numbers = {kind: {} for kind in (*self.KINDS, "places")}
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
