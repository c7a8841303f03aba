"""`skidproof store`: add, query, prune, migrate."""

import contextlib
import csv
import datetime
import json
import os
import sys
import time

from skidproof import cli
from skidproof.cli import EXIT_HARNESS, EXIT_HELD, usage

KINDS = ("runs", "machines", "tests", "measurements", "errata", "evidence", "failures")
STORE_HELP = "an SQLite file, or postgresql://USER@HOST/DATABASE (default: $SKIDPROOF_STORE, then skidproof.db here)"
EPILOG = """examples:
  skidproof store add                                         what was run here last, into skidproof.db
  skidproof store add --store postgresql://lab@db/results skidproof-out/*/
  skidproof store query measurements --machine 'lab00*' --figure 'memory.*' --since 2026-11-01
  skidproof store query tests --status fail --csv -
  skidproof store prune --keep-nights 365 --dry-run

exit codes: 0 done, 2 something could not be loaded or the database failed (what was good is loaded), 64 bad usage"""


def _parser():
    parser = cli.Parser("store", description="The history of many runs, in SQLite or PostgreSQL.", epilog=EPILOG)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_ActionParser)
    add = _action(actions, "add", "load results files; runs that are there already stay as they are")
    add.add_argument("results", nargs="*", metavar="RESULT", help="files (.jsonl, .jsonl.gz, .jsonl.zst), folders of them, - for standard "
                     "input (default: the newest below skidproof-out)")
    add.add_argument("--jobs", type=_count, metavar="N", help="processes that load at the same time (default: one a CPU)")
    query = _action(actions, "query", "print what is in the store, a page at a time")
    query.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    query.add_argument("--machine", metavar="GLOB", help="of this host or machine (lab0042, 'lab*', model:skylake)")
    query.add_argument("--test", metavar="GLOB", help="of tests with such an id")
    query.add_argument("--figure", metavar="GLOB", help="measurements with such a name")
    query.add_argument("--status", metavar="STATUS", help="tests with this verdict; machines with such tests")
    query.add_argument("--erratum", metavar="ID", help="errata rows of this erratum, or tests whose verdict it explains")
    query.add_argument("--run", metavar="ID", help="of this run")
    query.add_argument("--since", metavar="TIME", help="of runs that started then or later: 2026-11-25 or 2026-11-25T10:15:00Z (UTC)")
    query.add_argument("--until", metavar="TIME", help="of runs that started before")
    query.add_argument("--limit", type=_limit, default=1000, metavar="N", help="at most so many rows; 0: all of them (default: 1000)")
    query.add_argument("--after", metavar="PLACE", help="go on behind the page before, which said this")
    query.add_argument("--csv", metavar="FILE", help="write CSV to FILE; - is standard output")
    prune = _action(actions, "prune", "remove old runs")
    which = prune.add_mutually_exclusive_group(required=True)
    which.add_argument("--keep-nights", type=_count, metavar="N", help="all but the newest N runs of each machine")
    which.add_argument("--before", metavar="TIME", help="runs that started before: 2026-11-25 or 2026-11-25T10:15:00Z (UTC)")
    which.add_argument("--run", action="append", metavar="ID", help="this run; may be given again")
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    migrate = _action(actions, "migrate", "bring an older store up to date")
    migrate.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return parser


class _ActionParser(cli.Parser):
    def __init__(self, prog="", **rest):
        super().__init__(prog.split(" ", 1)[1], **rest)


def _action(actions, name, brief):
    parser = actions.add_parser(name, help=brief, description=brief[0].upper() + brief[1:] + ".")
    parser.add_argument("--store", metavar="STORE", help=STORE_HELP)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON to FILE; - is standard output, which then "
                        "carries nothing else")
    return parser


def _count(words):
    number = int(words)
    if number < 1:
        raise ValueError
    return number


def _limit(words):
    number = int(words)
    if number < 0:
        raise ValueError
    return number


_count.__name__ = _limit.__name__ = "number"


def main(arguments):
    """The verb; returns its exit code."""
    asked = _parser().parse_args(arguments)
    return {"add": _add, "query": _query, "prune": _prune, "migrate": _migrate}[asked.action](asked)


