#!/usr/bin/python3
"""How often `skidproof compare` flags pairs of runs of one machine, and how often it flags a figure that was slowed.

usage: results/bench/compare_bench.py RUN.jsonl RUN.jsonl … [--slow PERCENT] [--trials N] [--seed N] [--set N] [--json FILE]

The runs are of one machine that nothing was changed on, such as of `skidproof characterize --quick --json RUN.jsonl` again and again.
Every pair is compared; in copies of the second one figure at a time is slowed: its value and interval scaled. `--set` compares sets of
so many runs, drawn at random, instead of pairs. Without files, the runs are made by the fleet's simulator (results/bench/fleet.py).
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys

import numpy as np

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]

from skidproof import compare, rows, trends  # noqa: E402


def simulated(seed, nights=20):
    """The runs of one machine of the simulated fleet, without steps."""
    import fleet
    figures = fleet.figure_list(60)
    values, facts, planted = fleet.simulate(seed, 60, nights, 60)
    machine = next(m for m in range(60) if m not in {p["machine"] for p in planted})
    source = rows.Source("simulated")
    for line in fleet.machine_file(seed, machine, values[machine], facts[machine], figures).splitlines():
        rows.add_row(source, json.loads(line))
    return source.runs


def merged(parts):
    """values_of several runs as of one set."""
    keys = set.intersection(*map(set, parts))
    def together(key, place):
        return np.concatenate([part[key][place] for part in parts])
    return {key: (together(key, 0), together(key, 1), min(part[key][2] for part in parts), together(key, 3)) for key in parts[0] if key in keys}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--slow", type=float, default=5.0)
    parser.add_argument("--trials", type=int, default=4, help="slowed figures for each comparison")
    parser.add_argument("--pairs", type=int, default=200, help="at most so many comparisons")
    parser.add_argument("--set", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    runs = [run for path in options.runs for run in rows.read_source(path).runs] if options.runs else simulated(options.seed)
    values = [compare.values_of([run], run.machine_names()[0]) for run in runs]
    size = options.set
    if size == 1:
        pairs = [((i,), (j,)) for i, j in itertools.combinations(range(len(values)), 2)]
        pairs = [pairs[i] for i in sorted(random.permutation(len(pairs))[:options.pairs])]
    else:
        draws = [random.permutation(len(values))[:2 * size] for _ in range(options.pairs)]
        pairs = [(draw[:size], draw[size:]) for draw in draws]
    flagged, tries = [], collections.defaultdict(list)
    for one, other in pairs:
        a, b = merged([values[i] for i in one]), merged([values[i] for i in other])
        figures, common = compare.compare_figures(a, b)
        flagged.append(int(figures.differs.sum()) + common["differs"])
        limits = {(f.name, f.unit, f.statistic, f.parameters): f.detectable for f in figures.itertuples()}
        keys = [key for key in a if key in b and key[1] != "bool" and np.median(a[key][0])]
        for place in random.permutation(len(keys))[:options.trials]:
            key = keys[place]
            worse = trends.direction(key[1], 1, key[0]) == "worse"
            factor = 1 + options.slow / 100 if worse else 1 / (1 + options.slow / 100)
            slowed = dict(b)
            slowed[key] = (b[key][0] * factor, b[key][1] * factor, *b[key][2:])
            after, _ = compare.compare_figures(a, slowed)
            hit = bool(after[(after.name == key[0]) & (after.unit == key[1]) & (after.parameters == key[3])].differs.iloc[0])
            tries[f"{compare.noise_class(json.loads(key[3]))} {key[0]}"].append((hit, bool(limits[key] <= options.slow / 100)))
    clean = sum(count == 0 for count in flagged)
    print(f"{len(pairs)} comparisons of {size} with {size} run(s): nothing flagged in {clean} ({clean / len(pairs):.1%})")
    print(f"a figure slowed by {options.slow:g} %, flagged:  all | where compare says that it could see so much")
    result = {"comparisons": len(pairs), "clean": clean, "slow": options.slow, "classes": {}}
    for kind, found in [*sorted(tries.items()), ("all", sum(tries.values(), []))]:
        quiet = [hit for hit, could in found if could]
        result["classes"][kind] = {"tried": len(found), "flagged": sum(hit for hit, _ in found), "could": len(quiet),
                                   "flagged_could": sum(quiet)}
        print(f"  {kind:32} {sum(hit for hit, _ in found):4} of {len(found):4} | {sum(quiet):4} of {len(quiet):4}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result) + "\n", encoding="utf-8")
    return 0 if clean >= 0.95 * len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
