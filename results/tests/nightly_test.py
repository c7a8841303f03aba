"""Nights against the real program on a model, and what is left of them when something is killed in the middle."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

RESULTS = pathlib.Path(__file__).resolve().parents[1]
UNITS = RESULTS.parent / "ci" / "nightly"
sys.path.insert(0, str(RESULTS))

from skidproof import cli, rows  # noqa: E402
from skidproof.nightly import configuration, lock, night, recovery, state, status, steps  # noqa: E402

PROGRAM = os.environ.get("SKIDPROOF", str(RESULTS.parent / "build" / "release" / "skidproof"))
QUICK = {"machine": {"name": "model:sandy-bridge"}, "characterize": {"enabled": False},
         "errata": {"enabled": False}, "store": {"enabled": False}, "report": {"enabled": False}}


def toml_of(values):
    lines = []
    for table, options in values.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


class NightTest(unittest.TestCase):
    """A folder with a configuration, and the program."""

    filter = "PmuRegisters.*"  # what a night runs, where a test says nothing else

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.state_folder = self.folder / "state"
        self.textfile = self.folder / "textfile"
        self.textfile.mkdir()
        self.config = self.folder / "nightly.toml"
        self.configure()

    def configure(self, **tables):
        values = {"folders": {"state": str(self.state_folder), "textfile": str(self.textfile), "free_mib": 1}, "run": {"filter": self.filter}}
        for table, options in (QUICK | tables).items():
            values[table] = values.get(table, {}) | QUICK.get(table, {}) | options
        self.config.write_text(toml_of(values), encoding="utf-8")
        self.settings = configuration.read(self.config)

    def nightly(self, *arguments):
        done = subprocess.run([PROGRAM, "nightly", "--config", str(self.config), *arguments], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def night(self, *arguments):
        """(exit code, the night as JSON, what is left out) of a night."""
        path = self.folder / "night.json"
        done = self.nightly("--json", str(path), *arguments)
        self.assertTrue(path.exists(), done.stderr)
        found = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        self.assertEqual(found["exit"], done.returncode)
        self.said = done.stdout
        return done.returncode, found["night"], found["left_out"]

    def step(self, record, name):
        return next(entry for entry in record["steps"] if entry["name"] == name)

    def state(self):
        return state.load(self.state_folder)

    def metrics(self, name):
        text = (self.textfile / "skidproof_nightly.prom").read_text(encoding="utf-8")
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples if sample.name == name]

    def run_of(self, path):
        source = rows.read_source(str(path))
        self.assertEqual(source.problems, [])
        return source.runs[-1]

    def assert_valid(self, path):
        done = subprocess.run([RESULTS / "validate", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # A night in the background, stopped where a test has begun and not ended.

    def begin(self):
        process = subprocess.Popen([PROGRAM, "nightly", "--config", str(self.config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def children(self, process):
        try:
            return [int(word) for word in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()]
        except OSError:
            return []

    def stop_in_a_test(self, process):
        """(pid of the run, its results file, the test that is running); the run stands still."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.assertIsNone(process.poll(), "the night was over before it could be stopped in a test")
            files = sorted(self.state_folder.glob("nights/*/run/results.jsonl"))
            children = self.children(process)
            if not files or not children:
                time.sleep(0.002)
                continue
            os.kill(children[0], signal.SIGSTOP)
            text = files[-1].read_bytes()
            if text.endswith(b"\n") and text.count(b"\n") > 12:
                last = json.loads(text.splitlines()[-1])
                if last["type"] == "test-start":
                    return children[0], files[-1], last["id"]
            os.kill(children[0], signal.SIGCONT)
            time.sleep(0.001)
        self.fail("no test was caught in the middle")

    def gone(self, pid):
        until = time.monotonic() + 10
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
            with contextlib.suppress(OSError, IndexError):
                if pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z":
                    break
            time.sleep(0.01)
        # A process whose first thread is a zombie has its files open until the last one is.
        while lock.holder(self.state_folder) is not None and time.monotonic() < until:
            time.sleep(0.01)

    def cut_short(self):
        """Kills a night and its run in the middle of a test: (results file, its bytes, the test)."""
        process = self.begin()
        child, path, test = self.stop_in_a_test(process)
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)
        self.gone(child)
        return path, path.read_bytes(), test


