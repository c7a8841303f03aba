"""The report says where its numbers come from, hides no failure, and survives what runs leave behind."""

import contextlib
import html.parser
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import sample_pages
import sample_runs

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

from skidproof import cli  # noqa: E402
from skidproof import rows as skidproof_rows  # noqa: E402
from skidproof.report import comparison, curves, fleet, history, measured_figures, spark, tests  # noqa: E402

MODEL_PLOTS = {"tests", "skid", "pdir", "pmi-lateness"}
NATIVE_PLOTS = {"memory-latency", "store-bandwidth", "fusion-gain", "misprediction"}


class WellFormed(html.parser.HTMLParser):
    """Fails on tags that do not match, and collects what the page would fetch."""

    VOID = {"meta", "br", "input", "link", "img", "use", "path", "rect"}

    def __init__(self):
        super().__init__()
        self.open = []
        self.fetched = []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.fetched.append(value)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]} at {self.getpos()}"
            self.open.pop()


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def file(self, name, rows):
        path = self.folder / name
        sample_runs.write(path, rows)
        return path

    def report(self, *files, exit_code=0):
        """In this process: the shared pages below begin the program itself, which spends most of its time on imports."""
        said, complained = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            try:
                code = cli.main(["report", "--out", str(self.out), *map(str, files)])
            except SystemExit as ended:
                code = ended.code
        self.assertEqual(code, exit_code, complained.getvalue())
        page = self.out / "report.html"
        return page.read_text() if page.exists() else "", subprocess.CompletedProcess((), code, said.getvalue(), complained.getvalue())

    def stems(self, suffix):
        return {path.stem for path in self.out.glob(f"*{suffix}")}


class Characterization(ReportTest):
    """The page of a whole characterization, made once."""

    PLOTS = {"memory-latency", "memory-latency-2", "load-bandwidth", "store-bandwidth", "copy-bandwidth", "stride-latency", "translation",
             "conflicts", "scaling", "loaded-latency", "core-to-core", "core-to-core-2", "store-forwarding", "alias-4k", "splits",
             "branch-reach", "windows", "code-footprint", "misprediction", "misprediction-2"}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.shared = pathlib.Path(folder.name)
        sample_runs.write(cls.shared / "m.jsonl", sample_runs.shape_run(3, "model:skylake"))
        command = [sys.executable, "-B", RESULTS / "skidproof", "report", "--out", cls.shared / "out", cls.shared / "m.jsonl"]
        cls.done = subprocess.run(command, capture_output=True, text=True)

    def setUp(self):
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""))
        self.out = self.shared / "out"
        self.page = (self.out / "report.html").read_text()

    def test_every_kind_of_row_is_drawn(self):
        self.assertEqual(self.stems(".svg"), {f"model-skylake-{plot}" for plot in self.PLOTS})

    def test_the_shape_stands_before_the_figures_and_is_well_formed(self):
        parser = WellFormed()
        parser.feed(self.page)
        self.assertEqual((parser.open, parser.fetched), ([], []))
        places = [self.page.index(words) for words in (">Shape of the machine</h3>", ">Figures</h3>", ">Instructions</h3>", ">All rows</h3>")]
        self.assertEqual(places, sorted(places))

    def test_the_shape_says_what_was_inferred_told_published_and_not_clear(self):
        table = self.page[self.page.index("<caption>Shape of model:skylake"):self.page.index("<caption>In figures")]
        for words in ("48 KiB", "CPUID says", "agrees", "differs", "510 and 514 entries", "measured by others", "not clear",
                      "the rise does not stay: 2.1 cycles at 512, 1.9 at 640 &lt;script&gt;"):
            self.assertIn(words, table)

    def test_what_was_inferred_is_marked_on_the_curves(self):
        for plot, words in (("memory-latency", "L2 2 MiB"), ("translation", "data TLB 96"), ("windows", "reorder buffer 510"),
                            ("branch-reach", "depth 24"), ("code-footprint", "uop cache 40 KiB")):
            self.assertIn(words, (self.out / f"model-skylake-{plot}.svg").read_text(), plot)

    def test_no_plot_of_a_model_looks_like_silicons(self):
        for path in self.out.glob("*.svg"):
            self.assertIn("MODEL — not silicon", path.read_text(), path.name)

    def test_intervals_that_differ_in_coverage_alone_are_said_once(self):
        of_upper = [{"interval": f"{share}% of the upper quartile", "low": 1, "statistic": "upper quartile", "n": 9} for share in (82, 56, 97.5)]
        more = [{"interval": "95% of the median", "low": 1}, {"interval": "quartiles", "low": 1}, {"interval": "exact"}, {"low": 1}]
        self.assertEqual(measured_figures.intervals_of(of_upper + more), ["95 % of the median", "56 … 97.5 % of the upper quartile", "quartiles"])

    def test_labels_of_marks_do_not_lie_on_one_another(self):
        rng = random.Random(3)
        for _ in range(200):
            spans = sorted((left, left + rng.uniform(0.01, 0.4)) for left in (rng.random() for _ in range(12)))
            rows = curves.rows_of(spans)
            for i, (a, row) in enumerate(zip(spans, rows)):
                for b, other in list(zip(spans, rows))[:i]:
                    self.assertFalse(row == other and b[1] > a[0], (a, b))


