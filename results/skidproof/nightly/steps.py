"""The commands of a night: what is called with which options, and what its exit code says about the night."""

import dataclasses
import pathlib
import shlex

from skidproof.nightly import recovery

# From harmless to most serious; a night ends with the most serious of its steps.
SEVERITY = (0, 77, 1, 64, 2)
MEANING = {0: "all that ran held", 1: "a property failed", 2: "the harness failed or the machine was lost",
           64: "bad usage, or a filter that matched nothing", 77: "nothing could run"}
MACHINE_STEPS = ("run", "characterize", "errata")  # those that touch the processor under test


def most_serious(exits):
    """What has no place in the order is a failure of the harness."""
    ranks = [SEVERITY.index(code) if code in SEVERITY else len(SEVERITY) - 1 for code in exits]
    return SEVERITY[max(ranks, default=0)]


@dataclasses.dataclass
class Step:
    """One command. `rows`: the results file that it writes, if any. `own_deadline`: the command itself keeps the deadline."""

    name: str
    command: list
    deadline_s: float
    rows: pathlib.Path | None = None
    own_deadline: bool = False
    note: str = ""  # what people should know of why it is called so

    def __str__(self):
        return shlex.join(map(str, self.command))


@dataclasses.dataclass
class NotDone:
    """A step that is not called, and why. `exit` is what that makes of the night."""

    name: str
    why: str
    exit: int


def without(glob, tests):
    """A filter of `run` that leaves these tests out as well."""
    if not tests:
        return glob
    positive, dash, negative = glob.partition("-")
    return f"{positive}-{':'.join(([negative] if negative else []) + list(tests))}"


def _placed(settings):
    """Where `run` and `errata` work."""
    machine, words = settings["machine"], []
    if machine["cpu"] != "auto":
        words += ["--cpu", str(machine["cpu"])]
    if machine["core"]:
        words += ["--core", machine["core"]]
    return words


def _seconds(value):
    return f"{value:g}"


def _run(program, settings, folder, left_out):
    run, machine = settings["run"], settings["machine"]["name"]
    command = [program, "run", "--machine", machine]
    if machine == "direct":
        command += _placed(settings)
    command += ["--filter", without(run["filter"], left_out)]
    if run["until"] != "edges":
        command += ["--until", run["until"]]
    command += ["--deadline", _seconds(run["deadline_s"])]
    if not machine.startswith("tape:"):
        command += ["--seed", str(run["seed"]), "--repeat", str(run["repeat"])]
    command += ["--out", folder / "run", *run["options"]]
    note = f"without {len(left_out)} left out" if left_out else ""
    return Step("run", command, run["deadline_s"], folder / "run" / "results.jsonl", own_deadline=True, note=note)


def resumed(program, folder, deadline_s):
    """The rest of a run whose rows in `folder` break off, within what is left of its deadline."""
    return Step("run", [program, "run", "--resume", folder], deadline_s, folder / "results.jsonl")


def _characterize(program, settings, folder):
    said = settings["characterize"]
    command = [program, "characterize"]
    if settings["machine"]["cpu"] != "auto":
        command += ["--cpu", str(settings["machine"]["cpu"])]
    command += ["--quick"] if said["quick"] else []
    for part in said["only"]:
        command += ["--only", part]
    return Step("characterize", command + ["--out", folder / "characterize", *said["options"]], said["deadline_s"],
                folder / "characterize" / "measurements.jsonl")


