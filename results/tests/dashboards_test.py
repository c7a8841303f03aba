"""Every query of the Grafana dashboards is answered by a real PostgreSQL and a real Prometheus; the alerts speak of series that there are."""

import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import psycopg2
import sample_runs
from postgres_server import Server

RESULTS = pathlib.Path(__file__).resolve().parents[1]
DASHBOARDS = RESULTS / "dashboards"
sys.path.insert(0, str(RESULTS))

from skidproof import rows, store  # noqa: E402
from skidproof.export import prometheus  # noqa: E402

HOST = "a host's \"name\" $figure"
NOW = datetime.datetime.now(datetime.timezone.utc)


def night(run, number, hours_ago, microcode):
    """The run as of another night."""
    found = json.loads(json.dumps(run))
    for row in found:
        if row["type"] == "run":
            row |= {"id": f"night-{row['machine']}-{number}", "started": (NOW - datetime.timedelta(hours=hours_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if row["type"] == "machine":
            row |= {"host": HOST, "microcode": microcode}
        if row["type"] == "end":
            row["finished"] = (NOW - datetime.timedelta(hours=hours_ago - 1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def erratum(machine, name, observed):
    return {"type": "erratum", "machine": machine, "id": name, "core_type": "", "microarch": "sandy-bridge", "aliases": [], "title": "t", "listed": "affected",
            "listed_by": "model", "listed_why": "", "fixed_from": None, "observed": observed, "observed_why": "", "tries": 10,
            "shown": 10 if observed == "reproduced" else 0, "excluded_rate": None, "exposure": "exposed", "exposure_why": "", "contradiction": False,
            "clauses": [], "tests": []}


def runs():
    found = []
    for number, (hours_ago, microcode) in enumerate(((50, "0x1"), (26, "0x2"), (2, "0x2"))):
        model = night(sample_runs.model_run(), number, hours_ago, microcode)
        model[-1:-1] = [erratum("model:sandy-bridge", "BJ103", "reproduced"), erratum("model:sandy-bridge", "BJ122", "not-reproduced")]
        native = night(sample_runs.native_run(), number, hours_ago, microcode)
        native.insert(-1, sample_runs.measurement("native", "clock.core", 3.2, "GHz", 3.19, 3.21))
        found += [model, native]
    found.append(night(sample_runs.small_run(), "cut", 1, "0x2")[:-1])  # the last one of its machine
    found[-1] += [sample_runs.measurement("native", name, 3.2, unit, 3.1, 3.3) for name, unit in (
        ("clock.core", "GHz"), ("store.bandwidth", "GB/s"), ("memory.latency", "ns"), ("branch.misprediction", "cycles"))]
    return found


def queries(dashboard):
    """(title, query) of panels, annotations and variables."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target
    for annotation in dashboard["annotations"].get("list", []):
        yield annotation["name"], annotation["target"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], {"rawSql": variable["query"], "expr": variable["query"]}


def dashboards(source):
    for path in sorted(DASHBOARDS.glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        if "panels" in dashboard and any(v["type"] == "datasource" and v["query"] == source for v in dashboard["templating"]["list"]):
            yield path.stem, dashboard


class Postgres(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server()
        cls.addClassCleanup(server.stop)
        url = server.start().create("lab")
        with tempfile.TemporaryDirectory() as folder:
            for number, run in enumerate(runs()):
                sample_runs.write(pathlib.Path(folder) / f"{number}.jsonl", run)
            done = subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "store", "add", "--store", url, folder], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        cls.store = store.open(url)
        cls.addClassCleanup(cls.store.close)
        cls.subjects = {row.machine: row.subject for row in cls.store.subjects().itertuples()}
        native = cls.subjects["native"]
        history, facts = cls.store.history(native), cls.store.facts(native)
        change = {"subject": native, "figure": int(history.iloc[0].figure), "before_run": int(facts.iloc[0].run), "after_run": int(facts.iloc[1].run),
                  "before": 1.0, "after": 1.1, "effect": 0.1, "low": 0.05, "high": 0.15, "p": 1e-6, "attributed": [["microcode", "0x1", "0x2"]], "computed": NOW}
        cls.store.replace_change_points([change])
        cls.connection = psycopg2.connect(url)
        cls.addClassCleanup(cls.connection.close)
        cls.connection.autocommit = True

    def answer(self, sql, subject):
        """As Grafana asks: variables of several values come quoted, the time range as a comparison."""
        between = f"BETWEEN '{NOW - datetime.timedelta(days=90)}' AND '{NOW + datetime.timedelta(days=1)}'"
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT DISTINCT name FROM figures")
            figures = ",".join("'" + name.replace("'", "''") + "'" for name, in cursor.fetchall())
            sql = re.sub(r"\$__timeFilter\(([\w.]+)\)", rf"\1 {between}", sql)
            sql = sql.replace("$provenance", "'model','native'").replace("$subject", str(subject)).replace("$figure", figures)
            assert "$" not in sql, sql
            cursor.execute(sql)
            return [column.name for column in cursor.description], cursor.fetchall()

    def test_every_query_is_answered_with_something(self):
        seen = 0
        for name, dashboard in dashboards("grafana-postgresql-datasource"):
            for title, target in queries(dashboard):
                with self.subTest(dashboard=name, query=title):
                    found = [row for subject in self.subjects.values() for row in self.answer(target["rawSql"], subject)[1]]
                    self.assertTrue(found, target["rawSql"])
                    seen += 1
        self.assertGreater(seen, 15)

    def panel(self, name, title, machine="native"):
        dashboard = dict(dashboards("grafana-postgresql-datasource"))[name]
        columns, found = self.answer(dict(queries(dashboard))[title]["rawSql"], self.subjects[machine])
        return [dict(zip(columns, row)) for row in found]

    def test_the_figures_are_those_of_the_files(self):
        wanted = sorted(row["value"] for run in runs() if run[0]["machine"] == "native" for row in run if row["type"] == "measurement")
        self.assertEqual(sorted(row["value"] for row in self.panel("machine", "Figures")), wanted)
        self.assertEqual([row["machines"] for row in self.panel("fleet", "Machines with failures") if "machines" in row], [])
        self.assertEqual(self.panel("fleet", "Machines with failures")[0]["failing"], 1)
        self.assertEqual(self.panel("fleet", "Runs cut short")[0]["cut"], 1)
        self.assertEqual(self.panel("fleet", "Errata reproduced")[0]["reproduced"], 1)

    def test_what_changed_is_told_once(self):
        changed = [row["text"] for row in self.panel("machine", "What changed")]
        self.assertEqual([text for text in changed if "microcode 0x2" in text], ["microcode 0x2"])
        self.assertEqual(len(self.panel("fleet", "Changes")), 1)


class Prometheus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        found = [run for rows_of_run in runs() for run in rows.source_of("test", rows_of_run).runs]
        cls.text = prometheus.metrics_text(found)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(cls.text.encode())

            def log_message(self, *_):
                pass

        target = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=target.serve_forever, daemon=True).start()
        cls.addClassCleanup(target.server_close)
        cls.addClassCleanup(target.shutdown)
        configuration = pathlib.Path(folder.name) / "p.yml"
        configuration.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [
            {"job_name": "skidproof", "static_configs": [{"targets": [f"127.0.0.1:{target.server_port}"]}]}]}), encoding="utf-8")
        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as free:
            port = free.server_port
        cls.log = open(pathlib.Path(folder.name) / "log", "wb")
        cls.addClassCleanup(cls.log.close)
        cls.server = subprocess.Popen(["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder.name}/data",
                                       f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], stdout=cls.log, stderr=cls.log)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.terminate)
        cls.url = f"http://127.0.0.1:{port}/api/v1/query?query="
        for _ in range(120):
            try:
                if cls.ask("skidproof_run_info"):
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.5)
        raise RuntimeError("Prometheus has not scraped anything")

    @classmethod
    def ask(cls, expression):
        with urllib.request.urlopen(cls.url + urllib.parse.quote(expression), timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def test_every_query_is_answered_with_something(self):
        seen = 0
        for name, dashboard in dashboards("prometheus"):
            for title, target in queries(dashboard):
                expression = re.sub(r"\$(host|provenance|figure)", ".*", target["expr"])
                if found := re.fullmatch(r"label_values\((?:(\w+), )?(\w+)\)", expression):
                    expression = f'count by ({found[2]}) ({found[1] or chr(123) + found[2] + "=~" + chr(34) + ".+" + chr(34) + chr(125)})'
                with self.subTest(dashboard=name, query=title):
                    self.assertTrue(self.ask(expression), expression)
                    seen += 1
        self.assertGreater(seen, 10)

    def test_alerts_are_sound_and_speak_of_series_that_there_are(self):
        for command in (["promtool", "check", "rules", "alerts.yml"], ["promtool", "test", "rules", "alerts_test.yml"]):
            done = subprocess.run(command, cwd=DASHBOARDS, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        named = set(re.findall(r"\bskidproof_\w+", "\n".join(re.findall(r"expr: (.*)", (DASHBOARDS / "alerts.yml").read_text(encoding="utf-8")))))
        written = set(re.findall(r"(?m)^# TYPE (\w+)", self.text)) | {"skidproof_errata"}  # of the errata verb's own export
        self.assertGreater(len(named), 4)
        self.assertLessEqual(named, written)


if __name__ == "__main__":
    unittest.main()
