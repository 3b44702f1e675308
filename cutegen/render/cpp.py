"""A header that launches kernels from C++: their cubins, and functions of typed operands, without dependencies.

Kernels of one name are behind one function, which chooses by the GPU and the problem, as `Pack.kernel` does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cutegen.contract.launch import (
    CLEARED,
    COUNTERS,
    ENDS,
    RESULT,
    SCALES,
    SUMS,
    WRITTEN,
    LaunchContract,
    Parameter,
    TensorContract,
    integers,
    leading_stride,
)
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT, PAIR, Groups, Pairs, ProblemShape
from cutegen.contract.tensor_map import MapMode
from cutegen.errors import RequestError
from cutegen.hardware import dtype
from cutegen.render.environment import environment

_BYTES_PER_LINE = 24
_DATA_TYPES = {"f16": 6, "f32": 7, "bf16": 9}
"""CUtensorMapDataType of floats; other types are copied as unsigned integers of their size."""
_UNSIGNED = {1: 0, 2: 1, 4: 2}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CppKernel:
    """A compiled kernel, and the problems that it was made for; None is every problem."""

    contract: LaunchContract
    cubin: bytes
    gpu_arch: str
    problems: tuple[ProblemShape | None, ...] = (None,)

    @property
    def leaves_sums(self) -> bool:
        """True if it takes memory for the sums of slices."""
        return self.contract.split is not None and self.contract.split.leaves_sums


def cpp_header(contract: LaunchContract, cubin: bytes, gpu_arch: str) -> str:
    """Return a header for a kernel compiled for `gpu_arch` (`sm_90a`), with a namespace called after its entry."""
    return cpp_header_of({contract.entry: [CppKernel(contract=contract, cubin=cubin, gpu_arch=gpu_arch)]})


def cpp_header_of(named: Mapping[str, Sequence[CppKernel]]) -> str:
    """Return a header with a namespace for each name, whose `launch` chooses among its kernels.

    Raises RequestError for kernels of one name with other operands, and for names that are one in C++.
    """
    spaces: dict[str, str] = {}
    for name in named:
        if (other := spaces.setdefault(_namespace(name), name)) != name:
            raise RequestError(f"{name}: found the C++ namespace {_namespace(name)} of {other}; expected another name")
    made = [_launches(space, named[name]) for space, name in spaces.items()]
    return environment().get_template("host/header.hpp.j2").render(namespaces=made)


def _namespace(name: str) -> str:
    space = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{space}" if space[0].isdigit() else space


def _launches(space: str, kernels: Sequence[CppKernel]) -> str:
    """Return the namespace of kernels with the same operands. Raises RequestError if they have others."""
    first, leaves = kernels[0].contract, any(each.leaves_sums for each in kernels)
    for each in kernels:
        if _operands(each.contract) != _operands(first):
            raise RequestError(
                f"{space}: found kernels `{first.entry}` and `{each.contract.entry}` with other operands, "
                f"{'; '.join(_described([each]))} and {'; '.join(_described([kernels[0]]))}; expected another name for "
                "each: one function launches those of a name"
            )
    choices = [_choice(kernels)] if len(kernels) > 1 else []
    return (
        environment()
        .get_template("host/launch.hpp.j2")
        .render(
            summary=_summary(first),
            by=_by(kernels),
            namespace=space,
            described="\n".join(f"//   {line}" for line in _described(kernels)),
            problem=_problem(first.groups),
            products=_products(first.groups),
            columns_of_pairs=() if first.pairs is None else (first.columns_multiple,),
            max_extent=MAX_EXTENT,
            max_products=MAX_BATCH if first.groups is None else MAX_EXTENT,
            kernels=[_kernel(i, each) for i, each in enumerate(kernels)],
            choices=choices,
            arguments=", ".join(_arguments(first, leaves)),
            workspace_bytes="\n".join(_by_choice(["return {}::workspace_bytes(problem);"] * len(kernels))),
            launch="\n".join(_by_choice([f"return {{}}::enqueue({_passed(each)});" for each in kernels])),
        )
    )


def _operands(contract: LaunchContract) -> tuple[object, ...]:
    """Return what a caller passes: of the tensors all but their alignment."""
    tensors = tuple(replace(each, align_bytes=1) for each in contract.tensors)
    return tensors, contract.scalars, contract.groups, contract.pairs, contract.epilogue


def _by(kernels: Sequence[CppKernel]) -> str:
    """Return which kernels compute."""
    if len(kernels) == 1:
        return f"The kernel is `{kernels[0].contract.entry}`, for every problem on {kernels[0].gpu_arch}."
    archs = ", ".join(dict.fromkeys(each.gpu_arch for each in kernels))
    return f"One of {len(kernels)} kernels for {archs} computes, chosen by GPU and problem: `detail::chosen`."


def _by_choice(statements: Sequence[str]) -> Iterator[str]:
    """Write the statement of the kernel that is chosen, which has a hole for its namespace."""
    *others, last = (each.format(f"detail::kernel_{i}") for i, each in enumerate(statements))
    if others:
        yield "  switch (detail::chosen(problem)) {"
        for i, each in enumerate(others):
            yield f"    case {i}:"
            yield f"      {each}"
        yield f"    default:\n      {last}\n  }}"
    else:
        yield f"  {last}"


def _choice(kernels: Sequence[CppKernel]) -> str:
    """Return the function that chooses."""
    rows = []
    for i, each in enumerate(kernels):
        number, exactly = _capability(each.gpu_arch)
        for problem in each.problems:
            extents = "-1, -1, -1, -1"
            if problem is not None:
                extents = f"{problem.m}, {problem.n}, {problem.k}, {problem.products}"
            rows.append((number, f"{{{extents}, {number // 10}, {number % 10}, {_truth(exactly)}, {i}}}"))
    rows.sort(key=lambda row: -row[0])  # stable: in the order of the pack
    products = _products(kernels[0].contract.groups)
    template = environment().get_template("host/choice.hpp.j2")
    return template.render(rows=[row for _, row in rows], products=products).rstrip()


def _capability(gpu_arch: str) -> tuple[int, bool]:
    """Return a compute capability as a number, and whether no later minor one runs such cubins."""
    found = re.fullmatch(r"sm_(\d+)([af]?)", gpu_arch)
    assert found is not None
    return int(found[1]), found[2] == "a"


def _kernel(index: int, kernel: CppKernel) -> str:
    """Return the namespace of one kernel."""
    contract, (number, exactly) = kernel.contract, _capability(kernel.gpu_arch)
    (tile_m, tile_n), (x, y) = contract.cta_tile, contract.cluster
    of_cluster = (x, y if contract.split is None else 1)
    tiles_m, tiles_n = reversed(of_cluster) if contract.swapped else of_cluster
    leaves = kernel.leaves_sums
    return (
        environment()
        .get_template("host/launched_kernel.hpp.j2")
        .render(
            entry=contract.entry,
            namespace=f"kernel_{index}",
            gpu_arch=kernel.gpu_arch,
            cubin=",\n".join(_rows(kernel.cubin)),
            cluster_x=x,
            cluster_y=y,
            block_m=tile_m * tiles_m,
            block_n=tile_n * tiles_n,
            cluster_tiles=tiles_m * tiles_n,
            grid_y=y if contract.split is None else contract.split.slices,
            slices=contract.split.slices if contract.split is not None and leaves else 0,
            bytes_per_slice=contract.split.bytes_per_slice if contract.split is not None and leaves else 0,
            ctas_per_sm=contract.ctas_per_multiprocessor or 0,
            spread=_truth(contract.spread),
            programmatic=_truth(contract.programmatic),
            threads=contract.threads,
            smem_bytes=contract.dynamic_smem_bytes,
            runs_here=f"major == {number // 10} && minor {'==' if exactly else '>='} {number % 10}",
            along_groups=_along_groups(contract.groups),
            arguments=", ".join(_arguments(contract, leaves)).replace(" = nullptr", ""),
            places="\n".join(_places(contract)),
            workspace=_workspace(leaves),
            cleared="\n".join(_cleared(contract)),
            values="\n".join(_values(contract)),
        )
        .rstrip()
    )


def _passed(kernel: CppKernel) -> str:
    """Return the arguments of `launch` that a kernel takes."""
    return ", ".join(
        each.removesuffix(" = nullptr").split()[-1] for each in _arguments(kernel.contract, kernel.leaves_sums)
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _summary(contract: LaunchContract) -> str:
    chain = "; ".join(contract.epilogue)
    return "C[M,N] = A[M,K] B[N,K]" + (f", then {chain}" if chain else "") + ", for every problem."


def _described(kernels: Sequence[CppKernel]) -> Iterator[str]:
    """Describe each operand: its modes, type, layout, and the alignment that is enough for every kernel."""
    contract = kernels[0].contract
    for each in contract.tensors:
        align_bytes = max(x.contract.tensor(each.name).align_bytes for x in kernels)
        modes = ", ".join(mode.upper() for mode in each.modes)
        block = f" in blocks of {each.block[0]} x {each.block[1]}" if each.block else ""
        block += f", {each.block_elems} words each" if each.block_elems > 1 else ""
        layout = f", {each.major.upper()} is contiguous" if len(each.modes) == 2 else ""
        many = contract.groups is not None and not contract.groups.packs(each.modes)
        of_groups = ", one for each group" if many else ""
        yield f"{each.name} ({modes}){block}: {each.dtype}{layout}, aligned to {align_bytes} bytes{of_groups}"
    if contract.groups is not None:
        what = "ends" if contract.groups.layout == "packed" else "sizes"
        yield f"{ENDS}: the {what} of the groups of {contract.groups.of.upper()}, int32 on the device"


def _problem(groups: Groups | None) -> str:
    """Return the struct of a problem."""
    if groups is None:
        return "struct Problem {\n  std::int64_t m, n, k, batch = 1;\n};"
    return (
        f"// {groups.of} is the extent of all groups together, or of each if they are padded.\n"
        "// With `clears`, elements of C that no group has become 0.\n"
        "struct Problem {\n  std::int64_t m, n, k, groups;\n  bool clears = true;\n"
        "  static constexpr std::int64_t batch = 1;\n};"
    )


def _products(groups: Groups | None) -> str:
    """Return the number of products of a launch."""
    return "problem.batch" if groups is None else "problem.groups"


def _rows(cubin: bytes) -> Iterator[str]:
    for at in range(0, len(cubin), _BYTES_PER_LINE):
        yield "    " + ", ".join(map(str, cubin[at : at + _BYTES_PER_LINE]))


def _along_groups(groups: Groups | None) -> str:
    if groups is None:
        return ""
    if groups.of == "k":
        return "  along_m *= problem.groups;"
    block = f"kContract.block_{groups.of}"
    if groups.layout == "padded":
        return f"  along_{groups.of} *= problem.groups;"
    return f"  along_{groups.of} = (problem.{groups.of} + problem.groups * ({block} - 1)) / {block};"


def _arguments(contract: LaunchContract, leaves_sums: bool) -> Iterator[str]:
    for each in contract.tensors:
        size = dtype(each.dtype).bytes
        if len(each.modes) == 2:
            written = ", true" if each.name in WRITTEN else ""
            yield f"Matrix<{size}{written}> {each.name}"
        else:
            yield f"Vector<{size}> {each.name}"
    if contract.groups is not None:
        yield f"const std::int32_t* {ENDS}"
    yield from (f"float {name}" for name in contract.scalars)
    yield "const Problem& problem"
    if leaves_sums:
        yield "void* memory"
    yield "void* stream = nullptr"


def _extent(tensor: TensorContract, mode: str, groups: Groups | None) -> str:
    """Return the extent of a tensor along a mode, in elements of blocks if it has those."""
    if tensor.block is None:
        return _whole(mode)
    if groups is not None and tensor.lists(groups):
        every = " * ".join(f"({_blocks(tensor, each, groups)})" for each in tensor.modes)
        return f"{tensor.block_elems}" if mode == tensor.major else every
    blocks = _blocks(tensor, mode, groups)
    return blocks if tensor.block_elems == 1 or mode != tensor.modes[-1] else f"{blocks} * {tensor.block_elems}"


def _blocks(tensor: TensorContract, mode: str, groups: Groups | None) -> str:
    """Return the number of a tensor's blocks along a mode: of packed groups, each of which begins one, the most."""
    assert tensor.block is not None
    of_block = tensor.block[tensor.modes.index(mode)]
    if groups is not None and mode == groups.of and tensor.begins_with(groups):
        return f"({_whole(mode)} + {of_block - 1} * {_products(groups)}) / {of_block}"
    return f"ceil_div({_whole(mode)}, {of_block})"


