"""Operations of the tensor core on tensor memory: `tcgen05.mma`, `tcgen05.cp`, `tcgen05.shift`.

An operation is checked when a thread issues it, for every word and byte that it concerns, and executed later, when
`TensorUnit` says so. Of two CTAs that multiply together, each has its rows of A and half of B's columns at the same
descriptor, and receives its rows of D.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions": `tcgen05.mma`, `tcgen05.cp`, `tcgen05.shift`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic import tensor_core
from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.machine import tensor_memory
from cutegen.ptx.machine.descriptor import (
    K_BYTES,
    PACKED_KINDS,
    InstructionDescriptor,
    decode_instruction,
    tcgen05_chunks,
)
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.tensor_order import COLUMNS, LANES, Region, TensorAccess, Way
from cutegen.ptx.watch.violations import ViolationKind

if TYPE_CHECKING:
    from cutegen.ptx.machine.cta import Cta

_COLUMN_MASK, _FACTOR_ADDRESS_MASK = (1 << tensor_memory.LANE_SHIFT) - 1, 0x3FFFFFFF
_WORD_BYTES = 4
_CHUNK_BYTES = 16
_A_COLUMNS = K_BYTES // _WORD_BYTES
_SHIFTED_COLUMNS = 8
_NARROW_BYTES = {"e2m1": 8, "e2m3": 12, "e3m2": 12}
"""Bytes that hold values, of the 16 bytes of 16 elements; the rest pads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaOperands:
    """The operands of one `tcgen05.mma`: addresses in tensor memory, descriptors, and what it does to D.

    `a_address` is A's place in tensor memory, or None if `a` is its descriptor. `disabled` marks the lanes of D that
    are not written, or is None. `factors` are the addresses of A's and B's.
    """

    d: int
    a: int
    b: int
    a_address: int | None
    instruction: int
    accumulates: bool
    disabled: npt.NDArray[np.bool_] | None = None
    factors: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaForm:
    """A `tcgen05.mma` as its text gives it: its kind, the CTAs of its group, and blocks of factors per row."""

    kind: str
    ctas: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of one CTA of the group: the words of its rows of D, its chunks of A and B, its factors."""

    cta: Cta
    memory: tensor_memory.TensorMemory
    pieces: tuple[tensor_memory.Piece, ...]
    a: Array | Region
    b: Array
    factors: tuple[Region, Region] | None


def issue_mma(warp: Warp, site: int, form: MmaForm, operands: MmaOperands) -> None:
    """The only active lane of `warp` issues a multiplication."""
    ctas = warp.cta.cluster.tensor.group_of(warp, site, form.ctas)
    try:
        instruction = decode_instruction(form.kind, operands.instruction, form.ctas)
        parts = [_part(cta, form, instruction, operands) for cta in ctas]
    except ValueError as error:
        _refuse(warp, site, str(error))
        return
    _check_factors(warp, site, form, instruction)
    unit = warp.cta.cluster.tensor
    column = operands.d & _COLUMN_MASK
    accumulator = form.kind, instruction.m, instruction.n, form.ctas, column, operands.d >> tensor_memory.LANE_SHIFT
    access = unit.order.access(warp, site, Way.MMA, accumulator)
    reader = unit.order.access(warp, site, Way.MMA)
    for part in parts:
        _begin(part, reader, access, accumulates=operands.accumulates)
    unit.issue(partial(_execute, warp, site, form, instruction, operands, parts), warp.cta.schedule)


def issue_copy(warp: Warp, site: int, shape: tensor_memory.CopyShape, ctas: int, address: int, descriptor: int) -> None:
    """The only active lane of `warp` issues a copy from shared to tensor memory."""
    unit, column, lane = warp.cta.cluster.tensor, address & _COLUMN_MASK, address >> tensor_memory.LANE_SHIFT
    members = unit.group_of(warp, site, ctas)
    width = shape.row_bytes // _WORD_BYTES
    try:
        chunks = tcgen05_chunks(descriptor, shape.rows, k_major=True, element_bytes=1)
    except ValueError as error:
        _refuse(warp, site, f"a matrix descriptor of {error}")
        return
    if lane or column + width > COLUMNS:
        _refuse(warp, site, f"a copy to lane {lane}, column {column}; expected lane 0, and {width} columns")
        return
    source = chunks[:, : shape.row_bytes // _CHUNK_BYTES]
    access = unit.order.access(warp, site, Way.COPY)
    for cta in members:
        memory = unit.memory(cta.rank)
        _read_shared(warp, site, cta, source, access)
        for _, first, rows in shape.lanes:
            memory.shadow.write(access, Region(slice(first, first + rows), slice(column, column + width)))

    def execute() -> None:
        for cta in members:
            words = unit.memory(cta.rank).words
            rows = cta.shared.tensor_core_peek(source).view(np.uint32).reshape(shape.rows, width)
            for of, first, count in shape.lanes:
                words[first : first + count, column : column + width] = rows[of : of + count]

    unit.issue(execute, warp.cta.schedule)


def issue_shift(warp: Warp, site: int, ctas: int, address: int) -> None:
    """The only active lane of `warp` issues a shift of 32 bytes of each row, to the row above it.

    The last row of 32 stays: this is what `.ashift` was seen to do on a B200 (CUTLASS, a comment in an example).
    """
    unit, column, lane = warp.cta.cluster.tensor, address & _COLUMN_MASK, address >> tensor_memory.LANE_SHIFT
    members = unit.group_of(warp, site, ctas)
    if lane % 32 or lane >= LANES or column + _SHIFTED_COLUMNS > COLUMNS:
        _refuse(warp, site, f"a shift at lane {lane}, column {column}; expected a lane of 0, 32, 64 or 96")
        return
    region = Region(slice(lane, LANES), slice(column, column + _SHIFTED_COLUMNS))
    access = unit.order.access(warp, site, Way.SHIFT)
    for cta in members:
        memory = unit.memory(cta.rank)
        memory.shadow.read(access, region, also_written=True)
        memory.shadow.write(access, region)

    def execute() -> None:
        for cta in members:
            words = unit.memory(cta.rank).words
            moved = words[region.index].reshape(-1, 32, _SHIFTED_COLUMNS)
            moved[:, :-1] = moved[:, 1:].copy()
            words[region.index] = moved.reshape(-1, _SHIFTED_COLUMNS)

    unit.issue(execute, warp.cta.schedule)


def _refuse(warp: Warp, site: int, message: str) -> None:
    warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message)


def _check_factors(warp: Warp, site: int, form: MmaForm, found: InstructionDescriptor) -> None:
    """The type of the factors, and the bytes where they begin, must go with the number of blocks."""
    if found.factors is None:
        return
    ids = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[form.blocks]
    if found.a_id not in ids or found.b_id not in ids:
        message = f"factors begin at bytes {found.a_id} and {found.b_id}; with {form.blocks} per row they begin at"
        _refuse(warp, site, f"{message} {' or '.join(map(str, ids))}")
    if found.factors == "ue4m3" and form.blocks != 4:
        _refuse(warp, site, f"factors of ue4m3 with {form.blocks} per row; they take 4, .block16")


def _part(cta: Cta, form: MmaForm, found: InstructionDescriptor, given: MmaOperands) -> _Part:
    rows, columns, width = found.m // form.ctas, found.n // form.ctas, found.element_bytes
    lane, column = given.d >> tensor_memory.LANE_SHIFT, given.d & _COLUMN_MASK
    pieces = tensor_memory.accumulator_pieces(found.m, found.n, form.ctas, lane, column)
    if given.a_address is not None:
        a: Array | Region = _rows_of_a(found, form, given.a_address)
    else:
        a = tcgen05_chunks(given.a, rows, k_major=not found.transposes_a, element_bytes=width)
    b = tcgen05_chunks(given.b, columns, k_major=not found.transposes_b, element_bytes=width)
    for descriptor, transposes in ((given.a, found.transposes_a), (given.b, found.transposes_b)):
        if descriptor is given.a and given.a_address is not None:
            continue
        _check_atoms(descriptor, found, transposes=transposes)
    factors = None
    if given.factors is not None:
        halves = form.ctas == 2 and found.m == LANES
        places = [address & _FACTOR_ADDRESS_MASK for address in given.factors]
        if any(place >> tensor_memory.LANE_SHIFT for place in places):
            raise ValueError(
                f"factors at lane {max(place >> tensor_memory.LANE_SHIFT for place in places)}; expected lane 0"
            )
        factors = (
            tensor_memory.factor_words(rows, places[0], halves=False),
            tensor_memory.factor_words(found.n, places[1], halves=halves),
        )
        if any(region.column_range()[1] > COLUMNS for region in factors):
            raise ValueError("factors beyond the last column of tensor memory")
    memory = cta.cluster.tensor.memory(cta.rank)
    return _Part(cta=cta, memory=memory, pieces=pieces, a=a, b=b, factors=factors)


def _check_atoms(descriptor: int, found: InstructionDescriptor, *, transposes: bool) -> None:
    """32-bit elements that are not K-major have the swizzle of 32-byte atoms, and no others have it."""
    has_atoms = descriptor >> 61 == 1
    if has_atoms != (transposes and found.element_bytes == 4):
        which = "M- or N-major" if transposes else "K-major"
        has = "the swizzle of 32-byte atoms" if has_atoms else "a swizzle other than that of 32-byte atoms"
        raise ValueError(f"a {which} operand of {found.element_bytes}-byte elements with {has}, which does not exist")


def _rows_of_a(found: InstructionDescriptor, form: MmaForm, address: int) -> Region:
    """A's words in tensor memory: one row per lane; of a pair with M = 128, its 64 rows are there twice."""
    lane, column = address >> tensor_memory.LANE_SHIFT, address & _COLUMN_MASK
    rows = found.m // form.ctas
    if found.transposes_a:
        raise ValueError("A in tensor memory that is not K-major, which does not exist")
    if found.a in _NARROW_BYTES and found.kind not in PACKED_KINDS:
        raise ValueError(f"A of {found.a} in tensor memory, which is not supported")
    if column + _A_COLUMNS > COLUMNS:
        raise ValueError(f"A takes columns {column} to {column + _A_COLUMNS - 1} of tensor memory")
    if rows == LANES or form.ctas == 2:
        if lane:
            raise ValueError(f"A is at lane {lane} of tensor memory; expected 0")
        return Region(slice(0, LANES), slice(column, column + _A_COLUMNS))
    return tensor_memory.accumulator_pieces(found.m, _A_COLUMNS, form.ctas, lane, column)[0].region


