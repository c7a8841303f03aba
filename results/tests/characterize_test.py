"""Machines side by side: what differs is marked, what is not clear is said, a model never passes for silicon; odd input is refused."""

import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import sample_runs
from report_test import WellFormed

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

from skidproof import characterize, rows, shape  # noqa: E402


def run_of(found):
    return rows.source_of("sample", found).runs[0]


def machine_of(found):
    return shape.machines_of([run_of(found)])[0]


def sheet_of(*runs):
    machines = [machine_of(found) for found in runs]
    for machine, letter in zip(machines, shape.letters()):
        machine.letter = letter
    return machines, shape.sheet(machines)


def line_of(sections, title, words):
    return next(line for section in sections if section.title == title for line in section.lines if line.words == words)


def a_run(*figures, machine="native", provenance="silicon", **fields):
    return [sample_runs.run_row(machine, "sample"), sample_runs.machine_row(machine, provenance, **fields), *figures,
            sample_runs.end_row(machine, [])]


class Shape(unittest.TestCase):
    def test_facts_come_in_the_order_of_the_sheet_whatever_that_of_the_rows(self):
        found = sample_runs.shape_rows("native")
        random.Random(1).shuffle(found)
        names = [fact.name for fact in shape.shape_of(run_of(a_run(*found)), "native")]
        self.assertEqual(names[:4], ["shape.l1d.size", "shape.l1d.ways", "shape.line", "shape.l2.size"])
        self.assertEqual(len(names), len(found))

    def test_a_shape_that_nobody_knows_has_its_own_name(self):
        _, sections = sheet_of(a_run(sample_runs.inferred("native", "micro_tlb.reach", 16, "entries", 17)))
        self.assertEqual([(s.title, s.lines[0].words) for s in sections], [("Other shapes", "micro tlb reach")])

    def test_what_is_not_clear_has_its_reason_and_no_number(self):
        fact = next(f for f in shape.shape_of(run_of(sample_runs.shape_run()), "native") if f.name == "shape.history.length")
        self.assertIsNone(fact.found.value)
        self.assertIn("the rise does not stay", fact.found.why)

    def test_a_size_that_was_inferred_at_one_parameter_and_not_at_another(self):
        found = [sample_runs.inferred("native", "btb.reach", 512, "branches", 520, spacing=16),
                 sample_runs.inferred("native", "btb.reach", 1024, "branches", 1100, spacing=32)]
        facts = shape.shape_of(run_of(a_run(*found, sample_runs.unclear("native", "shape.btb.reach", "at spacing 64"))), "native")
        self.assertEqual([fact.words for fact in facts], ["branch targets kept, spacing 16", "branch targets kept, spacing 32"])

    def test_agreement_with_what_is_told_or_published(self):
        found = shape.Value(510, "entries", 510, 514)
        for said, verdict in ((512, "agrees"), (510, "agrees"), (540, "near"), (700, "differs"), ("many", ""), (None, ""), ([1], "")):
            self.assertEqual(shape.agreement(found, said), verdict, said)

    def test_a_level_is_looked_at_well_inside_it(self):
        machine = machine_of(sample_runs.shape_run())
        found = machine.measured("memory.latency", "cycles")
        sizes = [shape.footprint_of(machine, found, level) for level in ("L1", "L2", "L3")]
        self.assertTrue(sizes[0] <= 24 << 10 and 96 << 10 <= sizes[1] <= 1 << 20 and 4 << 20 <= sizes[2] <= 53 << 20, sizes)

    def test_no_level_lies_beyond_one_whose_size_is_not_clear(self):
        found = [row for row in sample_runs.shape_run() if row.get("name") != "shape.l1d.size"]
        self.assertEqual(machine_of(found).levels, {})

    def test_parameters_that_stand_beside_a_figure_are_not_its_identity(self):
        row = sample_runs.measurement("native", "memory.loaded_latency", 1, "ns", 1, 1, bandwidth=3.7, streams=2, delay=0)
        self.assertEqual(rows.figure_parameters(row), {"streams": 2, "delay": 0})
        row = sample_runs.inferred("native", "rob.size", 510, "entries", 512, published=512, source="a manual", told=1)
        self.assertEqual(rows.figure_parameters(row), {})