def _whole(mode: str) -> str:
    return "problem.n / 2" if mode == PAIR else f"problem.{mode}"


def _places(contract: LaunchContract) -> Iterator[str]:
    for each in contract.tensors:
        if len(each.modes) == 2:
            size = dtype(each.dtype).bytes
            (other,) = (mode for mode in each.modes if mode != each.major)
            extents = ", ".join(_extent(each, mode, contract.groups) for mode in (each.major, other))
            yield f'  place({each.name}, "{each.name}", {extents}, {size}, {each.align_bytes});'


def _workspace(leaves_sums: bool) -> str:
    if not leaves_sums:
        return ""
    return (
        f"  std::uint64_t {COUNTERS} = reinterpret_cast<std::uint64_t>(memory);\n"
        f'  require({COUNTERS} && {COUNTERS} % 256 == 0, "memory that is not aligned to 256 bytes");\n'
        f"  std::uint64_t {SUMS} = {COUNTERS} + std::uint64_t(counter_bytes(kContract, clusters, problem.batch));"
    )


def _cleared(contract: LaunchContract) -> Iterator[str]:
    """Set C to 0 before CTAs add to it."""
    if not contract.adds_to_result:
        return
    result = contract.tensor(RESULT)
    size, (other,) = dtype(result.dtype).bytes, (mode for mode in result.modes if mode != result.major)
    c = result.name
    yield "  for (std::int64_t i = 0; i < problem.batch; ++i)"
    pitch, width = f"std::size_t({c}.leading * {size})", f"std::size_t(problem.{result.major} * {size})"
    yield f"    check(driver().clear({c}.address + std::uint64_t(i * {c}.batch_stride * {size}), {pitch}, 0,"
    yield f'                         {width}, std::size_t(problem.{other}), stream), "cuMemsetD2D8Async");'


