"""`skidproof export`: results for other programs, as JUnit XML, TAP, CSV, Prometheus text or OCP JSON Lines."""

import json
import os
import pathlib
import re
import stat
import sys

from skidproof import rows
from skidproof.cli import EXIT_HARNESS, EXIT_HELD, Complaint, Parser, complain, result_files, usage, whole_file
from skidproof.export import common

FORMATS = ("junit", "tap", "csv", "prometheus", "ocp")
TABLES = ("measurements", "tests", "errata")
EXAMPLES = """\
Examples:
  skidproof export --format junit --out junit.xml          the newest results below skidproof-out, for a CI server
  skidproof export --format csv --table tests r.jsonl      one table to standard output
  skidproof export --format prometheus --out /var/lib/prometheus/node-exporter r.jsonl
                                                           for the node-exporter: skidproof.prom appears there whole
  skidproof export --format ocp --out ocp/ --store lab.db --run 20261125T101500Z-1a2b

Exit codes: 0 written; 2 nothing could be read, or the place cannot be written; 64 bad usage. What tests found does not decide it.
"""


def parse(arguments):
    parser = Parser("export", description="Results for other programs.", epilog=EXAMPLES)
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help='results files (*.jsonl), folders of them, or "-" for standard input (default: the newest of each kind)')
    parser.add_argument("--format", required=True, choices=FORMATS, help="what to write")
    parser.add_argument("--out", metavar="FILE|DIR",
                        help="where to; a folder is one that is there, or whose name ends with / (default: standard output)")
    parser.add_argument("--table", choices=TABLES, help="with csv: this table alone, as one file")
    parser.add_argument("--store", metavar="URL", help="take runs out of this store, not of files")
    parser.add_argument("--run", metavar="ID", action="append", default=[], help="with --store: the run; may be repeated")
    parser.add_argument("--json", metavar="FILE", help='what was written where, as JSON; "-" is standard output')
    options = parser.parse_args(arguments)
    if options.table and options.format != "csv":
        parser.error("--table belongs to --format csv")
    if bool(options.store) != bool(options.run):
        parser.error("--store and --run belong together")
    if options.store and options.files:
        parser.error("runs come out of files or out of a store, not of both")
    if options.json == "-" and not options.out:
        parser.error("--json - needs --out: both would go to standard output")
    return options


def read(options):
    """(runs, problems): what can be exported, and what could not be read, as words."""
    if options.store:
        sources = _from_store(options.store, options.run)
    else:
        sources = [rows.read_source(path) for path in result_files(options.files)]
    problems = [f"{source.path}: {problem}" for source in sources for problem in source.problems]
    runs = []
    for run in (run for source in sources for run in source.runs):
        twin = next((other for other in runs if run.run.get("id") and other.name == run.name), None)
        if twin and _same(run, twin):
            problems.append(f"{run.path}: run {run.name} is in {twin.path} as well, and is exported once")
            continue
        if twin:
            problems.append(f"{run.path}: run {run.name} is in {twin.path} as well, with other rows: both are exported")
        if run.end is None:
            problems.append(f"{run.path}: run {run.name} was cut short: it has no end row")
        runs.append(run)
    if not any(source.readable for source in sources):
        for problem in problems:
            complain(problem)
        raise Complaint("nothing to export", "give results files as written by --json FILE or into --out DIR")
    return [_tidy(run) for run in runs], problems


def _same(one, other):
    return {**vars(one), "path": ""} == {**vars(other), "path": ""}


def _tidy(run):
    return rows.Run(**{name: value if name == "path" else common.tidy(value) for name, value in vars(run).items()})


def _from_store(url, names):
    from skidproof import store

    found = store.open(url).rows_of(dict.fromkeys(names))
    return [rows.source_of(f"store, run {name}", its) for name, its in found]  # the URL may hold a password


def documents(options, runs, problems):
    """[(default file name, text)]"""
    if options.format == "junit":
        from skidproof.export import junit
        return [("skidproof.xml", junit.document(runs))]
    if options.format == "tap":
        from skidproof.export import tap
        return [("skidproof.tap", tap.document(runs))]
    if options.format == "csv":
        from skidproof.export import tables
        return [(f"{name}.csv", text) for name, text in tables.documents(runs).items() if options.table in (None, name)]
    if options.format == "prometheus":
        from skidproof.export import prometheus
        series = prometheus.collect(runs)
        problems += series.notices
        return [("skidproof.prom", series.text())]
    from skidproof.export import ocp
    return _named(ocp.documents(runs))


def _named(streams):
    """File names of OCP streams: the run and the machine, and a number where that was there before."""
    found = {}
    for (run, machine), text in streams:
        stem, count = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run}-{machine}").strip("-.")[:200] or "unnamed", 1
        while (name := f"{stem}.ocp.jsonl" if count == 1 else f"{stem}-{count}.ocp.jsonl") in found:
            count += 1
        found[name] = text
    return list(found.items())


def write(out, named):
    """Each file appears whole or not at all. Returns where they are."""
    folder = out.endswith("/") or os.path.isdir(out)
    if len(named) > 1 and not folder:
        raise usage(f"there are {len(named)} files to write, and '{out}' is no folder", "end the name of a new folder with /")
    places = [pathlib.Path(out) / name if folder else pathlib.Path(out) for name, _ in named]
    try:
        places[0].parent.mkdir(parents=True, exist_ok=True)
        for place, (_, text) in zip(places, named):
            if place.exists() and not stat.S_ISREG(place.stat().st_mode):  # a pipe or a device is written to, never replaced
                place.write_text(text, encoding="utf-8", newline="")
                continue
            with whole_file(place) as stream:
                stream.write(text)
    except OSError as error:
        raise Complaint(f"cannot write {error.filename or out}: {error.strerror}", "choose another place with --out") from error
    return list(map(str, places))


def main(arguments):
    options = parse(arguments)
    runs, problems = read(options)
    named = documents(options, runs, problems)
    for problem in problems:
        complain(problem)
    if not named:
        complain("nothing to export: no row names a machine")
        return EXIT_HARNESS
    if not options.out:
        if len(named) > 1:
            raise usage(f"{options.format} writes {len(named)} files of these results", "name a folder: --out DIR/" + (
                ", or one table: --table tests" if options.format == "csv" else ""))
        sys.stdout.buffer.write(named[0][1].encode("utf-8"))
        return EXIT_HELD
    places = write(options.out, named)
    if options.json:
        counts = {status: sum(one.status == status for run in runs for one in common.outcomes(run)) for status in sorted(rows.STATUSES)}
        summary = json.dumps({"format": options.format, "files": places, "runs": [run.name for run in runs], "counts": counts,
                              "measurements": sum(len(run.measurements) for run in runs), "problems": problems}, indent=2)
        if options.json != "-":
            with whole_file(options.json) as stream:
                stream.write(summary + "\n")
        else:
            print(summary)
    if options.json != "-":
        print("\n".join(places))
    return EXIT_HELD