def _read_shared(warp: Warp, site: int, cta: Cta, chunks: Array, access: TensorAccess) -> None:
    """The tensor core begins to read shared memory of `cta`."""
    cta.shared.begin_tensor_core_read([warp], site, chunks.reshape(-1), access.agent, access.thread)
    if cta is not warp.cta:
        cta.remote_smem_accesses.access(warp, site, access.thread, int(chunks.flat[0]), agent=access.agent)


def _begin(part: _Part, reader: TensorAccess, access: TensorAccess, *, accumulates: bool) -> None:
    """The operation may access its operands from now on."""
    warp, site = access.warp, access.site
    assert isinstance(warp, Warp)
    chunks = [part.b] if isinstance(part.a, Region) else [part.a, part.b]
    for each in chunks:
        _read_shared(warp, site, part.cta, each, reader)
    if isinstance(part.a, Region):
        part.memory.shadow.read(reader, part.a)
    for region in part.factors or ():
        part.memory.shadow.read(reader, region)
    for piece in part.pieces:
        if accumulates:
            part.memory.shadow.read(access, piece.region, also_written=True)
        part.memory.shadow.write(access, piece.region)


def _execute(
    warp: Warp,
    site: int,
    form: MmaForm,
    found: InstructionDescriptor,
    given: MmaOperands,
    parts: Sequence[_Part],
) -> None:
    """D of each CTA, from the current values of the operands."""
    codes = [_codes(part, part.b, found, found.b, k_major=not found.transposes_b) for part in parts]
    b = np.concatenate(codes) if len(codes) > 1 else codes[0]
    compute = _computation(found, form, b)
    for rank, part in enumerate(parts):
        if isinstance(part.a, Region):
            a = _codes_of_words(part.memory.words[part.a.index], found)[: found.m // form.ctas]
        else:
            a = _codes(part, part.a, found, found.a, k_major=not found.transposes_a)
        old = _accumulator(part, found) if given.accumulates else None
        factors = _factors(warp, site, form, found, part)
        new = compute(a, old, factors)
        _write(part, found, new, _disabled_rows(given.disabled, rank, len(parts)))


def _disabled_rows(disabled: npt.NDArray[np.bool_] | None, rank: int, ctas: int) -> npt.NDArray[np.bool_] | None:
    return None if disabled is None else disabled.reshape(ctas, -1)[rank]


def _codes(part: _Part, chunks: Array, found: InstructionDescriptor, name: str, *, k_major: bool) -> Array:
    """The elements (rows, K) of an operand in shared memory, as stored bits."""
    data = part.cta.shared.tensor_core_peek(chunks)
    if not k_major:
        element = np.dtype(f"u{found.element_bytes}")
        return data.view(element).reshape(len(chunks), -1).T
    rows = data.view(np.uint8).reshape(len(chunks), K_BYTES)
    if found.kind in PACKED_KINDS:
        return _nibbles(rows)
    if name in _NARROW_BYTES:
        slots = rows.reshape(len(rows), 2, _CHUNK_BYTES)[:, :, : _NARROW_BYTES[name]].reshape(len(rows), -1)
        return _nibbles(slots) if name == "e2m1" else _six_bits(slots)
    return rows.view(f"u{found.element_bytes}")


def _codes_of_words(words: Array, found: InstructionDescriptor) -> Array:
    """The elements (lanes, K) of A in tensor memory."""
    rows = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), K_BYTES)
    return _nibbles(rows) if found.kind in PACKED_KINDS else rows.view(f"u{found.element_bytes}")


