"""A case of family sm90, tried: planned, built, run on the CPU or a GPU, held against float64 and the plan's counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutegen.build import BuildRequest, Cache, build
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import plan_json
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.verify import random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.run.against_float64 import expected, hold
from tests.run.wgmma_settings import Case

ARCH = "sm_90"
SLOWER = "the assembler reports on wgmma: Potential Performance Loss"
"""Right all the same: settings that nobody would put together may be slow."""
Operands = tuple[Any, Any, Any, dict[str, Any]]


def try_case(case: Case, kernels: Cache, device: str = "cpu") -> None:
    """Raise AssertionError with what is wrong with the case, and CutegenError where it cannot be made or run."""
    planned = plan(case.spec, ARCH)
    assert isinstance(planned, GemmPlan)
    kernel = Kernel(build(_request(planned), kernels))
    warnings = kernel.artifact.manifest.warnings
    assert [said for said in warnings if not said.startswith(SLOWER)] == []
    operands = _operands(kernel, case, device)
    run: Callable[..., None] = _execute if device == "cpu" else _call
    run(planned, kernel, case, operands)
    a, b, out, extras = operands
    hold(kernel, out, extras, expected(kernel, a, b, extras))


def _request(planned: GemmPlan) -> BuildRequest:
    """What `cutegen.api.build_request` makes of the spec, which is then planned once."""
    return BuildRequest(
        source=render(planned),
        target=planned.target,
        plan_json=plan_json(planned),
        instructions=planned.predictions.instructions,
        tile_is_chosen=planned.tile_is_chosen,
    )


def _operands(kernel: Kernel, case: Case, device: str) -> Operands:
    """A, B, a poisoned result and what the epilogue takes."""
    options: dict[str, Any] = {"seed": case.m * case.n + case.k, "batch": case.batch}
    if device != "cpu":
        options |= {"framework": "torch", "device": device}
    a, b, out = random_operands(kernel.contract, case.m, case.n, case.k, **options)
    return a, b[0] if case.same_b else b, out, random_extras(kernel.contract, case.m, case.n, **options)


def _execute(planned: GemmPlan, kernel: Kernel, case: Case, operands: Operands) -> None:
    a, b, out, extras = operands
    report = kernel.execute(a, b, out=out, **extras, policy=case.policy)
    assert report.violations == ()
    differing = count_launch(planned, kernel.call_size(a, b, out, **extras), report).differing()
    assert differing == {}, differing


def _call(planned: GemmPlan, kernel: Kernel, case: Case, operands: Operands) -> None:
    a, b, out, extras = operands
    kernel(a, b, out=out, **extras)
