"""Invented results files for the report's tests: what a model run and a native characterization look like.

As a program: python3 sample_runs.py DIR writes them there, to look at the report by eye.
"""

import json
import pathlib
import random
import sys

TIME = "2024-05-01T12:00:00.000Z"
FIRSTS = ("cmp r,r", "cmp r,m", "test r,r", "add r,r", "sub r,r", "and r,r", "inc r", "dec r")
JUMPS = ("jo", "jb", "jz", "jbe", "js", "jp", "jl", "jle")


def histogram(name, unit, bins, expected=None):
    item = {"kind": "histogram", "name": name, "unit": unit, "bins": sorted([v, n] for v, n in bins.items())}
    return item | ({"expected": expected} if expected else {})


def run_row(machine, run_id):
    return {"type": "run", "schema": 1, "id": run_id, "started": TIME, "command": ["skidproof", "run", "--machine", machine],
            "seed": 1, "version": "0.1.0", "machine": machine}


def machine_row(machine, provenance, **fields):
    row = {"type": "machine", "machine": machine, "name": machine, "provenance": provenance, "vendor": "GenuineIntel", "brand": "sample",
           "family": 6, "model": 42, "stepping": 7, "microcode": None, "microarch": "sandy-bridge", "hypervisor": "", "core_type": "",
           "pmu": provenance == "model", "sibling_thread": False, "capabilities": ["pebs"], "defects": [], "host": "", "os": ""}
    return row | fields


def test_rows(machine, test_id, status="pass", **fields):
    start = {"type": "test-start", "machine": machine, "microarch": "sandy-bridge", "id": test_id, "clauses": ["R10"], "seed": 1,
             "repetition": 0, "started": TIME}
    ran = status not in ("skip",)
    row = {"type": "test", "machine": machine, "microarch": "sandy-bridge", "id": test_id, "clauses": ["R10"],
           "citations": {"R10": "The words of the clause, and where they stand."}, "status": status, "skip_category": None, "reason": "",
           "duration_s": 0.012, "seed": 1, "repetition": 0, "iterations": 1000 * ran, "comparisons": 990 * ran,
           "failures": [], "evidence": {}, "stage": "one-record", "erratum": "",
           "repetitions": {"n": 1 * ran, "k": 0, "voided": 0, "rate": 0, "low": 0 if ran else None, "high": 0.975 if ran else None}}
    return [start, row | fields]


def measurement(machine, name, value, unit, low, high, **parameters):
    return {"type": "measurement", "machine": machine, "microarch": "", "name": name, "value": value, "unit": unit, "statistic": "median",
            "n": 21, "low": low, "high": high, "interval": "quartiles", "parameters": parameters,
            "noise": {"involuntary_switches": 2, "migrations": 0, "smi": 0, "steal_s": 0}}


