"""ci/slurm against programs that answer as Slurm's do; ci/slurm/loopback tries it against Slurm itself."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import sample_runs  # noqa: E402
import skidproof.store  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {
    "sinfo": """#!/bin/sh
printf 'lab0|pebs,microarch-haswell|idle\\nlab1|pebs|idle\\nlab2|gpu|idle\\nlab3|(null)|down*\\n'
""",
    "sbatch": """#!/bin/sh
printf '%s\\n' "$*" >>"$SAID/sbatch"
[ -z "$REFUSE" ] || { echo 'sbatch: error: Batch job submission failed' >&2; exit 1; }
wc -l <"$SAID/sbatch" | tr -d ' '
""",
    "scontrol": """#!/bin/sh
printf '%s\\n' "$*" >>"$SAID/scontrol"
case "$*" in
  *'job 13') echo 'JobId=13 JobState=TIMEOUT ExitCode=0:1' ;;
  *'job 14') echo 'JobId=14 JobState=NODE_FAIL ExitCode=0:0' ;;
  *'show job'*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
esac
""",
}


class SlurmTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        for name, text in PROGRAMS.items():
            path = self.folder / "bin" / name
            path.write_text(text)
            path.chmod(0o755)
        self.skidproof = self.folder / "bin" / "skidproof"
        self.skidproof.write_text(f'#!/bin/sh\nexec /usr/bin/python3 -B {ROOT}/results/skidproof "$@"\n')
        self.skidproof.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SAID": str(self.folder), "REFUSE": ""}

    def call(self, script, *arguments, expect=0):
        done = subprocess.run([ROOT / "ci/slurm" / script, *map(str, arguments)], capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def said(self, program):
        path = self.folder / program
        return path.read_text().splitlines() if path.exists() else []

    # Submitting.

    def test_a_job_for_each_node_with_the_feature_and_one_behind_them(self):
        done = self.call("nightly", "--out", self.folder / "out", "--store", "s.db", "--deadline", 7, "--for", "lab1", "sh -c 'exit 3'", "--",
                         "skidproof", "run", "--machine", "model:{microarch}", "--out", "{node}")
        lab0, lab1, collate = self.said("sbatch")
        for line in (lab0, lab1):
            for words in ("--exclusive", "--no-requeue", "--nodes 1", "--time 7"):
                self.assertIn(words, line)
        self.assertTrue(lab0.endswith("skidproof run --machine model:haswell --out lab0"))
        self.assertIn("--nodelist lab1", lab1)
        self.assertTrue(lab1.endswith("sh -c exit 3"))
        self.assertIn("--dependency afterany:1:2 --wrap exec", collate)
        night = next((self.folder / "out").iterdir())
        about = json.loads((night / "night.json").read_text())
        self.assertEqual({node: one["job"] for node, one in about["jobs"].items()}, {"lab0": "1", "lab1": "2"})
        self.assertEqual(about["collation"], "3")
        self.assertIn(str(night), done.stdout)

    def test_a_dry_run_submits_nothing(self):
        done = self.call("nightly", "--out", self.folder / "out", "--store", "s.db", "--dry-run", "--feature", "microarch-haswell")
        self.assertIn("--nodelist lab0", done.stdout)
        self.assertNotIn("lab1", done.stdout)
        self.assertEqual(self.said("sbatch"), [])
        self.assertFalse((self.folder / "out").exists())

    def test_what_cannot_be_submitted_is_said(self):
        common = ("--out", self.folder / "out", "--store", "s.db")
        self.assertIn("no node has the features", self.call("nightly", *common, "--feature", "tpu", expect=77).stderr)
        self.assertIn("no such node", self.call("nightly", *common, "--for", "lab9", "true", expect=64).stderr)
        self.assertIn("lab1 has no feature", self.call("nightly", *common, "--", "run", "{microarch}", expect=2).stderr)
        self.assertIn("required", self.call("nightly", "--store", "s.db", expect=64).stderr)
        self.environment["REFUSE"] = "1"
        self.assertIn("submission failed", self.call("nightly", *common, expect=2).stderr)

    # Collating.

    def night(self, fates, **about):
        """A night whose nodes have (exit code or None, rows, job)."""
        night = self.folder / "night"
        jobs = {}
        for node, (code, rows, job) in fates.items():
            folder = night / node / "results"
            folder.mkdir(parents=True)
            if code is not None:
                (folder.parent / "exit").write_text(f"{code}\n")
            if rows is not None:
                (folder / "results.jsonl").write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
            jobs[node] = {"job": job, "command": ["skidproof"], "features": ["pebs", "skidproof-old"], "state": "idle"}
        (night / "night.json").write_text(json.dumps({"store": str(self.folder / "lab.db"), "drain": False, "skidproof": str(self.skidproof),
                                                      "jobs": jobs, **about}))
        return night

    def rows(self, node, status="pass", cut=None):
        """A run of two tests; `cut` leaves so many rows, with the start of another test behind them."""
        machine = "model:haswell"
        tests = [{"type": "test", "machine": machine, "microarch": "haswell", "id": f"Suite.Test{n}", "clauses": ["R12"], "citations": {},
                  "status": status, "skip_category": None, "reason": "", "duration_s": 0.1, "seed": 1, "repetition": 0, "iterations": 1,
                  "comparisons": 1, "failures": ["x"] if status == "fail" else [], "evidence": {}} for n in range(2)]
        rows = [sample_runs.run_row(machine, f"run-{node}"), sample_runs.machine_row(machine, "model", host=node), *tests]
        start = {"type": "test-start", "machine": machine, "microarch": "haswell", "id": "Suite.Last", "clauses": ["R1"], "seed": 1,
                 "repetition": 0, "started": "2026-01-01T00:00:09Z"}
        return rows[:cut] + [start] if cut else [*rows, sample_runs.end_row(machine, rows)]

    def test_each_node_has_its_outcome(self):
        night = self.night({
            "held": (0, self.rows("held"), "10"), "failed": (1, self.rows("failed", "fail"), "11"), "nothing": (77, None, "12"),
            "hung": (None, self.rows("hung", cut=3), "13"), "lost": (None, self.rows("lost", cut=4), "14"), "empty": (None, None, "15"),
            "killed": (137, self.rows("killed", cut=3), "16"), "harness": (2, self.rows("harness"), "17")}, drain=True)
        self.call("collate", night, expect=1)
        found = {one["node"]: one for one in json.loads((night / "outcomes.json").read_text())["nodes"]}
        self.assertEqual({node: one["outcome"] for node, one in found.items()},
                         {"held": "held", "failed": "failed", "nothing": "nothing-ran", "hung": "hung", "lost": "machine-lost",
                          "empty": "machine-lost", "killed": "harness-failed", "harness": "harness-failed"})
        self.assertEqual(found["failed"]["words"], "R12 Suite.Test0")
        for node in ("hung", "lost", "killed"):
            self.assertIn("at test Suite.Last", found[node]["words"])
        self.assertIn("Slurm says NODE_FAIL", found["lost"]["words"])
        self.assertIn("no rows", found["empty"]["words"])
        with skidproof.store.open(str(self.folder / "lab.db")) as store:
            stored = {run.id: run.row_count for run in store.runs().itertuples()}
            self.assertEqual(stored, {"run-held": 5, "run-failed": 5, "run-hung": 6, "run-lost": 7, "run-killed": 6, "run-harness": 5})
            lost = store.run_rows("run-lost")[-2]
            self.assertEqual((lost["status"], lost["id"]), ("error", "Suite.Last"))
        self.assertEqual(len((night / "lost" / "results" / "results.jsonl").read_text().splitlines()), 5)
        self.assertGreater((night / "report" / "fleet.html").stat().st_size, 1000)
        junit = (night / "junit.xml").read_text(encoding="utf-8")
        self.assertEqual(junit.count("<failure"), 2)
        self.assertIn("machine lost at test Suite.Last", junit)
        asked = self.said("scontrol")
        self.assertIn("update NodeName=held AvailableFeatures=pebs,skidproof-held ActiveFeatures=pebs,skidproof-held", asked)
        self.assertEqual([line for line in asked if "DRAIN" in line], ["update NodeName=failed State=DRAIN Reason=skidproof: R12 Suite.Test0"])

    def test_the_exit_code_is_the_nights(self):
        for fates, code in (({"a": (0, None, "10")}, 0), ({"a": (77, None, "10"), "b": (77, None, "11")}, 77),
                            ({"a": (0, None, "10"), "b": (77, None, "11")}, 0), ({"a": (0, None, "10"), "b": (2, None, "11")}, 2)):
            with self.subTest(fates):
                night = self.night(fates)
                self.call("collate", night, "--no-slurm", expect=code)
                subprocess.run(["rm", "-r", night], check=True)
        self.assertEqual(self.said("scontrol"), [])

    def test_again_nothing_is_loaded_twice_and_what_is_no_night_is_refused(self):
        night = self.night({"a": (0, self.rows("a"), "10")})
        for _ in range(2):
            self.call("collate", night, "--no-slurm")
        with skidproof.store.open(str(self.folder / "lab.db")) as store:
            self.assertEqual(len(store.runs()), 1)
        self.assertIn("says no night", self.call("collate", self.folder, expect=64).stderr)

    def test_a_store_that_does_not_answer_is_said(self):
        night = self.night({"a": (0, self.rows("a"), "10")}, store="/nowhere/lab.db")
        done = self.call("collate", night, "--no-slurm", expect=2)
        self.assertIn("store add", done.stderr)


if __name__ == "__main__":
    unittest.main()
