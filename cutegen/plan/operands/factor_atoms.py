"""Factors of blocks in atoms of 128 rows by 4 factors: the copies of a k-tile's atoms, and their way to tensor memory.

```text
global memory      atoms of 512 bytes, K first      a box: an atom of each block of rows that a tile meets
shared memory      (rows / 128, 128 words)          a box follows another along K; they ride the pipeline of k-tiles
tensor memory      4 columns for each atom          each stage has its own: a multiplication may still read the others
```

A tile of B whose rows do not fill whole atoms meets as many blocks wherever it begins, and begins at a column.

Groups of K have their atoms in a list, each group those of a block of rows along its K, then of the next block: how far
those are apart only the device knows, so that a box is those of one block of rows.
"""

from collections.abc import Iterator
from math import gcd

from cutegen.algebra import Extents, Layout
from cutegen.contract.launch import OPERANDS
from cutegen.contract.tensor_map import MAX_BOX_ELEMS
from cutegen.hardware import BULK_TENSOR, dtype
from cutegen.hardware.factor_atoms import (
    ATOM_BYTES,
    ATOM_COLUMNS,
    ATOM_ROWS,
    ATOM_WORDS,
    COLUMN_ROWS,
    PER_WORD,
    copy_of,
)
from cutegen.hardware.gmma import INTER, MatrixDescriptor
from cutegen.hardware.tcgen05 import PAIR
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.operands.factors import members_of, most_blocks
from cutegen.plan.operands.shared_memory import SmemRanking, load_of
from cutegen.plan.operands.staging import OperandChoices
from cutegen.plan.smem_layouts import VECTOR_BYTES, LayoutOption, rows_of
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.fragments import CopiedToTmem, Fragments
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import SIDES, OperandTile, SmemCandidate, Wavefronts
from cutegen.plan.values.path import ROWS
from cutegen.spec import MODES, Factors, GemmSpec
from cutegen.support.words import extents, plural

WORDS_OF_ROWS = Layout((COLUMN_ROWS, ATOM_COLUMNS), (ATOM_COLUMNS, 1))
"""Map a row of an atom to its word."""


def atom_descriptor(version: int) -> MatrixDescriptor:
    """Return the matrix descriptor of an atom at address 0: 8 rows of 16 bytes follow one another, unswizzled."""
    return MatrixDescriptor(lbo_bytes=16, sbo_bytes=128, mode=INTER, version=version)


def choose_atoms(spec: GemmSpec, mma: MmaPlan) -> Iterator[OperandChoices[BulkTensorCopy]]:
    """Yield the paths of the factors of A and B, if the spec has them."""
    for name in OPERANDS:
        if (factors := spec.problem.factors(name)) is not None:
            yield _path(spec, name, factors, mma)


