"""Pages of every kind, of invented rows and frames, for the browser test and to look at by eye: python3 sample_pages.py DIR"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

import pandas as pd
import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))
WRITTEN = "2026-11-25 12:00 UTC"
HOSTILE = """<script>alert(1)</script>'" onload=x ${x} =1+1 \u202e"""


def qualification(defects=3000, missed=3):
    """A qualification over many microarchs, with a few defects missed."""
    machine, microarchs = "model:*", sorted("core2 nehalem westmere sandy-bridge ivy-bridge haswell broadwell skylake ice-lake "
                                            "alder-lake-p".split())
    rows = [sample_runs.run_row(machine, "sample-qualify"), sample_runs.machine_row(machine, "model")]
    for index in range(defects):
        microarch = microarchs[index % len(microarchs)]
        caught = index >= missed
        rows.append({"type": "defect", "machine": f"model:{microarch}+defect-{index // 10}", "microarch": microarch,
                     "id": f"defect-{index // 10}",
                     "clause": f"{'RDPMB'[index % 5]}{index // 10 % 45}", "brief": "does what the clause forbids", "caught": caught,
                     "caught_by": [f"PebsSkid.Promise{index % 7}"] * caught, "tests_run": 25, "duration_s": 0.02})
    rows.append({"type": "qualification", "machine": machine, "held": not missed, "defects": defects, "caught": defects - missed,
                 "conforming_runs": 20, "conforming_failures": 0, "missed": [f"defect-{i // 10}" for i in range(missed)]})
    return rows + [sample_runs.end_row(machine, rows, int(missed > 0))]


def errata_run(machine="model:haswell", reproduced="HSD143"):
    rows = [sample_runs.run_row(machine, f"sample-errata-{machine}"), sample_runs.machine_row(machine, "model")]
    for index in range(30):
        name = f"HSD{140 + index}"
        rows.append({"type": "erratum", "machine": machine, "microarch": "haswell", "id": name,
                     "listed": ("affected", "unknown", "not-affected")[index % 3],
                     "observed": "reproduced" if name == reproduced else ("not-reproduced", "not-run")[index % 2],
                     "contradiction": name == "HSD141",
                     "exposure": "exposed", "title": "a counter is wrong now and then", "core_type": ""})
    return rows + [sample_runs.end_row(machine, rows, 2)]


