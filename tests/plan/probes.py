"""The matrix of probes: every way to load an operand by ldmatrix, and what must come of it by PTX ISA's own tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware import MMA_ATOMS
from cutegen.spec import PROBE, Epilogue, GemmSpec, Mma, S2r, S2rCopy, Smem, SmemLayout, Tile
from tests.plan.specs import gemm, types_of

CTA_M, CTA_N = 64, 64
STAGES = 2
WARPS_M, WARPS_N = 2, 2
REPEATS = (1, 2, 4)
COUNTS = (1, 2, 4)
LDMATRIX = {
    (1, False): "SM75_U32x1_LDSM_N",
    (2, False): "SM75_U32x2_LDSM_N",
    (4, False): "SM75_U32x4_LDSM_N",
    (1, True): "SM75_U16x2_LDSM_T",
    (2, True): "SM75_U16x4_LDSM_T",
    (4, True): "SM75_U16x8_LDSM_T",
}
OF_BYTES = {1: "SM100_U8x8_LDSM_T", 2: "SM100_U8x16_LDSM_T"}
TARGETS_OF_BYTES = ("sm_100", "sm_120")
ONE_OF_EACH_K = ("SM80_16x8x8_F32F16F16F32_TN", "SM80_16x8x16_F32F16F16F32_TN")
MAJORS = {"a": "km", "b": "kn"}


def bits_of(atom: str) -> int:
    """Bits of an element of A or B."""
    return MMA_ATOMS[atom].a_dtype.bits


def cta_k(atom: str) -> int:
    """K of the CTA tile: two k-blocks or more."""
    return max(32, 2 * MMA_ATOMS[atom].shape_mnk[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One operand's loads on a target: `repeat` is how often the permutation repeats the atom along N in registers."""

    operand: str
    atom: str
    repeat: int
    major: str
    matrices: int
    swizzled: bool
    arch: str = "sm_89"

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return bits_of(self.atom)

    @property
    def values(self) -> int:
        """Values of a thread in the tiled MMA's tile: 16 x k or 8 x k of an atom by 32 lanes, B's once a repetition."""
        _, n, k = MMA_ATOMS[self.atom].shape_mnk
        return 16 * k // 32 if self.operand == "a" else n * k // 32 * self.repeat

    @property
    def transposes_bytes(self) -> bool:
        """True where its matrices are 16x16 of 8 bits."""
        return self.bits == 8 and self.major != "k" and self.arch in TARGETS_OF_BYTES

    @property
    def fits(self) -> bool:
        """Each matrix of an ldmatrix gives a thread one register, 32 bits, and an instruction fills whole ones.

        One of 16x16 gives it two, and its rows are 16 neighbors: two atoms of B.
        """
        if self.transposes_bytes:
            neighbors = self.operand == "a" or self.repeat % 2 == 0
            return self.matrices in OF_BYTES and self.values % (8 * self.matrices) == 0 and neighbors
        return self.values % (32 // self.bits * self.matrices) == 0

    @property
    def possible(self) -> bool:
        """What is transposed are 16-bit elements, and on some targets those of 8 bits."""
        return self.fits and (self.major == "k" or self.bits == 16 or self.transposes_bytes)

    @property
    def smem(self) -> SmemLayout:
        """Pieces of 16 bytes stay together, in rows of CTA_K elements along K or of 64 along M or N."""
        piece = 128 // self.bits
        if not self.swizzled:
            return SmemLayout(pad=piece)
        row = cta_k(self.atom) if self.major == "k" else 64
        pieces = min(row // piece, 8)
        return SmemLayout(swizzle=(pieces.bit_length() - 1, piece.bit_length() - 1, 3))

    @property
    def s2r(self) -> S2rCopy:
        """Transposing unless the operand is contiguous along K."""
        name = LDMATRIX[self.matrices, self.major != "k"]
        return S2rCopy(OF_BYTES.get(self.matrices, name) if self.transposes_bytes else name)

    def __str__(self) -> str:
        return f"{self.operand}_{self.major}_x{self.matrices}_{'swizzled' if self.swizzled else 'padded'}"


def cells(operand: str, atom: str, repeat: int, arch: str = "sm_89") -> list[Cell]:
    """Majors x matrices x swizzled and padded."""
    return [
        Cell(operand=operand, atom=atom, repeat=repeat, major=major, matrices=matrices, swizzled=swizzled, arch=arch)
        for major, matrices, swizzled in product(MAJORS[operand], COUNTS, (True, False))
    ]


ALL_CELLS = [x for atom, repeat, operand in product(MMA_ATOMS, REPEATS, "ab") for x in cells(operand, atom, repeat)]


def probe(atom: str, repeat: int, a: Cell | None = None, b: Cell | None = None, **parts: Any) -> GemmSpec:
    """The probe of a cell of A and one of B; what has no cell is left to be chosen."""
    dtype, accumulator = types_of(atom)
    b_dtype = MMA_ATOMS[atom].b_dtype.name
    majors = ("k" if a is None else a.major) + ("k" if b is None else b.major) + "n"
    k = MMA_ATOMS[atom].shape_mnk[2]
    asked: dict[str, Any] = {
        "tile": Tile(cta=(CTA_M, CTA_N, cta_k(atom)), stages=STAGES),
        "mma": Mma(atom=atom, atom_layout=(WARPS_M, WARPS_N, 1), permutation=(16 * WARPS_M, 8 * WARPS_N * repeat, k)),
        "smem": Smem(a=a and a.smem, b=b and b.smem),
        "s2r": S2r(a=a and a.s2r, b=b and b.s2r),
        "epilogue": Epilogue(smem=False),
        "kind": PROBE,
        "name": f"{'x'.join(map(str, MMA_ATOMS[atom].shape_mnk))}_{dtype}_{b_dtype}_{accumulator}_n{repeat}_{a}_{b}",
        "b_dtype": b_dtype,
    }
    return gemm(majors, dtype, accumulator, **{**asked, **parts})


def matrix(atom: str, repeat: int, arch: str = "sm_89") -> list[GemmSpec]:
    """As few probes as hold every possible cell of A and every one of B."""
    a, b = ([x for x in cells(operand, atom, repeat, arch) if x.possible] for operand in "ab")
    return [probe(atom, repeat, a[i % len(a)], b[i % len(b)]) for i in range(max(len(a), len(b)))]


LANE = np.arange(32)
GROUP, IN_GROUP = LANE // 4, LANE % 4
"""groupID and threadID_in_group."""


def atom_by_hand(operand: str, k: int, bits: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(x, k) of each value of the 32 lanes, as PTX ISA has them in "Matrix Fragments for mma.m16n8k16" and its like.

    A register holds 32 bits of neighbors along k, those of a thread beside those of the next one in the group. A's
    registers take turns between row groupID and row groupID + 8, then go on along k; B's are all in column groupID.
    """
    packed, heights = 32 // bits, 2 if operand == "a" else 1
    return [
        (GROUP + 8 * (register % heights), 4 * packed * (register // heights) + packed * IN_GROUP + value)
        for register in range(heights * k // (4 * packed))
        for value in range(packed)
    ]


def fragments_by_hand(operand: str, atom: str, *, in_pairs: bool = False) -> NDArray[np.int64]:
    """(x, k) of every value, int64[thread, value, 2]: the atom's values, then its repetitions along X, then along K.

    Warps lie side by side along M, then along N; each takes every second atom of its mode, or pair of atoms.
    """
    k = MMA_ATOMS[atom].shape_mnk[2]
    height, warps, extent = (16, WARPS_M, CTA_M) if operand == "a" else (8, WARPS_N, CTA_N)
    together = 2 if in_pairs else 1
    values = [
        (x + height * (repeat_x // together * together * warps + repeat_x % together), y + k * repeat_k)
        for repeat_k in range(cta_k(atom) // k)
        for repeat_x in range(extent // (height * warps))
        for x, y in atom_by_hand(operand, k, bits_of(atom))
    ]
    of_one_warp = np.array(values).transpose(2, 0, 1)
    place = [warp % WARPS_M if operand == "a" else warp // WARPS_M for warp in range(WARPS_M * WARPS_N)]
    return np.concatenate([of_one_warp + np.array([together * height * i, 0]) for i in place])
