"""The CuTe DSL as oracle: the kernels that cutegen writes are built from its layouts, so ours must be the same.

Layouts are traced in a bare MLIR context: no jit, no compilation, no GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import (
    Layout,
    OperandName,
    TiledCopy,
    TiledMma,
    format_layout,
    inner_layout,
    offsets_2d,
    parse_layout,
    tile_to_shape,
)
from cutegen.hardware import MMA_ATOMS, MmaAtom, cp_async_atom, ldmatrix_atom, ldmatrix_trace, order_of_byte_loads

pytestmark = pytest.mark.dsl

TILE = {"A": (128, 64), "B": (128, 64), "C": (128, 128)}
ATOM_LAYOUTS = [(1, 1, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1), (2, 1, 2)]
REPEATS = [(1, 1, 1), (1, 2, 1), (2, 1, 2), (1, 4, 1)]
THREADS = (5, -1)


@pytest.fixture(scope="module")
def dsl() -> Iterator[SimpleNamespace]:
    """The DSL's modules, inside a context in which layouts can be made."""
    import cutlass
    from cutlass import cute
    from cutlass._mlir import ir
    from cutlass.cute.nvgpu import cpasync, warp

    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield SimpleNamespace(cutlass=cutlass, cute=cute, warp=warp, cpasync=cpasync)


def plain(layout: Layout) -> str:
    """As the DSL prints a layout whose integers are all static."""
    return format_layout(layout).replace("_", "")


def table(text: str) -> np.ndarray:
    """A layout's printout, evaluated at every (thread, value): [thread, value]."""

    def walk(shape: Any, stride: Any) -> np.ndarray:
        if not isinstance(shape, tuple):
            return np.arange(shape) * stride
        column = np.zeros(1, int)
        for part, step in zip(shape, stride, strict=True):
            column = (walk(part, step)[:, None] + column).ravel()
        return column

    shape, stride = map(ast.literal_eval, text.split(":"))
    return walk(shape[0], stride[0])[:, None] + walk(shape[1], stride[1])


def dsl_layout(dsl: SimpleNamespace, layout: Layout) -> Any:
    return dsl.cute.make_layout(layout.shape, stride=layout.stride)


def dsl_tensor(dsl: SimpleNamespace, layout: Layout) -> Any:
    pointer = dsl.cute.make_ptr(dsl.cutlass.Float16, 0, dsl.cute.AddressSpace.smem, assumed_align=128)
    return dsl.cute.make_tensor(pointer, dsl_layout(dsl, layout))


def operation(dsl: SimpleNamespace, atom: MmaAtom) -> Any:
    """The DSL's operation; where module `warp` has none, the compiler's own atom type, as generated kernels name it."""
    a, b, c = (getattr(dsl.cutlass, x.dsl_name) for x in (atom.a_dtype, atom.b_dtype, atom.c_dtype))
    if atom.a_dtype.name == "tf32":
        return dsl.warp.MmaTF32Op(atom.shape_mnk)
    if a is b and not atom.a_dtype.is_integer:
        kind = dsl.warp.MmaF16BF16Op if atom.a_dtype.bits == 16 else dsl.warp.MmaFP8Op
        return kind(a, c, atom.shape_mnk)
    from cutlass._mlir import ir
    from cutlass._mlir.dialects import cute_nvgpu
    from cutlass.cute.atom import Trait, make_atom
    from cutlass.cute.core import _pack_shape

    kind = cute_nvgpu.MmaAtomSM80Type if atom.a_dtype.is_integer else cute_nvgpu.MmaAtomSM89Type
    signs = ir.IntegerType.get_signed(8), ir.IntegerType.get_unsigned(8)
    integers = tuple(signs[x.is_unsigned] for x in (atom.a_dtype, atom.b_dtype))
    operands = integers if atom.a_dtype.is_integer else (a.mlir_type, b.mlir_type)

    class Operation(dsl.warp.WarpMmaOp):
        def _make_trait(self, **_: Any) -> Any:
            shape = _pack_shape(atom.shape_mnk).type.attribute
            return Trait(make_atom(kind.get(shape, *operands, c.mlir_type)))

        def _verify_fragment_A(self, *_: Any, **__: Any) -> bool:
            return True

        def _verify_fragment_B(self, *_: Any, **__: Any) -> bool:
            return True

    return Operation()


