#!/usr/bin/python3
"""Simulates a fleet: machines that measure the same figures night after night, with known steps in some of them.

usage: results/bench/fleet.py --machines 1000 --nights 90 --figures 60 --seed 1 --out DIR

Writes DIR/<host>.jsonl, one file a machine with a run a night (schema 1), and DIR/planted.json, the truth about the steps.
"""

import argparse
import datetime
import json
import multiprocessing
import pathlib
import sys

import numpy as np

PLANTED = 40
AT_MICROCODE = 20  # of the planted steps
REPEATS = 21  # measurements behind each figure
VERSION = "0.1.0"
MACHINE = "direct"
FIRST_NIGHT = datetime.datetime(2026, 1, 5, 2, 0, tzinfo=datetime.timezone.utc)
TESTS = ("PebsSkid.IsOneInstructionBehindTheEvent/PMC0.load_chase", "PebsSkid.IsOneInstructionBehindTheEvent/PMC1.store_stream",
         "PebsReload.LoadsTheResetSlotAfterEveryRecord", "PebsLayout.RecordHoldsTheState", "PebsThreshold.InterruptsAtTheThreshold",
         "PmuStatus.OverflowSetsItsBit", "PmuCounters.WrapAtTheirWidth", "LbrFreeze.StopsAtTheInterrupt", "PebsPdir.HitsTheNextInstruction",
         "PmuFixed.CountsEveryInstruction")
CLAUSES = ("R12", "R12", "R19", "R5", "R23", "R2", "R1", "L1", "R31", "R3")


def figure_list(count):
    """The figures that every machine measures: (name, unit, parameters)."""
    found = [("memory.latency", "ns", {"bytes": 1 << exponent, "page": page}) for exponent in range(14, 29) for page in ("4KiB", "2MiB")]
    found += [("store.bandwidth", "GB/s", {"bytes": 1 << exponent, "kind": kind}) for exponent in range(14, 26, 2)
              for kind in ("regular-8", "regular-32", "non-temporal")]
    found += [("fusion.gain", "cycles", {"pair": f"{first} + {jump}"}) for first in ("cmp r,r", "test r,r") for jump in ("jz", "jb", "jl")]
    found += [("branch.misprediction", "cycles", {"pattern": pattern}) for pattern in ("alternating", "pseudo-random")]
    while len(found) < count:
        found.append(("memory.latency", "ns", {"bytes": 3 << 14, "page": "4KiB", "stride": 64 * (len(found) + 1)}))
    return found[:count]


