"""The mutants of a source: each rewrites one node of its syntax tree and leaves the rest as it is.

Left out, because nothing or nearly nothing can notice a change there: annotations, decorators,
f-strings, what a ``raise`` or a logging call is given, ``__repr__`` and ``__str__``, blocks for
type checkers, keywords that only guard (``strict=``, ``encoding=``, the ``dtype=`` that ``asarray``
makes sure of ...), and waiting times (``timeout=``, names that end in
``SECONDS``). Strings are never changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("amin", "amax"),
    ("sum", "mean"),
    ("any", "all"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("add_", "sub_"),
    ("mul_", "div_"),
    ("train", "eval"),
    ("union", "intersection"),
)
FUNCTIONS = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
BUILTINS = {"min", "max", "any", "all"}  # of FUNCTIONS, those that need no module before the dot
SYMMETRIC = {
    "min", "max", "minimum", "maximum", "dot", "vdot", "add", "multiply", "equal", "allclose",
    "array_equal", "logical_and", "logical_or", "gcd", "hypot", "zip", "range",
}  # fmt: skip
GUARDS = {
    "strict", "encoding", "errors", "exist_ok", "missing_ok", "ignore_errors", "parents", "daemon",
    "stacklevel", "timeout", "help", "flush", "check", "copy", "kind", "indent", "repr", "compare",
}  # fmt: skip
UNSEEN_CALLS = {"log", "logger", "logging", "warnings", "print", "sleep", "fsync", "flush", "cast"}
UNSEEN_FUNCTIONS = {"__repr__", "__str__"}
Node = ast.expr | ast.stmt | ast.keyword
Span = tuple[int, int]
Change = tuple[str, Node | Span, str]
HEADERS = (ast.If, ast.While, ast.For, ast.With, ast.FunctionDef, ast.ClassDef, ast.Try)


@dataclass(frozen=True)
class Mutant:
    """One change: a span of a source, by character, and what replaces it."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]  # of the statement, or of the header of a compound one
    at_import: bool  # outside every function

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.text + source[self.end :]


def mutants_of(source: str, path: str) -> list[Mutant]:
    """Return every mutant of a source that is valid Python, in the order of the text."""
    found = _Finder(source, path).mutants()
    return sorted(filter(lambda m: _is_valid(m.apply(source)), found), key=_order)


def _order(mutant: Mutant) -> tuple[int, int, str, str]:
    return mutant.start, mutant.end, mutant.kind, mutant.text