def dsl_mma(dsl: SimpleNamespace, mma: TiledMma) -> Any:
    assert isinstance(mma.atom, MmaAtom)
    op = operation(dsl, mma.atom)
    permutation = tuple(dsl_layout(dsl, x) if isinstance(x, Layout) else x for x in mma.permutation)
    return dsl.cute.make_tiled_mma(op, dsl_layout(dsl, mma.atom_layout), permutation_mnk=permutation)


def dsl_copy(dsl: SimpleNamespace, tiled: Any, op: OperandName, matrices: int, transpose: bool) -> Any:
    atom = dsl.cute.make_copy_atom(dsl.warp.LdMatrix8x8x16bOp(transpose, matrices), dsl.cutlass.Float16)
    return {"A": dsl.cute.make_tiled_copy_A, "B": dsl.cute.make_tiled_copy_B}[op](atom, tiled)


def tiled_mma(atom: str, atom_layout: tuple[int, int, int], repeats: tuple[int, int, int]) -> TiledMma:
    smallest = TiledMma(MMA_ATOMS[atom], atom_layout).tile_mnk
    return TiledMma(MMA_ATOMS[atom], atom_layout, [e * r for e, r in zip(smallest, repeats, strict=True)])


def tensors(op: OperandName) -> list[Layout]:
    """Both majors, plain, and as the affine part of a tiled (swizzled or padded) shared-memory layout with 3 stages."""
    x, y = TILE[op]
    return [
        Layout((x, y), (y, 1)),
        Layout((x, y), (1, x)),
        inner_layout(tile_to_shape(parse_layout("(8,(8,8)):(8,(1,64))"), (x, y, 3))),
        tile_to_shape(parse_layout("(8,32):(40,1)"), (x, y, 3)),
        inner_layout(tile_to_shape(parse_layout("(64,8):(1,64)"), (x, y, 3))),
    ]


MMAS = [
    pytest.param(tiled_mma(*case), id=f"{case[0][5:]}-{case[1]}-{case[2]}")
    for case in product(["SM80_16x8x8_F16F16F16F16_TN", "SM80_16x8x16_F32BF16BF16F32_TN"], ATOM_LAYOUTS, REPEATS)
]


@pytest.mark.parametrize("name", MMA_ATOMS)
def test_atom_layouts(dsl: SimpleNamespace, name: str) -> None:
    atom = MMA_ATOMS[name]
    tiled = dsl_mma(dsl, TiledMma(atom))
    assert str(tiled.tv_layout_A) == plain(atom.a_layout)
    assert str(tiled.tv_layout_B) == plain(atom.b_layout)
    assert str(tiled.tv_layout_C) == plain(atom.c_layout)


@pytest.mark.parametrize("mma", MMAS)
def test_tiled_mma(dsl: SimpleNamespace, mma: TiledMma) -> None:
    tiled = dsl_mma(dsl, mma)
    assert str(tiled.thr_layout_vmnk) == plain(mma.thr_layout_vmnk)
    assert str(tiled.tv_layout_A_tiled) == plain(mma.tv_layout("A"))
    assert str(tiled.tv_layout_B_tiled) == plain(mma.tv_layout("B"))
    assert str(tiled.tv_layout_C_tiled) == plain(mma.tv_layout("C"))


@pytest.mark.parametrize("mma", MMAS)
@pytest.mark.parametrize("op", ["A", "B", "C"])
def test_partitions_and_fragments(dsl: SimpleNamespace, mma: TiledMma, op: OperandName) -> None:
    tiled = dsl_mma(dsl, mma)
    for layout, thread in product(tensors(op), THREADS):
        index = thread % mma.threads
        thr = tiled.get_slice(index)
        theirs = getattr(thr, f"partition_{op}")(dsl_tensor(dsl, layout))
        ours = mma.partition(op, layout, index)
        assert str(theirs.layout) == plain(inner_layout(ours.layout))
        fragment = getattr(tiled, f"make_fragment_{op}")(theirs)
        assert str(fragment.layout) == plain(mma.fragment(op, layout, index))


