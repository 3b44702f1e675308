"""Random kernels with factors of blocks, against float64: recipes, tiles, schedules, groups, epilogues, results.

`python -m tests.run.scaled_cases --count 150` tries the full sample, and prints each case that is wrong. `make fuzz`
has more: its kind `scaled`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.launch import RESULT, RESULT_FACTORS
from cutegen.errors import CutegenError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import (
    Epilogue,
    Factors,
    GemmSpec,
    Grouped,
    Operand,
    Paired,
    Problem,
    Quantized,
    Schedule,
    Tile,
)
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import given_by
from tests.run import test_grouped_kernels
from tests.run.test_grouped_kernels import Extents, sizes_of

ARCH, BLOCK = "sm_90a", 128
SWIGLU = "x, y -> silu(x) * y"
SCHEDULES = (
    Schedule(),
    Schedule(),
    Schedule(consumers="pingpong"),
    Schedule(split_k=2),
    Schedule(cluster=(2, 1)),
    Schedule(cluster=(1, 2)),
    Schedule(swap=True),
)
EPILOGUES = (
    Epilogue(),
    Epilogue(),
    Epilogue(ops=("bias_n", "relu")),
    Epilogue(expression="x -> sigmoid(x) + bias_n"),
    Epilogue(expression=SWIGLU, pairs=Paired("halves", "gate")),
    Epilogue(expression=SWIGLU, pairs=Paired("halves", "up")),
)


def drawn(seed: int | random.Random) -> tuple[GemmSpec, random.Random]:
    """Return the spec of a seed that the rules accept, and the numbers that follow."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    # Drawn once, because the rules refuse more of what is quantized.
    quantize = Quantized("e4m3", rng.choice(("f32", "ue8m0"))) if rng.random() < 0.3 else None
    grouped = rng.random() < 0.3
    while True:
        spec = _spec(rng, quantize, grouped=grouped)
        try:
            plan(spec, ARCH)
        except SpecError:
            continue
        return spec, rng


def _spec(rng: random.Random, quantize: Quantized | None, *, grouped: bool) -> GemmSpec:
    """Draw a spec, of which the rules refuse some."""
    rows_a, rows_b = rng.choice((1, BLOCK)), rng.choice((1, BLOCK, BLOCK))
    epilogue = replace(rng.choice(EPILOGUES), quantize=quantize)
    n = rng.choice((32, 64, 96, 128, 192, 256))
    schedule = Schedule(swap=True) if quantize and rng.random() < 0.4 else rng.choice(SCHEDULES)
    c = "e4m3" if quantize else rng.choice(("bf16", "f16", "f32"))
    major = "k" if epilogue.pairs is not None else rng.choice((None, "n", "k"))
    align_a, align_b = (rng.choice((None, None, 4)) for _ in "ab")
    of_a = Factors((rows_a, BLOCK), major=rng.choice((None, "m", "k")), align=align_a)
    return GemmSpec(
        family="sm90",
        problem=Problem(
            a=Operand("e4m3", "k"),
            b=Operand("e4m3", "k"),
            c=Operand(c, "n"),
            scale_a=of_a if not grouped else Factors((1, BLOCK), align=align_a),
            scale_b=Factors((BLOCK if epilogue.pairs is not None else rows_b, BLOCK), major=major, align=align_b),
            groups=Grouped("m", rng.choice(("packed", "padded"))) if grouped else None,
        ),
        tile=Tile((rng.choice((64, 128, 128, 256)), n, rng.choice((BLOCK, BLOCK, BLOCK, 64)))),
        epilogue=epilogue,
        schedule=schedule if not grouped or schedule.swap else Schedule(),
        name="scaled_case",
    )


def failure(seed: int, kernels: Cache) -> str:
    """Return what is wrong with the kernel of a seed, "" if nothing is."""
    return failure_of(*drawn(seed), kernels)


def failure_of(spec: GemmSpec, rng: random.Random, kernels: Cache) -> str:
    """Return what is wrong with a spec's kernel in a launch that is drawn, "" if nothing is."""
    planned = plan(spec, ARCH)
    assert isinstance(planned, GemmPlan)
    try:
        artifact = build(request_of(planned), kernels)
        # A tile that is drawn may spill a few bytes; those that cutegen chooses do not.
        if warnings := [x for x in artifact.manifest.warnings if "registers spill" not in x]:
            return str(warnings)
        return (
            of_groups(planned, Kernel(artifact), rng)
            if spec.problem.groups
            else _of_one(planned, Kernel(artifact), rng)
        )
    except CutegenError as fault:
        return str(fault)


def _columns(planned: GemmPlan, rng: random.Random) -> int:
    if planned.epilogue.fusion.pairs is not None:
        return 2 * BLOCK * rng.randint(1, 2)
    return rng.randint(1, 300)


def _of_one(planned: GemmPlan, kernel: Kernel, rng: random.Random) -> str:
    """Execute a product, or a batch of two, of any extents."""
    m, n, k = rng.randint(1, 200), _columns(planned, rng), rng.randint(1, 600)
    options: dict[str, Any] = {"seed": rng.randrange(1 << 30), "batch": rng.choice((None, None, 2))}
    a, b, out = random_operands(kernel.contract, m, n, k, **options)
    extras = random_extras(kernel.contract, m, n, k=k, **options)
    report = kernel.execute(a, b, out=out, **extras)
    if report.violations:
        return str(report.violations[0])
    outcome = expected_outcome(kernel.contract, a, b, extras)
    written = {RESULT: (out, outcome.result), RESULT_FACTORS: (extras.get(RESULT_FACTORS), outcome.factors)}
    for name, (found, expected) in written.items():
        if expected is not None:
            compared = compare(found, expected, dtype=kernel.contract.tensor(name).dtype)
            if not compared.ok:
                return f"{name} of {m}x{n}x{k}: {compared.wrong} wrong, first {compared.first_wrong}"
    counts = count_launch(planned, kernel.call_size(a, b, out, **extras), report)
    return str(counts.differing() or "")


def of_groups(planned: GemmPlan, kernel: Kernel, rng: random.Random) -> str:
    """Execute a launch of groups of any sizes."""
    groups, seed = kernel.contract.groups, rng.randrange(1 << 30)
    assert groups is not None
    among = Extents(room=rng.randint(1, 200), n=_columns(planned, rng), k=rng.randint(1, 600), tile=(64, 128))
    given = given_by(groups, sizes_of(np.random.default_rng(seed), among.room, groups.layout, among.tile)[:40])
    return test_grouped_kernels.failure(planned, kernel, given, seed, fresh=bool(seed % 2), among=among)


def failures(seeds: Iterator[int] | range, kernels: Cache) -> Iterator[tuple[int, str]]:
    """Yield the seeds whose kernels are wrong, and how."""
    for seed in seeds:
        if wrong := failure(seed, kernels):
            yield seed, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if any case is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed, wrong in failures(range(options.seed, options.seed + options.count), Cache(Path(folder))):
            print(f"--seed {seed} --count 1: {drawn(seed)[0]}\n  {wrong}", flush=True)
            found += 1
    print(f"{options.count} cases, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
