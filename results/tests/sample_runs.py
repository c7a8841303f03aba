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


def inferred(machine, name, value, unit, beyond, **parameters):
    """What was inferred: the largest size within and the smallest beyond."""
    row = measurement(machine, f"shape.{name}", value, unit, value, beyond, **parameters)
    return row | {"statistic": "inferred", "interval": "last within, first beyond"}


def unclear(machine, name, reason):
    return {"type": "unmeasured", "machine": machine, "microarch": "", "name": name, "reason": reason}


def curve_rows(machine, name, key, sizes, cost, rng, **parameters):
    """Rows of a curve in cycles, with a little noise."""
    found = []
    for size in sizes:
        value = cost(size) * rng.uniform(0.995, 1.005)
        found.append(measurement(machine, name, value, "cycles", value * 0.99, value * 1.01, **parameters, **{key: size}))
    return found


def shape_rows(machine, l1=48 << 10, l2=2 << 20, l3=105 << 20):
    """What is inferred, as the characterization writes it: clear, beside CPUID and published figures, and not clear."""
    return [
        inferred(machine, "l1d.size", l1, "bytes", l1, told=l1, source="CPUID.4"),
        inferred(machine, "l1d.ways", 12, "ways", 12, told=12, source="CPUID.4"),
        inferred(machine, "line", 64, "bytes", 64, told=64, source="CPUID.4"),
        inferred(machine, "l2.size", l2, "bytes", l2, told=l2 // 2, source="CPUID.4"),
        inferred(machine, "l2.ways", 16, "ways", 16, told=16, source="CPUID.4"),
        inferred(machine, "l3.size", l3, "bytes", int(l3 * 1.1)) if l3 else
        unclear(machine, "shape.l3.size", "the rise is as wide as the level: other guests share it"),
        inferred(machine, "dtlb.reach", 96, "entries", 97, told=96, source="CPUID.18H"),
        inferred(machine, "stlb.reach", 2048, "entries", 2112, told=2048, source="CPUID.18H"),
        inferred(machine, "btb.reach", 12288, "branches", 12480, published=12288, source="Intel's optimization manual"),
        inferred(machine, "return_stack.depth", 24, "calls", 25, published=24, source="measured by others"),
        unclear(machine, "shape.history.length", "the rise does not stay: 2.1 cycles at 512, 1.9 at 640 <script>"),
        inferred(machine, "indirect.targets", 1024, "targets", 1100),
        inferred(machine, "rob.size", 510, "entries", 514, published=512, source="Intel's optimization manual"),
        inferred(machine, "load_queue.size", 190, "entries", 194, published=192, source="Intel's optimization manual"),
        inferred(machine, "store_queue.size", 112, "entries", 114, published=112, source="Intel's optimization manual"),
        inferred(machine, "scheduler.size", 97, "entries", 101, published=160, source="measured by others"),
        inferred(machine, "int_registers.size", 278, "registers", 284),
        inferred(machine, "vector_registers.size", 330, "registers", 336),
        inferred(machine, "uop_cache.reach", 40960, "bytes", 45056),
    ]


def memory_rows(machine, rng, l1=48 << 10, l2=2 << 20, l3=105 << 20, faster=1.0):
    """Latency by footprint, stride and pages; bandwidth by footprint, kind and CPUs."""
    found = []
    levels = ((l1, 5.0), (l2, 15.5), (l3 or 105 << 20, 74.0), (1 << 60, 330.0))
    for page in ("4KiB", "2MiB"):
        for exponent in range(24, 58):
            size = int(2 ** (exponent / 2))
            cycles = next(v for limit, v in levels if size <= limit) / faster * rng.uniform(0.995, 1.005)
            cycles *= 1.25 if page == "4KiB" and size > 1 << 23 else 1
            for unit, value in (("cycles", cycles), ("ns", cycles / 3.4)):
                found.append(measurement(machine, "memory.latency", value, unit, value * 0.99, value * 1.012, bytes=size, page=page))
    for order, far in (("forward", 0.2), ("random", 1.0)):
        for exponent in range(6, 13):
            value = 5 + 100 * far * min(1, (1 << exponent) / 2048)
            found.append(measurement(machine, "memory.stride_latency", value, "ns", value * 0.98, value * 1.02, bytes=256 << 20,
                                     stride=1 << exponent, order=order, page="2MiB"))
    found += curve_rows(machine, "tlb.latency", "pages", [2 ** (e / 2) // 1 for e in range(4, 27)],
                        lambda pages: 0.3 if pages <= 96 else 7.2 if pages <= 2048 else 24.0, rng, told=96, source="CPUID.18H")
    for level, ways in (("l1d", 12), ("l2", 16)):
        found += curve_rows(machine, "cache.conflict", "lines", range(2, 25), lambda lines, ways=ways: 5 if lines <= ways else 15, rng,
                            level=level, stride=4096)
    kinds = [(f"regular-{w}", w * 6.5, True) for w in (8, 16, 32, 64)] + [("non-temporal-64", 11, False), ("rep-stosb", 150, True)]
    for stream in ("load", "store", "copy"):
        for kind, top, cached in kinds:
            if stream == "load" and not kind.startswith("regular"):
                continue
            for exponent in range(12, 29):
                shares = 1.0 if 1 << exponent <= l1 else 0.5 if 1 << exponent <= l2 else 0.2
                value = max(top * shares if cached else top, 9.0) * {"load": 1, "store": 0.5, "copy": 0.6}[stream] * faster
                found.append(measurement(machine, f"{stream}.bandwidth", value, "GB/s", value * 0.985, value * 1.01, bytes=1 << exponent,
                                         kind=kind.replace("stosb", "movsb" if stream == "copy" else "stosb"), page="2MiB"))
        for cpus in (1, 2, 4, 8, 16):
            for size, each, most in ((16 << 10, 180, 1 << 20), (256 << 20, 11, 120)):
                value = min(cpus * each, most) * rng.uniform(0.99, 1.01)
                found.append(measurement(machine, f"scaling.{stream}", value, "GB/s", value * 0.98, value * 1.02, cpus=cpus, bytes=size))
    for streams in (1, 3, 7):
        for delay in (0, 64, 256, 1024):
            bandwidth = streams * 11 / (1 + delay / 200)
            value = 95 + 0.004 * bandwidth ** 2.4
            found.append(measurement(machine, "memory.loaded_latency", value, "ns", value * 0.98, value * 1.03, bandwidth=bandwidth,
                                     streams=streams, delay=delay))
    return found


def core_rows(machine, rng, cpus=8):
    """Forwarding, splits, transfers between cores, branches, windows, instructions, code."""
    found = []
    for store in (1, 2, 4, 8, 16, 32):
        for load in (1, 2, 4, 8, 16, 32):
            for offset in range(0, store, max(1, store // 8)):
                fits = offset + load <= store
                value = (5 if fits else 19) * rng.uniform(0.99, 1.01)
                found.append(measurement(machine, "store.forwarding", value, "cycles", value * 0.99, value * 1.01, store_bytes=store,
                                         load_bytes=load, offset=offset, place="line", address="two registers",
                                         verdict="forwarded" if fits else "blocked"))
    for offset in range(-64, 65, 8):
        value = 6 if 0 <= offset < 8 else 1
        found.append(measurement(machine, "store.alias_4k", value, "cycles", value, value * 1.02, offset=offset, chain="address"))
    for kind in ("load", "store"):
        for border, value in (("none", 0.3), ("line", 0.5), ("page", 2.5 if kind == "load" else 25.0)):
            for size in (8, 32, 64):
                found.append(measurement(machine, f"split.{kind}", value, "cycles", value * 0.98, value * 1.02, border=border, bytes=size))
    for source in range(cpus):
        for target in range(cpus):
            if source != target:
                value = (52 if source // 4 == target // 4 else 118) * rng.uniform(0.98, 1.02)
                for unit, factor in (("ns", 1), ("cycles", 3.4)):
                    found.append(measurement(machine, "core.transfer", value * factor, unit, value * 0.97 * factor, value * 1.03 * factor,
                                             **{"from": source, "to": target}))
    for spacing in (16, 32):
        sizes = [int(2 ** (e / 2)) for e in range(8, 32)]
        found += curve_rows(machine, "branch.btb", "branches", sizes, lambda n: 1 if n <= 512 else 2.1 if n <= 12288 else 9, rng,
                            spacing=spacing)
    found += curve_rows(machine, "branch.taken", "branches", (4, 16, 64, 256), lambda n: 1.0 if n < 100 else 2.0, rng, spacing=32)
    found += curve_rows(machine, "branch.history", "length", [2 ** e for e in range(2, 14)], lambda n: 1 + (n > 512) * (n / 2048), rng)
    found += curve_rows(machine, "branch.return_stack", "depth", range(4, 40, 2), lambda n: 2 if n <= 24 else 2 + (n - 24) * 0.7, rng)
    found += curve_rows(machine, "branch.indirect", "targets", [2 ** e for e in range(0, 13)], lambda n: 2 if n <= 1024 else 19, rng)
    found += curve_rows(machine, "branch.alignment", "offset", range(0, 64, 4), lambda n: 1.5 if n % 32 > 24 else 1.0, rng)
    windows = {"nop": 510, "load": 190, "store": 112, "add": 278, "dependent add": 97, "vector add": 330}
    for filler, size in windows.items():
        found += curve_rows(machine, "window.time", "count", range(size - 90, size + 60, 6), lambda n, size=size: 330 if n <= size else 640,
                            rng, filler=filler)
    found += curve_rows(machine, "code.footprint", "bytes", [2 ** (e / 2) // 1 for e in range(20, 46)],
                        lambda n: 1 if n <= 40960 else 1.6 if n < 1 << 19 else 3, rng)
    for index, (name, latency, throughput) in enumerate((("add r64, r64", 1, 0.2), ("imul r64, r64", 3, 1), ("div r64", 18, 6),
                                                         ("mulps xmm", 4, 0.5), ("vfmadd231ps ymm", 4, 0.5), ("vpaddd zmm", 1, 0.5),
                                                         ("popcnt r64", 3, 1), ("xor r64, same", 0, 0.2), ("mov r64, r64", 0, 0.2))):
        if index < 7:
            found.append(measurement(machine, "instruction.latency", latency, "cycles", latency, latency * 1.01, instruction=name))
        found.append(measurement(machine, "instruction.throughput", throughput, "cycles", throughput, throughput * 1.02, instruction=name))
    for name, unit, value in (("clock.tsc", "GHz", 2.1), ("clock.core", "GHz", 3.4), ("clock.rdtsc", "cycles", 26), ("clock.rdtscp", "cycles", 40),
                              ("branch.mispredict_penalty", "cycles", 21.5), ("branch.mispredict_penalty", "ns", 6.3)):
        found.append(measurement(machine, name, value, unit, value * 0.995, value * 1.005))
    return found


def shape_run(seed=1, machine="native", run_id="sample-shape", faster=1.0, **caches):
    """The whole characterization: shape, curves, matrices, tables."""
    rng = random.Random(seed)
    brand = {"brand": f"Invented(R) CPU {seed}", "host": f"lab{seed}", "hypervisor": "KVMKVMKVM" if seed == 1 else ""}
    rows = [run_row(machine, run_id), machine_row(machine, "model" if machine.startswith("model") else "silicon", microarch="", **brand)]
    rows += shape_rows(machine, **caches) + memory_rows(machine, rng, faster=faster, **caches) + core_rows(machine, rng)
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
    write(folder / "shape.jsonl", shape_run())
    write(folder / "other.jsonl", shape_run(2, run_id="sample-other", faster=1.2, l1=32 << 10, l2=1 << 20, l3=0))
    write(folder / "model-shape.jsonl", shape_run(3, "model:skylake", "sample-model-shape", l1=32 << 10, l2=256 << 10, l3=8 << 20))
