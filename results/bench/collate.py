#!/usr/bin/python3
"""How long ci/slurm/collate takes for many nodes, and whether it loses a row.

usage: results/bench/collate.py [--nodes 500,5000] [--figures 60] [--seed 1] [--json FILE]

Makes a night of simulated nodes (fleet.py; one in fifty went away in the middle, one in fifty without a row), collates it into a new SQLite
store without Slurm, and compares the rows of every file with those in the store. Exit code 1 where a row is lost or 500 nodes take 60 s.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = RESULTS.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(RESULTS), str(RESULTS / "bench")]

import fleet  # noqa: E402
import skidproof.store  # noqa: E402


def make(night, nodes, figures, seed):
    """The folder of a night; {node: rows that its file has, or None where it has no file}."""
    chance = random.Random(seed)
    values, facts, _ = fleet.simulate(seed, max(nodes, 100), 20, figures)
    listed, jobs, rows = fleet.figure_list(figures), {}, {}
    for machine in range(nodes):
        name = f"node{machine:04}"
        folder = night / name
        folder.mkdir(parents=True)
        jobs[name] = {"job": str(1000 + machine), "command": ["skidproof", "run"], "features": ["pebs"], "state": "idle"}
        fate = machine % 50
        if fate == 7:
            rows[name] = None
            continue
        text = fleet.machine_file(seed, machine, values[machine][:, :1], facts[machine], listed)
        lines = text.splitlines(keepends=True)
        if fate == 3:
            lines = lines[:chance.randrange(3, len(lines) - 1)]
        else:
            (folder / "exit").write_text("0\n")
        (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
        rows[name] = len(lines)
    (night / "night.json").write_text(json.dumps({"submitted": "x", "store": str(night / "lab.db"), "drain": False, "jobs": jobs,
                                                  "skidproof": str(ROOT / "build/release/skidproof")}), encoding="utf-8")
    return rows


def measure(nodes, figures, seed, folder):
    night = pathlib.Path(folder) / str(nodes)
    rows = make(night, nodes, figures, seed)
    began = time.monotonic()
    done = subprocess.run([ROOT / "ci/slurm/collate", night, "--no-slurm"], check=False, capture_output=True, text=True)
    seconds = time.monotonic() - began
    said = json.loads((night / "outcomes.json").read_text(encoding="utf-8"))
    lost = [node for node, count in rows.items() if count is None]
    cut = [one["node"] for one in said["nodes"] if one["outcome"] == "machine-lost" and one["files"]]
    with skidproof.store.open(str(night / "lab.db")) as store:
        runs = store.runs()
        stored = int(runs.row_count.sum())
        whole = all(list(found) == [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path, found in
                    ((pathlib.Path(one["files"][0]), store.run_rows(json.loads(pathlib.Path(one["files"][0]).open().readline())["id"]))
                     for one in random.Random(seed).sample([one for one in said["nodes"] if one["files"]], 50)))
    expected = sum(sum(1 for _ in open(path, "rb")) for one in said["nodes"] for path in one["files"])
    began_with = sum(count for count in rows.values() if count)
    line = {"nodes": nodes, "seconds": round(seconds, 2), "exit": done.returncode, "counts": said["counts"], "rows_of_nodes": began_with,
            "rows_collated": expected, "rows_stored": stored, "fifty_runs_equal": whole, "problems": said["problems"]}
    print(json.dumps(line), flush=True)
    held = (stored == expected and expected >= began_with and whole and not said["problems"] and done.returncode == 2 and
            len(runs) == nodes - len(lost) and said["counts"].get("machine-lost") == len(lost) + len(cut))
    return line, held and (nodes > 500 or seconds < 60)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="500,5000")
    parser.add_argument("--figures", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="skidproof-collate-") as folder:
        found = [measure(int(nodes), options.figures, options.seed, folder) for nodes in options.nodes.split(",")]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([line for line, _ in found], indent=1) + "\n", encoding="utf-8")
    return 0 if all(held for _, held in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
