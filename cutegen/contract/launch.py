"""The launch contract: everything that a launcher needs of a kernel, and nothing else.

It is the `launch` table of an artifact's `plan.json`, so an artifact runs with only a driver installed. The GPU
launcher and the CPU executor both take grid, block, dynamic shared memory and parameter order from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal, TypeVar

from cutegen.contract import tensor_map
from cutegen.contract.problem import GROUP, PAIR, FactorsOfC, Groups, Pairs, ProblemShape
from cutegen.hardware import dtype
from cutegen.support.typed_json import read

Address = TypeVar("Address")
ParameterType = Literal["ptr", "i32", "i64", "f32", "tensormap"]

GEMM, PROBE = KINDS = ("gemm", "ldmatrix_probe")
"""Kinds of kernel: a GEMM, or only its loads from shared memory to registers."""

SCALARS = ("alpha", "beta")
"""Numbers that a call may pass to the epilogue."""

REGISTERS = {"a": "registers_a", "b": "registers_b"}
"""Results of a kernel that writes out its fragments, by operand."""

RESULT = "c"
"""Role of the tensor that the kernel computes."""
SOURCE = "source"
"""Role of the input C, which the epilogue may read."""
OPERANDS = ("a", "b")
"""Roles of the multiplied tensors."""
FACTORS = ("scale_a", "scale_b")
"""Roles of the factors of blocks of A and of B."""
SCALES = ("scale_m", "scale_n")
"""Roles of the vectors that may be one value instead: the stride of their elements is a parameter."""
RESULT_FACTORS = "scale_c"
"""Role of the factors of blocks of C, which a kernel that quantizes it writes."""
BESIDE_RESULT = (SOURCE, "residual", "bias", "bias_n", "bias_m", *SCALES, "aux", RESULT_FACTORS)
"""Roles of the other tensors that the epilogue reads and writes, in the kernel's order.

A kernel with one bias calls it "bias", along either mode.
"""
WRITTEN = (RESULT, "aux", RESULT_FACTORS)
"""Roles of the tensors that a kernel writes."""

SUMS, COUNTERS = "sums", "counters"
"""Kernel names of the split-K workspace: the slices' sums, and the progress of each tile's CTAs."""

ENDS = "ends"
"""Kernel name of the ends, or sizes, of groups: one int32 each."""
CLEARED = "cleared"
"""Kernel name of the extent of the grouped mode up to which elements of C that no group has become 0."""

ONE_CTA = (1, 1)
"""Extents without a cluster."""


@dataclass(frozen=True, slots=True)
class TensorContract:
    """One matrix, `modes` in CuTe's order (A is (M,K), B is (N,K), C is (M,N)), or one vector, a bias or a scale.

    `name` is its role: "a", "b", "c", or its role in the epilogue. `major` is the contiguous mode. Base address,
    leading stride and batch stride are multiples of `align_bytes`. A `block` of rows and elements of K has
    `block_elems` elements of factors: one, or the words of an atom.
    """

    name: str
    dtype: str
    modes: tuple[str, ...]
    major: str
    align_bytes: int
    block: tuple[int, int] | None = None
    block_elems: int = 1

    def extents(self, problem: ProblemShape, groups: Groups | None = None) -> tuple[int, ...]:
        """Return its extents for a problem: the last block of a mode may be a part of one.

        Each of packed `groups` begins an atom of factors, so there are those that any sizes need. Those of groups of K
        are a list: a group has those of 128 rows along its K, then of the next rows.

        >>> TensorContract("scale_a", "f32", ("m", "k"), "m", 16, (1, 128)).extents(ProblemShape(64, 8, 200))
        (64, 2)
        >>> TensorContract("scale_b", "ue8m0x4", ("n", "k"), "k", 16, (128, 128), 128).extents(ProblemShape(64, 8, 200))
        (1, 256)
        >>> TensorContract("scale_a", "ue8m0x4", ("m", "k"), "k", 16, (128, 128), 128).extents(
        ...     ProblemShape(200, 8, 200, groups=2), Groups("m")
        ... )
        (3, 256)
        >>> TensorContract("scale_a", "ue8m0x4", ("m", "k"), "k", 16, (128, 128), 128).extents(
        ...     ProblemShape(200, 8, 200, groups=2), Groups("k")
        ... )
        (6, 128)
        """
        of = dict(zip(self.modes, self.block or (1,) * len(self.modes), strict=True))
        blocks = {mode: -(-problem.modes[mode] // block) for mode, block in of.items()}
        if groups is not None and self.begins_with(groups):
            blocks[groups.of] = groups.most_tiles(problem.modes[groups.of], problem.products, of[groups.of])
        if groups is not None and self.lists(groups):
            return (prod(blocks.values()), self.block_elems)
        *others, last = blocks.values()
        return (*others, last * self.block_elems)

    def begins_with(self, groups: Groups) -> bool:
        """Return whether each of the groups begins a block of it: atoms of factors that has them packed."""
        return self.block_elems > 1 and groups.packs(self.modes)

    def lists(self, groups: Groups) -> bool:
        """Return whether it has the atoms of all groups in a list: a row of them for groups of K is as long as each."""
        return groups.of == "k" and self.begins_with(groups)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the PTX `.entry`: an address, a scalar, a problem size, a stride in elements, a tensor map."""

    name: str
    type: ParameterType


