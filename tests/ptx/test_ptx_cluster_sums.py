"""A kernel whose clusters add slices of K: right in every order, and an error without any one of its barriers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.ptx import ExecutionFault, ViolationKind
from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome, random_operands
from tests.run.wgmma import CASES

pytestmark = pytest.mark.dsl
POLICIES = ("in-order", "reversed", "random:1", "random:2")
SYNC = re.compile(r"barrier\.cluster\.arrive;\s*barrier\.cluster\.wait;")
FENCE = "fence.proxy.async.shared::cta;"
LAST_WAIT = "barrier.cluster.wait;"
LEFT, ADDED = re.compile(r"st\.shared\.v4\.b32"), re.compile(r"ld\.shared::cluster\.v4\.b32")


@pytest.fixture(scope="module")
def kernel(kernels: Cache) -> Kernel:
    return api.compile(CASES["slices_of_a_cluster"], "sm_90", cache=kernels)


def run(kernel: Kernel, text: str, policy: str, m: int = 40) -> None:
    """Executes the kernel with another text: a column of tiles of 64 rows, and a k-tile for each of four slices."""
    content = kernel.artifact.content
    changed = replace(kernel.artifact, content=replace(content, files={**content.files, "kernel.ptx": text.encode()}))
    a, b, out = random_operands(kernel.contract, m, 56, 256, seed=9)
    Kernel(changed).execute(a, b, out=out, policy=policy)
    expected = expected_outcome(kernel.contract, a, b, {}, accumulator="f32")
    found = compare(out, expected.result, dtype="f16")
    assert found.ok, found


@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_right_in_every_order(kernel: Kernel, policy: str) -> None:
    run(kernel, kernel.artifact.ptx, policy)


def _between(text: str, change: Callable[[str], str]) -> str:
    """Changes what stands between the sums' stores and their loads from other CTAs."""
    begin = list(LEFT.finditer(text, 0, ADDED.search(text).start()))[-1].end()  # type: ignore[union-attr]
    end = ADDED.search(text, begin)
    assert end is not None
    return text[:begin] + change(text[begin : end.start()]) + text[end.start() :]


def _without_the_last_waits(text: str) -> str:
    """Neither the warps that multiply nor the one that copies stay until all have read."""
    at = text.index(LAST_WAIT, list(ADDED.finditer(text))[-1].end())
    text = text[:at] + text[at + len(LAST_WAIT) :]
    _, second = list(SYNC.finditer(text))[:2]
    return text[: second.start()] + "barrier.cluster.arrive;" + text[second.end() :]


def _filled_before_it_is_read(text: str) -> str:
    """The warp that copies goes on to the next tile at once."""
    first, second = list(SYNC.finditer(text))[:2]
    return text[: first.start()] + text[second.end() :]


def _arrives_before_it_reads(text: str) -> str:
    begin, last = ADDED.search(text), list(ADDED.finditer(text))[-1].end()
    assert begin is not None
    arrival = text.index("barrier.cluster.arrive;", last)
    without = text[:arrival] + text[arrival + len("barrier.cluster.arrive;") :]
    return without[: begin.start()] + "barrier.cluster.arrive; " + without[begin.start() :]


MUTANTS: dict[str, Callable[[str], str]] = {
    "slots are added before they are there": lambda text: _between(text, lambda part: SYNC.sub("", part)),
    "a relaxed arrival hands over nothing": lambda text: _between(
        text, lambda part: part.replace("cluster.arrive;", "cluster.arrive.relaxed;")
    ),
    "the CTA's barrier in place of the cluster's": lambda text: _between(
        text, lambda part: SYNC.sub("bar.sync 9, 128;", part)
    ),
    "a CTA ends while others read": _without_the_last_waits,
    "an arrival before the last read": _arrives_before_it_reads,
}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_mutant_is_dead_in_every_order(kernel: Kernel, name: str, policy: str) -> None:
    text = MUTANTS[name](kernel.artifact.ptx)
    assert text != kernel.artifact.ptx
    with pytest.raises(ExecutionFault) as caught:
        run(kernel, text, policy)
    kinds = (ViolationKind.RACE, ViolationKind.BARRIER, ViolationKind.UNINITIALIZED)
    assert caught.value.violation.kind in kinds, str(caught.value)


def _without_the_proxy_fence(text: str) -> str:
    """The next tile's copies write by another proxy where threads wrote sums."""
    at = text.index(FENCE, list(ADDED.finditer(text))[-1].end())
    return text[:at] + text[at + len(FENCE) :]


@pytest.mark.parametrize("spoil", [_filled_before_it_is_read, _without_the_proxy_fence])
def test_the_next_tiles_copies_wait_until_the_sums_are_read(kernel: Kernel, spoil: Callable[[str], str]) -> None:
    """Three tiles for two clusters, so that one of them has two."""
    run(kernel, kernel.artifact.ptx, "in-order", m=192)
    with pytest.raises(ExecutionFault):
        run(kernel, spoil(kernel.artifact.ptx), "in-order", m=192)
