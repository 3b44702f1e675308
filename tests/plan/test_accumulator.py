"""Accumulators: their layout is the hardware's, and an epilogue's parts are read from registers or tensor memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cutegen.algebra import Layout
from cutegen.errors import ProofError
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, dtype
from cutegen.hardware.mma_atoms import WGMMA_ATOMS, columns_of, with_columns
from cutegen.hardware.tcgen05 import LOADS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.epilogue.store import choose_parts, part_mma
from cutegen.plan.geometry import adjacent, shares_of_threads, sums_of_tile
from cutegen.plan.kernel.accumulator import Accumulator, Home, Promotion
from cutegen.plan.kernel.pipeline import Role
from cutegen.plan.prove import prove, prove_sub_tiles
from cutegen.plan.values.epilogue import EpilogueParts
from cutegen.plan.values.operand import operand_tile
from cutegen.spec import Mma, Tile, load_spec
from tests.plan.specs import SHIPPED_ON, gemm
from tests.run.wgmma import CASES


def planned(name: str) -> GemmPlan:
    found = plan(CASES[name], "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def in_tensor_memory(rows: int, columns: int, widths: tuple[int, ...] = (8, 16, 32, 64, 128)) -> Accumulator:
    """A lane of tensor memory is a row of C: a warp loads 32 of them, and each thread the columns of its row."""
    layout = Layout((rows, (1, 1, columns)), (1, (0, 0, rows)))
    return Accumulator(
        home=Home.TENSOR_MEMORY,
        dtype=dtype("f32"),
        tile=(rows, columns),
        block=(128, columns),
        atom=UNIVERSAL_FMA,
        layout=layout,
        columns=columns,
        buffers=2,
        drain=LOADS["32x32b", 32],
        widths=widths,
    )


@pytest.mark.parametrize(("name", "arch"), SHIPPED_ON)
def test_registers_hold_what_the_partition_of_each_thread_says(name: str, arch: str) -> None:
    found = plan(load_spec(name), arch)
    sums, tile = found.mma.accumulator, found.cta_tile[:2]
    if sums.home is Home.TENSOR_MEMORY:
        # Groups of warps that scale sums of blocks have columns side by side.
        rows_first = np.concatenate(np.hsplit(in_tensor_memory(*tile).table, sums.threads // tile[0]))
        assert np.array_equal(sums.table, rows_first)
        return
    held, extents = shares_of_threads(found.tiled_mma, "C", tile)
    assert np.array_equal(sums.table, held)
    assert (sums.threads, sums.extents) == (found.tiled_mma.threads, extents)
    assert sums.values * found.tiled_mma.threads == tile[0] * tile[1]


@pytest.mark.parametrize(
    "name", ["sm90_hgemm_tn", "sm90_bf16_swiglu", "sm90_e4m3_block_scaled", "sm100_hgemm_tn", "sm100_bf16_pair"]
)
def test_a_part_is_held_as_the_dsl_partitions_it(name: str) -> None:
    """The rule for C's layout reads the accumulator, the text a tiled MMA: both have one part alike."""
    found = plan(load_spec(name), "sm_90" if "sm90" in name else "sm_100")
    assert found.epilogue.part is not None
    held = sums_of_tile(part_mma(found.mma, found.epilogue.part), found.epilogue.part)
    assert np.array_equal(found.mma.accumulator.of_part(found.epilogue.part), held)


def test_neighbors_among_a_threads_sums() -> None:
    """A lane of tensor memory is a row, of which vectors hold up to 16 values; a fragment has pairs along N."""
    row, fragment = in_tensor_memory(128, 48).table, planned("tn").mma.accumulator
    assert [adjacent(row, 128, most) for most in (1, 8, 16, 64)] == [1, 8, 16, 16]
    assert [adjacent(fragment.table, fragment.tile[0], most) for most in (1, 8)] == [1, 2]


def test_registers_of_sums_by_hand() -> None:
    """64 x 128 sums of 128 threads are 64 registers, 32 of f16; promoted ones as many for each set, and once more."""
    sums = replace(planned("tn").mma.accumulator, layout=Layout((128, 64), (64, 1)), promotion=None)
    assert sums.registers == 64
    assert replace(sums, dtype=dtype("f16")).registers == 32
    assert replace(sums, promotion=Promotion(128)).registers == 128
    assert replace(sums, promotion=Promotion(128, 2)).registers == 192
    loaded = in_tensor_memory(128, 256)
    assert (loaded.registers, loaded.registers_while_stored(32), sums.registers_while_stored(32)) == (0, 32, 64)


@pytest.mark.parametrize("name", ["SM90_64x256x16_F32F16F16_SS", "SM90_64x128x32_S32U8S8_RS_TN_SATURATE"])
def test_the_same_instruction_on_other_columns(name: str) -> None:
    atom = WGMMA_ATOMS[name]
    for n in columns_of(atom):
        other = with_columns(atom, n)
        assert other.shape_mnk == (64, n, atom.shape_mnk[2])
        assert (other.a_dtype, other.b_dtype, other.c_dtype) == (atom.a_dtype, atom.b_dtype, atom.c_dtype)
        assert (other.a_source, other.a_layout) == (atom.a_source, atom.a_layout)
    assert (40 in columns_of(atom)) is not atom.c_dtype.is_integer
    assert with_columns(atom, atom.shape_mnk[1]) is atom


