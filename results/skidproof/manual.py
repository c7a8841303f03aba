"""Manual pages: skidproof(1), and one for each verb, made of what the program says that it takes (commands.py).

The build of the packages calls it: `SKIDPROOF=… python3 results/skidproof manual FOLDER`.
"""

import datetime
import os
import pathlib

from skidproof import cli, commands


def escaped(words):
    """Words as roff takes them: what it would read as a request or a typographic sign is plain text."""
    lines = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in lines.split("\n"))


def _heading(root, title):
    # The time of the source where a build says it, so that the same source makes the same page.
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc) if moment else datetime.datetime.now(datetime.timezone.utc)
    return [f'.TH {title.upper().replace("-", chr(92) + "-")} 1 "{day:%Y-%m-%d}" "skidproof {root.version}" "User Commands"', ".nh", ".ad l"]


def _option(option):
    value = f" \\fI{escaped(option.value)}\\fR" if option.value else ""
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option.names)
    brief = option.brief.strip()
    said = [escaped(brief if brief.endswith(".") or not (option.choices or option.default) else brief + ".")] if brief else []
    if option.choices and len(option.choices) <= 16 and not all(word in option.brief for word in option.choices):
        said.append(escaped("One of: " + ", ".join(option.choices) + "."))
    if option.default and "default" not in option.brief:
        said.append(escaped(f"Default: {option.default}."))
    return [".TP", (names + value) if names else value.strip(), *said]


def _section(name, options):
    return [f".SH {name}", *(line for option in options for line in _option(option))] if options else []


def _synopsis(words, command):
    parts = [f"\\fB{escaped(words)}\\fR"]
    if command.options:
        parts.append("[\\fIOPTION\\fR…]")
    for one in command.arguments:
        value = f"\\fI{escaped(one.value)}\\fR" + ("…" if one.many else "")
        parts.append(value if one.required else f"[{value}]")
    return " ".join(parts)


def _epilogue(words):
    """Examples and exit codes as they are laid out in the help."""
    return [".SH NOTES", ".nf", escaped(words.strip()), ".fi"] if words.strip() else []


def _lower(brief):
    return brief.rstrip(".")


def page_of_program(root):
    """skidproof(1) as roff."""
    names = [verb.name for verb in root.commands]
    lines = [*_heading(root, "skidproof"), ".SH NAME", "skidproof \\- " + escaped("check what precise sampling hardware (PEBS) really does"),
             ".SH SYNOPSIS", "\\fBskidproof\\fR \\fIVERB\\fR [\\fIOPTION\\fR…]", ".br", "\\fBskidproof\\fR [\\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR]",
             ".SH DESCRIPTION", escaped(root.brief), ".SH VERBS"]
    for verb in root.commands:
        lines += [".TP", f"\\fB{escaped(verb.name)}\\fR", escaped(verb.brief[0].upper() + verb.brief[1:].rstrip(".") + ".")
                  + f"\nSee \\fBskidproof\\-{escaped(verb.name)}\\fR(1)."]
    lines += [*_section("OPTIONS", root.options), *_epilogue(root.epilogue), ".SH FILES", ".TP", "\\fIskidproof\\-out/\\fR",
              "Where results go, below the current folder, unless \\fB\\-\\-out\\fR says another place.", ".SH SEE ALSO",
              ",\n".join(f"\\fBskidproof\\-{escaped(name)}\\fR(1)" for name in sorted(names))]
    return "\n".join(lines) + "\n"


def page_of_verb(root, verb):
    """skidproof-VERB(1) as roff."""
    words = f"skidproof {verb.name}"
    lines = [*_heading(root, f"skidproof-{verb.name}"), ".SH NAME", f"skidproof\\-{escaped(verb.name)} \\- {escaped(_lower(verb.brief))}",
             ".SH SYNOPSIS"]
    if verb.commands:
        for number, action in enumerate(verb.commands):
            lines += [*([".br"] if number else []), _synopsis(f"{words} {action.name}", action)]
    else:
        lines.append(_synopsis(words, verb))
    lines += _section("ARGUMENTS", verb.arguments) + _section("OPTIONS", verb.options)
    for action in verb.commands:
        lines += [f'.SH "{action.name.upper()}"', escaped(_lower(action.brief).capitalize() + "."),
                  *(line for one in (*action.arguments, *action.options) for line in _option(one))]
    lines += [*_epilogue(verb.epilogue), ".SH SEE ALSO", "\\fBskidproof\\fR(1)"]
    return "\n".join(lines) + "\n"


def pages(root):
    """Each page's file name and text."""
    yield "skidproof.1", page_of_program(root)
    for verb in root.commands:
        yield f"skidproof-{verb.name}.1", page_of_verb(root, verb)


def main(arguments):
    parser = cli.Parser("manual", description="Writes the manual pages of the program into a folder.")
    parser.add_argument("folder", metavar="DIR", help="where they go; it is made where it does not exist")
    asked = parser.parse_args(arguments)
    root = commands.describe(cli.program())
    folder = pathlib.Path(asked.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(root):
        (folder / name).write_text(text, encoding="utf-8")
    return cli.EXIT_HELD