class Judgement(unittest.TestCase):
    def apart(self, a, b):
        return shape.apart(shape.Value(*a), shape.Value(*b))

    def test_values_differ_where_their_intervals_do_not_meet(self):
        self.assertTrue(self.apart((5, "cycles", 4.9, 5.1), (6, "cycles", 5.9, 6.1)))
        self.assertFalse(self.apart((5, "cycles", 4.9, 5.5), (6, "cycles", 5.4, 6.1)))
        self.assertFalse(self.apart((96, "entries", 96, 97), (97, "entries", 97, 98)))

    def test_what_looks_the_same_is_not_marked(self):
        self.assertFalse(self.apart((5.0001, "cycles", 5.0001, 5.0001), (5.0002, "cycles", 5.0002, 5.0002)))

    def test_other_units_and_missing_intervals_are_not_judged(self):
        self.assertIsNone(self.apart((5, "cycles", 5, 5), (6, "ns", 6, 6)))
        self.assertIsNone(self.apart((5, "cycles", None, None), (6, "cycles", 6, 6)))
        self.assertIsNone(shape.apart(None, shape.Value(6, "cycles", 6, 6)))
        self.assertIsNone(shape.apart(shape.Value(None, why="?"), shape.Value(6, "cycles", 6, 6)))

    def test_too_few_samples_judge_nothing(self):
        rows_ = [sample_runs.measurement("native", "clock.core", value, "GHz", value, value) | {"interval": interval}
                 for value, interval in ((3, "0% of the median"), (4, "95% of the median"))]
        machines, sections = sheet_of(*map(a_run, rows_))
        self.assertFalse(sections[0].lines[0].differs)
        self.assertRegex(characterize.text_of(machines, sections, 80), r"core clock \(GHz\) +3 ±\? +4\n(.*\n)*.*too few samples")

    def test_what_others_spoiled_judges_nothing_and_says_so(self):
        def figure(value, **said):
            return a_run(sample_runs.measurement("native", "clock.core", value, "GHz", value, value, **said))
        for said, words in (({}, ""), ({"disturbed": 10}, ""), ({"disturbed": 11}, "disturbed"), ({"in_company": 21}, "in company"),
                            ({"in_company": "many"}, ""), ({"disturbed": 12, "in_company": 12}, "disturbed, in company")):
            machines, sections = sheet_of(figure(3), figure(4, **said))
            self.assertEqual(sections[0].lines[0].differs, not words, said)
            self.assertEqual(sections[0].lines[0].cells[1].note, words)
            self.assertIn(words, characterize.text_of(machines, sections, 80))

    def test_what_counters_say_of_the_figures(self):
        counted = [sample_runs.measurement("native", "check.instructions", share, "share", share, share) | {"n": n, "parameters": {"part": part}}
                   for part, share, n in (("latency", 1, 30), ("caches", 0.5, 10))]
        figure = sample_runs.measurement("native", "memory.latency", 4, "ns", 4, 4)
        counted += [figure | {"counts": {"cycles": 4}, "counts_agree": agree, "parameters": {"bytes": size}, **more}
                    for size, agree, more in ((4096, True, {}), (8192, False, {"counts_differ": "instructions: 3 counted"}))]
        _, sections = sheet_of(a_run(*counted))
        of = "Core and its neighbours"
        self.assertEqual(line_of(sections, of, "instructions as declared").cells[0].value, 87.5)
        self.assertEqual(line_of(sections, of, "instructions as declared").cells[0].note, "of 40 runs")
        self.assertEqual(line_of(sections, of, "figures that counts contradict").cells[0].value, 1)
        self.assertEqual(line_of(sections, of, "figures that counts contradict").cells[0].note, "of 2")

    def test_the_same_run_twice_differs_in_nothing(self):
        _, sections = sheet_of(sample_runs.shape_run(), sample_runs.shape_run())
        self.assertEqual([line.words for section in sections for line in section.lines if line.differs], [])

    def test_a_faster_machine_differs_where_it_is_faster(self):
        _, sections = sheet_of(sample_runs.shape_run(1), sample_runs.shape_run(2, faster=1.2))
        self.assertEqual(line_of(sections, "Latency of a load", "L2, 2 MiB pages").apart, [False, True])
        self.assertEqual(line_of(sections, "Bandwidth, best kind", "load, L1").apart, [False, True])
        self.assertFalse(line_of(sections, "Core", "reorder buffer").differs)

    def test_largest_footprints_that_are_not_the_same_are_not_held_against_one_another(self):
        small, large = (a_run(sample_runs.measurement("native", "memory.latency", value, "ns", value, value, bytes=size, page="4KiB"))
                        for size, value in ((1 << 20, 5), (1 << 30, 90)))
        line = line_of(sheet_of(small, large)[1], "Latency of a load", "largest, 4 KiB pages")
        self.assertEqual([cell.note for cell in line.cells], ["1 MiB", "1 GiB"])
        self.assertFalse(line.differs)

    def test_rows_in_another_unit_stay_in_it(self):
        runs = [a_run(sample_runs.measurement("native", "clock.core", value, unit, value, value)) for value, unit in ((3.4, "GHz"), (3400, "MHz"))]
        machines, sections = sheet_of(*runs)
        self.assertFalse(sections[0].lines[0].differs)
        shown = characterize.text_of(machines, sections, 100)
        self.assertIn("3.4 GHz", shown)
        self.assertIn("3400 MHz", shown)


