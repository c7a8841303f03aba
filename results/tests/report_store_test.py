"""`skidproof report` out of a store: the pages of a machine's history and of the fleet, and what it refuses."""

import copy
import pathlib
import subprocess
import sys
import tempfile
import unittest

import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]


def night(host, index, status="pass", machine="direct"):
    """A run of a machine on the night `index`, with one test and one figure."""
    started = f"2026-11-{index + 1:02}T02:00:00.000Z"
    rows = [sample_runs.run_row(machine, f"{host}-{machine}-{index}"),
            sample_runs.machine_row(machine, "model" if machine.startswith("model") else "silicon", host=host, microcode="0x1" if index < 3 else "0x2"),
            *sample_runs.test_rows(machine, "PebsSkid.One", status, failures=["1 is not 2"] * (status == "fail")),
            sample_runs.measurement(machine, "memory.latency", 1.5 + index / 100, "ns", 1, 2, bytes=64)]
    rows.append(sample_runs.end_row(machine, rows))
    rows = copy.deepcopy(rows)
    rows[0]["started"] = started
    return rows


class StorePages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        rows = [row for index in range(6) for row in night("lab1", index, "fail" if index == 5 else "pass")]
        rows += [row for index in range(2) for row in night("lab2", index)] + night("lab2", 1, machine="model:skylake")
        sample_runs.write(cls.folder / "rows.jsonl", rows)
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "store", "add", "--store", cls.folder / "s.db", cls.folder / "rows.jsonl"], check=True,
                       capture_output=True)

    def report(self, *options, exit_code=0):
        done = subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "report", "--out", self.folder / "out", *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return pathlib.Path(done.stdout.split("\n")[0]).read_text() if exit_code == 0 else done.stderr

    def test_a_machine_s_history(self):
        page = self.report("--store", self.folder / "s.db", "--machine", "lab1")
        for words in ("History of lab1/direct", "Last night not every promise held", "PebsSkid.One", "pass 5, fail 1", "memory.latency", "0x1", "0x2"):
            self.assertIn(words, page)

    def test_the_fleet(self):
        page = self.report("--store", self.folder / "s.db", "--fleet")
        for words in ("On 1 of 3 machines a promise was broken", "lab1/direct", "lab2/model:skylake", "MODEL — not silicon", "R10", "lab2/direct"):
            self.assertIn(words, page)

    def test_a_host_of_two_machines_wants_a_name(self):
        said = self.report("--store", self.folder / "s.db", "--machine", "lab2", exit_code=64)
        self.assertIn("lab2/model:skylake", said)
        self.assertIn("MODEL — not silicon", self.report("--store", self.folder / "s.db", "--machine", "lab2/model:skylake"))

    def test_what_is_not_there_is_said(self):
        self.assertIn("lab1/direct", self.report("--store", self.folder / "s.db", "--machine", "nobody", exit_code=64))
        self.report("--store", self.folder / "none.db", "--fleet", exit_code=64)
        self.report("--fleet", "--machine", "lab1", exit_code=64)
        self.report("--fleet", self.folder / "rows.jsonl", exit_code=64)


if __name__ == "__main__":
    unittest.main()
