"""What the program takes on its command line, and `skidproof completion`: the words that a shell completes it with.

The program says what its own verbs take (`skidproof command-line`), the parsers of Python's verbs say it of theirs; completion and
manual pages (manual.py) are made of both, so that neither can forget an option.
"""

import argparse
import dataclasses
import importlib
import json
import re
import subprocess
import sys

from skidproof import cli

SHELLS = ("bash", "zsh", "fish")
# What the program lists of what these options and arguments name.
LISTS = {"--machine": "machines", "--defect": "defects", "--microarch": "microarchs"}
FILES = {"FILE", "PATH", "RESULT", "RESULTS", "ROWS", "STORE", "A", "B"}
FOLDERS = {"DIR"}
EPILOG = """examples:
  skidproof completion bash > ~/.local/share/bash-completion/completions/skidproof
  skidproof completion zsh > "${fpath[1]}/_skidproof"
  skidproof completion fish > ~/.config/fish/completions/skidproof.fish

exit codes: 0 done, 2 the program could not be asked, 64 bad usage"""


@dataclasses.dataclass(frozen=True)
class Option:
    """An option, or, without names, an argument that is told by its place."""

    names: tuple
    value: str        # what its value is called; "" for a flag
    choices: tuple    # all values there are; empty where they cannot be listed
    many: bool
    required: bool
    default: str
    brief: str

    @property
    def files(self):
        """"file", "folder", or "" where no file is meant."""
        return "" if self.choices else "file" if self.value in FILES else "folder" if self.value in FOLDERS else ""


@dataclasses.dataclass(frozen=True)
class Command:
    """The program, a verb of it, or an action of a verb."""

    name: str
    brief: str
    epilogue: str
    options: tuple
    arguments: tuple
    commands: tuple = ()
    version: str = ""


class _Met(Exception):
    """Carries a parser out of the verb that made it."""


def _parser_of(verb):
    """The parser that a verb of Python's reads its arguments with. cli.Complaint when it has none."""
    def show(parser, *_):
        raise _Met(parser)
    before = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = show
    try:
        importlib.import_module(cli.VERBS[verb]).main([])
    except _Met as met:
        return met.args[0]
    finally:
        argparse.ArgumentParser.parse_known_args = before
    raise cli.Complaint(f"`{verb}` has read its arguments without a parser")


def _of_parser(name, brief, parser):
    options, arguments, commands = [], [], []
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            briefs = {choice.dest: choice.help for choice in action._choices_actions}
            commands += [_of_parser(word, briefs.get(word, ""), below) for word, below in action.choices.items()]
            continue
        value = "" if action.nargs == 0 else str(action.metavar or (action.dest.upper()))
        default = action.default if isinstance(action.default, (str, int, float)) and not isinstance(action.default, bool) else ""
        words = formatter._expand_help(action) if action.help else ""
        option = Option(tuple(action.option_strings), value, tuple(map(str, action.choices or ())), action.nargs in ("*", "+"),
                        bool(action.required) and action.nargs not in ("*", "?"), "" if default == argparse.SUPPRESS else str(default), words)
        (options if action.option_strings else arguments).append(option)
    return Command(name, brief or parser.description or "", parser.epilog or "", tuple(options), tuple(arguments), tuple(commands))


def _of_program(found, lists):
    def option(one):
        first = next((name for name in one["names"] if name.startswith("--")), "")
        choices = tuple(one["choices"])
        if not choices and first in LISTS:
            choices = lists[LISTS[first]]
        elif not one["names"] and (said := re.match(r"one of: ([\w-]+(?:, [\w-]+)*)$", one["brief"])):
            choices = tuple(said[1].split(", "))
        return Option(tuple(one["names"]), one["value"] or "", choices, one["many"], one["required"], one["default"], one["brief"])
    if found["elsewhere"]:
        return _of_parser(found["name"], found["brief"], _parser_of(found["name"]))
    return Command(found["name"], found["brief"], found["epilogue"], tuple(map(option, found["options"])),
                   tuple(map(option, found["arguments"])), tuple(_of_program(verb, lists) for verb in found["verbs"]),
                   found.get("version", ""))


