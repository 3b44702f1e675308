"""Types of keys' values: one per kind of value, annotated with its check."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from cutegen import hardware
from cutegen.contract.launch import KINDS
from cutegen.hardware.gmma import GMMA_LAYOUTS
from cutegen.hardware.units import MAX_THREADS_PER_CTA
from cutegen.spec import checks
from cutegen.spec.steps import OPERANDS, OPS

_CP_ASYNC_ATOMS = tuple(hardware.CP_ASYNC_ATOMS.values())
ATOMS: Mapping[str, hardware.MmaAtom] = {**hardware.MMA_ATOMS, **hardware.WGMMA_ATOMS, **hardware.TCGEN05_ATOMS}
"""Atoms that a spec can name: of warps, of warpgroups, or of an elected thread."""
MOST_SLICES = 64
"""Most CTAs that may share the K of one tile."""
MOST_STAGES = 16
"""Most k-tiles that shared memory may hold at once."""
_ACCUMULATORS = tuple(sorted({atom.c_dtype.name for atom in ATOMS.values()}))

Text: TypeAlias = Annotated[str, checks.Line()]
Flag: TypeAlias = Annotated[bool, checks.Boolean()]
WEIGHTS: Final = "weights"
"""Value of `schedule.programmatic`: no earlier work on the stream writes B."""
Programmatic: TypeAlias = Annotated[bool | str, checks.BooleanOr(WEIGHTS)]
FamilyKey: TypeAlias = Annotated[str, checks.FamilyName()]
KindName: TypeAlias = Annotated[str, checks.OneOf(KINDS)]
DTypeName: TypeAlias = Annotated[str, checks.OneOf(tuple(hardware.DTYPES))]
OperandDTypeName: TypeAlias = Annotated[str, checks.OneOf((*hardware.DTYPES, *hardware.PACKED))]
ScaleDTypeName: TypeAlias = Annotated[str, checks.OneOf(("f32", "f16", "bf16"))]
FactorDTypeName: TypeAlias = Annotated[str, checks.OneOf(("f32", "ue8m0", "ue4m3"))]
FactorBlock: TypeAlias = Annotated[tuple[int, int], checks.BlockExtents(8192)]
AccumulatorName: TypeAlias = Annotated[
    str, checks.OneOf(_ACCUMULATORS, "tensor cores sum products in these types only")
]
Mode: TypeAlias = Annotated[str, checks.OneOf(("m", "n", "k"))]
GroupedMode: TypeAlias = Annotated[Literal["m", "n", "k"], checks.OneOf(("m", "n", "k"))]
Transposition: TypeAlias = Annotated[str, checks.OneOf(("once",))]
GroupsLayout: TypeAlias = Annotated[Literal["packed", "padded"], checks.OneOf(("packed", "padded"))]
AlignBytes: TypeAlias = Annotated[int, checks.OneOf((1, 2, 4, 8, 16, 32, 64, 128))]
# Two stages of 8192 x 16 8-bit elements are 262,144 bytes, more than any target's shared memory.
TileExtents: TypeAlias = Annotated[tuple[int, int, int], checks.Extents(8192)]
PermutedTile: TypeAlias = Annotated[tuple[int | str, int | str, int], checks.PermutedModes(8192, "(8,2,2):(1,16,8)")]
WarpExtents: TypeAlias = Annotated[tuple[int, int, int], checks.Extents(checks.MAX_WARPS_PER_CTA)]
StageCount: TypeAlias = Annotated[
    int, checks.Integer(1, MOST_STAGES, "a k-tile lies in shared memory while it is multiplied")
]
PromotedK: TypeAlias = Annotated[int, checks.Integer(0, 8192, "0 promotes nothing")]
CtaGroup: TypeAlias = Annotated[int, checks.Integer(1, 2, "a CTA multiplies alone, or two as a pair")]
Tf32Rounding: TypeAlias = Annotated[str, checks.OneOf(("truncate", "nearest"))]
MmaAtomName: TypeAlias = Annotated[
    str,
    checks.OneOfMany(
        tuple(ATOMS),
        'an MMA atom that layouts/README.md lists, such as "SM80_16x8x16_F32F16F16F32_TN" or '
        '"SM90_64x256x16_F32F16F16_SS"',
    ),
]
SwizzleBMS: TypeAlias = Annotated[tuple[int, int, int], checks.SwizzleBits()]
PadElems: TypeAlias = Annotated[int, checks.Integer(0, 1024)]
TileLayout: TypeAlias = Annotated[
    str,
    checks.LayoutText(
        example="Sw<3,3,3> o (8,(8,8)):(8,(1,64))", largest=checks.MAX_SMEM_ELEMS, names=tuple(GMMA_LAYOUTS)
    ),
]
ThreadLayout: TypeAlias = Annotated[
    str, checks.LayoutText(example="(16,8):(8,1)", largest=MAX_THREADS_PER_CTA, dense=True)
]
G2sOp: TypeAlias = Annotated[
    str, checks.OneOf((*sorted({atom.op for atom in _CP_ASYNC_ATOMS}), hardware.BULK_TENSOR, hardware.UNIVERSAL))
]
FactorsOp: TypeAlias = Annotated[str, checks.OneOf((hardware.BULK_TENSOR, "cp.async.ca"))]
L2Eviction: TypeAlias = Annotated[str, checks.OneOf(("evict_first", "evict_normal"))]
PrefetchedKTiles: TypeAlias = Annotated[int, checks.Integer(0, MOST_STAGES, "0 prefetches nothing")]
CopyBits: TypeAlias = Annotated[int, checks.OneOf(hardware.UNIVERSAL_BITS)]
SharedLoadName: TypeAlias = Annotated[str, checks.OneOf((*hardware.LDMATRIX_ATOMS, hardware.UNIVERSAL))]
EpilogueOps: TypeAlias = Annotated[tuple[str, ...], checks.Names(tuple(OPS))]
EpilogueExpression: TypeAlias = Annotated[str, checks.ExpressionText(OPERANDS)]
PairsLayout: TypeAlias = Annotated[str | int, checks.ColumnsInTurn(("halves", "interleaved"), 8, 4096)]
QuantizedDType: TypeAlias = Annotated[Literal["e4m3"], checks.OneOf(("e4m3",))]
ResultScale: TypeAlias = Annotated[Literal["f32", "ue8m0"], checks.OneOf(("f32", "ue8m0"))]
PairsMember: TypeAlias = Annotated[Literal["gate", "up"], checks.OneOf(("gate", "up"))]
RasterMode: TypeAlias = Annotated[str, checks.OneOf(("m", "n"))]
RasterGroup: TypeAlias = Annotated[int, checks.Integer(1, 1024)]
Reduction: TypeAlias = Annotated[str, checks.OneOf(("workspace", "cluster", "atomics"))]
ClusterCtas: TypeAlias = Annotated[tuple[int, ...], checks.ClusterExtents()]
Tiles: TypeAlias = Annotated[str, checks.OneOf(("static", "dynamic"))]
Consumers: TypeAlias = Annotated[str, checks.OneOf(("cooperative", "pingpong"))]
PaceCycles: TypeAlias = Annotated[int, checks.Integer(0, 65536, "0 does not delay copies")]
SliceCount: TypeAlias = Annotated[int, checks.Integer(1, MOST_SLICES, "1 leaves K whole")]
