"""Counts what the house's rules are about, in this checkout or in another: `python scripts/house_numbers.py [PATH]`.

Only the text of `cutegen/` is read, so that any version can be counted; two imports are timed in processes of their
own, with the interpreter that runs this script.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_FILES = 5
TIMED_RUNS = 5
KIND = ("Copy", "Atom")
LOOP_COUNTS = ("stages", "k_blocks")
LOOP_NAMES = {"blocks_ahead", "stages_ahead", "MAIN_LOOPS", "EDGE_LOOPS"}
POSITIONAL_TENSORS = ("tensors", "call_tensors", "plain_tensors")


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path in the checkout, its syntax tree, its number of lines."""

    path: str
    tree: ast.Module
    lines: int


def modules(root: Path) -> list[Module]:
    """Every module of the package in the checkout `root`. Raises SystemExit where there is none."""
    files = sorted((root / "cutegen").rglob("*.py"))
    if not files:
        raise SystemExit(f"{root}/cutegen has no modules; expected a checkout of cutegen")
    texts = [(file, file.read_text()) for file in files]
    return [Module(str(file.relative_to(root)), ast.parse(text), len(text.splitlines())) for file, text in texts]


def name_of(node: ast.expr) -> str:
    """The last name of an expression: of `plan.stages`, `plan["stages"]` and `stages` it is "stages"."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=func):
            return name_of(func)
        case _:
            return ""


def loop_signs(module: Module) -> Iterator[ast.AST]:
    """Arithmetic that only a description of the main loop needs: how far ahead it copies and loads."""
    for node in ast.walk(module.tree):
        match node:
            case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1)) if name_of(left) in LOOP_COUNTS:
                yield node
            case ast.Call(func=ast.Name(id="Fraction"), args=[ast.Constant(value=1), of]) if name_of(of) in LOOP_COUNTS:
                yield node
            case ast.Name(id=name, ctx=ast.Store()) if name in LOOP_NAMES:
                yield node


def kind_switches(module: Module, defining: dict[str, str]) -> Iterator[ast.AST]:
    """`isinstance` on a class of atoms or copies, outside the module that defines the class."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "isinstance" and len(node.args) == 2:
            asked = {name_of(part) for part in ast.walk(node.args[1]) if isinstance(part, ast.expr)}
            if any(name.endswith(KIND) and defining.get(name) != module.path for name in asked):
                yield node


def positional_tensors(module: Module) -> Iterator[ast.AST]:
    """A tensor of a contract, taken by its position: a number, a constant or a slice, and not a name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript) and name_of(node.value) in POSITIONAL_TENSORS and _is_position(node.slice):
            yield node


def _is_position(index: ast.expr) -> bool:
    match index:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.Name(id=name):
            return name.isupper() or len(name) == 1
        case _:
            return isinstance(index, ast.Slice | ast.UnaryOp | ast.BinOp)


def classes(found: list[Module]) -> dict[str, str]:
    """Where each class is defined."""
    return {node.name: x.path for x in found for node in ast.walk(x.tree) if isinstance(node, ast.ClassDef)}


def by_module(found: list[Module], signs: Callable[[Module], Iterator[ast.AST]]) -> Counter[str]:
    """How many signs each module has; those with none are left out."""
    counts = Counter({x.path: sum(1 for _ in signs(x)) for x in found})
    return +counts


def import_ms(statement: str, root: Path) -> float:
    """Milliseconds of a process that runs `statement`, beyond one that runs nothing: the least of a few each."""

    def least(code: str) -> float:
        times = []
        for _ in range(TIMED_RUNS):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
            times.append(time.perf_counter() - begin)
        return min(times)

    return 1e3 * (least(f"import sys; sys.path.insert(0, '.')\n{statement}") - least("pass"))


def main(root: Path) -> None:
    """Print the numbers, one paragraph for each."""
    found = modules(root)
    defining = classes(found)
    tables = {
        "loop descriptions, by the arithmetic that they need": by_module(found, loop_signs),
        "isinstance on atoms and copies outside their own modules": by_module(
            found, lambda x: kind_switches(x, defining)
        ),
        "positional uses of contract tensors": by_module(found, positional_tensors),
    }
    print(f"{len(found)} modules, {sum(x.lines for x in found):,} lines")
    for title, counts in tables.items():
        print(f"\n{title}: {counts.total()} in {len(counts)} modules")
        for path, count in sorted(counts.items()):
            print(f"  {count:3}  {path}")
    print("\nlongest files")
    for module in sorted(found, key=lambda x: -x.lines)[:LONGEST_FILES]:
        print(f"  {module.lines:3}  {module.path}")
    libraries, whole = (import_ms(f"import {names}", root) for names in ("numpy, tensor_layouts", "cutegen"))
    print(f"\nimports\n  {libraries:4.0f} ms  numpy, tensor_layouts")
    print(f"  {whole:4.0f} ms  cutegen, {whole / libraries:.2f} x")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
