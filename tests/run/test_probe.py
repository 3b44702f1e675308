"""Probes on the CPU executor: each register of every way to load, against PTX ISA's tables; and their callers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cutegen
from cutegen.api import build_request, compile_gemm, compile_probe
from cutegen.build import Cache, build
from cutegen.errors import ArtifactError, OperandError, SpecError
from cutegen.hardware import MMA_ATOMS
from cutegen.plan import ProbePlan, plan
from cutegen.run import Kernel, Probe, Registers
from cutegen.run import probe as probe_module
from cutegen.run.call.storage import CallTensor, call_tensor
from cutegen.run.driver import Driver
from cutegen.spec import (
    GEMM,
    PROBE,
    GemmSpec,
    Operand,
    Problem,
    S2r,
    S2rCopy,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
)
from cutegen.verify.probes import check_registers, count_probe
from tests.plan.probes import OF_BYTES, ONE_OF_EACH_K, REPEATS, bits_of, fragments_by_hand, matrix, probe
from tests.plan.specs import SHIPPED_GEMMS

K = 2 * 32
SHIPPED = load_spec("ldmatrix_probe")


@pytest.fixture(scope="module")
def shipped(kernels: Cache) -> Probe:
    found = cutegen.compile(SHIPPED, "sm_89", cache=kernels)
    assert isinstance(found, Probe)
    return found


def planned(spec: GemmSpec, arch: str = "sm_89") -> ProbePlan:
    found = plan(spec, arch)
    assert isinstance(found, ProbePlan)
    return found


def numbered(rows: int, k: int, dtype: Any = np.float16) -> NDArray[Any]:
    """(rows, k) elements, each of which has its column-major number as its bits."""
    return np.arange(rows * k, dtype=np.uint16).reshape(rows, k, order="F").view(dtype)


def operands(spec: GemmSpec) -> tuple[NDArray[Any], NDArray[Any]]:
    """Numbered A (64,64) and B, the latter as (K,N), in the majors of `spec`."""
    dtype = np.dtype(np.float16 if spec.problem.a.dtype == "f16" else np.uint16)
    a, b = (numbered(64, K).copy(order="C" if x.major == "k" else "F") for x in (spec.problem.a, spec.problem.b))
    return a.view(dtype), b.view(dtype).T


def by_hand(operand: str, atom: str) -> NDArray[np.int64]:
    """The number of the element in each register, of one stage after the other."""
    held = fragments_by_hand(operand, atom)
    stages = [held[..., 0] + (held[..., 1] + stage * 32) * 64 for stage in range(2)]
    return np.concatenate(stages, axis=1)


def check(specs: list[GemmSpec], kernels: Cache) -> None:
    """Registers by hand and by the plan, and counts by the plan, of each probe."""
    for spec in specs:
        artifact = build(build_request(spec, "sm_89"), kernels)
        found, assured = Probe(artifact), planned(spec)
        registers, report = found.execute(*operands(spec))
        for operand, table in zip("ab", registers, strict=True):
            assert np.array_equal(table.view(np.uint16), by_hand(operand, found_atom(spec))), spec.name
        assert all(received.ok for received in check_registers(assured, found, seed=len(spec.name))), spec.name
        assert artifact.manifest.warnings == ()
        counts = count_probe(assured, report)
        assert counts.differing() == {}
        assert set(counts.wavefronts) >= ({"s2r.a", "s2r.b"} if "ldmatrix" in str(counts.executed) else {"s2r"})
        assert report.executed("mma") == 0


def found_atom(spec: GemmSpec) -> str:
    assert spec.mma.atom is not None
    return spec.mma.atom


EVERY = [
    pytest.param(atom, repeat, marks=() if (atom, repeat) == (ONE_OF_EACH_K[1], 4) else pytest.mark.slow)
    for atom in MMA_ATOMS
    if bits_of(atom) == 16
    for repeat in REPEATS
    if repeat == max(REPEATS) or atom in ONE_OF_EACH_K
]
"""Every atom; fewer of it beside one another only of one of each K, since other 16-bit types are loaded alike."""
OTHER_WIDTHS = (
    "SM80_16x8x8_F32TF32TF32F32_TN",
    "SM80_16x8x32_S32S8S8S32_TN_SATURATE",
    "SM89_16x8x32_F32E4M3E5M2F32_TN",
)


@pytest.mark.dsl
@pytest.mark.parametrize(("atom", "repeat"), EVERY)
def test_every_register_of_the_matrix(atom: str, repeat: int, kernels: Cache) -> None:
    check(matrix(atom, repeat), kernels)


def check_by_plan(specs: list[GemmSpec], arch: str, cache: Cache) -> None:
    """Registers and counts by the plan, whose tables are held to PTX ISA's."""
    for spec in specs:
        artifact = build(build_request(spec, arch), cache)
        assured, found = planned(spec, arch), Probe(artifact)
        assert all(received.ok for received in check_registers(assured, found, seed=3)), spec.name
        assert artifact.manifest.warnings == ()


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("atom", OTHER_WIDTHS)
def test_elements_of_8_and_32_bits(atom: str, kernels: Cache) -> None:
    """Rows of 16 bytes are what an ldmatrix moves, whatever lies in them."""
    check_by_plan(matrix(atom, 2), "sm_89", kernels)


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("atom", "arch", "repeat"),
    [
        (OTHER_WIDTHS[1], "sm_120", 2),
        pytest.param(OTHER_WIDTHS[2], "sm_100", 4, marks=pytest.mark.slow),
        pytest.param("SM80_16x8x16_S32S8S8S32_TN_SATURATE", "sm_120", 2, marks=pytest.mark.slow),
    ],
)
def test_transposed_elements_of_8_bits(atom: str, arch: str, repeat: int, kernels: Cache) -> None:
    """Registers of two atoms are filled by one load of B."""
    specs = matrix(atom, repeat, arch)
    across = [x for x in specs if x.s2r.b in map(S2rCopy, OF_BYTES.values()) or x.problem.a.major == "m"]
    check_by_plan(across, arch, kernels)


