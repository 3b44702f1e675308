"""The proof of what some kernels have: factors, tensor memory, groups, slices of K, fused and quantized results.

Each way to spoil one is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cutegen.algebra import Layout
from cutegen.contract.launch import SplitContract
from cutegen.errors import ProofError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.plan.values.fragments import ByDescriptor, CopiedToTmem
from cutegen.spec import Epilogue, GemmSpec, Schedule, load_spec
from tests.plan.changed import with_path
from tests.plan.specs import gemm
from tests.run.wgmma import spec


@cache
def planned(of: str | GemmSpec, arch: str) -> GemmPlan:
    found = plan(load_spec(of) if isinstance(of, str) else of, arch)
    assert isinstance(found, GemmPlan)
    return found


def fused() -> GemmPlan:
    return planned("sm80_hgemm_bias_gelu", "sm_80")


def grouped() -> GemmPlan:
    return planned("sm90_bf16_grouped", "sm_90")


def warpgroups() -> GemmPlan:
    return planned("sm90_hgemm_tn", "sm_90")


def quantized() -> GemmPlan:
    return planned("sm90_e4m3_swiglu_quantized", "sm_90")


def tensor_memory() -> GemmPlan:
    return planned("sm100_hgemm_tn", "sm_100")


def of_atoms() -> GemmPlan:
    """Factors that `tcgen05.cp` copies to tensor memory."""
    return planned("sm100_mxf8_tn", "sm_100")


def of_blocks() -> GemmPlan:
    """Factors by which threads scale the sums of each block of K."""
    return planned("sm100_e4m3_block_scaled", "sm_100")


def shared_slices() -> GemmPlan:
    """Slices of K that all CTAs of a tile add, each its share of the parts of C."""
    found = planned(spec("shared", cta=(128, 128, 64), stages=4, split_k=4), "sm_90")
    assert found.split_k is not None
    assert found.split_k.shared
    return found


def warps() -> GemmPlan:
    return planned("sm80_hgemm_tn", "sm_80")


def atomics() -> GemmPlan:
    schedule = Schedule(split_k=4, reduction="atomics")
    return planned(gemm(c_dtype="f32", epilogue=Epilogue(smem=False), schedule=schedule), "sm_80")


def launch(**fields: Callable[[GemmPlan], Any]) -> Callable[[GemmPlan], GemmPlan]:
    """The plan with other fields of its launch, made from the plan."""
    return lambda found: replace(
        found, launch=replace(found.launch, **{name: made(found) for name, made in fields.items()})
    )


def quantization(**fields: Any) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        fusion = found.epilogue.fusion
        assert fusion.quantization is not None
        other = replace(fusion, quantization=replace(fusion.quantization, **fields))
        return replace(found, epilogue=replace(found.epilogue, fusion=other))

    return spoil


def other_block(found: GemmPlan) -> GemmPlan:
    """A factor of C for half of the columns whose largest magnitude it is made from."""
    assert found.epilogue.fusion.quantization is not None
    factors = found.epilogue.fusion.quantization.factors
    assert factors.block is not None
    rows, columns = factors.block
    return quantization(factors=replace(factors, block=(rows, columns // 2)))(found)


def parts(**fields: Any) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        assert found.epilogue.parts is not None
        return replace(found, epilogue=replace(found.epilogue, parts=replace(found.epilogue.parts, **fields)))

    return spoil


def transposed(found: GemmPlan) -> GemmPlan:
    assert found.epilogue.parts is not None
    assert found.epilogue.parts.stmatrix is not None
    return parts(stmatrix=replace(found.epilogue.parts.stmatrix, transpose=True))(found)


def atoms(**fields: Callable[[CopiedToTmem], Any]) -> Callable[[GemmPlan], GemmPlan]:
    """The plan whose copy of A's factors to tensor memory has other fields, made from the copy."""

    def spoil(found: GemmPlan) -> GemmPlan:
        copy = next(each for each in found.operands if each.name == "scale_a").s2r
        assert isinstance(copy, CopiedToTmem)
        changed = replace(copy, **{name: made(copy) for name, made in fields.items()})
        return with_path(found, "scale_a", s2r=changed)

    return spoil


