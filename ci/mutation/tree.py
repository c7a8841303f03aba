"""The mutated copy of the model's sources and its one build."""

import json
import os
import pathlib
import re
import shlex
import subprocess

from mutation import sites

HERE = pathlib.Path(__file__).resolve().parent
MUTATED = "pebs/model"
# Not the model itself: tests, fuzzers, and the table of deliberate defects.
EXCLUDED = re.compile(r"(_test|_fuzz)\.cc$|^pebs/model/defects")
ATTEMPTS = 6


class BuildFailed(Exception):
    pass


def production_files(root):
    """{path: name from the root} of everything that is mutated."""
    files = {}
    for path in sorted((root / MUTATED).rglob("*")):
        name = str(path.relative_to(root))
        if path.suffix in (".h", ".cc", ".inc") and not EXCLUDED.search(name):
            files[path] = name
    return files


def compile_flags(root):
    """{source path: what a parser needs of its flags}, from the preset `separate`'s compile_commands.json."""
    database = json.loads((root / "build/separate/compile_commands.json").read_text(encoding="utf-8"))
    flags = {}
    for entry in database:
        words = shlex.split(entry["command"])
        kept = [word for word in words if word.startswith(("-I", "-D", "-std=", "-isystem"))]
        for at, word in enumerate(words[:-1]):
            if word == "-isystem":
                kept[kept.index("-isystem"):kept.index("-isystem") + 1] = ["-isystem" + words[at + 1]]
        flags[pathlib.Path(entry["directory"], entry["file"]).resolve()] = kept
    return flags


def find(root):
    """A Finder that has seen every production file of the model."""
    files = production_files(root)
    finder = sites.Finder(files)
    flags = compile_flags(root)
    for path, name in files.items():
        if path.suffix != ".cc":
            continue
        if path not in flags:
            raise BuildFailed(f"{name} is not in build/separate/compile_commands.json: configure the preset `separate`")
        errors = finder.parse(path, flags[path])
        if errors:
            raise BuildFailed(f"{name} does not parse:\n  " + "\n  ".join(errors[:5]))
    return finder


def rendered(source, numbered, excluded=frozenset()):
    """The text of a file with the edits of its sites. `numbered`: [(site, number of its first mutant)]."""
    data = source.bytes
    edits = []  # (offset, rank, order, end, text): suffixes of inner sites first, then prefixes of outer ones
    for order, (site, first) in enumerate(numbered):
        if first in excluded:
            continue
        moment = "_at_run_time" if site.constexpr else ""
        asked = f"{moment}({first}u, {len(site.mutants)}u)"
        which, probe = f"{sites.NAMESPACE}::which{asked}", f"{sites.NAMESPACE}::probe{asked}"

        def filled(text):
            return text.replace("{probe}", probe).replace("{which}", which).replace("{on}", f"({which} != 0)").encode()

        offset, text = site.suffix
        if text:
            edits.append((offset, 0, -order, offset, filled(text)))
        offset, text = site.prefix
        if text:
            edits.append((offset, 1, order, offset, filled(text)))
        for start, end, text in site.replacements:
            edits.append((start, 2, order, end, filled(text)))
    pieces, at = [], 0
    for offset, _, _, end, text in sorted(edits, key=lambda edit: edit[:3]):
        pieces += [data[at:offset], text]
        at = end
    return b"".join(pieces + [data[at:]])


UNIT_TESTS = ("model_test", "engines_test")  # the faster one first