def atoms_bytes(spec: GemmSpec, cta_tile: Extents) -> tuple[int, int]:
    """Return the bytes of the atoms of a k-tile that a CTA has of A and of B; 0 if the spec has no factors."""
    (m, n, k), factors, values = cta_tile, spec.problem.scale_a, dtype(spec.problem.a.dtype).values
    if factors is None:
        return 0, 0
    of_block = ATOM_BYTES * (k * values // (factors.block[1] * PER_WORD))
    return of_block * most_blocks(m, ATOM_ROWS), of_block * most_blocks(n, ATOM_ROWS)


def columns_of(factors: OperandChoices[BulkTensorCopy]) -> int:
    """Return the columns of tensor memory that a k-tile of an operand needs; 0 for one that is multiplied."""
    copy = factors.s2r.value.to_tmem
    return 0 if copy is None else copy.columns


def _path(spec: GemmSpec, name: str, factors: Factors, mma: MmaPlan) -> OperandChoices[BulkTensorCopy]:
    x = _tile(spec, name, factors, mma)
    listed = spec.problem.groups is not None and spec.problem.groups.of == "k"
    blocks, along_k = x.extents[0], x.extents[1] // ATOM_WORDS
    # Atoms along K follow one another if a tile has those of one block of rows: a box can have two.
    together = gcd(along_k, MAX_BOX_ELEMS // ATOM_WORDS) if blocks == 1 else 1
    width = ATOM_WORDS * (along_k if listed else together)
    receivers = mma.sharing_factors[OPERANDS.index(name)]
    load = load_of(receivers, of_pair=mma.atom.ctas == PAIR)
    copy = BulkTensorCopy(
        load,
        (width, blocks),
        x.extents[1] // width,
        0,
        modes=x.map_modes,
        receivers=receivers,
        unit_elems=ATOM_WORDS if listed else None,
    )
    chosen = f"{BULK_TENSOR}, a box of {extents(copy.box)} words"
    why = (
        f"one thread issues it with the k-tile of A and B, on the same barrier: {plural(along_k, 'atom')} of "
        f"{ATOM_ROWS} rows by {PER_WORD} factors along K, for each of {plural(blocks, 'block')} of rows"
    )
    if listed:
        why += "; a group has those of a block of rows along its K, then of the next, so each block is a copy"
    if receivers > 1:
        chosen += f" to {receivers} CTAs"
        why += f"; the first of {receivers} CTAs of a cluster that need it copies it to all: atoms are not shared out"
    if mma.atom.ctas == PAIR and name == "b":
        why += "; each CTA of a pair has the factors of all columns, which its rows are multiplied with"
    g2s = Choice(copy, Decision(f"g2s.{x.name}", chosen, why))
    box = rows_of(blocks, width, 1)
    lines = Wavefronts(blocks * along_k * ATOM_BYTES // LINE_BYTES, blocks * along_k * ATOM_BYTES // LINE_BYTES)
    candidate = SmemCandidate(
        name=LayoutOption(box).name,
        atom=box,
        swizzle=None,
        pad_elems=0,
        tile_bytes=blocks * along_k * ATOM_BYTES,
        write=lines,
        read=lines,
    )
    smem = Choice(
        SmemRanking(candidate, (candidate,)),
        Decision(x.smem_key, candidate.name, f"atoms as memory has them, {candidate.tile_bytes:,} bytes per tile"),
    )
    return OperandChoices(x, g2s, _to_tmem(x, mma, listed=listed), smem)


def _tile(spec: GemmSpec, name: str, factors: Factors, mma: MmaPlan) -> OperandTile:
    """Return the tile of words of a k-tile: atoms of one member of pairs follow those of the other."""
    element, key, side = dtype(f"{factors.dtype}x{PER_WORD}"), f"scale_{name}", SIDES[name]
    of_word = factors.block[1] * PER_WORD // mma.atom.a_dtype.values
    blocks = most_blocks(mma.cta_tile[ROWS.index(side)], ATOM_ROWS)
    return OperandTile(
        name=key,
        operand=side,
        dtype=element,
        multiplied=element,
        modes=MODES[name],
        extents=(blocks, mma.cta_tile[2] // of_word * ATOM_WORDS),
        major_mode=1,
        align_bytes=VECTOR_BYTES,
        smem_key=f"smem.{key}",
        requested=(),
        vector_elems=VECTOR_BYTES // element.bytes,
        last_elems=1,
        block=(ATOM_ROWS, of_word),
        block_elems=ATOM_WORDS,
        map_modes=2 + members_of(spec, name),
    )


def _to_tmem(x: OperandTile, mma: MmaPlan, *, listed: bool) -> Choice[Fragments]:
    """Return the copies of a k-tile's atoms: those of all rows, and then of the next K, or of a list the other way."""
    blocks, along_k = x.extents[0], x.extents[1] // ATOM_WORDS
    units = ATOM_BYTES // VECTOR_BYTES
    atoms = Layout((along_k, blocks), (units, along_k * units) if listed else (blocks * units, units))
    first = atom_descriptor(mma.atom.multiply.descriptor_version)
    copy = CopiedToTmem(first=first, atoms=atoms, atom_columns=ATOM_COLUMNS, instruction=copy_of(mma.atom.ctas))
    of_both = " of both CTAs, each from its own stage," if mma.atom.ctas == PAIR else ""
    why = (
        f"the thread that multiplies copies {plural(blocks * along_k, 'atom')} to {copy.columns} columns{of_both} "
        "before the multiplications that read them, in issue order; each stage has its own columns"
    )
    return Choice(copy, Decision(f"s2r.{x.name}", "tcgen05.cp to tensor memory", why))