class Text(unittest.TestCase):
    def text(self, *runs, width=100, color=False):
        return characterize.text_of(*sheet_of(*runs), width, color)

    def test_the_shape_comes_first_then_latency_bandwidth_branches_core(self):
        shown = self.text(sample_runs.shape_run())
        places = [shown.index(f"\n{title}\n") for title in ("Caches", "Translation", "Branch prediction", "Core", "Latency of a load",
                                                            "Bandwidth, best kind", "Branches", "Core and its neighbours", "Not clear")]
        self.assertEqual(places, sorted(places))

    def test_it_fits_and_wraps_into_blocks(self):
        runs = [sample_runs.shape_run(seed) for seed in range(1, 8)]
        for width in (80, 100, 120):
            shown = self.text(*runs, width=width)
            self.assertLessEqual(max(map(len, shown.split("\n"))), width)
            heads = [line.split() for line in shown.split("\n") if re.fullmatch(r" +[A-G]( +[A-G])*", line)]
            self.assertEqual([letter for head in heads for letter in head], list("ABCDEFG"))
            self.assertGreater(len(heads), 1)

    def test_a_model_is_named_at_its_column_and_above_all(self):
        shown = self.text(sample_runs.shape_run(), sample_runs.shape_run(3, "model:skylake"))
        self.assertIn("B  MODEL — not silicon: model:skylake", shown)
        self.assertRegex(shown, r"\n +A +B MODEL\n")
        self.assertIn("not all silicon", shown)
        self.assertIn("None of these is silicon", self.text(sample_runs.shape_run(3, "model:skylake")))

    def test_marks_reasons_and_contradictions(self):
        shown = self.text(sample_runs.shape_run(), sample_runs.shape_run(2, l1=32 << 10))
        self.assertRegex(shown, r"L1 data cache +48 KiB +32 KiB \*")
        self.assertRegex(shown, r"L2 cache +2 MiB \[CPUID 1 MiB\]")
        self.assertRegex(shown, r"scheduler \(entries\) +97–101 \[published 160\]")
        self.assertIn("A branch history: the rise does not stay", shown)

    def test_what_names_hold_does_not_move_the_cursor(self):
        row = sample_runs.measurement("native", "clock.core", 3, "GHz", 3, 3)
        shown = self.text(a_run(row, sample_runs.unclear("native", "shape.\33[2J", "\33[31mred\n\nlines"), brand="CPU \33]0;x\7"), color=True)
        self.assertNotIn("\33", re.sub("\33\\[[0-2]m", "", shown))
        self.assertNotIn("\7", shown)

    def test_old_results_without_shapes_still_make_a_sheet(self):
        shown = self.text(sample_runs.native_run(), sample_runs.native_run(2))
        self.assertIn("Latency of a load", shown)
        self.assertNotIn("not clear", shown)