def described_elsewhere(found: GemmPlan) -> GemmPlan:
    assert isinstance(found.a.s2r, ByDescriptor)
    return with_path(found, "a", s2r=replace(found.a.s2r, first=found.a.s2r.first.advanced(1)))


def bias_at_any_byte(found: GemmPlan) -> GemmPlan:
    fusion = found.epilogue.fusion
    tensors = tuple(replace(each, align_bytes=1) if each.name == "bias" else each for each in fusion.tensors)
    passed = (replace(each, align_bytes=1) if each.name == "bias" else each for each in found.launch.tensors)
    other = replace(found, epilogue=replace(found.epilogue, fusion=replace(fusion, tensors=tensors)))
    return replace(other, launch=replace(found.launch, tensors=tuple(passed)))


def edge_of_groups(found: GemmPlan) -> GemmPlan:
    return replace(found, epilogue=replace(found.epilogue, edge=grouped().epilogue.edge))


SPOILED: dict[str, tuple[Callable[[], GemmPlan], Callable[[GemmPlan], GemmPlan], str]] = {
    "a launch without the bias": (
        fused, launch(tensors=lambda p: p.launch.tensors[:-1]), "not pass the tensors that the epilogue uses"
    ),
    "a launch with a scalar": (
        fused, launch(scalars=lambda _: ("alpha",)), "not pass the scalars that the epilogue uses"
    ),
    "a launch with fewer steps of the epilogue": (
        fused, launch(epilogue=lambda p: p.launch.epilogue[:-1]), "a launch states another epilogue"
    ),
    "boxes past the end of a group": (
        grouped, lambda p: replace(p, epilogue=replace(p.epilogue, edge=None)), "would store what follows a group"
    ),
    "edges of groups without groups": (warpgroups, edge_of_groups, "would store what follows a group"),
    "tiles that begin before a group": (
        warpgroups, lambda p: replace(p, scheduler=replace(p.scheduler, vector=8)), "what a tile has before its group"
    ),
    "rows of C stored as columns": (warpgroups, transposed, "stmatrix stores rows that are not contiguous"),
    "a factor of half a block": (quantized, other_block, "not what its warps, or a part, have of a line"),
    "a factor of a thread's rows": (
        quantized, quantization(of_threads=True), "values of different lines have one factor"
    ),
    "parts for three of four CTAs": (shared_slices, parts(sharers=3), "would skip parts, or add them twice"),
    "A read 16 bytes further": (tensor_memory, described_elsewhere, "s2r.a does not read where the layout says"),
    "factors of sums read by the MMA": (
        of_blocks, lambda p: with_path(p, "scale_a", s2r=p.a.s2r), "not by the threads of the sums"
    ),
    "boxes of factors that begin sooner than they have room": (
        of_blocks, lambda p: with_path(p, "scale_a", box_step=64), "s2r.scale_a reads a factor that is not in the tile"
    ),
    "a bias at any byte": (fused, bias_at_any_byte, "bias is not aligned to its elements"),
    "atomics that the caller does not know of": (
        atomics, lambda p: replace(p, launch=replace(p.launch, split=SplitContract(4, 0))), "add to a C that does not"
    ),
    "a launch with slices that the plan has not": (
        warps, lambda p: replace(p, launch=replace(p.launch, split=SplitContract(1, 0))), "an unused workspace"
    ),
    "factors copied for a pair of CTAs": (
        of_atoms, atoms(instruction=lambda copy: copy.instruction.replace("::1", "::2")), "each of 1 CTAs"
    ),
    "factors copied from 16 bytes further": (
        of_atoms, atoms(first=lambda copy: copy.first.advanced(1)), "copies other words than those of the rows"
    ),
    "factors of an atom too many": (
        of_atoms, atoms(atoms=lambda _: Layout((1, 2), (0, 32))), "another number of copies than atoms"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "make", list(dict.fromkeys(make for make, _, _ in SPOILED.values())), ids=lambda make: make.__name__
)
def test_plans_as_they_are(make: Callable[[], GemmPlan]) -> None:
    prove(make())


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_plan_is_noticed(name: str) -> None:
    make, spoil, reason = SPOILED[name]
    spoiled = spoil(make())
    with pytest.raises(ProofError, match=reason):
        prove(spoiled)
