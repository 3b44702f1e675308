"""Reads an artifact's `plan.json` for a launch, and checks each value that a launcher relies on."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from cutegen.build import Artifact
from cutegen.contract import launch
from cutegen.contract.launch import GEMM, REGISTERS, LaunchContract
from cutegen.contract.problem import PAIR
from cutegen.contract.tensor_map import MAX_BOX_ELEMS
from cutegen.errors import ArtifactError
from cutegen.hardware import DTYPES, PACKED, WORDS
from cutegen.hardware.factor_atoms import ATOM_WORDS
from cutegen.hardware.units import MAX_CLUSTER_CTAS, MAX_THREADS_PER_CTA
from cutegen.support.typed_json import parse_object, read, shown

# A launch contract from a file, checked for what a launcher relies on: names, extents, parameters.
#
# A contract from a plan needs no such check. One from an artifact may have any content: a tile without rows or a
# parameter without a value must be rejected on reading, not cause an arithmetic error in a call.


MAX_SMEM_BYTES = 256 << 10
"""More than the shared memory of an SM of any target."""
MAX_ALIGN_BYTES = 256
"""Alignment of `cudaMalloc`: nothing needs more."""

_MATRIX = (("m", "n"), ("m", PAIR))
_MODES = {
    "a": (("m", "k"),),
    "b": (("n", "k"),),
    "c": _MATRIX,
    launch.SOURCE: _MATRIX,
    "residual": _MATRIX,
    "aux": _MATRIX,
    launch.RESULT_FACTORS: _MATRIX,
    "bias": (("n",), ("m",)),
    "scale_a": (("m", "k"),),
    "scale_b": (("n", "k"),),
    **{f"{kind}_{mode}": ((mode,),) for kind in ("bias", "scale") for mode in "nm"},
    **dict.fromkeys(REGISTERS.values(), (("thread", "value"),)),
}
_ENTRY = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)

_Misfit = tuple[str, object, str]  # address in the launch table, value found, what was expected


def check_launch(contract: LaunchContract, file: str, results: tuple[str, ...] = (launch.RESULT,)) -> None:
    """Check a contract from `file` whose kernel writes `results`. Raises ArtifactError at the first misfit."""
    for address, found, expected in _misfits(contract, results):
        raise ArtifactError(f"{file}: launch.{address}: found {shown(found)}; expected {expected}")


def _misfits(contract: LaunchContract, results: tuple[str, ...]) -> Iterator[_Misfit]:
    if not _ENTRY.fullmatch(contract.entry):
        yield "entry", contract.entry, "an identifier of PTX"
    yield from _misnamed(contract, results)
    for kind, tensors in (("tensors", contract.tensors), ("given", contract.given)):
        for index, tensor in enumerate(tensors):
            yield from ((f"{kind}[{index}].{key}", found, expected) for key, found, expected in _of_tensor(tensor))
    if (groups := contract.groups) is not None and (groups.of, groups.layout) == ("k", "padded"):
        yield "groups.layout", groups.layout, '"packed" for parts of K'
    for index, tensor in enumerate(contract.tensors):
        if (PAIR in tensor.modes) != (
            contract.pairs is not None
            and tensor.name in (launch.RESULT, launch.SOURCE, "residual", launch.RESULT_FACTORS)
        ):
            yield f"tensors[{index}].modes", tensor.modes, "p for C with pairs, and n without"
    if contract.pairs is not None and contract.pairs.of != "n":
        yield "pairs.of", contract.pairs.of, '"n": calls have pairs of columns of B'
    if contract.pairs is not None and contract.pairs.width is not None and contract.pairs.width < 1:
        yield "pairs.width", contract.pairs.width, "at least 1, or null"
    has_factors = launch.RESULT_FACTORS in (tensor.name for tensor in contract.tensors)
    if (contract.quantized is not None) != has_factors:
        yield "quantized", contract.quantized, f"f32 or ue8m0 with {launch.RESULT_FACTORS}, else null"
    if unknown := sorted({*contract.ahead} - {*launch.OPERANDS}):
        yield "ahead", unknown, "operands, which a programmatic kernel copies before it waits"
    if contract.groups is not None and contract.split is not None:
        yield "split", asdict(contract.split), "null with groups"
    yield from _outside(contract)
    yield from _of_cluster(contract)
    yield from _of_maps(contract)
    yield from _of_parameters(contract)


def _misnamed(contract: LaunchContract, results: tuple[str, ...]) -> Iterator[_Misfit]:
    names = tuple(tensor.name for tensor in contract.tensors)
    first = (*launch.OPERANDS, *results)
    beside = (
        [name for name in (*launch.FACTORS, *launch.BESIDE_RESULT) if name in names]
        if results == (launch.RESULT,)
        else []
    )
    if names != (*first, *beside):
        yield (
            "tensors",
            names,
            f"{', '.join(first)}, then those of {', '.join(launch.BESIDE_RESULT)} that the epilogue names",
        )
    if len(contract.factors) == 1:
        yield "tensors", names, f"both of {', '.join(launch.FACTORS)}, or neither"
    if unknown := [name for name in contract.scalars if name not in launch.SCALARS]:
        yield "scalars", unknown, f"those of {', '.join(launch.SCALARS)}"
    if len(set(contract.scalars)) < len(contract.scalars):
        yield "scalars", contract.scalars, "each name once"
    if (given := tuple(tensor.name for tensor in contract.given)) not in ((), ("b",)):
        yield "given", given, "nothing, or b"


def _of_tensor(tensor: launch.TensorContract) -> Iterator[_Misfit]:
    if tensor.name not in _MODES:
        yield "name", tensor.name, f"one of {', '.join(_MODES)}"
    elif tensor.modes not in _MODES[tensor.name]:
        yield "modes", tensor.modes, " or ".join(map(str, _MODES[tensor.name]))
    if tensor.major not in tensor.modes:
        yield "major", tensor.major, f"one of the modes, {', '.join(tensor.modes)}"
    has_blocks = tensor.name in (*launch.FACTORS, launch.RESULT_FACTORS)
    if (tensor.block is not None) != has_blocks or not all(1 <= x <= 2**13 for x in tensor.block or ()):
        yield "block", tensor.block, "rows and K of 1 to 8,192 for factors, and nothing else"
    known = WORDS if tensor.block_elems > 1 else {**DTYPES, **PACKED} if tensor.name in launch.OPERANDS else DTYPES
    if tensor.dtype not in known:
        yield "dtype", tensor.dtype, f"one of {', '.join(known)}"
    if tensor.block_elems not in (1, ATOM_WORDS):
        yield "block_elems", tensor.block_elems, f"1, or the {ATOM_WORDS} words of an atom of factors"
    if tensor.align_bytes.bit_count() != 1 or not 1 <= tensor.align_bytes <= MAX_ALIGN_BYTES:
        yield "align_bytes", tensor.align_bytes, f"a power of two up to {MAX_ALIGN_BYTES}"


def _outside(contract: LaunchContract) -> Iterator[_Misfit]:
    """Yield numbers out of range."""
    tile_m, tile_n = contract.cta_tile
    bounds: list[tuple[str, int | None, int, int]] = [
        ("cta_tile[0]", tile_m, 1, 2**13),
        ("cta_tile[1]", tile_n, 1, 2**13),
        ("threads", contract.threads, 1, MAX_THREADS_PER_CTA),
        ("dynamic_smem_bytes", contract.dynamic_smem_bytes, 0, MAX_SMEM_BYTES),
        ("ctas_per_multiprocessor", contract.ctas_per_multiprocessor, 1, 32),
    ]
    if contract.split is not None:
        bounds += [
            ("split.slices", contract.split.slices, 1, 2**16 - 1),
            ("split.bytes_per_slice", contract.split.bytes_per_slice, 0, 2**30),
        ]
    for address, found, least, most in bounds:
        if found is not None and not least <= found <= most:
            yield address, found, f"{least:,} to {most:,}"


def _of_cluster(contract: LaunchContract) -> Iterator[_Misfit]:
    x, y = contract.cluster
    if contract.spread and (contract.cluster != launch.ONE_CTA or contract.ctas_per_multiprocessor is None):
        yield "spread", True, "false with clusters, and without persistent CTAs"
    if min(x, y) < 1 or x * y > MAX_CLUSTER_CTAS:
        yield "cluster", contract.cluster, f"extents of at least 1, up to {MAX_CLUSTER_CTAS} CTAs in total"
    elif contract.split is not None and contract.split.slices % y:
        yield "cluster[1]", y, f"a divisor of the {contract.split.slices} slices of K"


def _of_maps(contract: LaunchContract) -> Iterator[_Misfit]:
    matrices = [tensor.name for tensor in contract.tensors if len(tensor.modes) == 2]
    for index, each in enumerate(contract.maps):
        if each.name not in matrices:
            yield f"maps[{index}].name", each.name, f"one of {', '.join(matrices)}"
        if not all(1 <= extent <= MAX_BOX_ELEMS for extent in each.box):
            yield f"maps[{index}].box", each.box, f"extents of 1 to {MAX_BOX_ELEMS}"
        if each.swizzle_bytes not in (0, 32, 64, 128):
            yield f"maps[{index}].swizzle_bytes", each.swizzle_bytes, "0, 32, 64 or 128"


def _of_parameters(contract: LaunchContract) -> Iterator[_Misfit]:
    types = dict(_parameter_types(contract))
    for index, each in enumerate(contract.parameters):
        if each.name not in types:
            yield f"parameters[{index}].name", each.name, f"one of {', '.join(types)}"
        elif each.type != types[each.name]:
            yield f"parameters[{index}].type", each.type, f"{types[each.name]} for {each.name}"


def _parameter_types(contract: LaunchContract) -> Iterable[tuple[str, str]]:
    """Return every parameter that a launcher has a value for, with its type."""
    yield from ((f"map_{each.name}", "tensormap") for each in contract.maps)
    yield from ((name, "ptr") for name in contract.pointers)
    yield from ((name, "f32") for name in contract.scalars)
    yield from ((name, "i32") for name in launch.integers(contract.groups))
    for tensor in contract.tensors:
        if tensor.name not in REGISTERS.values():
            if leading := launch.leading_stride(tensor):
                yield leading, launch.stride_type(tensor)
            yield f"batch_stride_{tensor.name}", "i64"


# Reads an artifact's `plan.json` for a launch, and checks each value before use.


_RESULTS = {GEMM: (launch.RESULT,)}
_OPENS = {GEMM: "expected a GEMM; open it as a Probe"}
_OTHERWISE = "expected a probe; open it as a Kernel"


@dataclass(frozen=True, slots=True)
class PlanTable:
    """The launch contract of a kernel; `table` is the complete `plan.json`, and messages name `file`."""

    launch: LaunchContract
    table: dict[str, Any]
    file: str

    @classmethod
    def of(cls, artifact: Artifact, kind: str) -> Self:
        """Read an artifact. Raises ArtifactError if it is not of `kind`, or its contract cannot be launched."""
        file = f"{artifact.path}: plan.json"
        table = parse_object(artifact.plan_json, file)
        if (found := read(str, table.get("kind", GEMM), file, "kind")) != kind:
            raise ArtifactError(f"{artifact.path}: found a kernel of kind {found}; {_OPENS.get(kind, _OTHERWISE)}")
        contract = LaunchContract.from_json(table.get("launch"), file)
        check_launch(contract, file, _RESULTS.get(kind, tuple(REGISTERS.values())))
        if contract.entry != artifact.manifest.entry:
            raise ArtifactError(f"{file}: launch.entry: found {contract.entry}; expected {artifact.manifest.entry}")
        return cls(contract, table, file)
