#!/usr/bin/python3
"""Runs the real program: exit codes, what goes to standard output, and rows that validate.

usage: python3 cli_test.py SKIDPROOF [unittest arguments]
"""

import csv
import fnmatch
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "pebs" / "arch" / "perfmon" / "testing"))
import published_lists  # noqa: E402

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "results" / "schema" / "v1.json"
MODEL = "model:sandy-bridge"
QUICK = "PebsReload.LoadsTheResetSlotAfterEveryRecord/*"

skidproof_program = None


class Done:
    def __init__(self, process):
        self.exit = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]


def part_option(part):
    return ("--part", part) if part else ()


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def skidproof(self, *arguments, **options):
        environment = dict(os.environ, **options.pop("environment", {}))
        return Done(
            subprocess.run(
                [skidproof_program, *arguments],
                cwd=self.folder,
                env=environment,
                capture_output="stdout" not in options,
                text=True,
                timeout=300,
                **options,
            )
        )

    def assert_refused(self, done, code, *words):
        self.assertEqual(done.exit, code, done.err)
        self.assertEqual(done.out, "")
        for word in words:
            self.assertIn(word, done.err)
        self.assertEqual(list(self.folder.iterdir()), [], "a refused command leaves nothing behind")

    def assert_rows(self, rows):
        import jsonschema

        validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
        for row in rows:
            problems = [error.message for error in validator.iter_errors(row)]
            self.assertEqual(problems, [], row)

    def assert_valid(self, rows):
        self.assert_rows(rows)
        self.assertEqual(rows[0]["type"], "run")
        self.assertEqual(rows[-1]["type"], "end")