def end_row(machine, rows, exit_code=0):
    counts = {s: sum(r.get("status") == s for r in rows) for s in ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")}
    return {"type": "end", "machine": machine, "finished": TIME, "counts": counts, "exit": exit_code, "reason": "completed", "duration_s": 6.5}


def model_run(seed=1):
    """All plots of the PEBS suites, and every outcome that a test can have."""
    rng = random.Random(seed)
    machine = "model:sandy-bridge"
    rows = [run_row(machine, "sample-model"), machine_row(machine, "model")]
    for kernel in ("load_chase", "store_stream", "branch_patterns", "fused_branch", "call_return", "division_shadow"):
        for counter in range(4):
            fused = kernel == "fused_branch"
            bins = {1: 400, 2: 590} if fused else {1: 990}
            rows += test_rows(machine, f"PebsSkid.IsOneInstruction/{kernel}_pmc{counter}",
                              evidence={"skid": histogram("skid", "instructions", bins, [1, 2] if fused else [1]), "records": 990})
    bad = histogram("skid", "instructions", {1: 950, 2: 30, 3: 9, 7: 1}, [1])
    rows += test_rows(machine, "PebsSkid.IsOneInstruction/split_access_pmc2", "fail", evidence={"skid": bad, "ip": "0x7f0012345678"},
                      repetitions={"n": 4, "k": 3, "voided": 0, "rate": 0.75, "low": 0.194, "high": 0.994},
                      failures=["suites/pebs_skid.cc:88: record 31: IP 0x1014 is 2 instructions after the event, <1> expected"])
    for counter in (0, 1, 2, 3):
        shadow = {p: rng.randint(60, 80) for p in range(24)}
        if counter != 1:
            shadow = {p: n // 6 for p, n in shadow.items()} | {9: 1400}
        rows += test_rows(machine, f"PebsPdir.Distribution/pmc{counter}", evidence={"pdir": histogram("pdir", "position in the loop", shadow)})
    late = {}
    for _ in range(3000):
        value = int(rng.lognormvariate(2.5, 0.6))
        late[value] = late.get(value, 0) + 1
    far = {int(rng.expovariate(1 / 400)): 1 for _ in range(900)}
    rows += test_rows(machine, "PebsThreshold.Lateness/all_records", evidence={"late": histogram("pmi-lateness", "instructions", late)})
    rows += test_rows(machine, "PebsThreshold.Lateness/one_record", evidence={"late": histogram("pmi-lateness", "instructions", far)})
    for name in ("PebsReload.", "PebsLayout.", "PmuStatus."):
        for index in range(rng.randint(5, 14)):
            rows += test_rows(machine, f"{name}Promise{index}", evidence={"records": rng.randint(1, 500)})
    rows += test_rows(machine, "PmuStatus.AnyThread", "skip", skip_category="needs-sibling", reason="the core has one thread")
    rows += test_rows(machine, "PmuStatus.Errors", "error", reason="the engine does not know `vaddpd`")
    often = {"n": 4, "k": 3, "voided": 0, "rate": 0.75, "low": 0.194, "high": 0.994}
    rows += test_rows(machine, "PebsReload.Known", "xfail", reason="X1 is listed for 06_2A_7", erratum="X1", repetitions=often,
                      failures=["suites/x.cc:1: 5 is not 4"])
    rows += test_rows(machine, "PebsReload.KnownAndHeld", "xpass", reason="X2 is listed for 06_2A_7, and did not show", erratum="X2",
                      evidence={"compared": {"a == b": {"times": 9, "seen": 1, "expected": 1}}})
    rows += test_rows(machine, "PebsReload.Once", "disturbed", reason="failed in 1 of 12 attempts, and never again",
                      repetitions=often | {"n": 12, "k": 1}, failures=["suites/x.cc:2: 6 is not 4"])
    rows += test_rows(machine, "PebsEdges.Open", "observed", comparisons=0, evidence={"observed": {"last record": "past the maximum"}})
    return rows + [end_row(machine, rows, 1)]


def native_run(seed=1):
    """All plots of the characterization."""
    rng = random.Random(seed)
    machine = "native"
    rows = [run_row(machine, "sample-native"),
            machine_row(machine, "silicon", microarch="", hypervisor="KVMKVMKVM", microcode="0x2b000603")]
    steps = ((32 << 10, 1.5), (2 << 20, 5.0), (16 << 20, 28.0), (1 << 40, 115.0))
    for page in ("4KiB", "2MiB"):
        for exponent in range(24, 57):
            size = int(2 ** (exponent / 2))
            value = next(v for limit, v in steps if size <= limit) * rng.uniform(0.98, 1.03) * (1.25 if page == "4KiB" and size > 1 << 24 else 1)
            rows.append(measurement(machine, "memory.latency", value, "ns", value * 0.97, value * 1.08, bytes=size, page=page))
    for kind, small, large in (("regular-8", 47, 8.5), ("regular-16", 105, 8.7), ("regular-32", 217, 8.9), ("non-temporal", 22, 22.5)):
        for exponent in range(12, 29):
            value = (small if exponent < 16 else small * 0.6 if exponent < 21 and kind != "non-temporal" else large) * rng.uniform(0.97, 1.03)
            rows.append(measurement(machine, "store.bandwidth", value, "GB/s", value * 0.95, value * 1.04, bytes=1 << exponent, kind=kind))
    for first in FIRSTS:
        for jump in JUMPS:
            gain = 0.0 if first in ("inc r", "dec r") and jump in ("jb", "jbe") else rng.uniform(0.15, 0.18)
            rows.append(measurement(machine, "fusion.gain", gain, "cycles", gain - 0.01, gain + 0.01, pair=f"{first} + {jump}"))
    for pattern, value in (("pseudo-random", 24.4), ("alternating", 0.3)):
        rows.append(measurement(machine, "branch.misprediction", value, "cycles", value * 0.94, value * 1.12, pattern=pattern))
    return rows + [end_row(machine, rows)]


def small_run():
    """A native run with one plot."""
    machine = "native"
    rows = [run_row(machine, "sample-small"), machine_row(machine, "silicon", microarch=""),
            measurement(machine, "branch.misprediction", 24.4, "cycles", 22.8, 27.8, pattern="pseudo-random")]
    return rows + [end_row(machine, rows)]


def small_model_run():
    """A model run with a test matrix and a skid plot."""
    machine = "model:sandy-bridge"
    rows = [run_row(machine, "sample-small-model"), machine_row(machine, "model")]
    rows += test_rows(machine, "PebsSkid.One", evidence={"skid": histogram("skid", "instructions", {1: 9}, [1])})
    return rows + [end_row(machine, rows)]


def write(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.jsonl", model_run())
    write(folder / "native.jsonl", native_run())