@contextlib.contextmanager
def _output(path):
    """Standard output for "-", else a file that appears whole."""
    if path == "-":
        yield sys.stdout
    else:
        with cli.whole_file(path) as stream:
            yield stream


def _write_json(path, document):
    with _output(path) as stream:
        json.dump(document, stream, indent=1, ensure_ascii=stream is sys.stdout)
        stream.write("\n")


def _plural(count, noun):
    return f"{count} {noun}" + ("" if count == 1 else "s")


class _Progress:
    """A line on a terminal's stderr, for what takes more than a second."""

    def __init__(self, paths):
        self.total = sum(os.path.getsize(path) for path in paths if os.path.isfile(path)) or None
        self.files, self.done, self.began, self.shown = len(paths), 0, time.monotonic(), 0.0

    def __call__(self, count, files):
        self.done += count
        now = time.monotonic()
        if now - self.began > 1 and now - self.shown > 0.2 and sys.stderr.isatty():
            self.shown = now
            share = f"{min(99, 100 * self.done // self.total)} %, " if self.total else ""
            sys.stderr.write(f"\r\33[Kloading: {share}{self.done / 1e6:.0f} MB, {files} of {_plural(self.files, 'file')}")
            sys.stderr.flush()

    def end(self):
        if self.shown:
            sys.stderr.write("\r\33[K")


def _add(asked):
    from skidproof.store import database, load, parallel
    paths = cli.result_files(asked.results)
    began = time.monotonic()
    engine, url = database.open_engine(asked.store, create=True)
    progress = _Progress(paths)
    reports, complaint = parallel.add(engine, url, paths, asked.jobs, progress)
    progress.end()
    seconds = time.monotonic() - began
    counts = {outcome: sum(len(report.runs[outcome]) for report in reports) for outcome in load.OUTCOMES}
    for report in reports:
        _say_problems(report)
    failed = complaint is not None or any(report.failed() for report in reports)
    if asked.json:
        _write_json(asked.json, {
            "store": database.shown(url), "seconds": round(seconds, 3), "rows": sum(report.rows for report in reports), "runs": counts,
            "complete": not failed, "error": complaint and complaint.message,
            "files": [{"path": report.path, "rows": report.rows, "runs": report.runs, "problem_count": report.problem_count,
                       "problems": [{"line": p.line, "what": p.words, "lost": p.lost} for p in report.problems]} for report in reports]})
    if asked.json != "-":
        print(_summary(counts, reports, database.shown(url), seconds))
    if complaint is not None:
        raise complaint
    return EXIT_HARNESS if failed else EXIT_HELD


def _summary(counts, reports, store, seconds):
    words = {"loaded": "loaded", "extended": "extended by what had been cut off", "there": "there already",
             "shorter": "there already, and longer", "refused": "refused"}
    said = [f"{count} {words[outcome]}" for outcome, count in counts.items() if count] or ["0 loaded"]
    rows = _plural(sum(report.rows for report in reports), "row")
    return f"runs: {', '.join(said)}; {rows} read in {seconds:.1f} s; store: {cli.printable(store)}"


def _say_problems(report):
    for problem in report.problems:
        where = f"{report.path}:{problem.line}" if problem.line else report.path
        print(cli.printable(f"{where}: {'' if problem.lost else 'note: '}{problem.words}"), file=sys.stderr)
    if report.problem_count > len(report.problems):
        print(cli.printable(f"{report.path}: and {report.problem_count - len(report.problems)} more"), file=sys.stderr)
    for run in report.runs["refused"]:
        print(cli.printable(f"{report.path}: run {run} is not loaded: another run of this id is in the store, with other rows"),
              file=sys.stderr)


