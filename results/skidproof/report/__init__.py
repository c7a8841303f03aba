"""`skidproof report`: one HTML page, with plots, that needs no other file and no network."""

import datetime
import json
import os
import pathlib
import re
import sys

from skidproof import rows
from skidproof.cli import EXIT_HARNESS, EXIT_HELD, OUTPUTS, Parser, complain, result_files

EXAMPLES = """\
Examples:
  skidproof report                                 the newest results below skidproof-out
  skidproof report skidproof-out/* --out pages     these folders, as pages/report.html

Exit codes: 0 written; 2 nothing could be read, or the folder cannot be written; 64 bad usage.
"""


def parse(arguments):
    parser = Parser("report", description="One HTML page with plots from results files.", epilog=EXAMPLES)
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help='results files (*.jsonl), folders of them, or "-" for standard input (default: the newest of each kind)')
    parser.add_argument("--out", metavar="DIR", default=f"{OUTPUTS}/report", help="folder for report.html and the plots (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help='where the page stands, as JSON; "-" is standard output')
    return parser.parse_args(arguments)


def slug(words):
    return re.sub(r"[^A-Za-z0-9._]+", "-", words).strip("-.") or "unnamed"


def name_plots(plots):
    """Unique file stems: the machine and the plot, and a number where runs share them."""
    taken = set()
    named = []
    for machine, machine_plots in plots:
        for plot in machine_plots:
            stem, count = f"{slug(machine)}-{plot.name}", 1
            while (stem if count == 1 else f"{stem}-run{count}") in taken:
                count += 1
            stem = stem if count == 1 else f"{stem}-run{count}"
            taken.add(stem)
            named.append((stem, plot))
    return named


def write(out, page, named):
    """All files of the report; each appears whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    contents = {f"{stem}.png": plot.png for stem, plot in named}
    contents |= {f"{stem}.svg": plot.svg.encode() for stem, plot in named}
    contents |= {"report.html": page.encode("utf-8", "replace")}
    for name, data in contents.items():
        part = out / f".{name}.part"
        try:
            part.write_bytes(data)
            os.replace(part, out / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def main(arguments):
    options = parse(arguments)
    files = result_files(options.files)
    from skidproof.report import figures, page  # matplotlib: no other verb waits for it
    from skidproof.report.parts import machines_of

    sources = [rows.read_source(path) for path in files]
    for source in sources:
        for problem in source.problems:
            complain(f"{source.path}: {problem}")
        for run in source.runs:
            if run.end is None:
                complain(f"{source.path}: run {run.name} was cut short: it has no end row")
    if not any(source.readable for source in sources):
        complain("nothing to report", "give results files as written by --json FILE or into --out DIR")
        return EXIT_HARNESS

    runs = [run for source in sources for run in source.runs]
    plots = {id(run): [(machine, figures.plots_of(run, machine)) for machine in machines_of(run)] for run in page.shown_runs(runs)}
    overview = figures.overview(runs)
    named = name_plots([pair for pairs in plots.values() for pair in pairs] + [("all", overview)])
    written = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    out = pathlib.Path(options.out)
    try:
        write(out, page.page(sources, plots, written, overview), named)
    except OSError as error:
        complain(f"cannot write {error.filename or out}: {error.strerror}", "choose another place with --out DIR")
        return EXIT_HARNESS
    said = f"{out / 'report.html'} ({len(named)} plots beside it, PNG and SVG)"
    if options.json:
        document = json.dumps({"report": str(out / "report.html"), "files": files}, indent=2)
        if options.json == "-":
            said = document
        else:
            pathlib.Path(options.json).write_text(document + "\n", encoding="utf-8")
    print(said, file=sys.stdout)
    return EXIT_HELD