def write_if_changed(path, data):
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Tree:
    """build/mutants: src, the mutated files of the model alone, and a ninja build that compiles them and whatever
    includes them, and links the rest from the preset `separate`'s build."""

    def __init__(self, root, folder):
        self.root = root
        self.folder = folder
        self.source = folder / "src"
        self.build = root / "build/separate"
        self.program = folder / "skidproof"
        self.unit_tests = [folder / name for name in UNIT_TESTS]
        self.rejected = set()  # first numbers of sites that do not compile

    def ninja(self, *words):
        return run(["ninja", "-C", self.build, *words])

    def concerned(self):
        """Objects of the `separate` build, among those of our programs, that saw a file of the model."""
        objects, name = set(), ""
        for line in self.ninja("-t", "deps").splitlines():
            if line and not line.startswith(" "):
                name = line.split(":")[0]
            elif line.strip().startswith(f"../../{MUTATED}/") or f"{self.root}/{MUTATED}/" in line:
                objects.add(name)
        return objects

    def plan(self):
        """Writes build.ninja: how the programs come about with the mutated files in place of the model's."""
        database = json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8"))
        by_output = {output_of(entry): entry for entry in database}
        concerned = self.concerned()
        lines = ["rule compile", "  command = $in_words -MD -MF $out.d -o $out -c $in", "  depfile = $out.d",
                 "  deps = gcc", "rule link", "  command = $in_words", ""]
        compiled = set()

        def compile_object(source, words, name):
            if name not in compiled:
                compiled.add(name)
                lines.extend([f"build {name}: compile {source} | {HERE}/switch.h", f"  in_words = {shlex.join(words)}"])
            return name

        def object_of(name):
            entry = by_output[name]
            source = pathlib.Path(entry["file"])
            relative = source.relative_to(self.root) if source.is_relative_to(self.root) else None
            mutated = relative is not None and (self.source / relative).exists()
            return compile_object(self.source / relative if mutated else source, self.compiler_words(entry), f"obj/{name}")

        programs = [("skidproof", self.program)]
        programs += [(f"pebs/{program.name}", program) for program in self.unit_tests]
        for target, program in programs:
            link = self.ninja("-t", "commands", target).splitlines()[-1]
            words = shlex.split(link.removeprefix(": && ").removesuffix(" && :"))
            objects = [word for word in words if word.endswith(".o")]
            archives = [word for word in words if word.endswith(".a") and not word.startswith("/")]
            inputs, linked = [], []
            for word in words:
                if word in concerned:
                    inputs.append(object_of(word))
                    linked.append(inputs[-1])
                elif word in objects or word in archives:
                    inputs.append(str(self.build / word))
                    linked.append(inputs[-1])
                else:
                    linked.append(word)
            # What stands before the archives is taken instead of their members.
            members = [object_of(name) for name in sorted(concerned) if archive_of(name) in archives]
            switch = compile_object(HERE / "switch.cc", ["/usr/bin/c++", "-O2", "-std=c++20", "-w"], "obj/switch.o")
            at = linked.index("-o")
            linked[at:at + 2] = ["-o", program.name, *members, switch]
            lines += [f"build {program.name}: link {' '.join(inputs + members + [switch])}",
                      f"  in_words = {shlex.join(linked)}"]
        write_if_changed(self.folder / "build.ninja", ("\n".join(lines) + "\n").encode())

    def compiler_words(self, entry):
        """The `separate` build's command without its files: the mutated folder comes first among those searched, and
        warnings are off, since the compiler has a lot to say about mutants. Nothing is precompiled: that would be
        read before the switch."""
        kept, skipped = [], False
        for word in shlex.split(entry["command"]):
            if skipped:
                skipped = False
            elif word in ("-o", "-c", "-include"):
                skipped = True
            elif not word.startswith("-W"):
                kept.append(word)
        first = next(at for at, word in enumerate(kept) if word.startswith("-"))
        return kept[:first] + [f"-I{self.source}"] + kept[first:] + ["-w", "-include", f"{HERE}/switch.h"]

    def write(self, finder, numbers):
        """`numbers`: mutant -> number. Every file with all its sites but the rejected ones; no other file."""
        wanted = set()
        for path, name in production_files(self.root).items():
            if name not in finder.sites:
                continue
            wanted.add(self.source / name)
            numbered = [(site, numbers[site.mutants[0]]) for site in finder.ordered(name)]
            source = finder.sources[str(path.resolve())]
            write_if_changed(self.source / name, rendered(source, numbered, self.rejected))
        for path in self.source.rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()

    def compile(self, finder, numbers, jobs, say):
        """Builds; sites that do not compile are taken out, a few times over."""
        run(["cmake", "--build", self.build, "--target", "skidproof", *UNIT_TESTS, "-j", str(jobs)])
        self.write(finder, numbers)
        self.plan()
        for attempt in range(ATTEMPTS):
            self.write(finder, numbers)
            done = subprocess.run(["ninja", "-C", self.folder, "-k", "0", "-j", str(jobs)], capture_output=True, text=True)
            if done.returncode == 0:
                return
            found = self.sites_named_by(done.stdout + done.stderr, finder, numbers) - self.rejected
            if not found:
                break
            self.rejected |= found
            say(f"build {attempt + 1}: {len(found)} sites cannot be mutated")
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line or "undefined" in line]
        raise BuildFailed("the mutated sources do not build:\n  " + "\n  ".join(lines[:8]))

    def sites_named_by(self, output, finder, numbers):
        """First numbers of the sites on lines that an error, or what led to it, points at."""
        found, pointed = set(), set()
        block = set()  # lines named since the last error: "In function …", "inlined from …"
        for line in output.splitlines():
            for path, number in re.findall(r"([\w./+-]+\.(?:h|cc|inc)):(\d+)", line):
                full = pathlib.Path(os.path.normpath(self.folder / path))
                if full.is_relative_to(self.source / MUTATED):
                    block.add((str(full.relative_to(self.source)), int(number)))
            if re.search(r": (fatal )?error: ", line):
                pointed |= block
                block = set()
            elif not re.search(r"In |inlined from|required from|from |note:|\|", line):
                block = set()
        if not pointed:  # only what follows an error names a place of ours
            pointed = block
        for name, line in pointed:
            for site in finder.ordered(name) if name in finder.sites else []:
                if site.mutants[0].line <= line <= site.mutants[0].last_line:
                    found.add(numbers[site.mutants[0]])
        return found


def output_of(entry):
    words = shlex.split(entry["command"])
    return words[words.index("-o") + 1]


def archive_of(name):
    """"pebs/libskidproof_model.a" of "pebs/CMakeFiles/skidproof_model.dir/model/pmu.cc.o"."""
    found = re.match(r"(.*)CMakeFiles/([^/]+)\.dir/", name)
    return f"{found.group(1)}lib{found.group(2)}.a" if found else ""


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildFailed(f"{command[0]} failed:\n" + (done.stdout + done.stderr)[-2000:])
    return done.stdout