def history_frames(seed=1, nights=90, figures=60, tests=40):
    """(about, facts, history, changes, verdicts, flaky) as the store gives them, of one machine."""
    rng = random.Random(seed)
    started = pd.date_range("2026-08-01 02:00", periods=nights, freq="D", tz="UTC")
    about = {"subject": 1, "host": "lab7", "machine": "direct", "core_type": "", "provenance": "silicon", "microarch": "skylake"}
    facts = pd.DataFrame({"run": range(1, nights + 1), "run_id": [f"run-{i}" for i in range(nights)], "started": started,
                          "version": "0.1.0",
                          "microcode": ["0xf0" if i < nights // 2 else "0xf4" for i in range(nights)],
                          "os": ["Linux 6.1.0-20" if i < nights // 3 else "Linux 6.1.0-21" for i in range(nights)], "bios": "Sample 1.2",
                          "hypervisor": ""})
    lines, changes = [], []
    for figure in range(1, figures + 1):
        level, steps = rng.uniform(2, 90), figure in (7, 30, 31)
        for night in range(nights):
            if rng.random() < 0.02:
                continue
            value = level * rng.gauss(1, 0.006) * (1.05 if steps and night >= nights // 2 else 1)
            lines.append((figure, "memory.latency", "ns", "median",
                          json.dumps({"bytes": 1 << (8 + figure % 24), "page": "4KiB"}, sort_keys=True), night + 1,
                          f"run-{night}", started[night], value, value * 0.99, value * 1.012, 21))
        if steps:
            changes.append({"subject": 1, "figure": figure, "before_run": nights // 2, "after_run": nights // 2 + 1, "before": level,
                            "after": level * 1.05,
                            "effect": level * 0.05, "low": level * 0.048, "high": level * 0.052, "p": 1e-9,
                            "attributed": [["microcode", "0xf0", "0xf4"]],
                            "host": "lab7", "machine": "direct", "name": "memory.latency", "unit": "ns", "statistic": "median",
                            "parameters": json.dumps({"bytes": 1 << (8 + figure % 24), "page": "4KiB"}), "started": started[nights // 2]})
    history = pd.DataFrame(lines, columns=["figure", "name", "unit", "statistic", "parameters", "run", "run_id", "started", "value", "low",
                                           "high", "n"])
    seen = []
    for test in range(tests):
        for night in range(nights):
            status = "pass"
            if test == 1 and night >= nights * 2 // 3:
                status = "fail"
            elif test == 2 and rng.random() < 0.1:
                status = "disturbed"
            elif test == 3:
                status = "skip" if night < 20 else "pass"
            seen.append((test, f"PebsSkid.Promise{test}", night + 1, f"run-{night}", started[night], 0, status, 1, 0, ""))
    verdicts = pd.DataFrame(seen, columns=["test", "id", "run", "run_id", "started", "repetition", "status", "n", "k", "erratum"])
    flaky = pd.DataFrame([{"id": "PebsSkid.Promise2", "rate": 0.1, "low": 0.05, "high": 0.18, "nights": nights}])
    return about, facts, history, pd.DataFrame(changes), verdicts, flaky


def fleet_data(machines=1000):
    """The arguments of fleet.page_of for an invented fleet."""
    subjects, bad, errata = [], {}, []
    for index in range(machines):
        failing, odd = index % 97 == 5, index % 61 == 3
        subject = {"subject": index, "host": f"lab{index:04d}", "machine": "model:skylake" if index % 250 == 9 else "direct",
                   "core_type": "",
                   "provenance": "model" if index % 250 == 9 else "silicon", "microarch": ("skylake", "haswell")[index % 2],
                   "microcode": hex(0xf0 + index % 5),
                   "os": "Linux 6.1.0-21-amd64", "bios": "", "last_run": f"run-{index}", "last_started": "2026-11-20 02:00:00+00:00" if odd
                   else
                   "2026-11-25 02:00:00+00:00", "runs": 90, "pass": 970 - 3 * failing, "fail": 3 * failing, "error": 0, "skip": 300,
                   "xfail": 0, "xpass": 2,
                   "observed": 9, "disturbed": int(odd), "change_points": index % 13 == 0, "errata_reproduced": int(index % 50 == 0)}
        subjects.append(subject)
        if failing or odd:
            bad[index] = [(f"PebsSkid.Promise{n}", "fail") for n in range(3 * failing)] + [("PebsReload.Once", "disturbed")] * odd
        for name in ("HSD143", "SKL117"):
            errata.append({"host": subject["host"], "machine": subject["machine"], "id": name, "listed": "affected" if index % 2
                           else "unknown",
                           "observed": "reproduced" if index % 50 == 0 else "not-run", "contradiction": index % 100 == 0,
                           "title": "counts too much"})
    clauses = {f"PebsSkid.Promise{n}": ["R12", f"R{60 + n}"] for n in range(3)} | {"PebsReload.Once": ["R19"]}
    _, _, _, changes, _, flaky = history_frames(nights=20, figures=40, tests=1)
    return subjects, bad, clauses, errata, changes.to_dict("records"), [(subjects[5], row) for row in flaky.to_dict("records")]


def comparison(figures=60):
    """What skidproof.compare finds of two invented sets of runs, in the shape of its Comparison."""
    rng = random.Random(5)
    lines = []
    for index in range(figures):
        a = rng.uniform(2, 90)
        differs = index < 4
        relative = (0.05, -0.03, 0.11, 0.02)[index] if differs else rng.gauss(0, 0.004)
        lines.append({"name": "memory.latency", "unit": "ns", "statistic": "median",
                      "parameters": json.dumps({"bytes": 1 << (10 + index % 24), "page": "4KiB"}),
                      "a": a, "b": a * (1 + relative), "runs_a": 1, "runs_b": 3, "effect": a * relative, "low": 0.0, "high": 0.0,
                      "relative": relative,
                      "relative_low": relative - 0.008, "relative_high": relative + 0.008, "p": 0.001, "q": 0.002 if differs else 0.7,
                      "differs": differs,
                      "direction": ("better" if relative < 0 else "worse") if differs else "", "detectable": 0.012, "noise": 0.004,
                      "test": "rank"})
    verdicts = pd.DataFrame([{"id": "PebsSkid.Promise1", "a": "pass 3", "b": "fail 3", "failed_a": 0, "tried_a": 3, "failed_b": 3,
                              "tried_b": 3, "p": 0.001,
                              "q": 0.01, "kind": "worse", "erratum": "", "clauses": ["R12"]},
                             {"id": "PebsSkid.Promise2", "a": "xfail 1", "b": "xpass 1", "failed_a": 0, "tried_a": 1, "failed_b": 0,
                              "tried_b": 1, "p": 1.0,
                              "q": 1.0, "kind": "erratum", "erratum": "HSD143", "clauses": ["R13"]}])
    sides = [types.SimpleNamespace(name=name, machine="native", provenance="native", runs=[f"run-{name}"], started=["2026-11-25T02:00:00Z"],
                                   facts={"host": ["lab7"], "microcode": [code]}, problems=[]) for name,
             code in (("before", "0xf0"), ("after", "0xf4"))]
    return types.SimpleNamespace(a=sides[0], b=sides[1], figures=pd.DataFrame(lines), verdicts=verdicts,
                                 notes=["Only one run stands on one side."], rate=0.01,
                                 worse=True, common={"shift": 0.0, "clock": None, "words": "", "corrected": False, "differs": False,
                                                     "direction": ""})


def report(folder, name, *runs):
    """A page of `skidproof report` from these lists of rows."""
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for index, rows in enumerate(runs):
            files.append(pathlib.Path(scratch) / f"{index}.jsonl")
            sample_runs.write(files[-1], rows)
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "report", "--out", f"{scratch}/out", *files], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / f"{name}.html").write_text((pathlib.Path(scratch) / "out" / "report.html").read_text(encoding="utf-8"), encoding="utf-8")


def side_by_side(folder):
    """The page of machines that are compared: two of silicon, a model."""
    others = sample_runs.shape_run(2, run_id="sample-other", faster=1.2, l1=32 << 10, l2=1 << 20, l3=0)
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for index, rows in enumerate((sample_runs.shape_run(), others, sample_runs.shape_run(3, "model:skylake", "sample-model"))):
            files.append(pathlib.Path(scratch) / f"{index}.jsonl")
            sample_runs.write(files[-1], rows)
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "characterize", "--compare", *files, "--out", scratch], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "machines.html").write_text((pathlib.Path(scratch) / "comparison.html").read_text(encoding="utf-8"), encoding="utf-8")


def write_all(folder):
    from skidproof.report import comparison as compared, fleet, history
    folder.mkdir(parents=True, exist_ok=True)
    report(folder, "run", sample_runs.model_run())
    report(folder, "characterize", sample_runs.native_run())
    report(folder, "shape", sample_runs.shape_run())
    side_by_side(folder)
    report(folder, "qualification", qualification(600))
    report(folder, "several", sample_runs.model_run(), errata_run(), errata_run("model:broadwell"), sample_runs.small_model_run())
    (folder / "history.html").write_text(history.page_of(*history_frames(), written=WRITTEN), encoding="utf-8")
    (folder / "comparison.html").write_text(compared.comparison_page(comparison(), WRITTEN), encoding="utf-8")
    (folder / "fleet.html").write_text(fleet.page_of(*fleet_data(300), written=WRITTEN), encoding="utf-8")


if __name__ == "__main__":
    write_all(pathlib.Path(sys.argv[1]))
