"""The service answers what the store holds, page by page, refuses what it cannot answer with a reason, and writes nothing."""

import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

from fastapi.testclient import TestClient  # noqa: E402

from skidproof import rows  # noqa: E402
from skidproof.export import prometheus  # noqa: E402
from skidproof.serve.app import application  # noqa: E402

HOSTILE = ["<script>alert(1)</script>", "'; DROP TABLE runs; --", "%00", "\u202e", "*" * 200, "🦊", "../../etc/passwd", "{{7*7}}", "$(id)", "a\nb"]


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs = [sample_runs.model_run(), sample_runs.native_run()]
        for index, run in enumerate(cls.runs):
            sample_runs.write(cls.folder / f"{index}.jsonl", run)
        hostile = sample_runs.small_run()
        for row in hostile:
            if row["type"] == "run":
                row["id"] = HOSTILE[0]
            if row["type"] == "machine":
                row["host"] = HOSTILE[1] + HOSTILE[0]
        sample_runs.write(cls.folder / "hostile.jsonl", hostile)
        cls.store = cls.folder / "s.db"
        subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "store", "add", "--store", cls.store, *sorted(cls.folder.glob("*.jsonl"))],
                       check=True, capture_output=True)
        cls.client = TestClient(application(str(cls.store)), raise_server_exceptions=False)

    def get(self, address, code=200, **parameters):
        answer = self.client.get(address, params=parameters)
        self.assertEqual(answer.status_code, code, f"{address} {parameters}: {answer.text[:300]}")
        return answer

    def digest(self):
        return hashlib.sha256(self.store.read_bytes()).hexdigest()


class Answers(Served):
    def test_every_machine_with_its_provenance(self):
        machines = self.get("/api/v1/machines").json()["items"]
        self.assertEqual({(one["machine"], one["provenance"]) for one in machines}, {("model:sandy-bridge", "model"), ("native", "native")})
        self.assertIn(HOSTILE[1] + HOSTILE[0], {one["host"] for one in machines})
        one = self.get(f"/api/v1/machines/{machines[0]['subject']}").json()
        self.assertEqual(one, machines[0])

    def test_measurements_page_by_page_are_all_of_them_once(self):
        wanted = sorted(row["value"] for run in [*self.runs, sample_runs.small_run()] for row in run if row["type"] == "measurement")
        found, after = [], None
        for _ in range(1000):
            page = self.get("/api/v1/measurements", limit=3, **({"after": after} if after else {})).json()
            self.assertLessEqual(len(page["items"]), 3)
            found += [item["value"] for item in page["items"]]
            after = page["next"]
            if after is None:
                break
        self.assertEqual(sorted(found), wanted)

    def test_filters_reach_the_store(self):
        failed = self.get("/api/v1/tests", status="fail").json()["items"]
        self.assertTrue(failed)
        self.assertEqual({item["status"] for item in failed}, {"fail"})
        self.assertEqual(self.get("/api/v1/tests", status="fail", since="2100-01-01").json()["items"], [])
        names = {item["name"] for item in self.get("/api/v1/measurements", figure="memory*", limit=1000).json()["items"]}
        self.assertTrue(names and all(name.startswith("memory") for name in names), names)

    def test_a_run_comes_back_row_by_row(self):
        name = self.runs[0][0]["id"]
        found, after = [], None
        while True:
            page = self.get(f"/api/v1/runs/{name}", limit=7, **({"after": after} if after else {})).json()
            found += page["items"]
            after = page["next"]
            if after is None:
                break
        self.assertEqual(found, self.runs[0])

    def test_pages_hold_what_was_stored_and_execute_nothing_of_it(self):
        fleet = self.get("/").text
        self.assertIn("model:sandy-bridge", fleet)
        for address in ["/", *(f"/machines/{one['subject']}" for one in self.get("/api/v1/machines").json()["items"]), f"/runs/{self.runs[0][0]['id']}"]:
            answer = self.get(address)
            self.assertNotIn("<script>alert", answer.text)
            self.assertIn("default-src 'none'", answer.headers["content-security-policy"])

    def test_metrics_are_those_of_the_export(self):
        metrics = self.get("/metrics").text
        runs = [run for path in sorted(self.folder.glob("*.jsonl")) for run in rows.read_source(str(path)).runs]
        self.assertTrue(sorted(metrics.splitlines()) == sorted(prometheus.metrics_text(runs).splitlines()), "the text is another than the export's of the same files")
        self.assertIn("skidproof_measurement_seconds{", metrics)

    def test_health_and_description(self):
        self.assertEqual(self.get("/healthz").json()["runs"], 3)
        description = self.get("/openapi.json").json()
        self.assertIn("/api/v1/measurements", description["paths"])
        self.assertTrue(all(set(methods) == {"get"} for methods in description["paths"].values()), "it only reads")


