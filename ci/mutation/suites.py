"""Runs the suites with one mutant switched on, and says what became of it."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pickle
import resource
import signal
import subprocess
import threading

MEMORY = 8 << 30  # bytes of address space; a mutant that allocates without end is stopped by this
SLOWER = 10  # times the unmutated run: then it hangs
AT_LEAST = 5.0  # seconds of CPU time
WAITING = 60  # times the CPU time that is allowed, on the clock
UNLIMITED = 600.0
NOTHING_RAN = 77  # every test of a suite skipped itself
# Whose qualification is asked about a mutant that the suites do not notice, of those that execute it, and how many.
QUALIFYING = ("sandy-bridge", "sapphire-rapids", "netburst", "skylake", "core2", "ice-lake", "haswell", "lunar-lake-p",
              "panther-lake-e", "lunar-lake-e", "panther-lake-p", "goldmont")
QUALIFICATIONS = 2


@dataclasses.dataclass(frozen=True)
class Configuration:
    microarch: str
    sibling: bool

    def options(self):
        return ["--machine", f"model:{self.microarch}", "--sibling" if self.sibling else "--no-sibling"]

    def __str__(self):
        return self.microarch + ("" if self.sibling else ", no sibling")


@dataclasses.dataclass
class Verdict:
    """How one run ended. `how`: held, failed, error (of the harness), crash, hang, missed defect."""

    how: str
    detail: str
    seconds: float

    def killed(self):
        return self.how != "held"


def execute(command, environment, cpu_seconds):
    """(exit code, minus a signal's number, or None when it hangs; standard output; seconds of CPU time). A program
    hangs when it takes more CPU time than that, or waits for nothing: load on this machine makes nothing hang."""

    def limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds), math.ceil(cpu_seconds) + 1))

    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, preexec_fn=limits, start_new_session=True)
    waited_too_long = threading.Event()

    def give_up():
        waited_too_long.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(WAITING * cpu_seconds, give_up)
    timer.start()
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.stdout.close()
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    if waited_too_long.is_set() or code == -signal.SIGXCPU:
        code = None
    return code, output, usage.ru_utime + usage.ru_stime


def first_failure(output):
    for line in output.splitlines():
        if b'"status":"fail"' in line or b'"status":"error"' in line:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            return row["id"]
    return ""


def missed_defect(output):
    """The first that a qualification did not catch, from its rows."""
    for line in output.splitlines():
        if line.startswith(b'{"type":"defect",') and b'"caught":false' in line:
            return json.loads(line)["id"]
    return ""


def traced(path):
    """The mutants that would have made a difference where they stand, in a traced program (switch.h)."""
    return {number for number, reached in enumerate(path.read_bytes()) if reached}


def suites_of(output):
    """Names of the suites that ran, from the rows of a run."""
    ids = [json.loads(line)["id"] for line in output.splitlines() if line.startswith(b'{"type":"test",')]
    return sorted({test.split(".")[0] for test in ids})


class Runner:
    """Runs a program's suites in a configuration. Without a mutant the runs must hold; they give the time limit and
    which suites meet which mutants. A suite in which one never makes a difference cannot tell it from the original."""

    def __init__(self, program, configurations, seed, folder):
        self.program = str(program)
        self.configurations = list(configurations)
        self.seed = seed
        self.folder = folder
        self.seconds = {}
        self.reached = {}  # configuration -> {suite: mutants that differ where it executes them}
        self.only_broken = set()  # mutants that differ in some broken model and in no conforming one
        self.broken = {}  # microarch -> (mutants that differ in its qualification, seconds of it)
        self.kills = {configuration: 0 for configuration in self.configurations}
        self.lock = threading.Lock()

    def measured(self):
        """(file, what it must begin with) of measure()'s and measure_broken()'s results: they hold for this program,
        these configurations and this seed."""
        with open(self.program, "rb") as program:
            digest = hashlib.file_digest(program, "sha256").hexdigest()
        return self.folder / "reached.pickle", (digest, self.seed, sorted(map(str, self.configurations)))

    def remember(self):
        path, key = self.measured()
        path.write_bytes(pickle.dumps((key, self.seconds, self.reached, self.only_broken, self.broken)))

    def recall(self):
        """Whether an earlier run measured the same."""
        path, key = self.measured()
        try:
            found, seconds, reached, only_broken, broken = pickle.loads(path.read_bytes())
        except (OSError, ValueError, EOFError, pickle.UnpicklingError, AttributeError):
            return False
        if found == key:
            self.seconds, self.reached, self.only_broken, self.broken = seconds, reached, only_broken, broken
        return found == key

    def command(self, configuration, names=None):
        pick = [] if names is None else ["--filter", ":".join(f"{name}.*" for name in names)]
        return [self.program, "run", *configuration.options(), *pick, "--seed", str(self.seed), "--json", "-",
                "--all", "--no-errata", "--", "--gtest_fail_fast"]

    def measure(self, configuration):
        """A run without a mutant and a traced one of each suite. Returns why they cannot serve, or None."""
        code, output, seconds = execute(self.command(configuration), {"SKIDPROOF_MUTANT": "0"}, UNLIMITED)
        if code not in (0, NOTHING_RAN):
            return f"{configuration}: without a mutant the suites end with {code} ({first_failure(output)})"
        reached = {}
        for name in suites_of(output):
            trace = self.folder / f"reached-{configuration.microarch}-{int(configuration.sibling)}-{name}"
            code, _, _ = execute(self.command(configuration, [name]), {"SKIDPROOF_MUTANT_TRACE": str(trace)}, UNLIMITED)
            if code not in (0, NOTHING_RAN):
                return f"{configuration}: the traced run of {name} ends with {code}"
            reached[name] = traced(trace)
            trace.unlink()
        with self.lock:
            self.seconds[configuration] = seconds
            self.reached[configuration] = reached
        return None

    def qualification(self, microarch):
        return [self.program, "qualify", "--seeds", "1", "--seed", str(self.seed), "--jobs", "1", "--json", "-",
                "--microarch", microarch]

    def measure_broken(self, microarch):
        """What `qualify` executes besides: the code of defects. Returns why it cannot serve, or None."""
        trace = self.folder / f"reached-broken-{microarch}"
        code, output, seconds = execute(self.qualification(microarch), {"SKIDPROOF_MUTANT_TRACE": str(trace)}, UNLIMITED)
        if code != 0:
            return f"the traced qualification of {microarch} ends with {code} {missed_defect(output)}"
        with self.lock:
            self.broken[microarch] = traced(trace), seconds
        trace.unlink()
        return None

    def measured_all(self):
        conforming = set().union(*(mutants for reached in self.reached.values() for mutants in reached.values()))
        self.only_broken = set().union(*(mutants for mutants, _ in self.broken.values())) - conforming

    def judge_by_qualification(self, number):
        """The verdict of the first qualification that a mutant spoils, one that the suites alone do not notice: it
        changes what some defect does, so that no test catches it any more. None: it spoils none of those asked."""
        asked = [name for name in QUALIFYING if name in self.broken and number in self.broken[name][0]]
        for name in asked[:QUALIFICATIONS]:
            limit = max(AT_LEAST, SLOWER * self.broken[name][1])
            code, output, seconds = execute(self.qualification(name), {"SKIDPROOF_MUTANT": str(number)}, limit)
            if code != 0:
                return Verdict("missed defect", f"{name}: {missed_defect(output) or f'exit code {code}'}", seconds)
        return None

    def run(self, number, configuration, names):
        limit = max(AT_LEAST, SLOWER * self.seconds[configuration])
        code, output, seconds = execute(self.command(configuration, names), {"SKIDPROOF_MUTANT": str(number)}, limit)
        if code is None:
            return Verdict("hang", f"more than {limit:.0f} s of CPU time", seconds)
        if code < 0:
            return Verdict("crash", signal.Signals(-code).name, seconds)
        if code in (0, NOTHING_RAN):
            return Verdict("held", "", seconds)
        return Verdict("failed" if code == 1 else "error", first_failure(output) or f"exit code {code}", seconds)

    def judge(self, number):
        """(verdict, configuration) of the first run that does not hold, or of the last; (None, None): no test reaches
        it."""
        with self.lock:
            order = sorted(self.configurations, key=lambda c: (-self.kills[c], self.seconds[c]))
        verdict, last = None, None
        for configuration in order:
            names = [name for name, mutants in self.reached[configuration].items() if number in mutants]
            if not names:
                continue
            verdict, last = self.run(number, configuration, names), configuration
            if verdict.killed():
                with self.lock:
                    self.kills[configuration] += 1
                break
        return verdict, last