def _ask(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise cli.Complaint(f"{program} {' '.join(words)} exits with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def describe(program):
    """All that the program at this path takes, a Command. cli.Complaint when it cannot be asked."""
    lists = {name: tuple(one["id"] for one in _ask(program, "list", name, "--json", "-")) for name in set(LISTS.values())}
    lists["machines"] = tuple(name for name in lists["machines"] if not name.startswith("tape:")) + ("tape:",)
    return _of_program(_ask(program, "command-line"), lists)


def places(root):
    """Each command with what stands before its options: ("run",), ("store", "add")."""
    for verb in root.commands:
        yield (verb.name,), verb
        for action in verb.commands:
            yield (verb.name, action.name), action


def _quoted(words):
    return "'" + " ".join(words).replace("'", "'\\''") + "'"


def bash(root):
    """What Bash completes the program by, a script."""
    lists, cases = {}, []  # long lists are said once

    def candidates(choices):
        if len(choices) <= 8:
            return _quoted(choices)
        name = lists.setdefault(choices, f"list{len(lists)}")
        return f"${name}"

    def answer(option):
        if option.choices:
            return f"words={candidates(option.choices)}"
        return {"file": "kind=file", "folder": "kind=folder"}.get(option.files, "kind=nothing")

    for place, command in places(root):
        where = " ".join(place)
        grouped = {}
        for option in command.options:
            if option.value:
                grouped.setdefault(answer(option), []).extend(f"'{where} {name}'" for name in option.names)
        for said, patterns in grouped.items():
            cases.append(f"    {' | '.join(patterns)}) {said} ;;")
    ends = []
    for place, command in (((), root), *places(root)):
        names = [name for option in command.options for name in option.names]
        below = [one.name for one in command.commands]
        if below:
            rest = f"words={_quoted(below)}"
        elif command.arguments:
            rest = answer(command.arguments[0])
        else:
            rest = "kind=nothing"
        ends.append(f"      '{' '.join(place)}') options={_quoted(names)}; {rest} ;;")
    deep = [verb.name for verb in root.commands if verb.commands]
    tables = "\n".join(f"  local {name}={_quoted(words)}" for words, name in lists.items())
    return f"""\
# Bash completion of skidproof {root.version}; made by: skidproof completion bash
_skidproof() {{
  local line=${{COMP_LINE:0:COMP_POINT}} current previous where= word words= kind= options= prefix place
  local -a typed
{tables}
  COMPREPLY=()
  read -ra typed <<<"$line"
  [[ $line != *[[:space:]] ]] || typed+=("")
  current=${{typed[-1]}} previous=
  if [ "${{#typed[@]}}" -gt 2 ]; then previous=${{typed[-2]}}; fi
  for ((place = 1; place < ${{#typed[@]}} - 1; ++place)); do
    word=${{typed[place]}}
    [[ $word != -* ]] || continue
    if [ -z "$where" ]; then
      where=$word
      case $where in
        {' | '.join(deep) or "''"}) continue ;;
      esac
    else
      where="$where $word"
    fi
    break
  done
  if [[ $current == --*=* ]]; then
    previous=${{current%%=*}} current=${{current#*=}}
  fi
  case "$where $previous" in
{chr(10).join(cases)}
  esac
  if [ -z "$words$kind" ]; then
    case $where in
{chr(10).join(ends)}
    esac
    if [[ $current == -* ]]; then words=$options kind=; fi
  fi
  if [[ $current == tape:* ]]; then
    current=${{current#tape:}} kind=file words=
  fi
  case $kind in
    nothing) return 0 ;;
    file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    folder)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    *)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      case "${{COMPREPLY[*]}}" in
        tape: | model:) compopt -o nospace 2>/dev/null ;;
      esac
      # What stands before a colon is another word to readline.
      if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
        prefix=${{current%"${{current##*:}}"}}
        COMPREPLY=("${{COMPREPLY[@]#"$prefix"}}")
      fi
      ;;
  esac
}}
complete -F _skidproof skidproof
"""


def _one_line(words):
    return " ".join(words.split())


def zsh(root):
    """The same for the Z shell, a file of a folder in `fpath` named _skidproof."""
    def told(words):
        return re.sub(r"([\[\]:\\])", r"\\\1", _one_line(words)).replace("'", "'\\''")

    def values(option):
        if option.choices:
            return "(" + " ".join(word.replace(":", "\\:").replace("'", "'\\''") for word in option.choices) + ")"
        return {"file": "_files", "folder": "_files -/"}.get(option.files, " ")

    def spec(option):
        names = option.names
        several = "*" if option.many else ""
        value = f":{told(option.value)}:{values(option)}" if option.value else ""
        body = f"[{told(option.brief)}]{value}'"
        if len(names) == 1 or several:
            return [f"'{several}{name}{body}" for name in names]
        return [f"'({' '.join(names)})'{{{','.join(names)}}}'{body}"]

    def arguments(command):
        lines = [line for option in command.options for line in spec(option)]
        for number, argument in enumerate(command.arguments, 1):
            where = "*" if argument.many else str(number)
            lines.append(f"'{where}:{told(argument.value)}:{values(argument)}'")
        return lines

    def block(command, name):
        if not command.commands:
            return f"  _arguments {' '.join(chr(92) + chr(10) + '    ' + line for line in arguments(command))}"
        described = " ".join(f"'{one.name}:{told(one.brief)}'" for one in command.commands)
        rows = "\n".join(f"        {one.name}) _skidproof_{name}{one.name.replace('-', '_')} ;;" for one in command.commands)
        lines = " ".join(chr(92) + chr(10) + "    " + line for line in arguments(command))
        return f"""\
  local state
  local -a line below
  _arguments -C {lines} \\
    '1: :->which' '*::: :->rest'
  case $state in
    which)
      below=({described})
      _describe verb below
      ;;
    rest)
      case $line[1] in
{rows}
      esac
      ;;
  esac"""

    parts = [f"#compdef skidproof\n# Completion of skidproof {root.version} for the Z shell; made by: skidproof completion zsh\n"]
    for place, command in places(root):
        name = "_".join(place).replace("-", "_")
        parts.append(f"_skidproof_{name}() {{\n{block(command, name + '_')}\n}}\n")
    parts.append(f"_skidproof() {{\n{block(root, '')}\n}}\n")
    parts.append('_skidproof "$@"\n')
    return "\n".join(parts)


def fish(root):
    """The same for fish."""
    def quoted(words):
        return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def lines(condition, command):
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = ""
            if option.choices:
                value = " -x -a " + quoted(" ".join(option.choices))
            elif option.files == "folder":
                value = " -x -a '(__fish_complete_directories)'"
            elif option.value:
                value = " -r -F" if option.files else " -x"
            yield f"complete -c skidproof{condition} {names}{value} -d {quoted(_one_line(option.brief))}"
        for argument in command.arguments:
            if argument.choices:
                yield f"complete -c skidproof{condition} -a {quoted(' '.join(argument.choices))}"
            elif argument.files:
                yield f"complete -c skidproof{condition} -F"

    out = [f"# Completion of skidproof {root.version} for fish; made by: skidproof completion fish", "complete -c skidproof -f"]
    out += lines(" -n __fish_use_subcommand", root)
    for verb in root.commands:
        out.append(f"complete -c skidproof -n __fish_use_subcommand -a {verb.name} -d {quoted(_one_line(verb.brief))}")
        seen = f"__fish_seen_subcommand_from {verb.name}"
        if verb.commands:
            below = " ".join(one.name for one in verb.commands)
            out += [f"complete -c skidproof -n {quoted(f'{seen}; and not __fish_seen_subcommand_from {below}')} -a {one.name} "
                    f"-d {quoted(_one_line(one.brief))}" for one in verb.commands]
            for one in verb.commands:
                out += lines(" -n " + quoted(f"{seen}; and __fish_seen_subcommand_from {one.name}"), one)
        else:
            out += lines(" -n " + quoted(seen), verb)
    return "\n".join(out) + "\n"


def main(arguments):
    parser = cli.Parser("completion", description="Prints what a shell completes this program's command line with.", epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    asked = parser.parse_args(arguments)
    root = describe(cli.program())
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[asked.shell](root))
    return cli.EXIT_HELD