def _nibbles(rows: Array) -> Array:
    """Two 4-bit values of each byte, the low one first."""
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)


def _six_bits(rows: Array) -> Array:
    """Four 6-bit values of each three bytes, from the lowest bit up."""
    parts = rows.reshape(len(rows), -1, 3).astype(np.uint32)
    packed = parts[:, :, 0] | parts[:, :, 1] << 8 | parts[:, :, 2] << 16
    return np.stack([packed >> 6 * i & 63 for i in range(4)], axis=-1).reshape(len(rows), -1)


def _accumulator(part: _Part, found: InstructionDescriptor) -> Array:
    """The CTA's rows of D: float32, float16 or int32."""
    rows = sum(piece.rows.stop - piece.rows.start for piece in part.pieces if piece.columns.start == 0)
    words = np.empty((rows, found.n), np.uint32)
    for piece in part.pieces:
        words[piece.rows, piece.columns] = part.memory.words[piece.region.index]
    if found.d == "f16":
        return tensor_memory.halves_of(words)
    return words.view({"f32": np.float32, "s32": np.int32}[found.d])


def _write(part: _Part, found: InstructionDescriptor, new: Array, disabled: npt.NDArray[np.bool_] | None) -> None:
    """Writes D; a lane that is `disabled` keeps its words."""
    words = new.view(np.uint16).astype(np.uint32) if found.d == "f16" else new.view(np.uint32)
    for piece in part.pieces:
        values = words[piece.rows, piece.columns]
        if disabled is None:
            part.memory.words[piece.region.index] = values
            continue
        lanes = piece.region.lanes
        keeps = disabled[lanes] if isinstance(lanes, slice) else disabled[np.asarray(lanes).reshape(-1)]
        old = part.memory.words[piece.region.index]
        part.memory.words[piece.region.index] = np.where(keeps[:, None], old, values)