class TwoRuns(ReportTest):
    """One report of a model run and a native one, made once."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.shared = pathlib.Path(folder.name)
        sample_runs.write(cls.shared / "m.jsonl", sample_runs.model_run())
        sample_runs.write(cls.shared / "n.jsonl", sample_runs.native_run())
        command = [sys.executable, "-B", RESULTS / "skidproof", "report", "--out", cls.shared / "out", cls.shared / "m.jsonl",
                   cls.shared / "n.jsonl"]
        cls.done = subprocess.run(command, capture_output=True, text=True)

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.out = self.shared / "out"
        self.page = (self.out / "report.html").read_text()

    def test_two_inputs_become_one_page_with_every_plot(self):
        wanted = {f"model-sandy-bridge-{p}" for p in MODEL_PLOTS} | {f"native-{p}" for p in NATIVE_PLOTS}
        self.assertEqual(self.stems(".png"), wanted)
        self.assertEqual(self.stems(".svg"), wanted)
        self.assertEqual(self.page.count("<figure id="), len(wanted))
        self.assertEqual(self.page.count('<section class="run'), 2)

    def test_the_page_is_well_formed_and_fetches_nothing(self):
        parser = WellFormed()
        parser.feed(self.page)
        self.assertEqual(parser.open, [])
        self.assertEqual(parser.fetched, [])
        self.assertNotIn("@import", self.page)

    def test_every_plot_names_its_machine_and_what_it_is(self):
        for path in self.out.glob("*.svg"):
            words = "".join(xml.etree.ElementTree.parse(path).getroot().itertext())
            machine, mark = ("model:sandy-bridge", "MODEL — not silicon") if path.name.startswith("model") else ("native ·", "NATIVE")
            self.assertIn(machine, words, path.name)
            self.assertIn(mark, words, path.name)
        for path in self.out.glob("*.png"):
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_failures_come_first_with_clause_citation_message_and_evidence(self):
        below = self.page.index(">Tests that did not hold</h3>")
        places = [self.page.index(words, below) for words in (
            "Tests that did not hold", "PebsSkid.IsOneInstruction/split_access_pmc2", "The words of the clause, and where they stand.",
            "suites/pebs_skid.cc:88", "0x7f0012345678", ">Figures</h3>", ">Skipped</h3>", "All tests (")]
        self.assertEqual(places, sorted(places))

    def test_a_failure_has_its_rate(self):
        self.assertIn("failed in 3 of 4 attempts (19.4 to 99.4 %)", self.page)

    def test_what_decides_nothing_stands_apart_from_failures(self):
        below = self.page.index(">Tests that did not hold</h3>")
        places = [self.page.index(words, below) for words in (
            "Tests that did not hold", "PmuStatus.Errors", "Failed as a listed erratum says (1)", "X1 is listed for 06_2A_7",
            "Disturbed: failed, and not again without noise (1)", "and never again", "Held, although an erratum is listed (1)",
            "PebsReload.KnownAndHeld", "Observed, where nothing is promised (1)", "past the maximum", ">Figures</h3>")]
        self.assertEqual(places, sorted(places))
        for status in ("xfail", "xpass", "observed", "disturbed"):
            self.assertRegex(self.page, f'<li class="card {status}"[^>]*><b>1</b> <span><span aria-hidden="true">.</span> {status}'
                                        f'</span></li>')

    def test_skips_show_category_and_reason(self):
        self.assertIn("needs-sibling", self.page)
        self.assertIn("the core has one thread", self.page)


class Pages(ReportTest):
    def test_a_run_without_failures_says_so_whatever_is_explained(self):
        rows = sample_runs.small_model_run()[:-1]
        rows += sample_runs.test_rows("model:sandy-bridge", "A.B", "xfail", reason="X1 is listed", erratum="X1", failures=["1 is not 2"])
        page, _ = self.report(self.file("m.jsonl", rows + [sample_runs.end_row("model:sandy-bridge", rows)]))
        self.assertIn("No test failed.", page)
        self.assertIn("Failed as a listed erratum says (1)", page)

    def test_rows_of_an_older_version_lack_what_came_later(self):
        rows = sample_runs.small_model_run()
        for row in rows:
            for field in ("stage", "erratum", "repetitions"):
                row.pop(field, None)
        page, done = self.report(self.file("m.jsonl", rows))
        self.assertNotIn("could be read", page)

    def test_a_model_never_looks_like_silicon(self):
        rows = sample_runs.small_model_run()
        rows[1]["provenance"] = "silicon"  # a machine row that contradicts the machine's name
        page, _ = self.report(self.file("m.jsonl", rows))
        self.assertIn("MODEL — not silicon", page)
        self.assertNotIn(">SILICON<", page)

    def test_a_broken_model_says_so(self):
        rows = sample_runs.small_model_run()
        rows[1]["defects"] = ["skid-plus-one"]
        page, _ = self.report(self.file("m.jsonl", rows))
        self.assertIn("broken on purpose: skid-plus-one", page)
        self.assertIn("DEFECT skid-plus-one", (self.out / "model-sandy-bridge-skid.svg").read_text())

    def test_text_from_rows_is_not_markup(self):
        row = sample_runs.test_rows("model:x", "A.B", "fail", failures=["<script>alert(1)</script> $x_{$"], clauses=["<b>"])
        page, _ = self.report(self.file("m.jsonl", row))
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;script&gt;alert", page)

    def test_qualification_lists_missed_defects(self):
        machine = "model:sandy-bridge"
        defect = {"type": "defect", "machine": machine, "microarch": "sandy-bridge", "id": "pmi-late", "clause": "R50", "brief": "one late",
                  "caught": False, "caught_by": [], "tests_run": 60, "duration_s": 1}
        total = {"type": "qualification", "machine": machine, "held": False, "defects": 1, "caught": 0, "missed": ["pmi-late"]}
        page, _ = self.report(self.file("q.jsonl", [sample_runs.run_row(machine, "q"), defect, total]))
        self.assertIn("did not hold", page)
        self.assertIn("Missed: <span class=\"id\">pmi-late</span>", page)

    def test_a_fuzz_run_shows_its_violation(self):
        machine = "model:sandy-bridge"
        row = {"type": "fuzz", "machine": machine, "held": False, "cases": 1234, "records": 5678, "violations": 1,
               "violation": {"clause": "R2", "promise": "the event after", "expected": "IP +0x7", "seen": "IP <+0xb>", "file": "v.json"}}
        page, _ = self.report(self.file("f.jsonl", [sample_runs.run_row(machine, "f"), row]))
        self.assertIn("did not hold", page)
        self.assertIn("1,234 cases", page)
        self.assertIn("IP &lt;+0xb&gt;", page)

    def test_errata_stand_first_with_contradictions_at_their_head(self):
        machine = "model:haswell"
        rows = [{"type": "erratum", "machine": machine, "id": name, "listed": listed, "observed": observed, "contradiction": odd,
                 "title": f"<{name}>"}
                for name, listed, observed, odd in (("A1", "affected", "not-reproduced", False), ("B2", "not-affected", "reproduced", True),
                                                    ("C3", "not-affected", "not-run", False))]
        page, _ = self.report(self.file("e.jsonl", [sample_runs.run_row(machine, "e"), *rows]))
        self.assertIn("Errata (2 of 3", page)
        self.assertLess(page.index("&lt;B2&gt;"), page.index("&lt;A1&gt;"))
        self.assertIn("contradiction", page)
        self.assertNotIn("&lt;C3&gt;", page)

    def test_awkward_histograms_are_drawn(self):
        wide = {v * v * (-1) ** v: v + 1 for v in range(60)}
        rows = [sample_runs.run_row("model:x", "wide run with a $name$")]
        for index in range(61):
            rows += sample_runs.test_rows("model:x", f"S.T/{index}_$a", evidence={"k": sample_runs.histogram("skid $x", "i", wide, [1])})
        for index in range(13):
            rows += sample_runs.test_rows("model:x", f"P.T/{index}", evidence={
                "p": sample_runs.histogram("pdir", "", {5: 1}), "l": sample_runs.histogram("pmi-lateness", "", {0: 0}),
                "bad": {"kind": "histogram", "name": "skid", "bins": [[1], "x", [None, 2]]}})
        self.report(self.file("w.jsonl", rows))
        self.assertEqual(self.stems(".png"), {f"model-x-{p}" for p in ("tests", "skid-1", "skid-2", "pdir-1", "pdir-2")})

    def test_the_same_rows_make_the_same_plots(self):
        path = self.file("m.jsonl", sample_runs.small_model_run())
        self.report(path)
        first = {p.name: p.read_bytes() for p in self.out.glob("model-*")}
        self.report(path)
        self.assertEqual(first, {p.name: p.read_bytes() for p in self.out.glob("model-*")})
        self.assertEqual(len(first), 2 * len(("tests", "skid")))


class Columns(unittest.TestCase):
    """Many skid values share columns, but never an expected value with others: that would paint it allowed."""

    def columns(self, bins, expected):
        from skidproof.report import test_figures
        return test_figures.columns_of([({}, "skid", "", bins, expected)])

    def test_few_values_have_their_own(self):
        self.assertEqual(self.columns({-1: 5, 1: 9, 2: 1}, {1}), [("-1", -1, -1), ("1", 1, 1), ("2", 2, 2)])

    def test_many_values_share_and_cover_all(self):
        bins = {v: 1000 - v for v in range(100)}
        columns = self.columns(bins, {50})
        self.assertIn(("50", 50, 50), columns)
        self.assertEqual([v for v in bins for _, low, high in columns if low <= v <= high], list(bins))
        self.assertLess(len(columns), 25)


class WhatRunsLeaveBehind(ReportTest):
    def test_a_run_without_end_says_so_and_names_the_open_test(self):
        rows = sample_runs.small_run()[:-1] + sample_runs.test_rows("native", "PebsLayout.Froze")[:1]
        page, done = self.report(self.file("n.jsonl", rows))
        self.assertIn("This run was cut short", page)
        self.assertIn('PebsLayout.Froze</span> had started and never finished', page)
        self.assertIn("cut short", done.stderr)

    def test_a_measurement_that_took_the_machine_along_is_named(self):
        start = {"type": "measurement-start", "machine": "native", "microarch": "", "name": "calibration.pmi-lateness",
                 "started": "2026-05-01T12:34:56Z"}
        whole = sample_runs.small_run()
        page, _ = self.report(self.file("m.jsonl", whole[:-1] + [start]))
        self.assertIn("calibration.pmi-lateness</span> had started and never finished", page)
        lost = {"type": "unmeasured", "machine": "native", "microarch": "", "name": start["name"], "reason": "machine lost: a hang"}
        page, _ = self.report(self.file("l.jsonl", whole[:-1] + [start, lost] + whole[-1:]))
        self.assertNotIn("never finished", page)
        self.assertRegex(page, "calibration.pmi-lateness</span></th><td>machine lost: a hang</td>")

    def test_an_interrupted_run_gives_its_reason(self):
        rows = sample_runs.small_run()
        rows[-1]["reason"] = "interrupted by SIGINT"
        page, _ = self.report(self.file("n.jsonl", rows))
        self.assertIn("The run ended: interrupted by SIGINT", page)

    def test_a_replay_is_not_taken_for_a_measurement(self):
        rows = sample_runs.small_run()
        rows[1]["tape"] = "night.tape"
        page, _ = self.report(self.file("n.jsonl", rows))
        self.assertIn("replay of night.tape, not measured anew", page)

    def test_corrupt_lines_are_reported_on_the_page_and_on_stderr(self):
        path = self.file("n.jsonl", sample_runs.small_run())
        lines = path.read_bytes().splitlines()
        lines[2:2] = [b"\0\0\0", b"[1]", b'{"type":"test","machine":"native","id":"A.B"}',
                      b'{"type":"measurement","machine":"native","name":"m","value":true,"unit":"ns"}']
        path.write_bytes(b"\n".join(lines) + b'\n{"type":"te')
        page, done = self.report(path)
        for number in (3, 4, 5, 6, len(lines) + 1):
            self.assertIn(f"line {number}: ", page)
            self.assertIn(f"line {number}: ", done.stderr)
        self.assertIn("breaks off", page)
        self.assertEqual(self.stems(".png"), {"native-misprediction"})

    def test_an_empty_file_beside_a_good_one_is_reported(self):
        (self.folder / "empty").touch()
        page, done = self.report(self.file("n.jsonl", sample_runs.small_run()), self.folder / "empty")
        self.assertIn("is empty", page)
        self.assertIn("is empty", done.stderr)

    def test_nothing_readable_is_exit_2_and_writes_no_page(self):
        (self.folder / "empty").touch()
        page, done = self.report(self.folder / "empty", exit_code=2)
        self.assertEqual(page, "")
        self.assertIn("nothing to report", done.stderr)

    def test_an_output_folder_that_cannot_be_is_exit_2(self):
        self.out = self.folder / "n.jsonl" / "out"
        _, done = self.report(self.file("n.jsonl", sample_runs.small_run()), exit_code=2)
        self.assertIn("cannot write", done.stderr)

    def test_bad_usage_is_64(self):
        _, done = self.report(self.folder / "missing", exit_code=64)
        self.assertIn("there is no file", done.stderr)
        _, done = self.report("--no-such-option", exit_code=64)
        self.assertIn("--help", done.stderr)

    def test_two_runs_in_one_file_stay_apart(self):
        page, _ = self.report(self.file("both.jsonl", sample_runs.small_run() + sample_runs.small_run()))
        self.assertEqual(page.count('<section class="run'), 2)
        self.assertEqual(self.stems(".png"), {"native-misprediction", "native-misprediction-run2"})

    def test_a_repeated_test_shows_its_worst_repetition(self):
        machine = "model:x"
        rows = (sample_runs.test_rows(machine, "A.B", "fail", failures=["f.cc:1: no"])
                + sample_runs.test_rows(machine, "A.B", repetition=1))
        page, _ = self.report(self.file("r.jsonl", rows))
        self.assertIn("✗ fail 1", (self.out / "model-x-tests.svg").read_text())
        self.assertNotIn("No test failed", page)


HOSTILE = """<script>alert(1)</script>'"><img src=x onerror=alert(2)> ${x} $x_{$ \x00\x1b[31m \u202e \ud800 </title></style>&amp;"""


