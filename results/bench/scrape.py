#!/usr/bin/env python3
"""A real Prometheus scrapes a real node-exporter with our text file, and our own text over HTTP; what PromQL answers must equal the
figures of the results file.

    results/bench/scrape.py FILE…              results files (*.jsonl)
    results/bench/scrape.py --serve URL FILE…  asks `skidproof serve` at this URL for /metrics, which must show the same files

Exit codes: 0 every figure was equal; 1 one was not, or was not there; 2 a program did not start or did not answer.
"""

import argparse
import contextlib
import decimal
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))
sys.dont_write_bytecode = True

from skidproof import rows  # noqa: E402
from skidproof.export import common, prometheus  # noqa: E402

PATIENCE_S = 60
# Written down here again, so that a wrong conversion of the exporter shows.
BASE_UNITS = {"ns": ("_seconds", -9), "GHz": ("_hertz", 9), "GB/s": ("_bytes_per_second", 9), "B/cycle": ("_bytes_per_cycle", 0),
              "bool": ("_bool", 0),
              **{unit: (f"_{unit}", 0) for unit in ("cycles", "instructions", "loads", "stores", "uops", "records", "branches")}}
CONFIGURATION = """\
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: textfile, static_configs: [{{targets: ['{textfile}']}}]}}
  - {{job_name: serve, metrics_path: '{path}', static_configs: [{{targets: ['{serve}']}}]}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--serve", metavar="URL", help="of `skidproof serve` (default: this program serves the same text)")
    options = parser.parse_args()
    runs = [run for path in options.files for run in rows.read_source(path).runs]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        try:
            return scrape(pathlib.Path(folder), running, options, runs)
        except (OSError, TimeoutError) as error:
            print(f"scrape: {error}", file=sys.stderr)
            return 2


def scrape(folder, running, options, runs):
    textfiles = folder / "textfile"
    export = [sys.executable, "-B", RESULTS / "skidproof", "export", "--format", "prometheus", "--out", f"{textfiles}/"]
    subprocess.run([*export, *options.files], check=True)
    ports = free_ports(2)
    start(running, folder, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
          f"--collector.textfile.directory={textfiles}", f"--web.listen-address=127.0.0.1:{ports[0]}")
    serve = urllib.parse.urlsplit(options.serve or own_server(running, prometheus.metrics_text(runs)))
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(
        textfile=f"127.0.0.1:{ports[0]}", serve=serve.netloc, path=serve.path if serve.path.strip("/") else "/metrics"))
    start(running, folder, "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
          f"--web.listen-address=127.0.0.1:{ports[1]}", "--log.level=warn")
    ask = Prometheus(f"http://127.0.0.1:{ports[1]}")
    wait_for(lambda: [value for _, value in ask("up")] == [1.0, 1.0] and len(ask("count by (job) (skidproof_run_info)")) == 2,
             "both targets are up and have series")
    print(f"{program_version('prometheus')}; {program_version('prometheus-node-exporter')}")
    wrong = [problem for job in ("textfile", "serve") for problem in compare(ask, job, runs)]
    refused = ask("node_textfile_scrape_error")
    if [value for _, value in refused] != [0.0]:
        wrong.append(f"the node-exporter refused the file: node_textfile_scrape_error is {refused}")
    for problem in wrong[:20]:
        print(f"WRONG: {problem}")
    return 1 if wrong else 0


def compare(ask, job, runs):
    """What PromQL answers otherwise than the results files, as words. What it should answer is worked out from the rows."""
    wrong, figures, counts = [], {}, {}
    for run in sorted(runs, key=lambda run: str(run.run.get("started", ""))):
        for row in run.measurements:
            host = run.machine_row(row["machine"]).get("host") or "unknown"
            place = (host, row["machine"], row["name"], row.get("statistic", ""), row["unit"])
            plain = rows.figure_parameters(row) or {}
            figures[(*place, json.dumps(plain, sort_keys=True))] = row["value"]
        if run.tests or run.open_tests:
            for machine in common.machine_names(run):
                host = run.machine_row(machine).get("host") or "unknown"
                for status in rows.STATUSES:
                    counts[host, machine, status] = sum(one.status == status and one.machine == machine for one in common.outcomes(run))
    for (host, machine, name, statistic, unit, parameters), value in figures.items():
        suffix, exponent = BASE_UNITS.get(unit, ("", 0))
        metric = f"skidproof_measurement{suffix}"
        labels = {"job": job, "host": host, "machine": machine, "name": name, "statistic": statistic}
        labels |= prometheus.parameter_labels(json.loads(parameters)) | ({} if suffix else {"unit": unit})
        answer = ask(metric + selector(labels))
        wanted = float(decimal.Decimal(repr(value)).scaleb(exponent))
        if [seen for _, seen in answer] != [wanted]:
            wrong.append(f"{job}: {metric}{selector(labels)} is {answer}, and {wanted} in the file")
    for (host, machine, status), count in counts.items():
        query = "sum(skidproof_tests" + selector({"job": job, "host": host, "machine": machine, "status": status}) + ")"
        if [seen for _, seen in ask(query)] != [count]:
            wrong.append(f"{job}: {query} is {ask(query)}, and {count} in the file")
    print(f"{job}: {len(figures)} figures and {len(counts)} counts of tests asked for by PromQL, {len(wrong)} otherwise than in the file")
    if not figures and not counts:
        wrong.append(f"{job}: the files hold nothing to compare")
    return wrong


def selector(labels):
    quoted = ((key, json.dumps(common.visible(value, keep="\n"), ensure_ascii=False)) for key, value in labels.items())
    return "{" + ",".join(f"{key}={value}" for key, value in quoted) + "}"


class Prometheus:
    def __init__(self, url):
        self.url = url

    def __call__(self, query):
        """[(labels, value)]"""
        body = urllib.parse.urlencode({"query": query}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", data=body, timeout=10) as answer:
            return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]


def own_server(running, text):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    running.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}/metrics"


def start(running, folder, *command):
    log = running.enter_context(open(folder / f"{command[0]}.log", "wb"))
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    running.callback(end, process)


def end(process):
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(holds, what):
    last = time.monotonic() + PATIENCE_S
    while time.monotonic() < last:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if holds():
                return
        time.sleep(0.3)
    raise TimeoutError(f"after {PATIENCE_S} s it does not hold that {what}")


def free_ports(count):
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def program_version(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0].partition(" (")[0]


if __name__ == "__main__":
    sys.exit(main())