@dataclass(frozen=True, slots=True)
class SplitContract:
    """Split of K into `slices`, with as many CTAs per tile; a CTA writes `bytes_per_slice` of sums, which CTAs add.

    If that is 0, the CTAs of a cluster have all slices of a tile and add them there. With `atomics`, each adds its sums
    to C, whose elements must be 0 before the launch.
    """

    slices: int
    bytes_per_slice: int
    atomics: bool = False

    @property
    def leaves_sums(self) -> bool:
        """True if a launch passes a workspace."""
        return not self.atomics and self.bytes_per_slice > 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """Device memory of one launch: `sums_bytes` of any content, and `counters`, 32-bit each.

    Counters are 0 before a launch and after it. Both belong to one launch at a time.
    """

    sums_bytes: int
    counters: int


@dataclass(frozen=True, slots=True)
class LaunchGeometry:
    """Geometry of one launch of one problem."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Strides:
    """A tensor's strides in elements: of the non-contiguous mode, and between batches.

    For a vector, `leading` is 1, or 0 if one value represents all of it.
    """

    leading: int
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The integers of one call: its problem's extents, and each tensor's strides by its role.

    With `clears` the kernel sets the elements of C that no group has to 0; otherwise it leaves them.
    """

    problem: ProblemShape
    strides: Mapping[str, Strides]
    clears: bool = False


def gemm_parameters(
    tensors: tuple[TensorContract, ...],
    scalars: tuple[str, ...],
    maps: tuple[tensor_map.TensorMapContract, ...] = (),
    workspace: tuple[str, ...] = (),
    addressed: tuple[str, ...] = (),
    groups: Groups | None = None,
) -> tuple[Parameter, ...]:
    """Return a kernel's parameters in order: addresses, scalars, extents, leading strides, batch strides.

    Tensor maps come first; a map replaces its tensor's address and strides, unless threads access the tensor
    too: it is `addressed`. `workspace` names addresses in addition to the tensors', and `groups` have their ends there
    and their number among the extents.

    >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
    >>> [parameter.name for parameter in gemm_parameters((c,), ("alpha",))]
    ['c', 'alpha', 'm', 'n', 'k', 'ldc', 'batch_stride_c']
    """
    mapped = {each.name for each in maps} - set(addressed)
    plain = [tensor for tensor in tensors if tensor.name not in mapped]
    return (
        *(Parameter(f"map_{each.name}", "tensormap") for each in maps),
        *(Parameter(tensor.name, "ptr") for tensor in plain),
        *(Parameter(name, "ptr") for name in (*_addresses(groups), *workspace)),
        *(Parameter(name, "f32") for name in scalars),
        *(Parameter(name, "i32") for name in integers(groups)),
        *(Parameter(leading, stride_type(tensor)) for tensor in plain if (leading := leading_stride(tensor))),
        *(Parameter(f"batch_stride_{tensor.name}", "i64") for tensor in plain),
    )


def _addresses(groups: Groups | None) -> tuple[str, ...]:
    return () if groups is None else (ENDS,)


