"""Count what the project's rules limit, in this checkout or another: `python scripts/house_numbers.py [PATH]`.

It reads only the text of `cutegen/` and `templates/`, so it can count any version. It times two imports in separate
processes, with the interpreter that runs this script.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2

LONGEST_FILES = 5
TIMED_RUNS = 5
KIND = ("Copy", "Atom", "Loads")
LOOP_COUNTS = ("stages", "k_blocks")
LOOP_NAMES = {"blocks_ahead", "stages_ahead", "MAIN_LOOPS", "EDGE_LOOPS"}
FAMILY = re.compile(r"\b(sm80|sm90|sm100|sm120|simt)\b")
FAMILY_FILES = ("cutegen/plan/families.py", "cutegen/spec/families.py")
"""Where a family may be named: where it is composed, and where specs learn of it."""
POSITIONAL_TENSORS = ("tensors", "call_tensors", "plain_tensors")


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: its path in the checkout, its syntax tree and its number of lines."""

    path: str
    tree: ast.Module
    lines: int


def modules(root: Path) -> list[Module]:
    """Return every module of the package in the checkout `root`. Raise SystemExit if there is none."""
    files = sorted((root / "cutegen").rglob("*.py"))
    if not files:
        raise SystemExit(f"{root}/cutegen has no modules; expected a checkout of cutegen")
    texts = [(file, file.read_text()) for file in files]
    return [Module(str(file.relative_to(root)), ast.parse(text), len(text.splitlines())) for file, text in texts]


def name_of(node: ast.expr) -> str:
    """Return the last name of an expression: "stages" for `plan.stages`, `plan["stages"]` and `stages`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=func):
            return name_of(func)
        case _:
            return ""


def loop_signs(module: Module) -> Iterator[ast.AST]:
    """Yield arithmetic that only a description of the main loop needs: how far ahead it copies and loads."""
    for node in ast.walk(module.tree):
        match node:
            case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1)) if name_of(left) in LOOP_COUNTS:
                yield node
            case ast.Call(func=ast.Name(id="Fraction"), args=[ast.Constant(value=1), of]) if name_of(of) in LOOP_COUNTS:
                yield node
            case ast.Name(id=name, ctx=ast.Store()) if name in LOOP_NAMES:
                yield node


def kind_switches(module: Module, defining: dict[str, str]) -> Iterator[ast.AST]:
    """Yield each `isinstance` or pattern on a class of atoms or copies outside the module that defines the class."""
    for node in ast.walk(module.tree):
        asked = _classes_asked(node)
        if any(name.endswith(KIND) and defining.get(name) != module.path for name in asked):
            yield node


def _classes_asked(node: ast.AST) -> set[str]:
    """Return the classes that `isinstance`, or a pattern of `match`, tests for."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, asked]):
            return {name_of(part) for part in ast.walk(asked) if isinstance(part, ast.expr)}
        case ast.MatchClass(cls=asked):
            return {name_of(asked)}
        case _:
            return set()


def text_constants(found: list[Module]) -> frozenset[str]:
    """Return the constants of the package that are strings: they index a mapping, by role, and never a sequence."""
    names = set()
    for module in found:
        for node in module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str())):
                    names.add(name)
    return frozenset(names)


def positional_tensors(module: Module, texts: frozenset[str] = frozenset()) -> Iterator[ast.AST]:
    """Yield each use of a contract's tensor by position: by a number, a constant or a slice instead of a name.

    `texts` are the constants that are known to be names.
    """
    for node in ast.walk(module.tree):
        match node:
            case ast.Subscript(value=of, slice=index) if name_of(of) in POSITIONAL_TENSORS:
                if _is_position(index, texts):
                    yield node


def _is_position(index: ast.expr, texts: frozenset[str]) -> bool:
    match index:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.Name(id=name):
            return (name.isupper() and name not in texts) or len(name) == 1
        case _:
            return isinstance(index, ast.Slice | ast.UnaryOp | ast.BinOp)


def family_names(module: Module) -> Iterator[ast.AST]:
    """Yield each string, except docstrings, that names a family outside the files of families."""
    if not module.path.startswith(FAMILY_FILES):
        yield from (node for node in _strings(module.tree) if FAMILY.search(node.value))


