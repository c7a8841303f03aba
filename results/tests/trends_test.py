"""Change points: what is planted is found, what is noise is not, and the p-values are right."""

import itertools
import pathlib
import sys
import unittest

import numpy as np
import pandas as pd
from scipy import stats

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from skidproof import ranks, trends  # noqa: E402


def noise(seed, lines=60, nights=60):
    return np.random.default_rng(seed).standard_normal((lines, nights))


class RankSums(unittest.TestCase):
    def test_without_ties_as_scipy(self):
        random = np.random.default_rng(1)
        for m, n in ((3, 4), (7, 9), (15, 4)):
            a, b = random.standard_normal(m), random.standard_normal(n) + 1
            self.assertAlmostEqual(ranks.two_sided(a, b), stats.mannwhitneyu(a, b, method="exact").pvalue, places=12)

    def test_with_ties_as_all_permutations(self):
        random = np.random.default_rng(2)
        for m, n in ((4, 5), (7, 4)):
            values = random.integers(0, 4, m + n).astype(float)
            doubled = (2 * stats.rankdata(values)).astype(int)
            sums = np.array([sum(chosen) for chosen in itertools.combinations(doubled, m)])
            seen = doubled[:m].sum()
            expected = min(1, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))
            self.assertAlmostEqual(ranks.two_sided(values[:m], values[m:]), expected, places=12)

    def test_the_last_tail(self):
        p = ranks.two_sided(np.arange(10.0), np.arange(10.0, 50.0))
        self.assertAlmostEqual(p * 10272278170 / 2, 1, places=9)  # 50 choose 10

    def test_beyond_what_is_counted_out(self):
        random = np.random.default_rng(3)
        values = np.concatenate([random.standard_normal(60), random.standard_normal(60) + 1])
        doubled, _ = ranks.doubled_ranks(values[None, :])
        near = 2 * min(ranks.saddlepoint_tail(doubled[0], 60, int(doubled[0, :60].sum())))
        self.assertLess(abs(near / ranks.two_sided(values[:60], values[60:]) - 1), 0.02)

    def test_the_choice_among_splits(self):
        for count in (12, 30):
            values = noise(4, 20000, count)
            found, _ = ranks.scan(values, np.full(20000, count), np.zeros(20000), limit=0.05)
            for p in (0.05, 0.01):
                share = (found.p <= p).mean()
                self.assertLess(share, p * 1.15)
                self.assertGreater(share, p * 0.4)


class Many(unittest.TestCase):
    def test_benjamini_and_hochberg_by_hand(self):
        p = [0.01, 0.04, 0.03, 0.005, 0.5]
        np.testing.assert_allclose(ranks.adjusted(p), [0.025, 0.05, 0.05, 0.025, 0.5])
        self.assertAlmostEqual(ranks.benjamini_hochberg(p, 0.05), 0.04)
        self.assertAlmostEqual(ranks.benjamini_hochberg([1e-9, 0.5], 0.05), 0.025)
        self.assertEqual(ranks.benjamini_hochberg(p, 0.02), 0)
        self.assertEqual(ranks.benjamini_hochberg([], 0.05), 0)

    def test_clopper_and_pearson(self):
        low, high = ranks.clopper_pearson(0, 10)
        self.assertEqual(low, 0)
        self.assertAlmostEqual(high, 1 - 0.025 ** (1 / 10))
        self.assertEqual(ranks.clopper_pearson(0, 0), (0.0, 1.0))

    def test_hodges_and_lehmann(self):
        shift = ranks.hodges_lehmann(np.arange(20.0), np.arange(20.0) + 3)
        self.assertEqual(shift.effect, 3)
        self.assertTrue(shift.low < 3 < shift.high)
        few = ranks.hodges_lehmann([1.0, 2.0], [3.0])
        self.assertEqual((few.low, few.high), (-np.inf, np.inf))


