"""What the verbs that read results share: their names, their exit codes, how they complain, which files they are given."""

import argparse
import contextlib
import importlib
import json
import math
import os
import pathlib
import shutil
import signal
import sys

EXIT_HELD, EXIT_FAILED, EXIT_HARNESS, EXIT_USAGE = 0, 1, 2, 64
OUTPUTS = "skidproof-out"

# Each is a module with main(arguments) -> exit code, and the Debian packages that it cannot do without.
VERBS = {
    "characterize": "skidproof.characterize",
    "compare": "skidproof.compare",
    "completion": "skidproof.commands",
    "export": "skidproof.export",
    "nightly": "skidproof.nightly.verb",
    "manual": "skidproof.manual",
    "report": "skidproof.report",
    "serve": "skidproof.serve",
    "store": "skidproof.store.verb",
    "trends": "skidproof.trends",
}
PACKAGES = {  # by module
    "alembic": "python3-alembic", "fastapi": "python3-fastapi", "matplotlib": "python3-matplotlib", "numpy": "python3-numpy",
    "pandas": "python3-pandas", "psycopg2": "python3-psycopg2", "scipy": "python3-scipy", "sqlalchemy": "python3-sqlalchemy",
    "uvicorn": "python3-uvicorn",
}


class Complaint(Exception):
    """What went wrong, what to do about it, and the exit code that says so."""

    def __init__(self, message, advice="", exit_code=EXIT_HARNESS):
        super().__init__(message)
        self.message, self.advice, self.exit_code = message, advice, exit_code


def usage(message, advice=""):
    return Complaint(message, advice, EXIT_USAGE)


def complain(message, advice=""):
    """One line of what is wrong, and below it what to do."""
    red, plain = ("\33[31m", "\33[0m") if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else ("", "")
    print(f"{red}skidproof:{plain} {printable(message)}", file=sys.stderr)
    if advice:
        print(f"  {printable(advice)}", file=sys.stderr)


def printable(words):
    """Names come from files: what would move the cursor is shown instead of sent to a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(words))


class Parser(argparse.ArgumentParser):
    """Exits with 64 for bad usage, and says where the help is."""

    def __init__(self, verb, **rest):
        rest.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog=f"skidproof {verb}", allow_abbrev=False, **rest)

    def error(self, message):
        complain(message, f"see: {self.prog} --help")
        sys.exit(EXIT_USAGE)


def result_files(inputs):
    """The results files that the user means: files as they are, of a folder its *.jsonl; without any, the newest of each
    name below skidproof-out. Complaint where there is none."""
    files = []
    for name in inputs:
        path = pathlib.Path(name)
        if path.is_dir():
            found = sorted(map(str, path.glob("*.jsonl")))
            if not found:
                raise usage(f"no *.jsonl file in '{name}'", "name the folder of a run: skidproof-out/<run id>")
            files += found
        elif name != "-" and not path.exists():
            raise usage(f"there is no file '{name}'", "name results files (*.jsonl) or the folders that hold them")
        else:
            files.append(name)
    if not inputs:
        newest = {path.name: str(path) for path in sorted(pathlib.Path(OUTPUTS).glob("*/*.jsonl"))}  # run ids begin with the time
        files = list(newest.values())
        if not files:
            raise usage(f"there are no results below {OUTPUTS}",
                        "run `skidproof run` or `skidproof characterize` here first, or name results files")
    return list(dict.fromkeys(files))


@contextlib.contextmanager
def whole_file(path, mode="w"):
    """A file that appears whole at `path` or not at all, whatever happens meanwhile; a pipe or a device is written to. OSError as of
    open and rename."""
    path = pathlib.Path(path)
    how = {} if "b" in mode else {"encoding": "utf-8", "errors": "replace", "newline": ""}
    if path.exists() and not path.is_file():
        with open(path, mode, **how) as stream:
            yield stream
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, mode, **how) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def program():
    """The skidproof that is called: $SKIDPROOF, which the program sets to itself, or the one in PATH. Complaint."""
    said = os.environ.get("SKIDPROOF")
    if said and not (os.path.isfile(said) and os.access(said, os.X_OK)):
        raise Complaint(f"$SKIDPROOF is '{said}', which is no program", "unset it, or name the skidproof that is meant")
    found = said or shutil.which("skidproof")
    if not found:
        raise Complaint("there is no skidproof to call", "call this through it, as `skidproof VERB`, or set $SKIDPROOF to the program")
    return os.path.abspath(found)


def share(words):
    """argparse's type of a share between 0 and 1, neither of which it is."""
    value = float(words)
    if not 0 < value < 1:
        raise ValueError(words)
    return value


def plain(value):
    """A value as JSON can say it: numbers that are none are null, NumPy's and pandas' are Python's, times are text in UTC."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat().removesuffix("+00:00") + "Z"
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, str)) else None


def answer(path, document, words):
    """What a verb found: `words` on standard output, and as JSON into the file `path`; with "-", the JSON alone."""
    if path == "-":
        print(json.dumps(document))
        return
    if path:
        with whole_file(path) as stream:
            json.dump(document, stream)
            stream.write("\n")
    print(words)


def main(arguments):
    """Runs the verb that the first argument names."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not arguments or arguments[0] not in VERBS:
        complain(f"there is no verb '{arguments[0]}'" if arguments else "no verb", f"there are: {', '.join(VERBS)}")
        return EXIT_USAGE
    try:
        code = importlib.import_module(VERBS[arguments[0]]).main(arguments[1:])
        sys.stdout.flush()
        return code
    except Complaint as complaint:
        complain(complaint.message, complaint.advice)
        return complaint.exit_code
    except ImportError as error:
        package = PACKAGES.get((error.name or "").split(".")[0]) or next((p for m, p in PACKAGES.items() if m in str(error)), None)
        complain(f"Python's module {error.name or error} is missing", f"apt-get install {package}" if package else "")
        return EXIT_HARNESS
    except BrokenPipeError:
        sys.stderr.close()  # whoever read has gone; say nothing more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_HARNESS
    except OSError as error:
        complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return EXIT_HARNESS
