"""Slices of K that a tile's CTAs add together, on the CPU executor.

By the policies that run one CTA after the other all but the last have gone when it comes, and it adds alone; by random
ones they take turns, and those that arrive when all have begun wait for the rest and share the tile out, as many as it
has parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from cutegen.plan import plan
from cutegen.ptx import ExecutionFault, LaunchReport, Program, ViolationKind
from cutegen.run import Kernel
from cutegen.run.cpu import host_workspace, tensor_maps
from cutegen.spec import GemmSpec, Operand
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.counts import count_launch
from tests.run.wgmma import spec

SLICES = 4
M, N, K = 70, 40, 600
ONE_BY_ONE, IN_TURNS = ("in-order", "reversed"), ("random:1", "random:2", "random:3")
SPECS = {
    "one warpgroup": spec("shared", cta=(64, 32, 64), split_k=SLICES),
    "two warpgroups": spec("shared_by_two", cta=(128, 32, 64), split_k=SLICES),
    "one part": spec("one_part", cta=(64, 8, 64), c=Operand("f32", "n"), split_k=SLICES),
    "from registers": spec("from_registers", cta=(64, 32, 64), c=Operand("f16", "n", 2), split_k=SLICES),
}
FAST = {"two warpgroups"}
POLL = "ld.acquire.gpu"
COUNT = re.compile(r"atom\.global\.acq_rel\.add\.u32")
BARRIER = re.compile(r"bar\.sync\s+0, \d+;")

Compile = Callable[[GemmSpec], Kernel]


def launch(kernel: Kernel, policy: str, text: str | None = None, launches: int = 1) -> tuple[np.ndarray, LaunchReport]:
    """(C, the report of the last of `launches` on one workspace); its counters are left as they were found."""
    contract = kernel.contract
    a, b, out = random_operands(contract, M, N, K, seed=7)
    size = kernel.call_size(a, b, out)
    sums, counters = host_workspace(contract.workspace(size.problem))
    geometry = contract.geometry(size.problem, multiprocessors=8)
    arrays = {"a": a, "b": b.T, "c": out}
    program = Program.parse(text or kernel.artifact.ptx)
    for _ in range(launches):
        out[...] = np.nan
        report = program.launch(
            contract.entry,
            grid=geometry.grid,
            block=geometry.block,
            args=contract.arguments((*arrays.values(), sums, counters), (), size, tensor_maps(contract, arrays, size)),
            dynamic_smem_bytes=geometry.dynamic_smem_bytes,
            policy=policy,
        )
        assert not counters.any()
    assert compare(out, float64_reference(a, b), dtype=contract.tensor("c").dtype).ok
    return out, report


def polls(report: LaunchReport) -> int:
    return sum(site.executed for site in report.matching(POLL))


@pytest.mark.dsl
@pytest.mark.parametrize("name", [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in SPECS])
def test_whoever_adds_the_bits_are_the_same(name: str, compiled: Compile) -> None:
    results = set()
    for policy in (*ONE_BY_ONE, *IN_TURNS):
        out, report = launch(compiled(SPECS[name]), policy, launches=2)
        assert (report.violations, report.conventions) == ((), ())
        waits = policy in IN_TURNS and name != "one part"
        assert (polls(report) > 0) == waits, "CTAs wait for others that run, where there is something for them to add"
        results.add(out.tobytes())
    assert len(results) == 1


@pytest.mark.dsl
@pytest.mark.parametrize("policy", [*ONE_BY_ONE, *IN_TURNS])
def test_what_is_executed_is_what_was_planned(policy: str, compiled: Compile) -> None:
    """Every slice's sums are read once, by one CTA or by several."""
    kernel = compiled(SPECS["two warpgroups"])
    a, b, out = random_operands(kernel.contract, 256, 64, 512, seed=3)
    report = kernel.execute(a, b, out=out, policy=policy)
    counts = count_launch(plan(SPECS["two warpgroups"], "sm_90"), kernel.call_size(a, b, out), report)
    assert counts.differing() == {}
    assert {"split_k.write", "split_k.read"} <= counts.sectors.keys()
    assert all(counts.sectors[key].predicted for key in ("split_k.write", "split_k.read"))


def _without_the_barrier(text: str) -> str:
    """The last barrier before the count: it orders all threads' sums before the one that counts."""
    counted = COUNT.search(text)
    assert counted is not None
    place = [match for match in BARRIER.finditer(text) if match.start() < counted.start()][-1]
    return text[: place.start()] + text[place.end() :]


MUTANTS: dict[str, Callable[[str], str]] = {
    "the barrier removed": _without_the_barrier,
    "acq_rel relaxed": lambda text: COUNT.sub("atom.global.relaxed.add.u32", text),
    "acquire only": lambda text: COUNT.sub("atom.global.acquire.add.u32", text),
    "the count of one CTA's scope": lambda text: COUNT.sub("atom.global.acq_rel.cta.add.u32", text),
    "waits without acquiring": lambda text: text.replace(POLL, "ld.relaxed.gpu"),
}


@pytest.mark.dsl
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_dead(name: str, compiled: Compile) -> None:
    kernel = compiled(SPECS["two warpgroups"])
    text = MUTANTS[name](kernel.artifact.ptx)
    assert text != kernel.artifact.ptx
    with pytest.raises(ExecutionFault) as caught:
        launch(kernel, "random:1", text)
    assert caught.value.violation.kind is ViolationKind.RACE
    assert re.search(r"of global memory not ordered after the write by .* of CTA number", str(caught.value))