class Refusals(Served):
    def test_each_bad_question_gets_a_reason(self):
        for address, parameters, code, words in (
                ("/api/v1/tests", {"status": "good"}, 400, "status"), ("/api/v1/tests", {"limit": 0}, 400, "limit"),
                ("/api/v1/tests", {"limit": 10**9}, 400, "limit"), ("/api/v1/tests", {"nonsense": 1}, 400, "nonsense"),
                ("/api/v1/tests", {"after": "xx"}, 400, "go on"), ("/api/v1/machines", {"after": "-1"}, 400, "after"),
                ("/api/v1/tests", {"since": "yesterday"}, 400, "yesterday"),
                ("/api/v1/tests", {"until": ""}, 400, "no date"), ("/api/v1/errata", {"test": "a"}, 400, "test"),
                ("/api/v1/machines/99", {}, 404, "99"), ("/api/v1/machines/abc", {}, 400, "subject"), ("/machines/99999999999999", {}, 400, "subject"),
                ("/runs/none", {}, 404, "none"), ("/api/v1/runs/none", {}, 404, "none"), ("/nowhere", {}, 404, "Not Found"),
                ("/api/v1/tests", {"test": "a\0b"}, 400, "characters")):
            with self.subTest(address=address, parameters=parameters):
                self.assertIn(words, self.get(address, code, **parameters).json()["error"])

    def test_nothing_but_reading(self):
        for method in ("post", "put", "delete", "patch"):
            self.assertEqual(getattr(self.client, method)("/api/v1/runs").status_code, 405)

    def test_hostile_questions_break_nothing_and_write_nothing(self):
        before, draw = self.digest(), random.Random(7)
        names = ("machine", "run", "test", "status", "figure", "erratum", "since", "until", "limit", "after", "x")
        for _ in range(300):
            word = "".join(draw.choice(HOSTILE + ["0", "-1", "1e309", "9" * 40, "[", "\\", "?"]) for _ in range(draw.randint(1, 3)))[:300]
            address = draw.choice(("/api/v1/tests", "/api/v1/measurements", "/api/v1/errata", "/api/v1/runs", "/api/v1/machines/" + word, "/runs/" + word, "/" + word))
            code = self.client.get(address, params={draw.choice(names): word}).status_code
            self.assertLess(code, 500, f"{address} {word}")
        self.assertEqual(self.digest(), before)


class Verb(Served):
    def test_it_listens_where_it_says(self):
        service = subprocess.Popen([sys.executable, "-B", RESULTS / "skidproof", "serve", "--store", self.store, "--port", "0", "--json", "-"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(service.communicate)
        self.addCleanup(service.terminate)
        url = json.loads(service.stdout.readline())["url"]
        self.assertTrue(url.startswith("http://127.0.0.1:"), url)
        with urllib.request.urlopen(url + "healthz", timeout=30) as answer:
            self.assertEqual(json.load(answer)["runs"], 3)

    def test_what_it_cannot_serve_is_said_at_once(self):
        for arguments, code, words in ((["--store", self.folder / "none.db"], 64, "none.db"), (["--store", self.store, "--port", "70000"], 64, "70000"),
                                       (["--store", self.store, "--host", "256.1.1.1"], 2, "256.1.1.1"), (["--nonsense"], 64, "nonsense")):
            done = subprocess.run([sys.executable, "-B", RESULTS / "skidproof", "serve", *map(str, arguments)], capture_output=True, text=True)
            self.assertEqual((done.returncode, words in done.stderr), (code, True), f"{arguments}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