def _is_valid(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder:
    def __init__(self, source: str, path: str) -> None:
        self.source, self.path = source, path
        self.tree = ast.parse(source)
        self.line_starts = [0]
        for line in source.encode().splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))
        self.bytes = source.encode()
        self.parameters = {
            statement: {argument.arg for argument in function.args.args}
            for function in ast.walk(self.tree)
            if isinstance(function, ast.FunctionDef)
            for statement in ast.walk(function)
            if isinstance(statement, ast.Return)
        }

    def mutants(self) -> Iterator[Mutant]:
        """Walk the tree with the statement that holds each node."""
        yield from self._walk(self.tree, (1, 1), at_import=True)

    def _walk(self, node: ast.AST, lines: tuple[int, int], at_import: bool) -> Iterator[Mutant]:
        if _is_unseen(node):
            return
        if isinstance(node, ast.stmt):
            lines = _own_lines(node)
        inside = at_import and not isinstance(node, ast.FunctionDef)
        for kind, place, text in self._changes(node):
            start, end = place if isinstance(place, tuple) else self._span(place)
            line = self.source.count("\n", 0, start) + 1
            yield Mutant(self.path, line, kind, start, end, text, lines, at_import)
        for child in _children(node):
            default = isinstance(node, ast.FunctionDef) and child is node.args
            yield from self._walk(child, lines, at_import if default else inside)

    def _span(self, node: Node) -> Span:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.line_starts[node.lineno - 1] + node.col_offset
        end = self.line_starts[node.end_lineno - 1] + node.end_col_offset
        return len(self.bytes[:start].decode()), len(self.bytes[:end].decode())

    def _text(self, node: Node) -> str:
        start, end = self._span(node)
        return self.source[start:end]

    def _changes(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._compare(node)
            case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
                before, after = ARITHMETIC.get(type(node.op), ("", ""))
                if before:
                    text = self._swap_operator(node, node.left, node.right, before, after)
                    yield "arithmetic", node, text
            case ast.BoolOp():
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield "boolean", node, self._swap_operator(node, left, right, *words)
            case ast.UnaryOp(op=ast.Not()):
                yield "negation", node, f"({self._text(node.operand)})"
            case ast.UnaryOp(op=ast.USub()):
                yield "sign", node, f"({self._text(node.operand)})"
            case ast.Constant():
                for text in _other_constants(node.value):
                    yield "constant", node, text
            case ast.If() | ast.While() | ast.IfExp():
                if not isinstance(node.test, ast.Compare | ast.Constant | ast.UnaryOp):
                    yield "condition", node.test, f"(not ({self._text(node.test)}))"
            case ast.comprehension():
                for test in node.ifs:
                    if not isinstance(test, ast.Compare):
                        yield "condition", test, f"(not ({self._text(test)}))"
            case ast.Expr(value=ast.Call()) | ast.Raise():
                yield "removed statement", node, "pass"
            case ast.Assign() if all(_is_store(target) for target in node.targets):
                yield "removed statement", node, "pass"
            case ast.AugAssign():
                yield from self._augmented(node)
            case ast.Break():
                yield "loop", node, "continue"
            case ast.Continue():
                yield "loop", node, "break"
            case ast.Call():
                yield from self._call(node)
            case ast.Slice():
                if node.lower is not None and not isinstance(node.lower, ast.Constant):
                    yield "slice", node.lower, f"({self._text(node.lower)}) + 1"
                if node.upper is not None and not isinstance(node.upper, ast.Constant):
                    yield "slice", node.upper, f"({self._text(node.upper)}) - 1"
            case ast.Return(value=ast.Call() as call):
                given = [a.id for a in call.args if isinstance(a, ast.Name)]
                for name in [name for name in given if name in self.parameters[node]][:1]:
                    yield "unchanged argument", call, name

    def _swap_operator(
        self, node: ast.expr, left: ast.expr, right: ast.expr, before: str, after: str
    ) -> str:
        """Replace the operator between two operands, and keep the whole together."""
        (start, end), (_, gap_start), (gap_end, _) = map(self._span, (node, left, right))
        pattern = r"\s+".join(map(re.escape, before.split()))
        gap = re.sub(pattern, lambda _: after, self.source[gap_start:gap_end], count=1)
        return f"({self.source[start:gap_start]}{gap}{self.source[gap_end:end]})"

    def _compare(self, node: ast.Compare) -> Iterator[Change]:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            words = COMPARISONS[type(operator)]
            yield "comparison", node, self._swap_operator(node, left, right, *words)

    def _augmented(self, node: ast.AugAssign) -> Iterator[Change]:
        yield "removed statement", node, "pass"
        before, after = ARITHMETIC.get(type(node.op), ("", ""))
        if before:
            target, value = self._text(node.target), self._text(node.value)
            yield "arithmetic", node, f"{target} {after}= {value}"

    def _call(self, node: ast.Call) -> Iterator[Change]:
        name, function = _name(node.func), self._text(node.func)
        if name in FUNCTIONS and (isinstance(node.func, ast.Attribute) or name in BUILTINS):
            if FUNCTIONS[name] in BUILTINS or isinstance(node.func, ast.Attribute):
                yield "function", node.func, function[: -len(name)] + FUNCTIONS[name]
        if name == "sorted" and node.args:
            yield "function", node, f"list({self._text(node.args[0])})"
        parts: list[Node] = sorted([*node.args, *node.keywords], key=self._span)
        spans = [self._span(part) for part in parts]
        for index, part in enumerate(parts):
            if isinstance(part, ast.keyword) and not _is_guard(part.arg, name):
                start, end = spans[index]
                if index:
                    start = spans[index - 1][1]
                elif len(parts) > 1:
                    end = spans[1][0]
                yield "dropped keyword", (start, end), ""
        starred = any(isinstance(argument, ast.Starred) for argument in node.args[:2])
        if len(node.args) > 1 and not starred and name not in SYMMETRIC:
            first, second = (self._text(argument) for argument in node.args[:2])
            (start, gap_start), (gap_end, end) = map(self._span, node.args[:2])
            if first != second:
                text = f"{second}{self.source[gap_start:gap_end]}{first}"
                yield "swapped arguments", (start, end), text


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in GUARDS):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_unseen(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.FunctionDef():
            return node.name in UNSEEN_FUNCTIONS
        case ast.If():
            return _name(node.test) == "TYPE_CHECKING" or "__main__" in ast.unparse(node.test)
        case ast.Expr(value=ast.Call() as call):
            return bool(UNSEEN_CALLS & set(_names(call.func)))
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return any(_name(target).endswith("SECONDS") for target in targets)
        case ast.Call():
            return _name(node.func) in ("cast", "TypeVar", "getLogger")
    return False


def _is_guard(keyword: str | None, function: str) -> bool:
    """Return whether a keyword only guards against input that is not as it should be."""
    return keyword in GUARDS or (keyword == "dtype" and function in ("asarray", "array"))


def _own_lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement without those of the statements in it."""
    last = statement.end_lineno or statement.lineno
    if isinstance(statement, HEADERS) and statement.body:
        last = max(statement.lineno, statement.body[0].lineno - 1)
    return statement.lineno, last


def _other_constants(value: object) -> list[str]:
    match value:
        case bool():
            return [str(not value)]
        case int():
            return [str({0: 1, 1: 0}.get(value, value + 1))]
        case float():
            return [repr(2 * value) if value else "1.0"]
    return []


def _is_store(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute | ast.Subscript)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _name(node: ast.expr) -> str:
    return next(_names(node), "")


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the parts of a dotted name, the last one first."""
    if isinstance(node, ast.Attribute):
        yield node.attr
        yield from _names(node.value)
    elif isinstance(node, ast.Name):
        yield node.id
