#!/usr/bin/python3
"""The mutator on small snippets: what it finds, that the edited text compiles, and that each mutant does what it says.

usage: python3 ci/mutation_test.py [unittest arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mutation import equivalents, sites, suites, tree  # noqa: E402

FLAGS = ["-std=c++20"]


class Snippet:
    """A source file of its own, in a folder of its own."""

    def __init__(self, folder, code):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / "snippet.cc"
        self.path.write_text(textwrap.dedent(code), encoding="utf-8")
        self.finder = sites.Finder({self.path: "snippet.cc"})
        self.errors = self.finder.parse(self.path, FLAGS)
        self.mutants = self.finder.mutants()
        self.numbers = {mutant: number for number, mutant in enumerate(self.mutants, 1)}

    def changes(self):
        return [(mutant.operator, mutant.before, mutant.after) for mutant in self.mutants]

    def edited(self, excluded=frozenset()):
        source = self.finder.sources[str(self.path.resolve())]
        ordered = [(site, self.numbers[site.mutants[0]]) for site in self.finder.ordered("snippet.cc")]
        return tree.rendered(source, ordered, excluded).decode()

    def build(self):
        edited = self.folder / "edited.cc"
        edited.write_text(self.edited(), encoding="utf-8")
        program = self.folder / "program"
        done = subprocess.run(["g++", "-w", "-O1", *FLAGS, "-include", HERE / "mutation/switch.h", edited,
                               HERE / "mutation/switch.cc", "-o", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    def number_of(self, operator, before, after):
        found = [self.numbers[m] for m in self.mutants if (m.operator, m.before, m.after) == (operator, before, after)]
        assert len(found) == 1, (found, self.changes())
        return found[0]


class MutationTest(unittest.TestCase):
    def snippet(self, code):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        snippet = Snippet(folder.name, code)
        self.assertEqual(snippet.errors, [])
        return snippet


class Finding(MutationTest):
    def changes(self, code):
        return self.snippet(code).changes()

    def test_comparisons(self):
        self.assertEqual(self.changes("bool f(int a, int b) { return a < b; }"),
                         [("comparison", "a < b", "a <= b"), ("comparison", "a < b", "a >= b")])
        self.assertEqual(self.changes("bool f(int a, int b) { return a == b; }"), [("comparison", "a == b", "a != b")])

    def test_constants(self):
        self.assertEqual(self.changes("int f() { return 7; }"), [("constant", "7", "8")])
        self.assertEqual(self.changes("unsigned f() { return 0xFFu; }"), [("constant", "0xFFu", "0x100u")])
        self.assertEqual(self.changes("int f() { return 1; }"), [("constant", "1", "2"), ("constant", "1", "0")])
        self.assertEqual(self.changes("bool f() { return true; }"), [("constant", "true", "false")])

    def test_operands(self):
        self.assertEqual(self.changes("int f(int a, int b) { return a - b; }"),
                         [("operand", "a - b", "b - a"), ("operand", "a - b", "a - b + 1")])
        self.assertEqual(self.changes("int f(int a, int b) { return a & b; }"), [("operand", "a & b", "a | b")])
        self.assertEqual(self.changes("int f(bool c, int a, int b) { return c ? a : b; }"),
                         [("operand", "c ? a : b", "c ? b : a")])

    def test_logic(self):
        self.assertEqual(self.changes("bool f(bool a, bool b) { return !a || b; }"),
                         [("logical", "!a || b", "!a && b"), ("negation", "!a", "a")])

    def test_a_rewritten_comparison_is_no_negation(self):
        self.assertEqual(self.changes("""
            struct Handle { bool operator==(decltype(nullptr)) const; };
            bool f(const Handle& h, bool b) { return h != nullptr && b; }"""),
                         [("logical", "h != nullptr && b", "h != nullptr || b")])

    def test_statements(self):
        code = """
            void g(int);
            int f(int a) {
              g(a);
              a += a;
              if (a) a = a;
              else g(a);
              for (; a; --a) g(a);
              return a;
            }"""
        dropped = [before for operator, before, _ in self.changes(code) if operator == "statement"]
        self.assertEqual(dropped, ["g(a)", "a += a", "a = a", "g(a)", "g(a)"])

    def test_nothing_where_nothing_runs(self):
        code = """
            #include <array>
            constexpr int kSize = 4;
            enum E { kA = 1, kB = kA + 1 };
            static_assert(kSize == 4);
            template <int n = 3> struct T { int a[n + 1]; unsigned bits : 5; };
            std::array<int, 7> table;
            int rows[2][3];
            int f(T<9>& t, E e) {
              if constexpr (kSize < 5) t.bits = sizeof(int[6]);
              switch (e) {
                case kA + 0: return kSize;
                default: return f(t, kB);
              }
            }"""
        changes = [change for change in self.changes(code) if change[0] != "statement"]
        self.assertEqual(changes, [])

    def test_members_templates_and_lambdas(self):
        code = """
            struct Behaviour { int step = 5; bool on{true}; };
            template <typename T> T twice(T value) { return value + value; }
            auto l = [](int a) { return a > 3; };"""
        self.assertEqual([(m.function, m.before, m.after) for m in self.snippet(code).mutants if m.operator != "statement"],
                         [("Behaviour::step", "5", "6"), ("Behaviour::on", "true", "false"),
                          ("twice", "value + value", "value - value"), ("twice", "value + value", "value + value + 1"),
                          ("l", "a > 3", "a >= 3"), ("l", "a > 3", "a <= 3"), ("l", "3", "4")])

    def test_what_a_macro_hides_is_left_alone(self):
        code = """
            #define LESS(a, b) ((a) < (b))
            #define SEVEN 7
            bool f(int a) { return LESS(a + 1, 3) || a == SEVEN; }"""
        self.assertEqual([before for _, before, _ in self.changes(code)],
                         ["LESS(a + 1, 3) || a == SEVEN", "a == SEVEN"])

    def test_classes_with_operators_of_their_own_are_left_alone(self):
        self.assertEqual(self.changes("#include <string>\nbool f(std::string a, std::string b) { return a + b == a; }"), [])

    def test_equal_changes_of_a_line_are_numbered(self):
        mutants = self.snippet("bool f(int a) { return (a < 5) == (a < 5); }").mutants
        self.assertEqual([m.nth for m in mutants if m.after == "a <= 5"], [0, 1])
        self.assertEqual(len({m.key() for m in mutants}), len(mutants))

    def test_a_sample_stays_when_lines_move(self):
        def drawn(code, seed):
            return [mutant.key() for mutant in sorted(self.snippet(code).mutants, key=lambda mutant: mutant.lot(seed))]

        code = "int f(int a, int b) { if (a < b) return a + b; return a & b; }\n"
        self.assertGreater(len(drawn(code, 1)), 4)
        moved = drawn("int g(int c) { return c - 1; }\n\n" + code, 1)
        self.assertEqual([key for key in moved if key[1] == "f"], drawn(code, 1))
        self.assertNotEqual(drawn(code, 1), drawn(code, 2))

    def test_a_line_is_recognised_after_it_has_moved(self):
        one = self.snippet("int f(int a) {\n  return a - 2;\n}").mutants
        other = self.snippet("// new\nint g();\nint f(int a) {\n    return  a - 2;\n}").mutants
        self.assertEqual([m.key() for m in one], [m.key() for m in other])
        self.assertNotEqual([m.line for m in one], [m.line for m in other])


class Switching(MutationTest):
    PROGRAM = """
        #include <cstdio>
        #include <cstdint>
        struct Defaults { int step = 5; };
        static const int kTable[] = {10, 20};
        constexpr uint32_t mask(unsigned bits) { return (1u << bits) - 1; }
        static_assert(mask(4) == 15);
        int calls;
        bool touch(bool value) { ++calls; return value; }
        int main(int argc, char**) {
          int a = argc * 10, b = 3;
          std::printf("%d\\n", a - b);
          std::printf("%d\\n", a < b + 7);
          std::printf("%d\\n", a <= 10 && b > 3);
          std::printf("%d\\n", touch(argc == 2) && touch(true));
          std::printf("%d\\n", calls);
          std::printf("%d\\n", Defaults{}.step);
          std::printf("%d\\n", kTable[argc]);
          std::printf("%u\\n", mask(static_cast<unsigned>(argc)));
          uint8_t bits = 6;
          bits &= 12;
          if (argc) bits |= 1;
          else bits = 0;
          std::printf("%d\\n", bits);
          std::printf("%s\\n", !argc ? "none" : "some");
          return 0;
        }"""
    EXPECTED = ["7", "0", "0", "0", "1", "5", "20", "1", "5", "some"]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.one = Snippet(cls.folder.name, cls.PROGRAM)
        cls.program = cls.one.build()

    def lines(self, number, **environment):
        done = subprocess.run([self.program], env={**os.environ, "SKIDPROOF_MUTANT": str(number), **environment},
                              capture_output=True, text=True)
        return done.stdout.splitlines()

    def assert_changes(self, operator, before, after, line, value):
        expected = list(self.EXPECTED)
        expected[line] = value
        self.assertEqual(self.lines(self.one.number_of(operator, before, after)), expected)

    def test_without_a_mutant_it_is_the_same_program(self):
        self.assertEqual(self.lines(0), self.EXPECTED)

    def test_every_mutant_runs(self):
        self.assertGreater(len(self.one.mutants), 40)
        differing = [m for m in self.one.mutants if self.lines(self.one.numbers[m]) != self.EXPECTED]
        self.assertGreater(len(differing), len(self.one.mutants) // 2)

    def test_each_does_what_it_says(self):
        self.assert_changes("operand", "a - b", "b - a", 0, "-7")
        self.assert_changes("operand", "a - b", "a - b + 1", 0, "8")
        self.assert_changes("comparison", "a < b + 7", "a <= b + 7", 1, "1")
        self.assert_changes("constant", "7", "8", 1, "1")
        self.assert_changes("logical", "a <= 10 && b > 3", "a <= 10 || b > 3", 2, "1")
        self.assert_changes("initial", "5", "6", 5, "6")
        self.assert_changes("constant", "20", "21", 6, "21")
        self.assert_changes("operand", "(1u << bits) - 1", "1 - (1u << bits)", 7, "4294967295")
        self.assert_changes("operand", "bits &= 12", "bits |= 12", 8, "15")
        self.assert_changes("statement", "bits |= 1", "", 8, "4")
        self.assert_changes("operand", '!argc ? "none" : "some"', '!argc ? "some" : "none"', 9, "none")
        self.assert_changes("negation", "!argc", "argc", 9, "none")

    def test_the_second_operand_is_evaluated_as_the_operator_says(self):
        number = self.one.number_of("logical", "touch(argc == 2) && touch(true)", "touch(argc == 2) || touch(true)")
        self.assertEqual(self.lines(number)[3:5], ["1", "2"])

    def test_a_trace_names_what_makes_a_difference(self):
        trace = pathlib.Path(self.folder.name, "trace")
        self.assertEqual(self.lines(0, SKIDPROOF_MUTANT_TRACE=str(trace)), self.EXPECTED)
        reached = suites.traced(trace)
        self.assertIn(self.one.number_of("operand", "a - b", "b - a"), reached)
        self.assertNotIn(self.one.number_of("statement", "bits = 0", ""), reached)

    def test_an_operator_that_gives_the_same_makes_no_difference(self):
        snippet = self.snippet("int main(int argc, char**) { return argc > 5 ? argc % 3 : 0; }")
        trace = pathlib.Path(snippet.folder, "trace")
        subprocess.run([snippet.build()], env={**os.environ, "SKIDPROOF_MUTANT_TRACE": str(trace)}, check=True)
        reached = suites.traced(trace)
        self.assertIn(snippet.number_of("comparison", "argc > 5", "argc <= 5"), reached)
        self.assertNotIn(snippet.number_of("comparison", "argc > 5", "argc >= 5"), reached)
        self.assertNotIn(snippet.number_of("operand", "argc % 3", "3 % argc"), reached)

    def test_lines_stay_where_they_are(self):
        self.assertEqual(self.one.edited().count("\n"), textwrap.dedent(self.PROGRAM).count("\n"))

    def test_a_site_can_be_left_out(self):
        number = self.one.number_of("operand", "bits &= 12", "bits |= 12")
        self.assertIn("and_assign", self.one.edited())
        self.assertNotIn("and_assign", self.one.edited(excluded={number}))


class Building(unittest.TestCase):
    def test_an_objects_archive(self):
        self.assertEqual(tree.archive_of("pebs/CMakeFiles/skidproof_model.dir/model/pmu.cc.o"), "pebs/libskidproof_model.a")
        self.assertEqual(tree.archive_of("main.o"), "")

    def test_the_mutated_folder_is_searched_first(self):
        entry = {"command": "/usr/bin/c++ -DA='\"b c\"' -I/here -O2 -Wall -Werror -std=c++20 -o x.o -c /here/x.cc"}
        self.assertEqual(tree.output_of(entry), "x.o")
        words = tree.Tree(pathlib.Path("/here"), pathlib.Path("/there")).compiler_words(entry)
        self.assertEqual(words[:5], ["/usr/bin/c++", "-I/there/src", '-DA="b c"', "-I/here", "-O2"])
        self.assertNotIn("-Werror", words)
        self.assertNotIn("/here/x.cc", words)
        self.assertEqual(words[-1], str(HERE / "mutation/switch.h"))


class Rejecting(MutationTest):
    def test_a_complaint_leads_back_to_the_sites_of_its_line(self):
        one = self.snippet("int f(int a) {\n  return a - 2;\n}\nint g(int a) {\n  return a\n    - 3;\n}\n")
        here = tree.Tree(one.folder, one.folder / "m")
        name = "pebs/model/pmu.cc"
        one.finder.sites[name] = one.finder.sites.pop("snippet.cc")
        path = here.source / name
        output = f"{path}:5:10: error: no\n   5 | return\n{path}:1:2: note: in\n"
        found = here.sites_named_by(output, one.finder, one.numbers)
        self.assertEqual(found, {one.number_of("operand", "a - 3", "3 - a")})
        inlined = f"In function 'x',\n    inlined from 'f' at {path}:2:3:\n/usr/include/emmintrin.h:9:9: error: must be constant\n"
        self.assertEqual(here.sites_named_by(inlined, one.finder, one.numbers),
                         {one.number_of("operand", "a - 2", "2 - a"), one.number_of("constant", "2", "3")})
        self.assertEqual(here.sites_named_by("ninja: build stopped\n", one.finder, one.numbers), set())


class Equivalents(MutationTest):
    def setUp(self):
        self.mutants = self.snippet("int f(int a) {\n  return a - 2;\n}\nint g(int a) { return a - 2; }").mutants
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "mutants.json")

    def load(self, *entries):
        self.path.write_text(json.dumps(entries), encoding="utf-8")
        return equivalents.load(self.path)

    def test_an_entry_speaks_of_its_mutant_alone(self):
        mutant = self.mutants[0]
        listed, stale = equivalents.match(self.load(equivalents.entry_of(mutant, "nobody can see it")), self.mutants)
        self.assertEqual((list(listed), stale), ([mutant], []))

    def test_a_wider_entry(self):
        entries = self.load({"file": "snippet.cc", "function": "f", "operator": "operand", "reason": "a choice of ours"})
        listed, _ = equivalents.match(entries, self.mutants)
        self.assertEqual({(m.function, m.operator) for m in listed}, {("f", "operand")})

    def test_a_stale_entry(self):
        entry = equivalents.entry_of(self.mutants[0], "nobody can see it")
        for field, value in (("change", "a - 2 -> a"), ("source", "return a;"), ("function", "h"), ("file", "x.cc")):
            listed, stale = equivalents.match(self.load({**entry, field: value}), self.mutants)
            self.assertEqual((listed, len(stale)), ({}, 1), field)
        self.assertEqual(equivalents.moved_to({**entry, "file": "x.cc"}, self.mutants), ["snippet.cc"])

    def test_an_entry_without_a_reason(self):
        entry = equivalents.entry_of(self.mutants[0], "because")
        self.assertRaises(equivalents.BadEntry, self.load, entry)
        self.assertRaises(equivalents.BadEntry, self.load, {key: entry[key] for key in entry if key != "reason"})
        self.assertRaises(equivalents.BadEntry, self.load, {**entry, "line": 3})


class Running(unittest.TestCase):
    def execute(self, script, cpu_seconds=10.0):
        return suites.execute(["sh", "-c", script], {"SKIDPROOF_MUTANT": "7"}, cpu_seconds)

    def test_the_mutant_reaches_the_program(self):
        code, output, _ = self.execute("echo $SKIDPROOF_MUTANT; exit 3")
        self.assertEqual((code, output), (3, b"7\n"))

    def test_a_crash_and_a_hang_are_told_apart(self):
        self.assertEqual(self.execute("kill -SEGV $$")[0], -11)
        self.assertIsNone(self.execute("while :; do :; done", cpu_seconds=1)[0])
        self.assertIsNone(self.execute("sleep 60 & wait", cpu_seconds=0.01)[0])

    def test_the_row_that_failed_is_named(self):
        output = b'{"type":"test","id":"A.b","status":"pass"}\n{"type":"test","id":"A.c","status":"fail"}\n'
        self.assertEqual(suites.first_failure(output), "A.c")
        self.assertEqual(suites.first_failure(b"garbage\n"), "")


if __name__ == "__main__":
    unittest.main()