@pytest.mark.dsl
def test_plain_loads_bring_the_same(kernels: Cache) -> None:
    """Of 32 bits where K is contiguous, else of 16; beside an ldmatrix, and with a pad that no ldmatrix could read."""
    atom, universal = ONE_OF_EACH_K[1], S2rCopy("universal")
    specs = [
        probe(atom, 2, s2r=S2r(a=universal, b=universal)),
        probe(atom, 2, s2r=S2r(a=universal), smem=Smem(a=SmemLayout(pad=2))),
        replace(probe(atom, 2, s2r=S2r(b=universal)), problem=SHIPPED.problem),
    ]
    check([replace(spec, name=f"plain_{i}") for i, spec in enumerate(specs)], kernels)


@pytest.mark.dsl
def test_operands_may_lie_anywhere(shipped: Probe) -> None:
    """Leading strides with room, an address that is aligned to an element and nothing more."""
    a, b = operands(SHIPPED)
    roomy_a = np.zeros(64 * 71 + 1, np.float16)[1:].reshape(64, 71)[:, :K]
    roomy_b = np.zeros((K, 67), np.float16)[:, :64]
    roomy_a[...], roomy_b[...] = a, b
    for one, other in zip(shipped(a, b), shipped(roomy_a, roomy_b), strict=True):
        assert np.array_equal(one.view(np.uint16), other.view(np.uint16))
        assert (one.shape, one.dtype) == ((128, 64), np.float16)


@pytest.mark.dsl
def test_torch_gets_tables_of_torch(shipped: Probe) -> None:
    torch = pytest.importorskip("torch")
    received = check_registers(planned(SHIPPED), shipped, seed=1, framework="torch", device="cpu")
    assert [each.ok for each in received] == [True, True]
    table, _ = shipped(torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16))
    assert (tuple(table.shape), table.dtype, table.device.type) == ((128, 64), torch.float16, "cpu")


