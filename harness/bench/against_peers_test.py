#!/usr/bin/python3
"""What `against_peers` says of figures, on made-up ones.

usage: python3 harness/bench/against_peers_test.py [unittest arguments]
"""
import importlib.machinery
import importlib.util
import pathlib
import random
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "against_peers"
loader = importlib.machinery.SourceFileLoader("against_peers", str(SCRIPT))
peers = importlib.util.module_from_spec(importlib.util.spec_from_loader("against_peers", loader))
loader.exec_module(peers)

STEADY = [100, 100.2, 99.9, 100.1, 100, 99.8, 100.1]
WILD = [100, 130, 71, 115, 88, 125, 78]


def rows(quantity, unit, **figures):
    """A row of each program, by its name: as compare() makes them."""
    return [{"quantity": quantity, "program": name, "unit": unit, "median": sorted(values)[len(values) // 2],
             "spread": peers.spread(values), "figures": values} for name, values in figures.items()]


class Spread(unittest.TestCase):
    def test_is_of_the_median(self):
        self.assertAlmostEqual(peers.spread([90, 100, 120]), 0.3)


class Sizes(unittest.TestCase):
    def test_are_read(self):
        self.assertEqual([peers.size_of(text) for text in ("64", "16K", "4M", "1G")], [64, 16 << 10, 4 << 20, 1 << 30])

    def test_what_is_none_is_named(self):
        for text in ("", "K", "4m", "-1", "1.5M"):
            with self.assertRaisesRegex(SystemExit, f"'{text}' is no size"):
                peers.size_of(text)

    def test_of_memory_are_a_power_of_two_that_the_kernels_have(self):
        size = peers.memory_size(0)
        self.assertEqual(size & (size - 1), 0)
        self.assertTrue(64 << 20 <= size <= 1 << 30)


class Chance(unittest.TestCase):
    def test_leaves_little_to_it_where_ours_stray_far_more(self):
        # Seven of fourteen: of 3,432 ways one has all of the far ones.
        self.assertLess(peers.chance(WILD, STEADY), 0.01)

    def test_leaves_all_to_it_where_they_stray_far_less(self):
        self.assertGreater(peers.chance(STEADY, WILD), 0.99)

    def test_is_even_of_programs_that_stray_alike(self):
        draw = random.Random(7)
        found = [peers.chance([draw.gauss(100, 3) for _ in range(5)], [draw.gauss(50, 1.5) for _ in range(5)]) for _ in range(200)]
        self.assertAlmostEqual(sum(found) / len(found), 0.5, delta=0.08)
        self.assertAlmostEqual(sum(p < 0.1 for p in found) / len(found), 0.1, delta=0.07)

    def test_counts_coins(self):
        self.assertAlmostEqual(peers.at_most(1, 3), 0.5)
        self.assertAlmostEqual(peers.at_most(4, 18), 0.01544, places=5)


class Summary(unittest.TestCase):
    def test_compares_with_the_best_peer_of_each_quantity(self):
        said = list(peers.summary(
            rows("latency", "ns", skidproof=[99, 100, 101], slow=[149, 150, 152], fast=[104, 105, 106]) +
            rows("load", "GB/s", skidproof=[99, 100, 101], slow=[49, 50, 52], fast=[109, 110, 111]) +
            rows("store", "GB/s", skidproof=[99, 100, 101], slow=[49, 50, 52])))
        self.assertEqual(said[0], "Latency: -4.8 to -4.8 % off the best peer's (latency); round by round -4.8 to -4.8 % (latency).")
        self.assertEqual(said[1], "Bandwidth: at least the best peer's in 1 of 2, at worst -9.1 % (load); round by round in 1, at worst -9.1 % (load).")

    def test_compares_within_a_round_too(self):
        # The machine is slower for the first rounds: for four of ours, and for three of the peer's, which is never the faster one.
        said = list(peers.summary(rows("latency", "ns", skidproof=[36, 36, 36, 36, 33, 33, 33], other=[38, 38, 38, 34, 34, 34, 34])))
        self.assertEqual(said[0], "Latency: +5.9 to +5.9 % off the best peer's (latency); round by round -2.9 to -2.9 % (latency).")

    def test_leaves_out_what_no_peer_measures(self):
        said = list(peers.summary(rows("latency", "ns", skidproof=[1, 1, 1]) + rows("load", "GB/s", other=[1, 1, 1])))
        self.assertEqual(said, [])

    def test_says_what_is_above_beyond_chance(self):
        said = list(peers.summary(rows("wide", "ns", skidproof=WILD, other=STEADY) + rows("narrow", "ns", skidproof=STEADY, other=WILD)))
        self.assertRegex(said[1], r"above it in 1 of 2: wide \(59 and 0\.4 %, which chance does with \d %\)\.$")
        self.assertRegex(said[2], "beyond chance is wide.$")

    def test_grants_chance_what_many_quantities_do(self):
        # Of one of eighteen such an excess is nothing.
        pair = {"ours": [100, 102, 99, 101, 100, 98, 100], "other": [100, 101, 99, 100.5, 100, 99, 100]}
        excess = rows("one", "ns", skidproof=pair["ours"], other=pair["other"])
        rest = [row for i in range(17) for row in rows(f"rest {i}", "ns", skidproof=STEADY, other=WILD)]
        said = list(peers.summary(excess + rest))
        self.assertIn("above it in 1 of 18", said[1])
        self.assertIn("1 or fewer of 18 are above in 0.0072 %", said[2])
        self.assertRegex(said[2], "beyond chance is none.$")

    def test_tells_the_clock_s_drift_from_ours(self):
        found = rows("latency", "ns", skidproof=WILD, other=STEADY)
        found[0]["spread_by_cycle"] = 0.0003
        self.assertIn("In cycles of the core 1 of these are not.", list(peers.summary(found))[1])


class Pool(unittest.TestCase):
    def test_gives_the_means_of_several_comparisons(self):
        calm = rows("latency", "ns", skidproof=[99, 100, 101], best=[196, 200, 204], worse=[300, 300, 300])
        wild = rows("latency", "ns", skidproof=[98, 100, 104], best=[198, 200, 202], worse=[300, 300, 300])
        said = list(peers.pooled([calm, wild]))
        self.assertRegex(said[0], r"latency +4\.0 % +3\.0 %  best +2\.0/4\.0 6\.0/2\.0$")
        self.assertEqual(said[1], "Mean spread over 2 comparisons: 1.33 of the best peer's in the geometric mean; above it in 1 of 1: "
                                  "latency (4 and 3 %, which chance does with 50 %).")

    def test_takes_quantities_that_all_have(self):
        one = rows("latency", "ns", skidproof=STEADY, other=WILD) + rows("load", "GB/s", skidproof=STEADY, other=WILD)
        said = list(peers.pooled([one, rows("load", "GB/s", skidproof=STEADY, other=WILD)]))
        self.assertEqual([line.split()[0] for line in said], ["load", "Mean"])
        self.assertIn("above it in 0 of 1.", said[-1])

    def test_says_where_nothing_is_in_common(self):
        with self.assertRaisesRegex(SystemExit, "no quantity in common"):
            list(peers.pooled([rows("load", "GB/s", skidproof=STEADY, other=WILD), rows("copy", "GB/s", skidproof=STEADY, other=WILD)]))

    def test_leaves_to_chance_what_either_sign_may_be(self):
        self.assertEqual(peers.as_much_by_sign([1, 1, 1]), 1 / 8)
        self.assertEqual(peers.as_much_by_sign([-1, -1, -1]), 1)

    def test_names_a_file_that_is_no_comparison(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder, "broken.json")
            for text in ("", "{}x", "[1]", '[{"quantity": "latency"}]'):
                broken.write_text(text, encoding="utf-8")
                with self.assertRaisesRegex(SystemExit, "broken.json is no comparison"):
                    peers.read_comparison(broken)
            with self.assertRaisesRegex(SystemExit, "cannot be read: No such file"):
                peers.read_comparison(pathlib.Path(folder, "missing"))


if __name__ == "__main__":
    unittest.main()
