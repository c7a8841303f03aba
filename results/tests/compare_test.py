"""compare: the same is the same, what is slower is said, and a model is not silicon."""

import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile
import unittest

import sample_runs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from skidproof import cli, compare, rows  # noqa: E402


def repeated(seed, scale=lambda row: 1.0, noise=0.001, machine="native"):
    """A run whose figures have known levels, and noise of a thousandth."""
    random_ = random.Random(seed)
    made = [sample_runs.run_row(machine, f"run-{seed}"), sample_runs.machine_row(machine, "silicon", host="lab1")]
    for exponent in range(12, 16):
        for page in ("4KiB", "2MiB"):
            for stride in (64, 128):
                made.append(("memory.latency", 1.0 + exponent / 10, "ns", {"bytes": 1 << exponent, "page": page, "stride": stride}))
                made.append(("memory.latency", 4.0 + exponent / 10, "cycles", {"bytes": 1 << exponent, "page": page, "stride": stride}))
    made.append(("clock.core", 3.5, "GHz", {}))
    for place, item in enumerate(made):
        if isinstance(item, tuple):
            name, level, unit, parameters = item
            value = level * scale(item) * random_.gauss(1, noise)
            row = sample_runs.measurement(machine, name, value, unit, value * (1 - noise), value * (1 + noise), **parameters)
            made[place] = row | {"interval": "95% of the median"}
    return made + [sample_runs.end_row(machine, made)]


def run_of(made):
    source = rows.Source("test")
    for row in made:
        rows.add_row(source, row)
    return source.runs


def slow_one(item):
    return 1.05 if item[2] == "ns" and item[3] == {"bytes": 8192, "page": "4KiB", "stride": 64} else 1.0


class Figures(unittest.TestCase):
    def test_pairs_of_the_same(self):
        called = sum(len(compare.compare(run_of(repeated(seed)), run_of(repeated(seed + 100))).differing) > 0 for seed in range(20))
        self.assertEqual(called, 0)

    def test_five_percent(self):
        found = compare.compare(run_of(repeated(1)), run_of(repeated(2, slow_one)))
        self.assertEqual(len(found.differing), 1)
        figure = found.differing.iloc[0]
        self.assertEqual((figure.unit, figure.direction), ("ns", "worse"))
        self.assertEqual(json.loads(figure.parameters)["bytes"], 8192)
        self.assertTrue(figure.relative_low < 0.05 < figure.relative_high)
        self.assertTrue(found.worse)
        self.assertLess(figure.detectable, 0.05)

    def test_faster_is_not_worse(self):
        found = compare.compare(run_of(repeated(2, slow_one)), run_of(repeated(1)))
        self.assertEqual(list(found.differing.direction), ["better"])
        self.assertFalse(found.worse)

    def test_sets_show_what_a_pair_does_not(self):
        def a_little(item):
            return 1.01 if slow_one(item) != 1 else 1.0
        single = compare.compare(run_of(repeated(1)), run_of(repeated(2, a_little)))
        sets = [[run for seed in range(base, base + 8) for run in run_of(repeated(seed, scale))]
                for base, scale in ((10, lambda item: 1), (50, a_little))]
        several = compare.compare(*sets)
        self.assertEqual(len(single.differing), 0)
        self.assertEqual([(f.unit, f.test) for f in several.differing.itertuples()], [("ns", "rank sum")])

    def test_a_neighbour_in_some_runs_of_a_side_is_no_difference(self):
        def neighbour(item):
            return 0.6 if item[0] == "memory.latency" and item[3]["bytes"] == 32768 else 1.0
        quiet = [run for seed in range(20, 25) for run in run_of(repeated(seed))]
        disturbed = [run for seed in range(30, 35) for run in run_of(repeated(seed, neighbour if seed < 33 else lambda item: 1))]
        found = compare.compare(quiet, disturbed)
        self.assertEqual(len(found.differing), 0)
        hit = found.figures[found.figures.parameters.str.contains("32768")]
        self.assertGreater(hit.detectable.min(), 0.2)

    def test_what_could_be_seen_is_seen_by_the_rank_sum(self):
        sides = [[run for seed in range(base, base + 12) for run in run_of(repeated(seed))] for base in (100, 200)]
        before = compare.compare(*sides).figures
        self.assertEqual(set(before.test), {"rank sum"})
        self.assertFalse(before.differs.any())
        place = 5
        figure = before.iloc[place]
        for factor, called in ((1 + figure.detectable + 3 * abs(figure.relative), True), (1 + figure.detectable / 8, False)):
            for run in sides[1]:
                for row in run.measurements:
                    if compare.figure_key(row) == (figure["name"], figure.unit, figure.statistic, figure.parameters):
                        row["value"] *= factor
            after = compare.compare(*sides).figures
            same = after[(after.name == figure["name"]) & (after.unit == figure.unit) & (after.parameters == figure.parameters)]
            self.assertEqual(bool(same.differs.iloc[0]), called, factor)
            for run in sides[1]:
                for row in run.measurements:
                    if compare.figure_key(row) == (figure["name"], figure.unit, figure.statistic, figure.parameters):
                        row["value"] /= factor

    def test_another_clock_is_said_once(self):
        def throttled(item):
            return {"ns": 1.04, "GHz": 1 / 1.04}.get(item[2], 1.0)
        found = compare.compare(run_of(repeated(1)), run_of(repeated(2, throttled)))
        self.assertTrue(found.common["corrected"])
        self.assertIn("clock", found.common["words"])
        self.assertEqual(set(found.differing.name), {"clock.core"})
        self.assertTrue(found.worse)

    def test_measured_parameters_are_no_identity(self):
        rows_ = [sample_runs.measurement("native", "fusion.gain", 0.1, "cycles", 0.09, 0.11, pair="a", slot_cycles=x, verdict="fused")
                 for x in (1, 2)]
        self.assertEqual(*map(compare.figure_key, rows_))

    def test_standard_errors(self):
        row = sample_runs.measurement("native", "m", 10, "ns", 9, 11)
        self.assertAlmostEqual(compare.standard_error(row | {"interval": "95% of the median"}), 1 / 1.959964, places=5)
        self.assertAlmostEqual(compare.standard_error(row | {"interval": "quartiles", "n": 100}), 1.2533 * 2 / 1.349 / 10, places=3)
        self.assertNotEqual(compare.standard_error(row | {"n": 1}), compare.standard_error(row | {"n": 1}))  # NaN