class WholeNights(NightTest):
    def test_everything_is_done_and_kept(self):
        self.configure(characterize={"enabled": True, "quick": True, "only": ["clock"]},
                       errata={"enabled": True, "repeat": 1, "options": ["--id", "HSD143"]}, store={"enabled": True},
                       report={"enabled": True})
        code, record, left_out = self.night()
        self.assertEqual((code, left_out), (0, []), self.said)
        self.assertEqual([(entry["name"], entry["night_exit"]) for entry in record["steps"]],
                         [(name, 0) for name in ("run", "characterize", "errata", "export", "junit", "store", "trends", "report")])
        folder = pathlib.Path(record["folder"])
        run = self.run_of(folder / "run" / "results.jsonl")
        self.assertEqual(record["counts"], run.counts())
        self.assertGreater(record["counts"]["pass"], 20)
        self.assertEqual(json.loads((folder / "night.json").read_text(encoding="utf-8")), record)
        self.assertIn("PmuRegisters", (folder / "report" / "report.html").read_text(encoding="utf-8"))
        points = xml.etree.ElementTree.parse(folder / "junit.xml").getroot()
        self.assertGreaterEqual(len(points.findall(".//testcase")), len(run.tests))
        self.assertIn("skidproof_", (self.textfile / "skidproof.prom").read_text(encoding="utf-8"))
        self.assertEqual([sample.value for sample in self.metrics("skidproof_nightly_exit_code")], [0])
        asked = subprocess.run([PROGRAM, "store", "query", "runs", "--store", str(self.state_folder / "skidproof.db"), "--json", "-"],
                               capture_output=True, text=True, check=True)
        self.assertIn(run.name, asked.stdout)
        told = self.nightly("--status")
        self.assertEqual(told.returncode, 0)
        self.assertIn(record["id"], told.stdout)
        self.assertIn("left out: nothing", told.stdout)
        self.assertIn("next: ", told.stdout)

    def test_a_failed_property_is_1_and_named(self):
        self.configure(run={"filter": "PebsReload.*", "options": ["--defect", "reset-never", "--no-errata"]})
        code, record, _ = self.night()
        self.assertEqual(code, 1)
        self.assertEqual({one["status"] for one in record["failed"]}, {"fail"})
        self.assertTrue(all(one["id"].startswith("PebsReload.") and one["reason"] for one in record["failed"]))
        told = json.loads(self.nightly("--status", "--json", "-").stdout)
        self.assertEqual(told["last"], record)
        self.assertIsNone(told["running"])

    def test_a_filter_that_matches_nothing_is_64(self):
        self.configure(run={"filter": "NoSuch.*"})
        code, record, _ = self.night()
        self.assertEqual((code, self.step(record, "run")["night_exit"]), (64, 64))

    @unittest.skipIf(os.path.exists("/dev/skidproof"), "here the direct machine may be there")
    def test_a_machine_that_is_not_there_is_77(self):
        self.configure(machine={"name": "direct"}, errata={"enabled": True})
        code, record, _ = self.night()
        self.assertEqual(code, 77)
        self.assertEqual([self.step(record, name)["night_exit"] for name in ("run", "errata")], [77, 77])
        self.assertIn("cannot be the direct machine", self.said, "why is said")

    def test_nothing_to_do_is_77(self):
        self.configure(run={"enabled": False})
        self.assertEqual(self.night()[0], 77)

    def test_a_step_that_fails_stops_no_other(self):
        self.configure(store={"enabled": True, "url": "/proc/no/such.db"}, report={"enabled": True})
        code, record, _ = self.night()
        self.assertEqual(code, 2)
        self.assertEqual(self.step(record, "store")["night_exit"], 2)
        self.assertEqual(self.step(record, "report")["night_exit"], 0)

    def test_an_exposed_machine_is_what_the_configuration_says(self):
        wanted = {"enabled": True, "active": False}
        self.configure(run={"enabled": False}, errata=wanted)
        code, record, _ = self.night()
        self.assertEqual((self.step(record, "errata")["exit"], code), (2, 0))
        self.configure(run={"enabled": False}, errata=wanted | {"exposed": "failed"})
        self.assertEqual(self.night()[0], 1)

    def test_old_nights_go_but_not_those_that_are_evidence(self):
        self.configure(retention={"nights": 2})
        evidence = self.night()[1]["id"]
        saved = self.state()
        saved.leave_out("test", "A.B", evidence, "machine lost at test A.B")
        saved.save()
        (self.state_folder / "nights" / "mine").mkdir()
        names = [self.night()[1]["id"] for _ in range(3)][1:]
        self.assertEqual({path.name for path in (self.state_folder / "nights").iterdir()}, {*names, evidence, "mine"})