@pytest.mark.dsl
def test_a_launch_on_a_gpu(shipped: Probe, fake_api: Any, cuda_array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One CTA; four addresses and two leading strides, behind the stream that B's owner names."""
    tables: list[Any] = []

    def table(tensor: CallTensor, shape: tuple[int, int], like: Any, framework: str) -> Any:
        tables.append(cuda_array(np.zeros(shape, np.float16)))
        return tables[-1]

    monkeypatch.setattr(probe_module, "_poisoned", table)
    api = fake_api((8, 9))
    api.parameters = shipped.contract.launch.parameters
    a = cuda_array(np.zeros((64, 72), np.float16)[:, :64])
    b = cuda_array(np.zeros((64, 80), np.float16)[:, :64], stream=7)
    Probe(shipped.artifact, driver=lambda: Driver(api))(a, b)
    (launch,) = api.launches
    assert launch["values"] == (*(each.array.ctypes.data for each in (a, b, *tables)), 72, 80)
    assert (launch["grid"], launch["block"], launch["smem"]) == ((1, 1, 1), (128, 1, 1), 17408)
    assert launch["stream"] == 7
    with pytest.raises(OperandError, match="a: found GPU memory; expected host memory"):
        shipped.execute(a, b)


@pytest.mark.slow
@pytest.mark.dsl
def test_more_elements_than_16_bits_number(kernels: Cache) -> None:
    spec = probe(ONE_OF_EACH_K[1], 1, tile=cutegen.Tile(cta=(512, 32, 32), stages=5), name="large")
    found, loads = plan(spec, "sm_90"), []
    assert isinstance(found, ProbePlan)
    compiled = Probe(build(build_request(spec, "sm_90"), kernels))

    def load(a: Any, b: Any) -> Registers:
        loads.append((a, b))
        return compiled(a, b)

    a, b = check_registers(found, load, seed=0)
    assert (a.ok, b.ok) == (True, True)
    assert a.registers == 2 * 512 * 32 * 5 // 2  # two warps along N hold the same rows of A
    assert len(loads) == 3  # low bits, high bits, random bits


def right(a: Any, b: Any) -> list[NDArray[np.uint16]]:
    """What a right probe of the shipped spec brings, without a kernel."""
    atom = found_atom(SHIPPED)
    bits = [np.asarray(x, order="F").view(np.uint16).ravel(order="F") for x in (a, b.T)]
    return [elements[by_hand(operand, atom)] for elements, operand in zip(bits, "ab", strict=True)]


def swapped(a: Any, b: Any) -> list[NDArray[np.uint16]]:
    tables = right(a, b)
    tables[0][37, [4, 6]] = tables[0][37, [6, 4]]
    return tables


def not_written(a: Any, b: Any) -> list[NDArray[np.uint16]]:
    tables = right(a, b)
    tables[1][127, 63] = 0xFFFF
    return tables


def first_stage_twice(a: Any, b: Any) -> list[NDArray[np.uint16]]:
    tables = right(a, b)
    tables[0][:, 32:] = tables[0][:, :32]
    return tables


def quiets_nans(a: Any, b: Any) -> list[NDArray[np.uint16]]:
    return [np.where(table & 0x7FFF > 0x7C00, table | 0x200, table) for table in right(a, b)]


@pytest.mark.parametrize(
    ("load", "agreeing", "first"),
    [
        (right, (4096, 4096), None),
        (swapped, (4094, 4096), {"thread": 37, "stage": 0, "register": 2, "place": (4, 0, 0), "found": (25, 10)}),
        (not_written, (4096, 4095), {"thread": 127, "stage": 1, "register": 15, "place": (3, 3, 1), "found": None}),
        (
            first_stage_twice,
            (2048, 4096),
            {"thread": 0, "stage": 1, "register": 0, "found": (0, 0), "expected": (0, 32)},
        ),
    ],
)
def test_what_is_wrong_is_found(
    load: Callable[..., Any], agreeing: tuple[int, int], first: dict[str, Any] | None
) -> None:
    received = check_registers(planned(SHIPPED), load, seed=0)
    assert tuple(each.agreeing for each in received) == agreeing
    assert [each.registers for each in received] == [4096, 4096]
    wrong = next((each.first_wrong for each in received if not each.ok), None)
    if first is None:
        assert wrong is None
    else:
        assert {key: getattr(wrong, key) for key in first} == first


def test_a_pattern_that_is_changed_is_found() -> None:
    """No number below 4096 is a NaN of f16: it is the random bits that show it."""
    a, b = check_registers(planned(SHIPPED), quiets_nans, seed=0)
    assert 0.9 < a.agreeing / a.registers < 1
    assert a.first_wrong is not None
    assert a.first_wrong.found is None
    assert not b.ok


@pytest.mark.dsl
def test_a_kernel_that_loads_otherwise_is_found(shipped: Probe) -> None:
    """The same PTX with an ldmatrix that does not transpose: each register of B has two elements of its own matrix."""
    artifact = shipped.artifact
    mutant = SimpleNamespace(
        path=artifact.path,
        plan_json=artifact.plan_json,
        cubin=artifact.cubin,
        manifest=artifact.manifest,
        ptx=artifact.ptx.replace("ldmatrix.sync.aligned.m8n8.x2.trans", "ldmatrix.sync.aligned.m8n8.x2"),
    )
    a, b = check_registers(planned(SHIPPED), Probe(mutant), seed=0)  # type: ignore[arg-type]
    assert a.ok
    assert b.first_wrong is not None
    assert (b.first_wrong.thread, b.first_wrong.found, b.first_wrong.expected) == (0, (1, 0), (0, 1))


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (
            np.zeros((64, 32), np.float16),
            np.zeros((32, 64), np.float16),
            r"a: found shape \(64, 32\); expected \(64, 64\)",
        ),
        (
            np.zeros((64, 64), np.float16),
            np.zeros((64, 32), np.float16),
            r"b: found shape \(64, 32\); expected \(64, 64\)",
        ),
        (np.zeros((2, 64, 64), np.float16), np.zeros((64, 64), np.float16), r"a: found shape \(2, 64, 64\)"),
        (np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float16), "a: found dtype f32; expected f16"),
        (np.zeros((64, 64), np.float16).T, np.zeros((64, 64), np.float16), 'problem.a.major = "m"'),
        (np.zeros((64, 64), np.float16), [[0]], "b: found a list"),
    ],
)
def test_operands_that_do_not_fit_are_refused(a: Any, b: Any, message: str, shipped: Probe) -> None:
    with pytest.raises(OperandError, match=message):
        shipped(a, b)


