"""Which sums each thread loads from tensor memory, as the DSL partitions them: no compilation, no GPU."""

import ast

import cutlass
import numpy as np
from cutlass import cute
from cutlass._mlir import ir
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05

TYPES = {"f16": cutlass.Float16, "f32": cutlass.Float32}
COLUMNS = {"Ld32x32bOp": 1, "Ld16x256bOp": 8, "Ld16x128bOp": 8}
"""Columns of a repetition; with packed sums of 16 bits `Ld32x32bOp` has two."""


def loads(settings):
    """Return, for each (rows, columns, CTAs, type of sums, columns of a load), int[thread, value] of m + rows * n.

    The coordinates are those of the sums of the first load, in a CTA's tile of so many rows and columns.
    """
    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        with ir.InsertionPoint(ir.Module.create().body):
            return [load(*each) for each in settings]


def load(rows, columns, ctas, element, width):
    """One of them."""
    dtype = TYPES[element]
    group = tcgen05.CtaGroup.TWO if ctas == 2 else tcgen05.CtaGroup.ONE
    k_major, shape = OperandMajorMode.K, (rows * ctas, columns, 16)
    op = tcgen05.MmaF16BF16Op(cutlass.Float16, dtype, shape, group, tcgen05.OperandSource.SMEM, k_major, k_major)
    mma = cute.make_tiled_mma(op)
    sums = mma.make_fragment_C(mma.partition_shape_C(shape[:2]))[(None, None), 0, 0]
    narrow = dtype.width == 16
    name = "Ld32x32bOp" if rows * ctas >= 128 else "Ld16x128bOp" if narrow else "Ld16x256bOp"
    repetitions = width // (COLUMNS[name] * (2 if narrow and name == "Ld32x32bOp" else 1))
    pack = {"pack": tcgen05.Pack.PACK_16b_IN_32b} if narrow else {}
    atom = cute.make_copy_atom(getattr(tcgen05, name)(tcgen05.Repetition[f"x{repetitions}"], **pack), dtype)
    halves = rows * ctas == 128 and rows == 64 and ctas == 2
    tiler = (cute.size(sums, mode=[0]), cute.make_layout((width, 2), stride=(1, columns // 2)) if halves else width)
    part = cute.flat_divide(sums, tiler)[None, None, 0, 0]
    copy = tcgen05.make_tmem_copy(atom, part)
    places = table(str(copy.layout_dst_tv_tiled))
    # The layout counts places of a tile whose modes have layouts of their own, from coordinate to row and to column.
    of_m, of_n = (flat(str(each)) for each in copy.tiler_mn)
    m, n = of_m[places % len(of_m)], of_n[places // len(of_m)]
    if halves:
        n = n % width + n // width * (columns // 2)
    return m + rows * n


def flat(text):
    """Return the offsets of a layout's printout."""
    shape, stride = map(ast.literal_eval, text.split(":"))
    return walk(shape, stride)


def table(text):
    """Return a (thread, value) layout's printout as offsets, int[thread, value]."""
    shape, stride = map(ast.literal_eval, text.split(":"))
    return walk(shape[0], stride[0])[:, None] + walk(shape[1], stride[1])


def walk(shape, stride):
    """Return the offsets of a mode."""
    if not isinstance(shape, tuple):
        return np.arange(shape) * stride
    column = np.zeros(1, int)
    for part, step in zip(shape, stride, strict=True):
        column = (walk(part, step)[:, None] + column).ravel()
    return column
