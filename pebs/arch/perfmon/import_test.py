"""The importer of event lists: what it takes over, what it refuses, and that it never writes half."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PATH = "SNB/events/sandybridge_core.json"


def event(**fields):
    return {"EventCode": "0xD0", "UMask": "0x81", "EventName": "MEM_UOPS_RETIRED.ALL_LOADS", "Counter": "0,1,2,3",
            "CounterHTOff": "0,1,2,3,4,5,6,7", "MSRIndex": "0", "MSRValue": "0", "TakenAlone": "0", "CounterMask": "0",
            "Invert": "0", "EdgeDetect": "0", "PEBS": "1", "Errata": "null", "Offcore": "0", **fields}


class Import(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.perfmon = pathlib.Path(folder.name) / "perfmon"
        self.tree = pathlib.Path(folder.name) / "tree"
        (self.perfmon / PATH).parent.mkdir(parents=True)
        self.tree.mkdir()
        shutil.copy(HERE / "import", self.tree)
        shutil.copy(HERE / "signals.inc", self.tree)
        (self.tree / "lists.txt").write_text(f"# one\nsandy_bridge  {PATH}\n")
        (self.perfmon / "mapfile.csv").write_text(
            f"Family-model,Version,Filename,EventType,Core Type\nGenuineIntel-6-2A,V19,/{PATH},core,\n")
        self.header = self.tree / "sandy_bridge.h"

    def publish(self, *events, header=None):
        header = {"Version": "19", "DatePublished": "03/02/2023"} if header is None else header
        (self.perfmon / PATH).write_text(json.dumps({"Header": header, "Events": list(events)}))

    def run_import(self, *arguments):
        return subprocess.run([sys.executable, "-B", self.tree / "import", self.perfmon, *arguments], capture_output=True, text=True)

    def lines(self):
        done = self.run_import()
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.strip() for line in self.header.read_text().splitlines() if line.startswith("    {")]

    def assert_refused(self, *words, header=None):
        before = self.header.read_text() if self.header.exists() else None
        done = self.run_import()
        self.assertEqual(done.returncode, 1)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.header.read_text() if self.header.exists() else None, before, "nothing is written")

    def test_a_precise_event_comes_over_with_its_facts_alone(self):
        self.publish(event(BriefDescription="words", Errata="BV98, HSD29", TakenAlone="1", Data_LA="1"))
        self.assertEqual(self.lines(), ['{"MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, 0x00, 0, kAlone|kDataAddress, 0xFF, 0x0, 0x0, '
                                        'kPrecise, 0x0, 0x0, "BV98 HSD29"},'])
        text = self.header.read_text()
        self.assertNotIn("words", text)
        self.assertIn('List kSandyBridge{"intel/perfmon SNB V19",', text)
        self.assertIn("03/02/2023", text)

    def test_newer_fields(self):
        self.publish(event(PEBS="0", Precise="1", PEBScounters="0,1,33", PDISTCounter="0,32", UMaskExt="0x80", Equal="1",
                           Counter="0,1,Fixed counter 1", CounterHTOff="0,1"))
        self.assertEqual(self.lines(), ['{"MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, 0x80, 0, kEqual, 0x200000003, 0x200000003, '
                                        '0x100000001, kPrecise, 0x0, 0x0, ""},'])

    def test_counting_events_come_over_where_the_model_counts_them(self):
        self.publish(event(), event(EventName="CPU_CLK_UNHALTED.THREAD_P", EventCode="0x3C", UMask="0x00", PEBS="0"),
                     event(EventName="ICACHE.MISSES", EventCode="0x80", UMask="0x02", PEBS="0"))
        self.assertEqual([line.split('"')[1] for line in self.lines()], ["CPU_CLK_UNHALTED.THREAD_P", "MEM_UOPS_RETIRED.ALL_LOADS"])

    def test_what_is_left_out(self):
        self.publish(event(), *(event(EventName=f"X.{field}", **{field: "1"}) for field in ("Deprecated", "Offcore", "AnyThread")))
        self.assertEqual(len(self.lines()), 1)

    def test_two_imports_of_one_list_are_the_same_and_check_says_when_they_are_not(self):
        self.publish(event(), event(UMask="0x82", EventName="B"))
        self.assertEqual(self.run_import("--check").returncode, 1, "not there yet")
        self.assertFalse(self.header.exists(), "a check writes nothing")
        self.lines()
        first = self.header.read_text()
        self.publish(event(UMask="0x82", EventName="B"), event())
        self.assertEqual(self.run_import("--check").returncode, 0, "the order in the file is no matter")
        self.publish(event())
        done = self.run_import("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sandy_bridge", done.stderr)
        self.assertEqual(self.header.read_text(), first)

    def test_hostile_fields_are_refused_by_name(self):
        for field, value in (("EventCode", "0x1FF"), ("UMask", "-1"), ("UMask", "0x"), ("Counter", "0,banana"), ("Counter", "99"),
                             ("CounterMask", "256"), ("Errata", "rm -rf"), ("PEBS", "9"),
                             ("EventName", 'A", 0}, {"B'), ("EventName", ""), ("MSRIndex", "0x10000")):
            with self.subTest(field=field, value=value):
                self.publish(event(**{field: value}))
                self.assert_refused("sandybridge_core.json", field if field != "EventName" else "name")

    def test_an_event_without_a_counter_is_refused(self):
        self.publish(event(Counter="", CounterHTOff="null"))
        self.assert_refused("Counter", "no counter")

    def test_missing_fields_are_refused_by_name(self):
        for field in ("EventCode", "UMask", "CounterMask"):
            with self.subTest(field=field):
                fields = event()
                del fields[field]
                self.publish(fields)
                self.assert_refused(field, "missing", "MEM_UOPS_RETIRED.ALL_LOADS")

    def test_unknown_forms_are_refused(self):
        self.publish(event(), header={"Version": "nineteen"})
        self.assert_refused("version")
        self.publish(event(), header={"Version": "19", "DatePublished": '"; int x'})
        self.assert_refused("date")
        self.publish("no object")
        self.assert_refused("no object")
        self.publish({**event(), "UMask": 7})
        self.assert_refused("no object of texts")
        self.publish(event(Offcore="1"))
        self.assert_refused("no event is left")
        for text in ("", "[]", "{", '{"Events": 3}', "\ufeff[1]"):
            (self.perfmon / PATH).write_text(text)
            self.assert_refused(PATH.split("/")[-1])

    def test_a_list_that_is_gone_is_said(self):
        self.assert_refused("is", "checkout")
        (self.perfmon / "mapfile.csv").write_text("Family-model,Version,Filename,EventType\n")
        self.assert_refused("mapfile.csv names no")
        (self.perfmon / "mapfile.csv").unlink()
        self.assert_refused("mapfile.csv", "checkout")

    def test_a_list_that_nobody_asks_for_is_said(self):
        with open(self.perfmon / "mapfile.csv", "a") as file:
            file.write("GenuineIntel-6-FF,V1,/NEW/events/new_core.json,hybridcore,0x20\n")
        self.publish(event())
        self.assertIn("NEW/events/new_core.json", self.run_import().stdout)

    def test_an_unknown_name_is_refused(self):
        self.publish(event())
        done = self.run_import("--list", "sandybridge")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sandy_bridge", done.stderr)


if __name__ == "__main__":
    unittest.main()
