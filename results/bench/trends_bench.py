#!/usr/bin/python3
"""How many planted steps `skidproof trends` finds in simulated fleets, how many it invents, and how long it takes.

usage: results/bench/trends_bench.py [--seeds N] [--noise KIND,…] [--machines M] [--nights N] [--figures F] [--json FILE]

A step counts as found where a change is called in its series within TOLERANCE nights of it. False is every other change called,
in any series. `fleet` is the simulator of results/bench/fleet.py; the other kinds of noise are made here, with steps as large in
standard deviations as the fleet's.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
from scipy import signal

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]

from skidproof import trends  # noqa: E402

TOLERANCE = 2
PLANTED = 40


def autoregressive(random, shape, phi):
    noise = signal.lfilter([1], [1, -phi], random.standard_normal((shape[0], shape[1] + 60)), axis=1)[:, 60:]
    return noise * np.sqrt(1 - phi * phi)


def with_outliers(random, shape):
    return random.standard_normal(shape) + (random.random(shape) < 0.02) * random.choice([-1, 1], shape) * random.uniform(5, 30, shape)


def with_holes(random, shape):
    noise = random.standard_normal(shape)
    noise[random.random(shape) < 0.1] = np.nan
    starts = random.integers(0, shape[1] // 2, shape[0])  # machines that joined later
    noise[np.arange(shape[1]) < np.where(random.random(shape[0]) < 0.2, starts, 0)[:, None]] = np.nan
    return noise


def drifting(random, shape):
    """A tenth of the series go up or down steadily, by 1 to 6 standard deviations over the nights."""
    slope = random.uniform(1, 6, shape[0]) * random.choice([-1, 1], shape[0]) * (random.random(shape[0]) < 0.1)
    return random.standard_normal(shape) + slope[:, None] * np.linspace(-0.5, 0.5, shape[1])


def mixed_correlation(random, shape):
    phi = random.choice([0.0, 0.3, 0.6], shape[0])
    noise = np.empty(shape)
    for value in np.unique(phi):
        rows = phi == value
        noise[rows] = autoregressive(random, (int(rows.sum()), shape[1]), value)
    return noise


NOISE = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "laplace": lambda random, shape: random.laplace(size=shape) / np.sqrt(2),
    "t3": lambda random, shape: random.standard_t(3, shape) / np.sqrt(3),
    "cauchy": lambda random, shape: random.standard_cauchy(shape),
    "lognormal": lambda random, shape: random.lognormal(size=shape) / 2.16,
    "outliers": with_outliers,
    "holes": with_holes,
    "rounded": lambda random, shape: np.round(random.standard_normal(shape), 1),
    "counts": lambda random, shape: random.poisson(3, shape) / np.sqrt(3),
    "drift": drifting,
    "ar0.3": lambda random, shape: autoregressive(random, shape, 0.3),
    "ar0.6": lambda random, shape: autoregressive(random, shape, 0.6),
    "ar-mixed": mixed_correlation,
}


def plant(random, values, size=(4, 10)):
    """Steps in PLANTED lines, with at least 10 nights measured on either side: {line: night}."""
    planted = {}
    while len(planted) < PLANTED:
        line, night = int(random.integers(len(values))), int(random.integers(12, values.shape[1] - 11))
        there = np.isfinite(values[line])
        if line not in planted and min(there[:night].sum(), there[night:].sum()) >= 10 and there[night]:
            values[line, night:] += random.uniform(*size) * random.choice([-1, 1])
            planted[line] = night
    return planted


def fleet(seed, machines, nights, figures):
    import fleet as simulator
    values, _, planted = simulator.simulate(seed, machines, nights, figures)
    return values.reshape(machines * figures, nights), {p["machine"] * figures + p["figure"]: p["night"] for p in planted}


def judge(values, planted):
    began = time.perf_counter()
    found = trends.change_points(values)
    took = time.perf_counter() - began
    hits = {c.series for c in found if c.series in planted and abs(c.index - planted[c.series]) <= TOLERANCE}
    exact = sum(c.series in planted and c.index == planted[c.series] for c in found)
    return {"planted": len(planted), "found": len(hits), "exact": exact, "false": len(found) - len(hits), "seconds": round(took, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", default="fleet," + ",".join(NOISE))
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--figures", type=int, default=60)
    parser.add_argument("--size", type=float, nargs=2, default=(4, 10), help="of the steps, in standard deviations (not of `fleet`)")
    parser.add_argument("--json")
    options = parser.parse_args()
    lines = []
    for kind in options.noise.split(","):
        for seed in range(1, options.seeds + 1):
            if kind == "fleet":
                values, planted = fleet(seed, options.machines, options.nights, options.figures)
            else:
                random = np.random.default_rng(seed)
                values = NOISE[kind](random, (options.machines * options.figures, options.nights))
                planted = plant(random, values, options.size)
            lines.append({"noise": kind, "seed": seed, **judge(values, planted)})
        of_kind = lines[-options.seeds:]
        print(f"{kind:10} found {' '.join(str(line['found']) for line in of_kind)} of {PLANTED}   false "
              f"{' '.join(str(line['false']) for line in of_kind)}   "
              f"{np.mean([line['seconds'] for line in of_kind]):.1f} s each", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    missed = [line for line in lines if line["found"] < 0.95 * line["planted"] or line["false"] > 5]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
