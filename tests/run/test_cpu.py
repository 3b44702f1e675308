"""Operands in host memory: the PTX executor gets the arguments that a GPU would get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from cutegen.contract.launch import Workspace
from cutegen.errors import OperandError
from cutegen.ptx.machine.arguments import bytes_of
from cutegen.run import Kernel, cpu
from cutegen.run.call.storage import MatrixStorage
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.reference import bf16_bits, float64


def flat(array: np.ndarray) -> np.ndarray:
    """All that lies from the first element of an array to the last."""
    return bytes_of(array).view(array.dtype)


class Executor:
    """Stands in for `cutegen.ptx.Program`: does what the entry should do, out of its arguments alone."""

    launches: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def parse(cls, text: str) -> Executor:
        assert text == "the PTX"
        return cls()

    def launch(self, entry: str, **options: Any) -> str:
        self.launches.append({"entry": entry, **options})
        (flat_a, flat_b, flat_c), (m, n, k, lda, ldb, ldc, *_) = map(flat, options["args"][:3]), options["args"][3:]
        a, b = (
            np.lib.stride_tricks.as_strided(float64(flat), (extent, k), (8 * stride, 8))
            for flat, extent, stride in ((flat_a, m, lda), (flat_b, n, ldb))
        )
        c = np.lib.stride_tricks.as_strided(flat_c, (m, n), (flat_c.itemsize * ldc, flat_c.itemsize))
        product = a @ b.T
        c[...] = bf16_bits(product) if flat_c.dtype == np.uint16 else product
        return "the report"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> type[Executor]:
    monkeypatch.setattr(cpu, "Program", Executor)
    Executor.launches.clear()
    return Executor


def no_driver() -> Any:
    raise AssertionError("operands on the CPU need no driver")


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 32, 48), (7, 257, 13), (1, 1, 1)])
def test_result_is_the_product(
    executor: type[Executor], artifact: Any, contract: Any, framework: str, dtype: str, m: int, n: int, k: int
) -> None:
    if framework == "torch":
        pytest.importorskip("torch")
    kernel = Kernel(artifact(contract("kkn", dtype), ptx="the PTX"), driver=no_driver)
    a, b, out = random_operands(kernel.contract, m, n, k, seed=m * n, framework=framework)
    reference = float64_reference(a, b)
    assert kernel(a, b, out=out) is out
    assert compare(out, reference, dtype=dtype).ok
    fresh = kernel(a, b)
    assert type(fresh) is type(a)
    assert fresh.dtype == a.dtype
    assert compare(fresh, reference, dtype=dtype).ok


def test_arguments_are_the_contracts(executor: type[Executor], artifact: Any, contract: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="the PTX"), driver=no_driver)
    a, b, out = random_operands(kernel.contract, 200, 65, 13, seed=1)
    kernel(a, b, out=out)
    (launch,) = executor.launches
    assert launch["entry"] == "gemm"
    assert (launch["grid"], launch["block"], launch["dynamic_smem_bytes"]) == ((2 * 2, 1, 1), (128, 1, 1), 98304)
    (flat_a, flat_b, flat_c), integers = map(flat, launch["args"][:3]), launch["args"][3:]
    assert [*integers] == [200, 65, 13, 16, 16, 72, 0, 0, 0]
    # From the address to the last element: the padding of the last row is no part of the operand.
    assert [flat.size for flat in (flat_a, flat_b, flat_c)] == [199 * 16 + 13, 64 * 16 + 13, 199 * 72 + 65]
    assert np.shares_memory(flat_a, a)
    assert flat_c.ctypes.data == out.ctypes.data
    assert [flat.flags.writeable for flat in (flat_a, flat_b, flat_c)] == [False, False, True]


def test_k_zero_is_zeros_and_leaves_the_padding(executor: type[Executor], artifact: Any, contract: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="the PTX"), driver=no_driver)
    storage = np.ones((5, 16), np.float16)
    kernel(np.zeros((5, 0), np.float16), np.zeros((0, 6), np.float16), out=storage[:, :6])
    assert not storage[:, :6].any()
    assert storage[:, 6:].all()


def test_empty_result(executor: type[Executor], artifact: Any, contract: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="the PTX"), driver=no_driver)
    assert kernel(np.zeros((0, 8), np.float16), np.zeros((8, 6), np.float16, order="F")).shape == (0, 6)
    assert executor.launches == []


def test_execute_hands_the_options_on_and_the_report_back(
    executor: type[Executor], artifact: Any, contract: Any
) -> None:
    kernel = Kernel(artifact(contract(), ptx="the PTX"), driver=no_driver)
    a, b, out = random_operands(kernel.contract, 20, 30, 40, seed=2)
    told: list[tuple[int, int]] = []
    options = {"policy": "random:3", "jobs": 2, "max_steps": 77, "progress": lambda *done: told.append(done)}
    assert kernel.execute(a, b, out=out, **options) == "the report"
    assert compare(out, float64_reference(a, b), dtype="f16").ok
    assert {name: executor.launches[0][name] for name in options} == options


def test_persistent_clusters_share_the_tiles_out(executor: type[Executor], artifact: Any, contract: Any) -> None:
    """Tiles of 128 x 64: 3 x 2 of them, in clusters of 2 along M; the executor holds two clusters."""
    for ctas_per_multiprocessor, grid in ((None, (8, 1, 1)), (1, (4, 1, 1))):
        made = replace(contract(), cluster=(2, 1), ctas_per_multiprocessor=ctas_per_multiprocessor)
        kernel = Kernel(artifact(made, ptx="the PTX"), driver=no_driver)
        a, b, out = random_operands(kernel.contract, 300, 100, 40, seed=2)
        kernel.execute(a, b, out=out)
        assert (executor.launches[-1]["grid"], executor.launches[-1]["cluster"]) == (grid, (2, 1, 1))


def test_execute_is_for_host_memory(artifact: Any, contract: Any, cuda_array: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="no PTX at all"), driver=no_driver)
    a, b, out = random_operands(kernel.contract, 16, 16, 16, seed=2)
    with pytest.raises(OperandError, match="found GPU memory; expected host memory"):
        kernel.execute(*map(cuda_array, (a, b)), out=cuda_array(out))


def test_execute_refuses_an_empty_result(executor: type[Executor], artifact: Any, contract: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="the PTX"), driver=no_driver)
    a, b, out = random_operands(kernel.contract, 0, 16, 16, seed=2)
    with pytest.raises(OperandError, match="at least one element"):
        kernel.execute(a, b, out=out)


def test_sums_of_a_workspace_that_no_slice_wrote_show_as_nan() -> None:
    sums, counters = cpu.host_workspace(Workspace(sums_bytes=16, counters=3))
    assert (np.isnan(sums).tolist(), counters.tolist()) == ([True] * 4, [0] * 3)


def test_a_list_is_refused_before_anything_is_parsed(artifact: Any, contract: Any) -> None:
    kernel = Kernel(artifact(contract(), ptx="no PTX at all"), driver=no_driver)
    with pytest.raises(OperandError, match="found a list"):
        kernel([[1.0]], np.zeros((1, 1), np.float16))


@pytest.mark.parametrize("align", [1, 8])
def test_a_host_buffer_is_found_wherever_memory_begins(align: int) -> None:
    """Of (3, 8) elements with `align` elements: one less in front at most."""
    storage = MatrixStorage(rows=3, columns=8, stride=8, transposed=False, align=align)
    assert storage.host_elems == 24 + align - 1
    flat = np.zeros(storage.host_elems, np.float16)
    for address in range(0, 16, 2):
        assert storage.host_buffer(flat, address).shape == (3, 8)
