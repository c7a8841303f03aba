"""How the last night went, for people, for programs and for Prometheus."""

import datetime
import json
import subprocess

from skidproof.cli import whole_file
from skidproof.nightly import lock

TIMER = "skidproof-nightly.timer"
_WORDS = {"pass": "passed", "fail": "failed", "error": "in error", "skip": "skipped", "xfail": "xfail", "xpass": "xpass", "observed": "observed",
          "disturbed": "disturbed"}


def _in_words(counts):
    return ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts.get(status))


def counted(run):
    """"31 passed, 9 skipped"; empty where no test ended."""
    return _in_words(run.counts()) if run else ""


def next_by_timer():
    """(time as rows have it or None, why it is None): when systemd will start the next night."""
    try:
        done = subprocess.run(["systemctl", "list-timers", "--all", "--output=json", TIMER], capture_output=True, text=True, timeout=10,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"systemctl does not answer: {error}"
    if done.returncode:
        return None, f"systemctl does not answer: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode}"
    return next_of(done.stdout)


def next_of(text):
    """The same of what `systemctl list-timers --output=json` printed."""
    try:
        microseconds = next((timer["next"] for timer in json.loads(text) if timer["unit"] == TIMER), None)
    except (ValueError, TypeError, KeyError):
        return None, "systemctl says nothing that can be read"
    if not microseconds:
        return None, f"{TIMER} is not started: systemctl enable --now {TIMER}"
    return datetime.datetime.fromtimestamp(microseconds // 1_000_000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), ""


def document(settings, state):
    """What `--status --json` says."""
    following, why = next_by_timer()
    holder = lock.holder(settings.state_folder)
    return {"configuration": settings.path, "state": str(settings.state_folder), "running": holder, "current": state.current,
            "last": state.last, "left_out": state.left_out, "next": following, "next_unknown": why or None}


def _night(night):
    lines = [f"  machine       {night['machine']}", f"  results       {night['folder']}"]
    if night.get("ended"):
        lines.append(f"  ended         {night['ended']}: {night['words']} (exit {night['exit']})")
    if night.get("counts"):
        lines.append(f"  tests         {_in_words(night['counts'])}")
    for entry in night["steps"]:
        exit_words = f" (exit {entry['night_exit']})" if entry["night_exit"] else ""
        seconds = f", {entry['seconds']:.1f} s" if entry["seconds"] else ""
        lines.append(f"    {entry['name']:<14}{entry['words'] or entry['state']}{exit_words}{seconds}")
    lines += [f"  {one['status']:<14}{one['id']}{': ' if one['reason'] else ''}{one['reason'].splitlines()[0] if one['reason'] else ''}"
              for one in night.get("failed", [])]
    return lines


def words(found):
    """The same for people."""
    lines = []
    if found["running"]:
        lines.append(f"running: {found['running']}")
    if found["current"]:
        lines.append(f"night {found['current']['id']}{'' if found['running'] else ' was cut short; the next start will say what was lost'}")
        lines += _night(found["current"])
    if found["last"]:
        lines += [f"last night {found['last']['id']}, started {found['last']['started']}", *_night(found["last"])]
    elif not found["current"]:
        lines.append("no night so far")
    if found["left_out"]:
        lines.append("left out until `skidproof nightly --allow NAME`:")
        lines += [f"  {one['kind']} {one['name']}\n    since {one['since']}, night {one['night']}: {one['reason']}" for one in found["left_out"]]
    else:
        lines.append("left out: nothing")
    lines.append(f"next: {found['next'] or 'unknown, ' + found['next_unknown']}")
    return "\n".join(lines)


def _label(value):
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _seconds(time):
    return int(datetime.datetime.fromisoformat(time).timestamp())


def write_metrics(path, state):
    """The last night and what is left out, as Prometheus text. OSError."""
    night = state.last
    metrics = [
        ("skidproof_nightly_start_timestamp_seconds", "When the last night began.", [("", _seconds(night["started"]))]),
        ("skidproof_nightly_end_timestamp_seconds", "When the last night ended.", [("", _seconds(night["ended"]))]),
        ("skidproof_nightly_exit_code", "0 held, 1 a property failed, 2 harness failed or machine lost, 64 bad usage, 77 nothing could run.",
         [("", night["exit"])]),
        ("skidproof_nightly_step_exit_code", "The same of each step.",
         [(f'step="{_label(entry["name"])}"', entry["night_exit"]) for entry in night["steps"] if entry["night_exit"] is not None]),
        ("skidproof_nightly_step_seconds", "How long each step took.",
         [(f'step="{_label(entry["name"])}"', entry["seconds"]) for entry in night["steps"] if entry["seconds"] is not None]),
        ("skidproof_nightly_left_out", "What is left out, since the machine was lost in it.",
         [(f'kind="{_label(one["kind"])}",name="{_label(one["name"])}"', 1) for one in state.left_out]),
        ("skidproof_nightly_left_out_count", "How much is left out.", [("", len(state.left_out))]),
    ]
    with whole_file(path) as stream:
        for name, text, samples in metrics:
            stream.write(f"# HELP {name} {text}\n# TYPE {name} gauge\n")
            stream.writelines(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n" for labels, value in samples)