_FactorsOfBoth = tuple[tensor_core.BlockFactors, tensor_core.BlockFactors] | None
_Compute = Callable[[Array, Array | None, _FactorsOfBoth], Array]


def _computation(found: InstructionDescriptor, form: MmaForm, b: Array) -> _Compute:
    """The function from A's codes, the accumulator (None: zeros) and the factors to the new accumulator."""
    if found.kind == "i8":
        right = b.view(np.int8) if found.b == "s8" else b
        return lambda a, old, _: tensor_core.multiply_wide_integers(
            a.view(np.int8) if found.a == "s8" else a,
            right,
            np.zeros((len(a), len(b)), np.int32) if old is None else old,
            saturate=found.saturates,
        )
    dtype = np.dtype(np.float16 if found.d == "f16" else np.float32)
    of_b = tensor_core.factor_of(tensor_core.ELEMENT_TYPES[found.b], b, negated=found.negates_b)

    def compute(a: Array, old: Array | None, factors: _FactorsOfBoth) -> Array:
        of_a: tensor_core.Factor = tensor_core.factor_of(tensor_core.ELEMENT_TYPES[found.a], a, negated=found.negates_a)
        c = np.zeros((len(a), len(b)), dtype) if old is None else old
        if found.kind in PACKED_KINDS:
            assert factors is not None
            return tensor_core.multiply_grouped(of_a.values, of_b.values, factors, c)
        return tensor_core.multiply_tcgen05(of_a, of_b, c, factors)

    return compute


def _factors(warp: Warp, site: int, form: MmaForm, found: InstructionDescriptor, part: _Part) -> _FactorsOfBoth:
    if part.factors is None:
        return None
    decoded = []
    for region, first in zip(part.factors, (found.a_id, found.b_id), strict=True):
        words = part.memory.words[region.index]
        if (words != words[0]).any():
            row = int(np.argwhere(words != words[0])[0][1])
            _refuse(warp, site, f"the factors of row {row} are not the same in the quarters of tensor memory")
        codes = np.ascontiguousarray(words[0]).view(np.uint8).reshape(-1, _WORD_BYTES)
        chosen = codes[:, first : first + form.blocks].T
        decoded.append(
            (tensor_core.BlockFactors.ue8m0 if found.factors == "ue8m0" else tensor_core.BlockFactors.ue4m3)(chosen)
        )
    return decoded[0], decoded[1]
