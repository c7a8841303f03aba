"""The program's reader of event lists against the importer: the same files, the same lines, the same refusals.

  reader_test.py READ_LISTS [unittest's arguments]; SKIDPROOF_PERFMON=DIR: every core's list of that checkout, too
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "testing"))
import published_lists  # noqa: E402

loader = importlib.machinery.SourceFileLoader("importer", str(HERE / "import"))
importer = importlib.util.module_from_spec(importlib.util.spec_from_loader("importer", loader))
loader.exec_module(importer)
COUNTED = importer.counted_names()

EVENT = {"EventCode": "0xD0", "UMask": "0x81", "EventName": "MEM_UOPS_RETIRED.ALL_LOADS", "Counter": "0,1,2,3",
         "CounterHTOff": "0,1,2,3,4,5,6,7", "MSRIndex": "0", "MSRValue": "0", "TakenAlone": "0", "CounterMask": "0",
         "Invert": "0", "EdgeDetect": "0", "PEBS": "1", "Errata": "null", "Offcore": "0", "Data_LA": "1", "Deprecated": "0",
         "AnyThread": "0", "BriefDescription": "words"}
FIELDS = [*EVENT, "PEBScounters", "PDISTCounter", "PDIR_COUNTER", "UMaskExt", "Equal", "Precise", "Offmodule", "PRECISE_STORE",
          "L1_Hit_Indication", "Unknown"]
VALUES = ["0", "1", "2", "3", "4", "00", "007", "0x1", "0X1f", "0x", "x", "", " 1", "1 ", "\t1", "\n1", "1\u00a0", "+1", "-1", "1_0", "1e3",
          "255", "256", "0xFF", "0x100", "65535", "0x10000", "18446744073709551615", "18446744073709551616", "0x" + "0" * 40 + "5",
          "9" * 30, "\u0663", "\u00b2", "0,1", "1,", ",1", "0;1", "0, 1 ,2", "47", "48", "32,33", "Fixed counter 0", "fixed counter 3",
          "FIXED counter 1", "Fixed counter 10", "Fixed  counter 1", "na", "NA", "Null", "null", "none", "NONE", "BV98", "bv98", "BV98, HSD29",
          "BV98;HSD29/BDM1", "B1", "ABCDE1", "BV98x", "BV", "BV12345", "\u00df12", "\u212a1", "BV98 HSD29", "a\u0000b", 'A", 0}, {"B',
          "INST_RETIRED.ANY", "A" * 96, "A" * 97, "A.B_c9", "UOPS RETIRED", "\x1b[31mred", "\u00e9"]
TEXTS = ["", " ", "[]", "{}", "null", "3", "{", "}", '{"Header": {}, "Events": []}', "\ufeff[1]", '{"Events": 3}', "[" * 100_000,
         '{"Header":' * 5000, '{"Header": {"Version": "1"}, "Events": [' + "[" * 50 + "]" * 50 + "]}", "\x00", "// no", "NaN"]


def document(*events, **header):
    return {"Header": {"Version": "19", "DatePublished": "03/02/2023", **header}, "Events": list(events)}


def other(**fields):
    return EVENT | {"EventName": "OTHER.EVENT", "UMask": "0x82"} | fields


class Reader(unittest.TestCase):
    program = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def by_program(self, files):
        """[lines, or the one refusal that begins with "! "]"""
        said = []
        for first in range(0, len(files), 500):
            done = subprocess.run([self.program, *map(str, files[first:first + 500])], capture_output=True, check=True)
            for line in done.stdout.decode("utf-8", errors="replace").splitlines():
                if line.startswith("= "):
                    said.append([])
                else:
                    said[-1].append(line)
        self.assertEqual(len(said), len(files))
        return said

    def by_importer(self, file):
        try:
            version, _, rows = importer.read_list(file, file.read_bytes(), COUNTED)
        except importer.Refused as refused:
            return [f"! {refused}"]
        return [f"intel/perfmon X V{version}", *(importer.line_of(row).strip() for row in rows)]

    def assert_same(self, files):
        """How many were read."""
        read = 0
        for file, said in zip(files, self.by_program(files)):
            expected = self.by_importer(file)
            with self.subTest(file=file.name, text=file.read_bytes()[:300]):
                refused = expected[0].startswith("! ")
                if refused and not any(f" is {value}" in expected[0] for value in ("'", "not there")):
                    self.assertEqual(said[0][:2], "! ", "another form, which each finds in its own order")
                else:
                    self.assertEqual(said, expected)
            read += not refused
        return read

    def written(self, texts):
        files = []
        for number, text in enumerate(texts):
            file = self.folder / f"{number}.json"
            file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass"))
            files.append(file)
        return files

    def test_what_was_imported(self):
        lists = published_lists.published()
        self.assertGreater(len(lists), 20)
        files = self.written(json.dumps(made) for _, made in lists.values())
        for (header, _), said in zip(lists.values(), self.by_program(files)):
            self.assertEqual(said[1:], [line.strip() for line in published_lists.lines_of(header)], header.name)
        self.assertEqual(self.assert_same(files), len(files))

    def test_each_field_with_each_value(self):
        texts = [json.dumps(document(other(), EVENT | {field: value})) for field in FIELDS for value in VALUES]
        texts += [json.dumps(document(other(), {name: value for name, value in EVENT.items() if name != field})) for field in EVENT]
        texts += [json.dumps(document(other(), EVENT | {field: value}))
                  for field in FIELDS for value in (None, 1, 1.5, True, [], {}, ["1"], {"a": "1"})]
        read = self.assert_same(self.written(texts))
        self.assertGreater(read, 200)
        self.assertGreater(len(texts) - read, 500)

    def test_headers_and_forms(self):
        texts = list(TEXTS)
        for version in ("", "1", "1.2", "1.2.3", "1234", "1.", ".1", "V1", "1 ", "\u0661", 19, None):
            texts.append(json.dumps(document(EVENT, Version=version)))
        for date in ("", "2024-01-01", "01/02/2024", '"; int x', "1" * 17, 3):
            texts.append(json.dumps(document(EVENT, DatePublished=date)))
        good = json.dumps(document(EVENT))
        texts += ["\ufeff" + good, " \r\n\t" + good + "\n", good + "x", good + "\x00", good + "\x00x", "\ufeff\ufeff" + good, good[:-1],
                  good.replace('"PEBS"', '"UMask": "0x82", "PEBS"'), good.replace('"PEBS"', '"\\u0055Mask": "0x82", "PEBS"'),
                  good.replace('{"Header"', '{"Events": [], "Header"'), good.replace('{"Header"', '{"More": [], "Header"'),
                  good.replace('"words"', '"\\ud800"'), good.replace('"words"', '"\\ud83d\\ude00"'), good.replace('"words"', '"a\nb"'),
                  good.replace('"words"', "NaN"), good.replace('"words"', "'words'"), good.replace('"words"', '"\\x41"'),
                  good.replace("}}", "},}"), good.replace('"words"', '"' + "w" * (64 << 10) + '"'),
                  good.replace('"words"', '"' + "w" * ((64 << 10) + 1) + '"'), good.encode().replace(b"words", b"\xff\xfe"),
                  good.encode().replace(b"words", b"\xed\xa0\x80"), good.encode().replace(b"words", b"\xc0\x80"),
                  good.encode("utf-16"), json.dumps({"Events": [EVENT], "Header": {"Version": "19"}}),
                  json.dumps(document(*[EVENT] * 20_000)), json.dumps(document(*[EVENT] * 20_001)),
                  json.dumps(document(EVENT, EVENT)), json.dumps(document()), json.dumps(document(EVENT | {"Offcore": "1"}))]
        self.assertGreater(self.assert_same(self.written(texts)), 8)

    def test_whatever_chance_makes(self):
        chance = random.Random(1)
        texts = []
        for _ in range(400):
            events = []
            for _ in range(chance.randrange(1, 6)):
                event = dict(EVENT, EventName=chance.choice(["INST_RETIRED.ANY", "A", "B"]), PEBS=chance.choice("0123"))
                for _ in range(chance.randrange(3)):
                    event[chance.choice(FIELDS)] = chance.choice(VALUES[:60])
                events.append(event)
            texts.append(json.dumps(document(*events)))
        for _ in range(400):
            data = bytearray(json.dumps(document(EVENT, other())).encode())
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(data))
                data[at:at + chance.randrange(3)] = bytes([chance.choice(b'{}[]",:0x1a \\\x00\xff')])
            texts.append(bytes(data))
        self.assertGreater(self.assert_same(self.written(texts)), 50)

    def test_maps(self):
        head = "Family-model,Version,Filename,EventType,Core Type\n"
        row = "GenuineIntel-6-2A,V19,/SNB/events/a.json,core,\n"
        texts = ["", "\n\n", head, head + row, head + row.replace("core", "hybridcore"), head + row.replace("core", "uncore"),
                 "\ufeff" + head + row, (head + row).replace("\n", "\r\n"), head + row + "\n\n" + row, head + "a,b\n", head + row.replace(",\n", "\n"),
                 "Family-model,Version\na,b\n", head + '"a",b,c,core,\n', head + "a,b,\u00e9,core,\n", head + "a,b,\x01,core,\n",
                 head + row.replace("/SNB", "//SNB"), head + row.replace("/SNB", "../SNB"), head + row + "x"]
        files = []
        for number, text in enumerate(texts):
            (self.folder / str(number)).mkdir()
            files.append(self.folder / str(number) / "mapfile.csv")
            files[-1].write_bytes(text.encode())
        read = 0
        for file, said in zip(files, self.by_program(files)):
            try:
                expected = sorted(importer.mapped_lists(file, file.read_bytes()))
                read += 1
            except importer.Refused as refused:
                expected = [f"! {refused}"]
            self.assertEqual(said, expected, file.read_bytes())
        self.assertGreater(read, 5)

    def test_a_checkout(self):
        if "SKIDPROOF_PERFMON" not in os.environ:
            self.skipTest("SKIDPROOF_PERFMON names no checkout of intel/perfmon")
        perfmon = pathlib.Path(os.environ["SKIDPROOF_PERFMON"])
        paths = sorted(importer.mapped_lists(perfmon / "mapfile.csv", (perfmon / "mapfile.csv").read_bytes()))
        self.assertEqual(self.by_program([perfmon / "mapfile.csv"]), [paths])
        self.assertEqual(self.assert_same([perfmon / path for path in paths]), len(paths))


if __name__ == "__main__":
    Reader.program = sys.argv.pop(1)
    unittest.main()