def _values(contract: LaunchContract) -> Iterator[str]:
    """Declare each parameter's value under its name, and their addresses in order."""
    for each in contract.parameters:
        yield f"  {_declared(each, contract)};"
    names = ", ".join(f"&value_{each.name}" for each in contract.parameters)
    yield f"  void* values[] = {{{names}}};"


def _declared(parameter: Parameter, contract: LaunchContract) -> str:
    """Return the declaration of a parameter's value."""
    tensors = {each.name: each for each in contract.tensors}
    strides = {leading_stride(each): each for each in contract.tensors}
    maps = {f"map_{each.name}": each for each in contract.maps}
    name = parameter.name
    value = f"value_{name}"
    if name in maps:
        return f"TensorMap {value} = {_map(tensors[maps[name].name], contract)}"
    if parameter.type == "f32":
        return f"float {value} = {name}"
    if parameter.type == "ptr":
        address = f"{name}.address" if name in tensors else name
        return f"std::uint64_t {value} = {f'reinterpret_cast<std::uint64_t>({name})' if name == ENDS else address}"
    if name == CLEARED:
        assert contract.groups is not None
        return f"std::int32_t {value} = problem.clears ? std::int32_t(problem.{contract.groups.of}) : 0"
    if name in integers(contract.groups):
        return f"std::int32_t {value} = std::int32_t(problem.{name})"
    if name in strides:
        tensor = strides[name]
        kept = "increment" if tensor.name in SCALES else "leading"
        return f"std::{'int32_t' if parameter.type == 'i32' else 'int64_t'} {value} = {tensor.name}.{kept}"
    return f"std::int64_t {value} = {name.removeprefix('batch_stride_')}.batch_stride"


