"""Kernels of groups and of pairs of columns, built and executed against float64, with any bits in ends and sizes.

Their epilogues, schedules, types and majors are drawn. NaN is where no group is, and every bit of C there stays. What
the executor counts is held against the plan's predictions for these sizes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from cutegen.errors import CutegenError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import parse_spec
from cutegen.support.toml_text import toml_value
from cutegen.verify import random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.fuzz.built import own_cache
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.plausible import chance
from tests.fuzz.specs import split_case
from tests.run.against_float64 import expected, hold
from tests.run.test_grouped_kernels import Extents, failure, sizes_of

TRIES = 200
FLOATS_OF = {"sm90": ("f16", "bf16", "bf16", "e4m3", "e5m2"), "sm80": ("f16", "bf16", "e4m3")}
TILES = {
    "sm90": ((64, 64), (64, 128), (128, 64), (128, 16), (128, 32), (64, 8), (256, 32), (192, 64)),
    "sm80": ((32, 32), (32, 64), (64, 64)),
}
OPS = ((), ("bias_n",), ("scale_n",), ("scale_m", "scale_n"), ("alpha",))
OPS_OF_C = (("beta",), ("residual",), ("bias_n", "relu"), ("bias_m", "gelu_tanh"), ("aux",))
EXPRESSIONS = ("x, y -> silu(x) * y", "x, y -> gelu_tanh(x) * y", "x, y -> (max(min(y, 7), -7) + 1) * x * sigmoid(x)")
ANY_BITS = (-(2**31), -1, 0, 1, 31, 200, 201, 2**31 - 1)
PACKED = Extents(room=200, m=72, n=160, k=104, tile=(64, 128))
PARTS_OF_K = Extents(room=200, m=72, n=64, k=200, tile=(64,))
PADDED = Extents(room=70, m=40, n=64, k=72, tile=(64,))


def case(seed: int) -> Case:
    """Its first line, a comment, is the target; the rest is a spec that is planned for it."""
    rng = random_of("products", seed)
    for _ in range(TRIES):
        table = _table(rng)
        arch = "sm_90" if table["family"] == "sm90" else "sm_89"
        text = f"# {arch}\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
        if _planned(text) is not None:
            return Case(seed, text)
    raise AssertionError(f"none of {TRIES} specs is accepted")


def _table(rng: random.Random) -> dict[str, Any]:
    """The keys of a spec with groups, pairs of columns, or both, whether or not a kernel has them."""
    family = rng.choice(("sm90", "sm90", "sm90", "sm80"))
    element = rng.choice(FLOATS_OF[family])
    narrow = element in ("e4m3", "e5m2")
    of = rng.choice(("m", "m", "m", "n", "k", ""))
    in_pairs = not of or (of == "m" and chance(rng, 0.5))
    (m, n), (a, b, c) = rng.choice(TILES[family]), (rng.choice("kkm"), rng.choice("kkn"), rng.choice("nnm"))
    operand = {"dtype": element}
    result = {"dtype": rng.choice(("f32", "f16", "bf16")), "major": c} | ({"align": 4} if chance(rng, 0.15) else {})
    found: dict[str, Any] = {
        "family": family,
        "problem.a": operand | {"major": "k" if narrow else a},
        "problem.b": operand | {"major": "k" if narrow else b},
        "problem.c": result,
        "tile.cta": [m, n, (128 if narrow else 64) if family == "sm90" else (64 if narrow else 32)],
        "epilogue.ops": list(rng.choice(OPS if in_pairs else (*OPS, *OPS_OF_C))),
    }
    if of:
        layout = "packed" if of == "k" or chance(rng, 0.6) else "padded"
        found["problem.groups"] = {"of": of, "layout": layout}
    if in_pairs:
        layout = rng.choice(("halves", "interleaved", 8, 16))
        found["epilogue.pairs"] = {"layout": layout, "first": rng.choice(("gate", "up"))}
        found["epilogue.expression"] = rng.choice(EXPRESSIONS)
    if not found["epilogue.ops"]:
        del found["epilogue.ops"]
    return found | (_schedule(rng) if family == "sm90" else {})


def _schedule(rng: random.Random) -> dict[str, Any]:
    """What a kernel of warpgroups may be asked for besides."""
    asked: dict[str, Any] = {}
    if chance(rng, 0.4):
        asked["schedule.swap"] = True
    if chance(rng, 0.25):
        asked["schedule.consumers"] = "pingpong"
    if chance(rng, 0.25):
        asked["schedule.cluster"] = rng.choice(([1, 2], [2, 1]))
    if chance(rng, 0.3):
        asked["schedule.programmatic"] = rng.choice((True, "weights"))
    return asked


def _planned(text: str) -> GemmPlan | None:
    arch, _, content = split_case(text)
    try:
        found = plan(parse_spec(content, name="case"), arch)
    except CutegenError:
        return None
    return found if isinstance(found, GemmPlan) else None


def check(case: Case) -> Outcome:
    """Build it, and execute two launches: one with the sizes that groups have, one with any."""
    planned = _planned(case.text)
    if planned is None:
        return Outcome(REFUSED, "not planned")
    arch, _, content = split_case(case.text)
    from cutegen.api import compile as compile_spec

    kernel = compile_spec(parse_spec(content, name="case"), arch, cache=own_cache())
    assert isinstance(kernel, Kernel)
    tried = _one_product if kernel.contract.groups is None else _groups
    wrong = tried(planned, kernel, case.seed)
    return Outcome(FOUND, wrong) if wrong else Outcome(ACCEPTED)


def _groups(planned: GemmPlan, kernel: Kernel, seed: int) -> str:
    groups, rng = kernel.contract.groups, np.random.default_rng(seed)
    assert groups is not None
    among = PADDED if groups.layout == "padded" else PARTS_OF_K if groups.of == "k" else PACKED
    sizes = sizes_of(rng, among.room, groups.layout, among.tile)
    given = np.array(sizes if groups.layout == "padded" else np.cumsum(sizes), np.int32)
    for ends in (given, rng.choice(np.array(ANY_BITS, np.int32), min(len(given), 40))):
        if wrong := failure(planned, kernel, ends, seed, fresh=False, among=among):
            return f"ends or sizes {ends.tolist()}: {wrong}"
    return ""


def _one_product(planned: GemmPlan, kernel: Kernel, seed: int) -> str:
    rng = np.random.default_rng(seed)
    for tiles in (0, 1):
        m, k, n = int(rng.integers(1, 80)) + 64 * tiles, int(rng.integers(1, 14)) * 16, 32 * int(rng.integers(1, 6))
        a, b, out = random_operands(kernel.contract, m, n, k, seed=seed)
        extras = random_extras(kernel.contract, m, n, seed=seed)
        outcome = expected(kernel, a, b, extras)
        report = kernel.execute(a, b, out=out, **extras)
        hold(kernel, out, extras, outcome)
        counts = count_launch(planned, kernel.call_size(a, b, out, **extras), report)
        if differing := counts.differing():
            return f"M, N, K = {m}, {n}, {k}: counts: {differing}"
        if report.violations:
            return f"M, N, K = {m}, {n}, {k}: violation: {report.violations[0]}"
    return ""
