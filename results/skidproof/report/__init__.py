"""`skidproof report`: HTML pages that need no other file and no network: of runs, of a machine's history, of a fleet."""

import datetime
import pathlib
import re

from skidproof import rows
from skidproof.cli import EXIT_HARNESS, EXIT_HELD, OUTPUTS, Parser, answer, complain, result_files, usage, whole_file

EXAMPLES = """\
Examples:
  skidproof report                                 the newest results below skidproof-out
  skidproof report skidproof-out/* --out pages     these folders, as pages/report.html
  skidproof report --machine lab7                  the history of a machine in the store
  skidproof report --fleet --store postgresql://lab@db/skidproof

Exit codes: 0 written; 2 nothing could be read, or the folder cannot be written; 64 bad usage, or no such machine in the store.
"""


def parse(arguments):
    parser = Parser("report", description="One HTML page with plots: of results files, or of the store's history of a machine or the "
                                          "fleet.", epilog=EXAMPLES)
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help='results files (*.jsonl), folders of them, or "-" for standard input (default: the newest of each kind)')
    parser.add_argument("--out", metavar="DIR", default=f"{OUTPUTS}/report",
                        help="folder for report.html and the plots (default: %(default)s)")
    parser.add_argument("--fleet", action="store_true", help="the page of all machines in the store")
    parser.add_argument("--machine", metavar="HOST[/NAME[/CORE]]",
                        help="the page of this machine's history in the store; NAME is direct, native, model:skylake …, CORE a type of "
                             "core")
    parser.add_argument("--store", metavar="STORE", help="an SQLite file, or postgresql://USER@HOST/DATABASE "
                        "(default: $SKIDPROOF_STORE, then skidproof.db here)")
    parser.add_argument("--json", metavar="FILE", help='where the page stands, as JSON; "-" is standard output')
    options = parser.parse_args(arguments)
    if options.fleet and options.machine:
        parser.error("--fleet and --machine are two pages")
    if options.store and not (options.fleet or options.machine):
        options.fleet = True
    if options.files and (options.fleet or options.machine):
        parser.error("a page of the store takes no files")
    return options


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


def write(out, name, page, named):
    """All files of the report; each appears whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    contents = {f"{stem}.png": plot.png for stem, plot in named}
    contents |= {f"{stem}.svg": plot.svg.encode() for stem, plot in named}
    contents |= {name: page.encode("utf-8", "replace")}
    for file, data in contents.items():
        with whole_file(out / file, "wb") as stream:
            stream.write(data)


def subject_of(store, words):
    """(number, words) of the one subject that HOST[/NAME[/CORE]] means. Complaint where it is none or several."""
    from skidproof.store import schema
    from sqlalchemy import select
    host, name, core = (words.split("/") + ["", ""])[:3]
    with store.engine.connect() as connection:
        subjects = connection.execute(select(schema.subjects).order_by(schema.subjects.c.host, schema.subjects.c.machine)).all()
    found = [row for row in subjects if row.host == host and name in ("", row.machine) and core in ("", row.core_type)]
    shown = [f"{row.host}/{row.machine}" + (f"/{row.core_type}" if row.core_type else "") for row in found]
    if not found:
        near = [f"{row.host}/{row.machine}" for row in subjects[:5]]
        raise usage(f"the store has no machine '{words}'", f"it has {', '.join(near)}{' …' if len(subjects) > 5 else ''}; --fleet lists all"
                    if near
                    else "fill it: skidproof store add FILE")
    if len(found) > 1:
        raise usage(f"'{words}' is {len(found)} machines", f"name one of {', '.join(shown[:8])}")
    return found[0].subject, shown[0]


def stored_page(options):
    """(file name, HTML) of the page out of the store."""
    import skidproof.store
    store = skidproof.store.open(options.store)
    try:
        if options.fleet:
            from skidproof.report import fleet
            return "fleet.html", fleet.fleet_page(store)
        from skidproof.report import history
        subject, words = subject_of(store, options.machine)
        return f"{slug(words)}.html", history.history_page(store, subject)
    finally:
        store.close()


def page_of_rows(name, found):
    """The HTML of a run whose rows are at hand."""
    from skidproof.report import figures, page
    from skidproof.report.parts import machines_of
    source = rows.source_of(name, found)
    plots = {id(run): [(machine, figures.plots_of(run, machine)) for machine in machines_of(run)] for run in page.shown_runs(source.runs)}
    return page.page([source], plots, now(), figures.overview(source.runs))


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def runs_page(options):
    """(file name, HTML, its plots, the files); None where nothing could be read."""
    files = result_files(options.files)
    from skidproof.report import figures, page  # matplotlib: no other verb waits for it
    from skidproof.report.parts import machines_of
    from skidproof.report.tidy import tidy

    sources = [rows.read_source(path) for path in files]
    for source in sources:
        for problem in source.problems:
            complain(f"{source.path}: {problem}")
        for run in source.runs:
            if run.end is None:
                complain(f"{source.path}: run {run.name} was cut short: it has no end row")
    if not any(source.readable for source in sources):
        complain("nothing to report", "give results files as written by --json FILE or into --out DIR")
        return None
    runs = [tidy(run) for source in sources for run in source.runs]
    plots = {id(run): [(machine, figures.plots_of(run, machine)) for machine in machines_of(run)] for run in page.shown_runs(runs)}
    overview = figures.overview(runs)
    named = name_plots([pair for pairs in plots.values() for pair in pairs] + [("all", overview)])
    return "report.html", page.page(sources, plots, now(), overview), named, files


def main(arguments):
    options = parse(arguments)
    made = (*stored_page(options), [], []) if options.fleet or options.machine else runs_page(options)
    if made is None:
        return EXIT_HARNESS
    name, html, named, files = made
    out = pathlib.Path(options.out)
    try:
        write(out, name, html, named)
    except OSError as error:
        complain(f"cannot write {error.filename or out}: {error.strerror}", "choose another place with --out DIR")
        return EXIT_HARNESS
    said = f"{out / name}" + (f" ({len(named)} plots beside it, PNG and SVG)" if named else "")
    answer(options.json, {"report": str(out / name), "files": files}, said)
    return EXIT_HELD