class CutShort(NightTest):
    filter = "Pmu*"  # some tenths of a second, in which a loaded machine has a turn for who watches

    def test_the_lost_test_is_named_left_out_and_allowed_again(self):
        only = {"filter": "PmuRegisters.*:PebsReload.*:PebsThreshold.*"}
        self.configure(run=only, store={"enabled": True}, report={"enabled": True})
        path, text, lost = self.cut_short()
        self.assertEqual(self.state().current["status"], "running")
        self.assertIn("was cut short", self.nightly("--status").stdout)
        self.assertIn("did not end", self.nightly("--dry-run").stdout)

        code, record, left_out = self.night()
        self.assertEqual(code, 2, "a lost machine is part of the answer")
        self.assertIn(f"machine lost at test {lost}", self.said)
        self.assertEqual(path.read_bytes(), text, "what was written stays as it is")
        self.assertEqual([(one["kind"], one["name"]) for one in left_out], [("test", lost)])
        self.assertEqual(record["exit"], 0, "the new night held")
        self.assertNotIn(lost, [test["id"] for test in self.run_of(self.step(record, "run")["rows"]).tests])

        old = path.parents[1]
        derived = old / "run.recovered" / "results.jsonl"
        self.assert_valid(derived)
        run = self.run_of(derived)
        self.assertEqual(run.name, self.run_of(path).name)
        errors = [test for test in run.tests if test["status"] == "error"]
        self.assertEqual([test["id"] for test in errors], [lost])
        self.assertTrue(errors[0]["reason"].startswith(f"machine lost at test {lost}: "))
        self.assertEqual((run.end["exit"], run.end["counts"]["error"], run.open_tests), (2, 1, []))
        points = xml.etree.ElementTree.parse(old / "junit.xml").getroot()
        self.assertEqual([error.get("message", "")[:12] for error in points.findall(".//error")], ["machine lost"])
        self.assertIn("machine lost at test", (old / "report" / "report.html").read_text(encoding="utf-8"))
        asked = subprocess.run([PROGRAM, "store", "query", "tests", "--status", "error", "--store", str(self.state_folder / "skidproof.db"),
                                "--json", "-"], capture_output=True, text=True, check=True)
        self.assertIn(lost, asked.stdout)
        self.assertEqual([(sample.labels["name"], sample.value) for sample in self.metrics("skidproof_nightly_left_out")], [(lost, 1)])

        told = self.nightly("--status")
        self.assertIn(f"test {lost}", told.stdout)
        self.assertEqual(self.nightly("--allow", "No.Such").returncode, 64)
        self.assertEqual(self.nightly("--allow", lost).returncode, 0)
        self.configure(run=only)
        code, record, left_out = self.night()
        self.assertEqual((code, left_out), (0, []))
        self.assertIn(lost, [test["id"] for test in self.run_of(self.step(record, "run")["rows"]).tests])

    def test_recover_alone_runs_nothing(self):
        self.assertEqual(self.nightly("--recover").returncode, 0)
        _, _, lost = self.cut_short()
        done = self.nightly("--recover")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"machine lost at test {lost}", done.stdout)
        self.assertEqual(len(list((self.state_folder / "nights").iterdir())), 1)
        self.assertEqual(self.state().last["status"], "lost")
        again = self.nightly("--recover")
        self.assertEqual((again.returncode, again.stdout), (0, "no night was cut short\n"))

    def test_a_recovery_that_is_stopped_goes_on_at_the_next_start(self):
        _, _, lost = self.cut_short()

        def stopped(self, step):
            self.stopped = "SIGTERM"
            return -signal.SIGTERM

        with mock.patch.object(night.Night, "call", stopped):
            code, found = night.recover_only(PROGRAM, self.settings, lambda line: None)
        self.assertEqual((code, found.last, found.current["steps"][-1]["name"]), (2, None, "export"))
        self.assertEqual(self.nightly("--recover").returncode, 2)
        found = self.state()
        self.assertEqual((found.current, found.last["status"]), (None, "lost"))
        self.assertEqual([(entry["name"], entry["night_exit"]) for entry in found.last["steps"]],
                         [("run", 2), ("export", 2), ("export", 0), ("junit", 0)])
        self.assertEqual([one["test"] for one in found.last["lost"]], [lost])

    def test_another_boot_is_said_and_a_second_kill_changes_nothing(self):
        path, _, lost = self.cut_short()
        document = json.loads((self.state_folder / "state.json").read_text(encoding="utf-8"))
        document["current"]["boot_id"] = "00000000-0000-0000-0000-000000000000"
        (self.state_folder / "state.json").write_text(json.dumps(document), encoding="utf-8")
        # Killed when the lost test was saved, before anything else of the recovery.
        broken = night.Night(PROGRAM, self.settings, self.state(), 0, lambda line: None)
        with mock.patch.object(steps, "closing_steps", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            broken.recover()
        self.assertEqual(self.nightly("--recover").returncode, 2)
        found = self.state()
        self.assertEqual(found.names_left_out("test"), [lost])
        self.assertIn("the machine was started anew since", found.left_out[0]["reason"])
        self.assertIn("started anew", self.run_of(path.parents[1] / "run.recovered" / "results.jsonl").end["reason"])

    def test_a_lost_measurement_takes_its_step_with_it_after_a_boot(self):
        path, text, _ = self.cut_short()
        start = {"type": "measurement-start", "machine": "model:sandy-bridge", "microarch": "sandy-bridge", "name": "calibration.x",
                 "started": "2026-11-25T21:00:00.000Z"}
        path.write_bytes(b"".join(text.splitlines(keepends=True)[:4]) + json.dumps(start).encode() + b'\n{"type":"te')
        document = json.loads((self.state_folder / "state.json").read_text(encoding="utf-8"))
        document["current"]["boot_id"] = "00000000-0000-0000-0000-000000000000"
        (self.state_folder / "state.json").write_text(json.dumps(document), encoding="utf-8")
        code, record, left_out = self.night()
        self.assertEqual([(one["kind"], one["name"]) for one in left_out], [("step", "run")])
        self.assertEqual((code, record["exit"], self.step(record, "run")["state"]), (2, 77, "not-done"))
        derived = path.parents[1] / "run.recovered" / "results.jsonl"
        self.assert_valid(derived)
        self.assertIn("machine lost at measurement calibration.x", self.run_of(derived).unmeasured[0]["reason"])
        self.assertEqual(self.nightly("--allow", "run").returncode, 0)
        self.assertEqual(self.night()[0], 0)

    def test_rows_that_are_whole_lose_nothing(self):
        process = self.begin()
        child, path, _ = self.stop_in_a_test(process)
        process.kill()
        process.wait()
        refused = self.nightly()
        self.assertEqual(refused.returncode, 2, "the run that goes on holds the lock")
        self.assertIn("another nightly holds", refused.stderr)
        os.kill(child, signal.SIGCONT)
        self.gone(child)
        self.assertEqual(self.nightly("--recover").returncode, 2)
        found = self.state()
        self.assertEqual((found.left_out, found.last["lost"]), ([], []))
        self.assertEqual(found.last["counts"], self.run_of(path).counts())
        self.assertFalse((path.parents[1] / "run.recovered").exists())

    def test_a_run_that_is_killed_goes_on_without_the_test(self):
        process = self.begin()
        child, path, lost = self.stop_in_a_test(process)
        os.kill(child, signal.SIGKILL)
        self.assertEqual(process.wait(60), 2)
        record = self.state().last
        self.assertEqual((record["status"], record["exit"]), ("ended", 2))
        self.assertEqual(self.state().names_left_out("test"), [lost])
        derived = pathlib.Path(self.step(record, "run")["rows"])
        self.assert_valid(derived)
        run = self.run_of(derived)
        self.assertEqual([test["id"] for test in run.tests if test["status"] == "error"], [lost])
        self.assertEqual(run.end["reason"], "completed")
        self.assertGreater(len(run.tests), len(self.run_of(path).tests) + 1, "the rest ran")

    def test_one_that_is_asked_to_stop_leaves_nothing_out(self):
        self.configure(store={"enabled": True}, report={"enabled": True})
        process = self.begin()
        child, path, _ = self.stop_in_a_test(process)
        process.send_signal(signal.SIGTERM)
        os.kill(child, signal.SIGCONT)
        self.assertEqual(process.wait(60), 2)
        found = self.state()
        self.assertIsNone(found.current)
        self.assertEqual((found.left_out, found.last["words"]), ([], "stopped by SIGTERM"))
        self.assertIn("SIGTERM", self.run_of(path).end["reason"])
        self.assertEqual([(entry["name"], entry["night_exit"]) for entry in found.last["steps"]],
                         [("run", 2), ("export", 0), ("junit", 0), ("store", 0)], "what keeps results is done")


class Hangs(NightTest):
    def script(self, words):
        path = self.folder / "program"
        path.write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def test_a_command_that_heeds_no_signal_is_killed_and_its_test_is_lost(self):
        start = {"type": "test-start", "machine": "model:x", "microarch": "x", "id": "A.Hangs", "clauses": [], "seed": 1, "repetition": 0,
                 "started": "2026-11-25T21:00:00.000Z"}
        run = {"type": "run", "schema": 1, "id": "1", "started": "2026-11-25T21:00:00.000Z", "command": ["skidproof", "run"], "seed": 1,
               "version": "0", "machine": "model:x", "tape": ""}
        (self.folder / "rows").write_text(json.dumps(run) + "\n" + json.dumps(start) + "\n", encoding="utf-8")
        program = self.script(f"""trap '' TERM
case $1 in run) for a; do last=$a; done; mkdir -p "$last"; cp {self.folder}/rows "$last/results.jsonl"; while :; do sleep 0.05; done ;; esac""")
        self.configure(run={"deadline_s": 1, "resume": 0})
        with mock.patch.multiple(night, GRACE_S=0.3, SLACK_S=0), contextlib.redirect_stderr(io.StringIO()) as complaints:
            code, found = night.one_night(program, self.settings, lambda line: None)
        self.assertEqual(code, 2)
        self.assertIn("SIGKILL", complaints.getvalue())
        self.assertEqual(found.names_left_out("test"), ["A.Hangs"])
        self.assertIn("SIGKILL", found.last["lost"][0]["words"])

    def test_a_command_that_ends_without_an_end_row_blames_no_test(self):
        program = self.script("""case $1 in run) for a; do last=$a; done; mkdir -p "$last"
echo '{"type":"run","schema":1,"id":"1","started":"2026-11-25T21:00:00.000Z","machine":"model:x"}' > "$last/results.jsonl"
echo '{"type":"test-start","machine":"model:x","id":"A.B"}' >> "$last/results.jsonl"; exit 2 ;; esac""")
        code, found = night.one_night(program, self.settings, lambda line: None)
        self.assertEqual((code, found.left_out), (2, []))
        self.assertIn("rows broken off at test A.B", self.step(found.last, "run")["words"])

    def test_a_full_disk_ends_with_2(self):
        """A file system of 40 KiB: rows, logs and state do not fit."""
        mounted = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("needs a mount namespace of its own")
        self.configure(folders={"state": str(self.state_folder), "textfile": "", "free_mib": 0})
        self.state_folder.mkdir()
        command = f'mount -t tmpfs -o size=40k none "{self.state_folder}" && "{PROGRAM}" nightly --config "{self.config}"'
        done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("No space left on device", done.stdout + done.stderr)

    def test_too_little_room_begins_no_night(self):
        self.configure(folders={"state": str(self.state_folder), "free_mib": 1 << 29})
        done = self.nightly()
        self.assertEqual(done.returncode, 2)
        self.assertIn("MiB free", done.stderr)
        self.assertEqual(list((self.state_folder / "nights").iterdir()), [])


class LockAndState(NightTest):
    def test_a_second_one_says_who_holds_the_lock(self):
        self.state_folder.mkdir()
        with lock.held(self.state_folder, "2026-11-25T21:00:00Z"):
            self.assertIn(str(os.getpid()), lock.holder(self.state_folder))
            for arguments in ((), ("--recover",), ("--allow", "A.B")):
                done = self.nightly(*arguments)
                self.assertEqual(done.returncode, 2, arguments)
                self.assertIn(f"process {os.getpid()} ", done.stderr)
                self.assertIn("2026-11-25T21:00:00Z", done.stderr)
            self.assertIn(f"running: process {os.getpid()}", self.nightly("--status").stdout)
        self.assertIsNone(lock.holder(self.state_folder))
        self.assertEqual(self.night()[0], 0)

    def test_a_lock_file_of_rubbish_is_no_reason_to_fail(self):
        self.state_folder.mkdir()
        (self.state_folder / "lock").write_bytes(b"\xff{")
        with open(self.state_folder / "lock", "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            self.assertIn("not said who it is", self.nightly().stderr)

    def test_a_damaged_state_begins_no_night(self):
        self.state_folder.mkdir()
        for text in ("", "{", "[]", '{"schema":2}', '{"schema":1,"current":3,"last":null,"left_out":[]}',
                     '{"schema":1,"current":null,"last":null,"left_out":[{}]}'):
            (self.state_folder / "state.json").write_text(text, encoding="utf-8")
            done = self.nightly()
            self.assertEqual(done.returncode, 2, text)
            self.assertIn("is damaged", done.stderr)
        self.assertFalse((self.state_folder / "nights").exists())

    def test_a_dry_run_writes_nothing(self):
        done = self.nightly("--dry-run")
        self.assertEqual(done.returncode, 0)
        self.assertIn("run --machine model:sandy-bridge --filter 'PmuRegisters.*'", done.stdout)
        self.assertFalse(self.state_folder.exists())
        commands = json.loads(self.nightly("--dry-run", "--json", "-").stdout)["commands"]
        self.assertEqual([one["name"] for one in commands], ["run", "export", "junit"])
        self.assertFalse(self.state_folder.exists())

    def test_the_program_calls_itself_unless_told_otherwise(self):
        environment = {key: value for key, value in os.environ.items() if key != "SKIDPROOF"}
        for said, called in (({}, os.path.realpath(PROGRAM)), ({"SKIDPROOF": "/bin/true"}, "/bin/true")):
            done = subprocess.run([PROGRAM, "nightly", "--config", self.config, "--dry-run", "--json", "-"], env=environment | said,
                                  capture_output=True, text=True, check=True)
            self.assertEqual({one["command"][0] for one in json.loads(done.stdout)["commands"]}, {called})
        done = subprocess.run([PROGRAM, "nightly", "--config", self.config], env=environment | {"SKIDPROOF": "/no/such"}, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("$SKIDPROOF is '/no/such'", done.stderr)

    def test_a_status_without_a_night(self):
        self.assertIn("no night so far", self.nightly("--status").stdout)


class Commands(unittest.TestCase):
    def settings(self, **tables):
        return configuration.Configuration("", {"machine": {"name": "direct"}} | tables)

    def step(self, name, settings, left_out=(), run_rows=None):
        found = state.State(pathlib.Path("/s"))
        for kind, one in left_out:
            found.leave_out(kind, one, "n", "r")
        return steps.machine_step(name, "skidproof", settings, pathlib.Path("/n"), found, run_rows)

    def test_filters_leave_tests_out(self):
        self.assertEqual(steps.without("*", []), "*")
        self.assertEqual(steps.without("*", ["A.B/C.d"]), "*-A.B/C.d")
        self.assertEqual(steps.without("A*:B*-C*", ["A.1", "A.2"]), "A*:B*-C*:A.1:A.2")
        self.assertEqual(steps.without("-C*", ["A.1"]), "-C*:A.1")

    def test_the_machine_and_its_cpu(self):
        command = self.step("run", self.settings(machine={"name": "direct", "cpu": 3, "core": "P"}, run={"until": "count"})).command
        self.assertIn("--cpu 3 --core P --filter * --until count", " ".join(map(str, command)))

    def test_errata_never_run_a_reproducer_that_could_be_left_out(self):
        settings = self.settings()
        self.assertIn("--active", self.step("errata", settings).command)
        with_rows = self.step("errata", settings, [("test", "A.B")], pathlib.Path("/n/run/results.jsonl"))
        self.assertNotIn("--active", with_rows.command)
        self.assertIn("--from", with_rows.command)
        self.assertNotIn("--active", self.step("errata", settings, [("test", "A.B")]).command)

    def test_a_step_that_is_left_out_is_not_done(self):
        self.assertIsInstance(self.step("characterize", self.settings(), [("step", "characterize")]), steps.NotDone)

    def test_the_most_serious_exit(self):
        for exits, worst in (([], 0), ([0, 77], 77), ([77, 1], 1), ([1, 64], 64), ([64, 2, 0], 2), ([139], 2), ([0], 0)):
            self.assertEqual(steps.most_serious(exits), worst, exits)

    def test_evidence_of_hostile_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.jsonl"
            self.assertIsNone(recovery.examine(path).run)
            for text in (b"", b"\n\n", b"\xff\xfe\n", b'{"type":"run"', b"[" * 5000 + b"\n", b"null\n3\n"):
                path.write_bytes(text)
                self.assertIsNone(recovery.examine(path).run, text)


class Configurations(unittest.TestCase):
    def complaint(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "nightly.toml"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            with self.assertRaises(cli.Complaint) as caught:
                configuration.read(path)
        self.assertEqual(caught.exception.exit_code, 64)
        return caught.exception.message

    def test_the_file_that_comes_along_has_every_option_and_its_default(self):
        self.assertEqual(configuration.read(UNITS / "nightly.toml").tables, configuration.Configuration().tables)
        text = (UNITS / "nightly.toml").read_text(encoding="utf-8")
        written = len(re.findall(r"^\w+ = ", text, re.MULTILINE))
        self.assertEqual(written, sum(map(len, configuration.OPTIONS.values())))

    def test_the_page_has_every_option(self):
        page = (RESULTS.parent / "docs" / "nightly.md").read_text(encoding="utf-8")
        for table, options in configuration.OPTIONS.items():
            for name in options:
                self.assertIn(f"`{table}.{name}`", page)

    def test_what_is_wrong_is_named_with_its_line(self):
        for text, line, words in (
            ("[run]\nseed = 1\nfiltre = '*'\n", 3, "no option 'filtre'"),
            ("\n[rum]\nseed = 1\n", 2, "no [rum]"),
            ("[run]\nseed = '1'\n", 2, "run.seed must be a whole number"),
            ("[run]\nseed = true\n", 2, "run.seed must be a whole number"),
            ("[run]\nenabled = 1\n", 2, "run.enabled must be true or false"),
            ("[errata]\n# x\nrepeat = 0\n", 3, "errata.repeat must be from 1"),
            ("[machine]\nname = 'auto'\n", 2, "may not be auto"),
            ("[machine]\ncpu = -1\n", 2, "machine.cpu must be"),
            ("[folders]\nstate = 'here'\n", 2, "absolute path"),
            ("[run]\nuntil = 'late'\n", 2, "must be one of: read"),
            ("[run]\noptions = ['--out=/x']\n", 2, "may not have --out=/x"),
            ("[run]\noptions = [1]\n", 2, "list of strings"),
            ("[characterize]\nonly = ['clocks']\n", 2, "has 'clocks'"),
            ("run.seed = 'x'\n", 1, "run.seed must be"),
            ("run = 3\n", 1, "'run' is a table"),
        ):
            message = self.complaint(text)
            self.assertIn(f"nightly.toml:{line}: ", message, text)
            self.assertIn(words, message, text)

    def test_what_is_no_toml(self):
        self.assertIn("line 2", self.complaint("[run]\nseed = = 1\n"))
        self.assertIn("not TOML", self.complaint("[run]\nseed = 1\nseed = 2\n"))
        self.assertIn("not UTF-8", self.complaint(b"\xff\xfe"))

    def test_a_file_that_is_not_there(self):
        with self.assertRaises(cli.Complaint) as caught:
            configuration.read("/no/such/nightly.toml")
        self.assertEqual(caught.exception.exit_code, 64)


class NextNight(unittest.TestCase):
    def test_what_systemctl_says_of_the_timer(self):
        # As systemd 252 prints it.
        there = ('[{"next":1795656214307481,"left":1795656214307481,"last":1795644895772811,"passed":1795644895772811,'
                 '"unit":"skidproof-nightly.timer","activates":"skidproof-nightly.service"}]')
        self.assertEqual(status.next_of(there), ("2026-11-26T01:23:34Z", ""))
        for text in ("[]", there.replace("1795656214307481", "0"), there.replace("1795656214307481", "null")):
            self.assertEqual(status.next_of(text)[0], None)
            self.assertIn("enable --now", status.next_of(text)[1])
        for text in ("", "{", "3", "[3]", "[{}]"):
            self.assertEqual(status.next_of(text), (None, "systemctl says nothing that can be read"))


@unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
class Units(unittest.TestCase):
    """The units as systemd reads them. ExecStart is where a package puts the program; here it is the one that was built."""

    def units(self, folder):
        for path in UNITS.glob("skidproof-nightly*"):
            text = path.read_text(encoding="utf-8").replace("/usr/bin/skidproof ", f"{PROGRAM} ")
            (pathlib.Path(folder) / path.name).write_text(text, encoding="utf-8")
        return sorted(pathlib.Path(folder).iterdir())

    def test_systemd_has_nothing_to_say(self):
        with tempfile.TemporaryDirectory() as folder:
            units = self.units(folder)
            self.assertEqual(len(units), 3)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False)
            said = [line for line in (done.stdout + done.stderr).splitlines() if "skidproof" in line]
            self.assertEqual((done.returncode, said), (0, []))

    def test_they_are_exposed_no_more_than_they_must(self):
        for unit, most in (("skidproof-nightly.service", 15), ("skidproof-nightly-recover.service", 12)):
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--threshold={most}", "--no-pager", UNITS / unit],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)


if __name__ == "__main__":
    unittest.main()
