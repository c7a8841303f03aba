#!/usr/bin/python3
"""Ranges of rough machines held against result files.

usage: python3 ci/rough_ranges_test.py [unittest arguments]
"""
import json
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "rough-ranges"
FIELDS = """// Ranges.
ROUGH_FIELD(uint32_t, l1_kib, 0, 24, 64, "KiB", "published parts: 24 to 64", "first level, a multiple of 4")
ROUGH_FIELD(uint32_t, l3_kib, 0, 2048, 32768, "KiB", "published parts", "third level, a power of two")
ROUGH_FIELD(uint32_t, l2_latency, 0, 10, 18, "cycles", "published measurements", "of the second level")
ROUGH_FIELD(uint32_t, memory_latency, 0, 120, 390, "cycles", "published, measured", "of memory")
ROUGH_FIELD(uint32_t, mispredict_penalty, 0, 9, 28, "cycles", "published measurements", "of a branch")
ROUGH_FIELD(double, tagging, 0.25, 0.01, 0.5, "of loads", "open", "loads that are tagged")
"""
MI = 1 << 20


def inferred(name, low, high):
    return {"type": "measurement", "name": f"shape.{name}", "unit": "bytes", "statistic": "inferred", "value": low,
            "low": low, "high": high, "parameters": {}}


def latency(size, cycles, page="2MiB", **more):
    return {"type": "measurement", "name": "memory.latency", "unit": "cycles", "statistic": "median", "value": cycles,
            "parameters": {"bytes": size, "page": page, **more}}


def penalty(cycles, **more):
    return {"type": "measurement", "name": "branch.mispredict_penalty", "unit": "cycles", "statistic": "median", "value": cycles,
            "parameters": more}


MACHINE = {"type": "machine", "name": "native", "provenance": "silicon", "brand": "Some Processor"}
SIZES = [inferred("l1d.size", 49152, 49152), inferred("l2.size", 2 * MI, 2 * MI), inferred("l3.size", 56 * MI, 70 * MI)]


class RoughRanges(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.fields = self.path / "fields.inc"
        self.fields.write_text(FIELDS, encoding="utf-8")

    def results(self, *rows, name="measurements.jsonl"):
        path = self.path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def run_script(self, *arguments):
        return subprocess.run([SCRIPT, "--fields", self.fields, *arguments], capture_output=True, text=True, check=False)

    def test_tells_what_lies_inside_and_outside(self):
        rows = self.results(MACHINE, *SIZES, latency(256 << 10, 16.2), latency(512 * MI, 512.3), latency(512 * MI, 700, "4KiB"),
                            penalty(17.5))
        done = self.run_script(rows)
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = {line.split()[0]: line for line in done.stdout.splitlines()}
        self.assertRegex(lines["l1_kib"], r" 48 +24 to 64 +inside +Some Processor")
        self.assertRegex(lines["l3_kib"], r" 5\.734e\+04 +2048 to 32768 +outside")
        self.assertRegex(lines["l2_latency"], r" 16\.2 .*inside")
        self.assertRegex(lines["memory_latency"], r" 512\.3 .*outside")
        self.assertRegex(lines["mispredict_penalty"], r" 17\.5 .*inside")
        self.assertEqual(self.fields.read_text(encoding="utf-8"), FIELDS)

    def test_widens_outward_and_names_the_source_once(self):
        rows = self.results(MACHINE, *SIZES, latency(256 << 10, 9.4), latency(512 * MI, 512.3), penalty(17.5))
        self.assertEqual(self.run_script("--widen", rows).returncode, 0)
        text = self.fields.read_text(encoding="utf-8")
        self.assertIn('l3_kib, 0, 2048, 65536, "KiB", "published parts; measured", "third level, a power of two")', text)
        self.assertIn('l2_latency, 0, 9, 18, "cycles", "published measurements; measured", "of the second level")', text)
        self.assertIn('memory_latency, 0, 120, 520, "cycles", "published, measured", "of memory")', text)
        self.assertIn('mispredict_penalty, 0, 9, 28, "cycles", "published measurements", ', text)
        self.assertEqual(self.run_script(rows).returncode, 0, "now all lies inside")

    def test_what_is_not_clear_or_disturbed_is_no_figure(self):
        rows = self.results(MACHINE, inferred("l1d.size", 49152, 49152), latency(256 << 10, 99), penalty(80, disturbed=5))
        done = self.run_script("--widen", self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        for field in ("l3_kib", "l2_latency", "memory_latency", "mispredict_penalty"):
            self.assertRegex(done.stdout, rf"{field} +- .*not clear")
        self.assertEqual(self.fields.read_text(encoding="utf-8"), FIELDS)
        self.assertTrue(rows.exists())

    def test_refuses_what_is_not_of_silicon(self):
        rows = self.results({**MACHINE, "provenance": "model", "name": "model:core2"}, *SIZES)
        done = self.run_script(rows)
        self.assertEqual(done.returncode, 2)
        self.assertIn("silicon alone", done.stderr)
        self.assertEqual(self.run_script(self.path / "gone").returncode, 2)
        broken = self.path / "broken.jsonl"
        broken.write_text("{", encoding="utf-8")
        self.assertEqual(self.run_script(broken).returncode, 2)


if __name__ == "__main__":
    unittest.main()