class Verb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, found):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        sample_runs.write(path, found)
        return path

    def compare(self, *arguments, exit_code=0, program=None):
        command = [program] if program else [sys.executable, "-B", RESULTS / "skidproof"]
        done = subprocess.run([*command, "characterize", "--compare", *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return done

    def small(self, name, value=3.4, **more):
        return self.file(name, a_run(sample_runs.measurement("native", "clock.core", value, "GHz", value, value), **more))

    def test_a_sheet_and_a_page_beside_the_first_file(self):
        done = self.compare(self.small("a/measurements.jsonl").parent, self.small("b.jsonl", 2))
        self.assertIn("core clock (GHz)", done.stdout)
        self.assertIn("2 *", done.stdout)
        self.assertTrue((self.folder / "a" / "comparison.html").exists())
        self.assertEqual(done.stderr, "")

    def test_json_is_the_sheet(self):
        done = self.compare(self.small("a.jsonl"), self.small("b.jsonl", 2), "--json", "-", "--out", "pages")
        found = json.loads(done.stdout)
        self.assertEqual([m["letter"] for m in found["machines"]], ["A", "B"])
        self.assertEqual([m["provenance"] for m in found["machines"]], ["native", "native"])
        line = found["sections"][0]["lines"][0]
        self.assertEqual((line["what"], line["differs"], line["cells"][1]["value"], line["cells"][1]["apart"]), ("core clock", True, 2, True))
        self.assertTrue((self.folder / found["page"]).exists())

    def test_a_page_with_every_curve(self):
        model = sample_runs.shape_run(3, "model:skylake", "sample-model")
        self.compare(self.file("a.jsonl", sample_runs.shape_run()), self.file("b.jsonl", model))
        page = (self.folder / "comparison.html").read_text()
        parser = WellFormed()
        parser.feed(page)
        self.assertEqual((parser.open, parser.fetched), ([], []))
        for words in ("Memory latency, cycles", "Memory latency, ns", "Bandwidth", "Bandwidth of several CPUs", "Loaded latency", "Translation",
                      "Branch prediction", "Windows of the core", "Cost by code size", "Store-to-load forwarding", "Core to core"):
            self.assertIn(f"<figcaption><b>{words}.</b>", page)
        self.assertEqual(page.count("SEVERAL KINDS OF MACHINE"), page.count("<figure id="))
        self.assertIn("B MODEL lab3", page)
        self.assertNotIn("<script>`", page)
        self.assertIn("640 &lt;script&gt;", page)

    def test_what_cannot_be_read_is_refused(self):
        good = self.small("a.jsonl")
        done = self.compare("gone.jsonl", good, exit_code=64)
        self.assertIn("there is no file 'gone.jsonl'", done.stderr)
        tests = self.file("tests.jsonl", sample_runs.small_model_run())
        self.assertIn("holds no measurement", self.compare(good, tests, exit_code=2).stderr)
        (self.folder / "empty").mkdir()
        self.assertIn("no *.jsonl", self.compare(self.folder / "empty", exit_code=64).stderr)
        (self.folder / "noise.jsonl").write_bytes(b"\x00\xff not json\n")
        self.assertIn("not JSON", self.compare("noise.jsonl", exit_code=2).stderr)
        other = a_run(sample_runs.measurement("native", "clock.core", 3, "GHz", 3, 3))
        other[0]["schema"] = 2
        self.assertIn("schema 2", self.compare(good, self.file("new.jsonl", other), exit_code=2).stderr)

    def test_a_page_that_cannot_be_written(self):
        good = self.small("a.jsonl")
        (self.folder / "taken").write_text("")
        done = self.compare(good, "--out", "taken/below", exit_code=2)
        self.assertIn("--out DIR", done.stderr)
        self.assertIn("core clock", done.stdout)

    def test_the_same_machine_twice_is_said(self):
        good = self.small("a.jsonl")
        done = self.compare(good, good)
        self.assertIn("The same run stands here more than once", done.stdout)
        self.assertNotRegex(done.stdout, r"core clock.*\*")

    def test_a_run_that_was_cut_short_is_said(self):
        path = self.file("a.jsonl", a_run(sample_runs.measurement("native", "clock.core", 3, "GHz", 3, 3))[:-1])
        self.assertIn("cut short", self.compare(path).stderr)

    def test_odd_rows_do_not_end_it(self):
        path = self.file("odd.jsonl", self.odd_run(random.Random(7)))
        self.compare(path, path)
        report = subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "report", path, "--out", self.folder / "r"], capture_output=True,
                                text=True)
        self.assertEqual(report.returncode, 0, report.stderr)

    @staticmethod
    def odd_run(rng):
        """A characterization some of whose values and parameters are not what they should be."""
        odd = (0, -1, 1e-300, 1e299, 10**400, "many", None, True, [1], {"a": 1}, math.pi, "<b>", 4096, 1 << 62)
        found = []
        for row in sample_runs.shape_run()[2:-1]:
            if row["type"] != "measurement" or rng.random() < 0.8:
                continue
            for key in list(row["parameters"]):
                if rng.random() < 0.4:
                    row["parameters"][key] = rng.choice(odd)
            for key in ("value", "low", "high"):
                if rng.random() < 0.2:
                    row[key] = rng.choice(odd)
            found.append(row)
        return a_run(*found, brand="<script>")

    def test_a_run_in_a_store(self):
        path = self.small("a.jsonl")
        store = [sys.executable, "-B", RESULTS / "skidproof", "store", "add", path, "--store", self.folder / "s.db"]
        subprocess.run(store, check=True, capture_output=True)
        done = self.compare("run:sample", "--store", "s.db", "--out", ".")
        self.assertIn("core clock (GHz)", done.stdout)

    @unittest.skipUnless(os.environ.get("SKIDPROOF"), "no program is named")
    def test_the_program_hands_over(self):
        program = os.environ["SKIDPROOF"]
        good = self.small("a.jsonl")
        done = self.compare(good, self.small("b.jsonl", 2), "--json", "-", program=program)
        self.assertEqual(len(json.loads(done.stdout)["machines"]), 2)
        self.assertIn("--compare", self.compare(good, "--quick", program=program, exit_code=64).stderr)


if __name__ == "__main__":
    unittest.main()
