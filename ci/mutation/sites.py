"""Finds what can be mutated in a translation unit, and the edits that put every mutant behind a switch.

libclang says what an expression is and exactly where it stands. An edit never moves a line, so that a compiler's
complaint about the edited text leads back to the site.
"""

import bisect
import collections
import dataclasses
import hashlib
import pathlib
import re

from clang import cindex
from clang.cindex import CursorKind, TypeKind

NAMESPACE = "skidproof::mutants"
AT_MOST = (1 << 16) - 1  # mutants: as many as switch.h can trace

# Operator -> what stands in its place, as helper and alternatives in the order of its cases (switch.h).
BINARY = {
    "<": ("less", ["{l} <= {r}", "{l} >= {r}"]),
    "<=": ("less_equal", ["{l} < {r}", "{l} > {r}"]),
    ">": ("greater", ["{l} >= {r}", "{l} <= {r}"]),
    ">=": ("greater_equal", ["{l} > {r}", "{l} < {r}"]),
    "==": ("equal", ["{l} != {r}"]),
    "!=": ("not_equal", ["{l} == {r}"]),
    "+": ("plus", ["{l} - {r}", "{l} + {r} + 1"]),
    "-": ("minus", ["{r} - {l}", "{l} - {r} + 1"]),
    "/": ("divide", ["{r} / {l}"]),
    "%": ("modulo", ["{r} % {l}"]),
    "<<": ("shift_left", ["{l} >> {r}"]),
    ">>": ("shift_right", ["{l} << {r}"]),
    "&": ("bit_and", ["{l} | {r}"]),
    "|": ("bit_or", ["{l} & {r}"]),
}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
COMPOUND = {
    "+=": ("plus_assign", ["{l} += {r} + 1"]),
    "-=": ("minus_assign", ["{l} -= {r} + 1"]),
    "&=": ("and_assign", ["{l} |= {r}"]),
    "|=": ("or_assign", ["{l} &= {r}"]),
}

INTEGERS = {
    TypeKind.BOOL, TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.CHAR16, TypeKind.CHAR32, TypeKind.USHORT, TypeKind.UINT,
    TypeKind.ULONG, TypeKind.ULONGLONG, TypeKind.CHAR_S, TypeKind.SCHAR, TypeKind.SHORT, TypeKind.INT, TypeKind.LONG,
    TypeKind.LONGLONG, TypeKind.ENUM,
}
UNKNOWN = {TypeKind.DEPENDENT, TypeKind.UNEXPOSED, TypeKind.INVALID}  # inside templates
COMPARABLE = INTEGERS | {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.POINTER}

