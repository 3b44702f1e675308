"""The header of `cutegen emit --what cpp`: compiled by g++ alone, it hands a driver what the launch contract says."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.contract import LaunchContract, ProblemShape
from cutegen.contract.launch import OPERANDS, SCALES, CallSize, SplitContract, Strides, gemm_parameters
from cutegen.contract.problem import Groups
from cutegen.errors import RequestError
from cutegen.hardware import dtype
from cutegen.plan import plan
from cutegen.render.cpp import _DATA_TYPES, _SWIZZLES, _UNSIGNED, CppKernel, cpp_header, cpp_header_of
from cutegen.run.gpu.raw_driver import LaunchAttribute, LaunchConfig
from cutegen.spec import load_spec
from cutegen.spec.parts import Grouped
from tests.render import fake_libcuda
from tests.render.fake_libcuda import ACTIVE_CLUSTERS, LETTERS, MULTIPROCESSORS, needs_compiler

CUBIN = b"\x7fELF" + bytes(60)
M, N, K, BATCH, GROUPS = 301, 130, 40, 2, 5
SCALARS = {"alpha": 0.5, "beta": -2.25}
STREAM = 4096
TYPES = {1: "std::uint8_t", 2: "std::uint16_t", 4: "float"}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver of our own."""
    return fake_libcuda.make(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def run(driver: Path, tmp_path: Path) -> Run:
    def call(
        contract: LaunchContract,
        main: str,
        *,
        arch: str = "sm_90a",
        capability: int = 90,
        fails: str = "",
        header: str = "",
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "kernel.h").write_text(header or cpp_header(contract, CUBIN, arch))
        source = tmp_path / "main.cpp"
        head = '#include "kernel.h"\n#include <cstdio>\n'
        begin = "int main() try {\n", "} catch (const std::exception& error) { std::puts(error.what()); return 3; }\n"
        source.write_text(f"{head}{begin[0]}{main}\n{begin[1]}")
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        subprocess.run(["g++", *flags, str(source), "-ldl", "-o", str(tmp_path / "main")], check=True)
        types = "".join(LETTERS[each.type] for each in contract.parameters)
        environment = {"LD_LIBRARY_PATH": str(driver), "FAKE_CAPABILITY": str(capability), "FAKE_TYPES": types}
        environment |= {"FAKE_FAILS": fails} if fails else {}
        return subprocess.run([str(tmp_path / "main")], env=environment, capture_output=True, text=True)

    return call


def call_size(contract: LaunchContract, problem: ProblemShape) -> CallSize:
    """Matrices with a gap after each row, which alignment allows, and after each matrix of the batch."""
    strides = {}
    for each in contract.tensors:
        size = dtype(each.dtype).bytes
        unit = max(1, each.align_bytes // size)
        extents = dict(zip(each.modes, each.extents(problem, contract.groups), strict=True))
        if len(each.modes) == 2:
            (other,) = (mode for mode in each.modes if mode != each.major)
            leading = -(-extents[each.major] // unit) * unit + unit
            strides[each.name] = Strides(leading, leading * extents[other])
        else:
            strides[each.name] = Strides(0 if each.name == "scale_n" else 1, 128)
    return CallSize(problem=problem, strides=strides, clears=True)


def addresses(contract: LaunchContract) -> dict[str, int]:
    return {name: (index + 1) << 32 for index, name in enumerate(contract.pointers)}


def calling(contract: LaunchContract, size: CallSize, **others: str) -> str:
    """C++ that launches with these strides; `others` replace an argument by name."""
    at, words = addresses(contract), []
    for each in contract.tensors:
        strides, kind = size.strides[each.name], TYPES[dtype(each.dtype).bytes]
        data = f"reinterpret_cast<{kind}*>({at[each.name]}ull)"
        more = f", {strides.leading}, {strides.batch}"
        words.append(others.get(each.name, f"{{{data}{more}}}"))
    problem = size.problem
    extents = f"problem.m = {problem.m}; problem.n = {problem.n}; problem.k = {problem.k};"
    if contract.groups is not None:
        words.append(f"reinterpret_cast<const std::int32_t*>({at['ends']}ull)")
        extents += f" problem.groups = {problem.products};"
    else:
        extents += f" problem.batch = {problem.batch};"
    words += [f"{SCALARS[name]}f" for name in contract.scalars] + ["problem"]
    if "counters" in at:
        words.append(f"reinterpret_cast<void*>({at['counters']}ull)")
    words.append(f"reinterpret_cast<void*>({STREAM})")
    lines = [
        f"using namespace {contract.entry};",
        f"Problem problem{{}}; {extents}",
        'std::printf("workspace %zu\\n", workspace_bytes(problem));',
        f"launch({', '.join(words)});",
    ]
    return "\n".join(lines)


def expected_of(contract: LaunchContract, size: CallSize, sums: int) -> tuple[list[int], list[tuple[Any, ...]]]:
    clusters = ACTIVE_CLUSTERS if contract.cluster != (1, 1) else None
    made = contract.geometry(size.problem, multiprocessors=MULTIPROCESSORS, active_clusters=clusters)
    at = addresses(contract) | ({"sums": sums} if "sums" in contract.pointers else {})
    maps = [
        (at[each.name], *f.extents, *f.strides_bytes, *f.box, kind_of(f.dtype), _SWIZZLES[f.swizzle_bytes], 20)
        for each, f in zip(contract.maps, contract.map_fields(size), strict=True)
    ]
    scalars = tuple(SCALARS[name] for name in contract.scalars)
    values = contract.arguments(tuple(at.values()), scalars, size, tuple(maps))  # type: ignore[arg-type]
    geometry = [*made.grid, *made.block, made.dynamic_smem_bytes]
    return geometry, [value if isinstance(value, tuple) else (value,) for value in values]


def kind_of(name: str) -> int:
    return _DATA_TYPES.get(name, _UNSIGNED[dtype(name).bytes])


def check(run: Run, contract: LaunchContract, problem: ProblemShape) -> list[list[str]]:
    size = call_size(contract, problem)
    said = run(contract, calling(contract, size))
    assert said.returncode == 0, said.stdout + said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    workspace = contract.workspace(problem)
    counters = 0 if workspace is None else -(-4 * workspace.counters // 256) * 256
    (bytes_said,) = [int(line[1]) for line in lines if line[0] == "workspace"]
    assert bytes_said == (0 if workspace is None else counters + workspace.sums_bytes)
    geometry, values = expected_of(contract, size, addresses(contract).get("counters", 0) + counters)
    assert [list(map(int, line[1:])) for line in lines if line[0] == "launch"] == [geometry]
    assert [tuple(map(float, line[1:])) for line in lines if line[0] in ("value", "map")] == values
    assert ["load", "ELF", "0"] in lines
    assert ["kernel", contract.entry] in lines
    assert ["attribute", "8", str(contract.dynamic_smem_bytes)] in lines
    assert ["stream", str(STREAM)] in lines
    attributes = [["4", *map(str, contract.cluster), "1"]] * (contract.cluster != (1, 1))
    attributes += [["6", "1", "0", "0"]] * contract.programmatic
    assert [line[1:] for line in lines if line[0] == "launch_attribute"] == attributes
    return lines


SPECS = [
    ("sm80_hgemm_tn", "sm_80"),
    ("sm80_hgemm_bias_gelu", "sm_80"),
    ("sm80_split_k_tn", "sm_80"),
    ("sm90_hgemm_tn", "sm_90"),
    ("sm90_e4m3_scaled_tn", "sm_90"),
    ("sm100_nvf4_tn", "sm_100"),
]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), SPECS)
def test_it_launches_what_the_contract_says(name: str, arch: str, run: Run) -> None:
    check(run, plan(load_spec(name), arch).launch, ProblemShape(M, N, K, BATCH))


def forged(**changes: Any) -> LaunchContract:
    return replace(plan(load_spec("sm80_hgemm_tn"), "sm_80").launch, **changes)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": (2, 1), "ctas_per_multiprocessor": 1},
        {"cluster": (1, 2), "ctas_per_multiprocessor": None, "programmatic": True},
        {"split": SplitContract(2, 0), "cluster": (1, 2)},
        {"cluster": (2, 1), "swapped": True},
        {"spread": True, "ctas_per_multiprocessor": 32},
        {"spread": True, "ctas_per_multiprocessor": 2, "programmatic": True},
    ],
)
def test_clusters_and_persistent_ctas_are_launched_as_the_contract_says(changes: dict[str, Any], run: Run) -> None:
    check(run, forged(**changes), ProblemShape(M, N, K, BATCH))


