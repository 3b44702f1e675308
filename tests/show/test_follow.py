"""Where an element is, held against the executor: the same sector, offset, bank, lane and register in the real PTX."""

from __future__ import annotations

import random
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

import cutegen
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath
from cutegen.ptx import Program
from cutegen.run import Kernel
from cutegen.run.call.bits import bf16_bits
from cutegen.show.follow import Element, Follower, OperandElementPath, ResultElementPath
from cutegen.show.follow.locations import BoxStep, VectorStep
from cutegen.show.parts import element
from cutegen.spec import load_spec
from cutegen.verify import random_operands
from tests.plan.kernels import random_call
from tests.plan.specs import SHIPPED_GEMMS
from tests.show.watched import Seen, Watch, watch

pytestmark = pytest.mark.dsl

MARKED_A, MARKED_B = (9, 11, 13), (3, 5, 7)
"""Numbers that every element type has, as have the products of those beside each other."""
E4M3 = {9: 0x51, 11: 0x53, 13: 0x55, 3: 0x44, 5: 0x4A, 7: 0x4E, 20: 0x5A}
PARTNER = 20
"""The number of the columns of B whose pairs have the marked ones as their other member."""
FACTORS_MARKED = {"scale_a": 2.0, "scale_b": 4.0}
"""One factor of each operand; all others are 1."""


def bits(value: float, dtype: str, like: np.dtype) -> np.ndarray:
    """`value` as an array of `like` holds it: bf16 and 8-bit floats as the integers of their bits."""
    if dtype == "bf16":
        return bf16_bits(np.array([value], np.float32)).astype(like)
    if dtype == "e4m3":
        return np.array([E4M3.get(int(value), 0)], like)  # 0: no result in 8 bits is looked at
    return np.array([value], like)


ONES = {"ue8m0x4": 0x7F7F7F7F, "ue4m3x4": 0x38383838}
"""Words of four factors of 1."""


