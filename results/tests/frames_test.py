"""`skidproof.read` gives notebooks every row, typed, and says what it could not read."""

import pathlib
import sys
import tempfile
import unittest

import pandas as pd
import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

import skidproof  # noqa: E402
from skidproof import frames  # noqa: E402


class ReadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, rows):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sample_runs.write(path, rows)
        return path

    def test_every_row_is_in_its_frame(self):
        model, native = sample_runs.model_run(), sample_runs.native_run()
        self.file("a/m.jsonl", model)
        self.file("b/n.jsonl", native)
        read = skidproof.read(self.folder)
        count = {kind: sum(row["type"] == kind for row in model + native) for kind in ("run", "machine", "test", "measurement")}
        self.assertEqual((len(read.runs), len(read.machines), len(read.tests), len(read.measurements)), tuple(count.values()))
        self.assertEqual(sorted(read.measurements["value"]), sorted(row["value"] for row in native if row["type"] == "measurement"))
        self.assertEqual(dict(read.tests["status"].value_counts()),
                         {s: n for s in frames.rows_module.STATUSES if (n := sum(row.get("status") == s for row in model))})
        self.assertTrue(read.problems.empty)

    def test_a_models_rows_are_never_silicons(self):
        self.file("m.jsonl", sample_runs.model_run())
        self.file("n.jsonl", sample_runs.native_run())
        read = skidproof.read(self.folder)
        for frame in (read.tests, read.measurements, read.machines):
            self.assertEqual(set(zip(frame["machine"], frame["provenance"])) - {("model:sandy-bridge", "model"), ("native", "native")}, set())

    def test_parameters_are_columns_and_types_hold_even_without_rows(self):
        read = skidproof.read(self.file("n.jsonl", sample_runs.native_run()))
        latency = read.measurements.query("name == 'memory.latency' and page == '4KiB'")
        self.assertTrue(latency["bytes"].is_monotonic_increasing and len(latency) > 10)
        empty = skidproof.read(self.file("e.jsonl", sample_runs.native_run()[:1]))
        for kind, columns in frames.COLUMNS.items():
            for frame in (getattr(read, kind), getattr(empty, kind)):
                self.assertEqual({c: str(frame[c].dtype) for c in columns}, columns, kind)

    def test_a_parameter_does_not_hide_a_column(self):
        rows = sample_runs.small_run()
        row = sample_runs.measurement("native", "x", 1.0, "ns", 0.5, 1.5)
        row["parameters"] = {"name": "other", "value": 7, "run": "r"}
        rows.insert(-1, row)
        read = skidproof.read(self.file("n.jsonl", rows)).measurements.query("name == 'x'").iloc[0]
        self.assertEqual((read["value"], read["value_"], read["name_"], read["run_"], read["run"]), (1.0, 7, "other", "r", rows[0]["id"]))

    def test_histograms(self):
        rows = sample_runs.small_model_run()
        rows[-1:-1] = sample_runs.test_rows("model:sandy-bridge", "A.B", evidence={"skid": sample_runs.histogram("skid", "instructions", {1: 5, 2: 3}, [1, 2])})
        found = skidproof.read(self.file("m.jsonl", rows)).histogram("skid").query("id == 'A.B'")
        self.assertEqual(list(zip(found["value"], found["count"])), [(1, 5), (2, 3)])

    def test_what_cannot_be_read_is_named(self):
        whole = self.file("w.jsonl", sample_runs.small_run())
        broken = self.folder / "b.jsonl"
        broken.write_bytes(whole.read_bytes()[:-40] + b"\n{}\nnot json\n")
        read = skidproof.read([whole, broken])
        self.assertEqual(len(read.runs), 2)
        self.assertTrue(pd.isna(read.runs["exit"].iloc[1]))
        words = " ".join(read.problems["problem"])
        self.assertIn("cut short", words)
        self.assertIn("not JSON", words)
        self.assertEqual(set(read.problems["path"]), {str(broken)})

    def test_nothing_to_read(self):
        with self.assertRaises(FileNotFoundError):
            skidproof.read(self.folder / "none.jsonl")
        with self.assertRaises(FileNotFoundError):
            skidproof.read(self.folder)
        (self.folder / "x.jsonl").write_text("nonsense\n", encoding="utf-8")
        with self.assertRaises(ValueError):
            skidproof.read(self.folder)


if __name__ == "__main__":
    unittest.main()
