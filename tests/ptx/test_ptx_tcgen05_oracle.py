"""The CuTe DSL and MMA-Sim as oracles of `tcgen05`: layouts, descriptors, and the bits of sums.

Layouts are traced in a bare MLIR context: no compilation, no GPU. Each comparison is of every element of a layout.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.ptx.arithmetic.tensor_core import (
    ELEMENT_TYPES,
    BlockFactors,
    factor_of,
    multiply_grouped,
    multiply_tcgen05,
)
from cutegen.ptx.machine.descriptor import Descriptor, decode_instruction
from cutegen.ptx.machine.tensor_memory import COPY_SHAPES, SHAPES, accumulator_pieces, factor_words, warp_words
from tests.seeding import new_generator

COLUMNS = {1: range(16, 257, 16), 2: range(32, 257, 32)}


@pytest.fixture(scope="module")
def dsl() -> Iterator[SimpleNamespace]:
    """The DSL's modules, inside a context in which layouts can be made, whatever GPU is there.

    The DSL reads CUTE_DSL_ARCH when it is imported, which another test may have done first: the target is set in it.
    """
    from cutlass.base_dsl.dsl import BaseDSL

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDSL._get_dsl().envar, "arch", "sm_100a")
        yield from _modules()


def _modules() -> Iterator[SimpleNamespace]:
    import cutlass
    from cutlass import cute
    from cutlass._mlir import ir
    from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
    from cutlass.experimental import primitives
    from cutlass.utils import blockscaled_layout

    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield SimpleNamespace(
                cutlass=cutlass,
                cute=cute,
                tcgen05=tcgen05,
                major=OperandMajorMode,
                primitives=primitives,
                scales=blockscaled_layout,
                groups={1: tcgen05.CtaGroup.ONE, 2: tcgen05.CtaGroup.TWO},
            )


def offsets(text: str) -> list[np.ndarray]:
    """A layout's printout, evaluated: for each mode the offsets of its indices, the first coordinate fastest."""

    def walk(shape: Any, stride: Any) -> np.ndarray:
        if not isinstance(shape, tuple):
            return np.arange(shape) * stride
        found = np.zeros(1, int)
        for part, step in zip(shape, stride, strict=True):
            found = (walk(part, step)[:, None] + found).ravel()
        return found

    shape, stride = (ast.literal_eval(part) for part in text.split(":"))
    return [walk(part, step) for part, step in zip(shape, stride, strict=True)]


