"""Turns results files into one page with plots.

usage: python3 results/report --out DIR FILE...

Reads JSON Lines (schema 1; "-" is standard input) and writes DIR/report.html, which needs no other file
and no network, and each plot as DIR/<plot>.png and .svg.

Exit codes: 0 written; 2 nothing could be read, or DIR cannot be written; 64 bad usage.
"""

import argparse
import datetime
import os
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # a report leaves nothing beside the program
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

EXIT_HARNESS, EXIT_USAGE = 2, 64


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        print(f"report: {message}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def parse(arguments):
    parser = Parser(prog="report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder for the page and the plots; made if missing")
    parser.add_argument("files", nargs="+", metavar="FILE", help='results files; "-" is standard input')
    return parser.parse_args(arguments)


def complain(message):
    print(f"report: {message}", file=sys.stderr)


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
    try:
        import figures
    except ImportError as error:
        complain(f"{error}\n  install the plotting library: apt-get install python3-matplotlib")
        return EXIT_HARNESS
    import page
    import rows

    sources = [rows.read_source(path) for path in dict.fromkeys(options.files)]
    for source in sources:
        for problem in source.problems:
            complain(f"{source.path}: {problem}")
        for run in source.runs:
            if run.end is None:
                complain(f"{source.path}: run {run.name} was cut short: it has no end row")
    if not any(source.readable for source in sources):
        complain("nothing to report\n  give results files as written by --json FILE or into --out DIR")
        return EXIT_HARNESS

    plots = {id(run): [(machine, figures.plots_of(run, machine)) for machine in run.machine_names()]
             for source in sources for run in source.runs}
    named = name_plots([pair for pairs in plots.values() for pair in pairs])
    written = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    out = pathlib.Path(options.out)
    try:
        write(out, page.page(sources, plots, written), named)
    except OSError as error:
        complain(f"cannot write {error.filename or out}: {error.strerror}\n  choose another place with --out DIR")
        return EXIT_HARNESS
    print(f"{out / 'report.html'} ({len(named)} plots beside it, PNG and SVG)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