def _plain(value):
    """As JSON, CSV and people get it."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo is None else value.astimezone(datetime.timezone.utc)
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value


def csv_cell(value):
    """A cell that a spreadsheet takes as words, whatever it begins with."""
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        value = json.dumps(value)
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return "'" + value
    return value


def _query(asked):
    import skidproof.store
    from skidproof.store import query
    if asked.csv and asked.json:
        raise usage("--csv and --json exclude each other")
    times = {name: None if getattr(asked, name) is None else query.moment(getattr(asked, name)) for name in ("since", "until")}
    with skidproof.store.open(asked.store) as store:
        pages = store.pages(asked.kind, machine=asked.machine, test=asked.test, figure=asked.figure, status=asked.status,
                            erratum=asked.erratum, run=asked.run, limit=asked.limit or None, after=asked.after, **times)
        if asked.json:
            cursor = _query_json(pages, asked)
        elif asked.csv:
            cursor = _query_csv(pages, asked.csv)
        else:
            cursor = _query_table(pages)
    if cursor and not asked.json:
        print(f"more: --after {cursor}", file=sys.stderr)
    return EXIT_HELD


def _query_json(pages, asked):
    cursor, first = None, True
    with _output(asked.json) as stream:
        stream.write(f'{{"kind": {json.dumps(asked.kind)}, "rows": [')
        for names, rows, cursor in pages:
            for row in rows:
                line = json.dumps(dict(zip(names, map(_plain, row))), ensure_ascii=stream is sys.stdout)
                stream.write(("\n " if first else ",\n ") + line)
                first = False
        stream.write(f'\n], "after": {json.dumps(cursor)}}}\n')
    return cursor


def _query_csv(pages, path):
    cursor, header = None, True
    with _output(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for names, rows, cursor in pages:
            if header:
                writer.writerow(names)
                header = False
            writer.writerows([csv_cell(value) for value in row] for row in rows)
    return cursor


def _query_table(pages):
    """A page at a time; the columns are as wide as the first page needs them."""
    cursor, widths = None, None
    for names, rows, cursor in pages:
        cells = [[_cell(value) for value in row] for row in rows]
        if widths is None:
            if not rows:
                print("nothing")
                return None
            shown = [index for index, _ in enumerate(names) if any(row[index] for row in cells)]
            widths = [min(60, max(len(names[index]), *(len(row[index]) for row in cells))) for index in shown]
            print("  ".join(names[index].ljust(width) for index, width in zip(shown, widths)).rstrip())
        for row in cells:
            print("  ".join(row[index].ljust(width) for index, width in zip(shown, widths)).rstrip())
    return cursor


def _cell(value):
    value = _plain(value)
    if isinstance(value, (dict, list)):
        value = json.dumps(value)
    words = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    words = cli.printable(words).replace("\n", " ")
    return words if len(words) <= 60 else words[:59] + "…"


def _prune(asked):
    from skidproof.store import database, prune, query
    before = None if asked.before is None else query.moment(asked.before)
    engine, url = database.open_engine(asked.store)
    with database.plain_words(url):
        removed, missing = prune.prune(engine, keep_nights=asked.keep_nights, before=before, runs=asked.run, dry_run=asked.dry_run)
    for run in missing:
        cli.complain(f"there is no run '{run}'", "list them: skidproof store query runs")
    if asked.json:
        _write_json(asked.json, {"store": database.shown(url), "dry_run": asked.dry_run, "missing": missing,
                                 "runs": [{"id": run, "started": _plain(started), "rows": rows} for run, started, rows in removed]})
    if asked.json != "-":
        for run, started, rows in removed if asked.dry_run else ():
            print(f"{cli.printable(run)}  {_plain(started) or 'no time'}  {_plural(rows, 'row')}")
        done = "would be removed" if asked.dry_run else "removed"
        print(f"{_plural(len(removed), 'run')} with {_plural(sum(rows for _, _, rows in removed), 'row')} {done}; store: "
              f"{cli.printable(database.shown(url))}")
    return cli.EXIT_USAGE if missing else EXIT_HELD


def _migrate(asked):
    from skidproof.store import database, schema
    url, found, steps = database.migration_steps(asked.store)
    if not asked.dry_run and steps:
        with database.plain_words(url):
            database.migrate(database.engine_of(url))
    if asked.json:
        _write_json(asked.json, {"store": database.shown(url), "from": found, "to": schema.REVISION, "dry_run": asked.dry_run,
                                 "steps": [{"revision": revision, "what": words} for revision, words in steps]})
    if asked.json != "-":
        for revision, words in steps:
            print(f"{'would do' if asked.dry_run else 'done'}: {revision} {words}")
        if not steps:
            print(f"up to date: {cli.printable(database.shown(url))} has the tables of version {found}")
    return EXIT_HELD