@pytest.mark.parametrize(("registers", "width"), [(255, 64), (140, 32), (90, 16)])
def test_the_rule_chooses_parts_of_an_accumulator_in_tensor_memory(registers: int, width: int) -> None:
    """A line of C has 64 halves. A thread holds one part: sums, values and addresses; vectors, and 36 others."""
    mma = planned("fused").mma
    epilogue = replace(mma, role=Role(name="epilogue", threads=128), accumulator=in_tensor_memory(128, 256))
    spec = gemm(tile=Tile((128, 256, 64)))
    fusion = planned("fused").epilogue.fusion
    found = choose_parts(operand_tile(spec, "c", (128, 256, 64)), fusion, epilogue, registers, None, None, 1)
    assert found.parts.tile == (128, width)
    assert (found.parts.count, found.parts.warpgroups) == (256 // width, 1)
    prove_sub_tiles(found.parts, epilogue.accumulator)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_parts_are_read_from_tensor_memory(width: int) -> None:
    """Each of 128 threads receives the columns of its row: the part's own first ones."""
    parts = EpilogueParts(tile=(128, width), columns=256 // width, count=256 // width, warpgroups=1)
    held = prove_sub_tiles(parts, in_tensor_memory(128, 256))
    assert np.array_equal(held, np.arange(128)[:, None] + 128 * np.arange(width))


def test_parts_of_two_warpgroups_below_each_other_in_tensor_memory() -> None:
    """Of 256 rows, each warpgroup has 128, in another half of tensor memory's columns."""
    layout = Layout(((128, 2), 64), ((1, 128), 256))
    accumulator = replace(in_tensor_memory(256, 64), layout=layout)
    parts = EpilogueParts(tile=(128, 32), columns=2, count=2, warpgroups=2)
    assert np.array_equal(prove_sub_tiles(parts, accumulator)[:, 0], np.arange(128))


def test_parts_that_are_not_a_threads_sums_in_order_are_not_proved() -> None:
    rows_apart = replace(in_tensor_memory(128, 256), layout=Layout((128, (2, 128)), (1, (128 * 128, 128))))
    parts = EpilogueParts(tile=(128, 64), columns=4, count=4, warpgroups=1)
    with pytest.raises(ProofError, match="does not match the order"):
        prove_sub_tiles(parts, rows_apart)


def test_another_layout_than_that_of_the_tiled_mma_is_not_proved() -> None:
    found = planned("tn")
    accumulator = found.mma.accumulator
    rows, columns = accumulator.tile
    apart = Layout((accumulator.threads, accumulator.values), (1, accumulator.threads))
    moved = replace(found, mma=replace(found.mma, accumulator=replace(accumulator, layout=apart)))
    with pytest.raises(ProofError, match="not that of the tiled MMA"):
        prove(moved)
    twice = Layout((accumulator.threads, accumulator.values), (0, 1))
    with pytest.raises(ProofError, match="every element of C exactly once"):
        prove(replace(found, mma=replace(found.mma, accumulator=replace(accumulator, layout=twice))))
    other = replace(accumulator, tile=(columns, rows))
    with pytest.raises(ProofError, match="another tile"):
        prove(replace(found, mma=replace(found.mma, accumulator=other)))


def test_every_wgmma_is_found_by_its_fields() -> None:
    assert all(with_columns(atom, atom.shape_mnk[1]) is atom for atom in WGMMA_ATOMS.values())
    assert not set(WGMMA_ATOMS) & set(MMA_ATOMS)


@pytest.mark.parametrize(
    ("rows", "ctas", "block", "matrices"),
    [(64, 1, (64, 64), True), (64, 2, (64, 32), False), (128, 2, (128, 64), False)],
)
def test_sums_of_half_of_the_lanes_and_of_pairs(rows: int, ctas: int, block: tuple[int, int], matrices: bool) -> None:
    """64 rows are fragments, which `stmatrix` writes; of a pair, each half of the columns is a block of 64 threads."""
    found = of_tensor_memory(rows, ctas)
    sums = found.mma.accumulator
    assert (sums.block, sums.threads, sums.group_threads) == (block, 128, 128 if block[1] == 64 else 64)
    assert (found.epilogue.stmatrix is not None) is matrices
    assert sums.columns == block[1]


def of_tensor_memory(rows: int, ctas: int) -> GemmPlan:
    spec = replace(gemm("kkn"), family="sm100", tile=Tile((rows, 64, 64)), mma=Mma(cta_group=ctas))
    found = plan(spec, "sm_100")
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize("edit", ["layout", "columns"])
def test_other_sums_than_a_load_brings_are_not_proved(edit: str) -> None:
    found = of_tensor_memory(64, 2)
    sums = found.mma.accumulator
    exchanged = Layout(((64, 2), (1, 1, 32)), ((1, 64), (0, 0, 128)))  # every second column
    wrong = replace(sums, layout=exchanged) if edit == "layout" else replace(sums, buffers=17)
    says = "receive other sums" if edit == "layout" else "buffers of sums overlap"
    with pytest.raises(ProofError, match=says):
        prove(replace(found, mma=replace(found.mma, accumulator=wrong)))
