"""The main loop is found in a listing written by hand, and in kernels that were built."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.analysis.sass import loops, main_loop
from cutegen.api import compile as compile_spec
from cutegen.build import Cache, disassemble
from cutegen.errors import OutsideError
from cutegen.spec import Epilogue, load_spec

LISTING = """\
	.section	.text.other,"ax",@progbits
.L_x_9:
        /*0000*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
        /*0010*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
        /*0020*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
        /*0030*/               @P0 BRA `(.L_x_9) ;
//--------------------- .text.gemm_0     --------------------------
	.section	.text.gemm_0,"ax",@progbits
gemm_0:
.text.gemm_0:
        /*0000*/                   S2R R6, SR_TID.X ;
        /*0010*/              @!P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0020*/                   LDSM.16.M88.4 R4, [R7+UR4] ;
        /*0030*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
        /*0040*/                   HMMA.16816.F32 R12, R8, R2, R12 ;
        /*0050*/                   IMAD.MOV.U32 R5, RZ, RZ, R4 ;
        /*0060*/               @P6 BRA `(.L_x_1) ;
.L_x_0:
        /*0070*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_4:
        /*0080*/              @!P0 BRA `(.L_x_3) ;
        /*0090*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
        /*00a0*/                   HMMA.16816.F32 R12, R8, R2, R12 ;
        /*00b0*/                   LDGSTS.E.BYPASS.128 [R3], desc[UR6][R4.64] ;
        /*00c0*/                   ISETP.NE.AND P0, PT, R4, RZ, PT ;
.L_x_3:
        /*00d0*/                   LDGDEPBAR ;
        /*00e0*/               @P0 BRA `(.L_x_4) ;
        /*00f0*/                   EXIT ;
.L_x_7:
        /*0100*/                   BRA `(.L_x_7);
"""


def test_the_loop_of_whole_k_tiles_is_the_main_one() -> None:
    found = main_loop(LISTING, "gemm_0")
    assert [instruction.address for instruction in found.instructions] == [0x20, 0x30, 0x40, 0x50, 0x60]
    assert found.mix == {"HMMA": 2, "BRA": 1, "IMAD.MOV": 1, "LDSM": 1}
    assert found.instructions[0].opcode == "LDSM.16.M88.4"
    assert found.instructions[-1].predicate == "@P6"


def test_every_loop_is_seen_and_a_branch_forwards_is_none() -> None:
    assert [(len(loop.instructions), loop.count("HMMA")) for loop in loops(LISTING, "gemm_0")] == [
        (5, 2),
        (7, 2),
        (1, 0),
    ]


def test_another_kernel_of_the_same_cubin_is_not_taken() -> None:
    assert main_loop(LISTING, "other").count("HMMA") == 3


def test_without_a_loop_that_multiplies_there_is_no_main_loop() -> None:
    with pytest.raises(OutsideError, match="has no loop with HMMA, IMMA or QMMA"):
        main_loop(LISTING.replace("HMMA", "FFMA"), "gemm_0")


@pytest.mark.dsl
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", pytest.param("sm_120", marks=pytest.mark.slow)])
def test_a_built_kernels_loop_holds_what_a_warp_does_for_a_k_tile_of_each_stage(arch: str, kernels: Cache) -> None:
    """128x128x64 over 4 warps: 64 x 64 x 64 / (16 x 8 x 16) mma, 4 x (4 + 4) ldmatrix.x4, 2 x 8 cp.async a thread."""
    per_k_tile = (128, 32, 16, 1)
    artifact = compile_spec(load_spec("sm80_hgemm_tn"), arch, cache=kernels).artifact
    loop = main_loop(disassemble(artifact.cubin), artifact.manifest.entry)
    found = tuple(map(loop.count, ("HMMA", "LDSM", "LDGSTS", "BAR")))
    assert found == tuple(3 * count for count in per_k_tile)
    assert loop.instructions[-1].name == "BRA"


@pytest.mark.dsl
def test_the_loop_over_k_tiles_of_a_persistent_kernel(kernels: Cache) -> None:
    """128 HMMA and 32 LDSM for a k-tile of a warp with 64x64; the last k-tile stands again in the loop over tiles."""
    artifact = compile_spec(load_spec("sm120_hgemm_tn"), "sm_90", cache=kernels).artifact
    loop = main_loop(disassemble(artifact.cubin), artifact.manifest.entry)
    assert (loop.multiplications(), loop.count("LDSM")) == (128, 32)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arch", "mma", "count"),
    [
        ("sm80_s8_tn", "sm_80", "IMMA", 3 * 128),
        ("sm89_e4m3_tn", "sm_89", "QMMA", 3 * 128),
        ("sm89_e4m3_tn", "sm_90", "HMMA", 3 * 128),
    ],
)
def test_what_becomes_of_mma_on_other_types(name: str, arch: str, mma: str, count: int, kernels: Cache) -> None:
    """3 k-tiles, of 128 bytes of K: 4 k-blocks over 64x64 a warp; as f16, two for each of 8-bit floats, over 64x32."""
    artifact = compile_spec(load_spec(name), arch, cache=kernels).artifact
    loop = main_loop(disassemble(artifact.cubin), artifact.manifest.entry)
    assert (loop.count(mma), loop.multiplications()) == (count, count)


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["sm90_hgemm_tn", "sm90_e4m3_tn"])
def test_warpgroups_have_their_stage_in_uniform_registers(name: str, kernels: Cache) -> None:
    """Where ptxas does not see that a warp's threads agree, it asks each of them before every copy and descriptor."""
    sass = disassemble(compile_spec(load_spec(name), "sm_90", cache=kernels).artifact.cubin)
    assert "GMMA" in sass
    assert "BRA.U.ANY" not in sass


@pytest.mark.dsl
def test_a_part_is_stored_before_the_next_is_computed(kernels: Cache) -> None:
    """GELU of four parts of 64x64 a warpgroup: 32 elements of each a thread; `stmatrix` stores eight at a time."""
    spec = replace(load_spec("sm90_hgemm_tn"), epilogue=Epilogue(ops=("gelu_tanh",)))
    listing = disassemble(compile_spec(spec, "sm_90", cache=kernels).artifact.cubin)
    order = re.findall("MUFU.TANH|STSM", listing)
    assert (order.count("MUFU.TANH"), order.count("STSM")) == (4 * 32, 4 * 4)
    second_part = [place for place, name in enumerate(order) if name == "STSM"][4]
    assert order[:second_part].count("MUFU.TANH") <= 2 * 32
