"""`skidproof nightly`: its command line."""

import sys

from skidproof import cli
from skidproof.nightly import configuration, lock, night, state, status, steps

EXAMPLES = """\
Examples:
  skidproof nightly --dry-run                 what would be done, command by command; nothing is written
  skidproof nightly                           a night, now
  skidproof nightly --status                  the last night, what is left out and why, the next by the timer
  skidproof nightly --allow PebsReload.LoadsTheResetSlotAfterEveryRecord/PMC2.store
                                              the machine was lost in this test; it runs again from now on
  skidproof nightly --recover                 after a hang or a reboot: says what was lost, and runs nothing
  systemctl enable --now skidproof-nightly.timer

Exit codes: 0 all that ran held; 1 a property failed; 2 the harness failed, the machine was lost, or another nightly runs;
64 bad usage or configuration; 77 nothing could run. The night's is that of its most serious step: 2, 64, 1, 77, 0.
"""


def parse(arguments):
    parser = cli.Parser("nightly", description="One night on a lab machine: suites, characterization, errata; exports, store, report.",
                        epilog=EXAMPLES)
    parser.add_argument("--config", metavar="FILE", default=configuration.DEFAULT_PATH, help="the configuration (default: %(default)s)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="print the commands of a night, and do nothing")
    what.add_argument("--status", action="store_true", help="the last night, what is left out, when the next is due")
    what.add_argument("--recover", action="store_true",
                      help="finish a night that was cut short: name what was lost, store, report; begin none")
    what.add_argument("--allow", metavar="NAME", action="append", default=[],
                      help="run this test or step again, though the machine was lost in it; may be repeated")
    parser.add_argument("--json", metavar="FILE", help='the same as JSON; "-" is standard output')
    return parser.parse_args(arguments)


def dry_run(settings, found):
    """What a night would do: (document, words)."""
    called, folder = cli.program(), settings.nights_folder / night.new_name(settings)
    commands, lines = [], [f"a night on {settings['machine']['name']}, in {folder}"]

    def tell(step):
        if isinstance(step, steps.NotDone):
            commands.append({"name": step.name, "command": None, "not_done": step.why})
            lines.append(f"# {step.name}: not done: {step.why}")
            return
        commands.append({"name": step.name, "command": list(map(str, step.command)), "deadline_s": step.deadline_s})
        lines.append(f"# {step.name}: at most {step.deadline_s:g} s{'; ' + step.note if step.note else ''}")
        lines.append(str(step))

    if found.current is not None:
        lines.append(f"# night {found.current['id']} did not end: it is finished first, and what was lost in it is named and left out")
    for one in found.left_out:
        lines.append(f"# left out: {one['kind']} {one['name']}, since {one['since']}")
    files, run_rows = [], None
    for name in steps.MACHINE_STEPS:
        step = steps.machine_step(name, called, settings, folder, found, run_rows)
        if step is not None:
            tell(step)
        if isinstance(step, steps.Step):
            files.append(step.rows)
            run_rows = step.rows if name == "run" else run_rows
    for step in steps.closing_steps(called, settings, folder, files):
        tell(step)
    if settings["retention"]["nights"]:
        lines.append(f"# folders of nights older than the last {settings['retention']['nights']} are removed")
    return {"folder": str(folder), "unfinished": found.current and found.current["id"], "left_out": found.left_out, "commands": commands}, \
        "\n".join(lines)


def allow(settings, names):
    """Takes tests and steps back in; (document, words)."""
    if not settings.state_folder.is_dir():
        raise cli.usage(f"'{names[0]}' is not left out", f"there was no night so far: there is no '{settings.state_folder}'")
    with lock.held(settings.state_folder, state.now()):
        found = state.load(settings.state_folder)
        found.allow(names)
        found.save()
    return {"allowed": names, "left_out": found.left_out}, "\n".join(f"runs again: {name}" for name in names)


def main(arguments):
    options = parse(arguments)
    settings = configuration.read(options.config)
    if options.allow:
        cli.answer(options.json, *allow(settings, options.allow))
        return cli.EXIT_HELD
    if options.dry_run or options.status:
        found = state.load(settings.state_folder)
        if options.dry_run:
            cli.answer(options.json, *dry_run(settings, found))
        else:
            document = status.document(settings, found)
            cli.answer(options.json, document, status.words(document))
        return cli.EXIT_HELD
    stream = sys.stderr if options.json == "-" else sys.stdout
    do = night.recover_only if options.recover else night.one_night
    code, found = do(cli.program(), settings, lambda line: print(line, file=stream, flush=True))
    if options.json:
        cli.answer(options.json, {"exit": code, "night": found.last, "left_out": found.left_out}, f"as JSON: {options.json}")
    return code