class Marked:
    """Zeros but for three elements of A and of B, each with a number of its own, whose products stand alone in C.

    With groups there is one, which has all rows. With pairs an element of C is silu(gate) * up of its two sums.
    """

    def __init__(self, kernel: Kernel, plan: GemmPlan, problem: ProblemShape, rng: np.random.Generator) -> None:
        self.plan, self.problem = plan, problem
        m, n, k, contract = problem.m, problem.n, problem.k, kernel.contract
        sizes = () if contract.groups is None else (problem.extents[contract.groups.of],)
        self.a, self.b, self.out, self.extras = random_call(contract, problem, sizes, seed=0)
        self.a[...], self.b[...] = 0, 0
        of_group = self.b[0] if self.b.ndim == 3 else self.b
        pairs = plan.epilogue.fusion.pairs
        rows, columns = rng.permutation(m)[:3].tolist(), rng.permutation(n // plan.epilogue.fusion.members)[:3].tolist()
        if sizes:
            rows[0] = m - 1  # of the tile that ends where another group would begin
        self.places = list(zip(rng.permutation(k)[:3].tolist(), rows, columns, strict=True))
        types = {x.name: x.dtype for x in contract.tensors}
        self.watches: dict[Element, Watch] = {}
        self._mark_factors()
        for (k_, m_, column), a, b in zip(self.places, MARKED_A, MARKED_B, strict=True):
            n_, c = column, a * b * self._scale((k_, m_, column))
            if pairs is not None:
                marked, other = rng.permutation(pairs.members).tolist()
                n_, partner = (pairs.column(column, member, n) for member in (marked, other))
                of_group[k_, partner] = bits(PARTNER, types["b"], self.b.dtype)[0]
                sums = {marked: a * b, other: a * PARTNER}
                c = sums["gate"] / (1 + np.exp(-sums["gate"])) * sums["up"]
            self.a[m_, k_] = bits(a, types["a"], self.a.dtype)[0]
            of_group[k_, n_] = bits(b, types["b"], self.b.dtype)[0]
            self.watches[Element("a", (m_, k_))] = Watch(bits(a, types["a"], self.a.dtype), self.a)
            self.watches[Element("b", (n_, k_))] = Watch(bits(b, types["b"], self.b.dtype), self.b)
            self.watches[Element("c", (m_, column))] = Watch(bits(c, types["c"], self.out.dtype), self.out)

    def _mark_factors(self) -> None:
        """Mark the factors of the first place; all others are 1. Those in words are in `test_factor_words.py`."""
        for x in self.plan.operands:
            if x.is_multiplied:
                continue
            at, factors = self._block(x, self.places[0]), self.extras[x.name]
            if x.block_elems > 1:
                factors[...] = ONES[x.dtype.name]
                continue
            factors[...] = 1
            factors[at if x.name == "scale_a" else at[::-1]] = FACTORS_MARKED[x.name]
            self.watches[Element(x.name, at)] = Watch(np.array([FACTORS_MARKED[x.name]], np.float32), factors)

    def _block(self, x: OperandPath, place: tuple[int, int, int]) -> tuple[int, int]:
        """The block of a factor that a place is in."""
        k, m, n = place
        return (m if x.name == "scale_a" else n) // x.block[0], k // x.block[1]

    def _scale(self, place: tuple[int, int, int]) -> float:
        """What scales the product of a place: of the marked factors, those of its blocks."""
        factors = [x for x in self.plan.operands if not x.is_multiplied and x.block_elems == 1]
        marked = (x for x in factors if self._block(x, place) == self._block(x, self.places[0]))
        return prod(FACTORS_MARKED[x.name] for x in marked)


@pytest.fixture
def kernel_of(kernels: Cache) -> Any:
    @cache
    def make(name: str) -> tuple[Kernel, GemmPlan, int]:
        spec = load_spec(name)
        request = build_request(spec, spec.needs)
        artifact = build(request, kernels)
        program = Program.parse(artifact.ptx)
        kernel, plan = Kernel.open(artifact.path), cutegen.plan(spec, spec.needs)
        assert isinstance(plan, GemmPlan)
        return kernel, plan, program.prepare(kernel.contract.entry).layout.dynamic_shared_offset

    return make


def marked_run(
    made: tuple[Kernel, GemmPlan, int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> tuple[GemmPlan, ProblemShape, dict[Element, Seen]]:
    """Two tiles of M and one of N, and k-tiles for every stage and one more, or two for each slice of K.

    The last tile of a group has a row less.
    """
    kernel, plan, base = made
    m, n, k = plan.cta_tile
    k_tiles = plan.stages + 1 if plan.split_k is None else 2 * plan.split_k.slices
    short = plan.scheduler.groups is not None
    problem = ProblemShape(2 * m * plan.mma.cluster[0] - short, n * plan.mma.cluster[1], k_tiles * k)
    marked = Marked(kernel, plan, problem, np.random.default_rng(seed))
    arrays = [x for x in marked.extras.values() if isinstance(x, np.ndarray)]
    for each in marked.watches.values():
        each.base, each.others = base, (marked.a, marked.b, marked.out, *arrays)
    watch(monkeypatch, lambda: list(marked.watches.values()))
    kernel(marked.a, marked.b, out=marked.out, **marked.extras)
    return plan, problem, {which: each.seen for which, each in marked.watches.items()}


def assert_factor(way: OperandElementPath, seen: Seen) -> None:
    """A box of factors begins at any of them: one along K may also be in the boxes of the k-tiles before its own."""
    address = way.shared.address_bytes
    assert address in seen.landed
    readers = {(warp * 32 + lane) for warp, lane, _, at in seen.loaded if at == address}
    assert readers == {each.thread for each in way.meets}


def assert_operand(plan: GemmPlan, way: OperandElementPath, seen: Seen) -> None:
    address = way.shared.address_bytes
    of_cta = {(thread % plan.threads, at) for thread, at in seen.copied}
    if isinstance(way.copy, BoxStep):
        assert set(seen.landed) == {address}
    elif plan.asynchronous and not plan.operand(way.read_as).g2s.through_registers:
        assert of_cta == {(way.copy.thread, address)}
        assert set(seen.got) == {(way.copy.thread, way.source.byte)}
    else:
        assert set(seen.got) == {(way.copy.thread, way.source.byte)}
        assert set(seen.written) == {(way.copy.thread, address)}
    # A mark of 8 bits may be a byte of some sum as well: then what the way says is among what was seen.
    exact = plan.atom.a_dtype.bits > 8
    if exact:
        assert {at // 4 % 32 for _, _, _, at in seen.loaded} <= {way.shared.bank}
    if way.loads and way.loads[0].matrix is not None:
        loads = {(x.warp, x.addressing_lane, x.row_address_bytes, address) for x in way.loads}
        assert set(seen.loaded) == loads if exact else set(seen.loaded) >= loads
        received = {(x.warp, x.lane, x.register, x.bits_from) for x in way.loads}
        assert set(seen.received) == received if exact else set(seen.received) >= received
    else:
        # The compiler may join plain loads: the lane and the element's own address are what they are.
        assert {(warp, lane, at) for warp, lane, _, at in seen.loaded} == {
            (x.warp, x.addressing_lane, address) for x in way.loads
        }
    assert set(seen.multiplied) == {(x.start_bytes, x.row) for x in way.reads}


def assert_result(plan: GemmPlan, way: ResultElementPath, seen: Seen) -> None:
    written = {(thread % plan.threads, at) for thread, at in seen.written}
    put = {(thread % plan.threads, at) for thread, at in seen.put}
    if way.staged is not None:
        address = way.staged.place.address_bytes
        thread = way.held.thread
        if way.staged.addressing_lane is not None:
            thread = way.held.warp * 32 + way.staged.addressing_lane
        assert written == {(thread, address)}
    if isinstance(way.store, VectorStep):
        assert put == {(way.store.thread, way.target.byte)}
    elif way.store is None:
        assert (way.held.thread, way.target.byte) in put


def is_known(name: str) -> bool:
    """Return whether the elements of C are known: sums, or what becomes of pairs of them."""
    epilogue = load_spec(name).epilogue
    return epilogue.quantize is None and (not epilogue.steps or epilogue.pairs is not None)


FOLLOWED = [name for name in SHIPPED_GEMMS if load_spec(name).epilogue.quantize is None]
"""All but those whose C has no numbers of its own: each row's largest element becomes the same number."""
FAST = ("sm80_hgemm_tn", "sm120_hgemm_tn", "sm90_hgemm_tn", "simt_sgemm_nt", "sm80_bf16_nn")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FOLLOWED]
)
def test_marked_elements_are_where_the_way_says(name: str, kernel_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.getrandbits(30)
    plan, problem, found = marked_run(kernel_of(name), monkeypatch, int(seed))
    follower = Follower(plan, problem)
    for marked, seen in found.items():
        way = follower.path_of(marked)
        if isinstance(way, OperandElementPath):
            if way.scales is None:
                assert_operand(plan, way, seen)
            else:
                assert_factor(way, seen)
        elif is_known(name):
            assert isinstance(way, ResultElementPath)
            assert_result(plan, way, seen)


def test_one_element_is_in_one_place_in_text_json_and_execution(
    kernel_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a(12, 40) of sm80_hgemm_tn: sector, offset, bank, lane and register, as people read them and as PTX has them."""
    kernel, plan, base = kernel_of("sm80_hgemm_tn")
    problem = ProblemShape(128, 128, 64)
    a, b, out = random_operands(kernel.contract, 128, 128, 64, seed=0)
    a[...], b[...] = 0, 2
    a[12, 40] = 203.25
    mark = Watch(a[12:13, 40], a, base)
    watch(monkeypatch, lambda: [mark])
    kernel(a, b, out=out)
    seen = mark.seen
    view = element.view(plan, Element("a", (12, 40)), problem)
    table, text = view.table, "\n".join(view.lines)

    ((thread, byte),) = set(seen.got)
    assert (thread, byte // 32) == (table["copy"]["thread"], table["global"]["sector"])
    assert f"thread {thread} (warp {thread // 32}, lane {thread % 32})" in text
    assert f"sector {byte // 32:,} of 32 bytes" in text
    ((_, offset),) = set(seen.copied)
    assert (offset, offset // 4 % 32) == (table["shared"]["address_bytes"], table["shared"]["bank"])
    assert f"byte {offset:,} of the CTA's: bank {offset // 4 % 32}" in text
    for warp, lane, register, bit in set(seen.received):
        load = next(x for x in table["loads"] if x["warp"] == warp)
        assert (load["lane"], load["register"], load["bits_from"]) == (lane, register, bit)
        addressing = {giver for of, giver, _, _ in seen.loaded if of == warp}
        assert addressing == {load["addressing_lane"]}
        row = next(line.split() for line in text.splitlines() if line.split()[:1] == [f"{warp}"])
        assert row[7:12] == [
            f"{load['addressing_lane']}",
            f"{offset:,}",
            f"{32 * warp + lane}",
            f"{lane}",
            f"{register}",
        ]
    assert len({warp for warp, *_ in seen.received}) == len(table["loads"])
    # B is full of twos: the element's row of C, and nothing else, is not zero.
    assert set(seen.summed) == {x["thread"] for x in table["meets"]}