def split(text: str) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of the first mode of a fragment, ((rows, columns), 1, ...): offsets of each."""
    shape, stride = (ast.literal_eval(part) for part in text.split(":"))
    parts = [f"({shape[0][i]},1):({stride[0][i]},0)" for i in range(2)]
    return offsets(parts[0])[0], offsets(parts[1])[0]


def mma(dsl: SimpleNamespace, m: int, n: int, ctas: int, source: str = "SMEM") -> Any:
    kind, tcgen05 = dsl.cutlass.Float16, dsl.tcgen05
    op = tcgen05.MmaF16BF16Op(
        kind,
        dsl.cutlass.Float32,
        (m, n, 16),
        dsl.groups[ctas],
        getattr(tcgen05.OperandSource, source),
        dsl.major.K,
        dsl.major.K,
    )
    return dsl.cute.make_tiled_mma(op)


@pytest.mark.dsl
@pytest.mark.parametrize(("m", "ctas"), [(128, 1), (64, 1), (128, 2), (256, 2)])
def test_accumulators_are_where_the_dsl_has_them(dsl: SimpleNamespace, m: int, ctas: int) -> None:
    for n in COLUMNS[ctas]:
        tiled = mma(dsl, m, n, ctas)
        text = str(tiled.make_fragment_C(tiled.partition_shape_C((m, n))).layout)
        rows, columns = split(text)
        theirs = rows[:, None] + columns
        ours = np.full(theirs.shape, -1)
        for piece in accumulator_pieces(m, n, ctas, 0, 0):
            lanes, words = piece.region.lanes, piece.region.columns
            lane = np.arange(128)[lanes] if isinstance(lanes, slice) else np.asarray(lanes)
            assert isinstance(words, slice)
            ours[piece.rows, piece.columns] = lane[:, None] << 16 | np.arange(words.start, words.stop)
        assert (ours == theirs).all(), (m, n, ctas)


@pytest.mark.dsl
@pytest.mark.parametrize(("m", "ctas"), [(128, 1), (64, 1), (256, 2)])
def test_a_in_tensor_memory_is_where_the_dsl_has_it(dsl: SimpleNamespace, m: int, ctas: int) -> None:
    for n in COLUMNS[ctas]:
        tiled = mma(dsl, m, n, ctas, "TMEM")
        rows, columns = split(str(tiled.make_fragment_A(tiled.partition_shape_A((m, 64))).layout))
        halves = rows[:, None] + columns  # in elements of 16 bits
        (piece,) = accumulator_pieces(m, 8, ctas, 0, 0)
        lanes = piece.region.lanes
        lane = np.arange(128)[lanes] if isinstance(lanes, slice) else np.asarray(lanes)
        assert (halves >> 1 == (lane[:, None] << 16 | np.arange(16) // 2)).all()


@pytest.mark.dsl
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("name", ["Ld", "St"])
def test_loads_and_stores_have_the_dsls_words(dsl: SimpleNamespace, shape: str, name: str) -> None:
    for power in range(8):
        times = 1 << power
        if times > SHAPES[shape][1]:
            continue
        op = getattr(dsl.tcgen05, f"{name}{shape}Op")(getattr(dsl.tcgen05.Repetition, f"x{times}"))
        for bits in (32, 16):
            atom = dsl.cute.make_copy_atom(op, dsl.cutlass.Float32 if bits == 32 else dsl.cutlass.Float16)
            threads, values = offsets(str(atom.layout_dst_tv if name == "Ld" else atom.layout_src_tv))
            words = (threads[None] + values[:: 32 // bits, None]) * bits // 32  # (registers, lanes), in words
            lane, column = warp_words(shape, times, times if shape == "16x32bx2" else 0)
            width = int(column.max()) + 1
            assert (words == lane * width + column).all(), (name, shape, times, bits)


KINDS = {
    "MN_INTER": (False, 0, 16),
    "MN_SW32": (False, 32, 16),
    "MN_SW64": (False, 64, 16),
    "MN_SW128": (False, 128, 16),
    "MN_SW128_32B": (False, 128, 32),
    "K_INTER": (True, 0, 16),
    "K_SW32": (True, 32, 16),
    "K_SW64": (True, 64, 16),
    "K_SW128": (True, 128, 16),
}


@pytest.mark.dsl
@pytest.mark.parametrize("kind", list(KINDS))
def test_descriptors_refer_to_the_bytes_of_the_dsls_atoms(dsl: SimpleNamespace, kind: str) -> None:
    """64 rows and 128 bytes of K of the atom, tiled along the rows first: every step of an instruction's 32 bytes."""
    k_major, swizzle, atom_bytes = KINDS[kind]
    types = {1: dsl.cutlass.Int8, 2: dsl.cutlass.Float16, 4: dsl.cutlass.Float32}
    for item, element in types.items():
        if atom_bytes == 32 and item != 4:
            continue
        rows, depth = 128, 128 // item
        atom = dsl.tcgen05.make_smem_layout_atom(getattr(dsl.tcgen05.SmemLayoutAtomKind, kind), element)
        tiled = str(dsl.cute.tile_to_shape(atom, (rows, depth), (0, 1)))
        match = re.fullmatch(r"S<(\d),(\d),(\d)> o 0 o (.*)", tiled)
        assert match is not None
        b, base, shift = (int(match[i]) for i in (1, 2, 3))
        of_rows, of_k = offsets(match[4])
        places = (of_rows[:, None] + of_k) * item
        places ^= places >> shift & ((1 << b) - 1) << base
        for step in range(depth * item // 32):
            ours = _chunks(places, item, step, k_major=k_major)
            start, lead, stride = _strides(of_rows * item, of_k * item, step, item, k_major=k_major, swizzle=swizzle)
            found = Descriptor(
                start=start,
                leading_bytes=lead,
                stride_bytes=4 * 128 if atom_bytes == 32 else stride,
                base_offset=0,
                swizzle_bytes=swizzle,
                atom_bytes=atom_bytes,
            ).chunks(rows, k_major=k_major, element_bytes=item)
            assert (found == ours).all(), (kind, item, step)


def test_atoms_of_32_bytes_repeat_every_4_k() -> None:
    """The DSL's atoms are next to each other; a stride between them that is not their size shows where they end."""
    found = Descriptor(
        start=0, leading_bytes=0, stride_bytes=4096, base_offset=0, swizzle_bytes=128, atom_bytes=32
    ).chunks(32, k_major=False, element_bytes=4)
    assert found[:, 0].tolist() == [0, 160, 320, 480, 4096, 4256, 4416, 4576]  # atom 0 of line k is at atom k % 4


def _chunks(places: np.ndarray, item: int, step: int, *, k_major: bool) -> np.ndarray:
    """The first byte of each 16-byte chunk of a step, as `Descriptor.chunks` orders them."""
    depth, per = 32 // item, 16 // item
    of_step = places[:, step * depth : step * depth + depth]
    return of_step[:, ::per] if k_major else of_step[::per].T


def _strides(rows: np.ndarray, k: np.ndarray, step: int, item: int, *, k_major: bool, swizzle: int) -> tuple[int, ...]:
    """(start, LBO, SBO) of a step, from distances in the layout without its swizzle."""
    start = int(k[step * 32 // item])
    if k_major:
        return start, int(k[16 // item]), int(rows[8])
    span = max(swizzle, 16) // item
    across, along = int(rows[span]) if len(rows) > span else 0, int(k[8])
    return (start, along, across) if swizzle == 0 else (start, across, along)


@pytest.mark.dsl
@pytest.mark.parametrize("ctas", [1, 2])
def test_instruction_descriptors_are_the_dsls(dsl: SimpleNamespace, ctas: int) -> None:
    of = {
        "f16": {"f16": dsl.cutlass.Float16, "bf16": dsl.cutlass.BFloat16},
        "tf32": {"tf32": dsl.cutlass.Float32},
        "f8f6f4": {
            "e4m3": dsl.cutlass.Float8E4M3FN,
            "e5m2": dsl.cutlass.Float8E5M2,
        },
        "i8": {"s8": dsl.cutlass.Int8, "u8": dsl.cutlass.Uint8},
    }
    rng = np.random.default_rng(11)
    places = {1: (64, 128), 2: (128, 256)}[ctas]
    for (kind, a, b), m, n in product(_pairs(of), places, list(COLUMNS[ctas])[::2]):
        types, signed = of[kind], kind != "i8"
        name, sums = ("f32", dsl.cutlass.Float32) if signed else ("s32", dsl.cutlass.Int32)
        signs = rng.integers(0, 2, 2).tolist() if signed else [0, 0]
        majors = rng.integers(0, 2, 2).tolist()
        built = dsl.primitives.Tcgen05InstrDesc.build(
            c_dtype=sums,
            a_dtype=types[a],
            b_dtype=types[b],
            a_negate=signs[0],
            b_negate=signs[1],
            a_major=majors[0],
            b_major=majors[1],
            n_dim=n,
            m_dim=m,
        )
        found = decode_instruction(kind, int(built.value) & 0xFFFFFFFF, ctas)
        assert (found.a, found.b, found.d, found.m, found.n) == (a, b, name, m, n)
        assert [found.negates_a, found.negates_b] == signs
        assert [found.transposes_a, found.transposes_b] == majors


def _pairs(of: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """(kind, A's type, B's type), as far as the DSL mixes them."""
    for kind, types in of.items():
        for a, b in product(types, types):
            if a == b or kind == "i8" or {a, b} == {"e4m3", "e5m2"}:
                yield kind, a, b


@pytest.mark.dsl
@pytest.mark.parametrize("ctas", [1, 2])
def test_instruction_descriptors_with_factors_are_the_dsls(dsl: SimpleNamespace, ctas: int) -> None:
    """Of every pair of types; the majors of 8-bit ones, signs, shapes and bytes of factors are drawn."""
    types = {
        "e4m3": dsl.cutlass.Float8E4M3FN,
        "e5m2": dsl.cutlass.Float8E5M2,
        "e2m3": dsl.cutlass.Float6E2M3FN,
        "e3m2": dsl.cutlass.Float6E3M2FN,
        "e2m1": dsl.cutlass.Float4E2M1FN,
    }
    rng, wide = new_generator(), {"e4m3", "e5m2"}
    for a, b in product(types, types):
        signs, (a_id, b_id) = rng.integers(0, 2, 2).tolist(), rng.integers(0, 4, 2).tolist()
        majors = rng.integers(0, 2, 2).tolist() if {a, b} <= wide else [0, 0]
        m, n = int(rng.choice([128, 256][:ctas])), int(rng.integers(1, 17)) * 16
        built = dsl.primitives.Tcgen05MxInstrDesc.build(
            a_dtype=types[a],
            b_dtype=types[b],
            a_sf_id=a_id,
            b_sf_id=b_id,
            a_negate=signs[0],
            b_negate=signs[1],
            a_major=majors[0],
            b_major=majors[1],
            n_dim=n,
            m_dim=m,
        )
        found = decode_instruction("mxf8f6f4", int(built.value) & 0xFFFFFFFF, ctas)
        assert (found.a, found.b, found.d, found.m, found.n, found.factors) == (a, b, "f32", m, n, "ue8m0")
        assert (found.a_id, found.b_id) == (a_id, b_id)
        assert [found.negates_a, found.negates_b, found.transposes_a, found.transposes_b] == signs + majors


@pytest.mark.dsl
def test_instruction_descriptors_are_those_that_the_dsls_compiler_writes(tmp_path: Path) -> None:
    """114 multiplications of 4-, 6- and 8-bit types, with and without factors; ids are the top bits of an address."""
    script = Path(__file__).with_name("umma_descriptors.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert len(facts) == 114
    for fact in facts:
        kind = re.search(r"kind::(\w+)", fact["opcode"])
        assert kind is not None
        assert kind[1] == ("mxf4nvf4" if fact["kind"] == "mxf4" else fact["kind"])  # as which the DSL writes mxf4
        found = decode_instruction(kind[1], fact["bits"], fact["ctas"])
        for name in ("a", "b", "d", "m", "n", "factors"):
            assert getattr(found, name) == fact[name], fact
        assert [found.a_id, found.b_id] == fact["ids"]
        if fact["factors"] is not None:
            assert [address >> 30 for address in fact["addresses"]] == fact["ids"]


COPIES = {
    "Cp128x256bOp": ("128x256b", None),
    "Cp128x128bOp": ("128x128b", None),
    "Cp4x32x128bOp": ("32x128b", "warpx4"),
    "Cp2x64x128b0213Op": ("64x128b", "warpx2::02_13"),
    "Cp2x64x128b0123Op": ("64x128b", "warpx2::01_23"),
}


@pytest.mark.dsl
@pytest.mark.parametrize("name", COPIES)
def test_copies_read_as_many_words_and_write_them_as_often_as_the_dsls(dsl: SimpleNamespace, name: str) -> None:
    """The DSL's printout does not say which lane receives a row: for that there is the ISA's text."""
    atom = dsl.cute.make_copy_atom(getattr(dsl.tcgen05, name)(dsl.groups[1]), dsl.cutlass.Float32)
    _, read = offsets(str(atom.layout_src_tv))
    _, written = offsets(str(atom.layout_dst_tv))
    shape = COPY_SHAPES[COPIES[name]]
    words = shape.rows * shape.row_bytes // 4
    times = sum(rows for _, _, rows in shape.lanes) // shape.rows
    assert (np.bincount(read) == np.full(words, times)).all()
    assert (np.bincount(written) == np.ones(words * times, int)).all()


@pytest.mark.dsl
@pytest.mark.parametrize("size", [16, 32])
def test_factors_are_where_the_dsls_atom_and_copy_leave_them(dsl: SimpleNamespace, size: int) -> None:
    """The 512 bytes of 128 rows and 4 factors go to 32 lanes and 4 columns: row r to lane r % 32, column r // 32."""
    chunk = dsl.scales.BlockScaledBasicChunk(size)
    rows, factors = offsets(str(chunk.layout))
    for first in range(0, 128, 32):
        region = factor_words(128, first, halves=False)
        lanes, columns = np.broadcast_arrays(region.lanes, region.columns)
        for row in range(128):
            for factor in range(4):
                place = int(rows[row]) + int(factors[factor * size])  # byte of shared memory
                lane, byte = divmod(place, 16)  # the copy: 16 bytes of each of 32 lanes
                assert (lanes[:, row] % 32 == lane).all()
                assert (columns[:, row] == first + byte // 4).all()
                assert byte % 4 == factor


@pytest.fixture(scope="module")
def simulator() -> Any:
    """MMA-Sim: a model of tensor cores that was measured on hardware. Its import compiles a file of C++."""
    pytest.importorskip("torch")
    if shutil.which("c++") is None:
        pytest.skip("MMA-Sim needs a C++ compiler")
    with pytest.MonkeyPatch.context() as patch:  # another test may have imported distutils before setuptools does
        patch.setenv("SETUPTOOLS_USE_DISTUTILS", "stdlib")
        return pytest.importorskip("mmasim.nv_ptx.sim")


_TORCH = {
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "ue8m0": "float8_e8m0fnu",
}
PLAIN = [
    ("f16", "f16", "f16", "f32"),
    ("f16", "bf16", "bf16", "f32"),
    ("f16", "f16", "f16", "f16"),
    ("tf32", "tf32", "tf32", "f32"),
    *(
        ("f8f6f4", a, b, d)
        for a in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
        for b in ("e4m3", "e2m1")
        for d in ("f32", "f16")
    ),
]


def tensor_of(codes: np.ndarray, name: str) -> Any:
    import torch

    if name == "e2m1":
        codes = codes << 2  # the simulator has 4 bits in the middle of a byte
    whole = torch.from_numpy(
        np.ascontiguousarray(codes).view({1: np.uint8, 2: np.int16, 4: np.float32}[codes.itemsize])
    )
    if name == "ue4m3":
        return whole.view(torch.float8_e4m3fn)
    return whole.view(getattr(torch, _TORCH[name])) if name in _TORCH else whole


@pytest.mark.parametrize(("kind", "a", "b", "d"), PLAIN, ids=lambda each: each)
def test_sums_have_the_bits_that_were_measured(simulator: Any, kind: str, a: str, b: str, d: str) -> None:
    """Random bits, infinities and NaNs among them."""
    import torch

    depth = {"f16": 16, "tf32": 8, "f8f6f4": 32}[kind]
    rng = new_generator()
    left, right = (_random_codes(rng, name, (64, depth)) for name in (a, b))
    c = (rng.standard_normal((64, 64)) * np.exp2(rng.integers(-14, 12, (64, 64)))).astype(
        {"f32": np.float32, "f16": np.float16}[d]
    )
    c[rng.random(c.shape) < 0.1] = 0
    measured = simulator.TCGen05MMA("Blackwell", f"m64n64k{depth}.kind::{kind}.{d}.{a}.{b}")
    theirs = measured(tensor_of(left, a), tensor_of(right, b).T, torch.from_numpy(c)).numpy()
    with np.errstate(all="ignore"):
        ours = multiply_tcgen05(factor_of(ELEMENT_TYPES[a], left), factor_of(ELEMENT_TYPES[b], right), c)
    bits = {"f32": np.uint32, "f16": np.uint16}[d]
    assert (ours.view(bits) == theirs.view(bits)).all()


def _random_codes(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> np.ndarray:
    bits = ELEMENT_TYPES[name].bits
    dtype = {16: np.uint16, 32: np.uint32}.get(bits, np.uint8)
    return rng.integers(0, 1 << bits, shape, dtype=np.uint64).astype(dtype)


SCALED = [
    ("mxf8f6f4", "e4m3", "e4m3", "block32", "ue8m0", 32, 1),
    ("mxf8f6f4", "e5m2", "e3m2", "block32", "ue8m0", 32, 1),
    ("mxf8f6f4", "e2m1", "e5m2", "block32", "ue8m0", 32, 1),
    ("mxf4", "e2m1", "e2m1", "block32", "ue8m0", 64, 2),
    ("mxf4nvf4", "e2m1", "e2m1", "block16", "ue4m3", 64, 4),
    ("mxf4nvf4", "e2m1", "e2m1", "block16", "ue8m0", 64, 4),
]


@pytest.mark.parametrize(("kind", "a", "b", "block", "scale", "depth", "blocks"), SCALED, ids=lambda each: str(each))
def test_scaled_sums_have_the_bits_that_were_measured(
    simulator: Any, kind: str, a: str, b: str, block: str, scale: str, depth: int, blocks: int
) -> None:
    """Random bits of operands, and factors of wide ranges, NaNs among them."""
    import torch

    rng = new_generator()
    packed, shape = depth == 64, f"m128n64k{depth}.kind::{kind}.{block}.f32.{a}.{b}.{scale}"
    codes = [rng.integers(0, 256, (rows, 32)).astype(np.uint8) for rows in (128, 64)]
    if not packed:
        codes = [_random_codes(rng, name, (rows, 32)) for name, rows in ((a, 128), (b, 64))]
    low, high = (80, 170) if scale == "ue8m0" else (0, 128)
    factors = [rng.integers(low, high, (rows, blocks)).astype(np.uint8) for rows in (128, 64)]
    factors[0][5, 0] = 0xFF if scale == "ue8m0" else 0x7F
    c = (rng.standard_normal((128, 64)) * np.exp2(rng.integers(-20, 20, (128, 64)))).astype(np.float32)
    of_them = [torch.from_numpy(each) if packed else tensor_of(each, n) for each, n in zip(codes, (a, b), strict=True)]
    of_factors = [tensor_of(each, scale) for each in factors]
    measured = simulator.TCGen05MMABlockScale("Blackwell", shape)
    theirs = measured(of_them[0], of_them[1].T, torch.from_numpy(c), of_factors[0], of_factors[1].T).numpy()
    decoded = tuple(getattr(BlockFactors, scale)(each.T) for each in factors)
    with np.errstate(all="ignore"):
        if packed:
            values = [np.stack([each & 15, each >> 4], -1).reshape(len(each), -1) for each in codes]
            left, right = (factor_of(ELEMENT_TYPES["e2m1"], each).values for each in values)
            ours = multiply_grouped(left, right, decoded, c)
        else:
            left, right = (factor_of(ELEMENT_TYPES[n], each) for n, each in zip((a, b), codes, strict=True))
            ours = multiply_tcgen05(left, right, c, decoded)
    assert (ours.view(np.uint32) == theirs.view(np.uint32)).all()
