"""The shipped split-K kernel: right in every order, and in every order an error without barrier, order or scope."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import cutegen
from cutegen.build import Cache
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.ptx import ExecutionFault, LaunchError, LaunchReport, Program, ViolationKind
from cutegen.run import Kernel
from cutegen.verify.reference import Comparison, compare, float64_reference

POLICIES = ("in-order", "reversed", "random:1", "random:2")
M, N, K = 40, 72, 320
PROBLEM = ProblemShape(M, N, K)
COUNT = re.compile(r"atom\.global\.acq_rel\.inc\.u32")
BARRIER = re.compile(r"(?:bar|barrier)\.(?:cta\.)?sync[\w.]*\s+0;")


@pytest.fixture(scope="module")
def kernel(kernels: Cache) -> Kernel:
    return cutegen.compile(cutegen.load_spec("sm80_split_k_tn"), "sm_80", cache=kernels)


def run(contract: LaunchContract, text: str, policy: str, jobs: int = 1) -> tuple[Comparison, LaunchReport]:
    """(C as it compares, the report) of one launch on fresh operands, sums poisoned and counters zero."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, K), (N, K)))
    c, workspace = np.full((M, N), np.nan, np.float16), contract.workspace(PROBLEM)
    assert workspace is not None
    sums, counters = np.full(workspace.sums_bytes // 4, np.nan, np.float32), np.zeros(workspace.counters, np.uint32)
    values = {"a": a, "b": b, "c": c, "sums": sums, "counters": counters, "m": M, "n": N, "k": K}
    values |= {"lda": K, "ldb": K, "ldc": N, **{f"batch_stride_{name}": 0 for name in "abc"}}
    geometry = contract.geometry(PROBLEM)
    report = Program.parse(text).launch(
        contract.entry,
        grid=geometry.grid,
        block=geometry.block,
        args=[values[parameter.name] for parameter in contract.parameters],
        dynamic_smem_bytes=geometry.dynamic_smem_bytes,
        policy=policy,
        jobs=jobs,
    )
    return compare(c, float64_reference(a, b.T), dtype="f16"), report


@pytest.mark.dsl
@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_right_in_every_order(kernel: Kernel, policy: str) -> None:
    compared, report = run(kernel.contract, kernel.artifact.ptx, policy)
    assert compared.ok, compared
    assert (report.violations, report.conventions) == ((), ())


def _without_the_barrier(text: str) -> str:
    """The last barrier before the counter: it orders all threads' sums before the one that counts."""
    place = [match for match in BARRIER.finditer(text) if match.start() < COUNT.search(text).start()][-1]
    return text[: place.start()] + text[place.end() :]


MUTANTS: dict[str, Callable[[str], str]] = {
    "the barrier removed": _without_the_barrier,
    "acq_rel relaxed": lambda text: COUNT.sub(lambda match: match[0].replace("acq_rel", "relaxed"), text),
    "acquire only": lambda text: COUNT.sub(lambda match: match[0].replace("acq_rel", "acquire"), text),
    "release only": lambda text: COUNT.sub(lambda match: match[0].replace("acq_rel", "release"), text),
    "scope cta": lambda text: COUNT.sub(lambda match: match[0].replace("acq_rel", "acq_rel.cta"), text),
}


@pytest.mark.dsl
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_dead_in_every_order(kernel: Kernel, name: str, policy: str) -> None:
    text = MUTANTS[name](kernel.artifact.ptx)
    assert text != kernel.artifact.ptx
    with pytest.raises(ExecutionFault) as caught:
        run(kernel.contract, text, policy)
    assert caught.value.violation.kind is ViolationKind.RACE
    message = r"of global memory not ordered after the (write|read) by .* of CTA number \d+ \(line"
    assert re.search(message, str(caught.value))


@pytest.mark.dsl
def test_several_processes_are_refused(kernel: Kernel) -> None:
    with pytest.raises(LaunchError, match="CTAs communicate"):
        run(kernel.contract, kernel.artifact.ptx, "in-order", jobs=2)
