"""Specs that were accepted are built and executed: within the library's bounds, and exact where NumPy alone knows.

What the executor counts is held against the plan's predictions, wherever it has any.
"""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from contextlib import ExitStack
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.api import compile as compile_spec
from cutegen.build import Cache
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError
from cutegen.hardware import TARGETS
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import FAMILIES, GemmSpec, parse_spec
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.build.warm import warm_compiler
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.exact import beside_untouched, chain_results, decoded, encoded, owner, small_integers
from tests.fuzz.plausible import BULK, BY_WARPGROUP, Table, chance, plausible, toml
from tests.fuzz.specs import split_case

EXTENTS = (16, 16, 32, 32, 32, 48, 64, 64, 80, 96, 112)
SIDES, DEEP = (8, 17, 64, 100), (530, 2070, 8000)
TRIES = 60
WORK = 3 * 64 * 64 * 64
"""Multiply-adds of one launch, about: what the executor does in a second or so."""
MOST_CTAS = 128


def case(seed: int) -> Case:
    """Its first line, a comment, is the target and perhaps a problem; the rest is a spec that is planned for it."""
    rng = random_of("built", seed)
    arch = tuple(TARGETS)[seed % len(TARGETS)]
    for _ in range(TRIES):
        table = plausible(rng, rng.choice(families_of(arch)), arch, EXTENTS)
        table.pop("kind", None)
        text = f"# {arch} {_problem(rng, table)}\n{toml(table)}"
        if _planned(text) is not None:
            return Case(seed, text)
    raise AssertionError(f"none of {TRIES} specs for {arch} is accepted")


def families_of(arch: str) -> list[str]:
    """The families that kernels for `arch` can be of."""
    has = {name for name in FAMILIES if name not in BULK or int(arch[3:]) >= 90}
    return sorted(has if arch == "sm_90" else has - {BY_WARPGROUP})


def _problem(rng: random.Random, table: Table) -> str:
    """Sometimes a small problem, for which a tile is chosen, and where K is deep its slices."""
    if not chance(rng, 0.12):
        return ""
    table.pop("tile.cta", None)
    m, n = rng.choice(SIDES), rng.choice(SIDES)
    return f"{m},{n},{rng.choice([k for k in (*SIDES, *DEEP) if m * n * k <= WORK])}"


def _planned(text: str) -> GemmPlan | None:
    arch, problem, content = split_case(text)
    try:
        found = plan(parse_spec(content, name="case"), arch, problem)  # type: ignore[arg-type]
    except CutegenError:
        return None
    except Exception:  # what planning does wrong is found by the kind that plans
        return None
    return found if isinstance(found, GemmPlan) else None


@lru_cache
def own_cache() -> Cache:
    """A cache of this process, whose compiler is kept warm."""
    folder, stack = tempfile.mkdtemp(prefix="cutegen-fuzz-"), ExitStack()
    stack.enter_context(stack.enter_context(warm_compiler()).used())
    atexit.register(stack.close)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Cache(Path(folder))


def check(case: Case) -> Outcome:
    """Build it, and run it on problems of several sizes."""
    planned = _planned(case.text)
    if planned is None:
        return Outcome(REFUSED, "not planned")
    arch, problem, content = split_case(case.text)
    spec = parse_spec(content, name="case")
    try:
        kernel = compile_spec(spec, arch, problem=problem, cache=own_cache())  # type: ignore[arg-type]
    except CutegenError as error:
        return Outcome(FOUND, f"accepted and not built: {type(error).__name__}: {str(error)[:300]}")
    assert isinstance(kernel, Kernel)
    rng = random_of("sizes", case.seed)
    for size in (*_sizes(rng, planned), *([problem] if problem and _few_ctas(planned, problem) else [])):
        try:
            wrong = _bounded(kernel, planned, size, rng) or _exact(kernel, spec, planned, size, rng)
        except CutegenError as error:
            wrong = f"{type(error).__name__}: {str(error)[:300]}"
        if wrong:
            return Outcome(FOUND, f"M, N, K = {size}: {wrong}")
    return Outcome(ACCEPTED)