@needs_compiler
@pytest.mark.slow
def test_numbers_are_passed_by_value(run: Run) -> None:
    contract = forged(scalars=("alpha", "beta"))
    parameters = gemm_parameters(contract.tensors, contract.scalars)
    check(run, replace(contract, parameters=parameters), ProblemShape(M, N, K, BATCH))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "cluster", "swapped"),
    [(SplitContract(4, 512), (2, 1), True), (SplitContract(2, 4096), (2, 2), False)],
)
def test_slices_have_their_workspace(split: SplitContract, cluster: tuple[int, int], swapped: bool, run: Run) -> None:
    contract = forged(split=split, cluster=cluster, swapped=swapped)
    parameters = gemm_parameters(contract.tensors, (), workspace=("sums", "counters"))
    # More tiles than fit the counters' rounding to 256 bytes.
    check(run, replace(contract, parameters=parameters), ProblemShape(10 * M, 10 * N, K, BATCH))


@needs_compiler
@pytest.mark.slow
def test_a_result_to_which_ctas_add_is_cleared_row_by_row(run: Run) -> None:
    contract, problem = forged(split=SplitContract(3, 0, atomics=True)), ProblemShape(M, N, K, BATCH)
    lines = check(run, contract, problem)
    c, strides = addresses(contract)["c"], call_size(contract, problem).strides["c"]
    cleared = [list(map(int, line[1:])) for line in lines if line[0] == "set"]
    assert cleared == [[c + 2 * i * strides.batch, 2 * strides.leading, 0, 2 * N, M] for i in range(BATCH)]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("of", "layout"), [("m", "packed"), ("m", "padded"), ("n", "packed"), ("k", "packed")])