def _errata(program, settings, folder, left_out, run_rows):
    """Its reproducers are tests, and it cannot leave one of them out: with any left out it judges by the rows of tonight's run, or
    without running anything where there are none."""
    said, machine = settings["errata"], settings["machine"]["name"]
    out = ["--out", folder / "errata", *said["options"]]
    rows = folder / "errata" / "results.jsonl"
    if machine == "native":
        return Step("errata", [program, "errata", "--machine", "host", *out], said["deadline_s"], rows, note="by CPUID: native has no PMU")
    if said["active"] and left_out and run_rows:
        return Step("errata", [program, "errata", "--from", run_rows, *out], said["deadline_s"], rows,
                    note="by tonight's rows, since a reproducer could be a test that is left out")
    command = [program, "errata", "--machine", machine]
    if machine == "direct":
        command += _placed(settings)
    active = said["active"] and not left_out
    if active:
        command += ["--active", "--repeat", str(said["repeat"]), "--deadline", _seconds(said["deadline_s"])]
    note = "without running a reproducer, which could be a test that is left out" if said["active"] and not active else ""
    return Step("errata", command + out, said["deadline_s"], rows, own_deadline=active, note=note)


def machine_step(name, program, settings, folder, state, run_rows=None):
    """The Step or NotDone of this name (of MACHINE_STEPS); None where the configuration does not want it. `run_rows`: where
    tonight's run wrote its rows; None: it has none."""
    if not settings[name]["enabled"]:
        return None
    if name in state.names_left_out("step"):
        return NotDone(name, f"left out until `skidproof nightly --allow {name}`", 77)
    tests = state.names_left_out("test")
    if name == "run":
        return _run(program, settings, folder, tests)
    if name == "characterize":
        return _characterize(program, settings, folder)
    return _errata(program, settings, folder, tests, run_rows)


def closing_steps(program, settings, folder, files, quick=False):
    """What is done with the results files of a night; `quick`: only what keeps them."""
    found = []

    def step(name, table, *command):
        found.append(Step(name, [program, *command], settings[table]["deadline_s"]))

    if not files:
        return found
    if settings["export"]["enabled"] and settings.textfile_folder:
        step("export", "export", "export", "--format", "prometheus", "--out", settings.textfile_folder / "skidproof.prom", *files)
    if settings["export"]["enabled"] and settings["export"]["junit"]:
        step("junit", "export", "export", "--format", "junit", "--out", folder / "junit.xml", *files)
    if settings["store"]["enabled"]:
        step("store", "store", "store", "add", "--store", settings.store_url, *files)
    if quick:
        return found
    if settings["store"]["enabled"] and settings["store"]["keep_nights"]:
        step("prune", "store", "store", "prune", "--store", settings.store_url, "--keep-nights", str(settings["store"]["keep_nights"]))
    if settings["store"]["enabled"] and settings["trends"]["enabled"]:
        step("trends", "trends", "trends", "--store", settings.store_url)
    if settings["report"]["enabled"]:
        step("report", "report", "report", "--out", folder / "report", *files)
    return found


def judge(step, code, settings):
    """(what the exit code of a command makes of the night, in words). `errata` has exit codes of its own: its verdicts are
    answers, unless the configuration calls an exposed machine failed."""
    if code is None or code < 0:
        return 2, f"ended by signal {-code}" if code else "it did not end"
    if step.name not in MACHINE_STEPS and code in (0, 2):
        return code, "failed" if code else "done"
    if step.name != "errata":
        return (code, MEANING[code]) if code in MEANING else (2, f"exit {code}, which is none of its own")
    if code == 64:
        return 64, MEANING[64]
    evidence = recovery.examine(step.rows)
    if evidence.run is None:
        return (77, "nothing could run: this is not the machine for it") if code == 3 else (2, "it wrote no rows")
    if not evidence.ended:
        return 2, "it did not end"
    reason = evidence.run.end["reason"]
    if reason != "completed":
        return 2, f"not all was tried: {reason}"
    words = {0: "no erratum shows", 1: "affected, with a workaround in place", 2: "exposed to an erratum, or one was reproduced",
             3: "something is unknown, nothing is exposed"}.get(code)
    if words is None:
        return 2, f"exit {code}, which is none of its own"
    return int(code == 2 and settings["errata"]["exposed"] == "failed"), words
