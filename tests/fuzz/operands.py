"""Calls of a kernel with operands of every kind: the result is exact, or the call is refused and names the operand."""

from __future__ import annotations

import json
import random
import warnings
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from cutegen.api import compile as compile_spec
from cutegen.errors import CutegenError, OperandError
from cutegen.run import Kernel
from cutegen.spec import parse_spec
from tests.fuzz.arrays import HOSTILE, MAKERS, NUMPY, Array
from tests.fuzz.built import own_cache
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of

SPECS = {
    "f16": 'family = "sm80"\nproblem.a = { dtype = "f16", major = "k" }\nproblem.b = { dtype = "f16", major = "k" }\n'
    'problem.c = { dtype = "f16", major = "n" }\ntile = { cta = [32, 32, 32], stages = 2 }\n',
    "f32": 'family = "simt"\nproblem.a = { dtype = "f32", major = "m", align = 4 }\n'
    'problem.b = { dtype = "f32", major = "n", align = 4 }\nproblem.c = { dtype = "f32", major = "n", align = 4 }\n'
    'tile = { cta = [32, 32, 8], stages = 1 }\nepilogue.ops = ["alpha", "beta"]\n',
}
ORDERS = {"f16": {"a": "C", "b": "F", "out": "C"}, "f32": {"a": "F", "b": "C", "out": "C", "c": "C"}}
SCALARS = (1, 2.0, -1, 0, 0.5, np.float32(2), np.int8(1), True, *HOSTILE, 10**400, torch.tensor(2.0), np.ones(1), 1j)
PLAIN = ("numpy", "torch")


def case(seed: int) -> Case:
    """The kernel's element type, the extents, and the name of how each operand is made."""
    rng = random_of("operands", seed)
    names = {name: rng.choice(PLAIN) for name in ("a", "b", "out", "c")}
    for name in rng.sample(sorted(names), rng.choice((0, 1, 1, 1, 2))):
        names[name] = rng.choice(tuple(MAKERS))
    extents = [rng.choice((1, 7, 8, 16, 33, 64, rng.randint(0, 70))) for _ in range(3)]
    table = {"dtype": rng.choice(tuple(SPECS)), "extents": extents, "seed": seed, **names}
    if rng.random() < 0.15:
        table["other"] = rng.choice(("shape", "same", "overlap", "no out", "batch"))
    return Case(seed, json.dumps(table) + "\n")


@lru_cache
def _kernel(dtype: str) -> Kernel:
    kernel = compile_spec(parse_spec(SPECS[dtype], name="case"), "sm_80", cache=own_cache())
    assert isinstance(kernel, Kernel)
    return kernel


def check(case: Case) -> Outcome:
    """Make the operands, say what they mean, call, and compare."""
    table = json.loads(case.text)
    rng = random_of("made", table["seed"])
    kernel = _kernel(table["dtype"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operands, meanings = _operands(table, rng)
        try:
            result = kernel(**operands)
        except CutegenError as error:
            return _refused(error)
        return _compared(table, operands, meanings, result)


def _refused(error: CutegenError) -> Outcome:
    said = str(error)
    if "\n" in said or not said.isprintable() or (isinstance(error, OperandError) and not error.operand):
        return Outcome(FOUND, f"a refusal without its place, or of several lines: {said[:200]!r}")
    return Outcome(REFUSED, said)


def _operands(table: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], dict[str, Array | None]]:
    """What is passed, and what it means."""
    m, n, k = table["extents"]
    other = table.get("other", "")
    shapes = {"a": (m, k), "b": (k, n), "out": (m, n)} | ({"c": (m, n)} if table["dtype"] == "f32" else {})
    if other == "shape":
        shapes[rng.choice(sorted(shapes))] = (m + 1, n)
    if other == "batch":
        shapes |= {name: (2, *shapes[name]) for name in shapes if name != "b"}
    passed: dict[str, Any] = {}
    meanings: dict[str, Array | None] = {}
    numbers = np.random.default_rng(table["seed"])
    for name, shape in shapes.items():
        values = numbers.integers(-2, 2, shape, endpoint=True).astype(np.float64)
        passed[name], meanings[name] = MAKERS[table[name]](values, (table["dtype"], ORDERS[table["dtype"]][name]), rng)
    if table["dtype"] == "f32":
        for name in ("alpha", "beta"):
            passed[name] = rng.choice(SCALARS[:6]) if rng.random() < 0.8 else rng.choice(SCALARS)
    return _entangled(other, passed), meanings


def _entangled(other: str, passed: dict[str, Any]) -> dict[str, Any]:
    """The result where another operand lies, or nowhere."""
    if other == "same":
        return passed | {"out": passed["a"]}
    if other == "overlap" and isinstance(passed["out"], np.ndarray) and passed["out"].ndim == 2:
        room, (m, n) = np.zeros(passed["out"].size + 1, passed["out"].dtype), passed["out"].shape
        strides = (room.itemsize * max(1, n - 1), room.itemsize)
        return passed | {"out": np.lib.stride_tricks.as_strided(room, (m, n), strides)}
    return {name: value for name, value in passed.items() if not (other == "no out" and name == "out")}


def _compared(table: dict[str, Any], passed: dict[str, Any], meanings: dict[str, Array | None], result: Any) -> Outcome:
    """A result was given, so every operand must mean something, and the result be what follows."""
    nothing = [name for name, meaning in meanings.items() if meaning is None and name in passed]
    if nothing and 0 not in table["extents"]:
        return Outcome(FOUND, f"accepted, and {' and '.join(nothing)} has no values: {case_text(table)}")
    found = _values(result)
    a, b, c = (meanings.get(name) for name in "abc")
    if a is None or b is None:
        return Outcome(ACCEPTED)
    expected = a @ b
    if table["dtype"] == "f32":
        beta = float(passed["beta"])
        expected = float(passed["alpha"]) * expected + (beta * c if c is not None and beta else 0)
    expected = expected.astype(NUMPY[table["dtype"]])
    if found.shape != expected.shape or not np.array_equal(found.astype(expected.dtype), expected, equal_nan=True):
        return Outcome(FOUND, f"a wrong result: {case_text(table)}")
    return Outcome(ACCEPTED)


def _values(result: Any) -> Array:
    """What was returned, which is the `out` that was passed: an array, a tensor, or what speaks DLPack alone."""
    if hasattr(result, "detach"):
        return cast(Array, result.detach().cpu().resolve_neg().double().numpy())
    return result if isinstance(result, np.ndarray) else np.from_dlpack(result)


def case_text(table: dict[str, Any]) -> str:
    """A case in a message."""
    return ", ".join(f"{key} = {value}" for key, value in table.items())