def test_groups_have_their_ends_and_most_tiles(of: Any, layout: Any, run: Run) -> None:
    groups = Groups(of, layout)
    contract = forged(groups=groups, ctas_per_multiprocessor=None)
    contract = replace(contract, parameters=gemm_parameters(contract.tensors, (), groups=groups))
    check(run, contract, ProblemShape(M, N, K, 1, GROUPS))


def planned(name: str, arch: str, **changes: Any) -> LaunchContract:
    return plan(replace(load_spec(name), **changes), arch).launch


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("of", "layout"), [("m", "packed"), ("m", "padded"), ("k", "packed")])
def test_groups_have_tensor_maps_of_one_matrix_or_of_each_groups(of: Any, layout: Any, run: Run) -> None:
    problem = replace(load_spec("sm90_bf16_grouped").problem, groups=Grouped(of, layout))
    contract = planned("sm90_bf16_grouped", "sm_90", problem=problem)
    assert contract.maps
    check(run, contract, ProblemShape(M, N, K, 1, GROUPS))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("of", ["m", "k"])
def test_groups_have_the_atoms_of_factors_that_any_sizes_need(of: Any, run: Run) -> None:
    """Of groups of K they are a list, for which a map has an atom in a row."""
    problem = replace(load_spec("sm100_mxf8_tn").problem, groups=Grouped(of))
    check(run, planned("sm100_mxf8_tn", "sm_100", problem=problem), ProblemShape(M, N, K, 1, GROUPS))