class ChangePoints(unittest.TestCase):
    def test_a_step_is_found_on_its_night_with_its_size(self):
        values = noise(1)
        values[7, 25:] += 5
        found = trends.change_points(values)
        self.assertEqual([(c.series, c.index, c.last) for c in found], [(7, 25, 24)])
        self.assertTrue(found[0].low < 5 < found[0].high)
        self.assertLess(found[0].p, 1e-9)

    def test_noise_alone(self):
        for seed in range(5):
            self.assertEqual(trends.change_points(noise(seed, 600)), [])

    def test_an_outlier_and_two_in_a_row_are_no_step(self):
        values = noise(2)
        values[:, 30] += 50
        values[3, 58:] += 1000
        self.assertEqual(trends.change_points(values), [])

    def test_missing_nights(self):
        values = noise(3)
        values[7, 25:] += 5
        values[7, [3, 24, 25, 40]] = np.nan
        values[9] = np.nan
        values[10, 4:] = np.inf
        self.assertEqual([(c.series, c.last, c.index) for c in trends.change_points(values)], [(7, 23, 26)])

    def test_several_steps(self):
        values = noise(4)
        values[7, 20:] += 6
        values[7, 40:] += 6
        self.assertEqual([(c.series, c.index) for c in trends.change_points(values)], [(7, 20), (7, 40)])

    def test_serial_correlation(self):
        random = np.random.default_rng(5)
        values = random.standard_normal((2000, 90))
        for night in range(1, 90):
            values[:, night] += 0.4 * values[:, night - 1]
        self.assertLessEqual(len(trends.change_points(values)), 1)
        values[7, 45:] += 8
        self.assertIn((7, 45), [(c.series, c.index) for c in trends.change_points(values)])

    def test_a_slope_is_no_step(self):
        values = noise(6, nights=90)
        values[7] += np.linspace(0, 8, 90)
        self.assertEqual(trends.change_points(values), [])
        self.assertEqual([(c.series, c.kind) for c in trends.change_points(values, drift=True)], [(7, "drift")])

    def test_few_values(self):
        values = np.zeros((60, 40))
        values[7, 20:] = 1
        self.assertEqual([(c.series, c.index, c.effect) for c in trends.change_points(values)], [(7, 20, 1.0)])

    def test_empty(self):
        self.assertEqual(trends.change_points(np.empty((0, 0))), [])
        self.assertEqual(trends.change_points(np.full((2, 3), np.nan)), [])
        with self.assertRaises(ValueError):
            trends.change_points([1, 2, 3])

    def test_direction(self):
        self.assertEqual(trends.direction("ns", 1), "worse")
        self.assertEqual(trends.direction("GB/s", 1), "better")
        self.assertEqual(trends.direction("cycles", 1, "fusion.gain"), "better")
        self.assertEqual(trends.direction("bool", 1), "")


class Attribution(unittest.TestCase):
    def test_what_changed(self):
        before, after = {"microcode": "0x2a", "os": "Linux 6.1", "host": "a"}, {"microcode": "0x2b", "os": "Linux 6.1", "host": "b"}
        self.assertEqual(trends.attribute(None, before, after), [("microcode", "0x2a", "0x2b")])
        self.assertEqual(trends.attribute(None, before, before | {"os": None}), [("os", "Linux 6.1", "")])
        self.assertEqual(trends.attribute(None, {"bios": float("nan")}, {}), [])


def verdicts(**statuses):
    return pd.DataFrame([{"id": test, "run": run, "started": run, "status": status}
                         for test, said in statuses.items() for run, status in enumerate(said)])


P, F = "pass", "fail"


class Flaky(unittest.TestCase):
    def kinds(self, **statuses):
        return dict(trends.flaky(verdicts(**statuses))[["id", "kind"]].values)

    def test_the_three_are_told_apart(self):
        found = self.kinds(steady=[P] * 30, back_and_forth=[P, P, F, P, P] * 6, once=[P] * 15 + [F] * 15, always=[F] * 30,
                           skipped=["skip"] * 30)
        self.assertEqual(found, {"back_and_forth": "flaky", "once": "changed", "always": "fails"})

    def test_the_rate_and_its_interval(self):
        found = trends.flaky(verdicts(a=[P, P, F, P, P] * 6)).iloc[0]
        self.assertEqual((found.failed, found.nights, found.rate), (6, 30, 0.2))
        self.assertEqual((found.low, found.high), ranks.clopper_pearson(6, 30))

    def test_a_test_that_became_flaky(self):
        found = trends.flaky(verdicts(a=[P] * 40 + [F, F, P] * 10)).iloc[0]
        self.assertEqual(found.kind, "flaky")
        self.assertEqual(found.since, 40)

    def test_with_each_microcode_another_verdict_is_not_flaky(self):
        facts = [{"run": run, "microcode": "0x1" if run // 10 % 2 else "0x2"} for run in range(30)]
        statuses = verdicts(a=[P] * 10 + [F] * 10 + [P] * 10)
        self.assertEqual(trends.flaky(statuses, facts).iloc[0].kind, "changed")
        self.assertEqual(trends.flaky(statuses).iloc[0].kind, "flaky")
        self.assertEqual(trends.flaky(statuses, facts).iloc[0].attributed, [("microcode", "0x1", "0x2")])

    def test_disturbed_nights_say_nothing(self):
        self.assertEqual(self.kinds(a=[P, "disturbed"] * 15), {})


if __name__ == "__main__":
    unittest.main()
