"""Every key is decided, with a reason and with what it rejects; what is given is obeyed."""

from __future__ import annotations

import re

import pytest

from cutegen.plan import plan
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    Mma,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
)
from tests.plan.specs import SHIPPED_ON, gemm

BY_WARPGROUPS = ("mma.atom", "mma.atom_layout", "schedule.consumers", "schedule.cluster")

MMA_KEYS = {
    "sm80": ("mma.atom", "mma.atom_layout", "mma.permutation"),
    "simt": ("mma.threads",),
    "sm90": BY_WARPGROUPS,
    "sm100": ("mma.cta_group", "mma.atom", "mma.accumulator", "schedule.cluster"),
}

FRAGMENT_KEYS = dict.fromkeys(("sm90", "sm100"), ("descriptor.a", "descriptor.b"))

OTHER_KEYS = ("smem.a", "smem.b", "tile.stages", "epilogue.smem", "schedule.raster")

OPTIONAL_KEYS = {
    "family",
    "problem.b.transposed",
    "mma.tf32",
    "mma.promote_k",
    "epilogue.ops",
    "epilogue.expression",
    "epilogue.pairs",
    "epilogue.quantize",
    "problem.groups",
    "problem.residual",
    "problem.bias",
    "problem.scale",
    "problem.aux",
    "schedule.registers",
    "schedule.persistent",
    "schedule.last_k_tiles",
    "schedule.promoted_sums",
    "schedule.split_k",
}


@pytest.mark.parametrize(("name", "arch"), SHIPPED_ON)
def test_every_key_is_decided_with_a_reason(name: str, arch: str) -> None:
    found = plan(load_spec(name), arch)
    fragments = FRAGMENT_KEYS.get(found.family, ("s2r.a", "s2r.b"))
    multiplied = MMA_KEYS.get(found.family, MMA_KEYS["sm80"])
    keys = ("tile.cta", *multiplied, "g2s.a", "g2s.b", *fragments, *OTHER_KEYS)
    of_factors = re.compile(r"\.scale_[ab]$")  # of blocks of A and B, beside the keys of A and B themselves
    decided = (x.key for x in found.decisions if x.key not in OPTIONAL_KEYS and not of_factors.search(x.key))
    assert tuple(decided) == keys
    for decision in found.decisions:
        assert decision.chosen
        assert decision.why
        assert all(rejected.what and rejected.why for rejected in decision.rejected)
        assert decision.chosen not in [rejected.what for rejected in decision.rejected]


def test_whatever_is_open_has_rejected_alternatives() -> None:
    open_choices = plan(gemm(), "sm_80")
    for decision in open_choices.decisions:
        assert not decision.given
        if decision.key not in ("tile.cta", "schedule.raster"):
            assert decision.rejected, decision.key


def test_what_is_written_is_obeyed_and_said_to_be_given() -> None:
    written = gemm(
        "mkm",
        accumulator="f16",
        tile=Tile(cta=(64, 96, 32), stages=5),
        mma=Mma(atom="SM80_16x8x8_F16F16F16F16_TN", atom_layout=(1, 2, 1), permutation=(32, 48, 16)),
        smem=Smem(a=SmemLayout(pad=16), b=SmemLayout(swizzle=(1, 3, 3))),
        g2s=G2s(
            a=G2sCopy(op="cp.async.ca", bits=64, threads="(16,4):(1,16)"),
            b=G2sCopy(op="cp.async.cg", bits=128, threads="(16,4):(4,1)"),
        ),
        s2r=S2r(a=S2rCopy("SM75_U16x4_LDSM_T"), b=S2rCopy("universal")),
        epilogue=Epilogue(SmemLayout(pad=24)),
        schedule=Schedule(Raster("m", 3, True)),
    )
    found = plan(written, "sm_80")
    assert all(decision.given for decision in found.decisions)
    assert (found.cta_tile, found.stages, found.tiled_mma.tile_mnk) == ((64, 96, 32), 5, (32, 48, 16))
    assert (found.a.smem.pad_elems, found.a.g2s.bits, found.a.s2r.atom.name) == (16, 64, "SM75_U16x4_LDSM_T")
    assert (found.b.smem.swizzle, found.b.s2r.bits) == (found.b.smem.swizzle, 32)
    assert found.b.smem.swizzle is not None
    assert (found.b.smem.swizzle.bits, found.b.smem.swizzle.base, found.b.smem.swizzle.shift) == (1, 3, 3)
    assert found.epilogue.smem is not None
    assert found.epilogue.smem.pad_elems == 24
    assert (found.scheduler.order.along, found.scheduler.order.group, found.scheduler.order.zigzag) == ("m", 3, True)


def test_instructions_by_hand() -> None:
    """128x128x64, 3 stages, 4 warps: a warp does 4 x 8 atoms for each of 4 k-blocks, written 3 + 1 times."""
    counts = plan(gemm(tile=Tile(cta=(128, 128, 64), stages=3)), "sm_80").predictions.instructions
    assert counts["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == 4 * 4 * 8 * 4
    # x4 loads 16 x 16: 4 for A's 64 rows, 4 for B's, each k-block; 4 times 4 k-blocks and one before.
    assert counts["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] == (4 + 4) * (4 * 4 + 1)
    # 8 + 8 vectors a thread, 2 stages before, 3 in a turn of the first loop and one in the second.
    assert counts["cp.async.cg.shared.global"] == (8 + 8) * (2 + 3 + 1)
