"""One night: what an earlier one left unfinished, the steps one after the other, and what became of each."""

import collections
import os
import pathlib
import shutil
import signal
import subprocess
import time

from skidproof.cli import Complaint, complain, printable
from skidproof.nightly import lock, recovery, status
from skidproof.nightly import state as states
from skidproof.nightly import steps as plan

GRACE_S = 30  # between asking a command to stop and killing it
SLACK_S = 60  # what a command that keeps its deadline itself may need beyond it
NAMED = 20  # failing tests that are named in the state; the results files have them all
LAST_LINES = 12  # of a command that failed, said again


def _death(code):
    """How a command ended, in words."""
    if code is None:
        return "it could not be ended"
    if code >= 0:
        return f"the process ended with {code}"
    known = {one.value: one.name for one in signal.Signals}
    return f"it was ended by {known.get(-code, f'signal {-code}')}"


class Night:
    """`program`: the skidproof that is called; `lock`: descriptor that children inherit; `say`: prints a line for people."""

    def __init__(self, program, settings, state, lock, say=print):
        self.program, self.settings, self.state, self.lock, self.say = str(program), settings, state, lock, say
        self.stopped = ""  # the signal that asked for an end
        self.child = None
        self.record = None
        self.stuck = False  # a command could not even be killed
        self.unsaved = False

    # -- signals

    def stop(self, number, _frame):
        """The first asks the command that runs to stop, the second kills it."""
        again, self.stopped = bool(self.stopped), signal.Signals(number).name
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL if again else signal.SIGTERM)

    # -- state

    def save(self):
        """A night goes on when its state cannot be saved, but does not end well."""
        try:
            self.state.save()
        except OSError as error:
            self.unsaved = True
            complain(f"the state cannot be saved in '{self.state.folder}': {error.strerror}",
                     "make room; until then a lost machine would be found without the test that it was lost in")

    def begin_step(self, name, command=""):
        entry = {"name": name, "command": command, "state": "running", "started": states.now(), "seconds": None, "exit": None,
                 "night_exit": None, "words": "", "rows": None}
        self.record["steps"].append(entry)
        return entry

    def end_step(self, entry, code, night_exit, words, began):
        entry.update(state="ended", exit=code, night_exit=night_exit, words=words, seconds=round(time.monotonic() - began, 3))
        self.save()
        self.say(f"  {entry['name']:<14}{words}{'' if night_exit == 0 else f' (exit {night_exit})'}, {entry['seconds']:.1f} s")

    def not_done(self, name, why, code):
        entry = self.begin_step(name)
        entry.update(state="not-done", night_exit=code, words=why, seconds=0.0)
        self.save()
        self.say(f"  {name:<14}not done: {why}")

    # -- one command

    def call(self, step):
        """Its exit code, -N where signal N ended it, None where nothing could."""
        log, stopped = pathlib.Path(self.record["folder"]) / f"{step.name}.log", self.stopped
        try:
            with open(log, "ab") as stream:
                self.child = subprocess.Popen([str(word) for word in step.command], stdin=subprocess.DEVNULL, stdout=stream,
                                              stderr=stream, pass_fds=(self.lock,), env=os.environ | {"NO_COLOR": "1"})
        except OSError as error:
            complain(f"cannot run {step.command[0]}: {error.strerror}", "set $SKIDPROOF to the program")
            return 2
        if self.stopped != stopped:  # the signal came before there was a child to pass it on to
            self.child.send_signal(signal.SIGTERM)
        try:
            return self._wait(self.child, step)
        finally:
            self.child = None

    def _wait(self, child, step):
        for seconds, what in ((step.deadline_s + (SLACK_S if step.own_deadline else 0), signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
            try:
                return child.wait(seconds)
            except subprocess.TimeoutExpired:
                complain(f"{step.name} is not done after {seconds:g} s more; sending {what.name}")
                child.send_signal(what)
        try:
            return child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.stuck = True
            return None

    def last_words(self, name):
        """The end of what a command printed."""
        try:
            with open(pathlib.Path(self.record["folder"]) / f"{name}.log", encoding="utf-8", errors="replace") as stream:
                return [line.rstrip("\n") for line in collections.deque(stream, LAST_LINES)]
        except OSError:
            return []

    def do(self, step):
        """Calls a step and notes what became of it; its entry."""
        entry = self.begin_step(step.name, str(step))
        entry["rows"] = str(step.rows) if step.rows else None
        self.save()
        if step.note:
            self.say(f"  {step.name:<14}{step.note}")
        began = time.monotonic()
        code = self.call(step)
        night_exit, words = plan.judge(step, code, self.settings)
        if step.rows and night_exit in (0, 1, 2) and not recovery.examine(step.rows).ended:
            try:
                night_exit, words = 2, self.broken_off(step, entry, code, began)
            except OSError as error:
                night_exit, words = 2, f"its rows break off, and cannot be mended: {error.strerror}"
        elif step.name == "run":
            words = status.counted(recovery.examine(step.rows).run) or words
        self.end_step(entry, code, night_exit, words, began)
        if night_exit not in (0, 1):
            for line in self.last_words(step.name):
                self.say(f"    {printable(line)}")
        return entry

    # -- what was lost

    def note_loss(self, name, evidence, why, restarted):
        """Leaves out what the machine was lost in; the words for it."""
        words, night = recovery.words_of(evidence, why), self.record["id"]
        if evidence.test:
            self.state.leave_out("test", evidence.test["id"], night, words)
        elif restarted and (evidence.measurement or evidence.run is None or name == "characterize"):
            # What cannot be left out alone takes its step with it; a process that merely died may try again.
            self.state.leave_out("step", name, night, words)
        self.record["lost"].append({"step": name, "test": evidence.test["id"] if evidence.test else None, "words": words})
        return words

    def broken_off(self, step, entry, code, began):
        """A command ended without its `end` row, while this machine is still there: a run that was killed goes on without the test.
        The words. OSError where a derived file cannot be written."""
        killed = code is None or code < 0
        why = _death(code)
        evidence = recovery.examine(step.rows)
        if not killed:
            # It gave up by itself, and said why: no test is to blame.
            if evidence.run is None:
                return f"{why}, and wrote no rows"
            entry["rows"] = str(pathlib.Path(self.record["folder"]) / f"{step.name}.recovered" / step.rows.name)
            recovery.write_ended(evidence, pathlib.Path(entry["rows"]), why, recovery.BROKEN_OFF)
            return recovery.words_of(evidence, why, recovery.BROKEN_OFF)
        allowed, words = self.settings["run"]["resume"] if step.name == "run" else 0, ""
        until = began + step.deadline_s
        for attempt in range(1, allowed + 2):
            words = self.note_loss(step.name, evidence, why, restarted=False)
            self.say(f"  {step.name:<14}{words}")
            if evidence.run is None:
                break
            derived = pathlib.Path(self.record["folder"]) / f"{step.name}.recovered-{attempt}" / step.rows.name
            entry["rows"] = str(derived)
            left_s = until - time.monotonic()
            if attempt > allowed or self.stopped or self.stuck or left_s < 1:
                recovery.write_ended(evidence, derived, why)
                break
            recovery.write_resumable(evidence, derived)
            self.save()
            self.say(f"  {step.name:<14}goes on without it")
            why = _death(self.call(plan.resumed(self.program, derived.parent, left_s)))
            evidence = recovery.examine(derived)
            if evidence.ended:
                break
        return words

    def recover(self):
        """Ends the night that the last process did not: names what was lost, leaves it out, and keeps the results. What was written
        stays as it is."""
        self.record = record = self.state.current
        now = states.boot_id()
        why = recovery.cause(record.get("boot_id"), now)
        restarted = record.get("boot_id") != now
        folder = pathlib.Path(record["folder"])
        self.say(f"night {record['id']} did not end: {why}")
        for entry in record["steps"]:
            if entry["state"] != "running":
                continue
            words = f"cut short: {why}"
            if entry["rows"]:
                evidence = recovery.examine(entry["rows"])
                if evidence.ended:
                    words = "its rows are whole, but the night ended before it"
                elif folder.is_dir():
                    words = self.note_loss(entry["name"], evidence, why, restarted)
                    if evidence.run is not None:
                        derived = folder / f"{entry['name']}.recovered" / pathlib.Path(entry["rows"]).name
                        recovery.write_ended(evidence, derived, why)
                        entry["rows"] = str(derived)
            entry.update(state="lost", night_exit=2, words=words)
            self.say(f"  {entry['name']:<14}{words}")
        self.state.save()  # before anything else is tried: this must not be lost
        done = {entry["name"] for entry in record["steps"] if entry["state"] == "ended" and entry["night_exit"] == 0}
        for step in plan.closing_steps(self.program, self.settings, folder, self.results()) if folder.is_dir() else ():
            if step.name not in done:
                self.do(step)
            if self.stopped:
                self.say(f"stopped by {self.stopped}; the next start goes on with it")
                return
        self.end("lost", 2)

    # -- the whole

    def results(self):
        """The results files of this night that have rows."""
        return [entry["rows"] for entry in self.record["steps"]
                if entry["rows"] and entry["name"] in plan.MACHINE_STEPS and recovery.examine(entry["rows"]).run is not None]

    def begin(self, identity):
        """A folder and a record of its own; both are on the disk before anything runs. OSError."""
        folder = self.settings.nights_folder / identity
        folder.mkdir(parents=True)
        with open("/proc/self/stat", encoding="ascii", errors="replace") as stream:
            ticks = int(stream.read().rpartition(")")[2].split()[19])
        self.record = self.state.current = {
            "id": identity, "started": states.now(), "ended": None, "status": "running", "exit": None, "boot_id": states.boot_id(),
            "pid": os.getpid(), "pid_start_ticks": ticks, "folder": str(folder), "machine": self.settings["machine"]["name"],
            "steps": [], "lost": [], "counts": {}, "failed": [], "words": ""}
        self.state.save()

    def run(self, identity):
        """A night from its beginning to its end; its exit code."""
        self.begin(identity)
        self.say(f"night {identity} on {self.record['machine']}: {self.record['folder']}")
        for one in self.state.left_out:
            self.say(f"  left out      {one['kind']} {one['name']}: {one['reason']}")
        folder, run_rows = pathlib.Path(self.record["folder"]), None
        for name in plan.MACHINE_STEPS:
            step = plan.machine_step(name, self.program, self.settings, folder, self.state, run_rows)
            if step is None:
                continue
            if self.stopped or self.stuck:
                why = f"stopped by {self.stopped}" if self.stopped else "a command before it could not be ended, and may still use the machine"
                self.not_done(name, why, 2)
            elif isinstance(step, plan.NotDone):
                self.not_done(name, step.why, step.exit)
            else:
                entry = self.do(step)
                if name == "run" and recovery.examine(entry["rows"]).run is not None:
                    run_rows = pathlib.Path(entry["rows"])
        for step in plan.closing_steps(self.program, self.settings, folder, self.results(), quick=bool(self.stopped)):
            self.do(step)
        return self.end("ended")

    def end(self, how, at_least=0):
        """Sums up, and makes it the last night."""
        record = self.record
        ran = [entry for entry in record["steps"] if entry["name"] in plan.MACHINE_STEPS]
        exits = [entry["night_exit"] for entry in record["steps"] if entry["night_exit"] is not None]
        exits += [at_least, 2 if self.stopped or self.unsaved else 0, 0 if ran else 77]
        found = next((recovery.examine(entry["rows"]).run for entry in ran if entry["name"] == "run" and entry["rows"]), None)
        if found is not None:
            record["counts"] = found.counts()
            failed = [(test["status"], test["id"], test.get("reason") or next(iter(test.get("failures") or []), ""))
                      for test in found.tests if test["status"] in ("fail", "error")]
            record["failed"] = [dict(zip(("status", "id", "reason"), one)) for one in failed[:NAMED]]
        record.update(status=how, ended=states.now(), exit=plan.most_serious(exits))
        record["words"] = f"stopped by {self.stopped}" if self.stopped else plan.MEANING[record["exit"]]
        self.state.last, self.state.current = record, None
        self.save()
        if self.unsaved:
            record["exit"] = 2
        try:
            states.save(pathlib.Path(record["folder"]) / "night.json", record)
        except OSError as error:
            complain(f"night.json cannot be written: {error.strerror}")
        self.say(f"night {record['id']} {how}: {record['words']} (exit {record['exit']})")
        return record["exit"]

    def tell_prometheus(self):
        """How the night itself went, beside what `export` writes. A folder that cannot be written is said and no more."""
        folder = self.settings.textfile_folder
        if not self.settings["export"]["enabled"] or folder is None:
            return
        try:
            status.write_metrics(folder / "skidproof_nightly.prom", self.state)
        except OSError as error:
            complain(f"{folder / 'skidproof_nightly.prom'} cannot be written: {error.strerror}",
                     "name the folder of the node exporter in folders.textfile")

    def forget_old(self):
        """Removes the folders of old nights, but for those in which what is left out was lost."""
        keep = self.settings["retention"]["nights"]
        if not keep or not self.settings.nights_folder.is_dir():
            return
        needed = {one["night"] for one in self.state.left_out}
        nights = sorted(path for path in self.settings.nights_folder.iterdir() if path.is_dir() and is_night(path.name))
        for path in nights[:-keep]:
            if path.name not in needed:
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    complain(f"the old night '{path}' cannot be removed: {error.strerror}")


def is_night(name):
    """Whether a folder's name is one that new_name gives."""
    stamp, _, number = name.partition("-")
    return len(stamp) == 16 and stamp[8] == "T" and stamp[15] == "Z" and (stamp[:8] + stamp[9:15]).isdigit() and (not number or number.isdigit())


def new_name(settings):
    """"20261125T215135Z", and -2 where that second has had a night."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number, name = 1, stamp
    while (settings.nights_folder / name).exists():
        number += 1
        name = f"{stamp}-{number}"
    return name


def check_room(settings):
    """Complaint (2) where the disk has less room than the configuration wants: a run that cannot write its rows says nothing."""
    wanted = settings["folders"]["free_mib"]
    settings.nights_folder.mkdir(parents=True, exist_ok=True)
    for folder in (settings.state_folder, settings.nights_folder):
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize >> 20
        if free < wanted:
            raise Complaint(f"'{folder}' has {free} MiB free, and a night wants {wanted} MiB",
                            "make room there (retention.nights says how many are kept), or lower folders.free_mib")


def _finish(program, settings, state, held, say):
    """The exit code of a night that was cut short, once it is finished; 0 where there is none. (exit code, signal that came or "")."""
    if state.current is None:
        return 0, ""
    night = Night(program, settings, state, held, say)
    with _listening(night):
        night.recover()
    if state.current is not None:
        return 2, night.stopped
    night.tell_prometheus()
    return state.last["exit"], night.stopped


def recover_only(program, settings, say=print):
    """Finishes a night that was cut short, and begins none: (exit code, State). Complaints and errors as of one_night."""
    if not settings.state_folder.is_dir():
        return 0, states.State(settings.state_folder)
    with lock.held(settings.state_folder, states.now()) as held:
        state = states.load(settings.state_folder)
        if state.current is None:
            say("no night was cut short")
        return _finish(program, settings, state, held, say)[0], state


def one_night(program, settings, say=print):
    """Finishes what was cut short, then does a night: (exit code, State). The machine that was lost is part of the answer. Complaint
    (2) where another nightly runs, the state is damaged or the disk is full; OSError."""
    settings.state_folder.mkdir(parents=True, exist_ok=True)
    with lock.held(settings.state_folder, states.now()) as held:
        state = states.load(settings.state_folder)
        check_room(settings)
        before, stopped = _finish(program, settings, state, held, say)
        if stopped:
            return before, state
        night = Night(program, settings, state, held, say)
        with _listening(night):
            code = night.run(new_name(settings))
        night.tell_prometheus()
        night.forget_old()
        return plan.most_serious([before, code]), state


class _listening:
    """While it lasts, signals that would end the process ask the night to stop."""

    def __init__(self, night):
        self.night = night

    def __enter__(self):
        self.before = {number: signal.signal(number, self.night.stop) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)