def operand_pairs(module: Module) -> Iterator[ast.AST]:
    """Yield each use of A and B as a literal pair: what is said of all operands is a loop over a plan's paths."""
    for node in ast.walk(module.tree):
        match node:
            case ast.For(iter=of) | ast.comprehension(iter=of) | ast.Attribute(value=of):
                texts = [of]
            case ast.Compare(comparators=[of]):
                texts = [of]
            case ast.Call(func=ast.Name(id="zip" | "map" | "enumerate" | "product"), args=args):
                texts = args
            case ast.Tuple(elts=[ast.Constant(value="a"), ast.Constant(value="b")]):
                yield node
                continue
            case _:
                continue
        yield from (x for x in texts if isinstance(x, ast.Constant) and x.value in ("ab", "AB"))


def _strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the strings of a module, with those of f-strings, except docstrings."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings = {id(node.value) for node in statements if isinstance(node.value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def import_lines(module: Module) -> int:
    """Count the lines of imports."""
    imports = (node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def template_branches(text: str) -> int:
    """Count a template's branches: each `if` and `elif`, conditional expression, and condition of a loop."""
    words = ((kind, word) for _, kind, word in jinja2.Environment().lex(text))
    return sum(kind == "name" and word in ("if", "elif") for kind, word in words)


def branches(root: Path) -> Counter[str]:
    """Count the branches of each template; omit templates without any."""
    files = sorted((root / "templates").rglob("*.j2"))
    return +Counter({str(file.relative_to(root)): template_branches(file.read_text()) for file in files})


def classes(found: list[Module]) -> dict[str, str]:
    """Return the module that defines each class."""
    return {node.name: x.path for x in found for node in ast.walk(x.tree) if isinstance(node, ast.ClassDef)}


def by_module(found: list[Module], signs: Callable[[Module], Iterator[ast.AST]]) -> Counter[str]:
    """Count the signs in each module; omit modules without any."""
    counts = Counter({x.path: sum(1 for _ in signs(x)) for x in found})
    return +counts


def import_ms(root: Path, *statements: str) -> list[float]:
    """Return the milliseconds of each statement in a new process, less those of an empty one: the least of a few runs.

    The processes run in turn, so that load on the machine affects all of them.
    """
    codes = ["pass", *(f"import sys; sys.path.insert(0, '.')\n{statement}" for statement in statements)]
    rounds = [[_run_ms(code, root) for code in codes] for _ in range(TIMED_RUNS)]
    nothing, *times = (min(column) for column in zip(*rounds, strict=True))
    return [each - nothing for each in times]


def _run_ms(code: str, root: Path) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
    return 1e3 * (time.perf_counter() - begin)


def main(root: Path) -> None:
    """Print the numbers, one paragraph each."""
    found = modules(root)
    defining, texts = classes(found), text_constants(found)
    tables = {
        "loop descriptions, by the arithmetic that they need": by_module(found, loop_signs),
        "isinstance on atoms and copies outside their own modules": by_module(
            found, lambda x: kind_switches(x, defining)
        ),
        "literal pairs of operands": by_module(found, operand_pairs),
        "positional uses of contract tensors": by_module(found, lambda x: positional_tensors(x, texts)),
        "names of families outside their files": by_module(found, family_names),
        "branches of templates": branches(root),
    }
    lines, of_plan = sum(x.lines for x in found), sum(x.path.startswith("cutegen/plan/") for x in found)
    print(f"{len(found)} modules, {of_plan} of them in cutegen/plan, {lines:,} lines")
    print(f"{sum(map(import_lines, found)) / lines:.1%} of the lines are imports")
    for title, counts in tables.items():
        print(f"\n{title}: {counts.total()} in {len(counts)} files")
        for path, count in sorted(counts.items()):
            print(f"  {count:3}  {path}")
    print("\nlongest files")
    for module in sorted(found, key=lambda x: -x.lines)[:LONGEST_FILES]:
        print(f"  {module.lines:3}  {module.path}")
    libraries, whole = import_ms(root, "import numpy, tensor_layouts", "import cutegen")
    print(f"\nimports\n  {libraries:4.0f} ms  numpy, tensor_layouts")
    print(f"  {whole:4.0f} ms  cutegen, {whole / libraries:.2f} x")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
