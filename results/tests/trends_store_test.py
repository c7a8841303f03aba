"""`skidproof trends` and `compare` over a real store: what changed, on which night, and with what."""

import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

from skidproof import cli, compare, store, trends  # noqa: E402

NIGHTS, STEP = 40, 25


def night(number, draw):
    """One night of a machine: `slowed` is slower and `flaky` fails now and then; both since before, but the microcode changes at STEP."""
    rows = [sample_runs.run_row("native", f"night-{number:02}"), sample_runs.machine_row("native", "silicon")]
    rows[0]["started"] = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T03:00:00Z"
    rows[1] |= {"host": "h1", "microcode": "0x2a" if number < STEP else "0x2b"}
    for name in ("steady", "slowed", "noisy"):
        value = draw.gauss(100, 2 if name == "noisy" else 0.5) * (1.05 if name == "slowed" and number >= STEP else 1)
        row = sample_runs.measurement("native", name, value, "ns", value - 0.5, value + 0.5)
        row["parameters"] = {"bytes": 4096, "slot_cycles": draw.random(), "verdict": draw.choice(("fused", "unclear"))}
        rows.append(row)
    for test, fails in (("S.Steady", False), ("S.Flaky", number % 3 == 1), ("S.Broken", number >= STEP)):
        rows += sample_runs.test_rows("native", test, "fail" if fails else "pass", failures=["x.cc:1: no"] if fails else [])
    return [*rows, sample_runs.end_row("native", rows)]


class OverAStore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, draw = pathlib.Path(folder.name), random.Random(5)
        for number in range(NIGHTS):
            sample_runs.write(cls.folder / f"{number:02}.jsonl", night(number, draw))
        cls.path = str(cls.folder / "s.db")
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "store", "add", "--store", cls.path, cls.folder], check=True, capture_output=True)

    def said(self, verb, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = verb.main([*arguments, "--store", self.path, "--json", "-"])
        return code, json.loads(out.getvalue())

    def test_the_step_is_found_on_its_night_with_the_microcode(self):
        code, found = self.said(trends)
        self.assertEqual(code, 0)
        self.assertEqual([change["name"] for change in found["changes"]], ["slowed"])
        change = found["changes"][0]
        self.assertEqual((change["before_id"], change["after_id"], change["direction"]), (f"night-{STEP - 1:02}", f"night-{STEP:02}", "worse"))
        self.assertTrue(change["relative_low"] < 0.05 < change["relative_high"], change)
        self.assertEqual([(item["what"], item["before"], item["after"]) for item in change["attributed"]], [("microcode", "0x2a", "0x2b")])
        with store.open(self.path) as opened:
            self.assertEqual(list(opened.change_points().after_id), [f"night-{STEP:02}"])

    def test_flaky_broken_and_steady_tests_are_told_apart(self):
        found = {one["id"]: one for one in self.said(trends)[1]["verdicts"]}
        self.assertNotIn("S.Steady", found)
        self.assertEqual({name: one["kind"] for name, one in found.items()}, {"S.Flaky": "flaky", "S.Broken": "changed"})
        rate = sum(number % 3 == 1 for number in range(NIGHTS)) / NIGHTS
        self.assertTrue(found["S.Flaky"]["low"] < rate < found["S.Flaky"]["high"])
        self.assertEqual(found["S.Broken"]["after"], f"night-{STEP:02}")

    def test_nothing_is_written_where_only_a_part_is_asked_for(self):
        with store.open(self.path) as opened:
            opened.replace_change_points([])
        for arguments in (["--dry-run"], ["--host", "h*"], ["--since", "2026-01-10"]):
            self.assertTrue(self.said(trends, *arguments)[1]["changes"], arguments)
            with store.open(self.path) as opened:
                self.assertEqual(len(opened.change_points()), 0, arguments)

    def test_sets_of_nights_are_compared(self):
        code, found = self.said(compare, "host:h1@2026-01-01..2026-01-20", "host:h1@2026-02-01..2026-02-12")
        self.assertEqual(code, 1)
        self.assertEqual([figure["name"] for figure in found["figures"] if figure["differs"]], ["slowed"])
        self.assertEqual([verdict["id"] for verdict in found["verdicts"] if verdict["kind"] == "worse"], ["S.Broken"])
        code, found = self.said(compare, "host:h1@2026-01-01..2026-01-12", "host:h1@2026-01-13..2026-01-24")
        self.assertEqual((code, [figure["name"] for figure in found["figures"] if figure["differs"]]), (0, []))

    def test_what_is_not_in_the_store(self):
        for side in ("run:none", "host:none@2026-01-01..2026-02-01"):
            with self.subTest(side=side), self.assertRaises(cli.Complaint) as caught:
                compare.main([side, "run:night-00", "--store", self.path])
            self.assertIn("none", caught.exception.message)


if __name__ == "__main__":
    unittest.main()