def integers(groups: Groups | None) -> tuple[str, ...]:
    """Name the integers of a problem and of its groups: their number, and CLEARED if some of C may belong to none."""
    if groups is None:
        return "m", "n", "k"
    return ("m", "n", "k", "groups", CLEARED) if groups.leaves_elements else ("m", "n", "k", "groups")


def leading_stride(tensor: TensorContract) -> str:
    """Name the parameter of a tensor's leading stride: `ld` of a matrix, `inc` of a scale (as in BLAS), "" for none."""
    if tensor.name in SCALES:
        return f"inc_{tensor.name}"
    return f"ld{tensor.name}" if len(tensor.modes) == 2 else ""


def stride_type(tensor: TensorContract) -> ParameterType:
    """Return the type of a tensor's leading stride: a scale's is 0 or 1."""
    return "i32" if tensor.name in SCALES else "i64"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContract:
    """C[M,N] = A[M,K] B[N,K]: `grid.x` CTAs of `threads` threads, one for each (M,N) tile of extents `cta_tile`.

    With `split`, `grid.y` counts the slices of K.

    `tensors` are A, B and C, the factors of their blocks, then the other epilogue tensors: "source" (the input C),
    "residual", the biases, the scales, "aux", and C's factors. `scalars` are named after `alpha` and `beta`. `epilogue`
    is the chain from a sum to C, expressions in the grammar of `cutegen.spec.steps`, with "aux" where the value is
    stored. `grid.z` counts a batch. `given` are tensors that a call passes with another major than the kernel reads: it
    reads a transposed copy.

    With `ctas_per_multiprocessor` the CTAs are persistent: as many as the GPU holds at once, each of which computes one
    tile after another. `maps` are the tensors that bulk tensor copies move.

    `cluster` are the CTAs of a cluster along `grid.x` and `grid.y`, scheduled together. Without `split` it covers that
    many tiles along M and N; with it, tiles along M and slices of K. Complete clusters are launched, even past the
    edge. A `swapped` kernel swaps A and B: its tiles along M are tiles along N here, and vice versa.

    With `spread`, a launch that uses at most half of the GPU has twice as many CTAs along `grid.x`, and of two
    consecutive ones the second exits at once: the first ones then run on SMs that share nothing.

    With `programmatic` the kernel itself waits for earlier work on the stream, so it may be launched while that still
    runs (CUDA's programmatic dependent launch). It reads tensors `ahead` of that wait: a caller promises that no
    earlier work on the stream writes them.

    With `groups` the tiles are those of products whose sizes only the device has; `grid.z` is 1. Their ends or sizes
    follow the tensors of a call.

    With `pairs` the chain makes one element of C of two sums, of columns of B that are in that order: C has the modes
    (M,P) with P = N / 2, and `cta_tile` counts the columns of B.

    With `quantized` C is rounded after its division by factors of its blocks, which are so rounded and written too.
    """

    entry: str
    tensors: tuple[TensorContract, ...]
    scalars: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...]
    cta_tile: tuple[int, int]
    threads: int
    dynamic_smem_bytes: int
    ctas_per_multiprocessor: int | None = None
    maps: tuple[tensor_map.TensorMapContract, ...] = ()
    split: SplitContract | None = None
    given: tuple[TensorContract, ...] = ()
    cluster: tuple[int, int] = ONE_CTA
    swapped: bool = False
    spread: bool = False
    programmatic: bool = False
    ahead: tuple[str, ...] = ()
    groups: Groups | None = None
    pairs: Pairs | None = None
    quantized: FactorsOfC | None = None

    def tensor(self, role: str) -> TensorContract:
        """Return the tensor of a role of OPERANDS, RESULT, FACTORS or BESIDE_RESULT. Raises KeyError if it has none.

        >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
        >>> LaunchContract(entry="gemm", tensors=(c,), parameters=(), cta_tile=(128, 64), threads=128,
        ...                dynamic_smem_bytes=0).tensor("c").dtype
        'f16'
        """
        return {tensor.name: tensor for tensor in self.tensors}[role]

    @property
    def operands(self) -> tuple[TensorContract, ...]:
        """A and B."""
        return tuple(self.tensor(role) for role in OPERANDS)

    @property
    def factors(self) -> tuple[TensorContract, ...]:
        """The factors of blocks of A and B, if it has them."""
        return tuple(tensor for tensor in self.tensors if tensor.name in FACTORS)

    @property
    def beside_result(self) -> tuple[TensorContract, ...]:
        """The other tensors that the epilogue reads and writes."""
        return tuple(tensor for tensor in self.tensors if tensor.name in BESIDE_RESULT)

    @property
    def columns_multiple(self) -> int:
        """The number that N is a multiple of: pairs, and blocks of each member, are whole; 1 without pairs."""
        if self.pairs is None:
            return 1
        b, width = self.tensor("b"), self.pairs.width
        unit_bytes = tensor_map.STRIDE_MULTIPLE_BYTES if b.major == "n" and width is None and self.maps else 1
        blocks = [x.block[0] for x in self.factors if x.block is not None and x.name == "scale_b"]
        return 2 * max([*blocks, width or max(1, unit_bytes // dtype(b.dtype).bytes)])

    @property
    def begin_multiple(self) -> int:
        """The elements of K at whose multiples groups of K begin if their factors are in atoms; the product of others
        is NaN. A box of a K-major operand begins at 16 bytes, and a block of a group at its first element.
        """
        if self.groups is None or not any(x.lists(self.groups) for x in self.factors):
            return 1
        of_k = (tensor_map.BOX_MULTIPLE_BYTES // dtype(x.dtype).bytes for x in self.operands if x.major == "k")
        return max(of_k, default=1)

    @property
    def passed(self) -> tuple[TensorContract, ...]:
        """Arguments of a call: the tensors, and then the ends or sizes of groups."""
        return self.tensors if self.groups is None else (*self.tensors, _ENDS)

    def of_a_call(self) -> LaunchContract:
        """Return the contract as a call sees it: `given` instead of what the kernel reads."""
        passed = {tensor.name: tensor for tensor in self.given}
        return replace(self, tensors=tuple(passed.get(tensor.name, tensor) for tensor in self.tensors), given=())

    def exchanged(self) -> LaunchContract:
        """Return the same kernel's contract for the swapped product, transposed C = B A: its A is B there.

        Swapping twice restores the contract. The epilogue's chain stays; its vectors change their names.
        """
        tensors = {tensor.name: tensor for tensor in map(_exchanged_tensor, self.tensors)}
        maps = {each.name: each for each in (replace(each, name=_exchanged(each.name)) for each in self.maps)}
        order = [name for name in (*OPERANDS, RESULT, *FACTORS, *BESIDE_RESULT) if name in tensors]
        m, n = self.cta_tile
        return replace(
            self,
            tensors=tuple(tensors[name] for name in order),
            parameters=tuple(replace(each, name=_exchanged(each.name)) for each in self.parameters),
            cta_tile=(n, m),
            maps=tuple(maps[name] for name in order if name in maps),
            swapped=not self.swapped,
            ahead=tuple(map(_exchanged, self.ahead)),
            groups=self.groups and self.groups.exchanged(),
            pairs=self.pairs and self.pairs.exchanged(),
        )

    @property
    def pointers(self) -> tuple[str, ...]:
        """The pointers that a launcher passes, in order: tensors, also mapped ones, groups' ends, workspace."""
        workspace = (SUMS, COUNTERS) if self.split and self.split.leaves_sums else ()
        return (*(tensor.name for tensor in self.tensors), *_addresses(self.groups), *workspace)

    @property
    def adds_to_result(self) -> bool:
        """True if a launcher must set the elements of C to 0 first."""
        return self.split is not None and self.split.atomics

    def workspace(self, problem: ProblemShape) -> Workspace | None:
        """Return the workspace that a launch needs in addition to its tensors; None if it needs none.

        Each CTA of a cluster that has slices of one tile counts its own share of the tile.
        """
        if self.split is None or not self.split.leaves_sums:
            return None
        tiles = self.tiles(problem)
        return Workspace(tiles * self.split.slices * self.split.bytes_per_slice, tiles * self.cluster[1])

    def tiles(self, problem: ProblemShape) -> int:
        """Return the tiles of the complete batch, including partial ones and those that fill up clusters."""
        tiles_m, tiles_n = self._cluster_tiles
        return self._clusters_of_one(problem) * tiles_m * tiles_n * problem.batch

    @property
    def _cluster_tiles(self) -> tuple[int, int]:
        """The tiles of a cluster along M and N."""
        x, y = self.cluster[0], self.cluster[1] if self.split is None else 1
        return (y, x) if self.swapped else (x, y)

    def _clusters_of_one(self, problem: ProblemShape) -> int:
        """Return the clusters that cover one result, or at most those of all groups; slices of a tile count once."""
        (tile_m, tile_n), (tiles_m, tiles_n) = self.cta_tile, self._cluster_tiles
        blocks = {"m": tile_m * tiles_m, "n": tile_n * tiles_n}
        along = {mode: -(-problem.extents[mode] // block) for mode, block in blocks.items()}
        if self.groups is None:
            return along["m"] * along["n"]
        if (mode := self.groups.of) == "k":
            return problem.products * along["m"] * along["n"]
        along[mode] = self.groups.most_tiles(problem.extents[mode], problem.products, blocks[mode])
        return along["m"] * along["n"]

    def geometry(
        self, problem: ProblemShape, *, multiprocessors: int = 1, active_clusters: int | None = None
    ) -> LaunchGeometry:
        """Return grid, block, cluster and dynamic shared memory for a problem on a GPU with so many SMs.

        `active_clusters` is the number of clusters that the GPU holds at once; the default follows from the CTAs per
        SM.

        >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
        >>> contract = LaunchContract(entry="gemm", tensors=(c,), parameters=gemm_parameters((c,), ()),
        ...                           cta_tile=(128, 64), threads=128, dynamic_smem_bytes=1024)
        >>> contract.geometry(ProblemShape(257, 64, 32)).grid
        (3, 1, 1)
        """
        (x, y), clusters = self.cluster, self._clusters_of_one(problem)
        grid_y = y if self.split is None else self.split.slices
        if self.ctas_per_multiprocessor is not None:
            room = self.ctas_per_multiprocessor * multiprocessors
            if self.spread and 2 * clusters * grid_y * problem.batch <= room:
                clusters *= 2
            clusters = min(clusters, active_clusters or max(1, room // (x * y)))
        grid = clusters * x, grid_y, problem.batch
        return LaunchGeometry(grid, (self.threads, 1, 1), self.dynamic_smem_bytes, (x, y, 1))

    def arguments(
        self,
        addresses: tuple[Address, ...],
        scalars: tuple[float, ...],
        size: CallSize,
        maps: tuple[Address, ...] = (),
    ) -> tuple[Address | int | float, ...]:
        """Return the values of `parameters`, in order; addresses and maps have the launcher's types. Raises KeyError.

        `addresses`, `scalars` and `maps` have the order of `self.pointers`, `self.scalars` and `self.maps`.
        """
        extents = size.problem.extents
        values: dict[str, Address | int | float] = {**extents, "groups": size.problem.products}
        if self.groups is not None:
            values[CLEARED] = extents[self.groups.of] if size.clears else 0
        values |= zip((f"map_{each.name}" for each in self.maps), maps, strict=True)
        values |= zip(self.pointers, addresses, strict=True)
        values |= zip(self.scalars, scalars, strict=True)
        for name, strides in size.strides.items():
            values[f"batch_stride_{name}"] = strides.batch
            if leading := leading_stride(self.tensor(name)):
                values[leading] = strides.leading
        return tuple(values[parameter.name] for parameter in self.parameters)

    def map_fields(self, size: CallSize) -> tuple[tensor_map.TensorMapFields, ...]:
        """Return the fields that each of `maps` is encoded from, for one problem.

        An operand shared by the batch has the batch stride 0. An empty matrix is given one element: a kernel reads
        nothing of it, but a map without elements cannot be encoded.
        """
        return tuple(self._map_fields(each, size) for each in self.maps)

    def _map_fields(self, contract: tensor_map.TensorMapContract, size: CallSize) -> tensor_map.TensorMapFields:
        tensor, strides = self.tensor(contract.name), size.strides[contract.name]
        extents = dict(zip(tensor.modes, tensor.extents(size.problem, self.groups), strict=True))
        (other,) = (mode for mode in tensor.modes if mode != tensor.major)
        along = [tensor_map.MapMode(extents[tensor.major], 1, contract.box[0])]
        across = [tensor_map.MapMode(extents[other], strides.leading, contract.box[1])]
        if self.pairs is not None and tensor.name in (self.pairs.operand, f"scale_{self.pairs.operand}"):
            columns, tile = along if tensor.major == self.pairs.of else across, self.cta_tile["mn".index(self.pairs.of)]
            together = tile if tensor.block is None else columns[0].box  # a box has those of both members
            columns[:] = columns[0].split(self.pairs.modes(columns[0].extent), together // 2)
        modes = [along[0], *across, *along[1:], tensor_map.MapMode(self._matrices(tensor, size), strides.batch, 1)]
        return tensor_map.tensor_map_fields(tensor.dtype, modes, contract.swizzle_bytes)

    def _matrices(self, tensor: TensorContract, size: CallSize) -> int:
        """Return how many matrices a call has of a tensor: one for each product, or one that packs all groups."""
        if self.groups is None:
            return size.problem.batch
        return 1 if self.groups.packs(tensor.modes) else size.problem.products

    def to_json(self) -> dict[str, Any]:
        """Return the plain form that `from_json` reads back; clusters and flags appear only if there are any."""
        table = asdict(self)
        for tensor in (*table["tensors"], *table["given"]):
            if tensor["block"] is None:
                del tensor["block"]
            if tensor["block_elems"] == 1:
                del tensor["block_elems"]
        if self.pairs is not None and self.pairs.of == "n":
            del table["pairs"]["of"]
        return {key: value for key, value in table.items() if key not in _WHERE_THERE or value != _WHERE_THERE[key]}

    @classmethod
    def from_json(cls, table: Any, file: str = "plan.json") -> LaunchContract:
        """Read the output of `to_json`, the `launch` table of `file`.

        Raises ArtifactError, with the address in `file`, for a missing or unknown field or one of another type.
        """
        absent = {key: list(value) if isinstance(value, tuple) else value for key, value in _WHERE_THERE.items()}
        whole = {**absent, **table} if isinstance(table, dict) else table
        if isinstance(whole, dict) and isinstance(whole["pairs"], dict):
            whole["pairs"] = {"of": "n", **whole["pairs"]}
        for key in ("tensors", "given"):
            if isinstance(whole, dict) and isinstance(whole.get(key), (list, tuple)):  # asdict keeps tuples
                whole[key] = [{"block_elems": 1, **x} if isinstance(x, dict) else x for x in whole[key]]
        return read(cls, whole, file, "launch")


_WHERE_THERE: dict[str, object] = {
    "cluster": ONE_CTA,
    "swapped": False,
    "spread": False,
    "programmatic": False,
    "ahead": (),
    "groups": None,
    "pairs": None,
    "quantized": None,
}
"""Fields that the plain form leaves out, and their default values."""

_ENDS = TensorContract(ENDS, "s32", (GROUP,), GROUP, dtype("s32").bytes)

_EXCHANGED = {"m": "n", "n": "m"} | {
    f"{prefix}{name}": f"{prefix}{other}"
    for prefix in ("", "map_", "ld", "inc_", "batch_stride_")
    for pair in (OPERANDS, FACTORS, SCALES, ("bias_n", "bias_m"))
    for name, other in zip(pair, reversed(pair), strict=True)
}


def _exchanged(name: str) -> str:
    """Return the name that an extent, an operand or an argument has after a swap of A and B."""
    return _EXCHANGED.get(name, name)


def _exchanged_tensor(tensor: TensorContract) -> TensorContract:
    """Return a tensor with A and B, and so M and N, swapped; the modes of a matrix keep their order."""
    major, modes = _exchanged(tensor.major), tuple(map(_exchanged, tensor.modes))
    if not set(tensor.modes) <= {"m", "n", PAIR}:
        return replace(tensor, name=_exchanged(tensor.name), major=major, modes=modes)
    block = None if tensor.block is None else tensor.block[::-1]
    return replace(tensor, name=_exchanged(tensor.name), major=major, modes=modes[::-1], block=block)