def _map(tensor: TensorContract, contract: LaunchContract) -> str:
    size = dtype(tensor.dtype).bytes
    kind, modes = _DATA_TYPES.get(tensor.dtype, _UNSIGNED[size]), ", ".join(map(str, _map_modes(tensor, contract)))
    (swizzle_bytes,) = (each.swizzle_bytes for each in contract.maps if each.name == tensor.name)
    return f"map_of({tensor.name}.address, {RESULT}.address, {kind}, {size}, {_SWIZZLES[swizzle_bytes]}, {{{modes}}})"


@dataclass(frozen=True, slots=True)
class _Mode:
    """A mode of a tensor map: the C++ of its extent and of its stride in elements, and the extent of a box."""

    extent: str
    stride: str
    box: int

    def __str__(self) -> str:
        return f"{{{self.extent}, {self.stride}, {self.box}}}"

    def split(self, pairs: Pairs, together: int) -> "list[_Mode]":
        """Return the modes of columns in pairs, as MapMode.split does for numbers."""
        columns = pairs.multiple * self.box  # boxes are those of any number of columns
        boxes = MapMode(columns, 1, self.box).split(pairs.modes(columns), together)
        half, width = f"{self.extent} / 2", pairs.width
        if width is None:
            modes = [(half, "1"), ("2", f"({half})")]
        elif width == 1:
            modes = [(half, "2"), ("2", "1")]
        else:
            modes = [(str(width), "1"), (f"{self.extent} / {2 * width}", str(2 * width)), ("2", str(width))]
        of_each = zip(modes, boxes, strict=True)
        return [_Mode(extent, f"{stride} * {self.stride}", each.box) for (extent, stride), each in of_each]


def _map_modes(tensor: TensorContract, contract: LaunchContract) -> list[_Mode]:
    """Return the modes of a tensor's map, the contiguous one first: C++ for what LaunchContract.map_fields computes."""
    (box,) = (each.box for each in contract.maps if each.name == tensor.name)
    (other,) = (mode for mode in tensor.modes if mode != tensor.major)
    pairs, groups = contract.pairs, contract.groups
    along = [_Mode(_extent(tensor, tensor.major, groups), "1", box[0])]
    across = [_Mode(_extent(tensor, other, groups), f"{tensor.name}.leading", box[1])]
    if pairs is not None and tensor.name in (pairs.operand, f"scale_{pairs.operand}"):
        columns, tile = along if tensor.major == pairs.of else across, contract.cta_tile["mn".index(pairs.of)]
        columns[:] = columns[0].split(pairs, (tile if tensor.block is None else columns[0].box) // 2)
    matrices = "1" if groups is not None and groups.packs(tensor.modes) else _products(groups)
    return [along[0], *across, *along[1:], _Mode(matrices, f"{tensor.name}.batch_stride", 1)]
