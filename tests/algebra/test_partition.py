"""Partitions of swizzled and padded tiles: each share holds the right offsets in whatever form, and all shares tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.algebra import (
    ComposedLayout,
    Layout,
    OperandName,
    TiledCopy,
    TiledMma,
    format_layout,
    offsets,
    parse_layout,
    tile_to_shape,
)
from cutegen.hardware import MMA_ATOMS, cp_async_atom, ldmatrix_atom

TILE = (128, 64)
SMEM_ATOMS = [
    "(8,64):(64,1)",
    "Sw<3,3,3> o (8,64):(64,1)",
    "Sw<2,4,3> o (8,64):(64,1)",
    "Sw<3,3,3> o (8,(8,8)):(8,(1,64))",
    "Sw<2,3,3> o (8,32):(32,1)",
    "Sw<1,3,3> o (8,16):(16,1)",
    "Sw<3,3,4> o (8,64):(64,1)",
    "Sw<2,3,-2> o (8,64):(64,1)",
    "Sw<0,3,3> o (8,64):(64,1)",
    "Sw<3,3,3> o (64,8):(1,64)",
    "Sw<2,3,3> o (32,8):(1,32)",
    "(8,64):(72,1)",
    "(64,8):(1,72)",
    "Sw<3,3,3> o (8,64):(72,1)",
    "Sw<3,3,3> o (128,8):(1,136)",
]
smem_layouts = st.sampled_from(SMEM_ATOMS).map(lambda text: tile_to_shape(parse_layout(text), TILE))


@st.composite
def tiled_mmas(draw: st.DrawFn) -> TiledMma:
    atom = draw(st.sampled_from([atom for atom in MMA_ATOMS.values() if atom.a_dtype.bits == 16]))
    atom_layout = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 1, 1), (4, 2, 1), (1, 4, 1), (2, 1, 2)]))
    smallest = TiledMma(atom, atom_layout).tile_mnk
    repeats = draw(st.tuples(*[st.sampled_from([1, 2])] * 3))
    return TiledMma(atom, atom_layout, [e * r for e, r in zip(smallest, repeats, strict=True)])


@given(mma=tiled_mmas(), op=st.sampled_from(["A", "B"]), smem=smem_layouts, data=st.data())
def test_an_mma_partition_reads_the_elements_it_names(
    mma: TiledMma, op: OperandName, smem: Layout | ComposedLayout, data: st.DataObject
) -> None:
    thread = data.draw(st.integers(0, mma.threads - 1))
    named = mma.partition(op, Layout(TILE), thread).offsets()  # column-major coordinates
    assert np.array_equal(mma.partition(op, smem, thread).offsets(), offsets(smem)[named])


@given(mma=tiled_mmas(), op=st.sampled_from(["A", "B"]), smem=smem_layouts, data=st.data())
def test_a_copy_partition_reads_the_elements_it_names(
    mma: TiledMma, op: OperandName, smem: Layout | ComposedLayout, data: st.DataObject
) -> None:
    fitting = [n for n in (1, 2, 4) if mma.values(op) % (2 * n) == 0]
    atom = ldmatrix_atom(data.draw(st.sampled_from(fitting)), transpose=data.draw(st.booleans()))
    copy = TiledCopy.for_mma(atom, mma, op, 16)
    thread = data.draw(st.integers(0, mma.threads - 1))
    for partition in (copy.partition_s, copy.partition_d):
        named = partition(Layout(TILE), thread).offsets()
        assert np.array_equal(partition(smem, thread).offsets(), offsets(smem)[named])


@settings(max_examples=25)
@given(mma=tiled_mmas(), op=st.sampled_from(["A", "B", "C"]))
def test_threads_share_the_tile(mma: TiledMma, op: OperandName) -> None:
    """Every element is held, by as many threads as the mode that the operand lacks has warps."""
    shares = [mma.partition(op, Layout(TILE), thread).offsets() for thread in range(mma.threads)]
    holders = np.bincount(np.concatenate(shares), minlength=TILE[0] * TILE[1])
    absent = {"A": 1, "B": 0, "C": 2}[op]
    assert set(holders.tolist()) == {mma.atom_layout.shape[absent]}


@settings(max_examples=25)
@given(mma=tiled_mmas(), op=st.sampled_from(["A", "B", "C"]))
def test_fragments_are_compact_and_as_large_as_the_share(mma: TiledMma, op: OperandName) -> None:
    layout = Layout(TILE, (TILE[1], 1))
    fragment = mma.fragment(op, layout, 0)
    share = mma.partition(op, layout, 0).offsets()
    assert np.array_equal(np.sort(offsets(fragment)), np.arange(len(share)))


@given(mma=tiled_mmas(), op=st.sampled_from(["A", "B"]), data=st.data())
def test_retiling_reorders_and_loses_no_register(mma: TiledMma, op: OperandName, data: st.DataObject) -> None:
    """Register by register, the retiled fragment names what the copy delivers there."""
    fitting = [n for n in (1, 2, 4) if mma.values(op) % (2 * n) == 0]
    copy = TiledCopy.for_mma(ldmatrix_atom(data.draw(st.sampled_from(fitting)), transpose=False), mma, op, 16)
    thread = data.draw(st.integers(0, mma.threads - 1))
    identity = Layout(TILE)
    fragment = mma.fragment(op, identity, thread)
    wanted_in = np.empty(len(offsets(fragment)), int)
    wanted_in[offsets(fragment)] = mma.partition(op, identity, thread).offsets()
    assert np.array_equal(wanted_in[offsets(copy.retile(fragment))], copy.partition_d(identity, thread).offsets())


@pytest.mark.parametrize("smem", SMEM_ATOMS)
def test_cp_async_shares_cover_the_tile_once(smem: str) -> None:
    layout = tile_to_shape(parse_layout(smem), TILE)
    m_major = smem.startswith(("Sw<3,3,3> o (64", "Sw<2,3,3> o (32", "(64", "Sw<3,3,3> o (128"))
    threads, values = ("(16,8):(1,16)", "(8,1)") if m_major else ("(16,8):(8,1)", "(1,8)")
    copy = TiledCopy.from_thr_val(
        cp_async_atom("cp.async.ca", 128), parse_layout(threads), parse_layout(values), bits=16
    )
    written = np.concatenate([copy.partition_d(layout, thread).offsets() for thread in range(copy.threads)])
    assert np.array_equal(np.sort(written), np.sort(offsets(layout)))


@pytest.mark.parametrize(
    ("smem", "threads", "printed"),
    [
        # Rows 0 to 3 and k below 32: no thread sets bit 8, so bit 5 of the row moves by a known amount.
        ("Sw<3,3,3> o (8,(8,4)):(8,(1,64))", "(4,4):(4,1)", "((_8,_1),_2,_1):((_1,_0),_32,_0) @ 64"),
        # All of k: bit 8 differs between threads, so the same stride has either sign.
        ("Sw<3,3,3> o (8,(8,8)):(8,(1,64))", "(4,8):(8,1)", "((_8,_1),_2,_1):((_1,_0),-32,_0) @ 360"),
        ("Sw<3,3,3> o (8,(8,8)):(8,(1,64))", "(1,8):(8,1)", "((_8,_1),(_2,_2,_2),_1):((_1,_0),(-8,16,-32),_0) @ 360"),
    ],
)
def test_a_stride_is_static_where_no_thread_varies_its_swizzle(smem: str, threads: str, printed: str) -> None:
    """CuTe C++'s printouts for thread 5."""
    copy = TiledCopy.from_thr_val(cp_async_atom("cp.async.ca", 128), parse_layout(threads), Layout((1, 8)), bits=16)
    share = copy.partition_d(parse_layout(smem), 5)
    assert f"{share} @ {share.offset}" == printed


def test_a_share_that_meets_both_swizzled_bits_stays_swizzled() -> None:
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
    smem = tile_to_shape(parse_layout("Sw<3,3,3> o (64,8):(1,64)"), TILE)
    share = mma.partition("A", smem, 37)
    assert isinstance(share.layout, ComposedLayout)
    assert format_layout(share.layout).startswith("Sw<3,3,3> o M_0|(144&400)=144 o ")


@pytest.mark.parametrize("thread", [-1, 128])
def test_there_is_no_such_thread(thread: int) -> None:
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1))
    copy = TiledCopy.for_mma(ldmatrix_atom(2, transpose=False), mma, "B", 16)
    with pytest.raises(ValueError, match=f"thread {thread} is not one of the 128 threads of the tiled MMA"):
        mma.partition("A", Layout(TILE), thread)
    with pytest.raises(ValueError, match=f"thread {thread} is not one of the 128 threads of the tiled copy"):
        copy.partition_s(Layout(TILE), thread)