def _sizes(rng: random.Random, planned: GemmPlan) -> list[tuple[int, int, int]]:
    """One problem within a tile, one over the edges of tiles; K of several k-tiles where that is little work."""
    (m, n), k = planned.launch.cta_tile, planned.cta_tile[2]
    turns = max(1, WORK // (m * n * k))
    small = rng.randint(1, m), rng.randint(1, n), rng.choice((1, rng.randint(1, k), k))
    deep = rng.randint(1, min(turns, 5) * k)
    wide = (m + 1, n, deep) if rng.random() < 0.5 else (rng.randint(1, m), n + rng.randint(1, 9), deep)
    return [small, wide if turns >= 2 else (m, n, deep)]


def _few_ctas(planned: GemmPlan, problem: tuple[int, ...]) -> bool:
    """Return whether the executor has done with a launch on the problem in a few seconds."""
    return prod(planned.launch.geometry(ProblemShape(*problem)).grid) <= MOST_CTAS


def _bounded(kernel: Kernel, planned: GemmPlan, size: tuple[int, int, int], rng: random.Random) -> str:
    """Normal data, held against the library's own bounds."""
    m, n, k = size
    seed = rng.randrange(1 << 30)
    a, b, out = random_operands(kernel.contract, m, n, k, seed=seed)
    extras = random_extras(kernel.contract, m, n, seed=seed)
    written = _written(out, extras)
    before = {name: owner(array).tobytes() for name, array in written.items()}
    expected = expected_outcome(kernel.contract, a, b, _copied(extras), accumulator=_sums(planned))
    policy = rng.choice(("in-order", "reversed", f"random:{seed}"))
    report = kernel.execute(a, b, out=out, policy=policy, **extras)
    if differing := count_launch(planned, kernel.call_size(a, b, out, **extras), report).differing():
        return f"seed {seed}: counted is other than predicted: {differing}"
    for name, value in (("out", expected.result), ("aux", expected.aux)):
        if value is None or name not in written:
            continue
        found = compare(written[name], value, dtype=_dtype(kernel, name), accumulator=_sums(planned))
        if not found.ok:
            return f"{name}, seed {seed}: {found.wrong} elements out of bounds, the first {found.first_wrong}"
        if not beside_untouched(before, written[name], name):
            return f"{name}, seed {seed}: memory beside the result was written"
    return ""


def _exact(kernel: Kernel, spec: GemmSpec, planned: GemmPlan, size: tuple[int, int, int], rng: random.Random) -> str:
    """Small integers, whose results NumPy knows without rounding."""
    m, n, k = size
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    a, b, out = random_operands(kernel.contract, m, n, k, seed=1)
    extras = random_extras(kernel.contract, m, n, seed=1)
    a[...], b[...] = (small_integers(numbers, x.shape, _dtype(kernel, name)) for name, x in (("a", a), ("b", b)))
    operands = _integers(kernel, extras, numbers)
    sums = decoded(a, _dtype(kernel, "a")) @ decoded(b, _dtype(kernel, "b"))
    expected = chain_results(sums, spec.epilogue.ops or (), spec.epilogue.expression, operands)
    if expected is None:
        return ""
    kernel(a, b, out=out, **extras)
    for name, value in zip(("out", "aux"), expected, strict=True):
        if value is None:
            continue
        dtype = _dtype(kernel, name)
        right = decoded(encoded(value, dtype), dtype)
        found = decoded(_written(out, extras)[name], dtype)
        if not (found == right).all():
            at = tuple(int(x) for x in np.argwhere(~(found == right))[0])
            return f"{name} of small integers: found {found[at]} at {at}; expected {right[at]}"
    return ""


def _integers(kernel: Kernel, extras: dict[str, Any], numbers: np.random.Generator) -> dict[str, Any]:
    """Fill what the epilogue reads with integers; the same by their names in expressions, as float64."""
    operands: dict[str, Any] = {}
    for name, value in extras.items():
        if isinstance(value, float):
            extras[name] = operands[name] = float(numbers.choice((-1, 0.5, 1, 2)))
        elif name != "aux":
            dtype = _dtype(kernel, "source" if name == "c" else name)
            value[...] = small_integers(numbers, value.shape, dtype)
            wide = decoded(value, dtype)
            spread = {"m": wide[..., :, None], "n": wide[..., None, :]}
            kind, _, mode = name.partition("_")
            if kind in ("bias", "scale"):
                operands |= {f"{kind}_{each}": spread[each] for each in mode or spread}
            else:
                operands[name] = wide
    return operands


def _written(out: Any, extras: dict[str, Any]) -> dict[str, Any]:
    return {"out": out} | {name: extras[name] for name in ("aux",) if name in extras}


def _copied(extras: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, float) else value.copy() for name, value in extras.items()}


def _dtype(kernel: Kernel, name: str) -> str:
    wanted = "c" if name == "out" else name
    return next((x.dtype for x in kernel.contract.tensors if x.name == wanted), kernel.contract.tensor("c").dtype)


def _sums(planned: GemmPlan) -> str:
    return planned.atom.c_dtype.name