@pytest.mark.dsl
def test_each_kind_opens_its_own_artifacts(shipped: Probe, kernels: Cache) -> None:
    with pytest.raises(ArtifactError, match="found a kernel of kind ldmatrix_probe; expected a GEMM"):
        Kernel.open(shipped.artifact.path)
    assert repr(Probe.open(shipped.artifact.path)) == "Probe(ldmatrix_probe_0, a (64, 64), b (64, 64))"
    gemm = build(build_request(replace(SHIPPED, kind=GEMM), "sm_89"), kernels)
    assert gemm.key != shipped.artifact.key
    with pytest.raises(ArtifactError, match="found a kernel of kind gemm; expected a probe"):
        Probe(gemm)


def test_a_probe_is_not_measured() -> None:
    with pytest.raises(SpecError, match='kind: found "ldmatrix_probe"; expected a GEMM'):
        compile_gemm(SHIPPED, "sm_89")


@pytest.mark.dsl
def test_any_gemm_has_a_probe(shipped: Probe, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of a GEMM is the one that its spec asks for when it says so: the same key, found in the cache."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    found = compile_probe(replace(SHIPPED, kind=GEMM), "sm_89")
    assert (found.artifact.hit, found.artifact.key) == (True, shipped.artifact.key)


@pytest.mark.slow
@pytest.mark.dsl
def test_the_loads_of_every_shipped_gemm(kernels: Cache) -> None:
    specs = [replace(load_spec(name), kind=PROBE) for name in SHIPPED_GEMMS if load_spec(name).family == "sm80"]
    for spec in specs:
        found, artifact = plan(spec, "sm_90"), build(build_request(spec, "sm_90"), kernels)
        assert isinstance(found, ProbePlan)
        assert [each.first_wrong for each in check_registers(found, Probe(artifact), seed=7)] == [None, None], spec.name


@pytest.mark.dsl
def test_b_comes_as_a_call_passes_it_where_the_gemm_reads_a_transposed_copy(kernels: Cache) -> None:
    """Nor does it matter to the loads what fills shared memory, and that it has one stage."""
    operand = Operand("f16", "k", 2)
    spec = GemmSpec(
        family="sm80",
        kind=PROBE,
        problem=Problem(a=operand, b=Operand("f16", "n", 2, "once"), c=Operand("f16", "n")),
        tile=Tile(cta=(64, 64, 32), stages=1),
        name="probe_of_a_copy",
    )
    found = planned(spec)
    assert (found.launch.tensor("b").major, found.gemm.b.major) == ("n", "k")
    received = check_registers(found, Probe(build(build_request(spec, "sm_89"), kernels)), seed=5)
    assert [each.first_wrong for each in received] == [None, None]


def test_tables_of_registers_need_an_allocator(contract: Any) -> None:
    tensor = call_tensor(contract().tensor("a"))
    with pytest.raises(OperandError, match=r"operand a: found an array of cupy; expected an array of torch or NumPy"):
        probe_module._poisoned(tensor, (32, 4), None, "cupy")


def test_a_probe_receives_every_stage(artifact: Any, contract: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers of a thread are those of one k-tile, times the stages; so is K."""
    table = {"tile": [64, 32, 16], "stages": 3, "values": {"a": 8, "b": 4}}
    launch = contract()
    monkeypatch.setattr(
        "cutegen.run.probe.PlanTable.of",
        lambda *_: SimpleNamespace(table=table, file="plan.json", launch=launch),
    )
    found = probe_module.ProbeContract.of(artifact(launch))
    assert (found.extents, found.values) == ((64, 32, 48), (24, 12))


def test_a_probe_waits_for_the_other_operands_stream() -> None:
    told: list[tuple[int, int, int]] = []
    driver = SimpleNamespace(order_after=lambda *words: told.append(words))
    probe: Any = SimpleNamespace(_load_driver=lambda: driver)
    views: Any = [SimpleNamespace(form=SimpleNamespace(framework="cupy"), stream=stream) for stream in (7, 9)]
    assert Probe._order(probe, SimpleNamespace(device=("cuda", 1)), views) == 7  # type: ignore[arg-type]
    assert told == [(1, 7, 9)]