def simulate(seed, machines=1000, nights=90, figures=60):
    """(values, facts, planted) of a fleet, the same for the same arguments.

    values: float array [machines, figures, nights], each machine's figure around its own level with 0.3 to 2 % noise, a quarter
    of them heavy-tailed (Student's t, 3 degrees of freedom), 1 % of the nights disturbed by an outlier.
    facts: for each machine a dict: host, microarch, brand, and lists over the nights: microcode, os, bios, version.
    planted: a dict for each step: machine and figure (indices), host, name, unit, parameters, night (the first of the new level),
    before, after (levels), sigma (standard deviation from night to night), size (in sigmas), microcode (the step comes with
    a new microcode), what changed from what to what.
    """
    random = np.random.default_rng(seed)
    listed = figure_list(figures)
    level = np.exp(random.uniform(np.log(2), np.log(80), (1, figures))) * random.uniform(0.85, 1.2, (machines, figures))
    sigma = level * np.exp(random.uniform(np.log(0.003), np.log(0.02), (machines, figures)))
    noise = random.standard_normal((machines, figures, nights))
    heavy = random.random((machines, figures)) < 0.25
    noise[heavy] = random.standard_t(3, (int(heavy.sum()), nights)) / np.sqrt(3)  # of variance 1
    disturbed = np.argwhere(random.random((machines, nights)) < 0.01)
    for machine, night in disturbed:  # something else ran: a few of the night's figures are far off
        hit = random.random(figures) < 0.15
        noise[machine, hit, night] += random.choice([-1, 1]) * random.uniform(4, 15, int(hit.sum()))
    values = level[:, :, None] + sigma[:, :, None] * noise

    facts = [_facts(random, machine, nights) for machine in range(machines)]
    planted = []
    count = min(PLANTED, machines * figures)
    with_microcode = AT_MICROCODE * count // PLANTED
    hosts = random.permutation(machines)[:count] if machines >= count else np.arange(count) % machines
    taken = set()
    for number, machine in enumerate(map(int, hosts)):
        figure = int(random.integers(figures))
        while (machine, figure) in taken:
            figure = (figure + 1) % figures
        taken.add((machine, figure))
        night = int(random.integers(max(1, min(12, nights // 3)), max(2, min(78, nights - nights // 8)) + 1))
        night = min(night, nights - 1)
        size = float(random.uniform(4, 10) * random.choice([-1, 1]))
        step = size * sigma[machine, figure]
        values[machine, figure, night:] += step
        new_microcode = number < with_microcode
        fact = facts[machine]
        what = None
        if new_microcode:
            what = _change(fact, "microcode", night, f"{int(fact['microcode'][night - 1], 16) + 1:#x}")
        else:  # nothing of the machine may seem to explain it
            for key in ("microcode", "os", "bios", "version"):
                fact[key] = [fact[key][0]] * nights
        name, unit, parameters = listed[figure]
        planted.append({"machine": machine, "figure": figure, "host": fact["host"], "name": name, "unit": unit, "parameters": parameters,
                        "night": night, "before": float(level[machine, figure]), "after": float(level[machine, figure] + step),
                        "sigma": float(sigma[machine, figure]), "size": size, "microcode": new_microcode, "changed": what})
    return np.maximum(values, level[:, :, None] * 1e-3), facts, planted


def _facts(random, machine, nights):
    model = random.choice(["sandy-bridge", "haswell", "skylake", "sapphire-rapids"])
    fact = {"host": f"lab{machine:04d}", "microarch": str(model), "brand": f"Simulated {model} part",
            "microcode": [f"{int(random.integers(0x10, 0xf0)):#x}"] * nights,
            "os": [f"Linux 6.1.0-{int(random.integers(10, 20))}-amd64"] * nights,
            "bios": [f"Sample Systems 2.{int(random.integers(0, 9))} 2025-03-01"] * nights, "version": [VERSION] * nights}
    draws = random.random(3)
    if nights > 2:
        at = [int(night) for night in random.integers(1, nights, 3)]
        if draws[0] < 0.3:
            _change(fact, "microcode", at[0], f"{int(fact['microcode'][0], 16) + 1:#x}")
        if draws[1] < 0.5:
            _change(fact, "os", at[1], "Linux 6.1.0-21-amd64")
        if draws[2] < 0.1:
            _change(fact, "bios", at[2], "Sample Systems 3.0 2026-01-15")
    return fact


def _change(fact, key, night, after):
    before = fact[key][night - 1]
    fact[key] = fact[key][:night] + [after] * (len(fact[key]) - night)
    return [key, before, after]


def stamp(moment):
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _test_rows(random, common, index, test_id, clause, when):
    """The two lines of one test: mostly passes, some noise."""
    seed = int(random.integers(1 << 32))
    start = f'{{"type":"test-start",{common},"id":"{test_id}","clauses":["{clause}"],"seed":{seed},"repetition":0,"started":"{when}"}}\n'
    records = int(random.integers(180, 240))
    n, k, status, reason, failures = 1, 0, "pass", "", []
    if random.random() < 0.002:
        n, k, status, reason = 12, 1, "disturbed", "failed in 1 of 12 attempts, and never again"
        failures = [f"suites/sample.cc:{80 + index}: record {records % 40}: 2 is not 1"]
    evidence = {"records": records, "compared": {"records >= kRecordsExpected": {"times": 1, "seen": records, "expected": 150}}}
    if index < 2:
        evidence["skid"] = {"kind": "histogram", "name": "skid", "unit": "instructions", "bins": [[1, records - k], [2, k]],
                            "expected": [1]}
    high = 0.975 if n == 1 else 0.385
    row = (f'{{"type":"test",{common},"id":"{test_id}","clauses":["{clause}"],"citations":{{"{clause}":"The words of the clause, and where '
           f'they stand."}},"status":"{status}","skip_category":null,"reason":"{reason}","duration_s":{random.random() * 0.05:.9f},'
           f'"seed":{seed},"repetition":0,"iterations":{records * 50},"comparisons":{records},"failures":{_text(failures)},'
           f'"evidence":{_text(evidence)},"stage":"one-record","erratum":"","repetitions":{{"n":{n},"k":{k},"voided":0,'
           f'"rate":{k / n!r},"low":{0.0 if k == 0 else 0.0021!r},"high":{high!r}}}}}\n')
    return start + row, status


def machine_file(seed, machine, values, fact, listed, tests=TESTS):
    """The text of one machine's results file: a run a night. values: [figures, nights]."""
    random = np.random.default_rng((seed, machine))
    common = f'"machine":"{MACHINE}","microarch":"{fact["microarch"]}"'
    heads = [f'{{"type":"measurement",{common},"name":{_text(name)},"value":' for name, _, _ in listed]
    middles = [f',"unit":{_text(unit)},"statistic":"median","n":{REPEATS},"low":' for _, unit, _ in listed]
    tails = [f',"interval":"quartiles","parameters":{_text(parameters)},"noise":{{"involuntary_switches":' for _, _, parameters in listed]
    nights = values.shape[1]
    spread = 1 + random.uniform(0.001, 0.01, values.shape)
    low, high = (values / spread).tolist(), (values * spread).tolist()
    switches = random.poisson(0.4, values.shape).tolist()
    values = values.tolist()
    out = []
    for night in range(nights):
        begin = FIRST_NIGHT + datetime.timedelta(days=night, seconds=machine * 7 % 3600, milliseconds=int(random.integers(1000)))
        when = stamp(begin)
        run = f"{begin:%Y%m%dT%H%M%SZ}-{machine:04x}"
        out.append(f'{{"type":"run","schema":1,"id":"{run}","started":"{when}","command":["skidproof","nightly"],"seed":{night + 1},'
                   f'"version":"{fact["version"][night]}","machine":"{MACHINE}","tape":""}}\n'
                   f'{{"type":"machine","machine":"{MACHINE}","name":"{MACHINE}","provenance":"silicon","vendor":"GenuineIntel",'
                   f'"brand":"{fact["brand"]}","family":6,"model":{MODELS[fact["microarch"]]},"stepping":7,'
                   f'"microcode":"{fact["microcode"][night]}","microarch":"{fact["microarch"]}","hypervisor":"","core_type":"","pmu":true,'
                   f'"sibling_thread":true,"capabilities":["pebs","ds"],"defects":[],"host":"{fact["host"]}","os":"{fact["os"][night]}",'
                   f'"bios":"{fact["bios"][night]}","tape":""}}\n')
        for figure, head in enumerate(heads):
            out.append(f'{head}{values[figure][night]!r}{middles[figure]}{low[figure][night]!r},'
                       f'"high":{high[figure][night]!r}{tails[figure]}'
                       f'{switches[figure][night]},"migrations":0,"smi":0,"steal_s":0.0}}}}\n')
        counts = dict.fromkeys(("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed"), 0)
        for index, (test_id, clause) in enumerate(zip(tests, CLAUSES)):
            text, status = _test_rows(random, common, index, test_id, clause, when)
            out.append(text)
            counts[status] += 1
        finished = stamp(begin + datetime.timedelta(seconds=95))
        out.append(f'{{"type":"end","machine":"{MACHINE}","finished":"{finished}","counts":{_text(counts)},'
                   f'"exit":0,"reason":"completed","duration_s":95.0}}\n')
    return "".join(out)


MODELS = {"sandy-bridge": 42, "haswell": 60, "skylake": 94, "sapphire-rapids": 143}


def write(folder, seed, machines=1000, nights=90, figures=60, jobs=None):
    """Writes the fleet's files and planted.json into `folder`; returns the files in order of the machines."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    values, facts, planted = simulate(seed, machines, nights, figures)
    listed = figure_list(figures)
    paths = [folder / f"{fact['host']}.jsonl" for fact in facts]
    with multiprocessing.Pool(jobs) as pool:
        tasks = ((path, seed, machine, values[machine], facts[machine], listed) for machine, path in enumerate(paths))
        for _ in pool.imap_unordered(_write_one, tasks, chunksize=4):
            pass
    truth = {"seed": seed, "machines": machines, "nights": nights, "figures": figures, "steps": planted}
    (folder / "planted.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return paths


def _write_one(task):
    path, *rest = task
    path.write_text(machine_file(*rest), encoding="utf-8")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--figures", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    asked = parser.parse_args(arguments)
    paths = write(asked.out, asked.seed, asked.machines, asked.nights, asked.figures)
    size = sum(path.stat().st_size for path in paths)
    runs = len(paths) * asked.nights
    print(f"{len(paths)} files, {runs} runs, {runs * asked.figures} measurements, {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