FUNCTIONS = {
    CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION, CursorKind.FUNCTION_TEMPLATE,
}
VARIABLES = {CursorKind.VAR_DECL, CursorKind.FIELD_DECL, CursorKind.PARM_DECL}
# Nothing below these can be chosen at run time.
SKIPPED = {
    CursorKind.STATIC_ASSERT, CursorKind.ENUM_CONSTANT_DECL, CursorKind.TEMPLATE_NON_TYPE_PARAMETER,
    CursorKind.TEMPLATE_TYPE_PARAMETER, CursorKind.TEMPLATE_TEMPLATE_PARAMETER, CursorKind.CXX_UNARY_EXPR,
    CursorKind.DECL_REF_EXPR, CursorKind.TYPE_REF, CursorKind.TEMPLATE_REF, CursorKind.TYPEDEF_DECL,
    CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPE_ALIAS_TEMPLATE_DECL, CursorKind.USING_DIRECTIVE,
    CursorKind.USING_DECLARATION, CursorKind.CXX_BASE_SPECIFIER, CursorKind.ASM_STMT,
}
# Callees whose arguments must be constants.
CONSTANT_ARGUMENTS = re.compile(r"^(_mm\d*_|__builtin_(prefetch|expect|constant_p|ia32))")
INTEGER_LITERAL = re.compile(r"^(0[xX][0-9a-fA-F']+|0[bB][01']+|[0-9][0-9']*)([uUlLzZ]*)$")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one place. `nth` tells apart equal changes of one line."""

    file: str  # from the project's root
    function: str
    line: int
    last_line: int
    source: str  # the line, white space normalised
    operator: str  # which rule made it
    before: str
    after: str
    offset: int
    nth: int = 0

    def change(self):
        return f"{self.before} -> {self.after}"

    def key(self):
        """What recognises the mutant again when lines have moved."""
        return (self.file, self.function, self.source, self.operator, self.change(), self.nth)

    def lot(self, seed):
        """Its place in the order in which a seed draws. It depends on the mutant alone, so that a change elsewhere in the
        model leaves a sample nearly as it was."""
        return hashlib.sha256(repr((seed, self.key())).encode("utf-8")).digest()


@dataclasses.dataclass
class Site:
    """A place with its mutants and the text edits that carry them all."""

    mutants: list
    constexpr: bool  # within a constexpr function: the switch must stay usable in constants
    # (start, end, text): text of `start`..`end` is replaced; "{which}" is the index of the active mutant from 1, or 0;
    # "{probe}" the same where the result can be compared with the unchanged one
    replacements: list
    prefix: tuple  # (offset, text)
    suffix: tuple


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


class Source:
    def __init__(self, path, name):
        self.path = path
        self.name = name
        self.bytes = path.read_bytes()
        self.starts = [0] + [match.end() for match in re.finditer(rb"\n", self.bytes)]

    def text(self, start, end):
        return self.bytes[start:end].decode("utf-8")

    def line_of(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def line_text(self, line):
        end = self.starts[line] if line < len(self.starts) else len(self.bytes)
        return squeezed(self.text(self.starts[line - 1], end))


class Finder:
    """Sites of the files that `names` maps to a path from the project's root; each place once."""

    def __init__(self, names):
        self.names = {str(pathlib.Path(path).resolve()): name for path, name in names.items()}
        self.sources = {}
        self.sites = collections.defaultdict(dict)  # file name -> {(start, end, rule): Site}

    def parse(self, path, flags):
        """Adds the sites of a translation unit. Returns the compiler's errors: with any, sites may be missing."""
        unit = cindex.Index.create().parse(
            str(path), args=flags, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
        )
        self.macros = collections.defaultdict(list)  # path -> extents of macro uses
        top = list(unit.cursor.get_children())
        for cursor in top:
            if cursor.kind == CursorKind.MACRO_INSTANTIATION and cursor.location.file:
                extent = (cursor.extent.start.offset, cursor.extent.end.offset)
                self.macros[self.real(cursor.location.file.name)].append(extent)
        for cursor in top:
            if cursor.location.file and self.real(cursor.location.file.name) in self.names:
                self.visit(cursor, Context())
        return [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]

    def real(self, name, cache={}):
        if name not in cache:
            cache[name] = str(pathlib.Path(name).resolve())
        return cache[name]

    def source_of(self, cursor):
        path = self.real(cursor.extent.start.file.name)
        if path not in self.sources:
            self.sources[path] = Source(pathlib.Path(path), self.names[path])
        return self.sources[path]

    # ---- Walking

    def visit(self, cursor, context):
        kind = cursor.kind
        if kind in SKIPPED or kind.is_attribute() or kind.is_preprocessing():
            return
        if cursor.extent.start.file is None or self.real(cursor.extent.start.file.name) not in self.names:
            return  # a default value that stands elsewhere
        if kind in FUNCTIONS:
            self.visit_function(cursor, context)
        elif kind in VARIABLES:
            self.visit_variable(cursor, context)
        elif kind == CursorKind.CASE_STMT:
            for child in list(cursor.get_children())[1:]:
                self.visit_statement(child, context)
        elif kind == CursorKind.DEFAULT_STMT:
            for child in cursor.get_children():
                self.visit_statement(child, context)
        elif kind == CursorKind.COMPOUND_STMT:
            for child in cursor.get_children():
                self.visit_statement(child, context)
        elif kind in (CursorKind.IF_STMT, CursorKind.WHILE_STMT, CursorKind.FOR_STMT, CursorKind.DO_STMT,
                      CursorKind.CXX_FOR_RANGE_STMT, CursorKind.SWITCH_STMT):
            self.visit_control(cursor, context)
        elif kind == CursorKind.MEMBER_REF_EXPR:
            for child in cursor.get_children():  # not its template arguments
                if child.extent.start.offset == cursor.extent.start.offset:
                    self.visit(child, context)
        elif kind == CursorKind.CALL_EXPR:
            self.visit_call(cursor, context)
        else:
            self.mutate(cursor, context)
            for child in cursor.get_children():
                self.visit(child, context)

    def visit_function(self, cursor, context):
        children = list(cursor.get_children())
        body = [child for child in children if child.kind in (CursorKind.COMPOUND_STMT, CursorKind.CXX_TRY_STMT)]
        source = self.source_of(cursor)
        end = body[0].extent.start.offset if body else cursor.extent.end.offset
        words = set(re.findall(r"\w+", source.text(cursor.extent.start.offset, end)))
        if "consteval" in words:
            return
        inner = Context(function=qualified(cursor), constexpr="constexpr" in words)
        for child in children:
            if child.kind == CursorKind.PARM_DECL or child in body:
                self.visit(child, inner)
            elif child.kind.is_expression():  # a constructor's initialisers
                self.visit(child, inner)

    def visit_variable(self, cursor, context):
        source = self.source_of(cursor)
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        name_end = cursor.location.offset + len(cursor.spelling)
        if cursor.location.offset < start or name_end > end:
            return
        if re.search(r"\bconst(expr|init)\b", source.text(start, cursor.location.offset)):
            return
        # Past array bounds and bit-field widths.
        initialiser = re.match(r"\s*(\[[^\]]*\]\s*)*([={(])", source.text(name_end, end))
        if not initialiser:
            return
        begin = name_end + initialiser.end() - 1
        where = context
        if not context.function:
            where = dataclasses.replace(context, function=qualified(cursor), initial=cursor.kind == CursorKind.FIELD_DECL)
        for child in cursor.get_children():
            if child.extent.start.offset >= begin:
                self.visit(child, where)

    def visit_control(self, cursor, context):
        source = self.source_of(cursor)
        children = list(cursor.get_children())
        text = source.text(cursor.extent.start.offset, cursor.extent.end.offset)
        if re.match(r"if\s+constexpr\b", text):
            children = children[1:]
        for child in children:
            # What stands in the parentheses is no statement that could be dropped.
            if child.kind.is_expression() and not self.is_body(source, child, cursor):
                self.visit(child, context)
            else:
                self.visit_statement(child, context)

    def is_body(self, source, child, control):
        """Whether an expression is the statement behind `if (...)`, `else` or a loop's head."""
        if control.kind == CursorKind.DO_STMT:
            return False
        before = source.text(control.extent.start.offset, child.extent.start.offset)
        before = re.sub(r"\[\[\w+\]\]\s*$", "", re.sub(r"//[^\n]*|/\*.*?\*/", " ", before, flags=re.S).rstrip()).rstrip()
        return before.count("(") == before.count(")") and "(" in before

    def visit_statement(self, cursor, context):
        if context.function and self.droppable(cursor):
            self.drop(cursor, context)
        self.visit(cursor, context)

    def visit_call(self, cursor, context):
        if CONSTANT_ARGUMENTS.match(cursor.spelling or ""):
            for argument in cursor.get_arguments():
                if argument is not None and argument.kind != CursorKind.INTEGER_LITERAL:
                    self.visit(argument, context)
            return
        for child in cursor.get_children():
            self.visit(child, context)

    # ---- What is droppable

    def droppable(self, cursor):
        kind = cursor.kind
        if kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR or kind == CursorKind.CALL_EXPR:
            return True
        if kind == CursorKind.UNEXPOSED_EXPR:  # a call whose result is converted or destroyed
            children = list(cursor.get_children())
            return len(children) == 1 and self.droppable(children[0])
        if kind == CursorKind.BINARY_OPERATOR:
            return self.binary_operator(cursor)[0] == "="
        if kind == CursorKind.UNARY_OPERATOR:
            source = self.source_of(cursor)
            text = source.text(cursor.extent.start.offset, cursor.extent.end.offset)
            return text.startswith(("++", "--")) or text.endswith(("++", "--"))
        return False

    # ---- Sites

    def in_macro(self, cursor):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        uses = self.macros[self.real(cursor.extent.start.file.name)]
        return any(first <= start and end <= last for first, last in uses)

    def binary_operator(self, cursor):
        """(operator, its offset, left child, right child); the operator is "" where it is not spelled out."""
        children = list(cursor.get_children())
        if len(children) != 2:
            return "", 0, None, None
        left, right = children
        source = self.source_of(cursor)
        between = source.text(left.extent.end.offset, right.extent.start.offset)
        code = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: " " * len(m.group().encode()), between, flags=re.S)
        at = left.extent.end.offset + len(code) - len(code.lstrip())
        return code.strip(), at, left, right

    def mutate(self, cursor, context):
        kind = cursor.kind
        if not context.function or self.in_macro(cursor):
            return
        if kind == CursorKind.BINARY_OPERATOR:
            self.mutate_binary(cursor, context)
        elif kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
            self.mutate_compound(cursor, context)
        elif kind == CursorKind.UNARY_OPERATOR:
            self.mutate_unary(cursor, context)
        elif kind == CursorKind.INTEGER_LITERAL:
            self.mutate_integer(cursor, context)
        elif kind == CursorKind.CXX_BOOL_LITERAL_EXPR:
            self.mutate_boolean(cursor, context)
        elif kind == CursorKind.CONDITIONAL_OPERATOR:
            self.mutate_conditional(cursor, context)

    def mutate_binary(self, cursor, context):
        operator, at, left, right = self.binary_operator(cursor)
        if left is None or self.is_empty(left) or self.is_empty(right):
            return
        if operator in ("&&", "||"):
            other = "||" if operator == "&&" else "&&"
            if operator == "&&":  # the switch turns `a ? b : false` into `!a ? b : true`
                middle, end = ") != {on} ? static_cast<bool>(", ") : {on})"
            else:
                middle, end = ") == {on} ? static_cast<bool>(", ") : !{on})"
            self.add(cursor, context, "logical", [self.with_operator(left, other, right)],
                     [(at, at + 2, middle)], "(static_cast<bool>(", end)
            return
        if operator not in BINARY:
            return
        allowed = COMPARABLE if operator in COMPARISONS else INTEGERS
        if not (type_in(left, allowed) and type_in(right, allowed)):
            return
        helper, alternatives = BINARY[operator]
        before, after = self.spelling(left), self.spelling(right)
        afters = [form.format(l=before, r=after) for form in alternatives]
        rule = "comparison" if operator in COMPARISONS else "operand"
        self.add(cursor, context, rule, afters, [(at, at + len(operator), ",")],
                 f"{NAMESPACE}::{helper}({{probe}}, ", ")")

    def mutate_compound(self, cursor, context):
        operator, at, left, right = self.binary_operator(cursor)
        if operator not in COMPOUND or not (type_in(left, INTEGERS) and type_in(right, INTEGERS)):
            return
        helper, alternatives = COMPOUND[operator]
        afters = [form.format(l=self.spelling(left), r=self.spelling(right)) for form in alternatives]
        self.add(cursor, context, "operand", afters, [(at, at + 2, ",")], f"{NAMESPACE}::{helper}({{which}}, ", ")")

    def mutate_unary(self, cursor, context):
        children = list(cursor.get_children())
        start = cursor.extent.start.offset
        sign = self.source_of(cursor).text(start, start + 2)
        if len(children) != 1 or self.is_empty(children[0]):
            return
        inner = self.spelling(children[0])
        if sign[0] == "!" and sign != "!=":  # C++20 rewrites a != b of some types as !(a == b)
            self.add(cursor, context, "negation", [inner], [], "({on} != (", "))")
        elif sign[0] == "~" and type_in(children[0], INTEGERS):
            self.add(cursor, context, "negation", [inner], [(start, start + 1, "")],
                     f"{NAMESPACE}::complement({{which}}, ", ")")
        elif sign[0] == "-" and sign != "--" and type_in(children[0], INTEGERS):
            if children[0].kind == CursorKind.INTEGER_LITERAL:
                return  # the literal itself is mutated
            self.add(cursor, context, "negation", [inner], [(start, start + 1, "")],
                     f"{NAMESPACE}::negative({{which}}, ", ")")

    def mutate_integer(self, cursor, context):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.source_of(cursor).text(start, end)
        literal = INTEGER_LITERAL.match(text)
        if not literal:
            return
        digits, suffix = literal.group(1).replace("'", ""), literal.group(2)
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        value = int(digits, 8) if octal else int(digits, 0)
        more = hex(value + 1) if digits[:2] in ("0x", "0X") else str(value + 1)
        afters = [more + suffix] + (["0" + suffix] if value == 1 else [])
        self.add(cursor, context, "constant", afters,
                 [(start, end, f"{NAMESPACE}::constant({{which}}, {text})")], "", "")

    def mutate_boolean(self, cursor, context):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.source_of(cursor).text(start, end)
        if text not in ("true", "false"):
            return
        self.add(cursor, context, "constant", ["false" if text == "true" else "true"],
                 [(start, end, f"({text} != {{on}})")], "", "")

    def mutate_conditional(self, cursor, context):
        children = list(cursor.get_children())
        if len(children) != 3 or any(self.is_empty(child) for child in children):
            return
        condition, yes, no = children
        after = f"{self.spelling(condition)} ? {self.spelling(no)} : {self.spelling(yes)}"
        self.add(cursor, context, "operand", [after], [], "(static_cast<bool>(", ") != {on})", over=condition)

    def drop(self, cursor, context):
        if self.in_macro(cursor) or self.is_empty(cursor):
            return
        self.add(cursor, context, "statement", [""], [], "({on} ? void() : void(", "))")

    # ---- Shared

    def with_operator(self, left, operator, right):
        return f"{self.spelling(left)} {operator} {self.spelling(right)}"

    def is_empty(self, cursor):
        return cursor.extent.end.offset <= cursor.extent.start.offset

    def spelling(self, cursor):
        return squeezed(self.source_of(cursor).text(cursor.extent.start.offset, cursor.extent.end.offset))

    def add(self, cursor, context, rule, afters, replacements, prefix, suffix, over=None):
        source = self.source_of(cursor)
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        rule = "initial" if context.initial and rule == "constant" else rule
        known = self.sites[source.name]
        if (start, end, rule) in known:
            return  # a header seen from another translation unit
        line = source.line_of(start)
        mutants = [
            Mutant(file=source.name, function=context.function, line=line, last_line=source.line_of(max(start, end - 1)),
                   source=source.line_text(line), operator=rule, before=self.spelling(cursor), after=squeezed(after),
                   offset=start)
            for after in afters
        ]
        over = over or cursor
        known[(start, end, rule)] = Site(
            mutants=mutants, constexpr=context.constexpr, replacements=replacements,
            prefix=(over.extent.start.offset, prefix), suffix=(over.extent.end.offset, suffix))

    def mutants(self):
        """All of them in the order of files and places, equal ones of a line numbered."""
        seen = collections.Counter()
        for name in sorted(self.sites):
            for site in self.ordered(name):
                numbered = []
                for mutant in site.mutants:
                    nth = seen[mutant.key()]
                    seen[mutant.key()] += 1
                    numbered.append(dataclasses.replace(mutant, nth=nth))
                site.mutants = numbered
        return [mutant for name in sorted(self.sites) for site in self.ordered(name) for mutant in site.mutants]

    def ordered(self, name):
        """The sites of a file, outer ones before those within them."""
        places = sorted(self.sites[name], key=lambda place: (place[0], -place[1], place[2] != "statement", place[2]))
        return [self.sites[name][place] for place in places]


@dataclasses.dataclass(frozen=True)
class Context:
    function: str = ""  # "": nothing here runs
    constexpr: bool = False
    initial: bool = False  # the initial value of a member


def qualified(cursor):
    """"Pmu::State::reload": without namespaces and parameters, so that moving a file keeps it."""
    names = []
    while cursor is not None and cursor.kind not in (CursorKind.NAMESPACE, CursorKind.TRANSLATION_UNIT):
        names.append(cursor.spelling.split("<")[0] or "(unnamed)")
        cursor = cursor.semantic_parent
    return "::".join(reversed(names))


def type_in(cursor, kinds):
    kind = cursor.type.get_canonical().kind
    return kind in kinds or kind in UNKNOWN