@needs_compiler
@pytest.mark.slow
def test_no_groups_launch_nothing(run: Run) -> None:
    contract = planned("sm90_bf16_grouped", "sm_90")
    size = call_size(contract, ProblemShape(M, N, K, 1, 0))
    nothing = run(contract, calling(contract, size))
    assert (nothing.returncode, nothing.stdout) == (0, "workspace 0\n")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("sm90_bf16_swiglu", "halves"),
        ("sm90_bf16_swiglu", "interleaved"),
        ("sm90_bf16_swiglu", 16),
        ("sm90_e4m3_swiglu_quantized", "halves"),
    ],
)
def test_pairs_of_columns_have_maps_of_more_modes(name: str, layout: Any, run: Run) -> None:
    epilogue = load_spec(name).epilogue
    assert epilogue.pairs is not None
    contract = planned(name, "sm_90", epilogue=replace(epilogue, pairs=replace(epilogue.pairs, layout=layout)))
    problem = ProblemShape(M, 3 * contract.columns_multiple, K, BATCH)
    check(run, contract, problem)
    size = call_size(contract, replace(problem, n=problem.n - 1))
    refused = run(contract, calling(contract, size))
    assert (refused.returncode, refused.stdout.count("launch ")) == (3, 0)
    assert f"found an N that is not a multiple of {contract.columns_multiple}: its columns are pairs" in refused.stdout


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "said"),
    [
        ("{reinterpret_cast<std::uint16_t*>(2), 48, 0}", "operand a: found an address that is not aligned"),
        ("{reinterpret_cast<std::uint16_t*>(0), 48, 0}", "operand a: found an address that is not aligned"),
        ("{reinterpret_cast<std::uint16_t*>(64), 32, 0}", "operand a: found a leading stride below the extent"),
        ("{reinterpret_cast<std::uint16_t*>(64), 41, 0}", "operand a: found a leading stride that is not aligned"),
        ("{reinterpret_cast<std::uint16_t*>(64), 48, 3}", "operand a: found a batch stride that is not aligned"),
    ],
)
def test_an_operand_that_does_not_fit_is_named(a: str, said: str, run: Run) -> None:
    contract = forged()
    refused = run(contract, calling(contract, call_size(contract, ProblemShape(M, N, K)), a=a))
    assert (refused.returncode, refused.stdout.count("launch ")) == (3, 0)
    assert f"{contract.entry}: {said}" in refused.stdout


@needs_compiler
@pytest.mark.slow
def test_another_gpu_a_failing_driver_and_an_empty_problem(run: Run) -> None:
    contract = forged()
    main = calling(contract, call_size(contract, ProblemShape(M, N, K)))
    assert "the GPU is of another compute capability" in run(contract, main, capability=80).stdout
    assert run(contract, main, arch="sm_80", capability=89).returncode == 0
    assert "the GPU is of another" in run(contract, main, arch="sm_80", capability=90).stdout
    assert "cuLaunchKernelEx: CUDA_ERROR_FAKE" in run(contract, main, fails="cuLaunchKernelEx").stdout
    empty = run(contract, calling(contract, call_size(contract, ProblemShape(0, N, K))))
    assert (empty.returncode, empty.stdout) == (0, "workspace 0\n")


@needs_compiler
@pytest.mark.slow
def test_elements_of_another_size_and_a_constant_result_do_not_compile(run: Run) -> None:
    contract = forged()
    size = call_size(contract, ProblemShape(M, N, K))
    for name, wrong in (("a", "reinterpret_cast<float*>(64)"), ("c", "reinterpret_cast<const std::uint16_t*>(64)")):
        with pytest.raises(subprocess.CalledProcessError):
            run(contract, calling(contract, size, **{name: wrong}))