@pytest.mark.parametrize("mma", MMAS)
@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix_copies(dsl: SimpleNamespace, mma: TiledMma, op: OperandName, transpose: bool) -> None:
    tiled = dsl_mma(dsl, mma)
    for matrices in (1, 2, 4):
        if mma.values(op) % (2 * matrices):
            continue
        theirs = dsl_copy(dsl, tiled, op, matrices, transpose)
        ours = TiledCopy.for_mma(ldmatrix_atom(matrices, transpose=transpose), mma, op, 16)
        assert str(theirs.layout_src_tv_tiled) == plain(ours.layout_src_tv)
        assert str(theirs.layout_dst_tv_tiled) == plain(ours.layout_dst_tv)
        for layout in tensors(op):
            index = 21 % mma.threads
            share = theirs.get_slice(index).partition_S(dsl_tensor(dsl, layout))
            assert str(share.layout) == plain(ours.partition_s(layout, index).layout)
            stage = Layout(layout.shape[:2], layout.stride[:2])
            fragment = mma.fragment(op, stage, index)
            their_fragment = dsl_tensor(dsl, fragment)
            assert str(theirs.get_slice(index).retile(their_fragment).layout) == plain(ours.retile(fragment))


@pytest.mark.parametrize("mma", MMAS)
@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix_addresses_and_destinations(
    dsl: SimpleNamespace, mma: TiledMma, op: OperandName, transpose: bool
) -> None:
    """Every address and every register of one tile of the tiled MMA, instruction by instruction."""
    tiled, tile = dsl_mma(dsl, mma), mma.tile_of(op)
    for matrices in (1, 2, 4):
        if mma.values(op) % (2 * matrices):
            continue
        copy = dsl_copy(dsl, tiled, op, matrices, transpose)
        trace = ldmatrix_trace(mma, op, Layout(tile), ldmatrix_atom(matrices, transpose=transpose))
        read = table(str(copy.layout_src_tv_tiled)).reshape(mma.threads // 32, 32, -1, 8).transpose(2, 0, 1, 3)
        received = table(str(copy.layout_dst_tv_tiled)).reshape(mma.threads, -1, 2 * matrices).transpose(1, 0, 2)
        assert np.array_equal(trace.source_coords, read)
        assert np.array_equal(trace.destination_coords, received)


@pytest.mark.parametrize(
    ("threads", "values", "bits", "smem"),
    [
        ("(16,8):(8,1)", "(1,8)", 128, "(8,(8,8)):(8,(1,64))"),
        ("(16,8):(8,1)", "(1,8)", 128, "(8,64):(72,1)"),
        ("(8,16):(1,8)", "(8,1)", 128, "(64,8):(1,64)"),
        ("(8,16):(16,1)", "(1,4)", 64, "(8,64):(64,1)"),
        ("(4,32):(32,1)", "(1,2)", 32, "(8,64):(64,1)"),
        ("(64,4):(1,64)", "(2,1)", 32, "(128,8):(1,136)"),
    ],
)
def test_cp_async_copies(dsl: SimpleNamespace, threads: str, values: str, bits: int, smem: str) -> None:
    thr, val = parse_layout(threads), parse_layout(values)
    atom = dsl.cute.make_copy_atom(dsl.cpasync.CopyG2SOp(), dsl.cutlass.Float16, num_bits_per_copy=bits)
    theirs = dsl.cute.make_tiled_copy_tv(atom, dsl_layout(dsl, thr), dsl_layout(dsl, val))
    ours = TiledCopy.from_thr_val(cp_async_atom("cp.async.ca", bits), thr, val, bits=16)
    assert str(theirs.layout_src_tv_tiled) == plain(ours.layout_src_tv)
    assert str(theirs.layout_dst_tv_tiled) == plain(ours.layout_dst_tv)
    tiled = tile_to_shape(parse_layout(smem), (128, 64, 3))
    for thread in (0, 1, 77):
        thr_copy = theirs.get_slice(thread)
        assert str(thr_copy.partition_D(dsl_tensor(dsl, tiled)).layout) == plain(ours.partition_d(tiled, thread).layout)
        assert str(thr_copy.partition_S(dsl_tensor(dsl, tiled)).layout) == plain(ours.partition_s(tiled, thread).layout)


@pytest.mark.parametrize(
    ("atom", "shape", "order"),
    [
        ("(8,64):(64,1)", (128, 64, 3), (0, 1, 2)),
        ("(8,32):(32,1)", (128, 64, 3), (1, 0, 2)),
        ("(8,32):(32,1)", (128, 64, 3), (2, 0, 1)),
        ("(8,32):(32,1)", (128, 64, 3), (1, 2, 0)),
        ("(64,8):(1,64)", (128, 64, 4), (1, 0, 2)),
        ("(8,(8,8)):(8,(1,64))", (128, 64, 3), (0, 1, 2)),
        ("(8,32):(40,1)", (128, 64, 3), (0, 1, 2)),
        ("(8,64):(72,1)", (128, 64, 3), (0, 1, 2)),
        ("(1,64):(72,1)", (128, 64, 2), (0, 1, 2)),
        ("(8,8):(16,1)", (64, 64, 2), (0, 1, 2)),
        ("(128,8):(1,136)", (128, 64, 3), (0, 1, 2)),
    ],
)
def test_tile_to_shape(dsl: SimpleNamespace, atom: str, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    block = parse_layout(atom)
    theirs = dsl.cute.tile_to_shape(dsl_layout(dsl, block), shape, order)
    assert str(theirs) == plain(tile_to_shape(block, shape, order))


def in_pairs(warps: int, pairs: int) -> Layout:
    """Columns of N: 8 of an atom, the warps 16 apart, the pair's second atom beside the first, more pairs."""
    return Layout((8, warps, 2, pairs), (1, 16, 8, 16 * warps))


MMAS_OF_BYTES = [
    pytest.param(TiledMma(MMA_ATOMS[atom], (m, n, 1), (16 * m * repeat, in_pairs(n, repeat), 32 * repeat)))
    for atom, (m, n), repeat in product(
        ["SM80_16x8x16_S32S8S8S32_TN_SATURATE", "SM89_16x8x32_F32E4M3E5M2F32_TN"], [(1, 1), (2, 2), (1, 4)], [1, 2]
    )
]


@pytest.mark.parametrize("matrices", [1, 2])
def test_the_atom_is_the_dsls(dsl: SimpleNamespace, matrices: int) -> None:
    theirs = dsl.cute.make_copy_atom(dsl.warp.LdMatrix16x16x8bOp(True, matrices), dsl.cutlass.Int8)
    ours = ldmatrix_atom(matrices, transpose=True, element_bits=8)
    received = table(str(theirs.layout_dst_tv))
    assert np.array_equal(received, offsets_2d(ours.dst_layout_bits)[:, ::8] // 8)
    assert np.array_equal(
        table(str(theirs.layout_src_tv))[: ours.rows], 16 * np.arange(ours.rows)[:, None] + np.arange(16)
    )


@pytest.mark.parametrize("mma", MMAS_OF_BYTES)
@pytest.mark.parametrize("op", ["A", "B"])
def test_tiled_copies_are_the_dsls(dsl: SimpleNamespace, mma: TiledMma, op: OperandName) -> None:
    tiled = dsl_mma(dsl, mma)
    assert str(tiled.tv_layout_B_tiled) == plain(mma.tv_layout("B"))
    order = order_of_byte_loads(mma, op)
    atom = dsl.cute.make_copy_atom(dsl.warp.LdMatrix16x16x8bOp(True, 2), dsl.cutlass.Int8)
    ours = TiledCopy.for_mma(ldmatrix_atom(2, transpose=True, element_bits=8), mma, op, 8, order)
    if order is None:
        theirs = {"A": dsl.cute.make_tiled_copy_A, "B": dsl.cute.make_tiled_copy_B}[op](atom, tiled)
    else:
        theirs = dsl.cute.make_tiled_copy(atom, dsl_layout(dsl, ours.layout_tv), mma.tile_of(op))
    for side in ("src", "dst"):
        found = table(str(getattr(theirs, f"layout_{side}_tv_tiled")))
        assert np.array_equal(found, offsets_2d(getattr(ours, f"layout_{side}_tv")))