def hostile(value, key=""):
    """The row with every text in it hostile, but for what makes it a row."""
    if isinstance(value, dict):
        return {k if k in KEPT_KEYS else k + HOSTILE[:20]: hostile(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v, key) for v in value]
    return value + HOSTILE if isinstance(value, str) and key not in ("type", "status", "provenance", "kind") else value


KEPT_KEYS = {key for rows in (sample_runs.model_run(), sample_runs.native_run(), sample_pages.errata_run(), sample_pages.qualification(20))
             for row in rows for key in row} | {"kind", "name", "unit", "bins", "expected", "n", "k", "low", "high"}


class Markup(html.parser.HTMLParser):
    """What a browser would make of a page: its tags, the scripts in it, handlers, ids and links."""

    def __init__(self, page):
        super().__init__()
        self.scripts, self.handlers, self.ids, self.links, self.tags = 0, [], [], [], {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.scripts += tag == "script"
        for name, value in attributes:
            if name.startswith("on"):
                self.handlers.append(name)
            elif name == "id":
                self.ids.append(value)
            elif name == "href":
                self.links.append(value)


class Structure(ReportTest):
    def assert_sound(self, page):
        markup = Markup(page)
        self.assertEqual((markup.scripts, markup.handlers, markup.tags.get("img", 0)), (1, [], 0))
        self.assertEqual(len(markup.ids), len(set(markup.ids)))
        self.assertLessEqual({link.removeprefix("#") for link in markup.links}, set(markup.ids))
        parser = WellFormed()
        parser.feed(page)
        self.assertEqual((parser.open, parser.fetched), ([], []))
        for character in page:
            self.assertTrue(character.isprintable() or character in "\n\u202e", repr(character))
        return markup

    def test_hostile_text_in_every_field_stays_text(self):
        files = []
        for name, rows in (("m", sample_runs.model_run()), ("n", sample_runs.native_run()), ("e", sample_pages.errata_run()),
                           ("q", sample_pages.qualification(20))):
            files.append(self.file(f"{name}.jsonl", hostile(rows)))
        page, _ = self.report(*files)
        self.assert_sound(page)
        self.assertIn("&lt;script&gt;alert(1)", page)
        for path in self.out.glob("*.svg"):
            xml.etree.ElementTree.parse(path)

    def test_values_of_any_kind_in_every_field_make_a_page(self):
        """What the reader lets pass as rows, the page can show."""
        odd = (None, True, -1, 1e308, 10**400, "", [], {}, [[]], {"kind": "histogram"}, "x" * 5000)
        for index, value in enumerate(odd):
            rows = [sample_runs.run_row("model:x", "odd")]
            for row in (sample_runs.machine_row("model:x", "model"),
                        *sample_runs.test_rows("model:x", "A.B", "fail", failures=["no"], evidence={"a": value}),
                        sample_runs.measurement("model:x", "memory.latency", 1.5, "ns", 1, 2, bytes=64),
                        *sample_pages.errata_run("model:x")[2:4],
                        sample_pages.qualification(1)[2]):
                rows += [{**row, field: value} for field in row if field not in ("type", "machine")]
            with self.subTest(value=str(value)[:20]):
                source = skidproof_rows.Source("odd")
                for row in rows:
                    if not skidproof_rows.row_problem(row):
                        skidproof_rows.add_row(source, row)
                self.assertTrue(source.runs)
                page = self.page_of(source, drawn=index == 0)
                self.assert_sound(page)

    def page_of(self, source, drawn=True):
        from skidproof.report import figures, page, parts, tidy
        for run in source.runs:
            tidy.tidy(run)
        plots = {id(run): [(name, figures.plots_of(run, name)) for name in parts.machines_of(run)] for run in source.runs} if drawn else {}
        return page.page([source], plots, "now")

    def test_a_run_without_results_says_so(self):
        rows = [sample_runs.run_row("native", "empty"), sample_runs.end_row("native", [])]
        page, _ = self.report(self.file("e.jsonl", rows))
        self.assertIn("The run holds no result.", page)
        self.assert_sound(page)

    def test_ten_thousand_tests_fit_on_a_page(self):
        rows = [sample_runs.run_row("model:x", "huge"), sample_runs.machine_row("model:x", "model")]
        for index in range(10_000):
            rows += sample_runs.test_rows("model:x", f"Suite{index % 40}.Promise/{index}", ("pass", "fail", "skip")[index % 3],
                                          clauses=[f"R{index % 300}"],
                                          failures=["1 is not 2"] * (index % 3 == 1), skip_category="machine-limit" if index % 3 == 2
                                          else None,
                                          reason=f"for reason {index % 5}" if index % 3 == 2 else "")
        page, _ = self.report(self.file("h.jsonl", rows))
        self.assertLess(len(page), 8_000_000)
        markup = self.assert_sound(page)
        self.assertLess(markup.tags["tr"], 40_000)
        self.assertIn("machine-limit: 3,333 tests, 5 reasons", page)
        self.assertIn("3,133 more, in short", page)

    def test_three_thousand_defects_make_a_matrix_that_names_what_was_missed(self):
        page, _ = self.report(self.file("q.jsonl", sample_pages.qualification(3000)))
        self.assert_sound(page)
        self.assertIn("2,997 of 3,000", page)
        drawn = (self.out / "model-defects.svg").read_text()
        self.assertIn("✗", drawn)
        self.assertLess(len(page), 4_000_000)

    def test_a_figure_has_its_numbers_beneath(self):
        page, _ = self.report(self.file("m.jsonl", sample_runs.small_run()))
        figure = page[page.index("<figure "):page.index("</figure>")]
        self.assertIn("Data of this figure", figure)
        self.assertIn("<td class=\"n\" data-v=\"24.4\">24.4</td>", figure)
        self.assertIn('role="img"', figure)

    def test_several_runs_show_clause_and_errata_by_machine(self):
        second = [{**row, "machine": "model:haswell"} for row in sample_runs.small_model_run()]
        page, _ = self.report(self.file("a.jsonl", sample_runs.small_model_run()), self.file("b.jsonl", second),
                              self.file("e.jsonl", sample_pages.errata_run()))
        self.assertIn("Clause by machine", page)
        self.assertIn("Errata by machine", page)
        self.assertEqual(self.stems(".png") & {"all-machines", "all-errata-1", "all-errata"}, {"all-machines", "all-errata"})

    def test_what_was_caught_of_defects_that_show_now_and_then_is_drawn(self):
        files = []
        for index, share in enumerate(("1", "0.1", "0.01")):
            machine = f"model:x+d@{share}"
            rows = [sample_runs.run_row(machine, f"limit-{index}"), sample_runs.machine_row(machine, "model", defects=[f"d@{share}"])]
            rows += sample_runs.test_rows(machine, "A.B", "fail" if index < 2 else "pass", failures=["no"] * (index < 2))
            files.append(self.file(f"{index}.jsonl", rows + [sample_runs.end_row(machine, rows)]))
        self.report(*files)
        drawn = (self.out / "all-detection.svg").read_text()
        self.assertIn("in 0.01 of the overflows", drawn)
        self.assertIn("0 of 1 runs", drawn)

    def test_very_many_runs_are_a_table_and_those_that_failed_in_full(self):
        rows = []
        for index in range(40):
            machine = "model:x"
            run = [sample_runs.run_row(machine, f"many-{index}"), sample_runs.machine_row(machine, "model"),
                   *sample_runs.test_rows(machine, "A.B", "fail" if index == 39 else "pass", failures=["no"] * (index == 39))]
            rows += [*run, sample_runs.end_row(machine, run)]
        page, _ = self.report(self.file("m.jsonl", rows))
        self.assertEqual(page.count('<section class="run'), 12)
        self.assertIn("28 runs that held are in this table alone", page)
        self.assertIn("Run many-39", page)


class Stored(unittest.TestCase):
    """Pages over the store's frames."""

    assert_sound = Structure.assert_sound

    def test_a_history_shows_changes_marks_verdicts_and_flaky_tests(self):
        page = history.page_of(*sample_pages.history_frames(), written="now")
        markup = self.assert_sound(page)
        self.assertGreater(markup.tags["svg"], 60)
        for words in ("3 figures of 60 changed", "together with microcode 0xf0 to 0xf4", "+5 %",
                      "Last night not every promise held: 1 test failed",
                      "3 tests did not always end the same", "Tests that fail now and then", "10 %", ">M</text>", ">K</text>", "SILICON"):
            self.assertIn(words, page)
        self.assertLess(page.index('href="#figure-memory-latency'), page.index("no change found"))

    def test_a_model_s_history_never_looks_like_silicon(self):
        about, *rest = sample_pages.history_frames(figures=8)
        page = history.page_of(about | {"machine": "model:skylake"}, *rest, written="now")
        self.assertIn("MODEL — not silicon", page)
        self.assertNotIn(">SILICON<", page)
        self.assertNotIn("SILICON ·", page)

    def test_a_machine_without_a_night(self):
        about, *frames = sample_pages.history_frames()
        page = history.page_of(about, *(frame.iloc[:0] for frame in frames), written="now")
        self.assert_sound(page)
        self.assertIn("holds no night", page)

    def test_hostile_names_in_the_store(self):
        about, facts, frame, changes, verdicts, flaky = sample_pages.history_frames(nights=12, figures=32, tests=5)
        for column in ("microcode", "os", "bios", "version", "run_id"):
            facts[column] = HOSTILE
        facts.loc[6:, "microcode"] = HOSTILE + "2"
        frame["name"], frame["unit"], frame["parameters"] = HOSTILE, HOSTILE, json.dumps({HOSTILE: HOSTILE})
        verdicts["id"], flaky["id"] = verdicts["id"] + HOSTILE, HOSTILE
        changes["attributed"] = [[HOSTILE, HOSTILE, [HOSTILE]]] * len(changes)
        page = history.page_of(about | {"host": HOSTILE, "machine": HOSTILE, "core_type": HOSTILE, "microarch": HOSTILE}, facts, frame,
                               changes, verdicts,
                               flaky, written="now")
        self.assert_sound(page)
        subjects, bad, clauses, errata, changed, tests = sample_pages.fleet_data(200)
        for row in (*subjects, *errata, *changed):
            for key, value in row.items():
                if isinstance(value, str) and key not in ("provenance", "listed", "observed", "last_started"):
                    row[key] = value + HOSTILE
        bad = {subject: [(test + HOSTILE, status) for test, status in found] for subject, found in bad.items()}
        self.assert_sound(fleet.page_of(subjects, bad, {test + HOSTILE: [c + HOSTILE for c in found] for test, found in clauses.items()},
                                        errata, changed, tests,
                                        "now"))

    def test_a_fleet_shows_the_worst_first_and_pages_its_machines(self):
        subjects, *rest = sample_pages.fleet_data(1000)
        page = fleet.page_of(subjects, *rest, written="now")
        markup = self.assert_sound(page)
        self.assertLess(len(page), 2_000_000)
        self.assertIn("On 11 of 1,000 machines a promise was broken", page)
        self.assertLess(page.index("lab0005/direct"), page.index("lab0001/direct"))
        for words in ("Show all 1,000", "not seen since 2 days before", "R60", "HSD143", "Clause by machine", "Errata by machine",
                      "Tests that fail now and then"):
            self.assertIn(words, page)
        self.assertGreater(markup.tags["template"], 0)

    def test_an_empty_fleet_says_what_to_do(self):
        page = fleet.page_of([], {}, {}, [], [], [], "now")
        self.assert_sound(page)
        self.assertIn("skidproof store add", page)

    def test_a_comparison_says_what_differs_and_what_could_not_show(self):
        found = sample_pages.comparison()
        page = comparison.comparison_page(found, "now")
        self.assert_sound(page)
        for words in ("They differ, and not only for the better", "pass 3 → fail 3", "+5 %", "would have shown a change of 1.2 %", "0xf0",
                      "4 figures called"):
            self.assertIn(words, page)
        found.a.machine, found.a.provenance = "model:skylake", "model"
        found.b.name = HOSTILE
        found.verdicts.loc[0, "id"] = HOSTILE
        page = comparison.comparison_page(found, "now")
        self.assert_sound(page)
        self.assertIn("The two sides are of different kinds", page)

    def test_a_comparison_of_nothing(self):
        found = sample_pages.comparison()
        found.figures, found.verdicts, found.worse = found.figures.iloc[:0], found.verdicts.iloc[:0], False
        self.assert_sound(comparison.comparison_page(found, "now"))


class Courses(unittest.TestCase):
    def test_turns_count_changes_and_not_missing_nights(self):
        self.assertEqual(history.turns(["pass", "", "pass", "fail", "", "fail", "pass"]), 2)
        self.assertEqual(history.last_turn(["pass", "", "fail", "", "fail"]), 2)
        self.assertIsNone(history.last_turn(["", ""]))

    def test_clauses_stand_in_the_order_of_their_numbers(self):
        self.assertEqual(sorted(["R10", "R9", "D13a", "D13", "R", "", "R" + "9" * 30], key=tests.clause_order)[:4],
                         ["", "D13", "D13a", "R"])

    def test_a_line_breaks_where_nights_are_missing(self):
        drawn = spark.sparkline([1.0, 2.0, None, 3.0, float("nan"), 2.0, 2.5], [3], "x")
        self.assertEqual(drawn.count("M", drawn.index('fill="none"') - 200), drawn.count("<circle") + 3 - 1)
        xml.etree.ElementTree.fromstring(drawn)

    def test_ticks_are_round_and_few(self):
        self.assertEqual(spark.nice_ticks(0.9, 4.2), [1, 2, 3, 4])
        self.assertEqual(spark.nice_ticks(5, 5), [5])
        self.assertEqual(len(spark.nice_ticks(1e300, 1.7e308)), len(set(spark.nice_ticks(1e300, 1.7e308))))


class SampleRuns(ReportTest):
    def test_samples_are_valid_rows(self):
        for rows in (sample_runs.model_run(), sample_runs.native_run()):
            done = subprocess.run([RESULTS / "validate", self.file("s.jsonl", rows)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