def test_the_drivers_structures_and_numbers_are_those_of_cuda() -> None:
    """Against those that launches on GPUs use, and the bindings' enumerations."""
    cuda = pytest.importorskip("cuda.bindings.driver")
    attribute, kind, swizzle = cuda.CUdevice_attribute, cuda.CUtensorMapDataType, cuda.CUtensorMapSwizzle
    names = ("MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
    assert [int(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")) for name in names] == [16, 75, 76]
    assert int(cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == 8
    assert int(cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B) == 2
    kinds = {"f16": "FLOAT16", "f32": "FLOAT32", "bf16": "BFLOAT16"}
    assert {name: int(getattr(kind, f"CU_TENSOR_MAP_DATA_TYPE_{each}")) for name, each in kinds.items()} == _DATA_TYPES
    assert {8 * size: value for size, value in _UNSIGNED.items()} == {
        bits: int(getattr(kind, f"CU_TENSOR_MAP_DATA_TYPE_UINT{bits}")) for bits in (8, 16, 32)
    }
    bits = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
    assert {size: int(getattr(swizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}")) for size, name in bits.items()} == _SWIZZLES


@needs_compiler
@pytest.mark.slow
def test_the_headers_structures_are_laid_out_as_those_of_other_launches(run: Run) -> None:
    fields = {"block": "block", "smem_bytes": "smem_bytes", "stream": "stream", "attributes": "attributes"}
    fields["attribute_count"] = "attribute_count"
    asserts = [
        f"static_assert(offsetof(detail::LaunchConfig, {name}) == {getattr(LaunchConfig, each).offset});"
        for name, each in fields.items()
    ]
    asserts.append(f"static_assert(sizeof(detail::LaunchConfig) == {ctypes.sizeof(LaunchConfig)});")
    asserts.append(f"static_assert(sizeof(detail::LaunchAttribute) == {ctypes.sizeof(LaunchAttribute)});")
    asserts.append(f"static_assert(offsetof(detail::LaunchAttribute, value) == {LaunchAttribute.cluster.offset});")
    contract = forged()
    assert run(contract, "\n".join([f"using namespace {contract.entry};", *asserts])).returncode == 0


def made_for(arch: str, *problems: ProblemShape | None, **changes: Any) -> CppKernel:
    return CppKernel(contract=forged(**changes), cubin=CUBIN, gpu_arch=arch, problems=problems)


PLAIN = plan(load_spec("sm80_hgemm_tn"), "sm_80").launch
LARGE, TALL, SMALL = ProblemShape(4096, 4096, 4096), ProblemShape(4096, 64, 4096), ProblemShape(64, 64, 64, 3)
WORKSPACE = gemm_parameters(
    plan(load_spec("sm80_hgemm_tn"), "sm_80").launch.tensors, (), workspace=("sums", "counters")
)
OF_ONE_NAME = (
    made_for("sm_80", LARGE, threads=32),
    made_for("sm_80", None, threads=64),
    made_for("sm_90a", LARGE, threads=96),
    made_for("sm_90a", TALL, SMALL, threads=128, split=SplitContract(4, 512), parameters=WORKSPACE),
    made_for("sm_86", SMALL, threads=160),
)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "chosen"),
    [
        (80, [0, 1, 1, 1]),  # that of the problem, else that of every problem
        (86, [4, 4, 4, 4]),  # of the latest target
        (90, [2, 3, 2, 3]),  # else that of the nearest problem
    ],
)
def test_of_kernels_of_one_name_the_gpu_and_the_problem_choose(capability: int, chosen: list[int], run: Run) -> None:
    """Each has its own number of threads, by which its launch is known."""
    header, lines = cpp_header_of({"gemm": OF_ONE_NAME}), ["using namespace gemm;"]
    for each in (LARGE, SMALL, ProblemShape(4000, 3000, 5000), ProblemShape(16, 64, 64)):
        lines.append(f"{{ Problem p{{{each.m}, {each.n}, {each.k}, {each.batch}}};")
        lines.append('std::printf("workspace %d\\n", int(workspace_bytes(p) > 0));')
        at = [f"reinterpret_cast<std::uint16_t*>({i << 32}ull)" for i in (1, 2, 3)]
        lines.append(f"launch({', '.join(at)}, p, reinterpret_cast<void*>(1ull << 40)); }}")
    said = run(forged(parameters=()), "\n".join(lines), capability=capability, header=header)
    assert said.returncode == 0, said.stdout + said.stderr
    words = [line.split() for line in said.stdout.splitlines()]
    assert [int(x[4]) for x in words if x[0] == "launch"] == [OF_ONE_NAME[i].contract.threads for i in chosen]
    assert [int(x[1]) for x in words if x[0] == "workspace"] == [int(i == 3) for i in chosen]


@needs_compiler
@pytest.mark.slow
def test_two_names_are_two_namespaces_and_another_gpu_is_refused(run: Run) -> None:
    header = cpp_header_of({"one": OF_ONE_NAME, "4.two": [made_for("sm_90a", None)]})
    lines = ["one::Problem p{1, 8, 8};", "one::Matrix<2, true> c(reinterpret_cast<float16*>(64));"]
    lines = ["using float16 = std::uint16_t;", *lines, "auto* x = reinterpret_cast<float16*>(64);"]
    lines += ["(void)&_4_two::launch;", "one::launch(x, x, c, p, nullptr);"]
    said = run(forged(), "\n".join(lines), capability=100, header=header)
    assert (said.returncode, said.stdout) == (3, "one: the GPU is of a compute capability that no kernel is for\n")


def test_kernels_with_other_operands_need_other_names() -> None:
    other = CppKernel(contract=plan(load_spec("sm80_bf16_nn"), "sm_80").launch, cubin=CUBIN, gpu_arch="sm_80")
    with pytest.raises(RequestError, match=r"gemm: found kernels .* with other operands, a \(M, K\): bf16.*; expected"):
        cpp_header_of({"gemm": [OF_ONE_NAME[0], other]})
    with pytest.raises(RequestError, match=r"a b: found the C\+\+ namespace a_b of a\.b; expected another name"):
        cpp_header_of({"a.b": OF_ONE_NAME, "a b": OF_ONE_NAME})


def test_operands_of_several_kernels_are_aligned_for_all() -> None:
    tensors = tuple(replace(each, align_bytes=4) for each in OF_ONE_NAME[0].contract.tensors)
    header = cpp_header_of({"gemm": [made_for("sm_80", LARGE, tensors=tensors), OF_ONE_NAME[1]]})
    assert "a (M, K): f16, K is contiguous, aligned to 16 bytes" in header


def library(folder: Path, kernel: Any, body: str) -> Any:
    """A library that g++ makes of a kernel's header and of functions that call it."""
    contract, inputs = kernel.contract, kernel.artifact.manifest.inputs
    (folder / "kernel.h").write_text(cpp_header(contract, kernel.artifact.cubin, inputs.gpu_arch))
    (folder / "run.cpp").write_text(f'#include "kernel.h"\nusing namespace {contract.entry};\n{body}\n')
    made = folder / "run.so"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", str(folder / "run.cpp"), "-ldl", "-o", str(made)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(made))


@needs_compiler
def test_a_library_shares_nothing_of_its_kernel(tmp_path: Path) -> None:
    """Of a visible static variable in an inline function a process has one, whatever library the next comes from."""
    contract = plan(load_spec("sm90_hgemm_tn"), "sm_90").launch
    (tmp_path / "kernel.h").write_text(cpp_header(contract, CUBIN, "sm_90a"))
    used = f"const void* volatile used = &{contract.entry}::detail::kernel_0::bound(); (void)used;"
    (tmp_path / "run.cpp").write_text(f'#include "kernel.h"\nextern "C" void run() {{ {used} }}\n')
    command = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", "run.cpp", "-ldl", "-o", "run.so"]
    subprocess.run(command, check=True, cwd=tmp_path)
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", "run.so"], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    unique = [line for line in shown.stdout.splitlines() if line.split()[1] == "u"]
    assert not [line for line in unique if contract.entry in line]


@pytest.mark.gpu
@pytest.mark.dsl
@needs_compiler
@pytest.mark.parametrize(
    ("name", "extents"),
    [
        ("sm80_hgemm_tn", (304, 136, 64)),
        ("sm80_hgemm_bias_gelu", (304, 136, 64)),
        ("sm80_split_k_tn", (304, 136, 64)),
        ("sm90_hgemm_bias_gelu", (304, 136, 64)),
        ("sm90_e4m3_scaled_tn", (300, 144, 256)),
        ("sm90_bf16_swiglu", (300, 256, 128)),
    ],
)
def test_on_a_gpu_it_computes_what_the_kernel_does(name: str, extents: tuple[int, int, int], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import cutegen
    from cutegen.verify import compare, expected_outcome, random_extras, random_operands

    kernel = cutegen.compile(name, problem=extents)
    contract, (m, n, k) = kernel.contract, extents
    options: Any = {"seed": 3, "framework": "torch", "device": "cuda"}
    a, b, c = random_operands(contract, m, n, k, **options)
    extras = random_extras(contract, m, n, **options)
    tensors = {"a": a, "b": b, "c": c} | {x: y for x, y in extras.items() if x not in SCALARS}
    words = []
    for index, each in enumerate(contract.tensors):
        data = f"reinterpret_cast<{TYPES[dtype(each.dtype).bytes]}*>(at[{index}])"
        tensor = tensors[each.name if each.name != "source" else "c"]
        leading = 1 if len(each.modes) == 1 or each.name in SCALES else max(tensor.stride())
        words.append(f"{{{data}, {leading}, 0}}")
    problem = f"{{{m}, {n}, {k}}}"
    words += [f"{extras[each]!r}f" for each in contract.scalars] + [problem]
    words += ["memory"] * (contract.workspace(ProblemShape(*extents)) is not None)
    loaded = library(
        tmp_path,
        kernel,
        f'extern "C" std::size_t bytes() {{ return workspace_bytes({problem}); }}\n'
        f'extern "C" void run(const std::uint64_t* at, void* memory) {{ (void)memory; launch({", ".join(words)}); }}',
    )
    loaded.bytes.restype = ctypes.c_size_t
    memory = torch.zeros(max(loaded.bytes(), 1), dtype=torch.uint8, device="cuda")
    at = [tensors[each.name if each.name != "source" else "c"].data_ptr() for each in contract.tensors]
    expected = expected_outcome(contract, a, b, extras)
    loaded.run((ctypes.c_uint64 * len(at))(*at), ctypes.c_void_p(memory.data_ptr()))
    torch.cuda.synchronize()
    assert compare(c, expected.result, dtype=contract.tensor("c").dtype).ok
    assert OPERANDS == ("a", "b")


@pytest.mark.gpu
@pytest.mark.dsl
@needs_compiler
@pytest.mark.parametrize("ops", [(), ("bias_n", "silu")])
def test_on_a_gpu_groups_with_tensor_maps_are_multiplied(ops: tuple[str, ...], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import cutegen

    spec = load_spec("sm90_bf16_grouped")
    kernel = cutegen.compile(replace(spec, epilogue=replace(spec.epilogue, ops=ops)) if ops else spec)
    ends = [70, 70, 203]
    generator = torch.Generator("cuda").manual_seed(5)
    options: Any = {"generator": generator, "device": "cuda", "dtype": torch.bfloat16}
    a, b, bias = (torch.randn(*shape, **options) for shape in ((208, 128), (3, 256, 128), (3, 256)))
    c = torch.full((208, 256), torch.nan, device="cuda", dtype=torch.bfloat16)
    offs = torch.tensor(ends, device="cuda", dtype=torch.int32)
    given = {"a": (a, "0, 0"), "b": (b, f"0, {256 * 128}"), "c": (c, "0, 0"), "bias": (bias, "1, 256")}
    tensors = [given[each.name] for each in kernel.contract.tensors]
    words = [f"{{reinterpret_cast<std::uint16_t*>(at[{i}]), {strides}}}" for i, (_, strides) in enumerate(tensors)]
    words += [f"reinterpret_cast<std::int32_t*>(at[{len(tensors)}])", "problem"]
    call = f"Problem problem{{208, 256, 128, 3}}; launch({', '.join(words)});"
    loaded = library(tmp_path, kernel, f'extern "C" void run(const std::uint64_t* at) {{ {call} }}')
    at = [each.data_ptr() for each in (*(tensor for tensor, _ in tensors), offs)]
    loaded.run((ctypes.c_uint64 * len(at))(*at))
    torch.cuda.synchronize()
    expected = torch.zeros(208, 256, device="cuda", dtype=torch.float64)
    for group, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        expected[begin:end] = a[begin:end].double() @ b[group].double().T
        if ops:
            expected[begin:end] = torch.nn.functional.silu(expected[begin:end] + bias[group].double())
    # Rounding to bf16 changes a value by 2^-8 of it; sums of 128 products in f32 are off by far less than 2^-9, and
    # silu has a slope of at most 1.1.
    assert torch.all((c.double() - expected).abs() <= 2**-8 * expected.abs() + 2**-9)
