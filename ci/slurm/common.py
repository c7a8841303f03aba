"""What the scripts of this folder share."""

import json
import os
import subprocess
import sys


def complaint(words, code=2):
    """Says what is wrong; the exit code that goes with it."""
    print(f"{sys.argv[0]}: {words}", file=sys.stderr)
    return code


def job(number):
    """What Slurm still knows of a job: {field: value}. It forgets one that has ended after a while (MinJobAge, 300 s): then, and where it does
    not answer, empty."""
    try:
        done = subprocess.run(["scontrol", "--oneliner", "show", "job", number], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)


def write(path, value):
    """Writes JSON, the file as a whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)