class Usage(CliTest):
    def test_nothing_at_all_prints_the_help(self):
        done = self.skidproof()
        self.assertEqual(done.exit, 64)
        self.assertIn("characterize", done.err)

    def test_help_is_not_an_error(self):
        for verb in ([], ["run"], ["qualify"], ["fuzz"], ["list"], ["explain"], ["doctor"], ["characterize"], ["report"], ["traceability"], ["errata"], ["merge"]):
            done = self.skidproof(*verb, "--help")
            self.assertEqual(done.exit, 0, verb)
            self.assertIn("skidproof", done.out)
            self.assertEqual(done.err, "")

    def test_version(self):
        self.assertRegex(self.skidproof("--version").out, r"^skidproof \d+\.\d+\.\d+\n$")

    def test_an_unknown_verb(self):
        self.assert_refused(self.skidproof("characterise"), 64, "characterise", "did you mean characterize?")

    def test_an_unknown_flag(self):
        self.assert_refused(self.skidproof("run", "--frobnicate"), 64, "frobnicate", "skidproof run --help")

    def test_a_bad_number(self):
        self.assert_refused(self.skidproof("run", "--seed", "many"), 64, "seed")
        self.assert_refused(self.skidproof("run", "--repeat", "0"), 64, "repeat")

    def test_an_unknown_machine(self):
        self.assert_refused(self.skidproof("run", "--machine", "nativ"), 64, "'nativ'", "native")

    def test_an_unknown_microarch(self):
        done = self.skidproof("run", "--machine", "model:sandybridge")
        self.assert_refused(done, 64, "sandybridge", "sandy-bridge")

    def test_an_unknown_defect(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", "reset-nevr")
        self.assert_refused(done, 64, "reset-nevr", "reset-never")
        self.assert_refused(self.skidproof("qualify", "--defect", "reset-nevr"), 64, "reset-never")

    def test_a_defect_that_does_not_apply(self):
        done = self.skidproof("run", "--machine", "model:nehalem", "--defect", "pdir-absent")
        self.assert_refused(done, 64, "pdir-absent")

    def test_a_defect_of_silicon(self):
        self.assert_refused(self.skidproof("run", "--machine", "native", "--defect", "reset-never"), 64, "model")

    def test_a_cpu_of_a_model(self):
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--cpu", "0"), 64, "direct")
        self.assert_refused(self.skidproof("run", "--machine", "direct", "--core", "Q"), 64, "--core")

    def test_a_filter_that_matches_nothing(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", "NoSuch.*")
        self.assert_refused(done, 64, "NoSuch.*", "PebsReload")

    def test_a_googletest_filter_that_matches_nothing(self):
        done = self.skidproof("run", "--machine", MODEL, "--json", "-", "--", "--gtest_filter=NoSuch.*")
        self.assertEqual(done.exit, 64)
        self.assertEqual(done.rows()[-1]["exit"], 64)

    def test_a_flag_that_googletest_does_not_know(self):
        self.assert_refused(self.skidproof("run", "--", "--frobnicate"), 64, "--frobnicate")

    def test_only_run_passes_flags_on(self):
        self.assert_refused(self.skidproof("doctor", "--", "--gtest_shuffle"), 64, "only `run`")

    def test_an_unknown_part(self):
        self.assert_refused(self.skidproof("characterize", "--only", "latencies"), 64, "latency")

    def test_machines_to_compare(self):
        self.assert_refused(self.skidproof("characterize", "--compare", "gone.jsonl"), 64, "gone.jsonl")
        self.assert_refused(self.skidproof("characterize", "--compare", "a.jsonl", "--quick"), 64, "--compare")
        self.assert_refused(self.skidproof("characterize", "--store", "s.db"), 64, "--compare")

    def test_a_cpu_that_is_not_there(self):
        self.assert_refused(self.skidproof("characterize", "--cpu", "1000"), 64, "1000")

    def test_machines_that_cannot_be_characterized(self):
        for machine, word in (("auto", "not silicon's"), ("tape:night.tape", "tape"), ("model:sandy-bridg", "sandy-bridge"),
                              ("nativ", "native")):
            self.assert_refused(self.skidproof("characterize", "--machine", machine), 64, word)
        self.assert_refused(self.skidproof("characterize", "--defect", "skid-none"), 64, "defects are of models")
        self.assert_refused(self.skidproof("characterize", "--machine", MODEL, "--cpu", "0"), 64, "--cpu")
        self.assert_refused(self.skidproof("characterize", "--compare", "a.jsonl", "--machine", MODEL), 64, "--compare")


class Catalogue(CliTest):
    def test_every_kind_lists_and_explains(self):
        for kind in ("kernels", "clauses", "tests", "microarchs", "defects", "errata", "machines", "events"):
            listed = self.skidproof("list", kind, "--json", "-")
            self.assertEqual(listed.exit, 0, kind)
            entries = json.loads(listed.out)
            self.assertGreater(len(entries), 3, kind)
            explained = self.skidproof("explain", entries[0]["id"], "--json", "-")
            self.assertEqual(explained.exit, 0, kind)
            self.assertIn("erratum" if kind == "errata" else kind.rstrip("s"), [one["kind"] for one in json.loads(explained.out)])
            text = self.skidproof("list", kind).out
            self.assertEqual(len(text.splitlines()), len(entries), kind)

    def test_events_of_one_microarch_and_its_variants(self):
        everything = json.loads(self.skidproof("list", "events", "--json", "-").out)
        some = json.loads(self.skidproof("list", "events", "--microarch", "sandy-bridge", "--json", "-").out)
        self.assertEqual(some, [one for one in everything if one["microarch"].split(" (")[0] == "sandy-bridge"])
        self.assertEqual({one["microarch"] for one in some}, {"sandy-bridge", "sandy-bridge (Sandy Bridge-EP)"})
        loads = [one for one in some if one["event"] == "MEM_UOPS_RETIRED.ALL_LOADS"]
        self.assertEqual({(one["encoding"], one["counts_on"], one["on_the_model"]) for one in loads}, {("D0H/81H", "PMC0-3", "loads")})
        explained = self.skidproof("explain", "MEM_UOPS_RETIRED.ALL_LOADS").out
        for word in ("sandy-bridge/", "broadwell (Broadwell-DE)/", "intel/perfmon SNB V19"):
            self.assertIn(word, explained)
        self.assert_refused(self.skidproof("list", "events", "--microarch", "sandybridge"), 64, "sandy-bridge")
        self.assert_refused(self.skidproof("list", "kernels", "--microarch", "sandy-bridge"), 64, "list events")

    def test_a_clause_names_its_source_tests_and_defects(self):
        out = self.skidproof("explain", "R19").out
        for word in ("SDM", "PebsReload.", "reset-never"):
            self.assertIn(word, out)

    def test_unknown_names(self):
        self.assert_refused(self.skidproof("list", "kernel-names"), 64, "kernels")
        self.assert_refused(self.skidproof("explain", "reset-nevr"), 64, "reset-never")

    def test_json_to_a_place_that_cannot_be_written(self):
        done = self.skidproof("list", "kernels", "--json", "/dev/full")
        self.assertEqual(done.exit, 2)
        self.assertIn("/dev/full", done.err)

    def test_standard_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.skidproof("list", "tests", stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.exit, 2)
        self.assertIn("standard output", done.err)


class EventLists(CliTest):
    """Intel's lists read at run time, and rows held to them."""

    SNB = "SNB/events/sandybridge_core.json"

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.perfmon = pathlib.Path(folder.name)

    def publish(self, only=None, version="1.2", **events):
        """The imported lists in a newer version; of Sandy Bridge's, events by name with other fields, or None for none."""
        def changed(path, document):
            if only is not None and path not in only:
                return None
            document["Header"]["Version"] = version
            if path == self.SNB:
                listed = {event["EventName"]: event for event in document["Events"]}
                for name, fields in events.items():
                    name = name.replace("__", ".")
                    listed[name] = fields and {**listed.get(name, {"EventName": name}), **fields}
                document["Events"] = [event for event in listed.values() if event is not None]
            return document
        published_lists.publish(self.perfmon, changed)

    NEW = {"EventCode": "0xD7", "UMask": "0x05", "CounterMask": "0", "Counter": "0,1,2,3", "PEBS": "1"}

    def events(self, microarch="sandy-bridge"):
        done = self.skidproof("list", "events", "--microarch", microarch, "--perfmon", self.perfmon, "--json", "-")
        self.assertEqual(done.exit, 0, done.err)
        return done, {(one["microarch"], one["event"]): one for one in json.loads(done.out)}

    def machine_row(self, *arguments):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "-", *arguments)
        self.assertEqual(done.exit, 0, done.err)
        self.assert_valid(done.rows())
        return next(row for row in done.rows() if row["type"] == "machine")

    def test_a_newer_list_in_place_of_the_built_in_one(self):
        self.publish(NEW__EVENT=self.NEW, MEM_UOPS_RETIRED__LOCK_LOADS=None)
        _, events = self.events()
        self.assertEqual(events["sandy-bridge", "NEW.EVENT"]["PEBS_on"], "PMC0-3", "where the row says, as the list does not")
        self.assertEqual(events["sandy-bridge", "NEW.EVENT"]["source"], "intel/perfmon SNB V1.2")
        self.assertNotIn(("sandy-bridge", "MEM_UOPS_RETIRED.LOCK_LOADS"), events)
        self.assertIn("Intel SDM", events["sandy-bridge", "INST_RETIRED.PREC_DIST"]["source"], "the row's own still applies")
        self.assertIn("distribution is precise", events["sandy-bridge", "INST_RETIRED.PREC_DIST"]["reason"])
        self.assertEqual(events["sandy-bridge (Sandy Bridge-EP)", "UOPS_RETIRED.ALL"]["source"], "intel/perfmon JKT V1.2")

    def test_the_same_lists_give_the_same_events(self):
        published_lists.publish(self.perfmon)
        for microarch in ("nehalem", "sandy-bridge", "skylake", "granite-rapids"):
            built_in = json.loads(self.skidproof("list", "events", "--microarch", microarch, "--json", "-").out)
            done, _ = self.events(microarch)
            self.assertEqual(json.loads(done.out), built_in)

    def test_a_folder_with_one_file_beside_the_map(self):
        self.publish(only=[self.SNB], NEW__EVENT=self.NEW)
        (self.perfmon / self.SNB).rename(self.perfmon / "sandybridge_core.json")
        done, events = self.events()
        self.assertIn(("sandy-bridge", "NEW.EVENT"), events)
        self.assertEqual(events["sandy-bridge (Sandy Bridge-EP)", "UOPS_RETIRED.ALL"]["source"], "intel/perfmon JKT V24")
        self.assertIn("no list of Sandy Bridge-EP (JKT/events/Jaketown_core.json): the built-in one stands", done.err)
        self.assert_refused(self.skidproof("list", "events", "--microarch", "haswell", "--perfmon", self.perfmon), 64,
                            "haswell_core.json", "mapfile.csv")

    def test_a_run_says_which_list_it_went_by(self):
        self.publish()
        row = self.machine_row("--perfmon", self.perfmon)
        self.assertEqual((row["event_list"], row["event_list_file"]), ("intel/perfmon SNB V1.2", str(self.perfmon / self.SNB)))
        row = self.machine_row("--perfmon", self.perfmon, "--part", "06_2D_7")
        self.assertEqual(row["event_list"], "intel/perfmon JKT V1.2", "the variant's")
        row = self.machine_row()
        self.assertEqual((row["event_list"], row["event_list_file"]), ("intel/perfmon SNB V19", ""))
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--perfmon", self.perfmon)
        self.assertIn("events are those of intel/perfmon SNB V1.2, read from", done.out)

    def test_suites_go_by_it(self):
        self.publish(MEM_UOPS_RETIRED__ALL_STORES={"UMask": "0x92"})
        done = self.skidproof("run", "--machine", MODEL, "--filter", "PebsSkid.*:PebsFields.*:PmuPlacement.*", "--perfmon", self.perfmon,
                              "--json", "-")
        self.assertEqual(done.exit, 0, done.out[-2000:])
        self.assertIn("passed", self.skidproof("run", "--machine", MODEL, "--perfmon", self.perfmon, "--filter", "Pebs*").out)

    def test_a_tape_is_replayed_with_the_list_that_it_was_recorded_with(self):
        self.publish()
        run = ("--filter", QUICK, "--json", "rows.jsonl")
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--tape", "a.tape", "--perfmon", self.perfmon, *run).exit, 0)
        again = self.skidproof("run", "--machine", "tape:a.tape", "--perfmon", self.perfmon, *run)
        self.assertEqual(again.exit, 0, again.err)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([row["event_list"] for row in rows if row["type"] == "machine"], ["intel/perfmon SNB V1.2"])
        self.assertEqual(self.skidproof("run", "--machine", "tape:a.tape", *run).exit, 64)
        self.assertIn("with --perfmon", self.skidproof("run", "--machine", "tape:a.tape", *run).err)
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--tape", "b.tape", *run).exit, 0)
        self.assertIn("without --perfmon", self.skidproof("run", "--machine", "tape:b.tape", "--perfmon", self.perfmon, *run).err)

    def test_an_interrupted_run_goes_on_with_the_same_list_only(self):
        self.publish()
        run = ("run", "--machine", MODEL, "--filter", QUICK, "--perfmon", self.perfmon, "--out", "o")
        self.assertEqual(self.skidproof(*run).exit, 0)
        path = self.folder / "o" / "results.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        first = next(i for i, line in enumerate(lines) if json.loads(line)["type"] == "test")
        path.write_text("".join(lines[:first + 1]), encoding="utf-8")
        self.publish(version="1.3")
        done = self.skidproof("run", "--resume", "o")
        self.assertEqual(done.exit, 64)
        self.assertIn("its event list was intel/perfmon SNB V1.2, and is intel/perfmon SNB V1.3 now", " ".join(done.err.split()))
        self.publish()
        self.assertEqual(self.skidproof("run", "--resume", "o").exit, 0)

    def assert_list_refused(self, code, *words):
        for command in (("list", "events", "--microarch", "sandy-bridge"), ("run", "--machine", MODEL)):
            done = self.skidproof(*command, "--perfmon", self.perfmon)
            done.err = " ".join(done.err.split())  # lines are wrapped
            self.assert_refused(done, code, *words)

    def test_what_is_no_checkout(self):
        self.assert_list_refused(64, "there is no file", "mapfile.csv", "github.com/intel/perfmon")
        self.publish()
        (self.perfmon / "mapfile.csv").write_text("Filename,EventType\n")
        self.assert_list_refused(64, "mapfile.csv names no SNB/events/sandybridge_core.json", "newer skidproof")
        (self.perfmon / "mapfile.csv").write_text("nothing\n")
        self.assert_list_refused(64, "mapfile.csv: line 1")
        (self.perfmon / "mapfile.csv").unlink()
        os.mkfifo(self.perfmon / "mapfile.csv")
        self.assert_list_refused(64, "there is no file")

    def test_a_list_that_is_not_as_it_should_be_is_refused_with_file_event_and_field(self):
        file = self.perfmon / self.SNB
        self.publish(NEW__EVENT={**self.NEW, "UMask": "0x100"})
        self.assert_list_refused(64, str(file), "NEW.EVENT: UMask is '0x100': not between 0 and 255", "published")
        self.publish(NEW__EVENT={**self.NEW, "Counter": "0,9"})
        self.assert_list_refused(64, str(file), "NEW.EVENT (D7H/05H) counts on a counter that does not exist", "Sandy Bridge says otherwise")
        self.publish(LONGEST_LAT_CACHE__MISS=None)
        self.assert_list_refused(64, "the architectural event 2EH/41H")
        self.publish(version="2.x")
        self.assert_list_refused(64, "its version is '2.x'")
        for text in ("[" * 1_000_000, '{"Header": {}, "Header": {}}', '{"Events": [', "\0"):
            file.write_text(text)
            self.assert_list_refused(64, str(file))
        with open(file, "w", encoding="utf-8") as large:
            large.truncate((16 << 20) + 1)
        self.assert_list_refused(64, "more than 16 MiB")

    def test_where_there_is_no_list_to_take(self):
        self.publish()
        for microarch in ("core2", "netburst"):
            self.assert_refused(self.skidproof("run", "--machine", f"model:{microarch}", "--perfmon", self.perfmon), 64, "publishes no list")
            self.assert_refused(self.skidproof("list", "events", "--microarch", microarch, "--perfmon", self.perfmon), 64, "publishes no list")
        self.assert_refused(self.skidproof("run", "--machine", "native", "--perfmon", self.perfmon), 64, "no PMU")
        self.assert_refused(self.skidproof("list", "events", "--perfmon", self.perfmon), 64, "--microarch")
        self.assert_refused(self.skidproof("list", "kernels", "--perfmon", self.perfmon), 64, "list events")
        self.assert_refused(self.skidproof("list", "kernels", "--check"), 64, "list events")
        self.assert_refused(self.skidproof("list", "events", "--check", "--microarch", "core2"), 64, "publishes no list")

    def checked(self, *arguments):
        done = self.skidproof("list", "events", "--check", "--json", "-", *arguments)
        return done.exit, json.loads(done.out)

    def test_rows_are_held_to_their_lists(self):
        exit_code, found = self.checked()
        self.assertEqual(exit_code, 0)
        summary = found["summary"]
        self.assertEqual((summary["missing"], summary["wrong"]), (0, 0))
        self.assertEqual(summary["lists"], len(published_lists.published()))
        self.assertEqual(summary["events"], sum(len(made["Events"]) for _, made in published_lists.published().values()))
        differences = [one for each in found["lists"] for one in each["different"]]
        self.assertEqual(len(differences), summary["differences"])
        for one in differences:
            self.assertTrue(one["reason"] and one["source"] and one["in_list"] != one["in_row"], one)
        text = self.skidproof("list", "events", "--check").out
        for word in ("different INST_RETIRED.PREC_DIST C0H/01H", "why:", "Table 18-56", f"{summary['precise']} precise: 0 missing, 0 wrong"):
            self.assertIn(word, text)

    def test_a_newer_list_that_says_otherwise_is_found(self):
        self.publish(NEW__EVENT=self.NEW, MEM_UOPS_RETIRED__ALL_STORES={"TakenAlone": "1"})
        exit_code, found = self.checked("--perfmon", self.perfmon)
        self.assertEqual(exit_code, 1)
        self.assertEqual((found["summary"]["missing"], found["summary"]["wrong"]), (1, 1))
        first = next(one for one in found["lists"] if one["row"] == "Sandy Bridge")
        self.assertEqual(first["list"], "intel/perfmon SNB V1.2")
        self.assertEqual(first["missing"][0]["event"], "NEW.EVENT D7H/05H")
        self.assertIn("no other beside it", first["wrong"][0]["in_list"])
        done = self.skidproof("list", "events", "--check", "--microarch", "sandy-bridge", "--perfmon", self.perfmon)
        self.assertEqual(done.exit, 1)
        self.assertIn("missing NEW.EVENT D7H/05H", done.out)
        self.publish(only=[self.SNB])
        (self.perfmon / "JKT" / "events" / "Jaketown_core.json").unlink()
        exit_code, found = self.checked("--microarch", "sandy-bridge", "--perfmon", self.perfmon)
        self.assertEqual((exit_code, found["absent"]), (0, ["JKT/events/Jaketown_core.json"]))


class Doctor(CliTest):
    def test_it_says_what_direct_lacks_and_what_mends_it(self):
        done = self.skidproof("doctor", "--json", "-")
        self.assertEqual(done.exit, 0)
        findings = json.loads(done.out)["findings"]
        direct = [one for one in findings if one["section"] == "machines" and one["name"] == "direct"]
        self.assertTrue(direct)
        for one in direct:
            self.assertEqual(one["health"], "bad")
            self.assertTrue(one["mend"])
        self.assertIn("model:sandy-bridge", self.skidproof("doctor").out)

    def test_it_knows_when_the_report_cannot_be_drawn(self):
        # A Python that cannot find matplotlib: -S would do, but only the environment is ours.
        (self.folder / "matplotlib.py").write_text("raise ImportError('hidden by the test', name='matplotlib')\n", encoding="utf-8")
        done = self.skidproof("doctor", "--json", "-", environment={"PYTHONPATH": str(self.folder)})
        report = [one for one in json.loads(done.out)["findings"] if one["name"] == "report"]
        self.assertEqual(report[0]["health"], "bad")
        self.assertIn("python3-matplotlib", report[0]["mend"])


class DoctorOfDriver(CliTest):
    """`doctor --driver` on a copy of a computer's files: a Sandy Bridge on which nothing is wrong."""

    FILES = {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 42\nmodel name\t: Test Processor\n"
        "stepping\t: 7\nmicrocode\t: 0x28\nflags\t\t: dts pti\n",
        "cpuid.txt": "   0x00000001 0x00: eax=0x000206a7 ebx=0x00000000 ecx=0x00008004 edx=0x00200000\n"
        "   0x0000000a 0x00: eax=0x07300403 ebx=0x00000000 ecx=0x00000000 edx=0x00000603\n",
        "proc/sys/kernel/osrelease": "6.1.0-test\n",
        "proc/sys/kernel/nmi_watchdog": "0\n",
        "proc/sys/kernel/panic": "30\n",
        "proc/self/status": "CapEff:\t000001ffffffffff\n",
        "proc/modules": "",
        "proc/consoles": "ttyS0                -W- (EC    p a)    4:64\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/kernel/kexec_crash_loaded": "1\n",
        "skidproof.ko": "vermagic",
    }

    def setUp(self):
        super().setUp()
        for name, text in self.FILES.items():
            self.put(name, text)
        self.put("skidproof.ko", "\0vermagic=6.1.0-test SMP\0")

    def put(self, name, text):
        path = self.folder / "other" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def examine(self, *options):
        return self.skidproof("doctor", "--driver", "--root", "other", *options)

    def test_where_nothing_is_bad_it_is_0_and_says_what_comes_next(self):
        done = self.examine()
        self.assertEqual(done.exit, 0, done.out)
        self.assertIn("next: insmod pebs/direct/driver/skidproof.ko dry_run=1", done.out)
        self.assertIn("docs/first_night.md", done.out)
        self.assertNotIn(" bad ", done.out)
        self.assertRegex(done.out, r"(?m)^   1  good  vendor ")
        self.assertEqual(done.err, "")

    def test_whatever_is_bad_is_77_with_what_mends_it(self):
        self.put("proc/812/comm", "perf\n")
        (self.folder / "other/proc/812/fd").mkdir()
        (self.folder / "other/proc/812/fd/3").symlink_to("anon_inode:[perf_event]")
        done = self.examine("--json", "-")
        self.assertEqual(done.exit, 77)
        document = json.loads(done.out)
        findings = document["findings"]
        self.assertEqual([one["number"] for one in findings], list(range(1, len(findings) + 1)))
        bad = [one for one in findings if one["health"] == "bad"]
        self.assertEqual([one["name"] for one in bad], ["perf"])
        self.assertIn("process 812 (perf) has perf events open", bad[0]["value"])
        self.assertTrue(bad[0]["mend"])
        self.assertIn("mend what is bad", document["next"])

    def test_a_failure_stops_nothing(self):
        whole = json.loads(self.examine("--json", "-").out)["findings"]
        self.put("proc/cpuinfo", self.FILES["proc/cpuinfo"].replace("dts", "fred").replace("42", "55"))
        self.put("proc/sys/kernel/nmi_watchdog", "1\n")
        findings = json.loads(self.examine("--json", "-").out)["findings"]
        self.assertEqual([one["name"] for one in findings], [one["name"] for one in whole])
        self.assertEqual([one["name"] for one in findings if one["health"] == "bad"], ["microarch", "FRED", "NMI watchdog"])

    def test_this_computer(self):
        done = self.skidproof("doctor", "--driver", "--json", "-")
        findings = json.loads(done.out)["findings"]
        self.assertEqual(done.exit, 77 if any(one["health"] == "bad" for one in findings) else 0)
        self.assertEqual([one["name"] for one in findings if one["health"] == "bad" and not one.get("mend")], [])
        if not os.path.exists("/dev/skidproof"):
            self.assertEqual(done.err, "", "nobody is asked")

    def test_what_cannot_be(self):
        self.assertEqual(self.skidproof("doctor", "--enter").exit, 64)
        self.assertEqual(self.skidproof("doctor", "--root", "other").exit, 64)
        done = self.skidproof("doctor", "--driver", "--root", "nowhere")
        self.assertEqual(done.exit, 64)
        self.assertIn("nowhere/proc/cpuinfo", done.err)
        self.assertEqual(self.skidproof("doctor", "--driver", "--cpu", "1000").exit, 64)

    def test_plain_doctor_stays_0(self):
        self.assertEqual(self.skidproof("doctor").exit, 0)


class Run(CliTest):
    def test_json_alone_stands_on_standard_output(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "-", "--seed", "9")
        self.assertEqual(done.exit, 0, done.err)
        rows = done.rows()
        self.assert_valid(rows)
        self.assertEqual(rows[0]["seed"], 9)
        self.assertEqual(rows[1]["type"], "machine")
        self.assertEqual(rows[1]["provenance"], "model")
        self.assertTrue(all(row["machine"] == MODEL for row in rows))
        tests = [row for row in rows if row["type"] == "test"]
        self.assertTrue(tests)
        for row in tests:
            self.assertEqual(row["status"], "pass")
            self.assertGreater(row["iterations"], 0)
            self.assertGreater(row["comparisons"], 0)
            self.assertTrue(row["evidence"])
            self.assertEqual(row["stage"], "buffer")
        self.assertEqual(rows[-1]["counts"]["pass"], len(tests))
        self.assertEqual(rows[-1]["reason"], "completed")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_text_says_that_it_is_a_model(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK)
        self.assertEqual(done.exit, 0)
        self.assertIn("MODEL of Sandy Bridge, not silicon", done.out)
        self.assertNotIn("\x1b", done.out)
        files = list(self.folder.glob("skidproof-out/*/results.jsonl"))
        self.assertEqual(len(files), 1)
        self.assertIn(str(files[0].relative_to(self.folder)), done.out)
        self.assert_valid([json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()])

    def test_auto_says_how_it_chose(self):
        done = self.skidproof("run", "--filter", QUICK)
        self.assertEqual(done.exit, 0)
        self.assertIn("direct does not work here", done.out)

    def test_a_broken_model_fails_with_clause_evidence_and_seed(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", "reset-never", "--filter", QUICK, "--out", "o")
        self.assertEqual(done.exit, 1)
        for word in ("R19", "SDM", "pebs_reload.cc:", "MODEL of a broken Sandy Bridge", "again: skidproof run"):
            self.assertIn(word, done.out)
        self.assertNotIn("counted(", done.out)
        again = re.search(r"again: skidproof (.*)", done.out).group(1)
        arguments = [word.strip("'") for word in again.split()]
        self.assertEqual(self.skidproof(*arguments).exit, 1)
        rows = [json.loads(line) for line in (self.folder / "o" / "results.jsonl").read_text().splitlines()]
        self.assert_valid(rows)
        self.assertEqual(rows[0]["machine"], MODEL + "+reset-never")

    def test_repeat_counts_seeds_up(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--repeat", "3", "--json", "-")
        tests = [row for row in done.rows() if row["type"] == "test"]
        self.assertEqual({(row["repetition"], row["seed"]) for row in tests}, {(0, 1), (1, 2), (2, 3)})

    def test_the_same_seed_gives_the_same_evidence(self):
        first, second = (
            self.skidproof("run", "--machine", MODEL, "--filter", "PebsSkid.*", "--json", "-").rows()
            for _ in range(2)
        )
        evidence = [[row["evidence"] for row in rows if row["type"] == "test"] for rows in (first, second)]
        self.assertEqual(evidence[0], evidence[1])

    def test_without_a_sibling_thread(self):
        done = self.skidproof("run", "--machine", MODEL, "--no-sibling", "--filter", QUICK, "--json", "-")
        self.assertIs(done.rows()[1]["sibling_thread"], False)

    def test_googletest_flags_pass_through(self):
        done = self.skidproof(
            "run", "--machine", MODEL, "--defect", "reset-never", "--filter", QUICK, "--json", "-", "--", "--gtest_fail_fast"
        )
        self.assertEqual(done.exit, 1)
        self.assertEqual([row["status"] for row in done.rows() if row["type"] == "test"][0], "fail")

    def test_direct_is_77_with_every_reason(self):
        self.assert_refused(self.skidproof("run", "--machine", "direct"), 77, "/dev/skidproof", "mend:")
        done = self.skidproof("run", "--machine", "direct", "--json", "-")
        self.assertEqual(done.exit, 77)
        self.assert_valid(done.rows())
        self.assertEqual(done.rows()[-1]["exit"], 77)
        self.assertIn("/dev/skidproof", done.rows()[-1]["reason"])

    def test_native_has_no_pmu_to_test(self):
        done = self.skidproof("run", "--machine", "native", "--filter", "-Timing.*", "--json", "-")
        self.assertEqual(done.exit, 77)
        rows = done.rows()
        self.assert_valid(rows)
        self.assertEqual({row["skip_category"] for row in rows if row["type"] == "test"}, {"no-pmu"})

    # Beside whatever else the computer does: what cannot be told apart is skipped.
    def test_native_times_programs(self):
        done = self.skidproof("run", "--machine", "native", "--filter", "Timing.Forwards*", "--json", "-")
        self.assertIn(done.exit, (0, 77))
        rows = done.rows()
        self.assert_valid(rows)
        tests = [row for row in rows if row["type"] == "test"]
        self.assertTrue(tests)
        for row in tests:
            self.assertIn(row["status"], ("pass", "skip", "disturbed"))
            self.assertNotEqual(row.get("skip_category"), "no-pmu")


class Stages(CliTest):
    # For each stage a defect that breaks it, and nothing below it.
    BREAKERS = {
        "read": "cpuid-hides-pdcm",
        "write": "perfevtsel-loses-cmask",
        "count": "edge-not-counted",
        "one-record": "skid-taken-falls-through",
        "buffer": "reset-lowest-only",
        "interrupt": "pmi-leaves-lvt-unmasked",
        "branch-trace": "bts-from-to-swapped",
        "edges": "low-index-reloads",
    }
    # Each stage has cheaper suites than these.
    LONG = ("PebsSkid.", "PebsLoadLatency.", "PmuRetiredEvents.")

    def stages(self):
        listed = json.loads(self.skidproof("list", "tests", "--json", "-").out)
        return {one["id"]: one["stage"] for one in listed}

    def test_tests_run_from_the_ground_up(self):
        order = list(self.BREAKERS)
        done = self.skidproof("run", "--machine", MODEL, "--filter", "PmuEnum*:PmuReg*:PebsReload*:PebsEdges*:BtsP*", "--json", "-")
        stages = [order.index(row["stage"]) for row in done.rows() if row["type"] == "test"]
        self.assertEqual(stages, sorted(stages))
        self.assertEqual(stages[0], order.index("read"))

    def test_a_run_stops_where_the_ground_is_broken_and_says_why(self):
        order, stages = list(self.BREAKERS), self.stages()
        short = [name for name in stages if not name.startswith(self.LONG)]
        for turn, (stage, defect) in enumerate(self.BREAKERS.items()):
            with self.subTest(stage=stage, defect=defect):
                # All of the stage, and of the others an eighth.
                asked = [name for at, name in enumerate(short) if stages[name] == stage or at % len(order) == turn]
                done = self.skidproof("run", "--machine", MODEL, "--defect", defect,
                                      "--filter", ":".join(asked).replace("-", "?"), "--json", "-")
                self.assertEqual(done.exit, 1, done.err)
                rows = done.rows()
                self.assert_valid(rows)
                tests = [row for row in rows if row["type"] == "test"]
                failed = [row for row in tests if row["status"] in ("fail", "error")]
                self.assertEqual({row["stage"] for row in failed}, {stage})
                self.assertEqual(len(tests), len(asked))
                above = [row for row in tests if order.index(row["stage"]) > order.index(stage)]
                self.assertEqual({row["skip_category"] for row in above}, {"ground-broken"} if above else set())
                for row in above:
                    self.assertIn(f"stage `{stage}` did not hold: {failed[0]['id']} failed", row["reason"])
                    self.assertEqual(row["iterations"], 0)
                self.assertEqual(rows[-1]["exit"], 1)

    def measured(self, rows):
        return {row["name"].removeprefix("calibration.") for row in rows if row["type"] == "measurement"}

    def test_until_ends_with_a_stage(self):
        order = list(self.BREAKERS)
        quick = "PmuEnum*:PmuReg*:PmuRdpmc*:PebsReload*:PebsThreshold*"
        for stage, measured in (("read", set()), ("write", set()), ("count", {"edge-instructions", "edge-cycles"})):
            with self.subTest(stage=stage):
                done = self.skidproof("run", "--machine", MODEL, "--filter", quick, "--until", stage, "--json", "-")
                self.assertEqual(done.exit, 0, done.err)
                rows = done.rows()
                self.assert_valid(rows)
                ran = {row["stage"] for row in rows if row["type"] == "test"}
                self.assertEqual(ran, set(order[: order.index(stage) + 1]))
                self.assertEqual(self.measured(rows), measured, "what stands on a later stage is not even measured")
        done = self.skidproof("run", "--machine", MODEL, "--filter", "PebsReload*", "--until", "read")
        self.assert_refused(done, 64, "up to the stage `read`")
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--until", "reed"), 64, "one-record")

    def test_what_is_measured_waits_for_its_stage(self):
        order = list(self.BREAKERS)
        stands_on = {"edge-instructions": "count", "edge-cycles": "count", "pmi-lateness": "interrupt"}
        rows = self.skidproof("run", "--machine", MODEL, "--filter", "PmuEnum*:PmuRdpmc*:PebsReload*:PebsThreshold*", "--json", "-").rows()
        stage_of = {row["id"]: row["stage"] for row in rows if row["type"] == "test"}
        self.assertGreaterEqual(len(self.measured(rows)), 6)
        reached = None
        for index, row in enumerate(rows):
            if row["type"] == "test-start":
                reached = order.index(stage_of[row["id"]])
            if row["type"] == "measurement":
                stage = stands_on.get(row["name"].removeprefix("calibration."), "one-record")
                following = next(later for later in rows[index:] if later["type"] == "test-start")
                self.assertGreaterEqual(order.index(stage_of[following["id"]]), order.index(stage))
                self.assertLess(reached, order.index(stage), "it is there before the first test of its stage")
                self.assertNotEqual(rows[index - 1]["type"], "test-start", "it is no test's")

    def test_on_broken_ground_nothing_is_measured(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", self.BREAKERS["read"], "--filter", "PmuEnumeration.*:" + QUICK, "--json", "-")
        self.assertEqual(done.exit, 1)
        self.assertEqual(self.measured(done.rows()), set())

    def test_all_goes_on(self):
        arguments = ("run", "--machine", MODEL, "--defect", self.BREAKERS["read"], "--filter", "PmuEnumeration.*:" + QUICK)
        text = self.skidproof(*arguments)
        self.assertIn("ground-broken", text.out)
        self.assertIn("--all goes on", " ".join(text.out.split()))
        rows = self.skidproof(*arguments, "--all", "--json", "-").rows()
        statuses = {row["status"] for row in rows if row["type"] == "test" and row["id"].startswith("PebsReload")}
        self.assertEqual(statuses, {"pass"})


MOST_OWN_TESTS = 8
MOST_CONTROLS = 40


class Errata(CliTest):
    """An erratum that a defect expresses: explained where it is listed, a failure where it is not.

    The qualification plays every one on every part; here each eighteenth is looked at row by row, or all of them with
    SKIDPROOF_EVERY_ERRATUM=1."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([skidproof_program, "list", "errata", "--json", "-"], capture_output=True, text=True, check=True)
        cls.catalogue = {one["id"]: one for one in json.loads(done.stdout)}
        cls.errata = {name: one for name, one in cls.catalogue.items() if "tests" in one}
        cls.defects = {}
        done = subprocess.run([skidproof_program, "list", "defects", "--json", "-"], capture_output=True, text=True, check=True)
        for defect in json.loads(done.stdout):
            if re.fullmatch(r"[A-Z]{1,3}[0-9]+", defect["id"]):
                cls.defects[defect["id"]] = defect["microarchs"].split(", ")
        cls.some = sorted(cls.defects)[:: 1 if os.environ.get("SKIDPROOF_EVERY_ERRATUM") else 18]

    def run_on(self, erratum, microarch, *options):
        tests = [self.errata[erratum][field] for field in ("tests", "consequences") if field in self.errata[erratum]]
        done = self.skidproof("run", "--machine", f"model:{microarch}", "--filter", ":".join(tests), "--json", "-", *options)
        rows = done.rows()
        self.assert_valid(rows)
        return done.exit, [row for row in rows if row["type"] == "test"]

    # No document says whether they have it: they are neither excused nor accused.
    OF_AN_AFFECTED_CORE = {"BJ103": ("06_2D",)}

    def plays(self, erratum):
        """(microarch, an affected part, one that is not): the first of the defect's rows with such parts."""
        parts = self.errata[erratum]["parts"]
        for microarch in self.defects[erratum]:
            own = json.loads(self.skidproof("explain", microarch, "--json", "-").out)[0]["parts"]
            own = own if isinstance(own, list) else [own]
            parts = parts if isinstance(parts, list) else [parts]
            affected = [one for part in own for one in parts if one[:5] == part[:5]]
            if affected:
                silent = self.OF_AN_AFFECTED_CORE.get(erratum, ())
                models = {part[:5] for part in parts}
                return microarch, affected[0], [part for part in own if part[:5] not in models and part not in silent]
        self.fail(f"{erratum} is listed for no part of the rows that its defect applies to")

    def test_every_entry_has_a_reproducer_or_says_why_not(self):
        self.assertGreater(len(self.catalogue), 150)
        for erratum, entry in self.catalogue.items():
            self.assertNotEqual("tests" in entry, "no_reproducer" in entry, erratum)
            self.assertTrue(entry["sources"], erratum)

    def test_an_entry_answers_to_each_of_its_ids(self):
        for alias in ("BJ103", "BK102", "HSD11", "BDM11"):
            self.assertEqual(json.loads(self.skidproof("explain", alias, "--json", "-").out)[0]["id"], "BJ103")

    def test_every_defect_that_is_an_erratum_is_listed(self):
        self.assertGreater(len(self.defects), 30)
        self.assertEqual(sorted(self.defects), sorted(self.errata))

    def test_every_pattern_is_of_a_test_that_there_is(self):
        names = [one["id"] for one in json.loads(self.skidproof("list", "tests", "--json", "-").out)]
        for erratum, entry in self.errata.items():
            found = {}
            for field in ("tests", "controls", "consequences"):
                found[field] = set()
                for pattern in entry.get(field, entry["tests"]).split(":"):
                    matching = fnmatch.filter(names, pattern)
                    self.assertTrue(matching, f"{erratum}: {pattern}")
                    found[field].update(matching)
            self.assertFalse(found["tests"] & found["controls"], f"{erratum}: what it spoils does not hold in spite of it")
            self.assertLessEqual(len(found["tests"]), MOST_OWN_TESTS, f"{erratum}: few and narrow")
            self.assertLessEqual(len(found["controls"]), MOST_CONTROLS, f"{erratum}: asked where something failed")

    def test_a_listed_erratum_explains_its_failure_and_no_other_part_is_excused(self):
        everywhere = []
        for erratum in self.some:
            microarch, affected, others = self.plays(erratum)
            with self.subTest(erratum=erratum, microarch=microarch):
                outcomes = []
                for sibling in ("--sibling", "--no-sibling"):
                    code, tests = self.run_on(erratum, microarch, "--part", affected, "--defect", erratum, sibling, "--all")
                    self.assertNotEqual(code, 1, [row["id"] for row in tests if row["status"] == "fail"])
                    self.assertEqual({row["status"] for row in tests} & {"fail", "error"}, set())
                    outcomes += [row for row in tests if row["status"] == "xfail"]
                self.assertTrue(outcomes)
                self.assertTrue(any(erratum in row["reason"] for row in outcomes))
                for row in outcomes:
                    self.assertGreaterEqual(row["repetitions"]["k"], 2)
                    self.assertTrue(row["failures"])

                where, part = (microarch, others[0]) if others else self.elsewhere(erratum)
                if where is None:
                    everywhere.append(erratum)  # every part that can have it is listed
                    continue
                codes = [self.run_on(erratum, where, *part_option(part), "--defect", erratum, sibling, "--all")[0]
                         for sibling in ("--sibling", "--no-sibling")]
                self.assertIn(1, codes, f"{erratum} on {where} {part}")
        self.assertLess(len(everywhere), 4)

    def elsewhere(self, erratum):
        """Another row that the defect applies to, none of whose parts the erratum is listed for."""
        for microarch in self.defects[erratum]:
            own = json.loads(self.skidproof("explain", microarch, "--json", "-").out)[0]["parts"]
            own = own if isinstance(own, list) else [own]
            parts = self.errata[erratum]["parts"]
            if not {part[:5] for part in own} & {part[:5] for part in ([parts] if isinstance(parts, str) else parts)}:
                return microarch, None
        return None, None

    def test_a_conforming_part_with_a_listed_erratum_is_xpass(self):
        for erratum in self.some:
            microarch, affected, _ = self.plays(erratum)
            with self.subTest(erratum=erratum, microarch=microarch):
                found = []
                for sibling in ("--sibling", "--no-sibling"):
                    code, tests = self.run_on(erratum, microarch, "--part", affected, sibling)
                    self.assertIn(code, (0, 77))
                    self.assertEqual({row["status"] for row in tests} - {"xpass", "pass", "skip", "observed"}, set())
                    found += [row for row in tests if row["status"] == "xpass"]
                self.assertTrue(found)
                self.assertIn("did not show", found[0]["reason"])
                self.assertTrue(found[0]["evidence"])

    def test_another_violation_is_not_excused_by_what_an_erratum_might_drag_along(self):
        # BJ58 may drag small periods along. It does not show here, so what fails there is another violation.
        code, tests = self.run_on("BJ58", "sandy-bridge", "--defect", "reset-off-by-one", "--all")
        self.assertEqual(code, 1)
        self.assertIn("fail", {row["status"] for row in tests})

    def test_a_microcode_that_mends_it_ends_the_excuse(self):
        arguments = ("haswell", "--part", "06_3C_3", "--defect", "HSD159", "--all")
        for microcode, code in (("0x1e", 0), ("0x1f", 1), ("0", 0)):
            exit_code, tests = self.run_on("HSD159", *arguments, "--microcode", microcode)
            self.assertEqual(exit_code, code, microcode)
            reasons = " ".join(row["reason"] for row in tests if row["status"] == "xfail")
            self.assertEqual("cannot be read" in reasons, microcode == "0")

    def test_without_errata_a_failure_is_one(self):
        code, tests = self.run_on("BJ103", "sandy-bridge", "--defect", "BJ103", "--no-errata", "--all")
        self.assertEqual(code, 1)
        self.assertNotIn("xfail", {row["status"] for row in tests})

    def test_text_names_the_erratum(self):
        done = self.skidproof("run", "--machine", MODEL, "--defect", "BJ103", "--filter", self.errata["BJ103"]["tests"], "--all")
        self.assertEqual(done.exit, 0, done.out)
        self.assertIn("BJ103 is listed for 06_2A_7", done.out)
        self.assertIn("failed as an erratum says", done.out)

    def test_a_defect_that_an_erratum_explains_counts_as_caught(self):
        done = self.skidproof("qualify", "--microarch", "sandy-bridge", "--defect", "BJ103", "--seeds", "1", "--out", "o")
        self.assertEqual(done.exit, 0, done.out + done.err)
        self.assertIn("xfail", done.out)
        self.assertIn("a listed erratum explains", done.out)
        matrix = json.loads((self.folder / "o" / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual(matrix["defects"][0]["explained"], matrix["defects"][0]["caught_by"])

    def test_parts_and_microcodes_that_cannot_be(self):
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--part", "06_55_4"), 64, "06_55_4", "06_2A, 06_2D")
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--part", "sandy"), 64, "'sandy' is no part", "06_2A_7")
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--microcode", "new"), 64, "'new' is no microcode")
        self.assert_refused(self.skidproof("run", "--machine", "native", "--part", "06_2A_7"), 64, "model")

    def test_the_part_stands_in_the_machine_row(self):
        done = self.skidproof("run", "--machine", MODEL, "--part", "06_2D_6", "--microcode", "0x618", "--filter", QUICK, "--json", "-")
        machine = done.rows()[1]
        self.assertEqual((machine["family"], machine["model"], machine["stepping"], machine["microcode"]), (6, 0x2D, 6, "0x618"))


class ErrataVerb(CliTest):
    """The errata check: what is listed, what shows, and how others read it."""

    def ask(self, *arguments):
        """(exit code, the erratum rows by id) of one machine; the rows fit the schema."""
        done = self.skidproof("errata", "--json", "-", *arguments)
        rows = done.rows()
        self.assert_valid(rows)
        self.assertEqual(rows[-1]["exit"], done.exit)
        return done.exit, {row["id"]: row for row in rows if row["type"] == "erratum"}

    def write(self, name, text):
        folder = tempfile.TemporaryDirectory()  # beside the one that a refused command leaves empty
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def test_this_computer_is_judged_without_a_driver(self):
        code, rows = self.ask()
        self.assertGreater(len(rows), 150)
        self.assertEqual({row["observed"] for row in rows.values()}, {"not-run"})
        machine = [row for row in self.skidproof("errata", "--json", "-").rows() if row["type"] == "machine"][0]
        if machine["hypervisor"] or machine["vendor"] != "GenuineIntel":
            self.assertEqual(code, 3)
            self.assertEqual({row["listed"] for row in rows.values()}, {"unknown"})
        text = self.skidproof("errata")
        self.assertEqual(text.exit, code)
        self.assertIn("What Linux says", text.out)

    def test_a_broken_model_is_listed_and_reproduced_and_a_conforming_one_excludes_a_rate(self):
        for erratum, microarch in (("HSD143", "haswell"), ("BJ103", "sandy-bridge"), ("AR64", "core2")):
            machine = ("--machine", f"model:{microarch}", "--active", "--id", erratum)
            code, rows = self.ask(*machine, "--defect", erratum, "--repeat", "3")
            row = rows[erratum]
            self.assertEqual((code, row["listed"], row["observed"], row["exposure"]), (2, "affected", "reproduced", "exposed"))
            self.assertFalse(row["contradiction"])
            code, rows = self.ask(*machine, "--repeat", "20")
            self.assertEqual(rows[erratum]["observed"], "not-reproduced", rows[erratum])
            self.assertGreaterEqual(rows[erratum]["tries"], 20)
            self.assertLess(rows[erratum]["excluded_rate"], 0.14)

    def test_an_alias_names_the_same_erratum(self):
        self.assertEqual(list(self.ask("--machine", MODEL, "--id", "HSD11", "--id", "BK102")[1]), ["BJ103"])

    def test_a_microcode_past_the_fix_mends_it_and_what_shows_all_the_same_is_a_contradiction(self):
        machine = ("--machine", "model:haswell", "--part", "06_3C_3", "--id", "HSD159", "--active", "--repeat", "2")
        for microcode, listed in (("0x1e", "affected"), ("0x1f", "fixed-by-microcode"), ("0", "unknown")):
            code, rows = self.ask(*machine, "--microcode", microcode)
            self.assertEqual(rows["HSD159"]["listed"], listed)
            self.assertEqual(code, {"affected": 2, "fixed-by-microcode": 0, "unknown": 3}[listed])
            self.assertEqual(rows["HSD159"]["fixed_from"], "0x1f")
        code, rows = self.ask(*machine, "--microcode", "0x1f", "--defect", "HSD159")
        self.assertEqual((code, rows["HSD159"]["observed"], rows["HSD159"]["contradiction"]), (2, "reproduced", True))
        done = self.skidproof("errata", *machine, "--microcode", "0x1f", "--defect", "HSD159", "--out", "o")
        self.assertIn("CONTRADICTION", done.out)
        self.assertIn("MODEL", done.out)

    def test_rows_of_a_run_give_the_same_verdicts(self):
        done = self.skidproof("list", "errata", "--json", "-")
        of = {one["id"]: [one[field] for field in ("tests", "controls", "consequences") if field in one] for one in json.loads(done.out)}
        asked = ["BJ58", *sorted(name for name, patterns in of.items() if patterns)[::4]]
        ids = [word for name in asked for word in ("--id", name)]
        tests = ":".join(pattern for name in asked for pattern in of[name])
        for defect in ((), ("--defect", "BJ58")):
            run = self.skidproof("run", "--machine", MODEL, "--seed", "5", "--filter", tests, "--json", "rows.jsonl", *defect)
            self.assertIn(run.exit, (0, 1))
            _, from_rows = self.ask("--from", "rows.jsonl", *ids)
            _, active = self.ask("--machine", MODEL, "--active", "--repeat", "1", "--seed", "5", *ids, *defect)
            self.assertEqual(set(from_rows), set(asked))
            self.assertEqual({name: row["observed"] for name, row in from_rows.items()},
                             {name: row["observed"] for name, row in active.items()})
            self.assertEqual({name: row["listed"] for name, row in from_rows.items()},
                             {name: row["listed"] for name, row in active.items()})
            self.assertEqual(from_rows["BJ58"]["observed"], "reproduced" if defect else "not-reproduced")

    def test_two_hosts_that_call_their_machine_alike_are_told_apart(self):
        paths = []
        for host, defect in (("a", ("--defect", "BJ103")), ("b", ())):
            run = self.skidproof("run", "--machine", MODEL, "--filter", "PebsPeriods.*:PebsPdir.*", "--all", "--json", "-", *defect)
            rows = run.rows()
            for row in rows:
                row["machine"] = "direct"
                if row["type"] == "machine":
                    row |= {"name": "direct", "host": host}
            paths.append(self.write(host, "".join(json.dumps(row) + "\n" for row in rows)))
        done = self.skidproof("errata", "--id", "BJ103", "--from", *paths, "--json", "-")
        verdicts = [row["observed"] for row in done.rows() if row["type"] == "erratum"]
        self.assertEqual(sorted(verdicts), ["not-reproduced", "reproduced"])

    def test_an_inventory_is_judged_line_by_line_and_summed_up(self):
        path = self.write("inventory.jsonl", """{"host":"a","vendor":"GenuineIntel","family":6,"model":60,"stepping":3,"microcode":"0x1e","smt":"on"}
{"host":"b","vendor":"GenuineIntel","family":6,"model":60,"stepping":3,"microcode":"0x1f","smt":"off"}
not a machine
{"host":"b","vendor":"GenuineIntel","family":6,"model":60,"stepping":3,"microcode":"0x1e","smt":"off"}
{"host":"c\\u001b[31m","vendor":"AuthenticAMD","family":25,"model":1,"stepping":0}
""")
        done = self.skidproof("errata", "--inventory", path, "--json", "-")
        self.assertEqual(done.exit, 2)
        rows = done.rows()
        self.assert_rows(rows)
        machines = [row for row in rows if row["type"] == "inventory"]
        self.assertEqual([(row["line"], row["verdict"]) for row in machines], [(1, 2), (2, 2), (4, 2), (5, 3)])
        self.assertIn("HSD159", machines[0]["exposed"])
        self.assertIn("HSD143", machines[0]["exposed"])
        self.assertIn("HSD159", machines[1]["fixed"])
        self.assertIn("HSD143", machines[1]["in_place"])
        self.assertIn("line 3", done.err)
        self.assertIn("b: 0x1f, then 0x1e in line 4", done.err)
        sums = {row["microcode"]: row for row in rows if row["type"] == "errata-summary" and row["id"] == "HSD159"}
        self.assertEqual((sums["0x1e"]["exposed"], sums["0x1f"]["fixed"]), (2, 1))
        text = self.skidproof("errata", "--inventory", path, "-v")
        self.assertIn("4 machines", text.out)
        self.assertNotIn("\u001b[31m", text.out)
        table = list(csv.DictReader(io.StringIO(self.skidproof("errata", "--inventory", path, "--batch", "csv").out)))
        self.assertEqual([row["verdict"] for row in table], ["2", "2", "2", "3"])

    def test_other_programs_read_it(self):
        from prometheus_client.parser import text_string_to_metric_families

        machine = ("--machine", "model:haswell")
        line = self.skidproof("errata", *machine, "--batch", "nrpe")
        self.assertEqual(line.exit, 2)
        self.assertRegex(line.out, r"\AERRATA CRITICAL - [^|\n]+ \|( [a-z_]+=[0-9]+)+\n\Z")
        table = list(csv.DictReader(io.StringIO(self.skidproof("errata", *machine, "--batch", "csv").out)))
        self.assertGreater(len(table), 150)
        self.assertEqual({row["listed"] for row in table} - {"affected", "not-affected", "unknown", "fixed-by-microcode"}, set())
        text = self.skidproof("errata", *machine, "--batch", "prometheus").out
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
        self.assertEqual(found["skidproof_errata_verdict"][0].value, 2)
        self.assertIn(("HSD143", "affected"), {(s.labels["erratum"], s.labels["verdict"]) for s in found["skidproof_erratum_listed"]})
        self.assertEqual(sum(s.value for s in found["skidproof_errata"]), len(table))

    def test_a_catalogue_that_is_wrong_is_refused_with_file_entry_and_field(self):
        entry = {"id": "ZZ1", "aliases": ["ZZ2"], "title": "t", "symptom": None, "workaround": {"kind": "none"}, "concerns": ["pmu"],
                 "needs": [], "affected": [{"models": ["06_2A"], "by": "report"}], "clauses": [], "sources": ["s"], "no_reproducer": "n"}
        documents = [{"prefix": "ZZ", "title": "d", "models": ["06_2A"], "read": "some"}]
        good = {"documents": documents, "errata": [entry]}
        path = self.write("own.json", json.dumps(good))
        code, rows = self.ask("--machine", MODEL, "--catalogue", path)
        self.assertEqual((code, list(rows)), (2, ["ZZ1"]))
        for wrong, words in (({"titel": "t"}, "titel"), ({"clauses": ["R999"]}, "R999"), ({"aliases": ["ZZ1"]}, "ZZ1")):
            path = self.write("own.json", json.dumps({"documents": documents, "errata": [entry | wrong]}))
            self.assert_refused(self.skidproof("errata", "--catalogue", path), 64, "own.json", "ZZ1", words)
        self.assert_refused(self.skidproof("errata", "--catalogue", "nowhere.json"), 3, "nowhere.json")

    def test_bad_usage(self):
        self.assert_refused(self.skidproof("errata", "--id", "HSD14"), 64, "HSD14", "HSD143")
        self.assert_refused(self.skidproof("errata", "--batch", "xml"), 64, "xml")
        self.assert_refused(self.skidproof("errata", "--inventory", "nowhere"), 64, "nowhere")
        self.assert_refused(self.skidproof("errata", "--inventory", self.write("empty", "")), 64, "no machine")
        self.assert_refused(self.skidproof("errata", "--inventory", self.write("bad", "a;b\n")), 64, "line 1")
        self.assert_refused(self.skidproof("errata", "--from", self.write("rows", "")), 64, "machine")
        self.assert_refused(self.skidproof("errata", "--from", "nowhere"), 3, "nowhere")
        self.assert_refused(self.skidproof("errata", "--machine", "model:pentium"), 64, "pentium")


class Resume(CliTest):
    FILTER = "PmuEnumeration.*:PebsReload.*"

    def setUp(self):
        super().setUp()
        done = self.skidproof("run", "--machine", MODEL, "--filter", self.FILTER, "--seed", "3", "--out", "o")
        self.assertEqual(done.exit, 0, done.out)
        self.path = self.folder / "o" / "results.jsonl"
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)

    def rows(self):
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def cut_behind(self, kind, number, torn=""):
        """Leaves what was on the disk behind the number-th row of this type."""
        places = [i for i, line in enumerate(self.whole) if json.loads(line)["type"] == kind]
        self.path.write_text("".join(self.whole[: places[number - 1] + 1]) + torn, encoding="utf-8")
        return json.loads(self.whole[places[number - 1]])

    def by_id(self, rows):
        return {row["id"]: row for row in rows if row["type"] == "test"}

    def assert_resumed(self, done, code):
        self.assertEqual(done.exit, code, done.out + done.err)
        rows = self.rows()
        self.assert_valid(rows)
        self.assertEqual([row["type"] for row in rows].count("run"), 1)
        self.assertEqual(len([row for row in rows if row["type"] == "test"]), len(self.by_id(rows)), "no test twice")
        whole = self.by_id(map(json.loads, self.whole))
        self.assertEqual(set(self.by_id(rows)), set(whole))
        self.assertEqual(rows[-1]["exit"], code)
        self.assertEqual(sum(rows[-1]["counts"].values()), len(whole))
        return rows, whole

    def test_the_lost_test_is_named_and_the_rest_runs(self):
        lost = self.cut_behind("test-start", 5)["id"]
        done = self.skidproof("run", "--resume", "o")
        rows, whole = self.assert_resumed(done, 2)
        self.assertIn("machine lost", done.out)
        tests = self.by_id(rows)
        self.assertEqual(tests[lost]["status"], "error")
        self.assertTrue(tests[lost]["reason"].startswith("machine lost: "))
        self.assertEqual(tests[lost]["stage"], whole[lost]["stage"])
        for name, row in whole.items():
            if name != lost:
                self.assertEqual(tests[name]["status"], row["status"], name)
                self.assertEqual(tests[name]["evidence"], row["evidence"], "the same seed")

    def test_a_lost_machine_breaks_no_ground(self):
        self.cut_behind("test-start", 1)
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "o"), 2)
        self.assertNotIn("ground-broken", {row["skip_category"] for row in rows if row["type"] == "test"})

    def test_a_lost_measurement_is_named_and_not_tried_again(self):
        lost = self.cut_behind("measurement-start", 3)["name"]
        done = self.skidproof("run", "--resume", "o")
        self.assertIn("machine lost in " + lost, " ".join(done.out.split()))
        rows, whole = self.assert_resumed(done, 2)
        self.assertEqual([row["name"] for row in rows if row["type"] == "unmeasured"], [lost])
        self.assertEqual([row["name"] for row in rows if row["type"] == "measurement-start"].count(lost), 1)
        self.assertIn(lost, rows[-1]["reason"])
        tests = self.by_id(rows)
        for name, row in whole.items():
            if tests[name]["status"] != row["status"]:
                self.assertEqual((tests[name]["status"], tests[name]["skip_category"]), ("skip", "machine-limit"), name)
                self.assertIn(lost, tests[name]["reason"])
        # Nor when the machine is lost once more.
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        another = self.cut_behind("test-start", len(self.by_id(rows)) - 1)["id"]
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "o"), 2)
        self.assertEqual([row["name"] for row in rows if row["type"] == "measurement-start"].count(lost), 1)
        self.assertEqual(self.by_id(rows)[another]["status"], "error")

    def test_what_needs_a_lost_measurement_is_not_judged(self):
        self.FILTER = "PmuCounters.*:PmuEvents.*"
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", self.FILTER, "--out", "e").exit, 0)
        self.path = self.folder / "e" / "results.jsonl"
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        self.assertEqual(self.cut_behind("measurement-start", 1)["name"], "calibration.edge-instructions")
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "e"), 2)
        without = [row for row in rows if row["type"] == "test" and row["skip_category"] == "machine-limit"]
        self.assertTrue([row for row in without if "machine lost" in row["reason"]])

    def test_between_two_tests_nothing_is_lost(self):
        self.cut_behind("test", 4)
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "o"), 0)
        self.assertNotIn("error", {row["status"] for row in rows if row["type"] == "test"})

    def test_after_the_last_test_the_end_is_written(self):
        self.path.write_text("".join(self.whole[:-1]), encoding="utf-8")
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "o"), 0)
        self.assertEqual(rows[-1]["reason"], "completed")

    def test_a_torn_last_line_is_cut_off(self):
        self.cut_behind("test", 4, torn='{"type":"test-start","machine":"mod')
        done = self.skidproof("run", "--resume", "o")
        self.assert_resumed(done, 0)
        self.assertIn("last line broke off and was cut off", done.out)

    def test_twice(self):
        first = self.cut_behind("test-start", 2)["id"]
        self.assertEqual(self.skidproof("run", "--resume", "o").exit, 2)
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        second = self.cut_behind("test-start", 6)["id"]
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "o"), 2)
        lost = {row["id"] for row in rows if row.get("reason", "").startswith("machine lost")}
        self.assertEqual(lost, {first, second})

    def test_what_failed_before_counts_still(self):
        options = ("--machine", MODEL, "--defect", "reset-never", "--no-errata", "--filter", self.FILTER + ":PebsThreshold.*", "--out", "b")
        self.assertEqual(self.skidproof("run", *options).exit, 1)
        self.path = self.folder / "b" / "results.jsonl"
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        failed = [json.loads(line)["status"] for line in self.whole if json.loads(line)["type"] == "test"].index("fail")
        self.cut_behind("test", failed + 1)
        rows, _ = self.assert_resumed(self.skidproof("run", "--resume", "b"), 1)
        threshold = {row["skip_category"] for row in rows if row["type"] == "test" and row["id"].startswith("PebsThreshold")}
        self.assertEqual(threshold, {"ground-broken"}, "what failed before the resumption is broken ground")

    def test_repetitions_go_on_where_they_were(self):
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--repeat", "3", "--out", "r").exit, 0)
        self.path = self.folder / "r" / "results.jsonl"
        self.whole = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        tests = len([line for line in self.whole if json.loads(line)["type"] == "test"])
        self.cut_behind("test", tests // 2)
        self.assertEqual(self.skidproof("run", "--resume", "r").exit, 0)
        key = lambda row: (row["repetition"], row["id"], row["seed"], row["status"])  # noqa: E731
        before = [key(row) for row in map(json.loads, self.whole) if row["type"] == "test"]
        self.assertEqual([key(row) for row in self.rows() if row["type"] == "test"], before)

    def test_a_killed_run_goes_on(self):
        process = subprocess.Popen(
            [skidproof_program, "run", "--machine", MODEL, "--filter", "Pebs*", "--out", "k"],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.path = self.folder / "k" / "results.jsonl"
        for _ in range(2000):
            if self.path.exists() and self.path.read_text(encoding="utf-8").count('"type":"test"') >= 3:
                break
            time.sleep(0.005)
        process.kill()
        process.wait(timeout=30)
        # Of the last row the kill may have left a part.
        rows = [line for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        self.assertNotEqual(json.loads(rows[-1])["type"], "end")
        done = self.skidproof("run", "--resume", "k")
        self.assertIn(done.exit, (0, 2), done.err)
        self.assert_valid(self.rows())
        tests = [row["id"] for row in self.rows() if row["type"] == "test"]
        listed = [one["id"] for one in json.loads(self.skidproof("list", "tests", "--json", "-").out)]
        self.assertEqual(sorted(tests), sorted(name for name in listed if name.startswith("Pebs")))

    def assert_left_alone(self, done, *words):
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else None
        self.assertEqual(done.exit, 64, done.err)
        for word in words:
            self.assertIn(word, done.err)
        self.assertEqual(text, self.path.read_text(encoding="utf-8") if self.path.exists() else None)

    def test_what_cannot_be_resumed(self):
        self.assert_left_alone(self.skidproof("run", "--resume", "o"), "has ended: completed", "start a new one")
        self.assertEqual(self.path.read_text(encoding="utf-8"), "".join(self.whole))
        (self.folder / "empty").mkdir()
        self.assert_left_alone(self.skidproof("run", "--resume", "empty"), "no results.jsonl in 'empty'")
        self.assert_left_alone(self.skidproof("run", "--resume", "nowhere"), "no results.jsonl in 'nowhere'")
        self.path.write_text("".join(self.whole[1:4]), encoding="utf-8")
        self.assert_left_alone(self.skidproof("run", "--resume", "o"), "does not begin with a `run` row")
        self.path.write_text("".join(self.whole[:3]) + "scribble\n" + self.whole[3], encoding="utf-8")
        self.assert_left_alone(self.skidproof("run", "--resume", "o"), "line 4", "start a new run")

    def test_another_machine_does_not_go_on(self):
        self.cut_behind("test", 2)
        for field, value, word in (("stepping", 5, "processor"), ("microcode", "0x27", "microcode"), ("machine", "direct", "machine")):
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            machine = json.loads(lines[1])
            changed = {"machine": value, "name": value} if field == "machine" else {field: value}
            lines[1] = json.dumps(machine | changed) + "\n"
            self.path.write_text("".join(lines), encoding="utf-8")
            self.assert_left_alone(self.skidproof("run", "--resume", "o"), f"its {word} was")
            lines[1] = json.dumps(machine) + "\n"
            self.path.write_text("".join(lines), encoding="utf-8")

    def test_its_options_are_its_own(self):
        self.cut_behind("test", 2)
        done = self.skidproof("run", "--resume", "o", "--seed", "4")
        self.assert_left_alone(done, "--resume", "--seed")


class Trouble(CliTest):
    def test_an_output_folder_below_a_file(self):
        (self.folder / "file").write_text("in the way", encoding="utf-8")
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--out", "file/below")
        self.assertEqual(done.exit, 2)
        self.assertEqual(done.out, "")
        self.assertIn("file/below", done.err)
        self.assertIn("--out DIR", done.err)

    def test_a_full_disk(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "/dev/full")
        self.assertEqual(done.exit, 2)
        self.assertIn("no room", done.err)

    def test_a_disk_that_fills_up(self):
        # A limit on the size of files stands in for the disk: the writer sees the same refusal.
        command = 'ulimit -f 24; exec "$0" run --machine model:sandy-bridge --filter "PebsSkid.*" --out o'
        done = Done(
            subprocess.run(
                ["bash", "-c", command, skidproof_program],
                cwd=self.folder, capture_output=True, text=True, timeout=120,
            )
        )
        self.assertEqual(done.exit, 2, done.err)
        self.assertIn("no room", done.err)
        rows = [json.loads(line) for line in (self.folder / "o" / "results.jsonl").read_text().splitlines()]
        self.assertGreater(len(rows), 3)
        self.assertEqual(rows[0]["type"], "run")
        if rows[-1]["type"] == "end":
            self.assertEqual(rows[-1]["exit"], 2)

    def interrupt(self, number):
        process = subprocess.Popen(
            [skidproof_program, "run", "--machine", MODEL, "--repeat", "1000", "--json", "rows.jsonl"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        path = self.folder / "rows.jsonl"
        for _ in range(1000):
            if path.exists() and path.read_text(encoding="utf-8").count('"test"') >= 3:
                break
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=30)
        return process.returncode, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def test_ctrl_c_ends_the_rows_and_the_run(self):
        code, rows = self.interrupt(signal.SIGINT)
        self.assertEqual(code, 2)
        self.assert_valid(rows)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGINT")
        self.assertEqual(rows[-1]["exit"], 2)

    def test_sigterm_does_too(self):
        code, rows = self.interrupt(signal.SIGTERM)
        self.assertEqual(code, 2)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGTERM")

    def test_a_deadline(self):
        done = self.skidproof("run", "--machine", MODEL, "--repeat", "1000", "--deadline", "0.5", "--json", "-")
        self.assertEqual(done.exit, 2)
        self.assert_valid(done.rows())
        self.assertIn("deadline of 0.5 s passed", done.rows()[-1]["reason"])
        self.assertLess(done.rows()[-1]["duration_s"], 5)

    def test_a_reader_that_leaves(self):
        command = '"$0" run --machine model:sandy-bridge --json - | head -3; echo "${PIPESTATUS[0]}"'
        done = Done(
            subprocess.run(["bash", "-c", command, skidproof_program], cwd=self.folder, capture_output=True, text=True, timeout=60)
        )
        self.assertEqual(done.out.splitlines()[-1], "2")
        self.assertIn("stopped reading", done.err)


class Tapes(CliTest):
    """Runs that are recorded, replayed, and asked for what they do not hold."""

    FILTER = "PebsReload.*:PmuRegisters.*:BtsBuffer.*"

    def record(self, *arguments, machine=MODEL, exit=0):
        done = self.skidproof("run", "--machine", machine, "--tape", "run.tape", "--json", "-", *arguments)
        self.assertEqual(done.exit, exit, done.err)
        return done.rows()

    def replay(self, *arguments, tape="run.tape", exit=0):
        done = self.skidproof("run", "--machine", f"tape:{tape}", "--json", "-", *arguments)
        self.assertEqual(done.exit, exit, done.err)
        return done.rows()

    def outcomes(self, rows):
        """The test rows, without what a replay may do in another time."""
        return [{k: v for k, v in row.items() if k != "duration_s"} for row in rows if row["type"] == "test"]

    def assert_same(self, recorded, replayed):
        self.assertEqual(self.outcomes(replayed), self.outcomes(recorded))
        self.assertEqual(recorded[0]["tape"], "")
        self.assertEqual(replayed[0]["tape"], "run.tape")
        was, now = recorded[1], replayed[1]
        self.assertEqual(now["tape"], "run.tape")
        self.assertEqual({**now, "tape": ""}, was, "the machine is the recorded one")
        self.assertEqual(replayed[0]["seed"], recorded[0]["seed"])
        self.assert_valid(recorded)
        self.assert_valid(replayed)

    def test_a_replay_gives_the_same_rows(self):
        for microarch in ("netburst", "sandy-bridge", "sapphire-rapids"):
            recorded = self.record("--filter", self.FILTER + ":NetBurst*", "--seed", "5", machine=f"model:{microarch}")
            self.assertGreater(len(self.outcomes(recorded)), 50)
            self.assert_same(recorded, self.replay())

    def test_a_broken_machine_stays_broken(self):
        recorded = self.record("--filter", "PebsReload.*", "--defect", "reset-never", exit=1)
        replayed = self.replay(exit=1)
        self.assert_same(recorded, replayed)
        self.assertEqual(replayed[1]["defects"], ["reset-never"])

    def test_repetitions(self):
        recorded = self.record("--filter", "PebsReload.*", "--repeat", "2", "--seed", "3")
        self.assert_same(recorded, self.replay())
        self.assert_same([r for r in recorded if r.get("repetition", 0) == 0], self.replay("--repeat", "1", "--seed", "3"))

    def test_a_filter_narrows_a_replay(self):
        recorded = self.record("--filter", self.FILTER)
        replayed = self.replay("--filter", QUICK)
        wanted = [row for row in self.outcomes(recorded) if row["id"].startswith(QUICK[:-2])]
        self.assertGreater(len(wanted), 1)
        self.assertEqual(self.outcomes(replayed), wanted)

    def test_a_replay_goes_where_the_run_went(self):
        for arguments in ((), ("--all",)):
            recorded = self.record("--filter", "PmuEnumeration.*:PebsReload.*", "--defect", "cpuid-hides-pdcm", *arguments, exit=1)
            skipped = [row["skip_category"] for row in self.outcomes(recorded)]
            self.assertEqual("ground-broken" in skipped, not arguments)
            self.assert_same(recorded, self.replay(exit=1))

    def test_what_is_not_on_the_tape_is_skipped(self):
        self.record("--filter", "PmuRegisters.*")
        rows = self.replay("--filter", QUICK, exit=77)
        for row in self.outcomes(rows):
            self.assertEqual((row["status"], row["skip_category"]), ("skip", "not-on-tape"))
            self.assertIn("not on the tape 'run.tape'", row["reason"])
        self.assert_valid(rows)

    def test_people_are_told_that_it_is_a_replay(self):
        self.record("--filter", QUICK)
        done = self.skidproof("run", "--machine", "tape:run.tape", "--out", "again")
        self.assertEqual(done.exit, 0, done.err)
        self.assertIn("tape of a MODEL of Sandy Bridge", done.out)
        self.assertIn("nothing was measured anew", done.out)
        self.assertRegex(done.out, r"replays run.tape: run \d+T\d+Z-\w+ of ")

    def test_a_failing_test_has_a_tape_of_its_own(self):
        # Whether an erratum explains it other tests say, which are not on its tape.
        done = self.skidproof("run", "--machine", MODEL, "--filter", "PebsReload.*", "--defect", "reset-never", "--repeat", "2",
                              "--no-errata", "--out", "out")
        self.assertEqual(done.exit, 1, done.err)
        rows = [json.loads(line) for line in (self.folder / "out" / "results.jsonl").read_text().splitlines()]
        failed = [row for row in self.outcomes(rows) if row["status"] == "fail"]
        tapes = sorted((self.folder / "out" / "tapes").iterdir())
        self.assertGreater(len(failed), 1)
        self.assertEqual(len(tapes), len(failed))
        self.assertIn("of what failed in out/tapes", done.out)
        by_id = {(row["id"], row["seed"]): row for row in failed}
        for tape in tapes[::3]:
            replayed = self.replay(tape=tape, exit=1)
            *others, row = self.outcomes(replayed)
            self.assertEqual(row, by_id.pop((row["id"], row["seed"])))
            self.assertEqual([other["skip_category"] for other in others], ["not-on-tape"] * row["repetition"])

    def test_margins_that_were_measured_are_on_the_tape_of_a_failing_test(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", "PebsPdir.*", "--defect", "pdir-absent", "--out", "out")
        self.assertEqual(done.exit, 1, done.err)
        rows = [json.loads(line) for line in (self.folder / "out" / "results.jsonl").read_text().splitlines()]
        tape = sorted((self.folder / "out" / "tapes").iterdir())[0]
        figures = [[row for row in each if row["type"] == "measurement"] for each in (rows, self.replay(tape=tape, exit=1))]
        self.assertGreater(len(figures[0]), 3)
        self.assertEqual(figures[1], figures[0])

    def test_a_run_that_holds_leaves_no_tapes(self):
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--out", "out")
        self.assertEqual(done.exit, 0, done.err)
        self.assertEqual(sorted(os.listdir(self.folder / "out")), ["results.jsonl"])

    def test_a_replay_takes_its_seed_from_the_tape(self):
        self.record("--filter", QUICK, "--seed", "5")
        for arguments in (("--seed", "6"), ("--repeat", "2"), ("--tape", "other.tape"), ("--defect", "reset-never")):
            done = self.skidproof("run", "--machine", "tape:run.tape", *arguments)
            self.assertEqual(done.exit, 64, arguments)
        self.assertEqual(os.listdir(self.folder), ["run.tape"])
        self.assertEqual(self.skidproof("fuzz", "--machine", "tape:run.tape").exit, 64)

    def test_what_is_no_tape(self):
        (self.folder / "rows.jsonl").write_text("{}\n")
        for name, word in (("absent.tape", "No such file"), ("rows.jsonl", "is no tape"), (".", "no ordinary file")):
            done = self.skidproof("run", "--machine", f"tape:{name}")
            self.assertEqual(done.exit, 64)
            self.assertIn(word, done.err)

    def test_a_tape_that_cannot_be_written(self):
        self.assert_refused(self.skidproof("run", "--machine", MODEL, "--tape", "no/such/run.tape"), 2, "no/such/run.tape")
        done = self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--tape", "/dev/full", "--json", "-")
        self.assertEqual(done.exit, 2)
        self.assertIn("/dev/full", done.err)

    def test_a_tape_of_another_version(self):
        self.record("--filter", QUICK)
        tape = bytearray((self.folder / "run.tape").read_bytes())
        tape[8] += 1
        (self.folder / "run.tape").write_bytes(tape)
        done = self.skidproof("run", "--machine", "tape:run.tape")
        self.assertEqual(done.exit, 64)
        self.assertIn("reads version 5", done.err)

    def test_a_tape_that_was_cut_short(self):
        recorded = self.record("--filter", self.FILTER)
        tape = (self.folder / "run.tape").read_bytes()
        (self.folder / "run.tape").write_bytes(tape[: len(tape) // 2])
        rows = self.replay(exit=2)
        self.assertIn("the tape is damaged", rows[-1]["reason"])
        was = {row["id"]: row for row in self.outcomes(recorded)}
        kept = lost = 0
        for row in self.outcomes(rows):
            if row == was[row["id"]]:
                kept += 1
            else:
                self.assertEqual(row["status"], "error")
                self.assertIn("is damaged", row["reason"])
                lost += 1
        self.assertGreater(kept, 10)
        self.assertGreater(lost, 10)

    def test_no_changed_byte_goes_unseen(self):
        self.record("--filter", QUICK)
        tape = (self.folder / "run.tape").read_bytes()
        for at in range(0, len(tape), max(1, len(tape) // 30)):
            changed = bytearray(tape)
            changed[at] ^= 0x20
            (self.folder / "changed.tape").write_bytes(changed)
            done = self.skidproof("run", "--machine", "tape:changed.tape", "--json", "-")
            self.assertIn(done.exit, (2, 64), at)

    def test_a_run_that_is_killed_leaves_what_it_had(self):
        with subprocess.Popen([skidproof_program, "run", "--machine", MODEL, "--tape", "run.tape", "--json", "rows.jsonl"],
                              cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            rows = self.folder / "rows.jsonl"
            while not rows.exists() or rows.read_bytes().count(b'"type":"test"') < 40:
                time.sleep(0.01)
            process.kill()
        recorded = {}
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            if row["type"] == "test":
                recorded[row["id"]] = {k: v for k, v in row.items() if k != "duration_s"}
        replayed = {row["id"]: row for row in self.outcomes(self.replay(exit=2))}
        same = [test for test, row in recorded.items() if replayed[test] == row]
        self.assertGreaterEqual(len(same), len(recorded) - 1)


class Rough(CliTest):
    def test_the_name_is_in_every_row_and_the_machine_is_the_same_again(self):
        arguments = ("run", "--machine", MODEL, "--rough", "7", "--filter", QUICK, "--json", "-")
        first, again = self.skidproof(*arguments), self.skidproof(*arguments)
        self.assertEqual(first.exit, 0, first.err)
        rows = first.rows()
        self.assert_valid(rows)
        self.assertTrue(all(row["machine"] == f"{MODEL}~rough=7" for row in rows))
        figures = [[row["value"] for row in done.rows() if row["type"] == "measurement"] for done in (first, again)]
        self.assertEqual(figures[0], figures[1])

    def test_the_calibration_sees_what_was_set(self):
        done = self.skidproof(
            "run", "--machine", f"{MODEL}~assist_cycles=900", "--filter", QUICK, "--json", "-"
        )
        self.assertEqual(done.exit, 0, done.err)
        figures = {row["name"]: row for row in done.rows() if row["type"] == "measurement"}
        self.assertAlmostEqual(figures["calibration.record-cycles"]["value"], 900, delta=30)

    def test_a_field_out_of_its_range_is_refused_with_the_range(self):
        done = self.skidproof("run", "--machine", MODEL, "--rough", "assist_cycles=9999")
        self.assert_refused(done, 64, "9999", "assist_cycles", "0 to 1500 cycles")

    def test_an_unknown_field_is_refused_with_near_ones(self):
        done = self.skidproof("run", "--machine", MODEL, "--rough", "tageing=0.1")
        self.assert_refused(done, 64, "tageing", "tagging", "list rough")

    def test_silicon_is_not_made_rough(self):
        done = self.skidproof("run", "--machine", "native", "--rough", "7")
        self.assert_refused(done, 64, "models are made rough")

    def test_fields_are_listed_with_range_and_source(self):
        done = self.skidproof("list", "rough", "--json", "-")
        fields = {entry["id"]: entry for entry in json.loads(done.out)}
        self.assertEqual(fields["assist_cycles"]["drawn_from"], "200 to 1500")
        self.assertTrue(all(entry["source_of_the_range"] for entry in fields.values()))

    def test_rough_machines_are_qualified(self):
        done = self.skidproof(
            "qualify", "--rough", "1", "--microarch", "sandy-bridge", "--defect", "skid-none", "--out", "q"
        )
        self.assertIn(done.exit, (0, 1), done.err)
        rows = [json.loads(line) for line in (self.folder / "q" / "qualification.jsonl").read_text().splitlines()]
        defects = [row for row in rows if row["type"] == "defect"]
        self.assertEqual([row["machine"] for row in defects], ["model:sandy-bridge+skid-none~rough=1"])
        self.assertTrue(defects[0]["caught"])


class Fuzz(CliTest):
    def fuzz_row(self, done):
        rows = done.rows()
        self.assert_valid(rows)
        return [row for row in rows if row["type"] == "fuzz"][0]

    def test_a_conforming_model_holds(self):
        done = self.skidproof("fuzz", "--machine", MODEL, "--cases", "300", "--seed", "5", "--json", "-")
        row = self.fuzz_row(done)
        self.assertEqual(done.exit, 0, done.err)
        self.assertEqual((row["held"], row["cases"], row["violation"]), (True, 300, {}))
        self.assertGreater(row["exact_records"], 100)
        self.assertGreater(row["refused"], 100)

    def test_the_cases_do_not_depend_on_the_number_of_workers(self):
        counts = []
        for jobs in ("1", "3"):
            done = self.skidproof("fuzz", "--machine", MODEL, "--cases", "900", "--jobs", jobs, "--json", "-")
            row = self.fuzz_row(done)
            counts.append([row[field] for field in ("cases", "runs", "records", "exact_records", "writes", "interrupts")])
        self.assertEqual(*counts)

    def test_a_violation_is_small_and_comes_again(self):
        done = self.skidproof("fuzz", "--machine", MODEL, "--defect", "reset-off-by-one", "--out", "found")
        self.assertEqual(done.exit, 1, done.err)
        self.assertIn("VIOLATION", done.out)
        replay = self.folder / "found" / "fuzz-1.json"
        document = json.loads(replay.read_text())
        self.assertLessEqual(len(document["instructions"]), 20)
        again = self.skidproof("fuzz", "--replay", str(replay), "--json", "-")
        self.assertEqual(again.exit, 1)
        violation = self.fuzz_row(again)["violation"]
        for field in ("check", "clause", "expected", "seen"):
            self.assertEqual(violation[field], document[field])
        innocent = self.skidproof("fuzz", "--replay", str(replay), "--machine", MODEL, "--json", "-")
        self.assertEqual(innocent.exit, 0, innocent.err)

    def test_what_cannot_be(self):
        self.assert_refused(self.skidproof("fuzz", "--machine", "model:sandy-brige"), 64, "sandy-bridge")
        self.assert_refused(self.skidproof("fuzz", "--defect", "skid-nne"), 64, "skid-none")
        self.assert_refused(self.skidproof("fuzz", "--deadline", "5x"), 64, "--deadline")
        self.assert_refused(self.skidproof("fuzz", "--replay", "nothing.json"), 64, "nothing.json")
        self.assert_refused(self.skidproof("fuzz", "--machine", "native"), 77, "PMU")
        broken = self.folder / "broken.json"
        broken.write_text("{}")
        done = self.skidproof("fuzz", "--replay", "broken.json")
        self.assertEqual(done.exit, 64)
        self.assertIn("this is no fuzz case", done.err)


class Qualify(CliTest):
    def test_a_caught_defect(self):
        done = self.skidproof(
            "qualify", "--microarch", "sandy-bridge", "--defect", "reset-never", "--seeds", "1", "--json", "-"
        )
        rows = done.rows()
        self.assert_valid(rows)
        defect = [row for row in rows if row["type"] == "defect"]
        self.assertEqual([(row["id"], row["caught"]) for row in defect], [("reset-never", True)])
        self.assertTrue(all(test.startswith("Pebs") for test in defect[0]["caught_by"]))
        summary = [row for row in rows if row["type"] == "qualification"][0]
        self.assertEqual((summary["defects"], summary["caught"], summary["conforming_runs"]), (1, 1, 2))
        self.assertEqual(done.exit == 0, summary["held"])
        self.assertEqual([row for row in rows if row["type"] == "test"], [], "nothing is accused")

    def test_passes_are_rows_that_traceability_reads(self):
        done = self.skidproof("qualify", "--microarch", "nehalem", "--defect", "reset-never", "--passes", "--json", "rows.jsonl")
        self.assertEqual(done.exit, 0, done.err)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assert_valid(rows)
        tests = [row for row in rows if row["type"] == "test"]
        listed = [one["id"] for one in json.loads(self.skidproof("list", "tests", "--json", "-").out)]
        self.assertEqual(sorted(row["id"] for row in tests), sorted(2 * listed), "with a sibling thread and without")
        self.assertEqual({row["machine"] for row in tests}, {"model:nehalem"})
        self.assertLessEqual({row["status"] for row in tests}, {"pass", "xpass", "skip", "observed"})
        page = self.skidproof("traceability", "--from", "rows.jsonl")
        self.assertEqual(page.exit, 0, page.err)
        self.assertIn("Rows of 1 microarch: nehalem.", page.out)
        self.assertIn("PebsReload.LoadsTheResetSlotAfterEveryRecord", page.out)
        self.assertIn("reset-never", page.out)

    def test_the_matrix_does_not_depend_on_the_number_of_workers(self):
        defects = ("reset-never", "skid-none", "pmi-never", "status-not-set", "lvt-status-writable")
        matrices = []
        for jobs in ("1", "4"):
            done = self.skidproof(
                "qualify", "--microarch", "nehalem", "--seeds", "1", "--jobs", jobs,
                *(word for defect in defects for word in ("--defect", defect)), "--matrix", "matrix.json", "--out", jobs,
            )
            self.assertEqual(done.exit, 0, done.out + done.err)
            matrices.append(json.loads((self.folder / "matrix.json").read_text(encoding="utf-8")))
            self.assertEqual(json.loads((self.folder / jobs / "matrix.json").read_text(encoding="utf-8")), matrices[-1])
        self.assertEqual(matrices[0], matrices[1])
        self.assertEqual(len(matrices[0]["defects"]), len(defects))
        for defect in matrices[0]["defects"]:
            self.assertEqual(len(defect["caught_by"]), 1, "one catch ends the search")
            self.assertEqual(set(defect) & {"id", "clause", "microarch"}, {"id", "clause", "microarch"})

    def test_a_worker_that_dies_takes_no_other_run_with_it(self):
        defects = [one["id"] for one in json.loads(self.skidproof("list", "defects", "--json", "-").out)
                   if "nehalem" in one["microarchs"]][:40]
        process = subprocess.Popen(
            [skidproof_program, "qualify", "--microarch", "nehalem", "--jobs", "1", "--matrix", "matrix.json", "--json", "rows.jsonl",
             *(word for defect in defects for word in ("--defect", defect))],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        seen = []
        while process.poll() is None and len(seen) < 3:  # the third has the first of the broken models, some after one another
            seen += [pid for pid in children.read_text(encoding="utf-8").split() if pid not in seen]
        self.assertEqual(len(seen), 3)
        os.kill(int(seen[2]), signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 2, out + err)
        self.assertEqual(len(re.findall(r"model:nehalem\+[\w-]+, seed 1: the worker was ended by signal 9", " ".join(out.split()))), 1, out)
        matrix = json.loads((self.folder / "matrix.json").read_text(encoding="utf-8"))
        self.assertEqual([one["id"] for one in matrix["defects"] if one["caught"]], defects)

    def test_a_defect_that_does_not_apply(self):
        done = self.skidproof("qualify", "--microarch", "nehalem", "--defect", "pdir-absent")
        self.assert_refused(done, 64, "none of these defects")

    def test_ctrl_c(self):
        process = subprocess.Popen(
            [skidproof_program, "qualify", "--json", "rows.jsonl"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 2)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assert_valid(rows)
        self.assertEqual(rows[-1]["reason"], "interrupted by SIGINT")


class Shards(CliTest):
    VARIES = {"started", "finished", "duration_s"}  # and what tells a run from another

    def folder_rows(self, folder):
        path = next((self.folder / folder).glob("*.jsonl"))
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.assert_valid(rows)
        return rows

    def comparable(self, rows):
        found = [{key: value for key, value in row.items() if key not in self.VARIES} for row in rows]
        for key in ("id", "command", "shard", "merged_from"):
            found[0].pop(key, None)
        return found

    def split(self, of, *command):
        """Exit codes of the shards and of the merger; the rows are in s1 … sN and in merged."""
        codes = [self.skidproof(*command, "--shard", f"{i}/{of}", "--out", f"s{i}").exit for i in range(1, of + 1)]
        done = self.skidproof("merge", *(f"s{i}" for i in range(of, 0, -1)), "--out", "merged")
        return codes, done

    def assert_merges_to_the_whole(self, of, *command):
        whole = self.skidproof(*command, "--out", "whole")
        codes, done = self.split(of, *command)
        self.assertEqual(done.exit, whole.exit, done.err)
        merged = self.folder_rows("merged")
        self.assertEqual(self.comparable(merged), self.comparable(self.folder_rows("whole")))
        self.assertEqual(merged[0]["merged_from"], [self.folder_rows(f"s{i}")[0]["id"] for i in range(1, of + 1)])
        for name in ("whole", "merged", *(f"s{i}" for i in range(1, of + 1))):
            shutil.rmtree(self.folder / name)
        return codes

    def test_merged_runs_are_the_whole_run_row_for_row(self):
        for machine in (MODEL, "model:nehalem"):
            codes = self.assert_merges_to_the_whole(
                3, "run", "--machine", machine, "--filter", "PebsReload.*:PmuStatus.*:PebsThreshold.*", "--repeat", "2")
            self.assertEqual(codes, [0, 0, 0])

    def test_ground_that_one_shard_found_broken_is_broken_in_the_merged_run(self):
        self.assert_merges_to_the_whole(
            3, "run", "--machine", MODEL, "--defect", "reset-never", "--filter", "PebsReload.*:PebsThreshold.*:PebsEdges.*")

    def test_merged_qualifications_are_the_whole_one_row_for_row(self):
        defects = ("reset-never", "skid-none", "pmi-never", "status-not-set")
        self.assert_merges_to_the_whole(
            3, "qualify", "--microarch", "nehalem", "--passes", *(word for defect in defects for word in ("--defect", defect)))

    def test_fuzz_shards_run_the_cases_of_the_whole(self):
        whole = self.skidproof("fuzz", "--machine", MODEL, "--cases", "1000", "--out", "whole")
        codes, done = self.split(4, "fuzz", "--machine", MODEL, "--cases", "1000")
        self.assertEqual((whole.exit, codes, done.exit), (0, [0, 0, 0, 0], 0), done.err)
        sums = [[row for row in self.folder_rows(folder) if row["type"] == "fuzz"][0] for folder in ("whole", "merged")]
        for field in ("cases", "runs", "instructions", "records", "exact_records", "writes", "refused", "interrupts"):
            self.assertEqual(sums[0][field], sums[1][field], field)
        self.assertIn("nothing to do", self.folder_rows("s4")[-1]["reason"], "three batches for four shards")

    def test_a_shard_with_nothing_to_do_is_no_failure(self):
        command = ("run", "--machine", MODEL, "--filter", "PebsReload.LoadsTheResetSlotAfterEveryRecord/PMC0.load")
        codes, done = self.split(3, *command)
        self.assertEqual((codes, done.exit), ([0, 0, 0], 0), done.err)
        self.assertEqual(self.folder_rows("s2")[-1]["reason"], "nothing to do: 1 test for 3 shards")

    def test_a_machine_that_does_not_open_is_77_for_all(self):
        codes, done = self.split(2, "run", "--machine", "direct", "--cpu", "0")
        self.assertEqual((codes, done.exit), ([77, 77], 77), done.err)

    def test_what_is_lacking_is_named_and_merged_in_part_on_request(self):
        command = ("run", "--machine", MODEL, "--filter", QUICK)
        self.split(2, *command)
        done = self.skidproof("merge", "s1", "--out", "part")
        self.assertEqual(done.exit, 2)
        self.assertIn("shard 2 of 2 is missing", done.err)
        self.assertFalse((self.folder / "part").exists())
        done = self.skidproof("merge", "--partial", "s1", "--out", "part")
        self.assertEqual(done.exit, 2)
        self.assertEqual(self.folder_rows("part")[-1]["reason"], "merged in part: shard 2 of 2 is missing")
        for words, *shards in (("twice", "s1", "s1", "s2"), ("holds no shard", "s1", "merged")):
            done = self.skidproof("merge", *shards, "--json", "-")
            self.assertEqual((done.exit, done.out), (2, ""))
            self.assertIn(words, done.err)
        rows = self.folder / "s2" / "results.jsonl"
        rows.write_bytes(rows.read_bytes()[:-200])
        done = self.skidproof("merge", "s1", "s2", "--out", "part2")
        self.assertEqual(done.exit, 2)
        self.assertIn("cut short", done.err)
        self.assertEqual(self.skidproof("merge", "--partial", "s1", "s2", "--out", "s1").exit, 64, "it would overwrite s1")

    def test_a_shard_that_was_cut_short_is_resumed_and_merges(self):
        command = ("run", "--machine", MODEL, "--filter", QUICK)
        self.split(2, *command)
        rows = self.folder / "s2" / "results.jsonl"
        lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
        rows.write_text("".join(lines[:-3]), encoding="utf-8")  # before its last test began
        done = self.skidproof("run", "--resume", "s2")
        self.assertEqual(done.exit, 0, done.err)
        done = self.skidproof("merge", "s1", "s2", "--out", "again")
        self.assertEqual(done.exit, 0, done.err)
        self.assertEqual(self.comparable(self.folder_rows("again")), self.comparable(self.folder_rows("merged")))

    def test_bad_usage(self):
        for shard in ("0/2", "3/2", "2", "a/b", "1/10001"):
            for verb in ("run", "qualify", "fuzz"):
                self.assert_refused(self.skidproof(verb, "--shard", shard), 64, "--shard")
        done = self.skidproof("run", "--machine", MODEL, "--shard", "1/2", "--", "--gtest_shuffle")
        self.assert_refused(done, 64, "GoogleTest")
        self.assert_refused(self.skidproof("merge"), 64, "shards is required")
        self.assert_refused(self.skidproof("merge", "nowhere"), 64, "nowhere")


class Traceability(CliTest):
    kept = None  # the rows, made once: they cost a run of every suite

    def setUp(self):
        super().setUp()
        if Traceability.kept is None:
            self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--json", "run.jsonl").exit, 0)
            qualify = ("qualify", "--microarch", "sandy-bridge", "--defect", "reset-never", "--seeds", "1", "--out", "rows")
            self.assertEqual(self.skidproof(*qualify).exit, 0)
            Traceability.kept = tempfile.TemporaryDirectory()
            shutil.copytree(self.folder, Traceability.kept.name, dirs_exist_ok=True)
        shutil.copytree(Traceability.kept.name, self.folder, dirs_exist_ok=True)
        self.rows = ("--from", "run.jsonl", "rows")

    @classmethod
    def tearDownClass(cls):
        if Traceability.kept is not None:
            Traceability.kept.cleanup()

    def trace(self, *arguments):
        return self.skidproof("traceability", *self.rows, *arguments)

    def test_rows_say_where_a_test_passed_and_what_it_caught(self):
        document = json.loads(self.trace("--json", "-").out)
        clauses = {clause["id"]: clause for clause in document["clauses"]}
        r19 = clauses["R19"]
        self.assertTrue(r19["tested"])
        test = "PebsReload.LoadsTheResetSlotAfterEveryRecord"
        self.assertIn((test, ["sandy-bridge"]), [(one["id"], one["passed_on"]) for one in r19["tests"]])
        caught = {one["id"]: one["caught_by"] for one in r19["defects"]}
        self.assertEqual(len(caught["reset-never"]), 1, "the first that caught it, of the clause's own tests")
        self.assertIn(caught["reset-never"][0], [one["id"] for one in r19["tests"]])
        self.assertEqual(caught["reset-to-zero"], [])
        self.assertFalse(clauses["P5"]["tested"], "cited, but no row says that it ran")
        self.assertIn("ran nowhere", clauses["P5"]["reason"])
        self.assertIn("reset-to-zero", document["not_caught"])

    def test_a_fresh_page_and_a_stale_one(self):
        self.assertEqual(self.trace("--out", "page.md").exit, 0)
        fresh = self.trace("--check", "page.md")
        self.assertEqual((fresh.exit, fresh.out, fresh.err), (0, "", ""))
        page = self.folder / "page.md"
        page.write_text(page.read_text(encoding="utf-8").replace("| R19 |", "| R20 |"), encoding="utf-8")
        stale = self.trace("--check", "page.md")
        self.assertEqual(stale.exit, 1)
        self.assertIn("stale", stale.err)
        self.assertIn("ci/traceability", stale.err)
        self.assertEqual(self.trace("--check", "absent.md").exit, 1)

    def test_requirements(self):
        short = self.trace("--require-coverage", "90")
        self.assertEqual(short.exit, 1)
        self.assertIn("P5", short.err)
        self.assertEqual(self.trace("--require-coverage", "0.5").exit, 0)
        self.assertEqual(self.trace("--require-excerpts").exit, 1)
        self.assertEqual(self.trace("--require-defects").exit, 0, "what these rows test, some defect breaks")
        self.assertEqual(self.trace("--require-coverage", "101").exit, 64)

    def test_rows_of_a_broken_model_prove_nothing(self):
        self.skidproof("run", "--machine", MODEL, "--filter", QUICK, "--defect", "skid-none", "--json", "broken.jsonl")
        self.rows = ("--from", "broken.jsonl")
        self.assert_message(self.trace(), 2, "conforming")

    def test_rows_that_were_cut_short(self):
        lines = (self.folder / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (self.folder / "run.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
        self.assert_message(self.trace(), 2, "cut short")

    def test_without_rows_a_citation_is_what_counts(self):
        self.rows = ()
        done = self.trace()
        self.assertEqual(done.exit, 0)
        self.assertIn("Made without rows", done.out)
        self.assertIn("| P5 |", done.out)

    def assert_message(self, done, code, word):
        self.assertEqual(done.exit, code)
        self.assertIn(word, done.err)


class Characterize(CliTest):
    def test_the_clock(self):
        done = self.skidproof("characterize", "--quick", "--only", "clock", "--repetitions", "3", "--json", "-")
        self.assertEqual(done.exit, 0, done.err)
        rows = done.rows()
        self.assert_valid(rows)
        clock = [row for row in rows if row.get("name") == "clock.core"]
        self.assertEqual(clock[0]["unit"], "GHz")
        self.assertTrue(0.5 < clock[0]["value"] < 8)
        self.assertEqual(rows[1]["provenance"], "silicon")

    def characterize_model(self, machine, *more):
        done = self.skidproof("characterize", "--machine", machine, "--quick", "--repetitions", "1", "--size", "16K", *more)
        self.assertEqual(done.exit, 0, done.err)
        return done

    def test_a_model_says_above_all_that_it_is_one(self):
        done = self.characterize_model(MODEL, "--only", "latency", "--out", "model")
        sheet = done.out[done.out.index("\n\n"):].strip()
        self.assertIn("not silicon: its clock is the model's own", sheet.splitlines()[0])
        self.assertIn("instructions as programs declare", done.out)
        self.assertNotIn("contradicted", done.out)
        compared = self.skidproof("characterize", "--compare", "model")
        self.assertEqual(compared.exit, 0, compared.err)
        self.assertIn("MODEL", compared.out)

    def test_what_is_counted_stands_in_the_rows(self):
        rows = self.characterize_model(MODEL, "--only", "latency", "--json", "-").rows()
        self.assert_valid(rows)
        self.assertEqual(rows[1]["provenance"], "model")
        latency = next(row for row in rows if row.get("name") == "memory.latency")
        self.assertEqual(latency["counts_agree"], True)
        self.assertAlmostEqual(latency["counts"]["l1_hit_loads"], 1, delta=0.01)
        shares = [row["value"] for row in rows if row.get("name", "") in ("check.instructions", "check.cycles")]
        self.assertEqual(shares, [1, 1])

    def test_counters_that_contradict_are_said(self):
        done = self.characterize_model(MODEL + "+any-thread-always-on", "--only", "latency")
        self.assertIn("contradicted by its counters", done.out)
        self.assertIn("declared", done.out)

    def test_machines_side_by_side(self):
        for name in ("a", "b"):
            self.skidproof("characterize", "--quick", "--only", "clock", "--repetitions", "3", "--json", f"{name}.jsonl")
        done = self.skidproof("characterize", "--compare", "a.jsonl", "b.jsonl")
        self.assertEqual(done.exit, 0, done.err)
        self.assertIn("core clock (GHz)", done.out)


class Shapes(CliTest):
    TEST = "PmuEvents.CountReferenceCyclesAtTheRateOfTheTsc"

    def run_model(self, *more, machine="model:sandy-bridge"):
        return self.skidproof("run", "--machine", machine, "--filter", self.TEST, "--json", "-", *more)

    def shape_file(self, name, **sizes):
        machine = next(row for row in self.run_model().rows() if row["type"] == "machine")
        rows = [machine] + [{"type": "measurement", "machine": machine["machine"], "microarch": "sandy-bridge", "name": f"shape.{size}.size",
                             "value": value, "unit": "bytes", "statistic": "inferred", "n": 1, "low": value, "high": value,
                             "interval": "exact", "parameters": {},
                             "noise": {"involuntary_switches": 0, "migrations": 0, "smi": 0, "steal_s": 0.0}}
                            for size, value in sizes.items()]
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    def refused(self, done, code, words):
        self.assertEqual((done.exit, done.out), (code, ""), done.err)
        self.assertIn(words, done.err)

    def test_working_sets_follow_it(self):
        close = self.run_model("--shape", self.shape_file("close.jsonl", l1d=64 << 10, l2=96 << 10))
        test = next(row for row in close.rows() if row["type"] == "test")
        self.assertEqual((test["status"], test["skip_category"]), ("skip", "machine-limit"))
        self.assertIn("l1d=65536 l2=98304", test["reason"])
        wide = self.run_model("--shape", self.shape_file("wide.jsonl", l1d=64 << 10, l2=1 << 20), "--tape", "wide.tape")
        self.assertEqual(wide.exit, 0, wide.err)
        again = self.run_model(machine="tape:wide.tape")
        self.assertEqual(again.exit, 0, again.err)
        self.refused(self.run_model("--shape", "wide.jsonl", machine="tape:wide.tape"), 64, "recorded with")

    def test_only_that_of_this_processor(self):
        name = self.shape_file("sandy.jsonl", l1d=64 << 10)
        self.refused(self.run_model("--shape", name, machine="model:haswell"), 64, "another processor")
        self.refused(self.run_model("--shape", "gone.jsonl"), 2, "gone.jsonl")


class Report(CliTest):
    def test_without_results(self):
        done = self.skidproof("report")
        self.assert_refused(done, 64, "skidproof run")

    def test_a_file_that_is_not_there(self):
        self.assert_refused(self.skidproof("report", "no.jsonl"), 64, "no.jsonl")

    def test_without_matplotlib(self):
        (self.folder / "rows.jsonl").write_text("{}\n", encoding="utf-8")
        (self.folder / "matplotlib.py").write_text("raise ImportError('hidden by the test', name='matplotlib')\n", encoding="utf-8")
        done = self.skidproof("report", "rows.jsonl", environment={"PYTHONPATH": str(self.folder)})
        self.assertEqual(done.exit, 2)
        self.assertIn("apt-get install python3-matplotlib", done.err)

    def test_the_newest_results_become_a_page(self):
        self.assertEqual(self.skidproof("run", "--machine", MODEL, "--filter", QUICK).exit, 0)
        done = self.skidproof("report", "--json", "-")
        self.assertEqual(done.exit, 0, done.err)
        page = self.folder / json.loads(done.out)["report"]
        self.assertIn("Sandy Bridge".lower(), page.read_text(encoding="utf-8").lower().replace("-", " "))


class Completion(CliTest):
    """What a shell completes, and the manual pages, which come from the same description."""

    bash = ""  # made once: it asks every verb

    def complete(self, line, folder=None):
        """What Bash offers for a line that ends at the cursor."""
        if not Completion.bash:
            done = self.skidproof("completion", "bash")
            self.assertEqual(done.exit, 0, done.err)
            Completion.bash = done.out
        script = self.folder / "completion.bash"
        script.write_text(Completion.bash)
        done = subprocess.run(["bash", "-c", 'source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _skidproof; printf "%s\\n" "${COMPREPLY[@]}"',
                               "-", script, line], cwd=folder or self.folder, capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def helped_verbs(self):
        section = self.skidproof("--help").out.split("Subcommands:")[1].split("\n\n")[0]
        return re.findall(r"^  (\S+)", section, re.M)

    def test_knows_every_verb_that_help_names(self):
        verbs = self.helped_verbs()
        self.assertIn("run", verbs)
        self.assertIn("store", verbs)
        self.assertEqual(self.complete("skidproof "), verbs)
        self.assertNotIn("command-line", verbs)

    def test_knows_every_option_that_a_verbs_help_names(self):
        for verb in self.helped_verbs():
            with self.subTest(verb):
                helped = self.skidproof(verb, "--help").out
                self.assertIn("--help", helped)
                # Where an option is told, not where another one's text or an example speaks of it.
                told = {word for line in helped.splitlines() if re.match(r"  -", line)
                        for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.split(r"\s{2,}|Excludes", line.strip())[0])}
                offered = set(self.complete(f"skidproof {verb} -"))
                self.assertLessEqual(told, offered)

    def test_completes_values(self):
        self.assertEqual(self.complete("skidproof run --until re"), ["read"])
        self.assertEqual(self.complete("skidproof run --until=wr"), ["write"])
        self.assertIn("defects", self.complete("skidproof list "))
        self.assertIn("skid-one-too-many", self.complete("skidproof run --defect skid-"))
        self.assertIn("auto", self.complete("skidproof run --machine "))
        self.assertEqual(self.complete("skidproof export --format prom"), ["prometheus"])
        self.assertEqual(self.complete("skidproof completion f"), ["fish"])
        # Readline takes what stands before a colon for another word.
        self.assertEqual(self.complete("skidproof run --machine model:sandy"), ["sandy-bridge"])
        self.assertEqual(self.complete("skidproof run --seed "), [])

    def test_completes_actions_and_their_options(self):
        self.assertEqual(self.complete("skidproof store "), ["add", "query", "prune", "migrate"])
        self.assertEqual(self.complete("skidproof store prune --keep"), ["--keep-nights"])
        self.assertEqual(self.complete("skidproof store add --keep"), [])
        self.assertIn("measurements", self.complete("skidproof store query "))

    def test_completes_files_and_folders(self):
        (self.folder / "night.tape").touch()
        (self.folder / "nights").mkdir()
        self.assertEqual(sorted(self.complete("skidproof run --tape nig")), ["night.tape", "nights"])
        self.assertEqual(self.complete("skidproof run --out nig"), ["nights"])
        self.assertEqual(self.complete("skidproof run --machine tape:night."), ["night.tape"])

    def test_other_shells(self):
        for shell in ("zsh", "fish"):
            with self.subTest(shell):
                done = self.skidproof("completion", shell)
                self.assertEqual(done.exit, 0, done.err)
                for verb in self.helped_verbs():
                    self.assertIn(verb, done.out)
                self.assertIn("keep-nights", done.out)
                if shutil.which(shell):
                    (self.folder / shell).write_text(done.out)
                    checked = subprocess.run([shell, "-n", self.folder / shell], capture_output=True, text=True, check=False)
                    self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish_completes(self):
        script = self.folder / "skidproof.fish"
        script.write_text(self.skidproof("completion", "fish").out)

        def offered(line):
            environment = dict(os.environ, HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder))
            done = subprocess.run(["fish", "-c", f'source {script}; complete -C "{line}"'], capture_output=True, text=True, check=True,
                                  env=environment)
            return {one.split("\t")[0] for one in done.stdout.splitlines()}
        self.assertLessEqual(set(self.helped_verbs()), offered("skidproof "))
        self.assertEqual(offered("skidproof run --until wr"), {"write"})
        self.assertEqual(offered("skidproof store prune --keep"), {"--keep-nights"})

    def test_refuses_a_shell_that_it_does_not_know(self):
        done = self.skidproof("completion", "csh")
        self.assertEqual(done.exit, 64)
        self.assertIn("csh", done.err)

    def test_manual_pages_tell_every_verb_and_option(self):
        package = pathlib.Path(__file__).resolve().parents[2] / "results" / "skidproof"
        pages = self.folder / "man"
        environment = dict(os.environ, SKIDPROOF=skidproof_program, SOURCE_DATE_EPOCH="86400")
        for _ in range(2):
            subprocess.run(["/usr/bin/python3", "-B", package, "manual", pages], check=True, env=environment)
            written = {path.name: path.read_text() for path in sorted(pages.iterdir())}
        verbs = self.helped_verbs()
        self.assertEqual(sorted(written), sorted(["skidproof.1", *(f"skidproof-{verb}.1" for verb in verbs)]))
        for verb in verbs:
            page = written[f"skidproof-{verb}.1"].replace("\\-", "-")
            self.assertIn(f"\\fB{verb}\\fR", written["skidproof.1"])
            for option in self.complete(f"skidproof {verb} --"):
                self.assertIn(f"\\fB{option}\\fR", page)
            self.assertIn('"1970-01-02"', page)
        self.assertIn("\\fB--keep-nights\\fR", written["skidproof-store.1"].replace("\\-", "-"))
        if shutil.which("groff"):
            for path in pages.iterdir():
                done = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", path], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), path.name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    skidproof_program = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