def test_run(statuses, machine="model:sandy-bridge", provenance="model"):
    made = [sample_runs.run_row(machine, "t"), sample_runs.machine_row(machine, provenance)]
    for test, status in statuses.items():
        fields = {"failures": ["x"]} if status in ("fail", "xfail") else {}
        made += sample_runs.test_rows(machine, test, status, erratum="X1" if status[0] == "x" else "", **fields)
    return run_of(made)


class Verdicts(unittest.TestCase):
    def kinds(self, before, after):
        found = compare.compare(test_run(before), test_run(after))
        return dict(found.verdicts[["id", "kind"]].values), found.worse

    def test_kinds(self):
        before = {"a": "pass", "b": "fail", "c": "pass", "d": "pass", "e": "pass", "f": "xfail"}
        after = {"a": "fail", "b": "pass", "c": "disturbed", "d": "skip", "e": "pass", "f": "xpass"}
        kinds, worse = self.kinds(before, after)
        self.assertEqual(kinds, {"a": "worse", "b": "better", "c": "disturbed", "d": "coverage", "f": "erratum"})
        self.assertTrue(worse)
        self.assertFalse(self.kinds(after, before)[0]["a"] == "worse")

    def test_the_same(self):
        self.assertEqual(self.kinds({"a": "fail"}, {"a": "fail"}), ({}, False))

    def test_repetitions_are_asked_by_fisher(self):
        some = [run for status in ("pass",) * 10 for run in test_run({"a": status})]
        others = [run for status in ("pass",) * 9 + ("fail",) for run in test_run({"a": status})]
        found = compare.compare(some, others)
        self.assertEqual(list(found.verdicts.kind), ["other"])
        self.assertEqual(found.verdicts.p.iloc[0], 1.0)

    def test_a_model_is_not_silicon(self):
        silicon = test_run({"a": "pass"}, "direct", "silicon")
        with self.assertRaises(cli.Complaint) as refused:
            compare.compare(test_run({"a": "pass"}), silicon)
        self.assertEqual(refused.exception.exit_code, 64)
        self.assertIn("MODEL", compare.compare(test_run({"a": "pass"}), silicon, across=True).notes[0])


class Verb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.a, self.b = str(self.folder / "a.jsonl"), str(self.folder / "b.jsonl")
        sample_runs.write(self.a, repeated(1))
        sample_runs.write(self.b, repeated(2, slow_one))

    def run_verb(self, *arguments):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                code = cli.main(["compare", *map(str, arguments)])
            except SystemExit as left:
                code = left.code
        return code, out.getvalue(), errors.getvalue()

    def test_text_json_and_plot(self):
        code, out, _ = self.run_verb(self.a, self.b, "--plot", self.folder / "p.svg")
        self.assertEqual(code, 1)
        self.assertIn("worse  memory.latency bytes=8192", out)
        self.assertIn("(native)", out)
        self.assertIn("<svg", (self.folder / "p.svg").read_text())
        code, out, _ = self.run_verb(self.a, self.b, "--json", "-")
        self.assertEqual(sum(figure["differs"] for figure in json.loads(out)["figures"]), 1)
        self.assertEqual(self.run_verb(self.a, self.a)[0], 0)

    def test_bad_usage(self):
        self.assertEqual(self.run_verb(self.a)[0], 64)
        self.assertEqual(self.run_verb(self.a, self.folder / "none.jsonl")[0], 64)
        self.assertEqual(self.run_verb(self.a, self.b, "--rate", "2")[0], 64)
        self.assertEqual(self.run_verb(self.a, self.b, "--plot", self.folder / "p.what")[0], 64)
        broken = self.folder / "c.jsonl"
        broken.write_text("{")
        self.assertEqual(self.run_verb(self.a, broken)[0], 2)


if __name__ == "__main__":
    unittest.main()
