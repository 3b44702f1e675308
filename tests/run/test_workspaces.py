"""Memory for the sums of kernels whose K is split, against a driver that keeps a record: of streams, of graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import COUNTERS, SUMS, LaunchContract, SplitContract, Workspace, gemm_parameters
from cutegen.contract.problem import ProblemShape
from cutegen.errors import DeviceError
from cutegen.run import Kernel
from cutegen.run.driver import Driver
from cutegen.run.gpu.workspace import MOST_STREAMS, WorkspaceLaunch, Workspaces


def in_slices(whole: LaunchContract) -> LaunchContract:
    """The same with K in three slices."""
    parameters = gemm_parameters(whole.tensors, (), workspace=(SUMS, COUNTERS))
    return replace(whole, parameters=parameters, split=SplitContract(slices=3, bytes_per_slice=32768))


def test_a_contract_survives_its_json(contract: Callable[..., LaunchContract]) -> None:
    whole, parts = contract(), in_slices(contract())
    assert parts.pointers == ("a", "b", "c", "sums", "counters")
    assert parts.geometry(ProblemShape(300, 64, 64, 5)).grid == (3, 3, 5)
    assert parts.workspace(ProblemShape(300, 64, 64, 5)) == Workspace(sums_bytes=5 * 3 * 3 * 32768, counters=15)
    for each in (whole, parts):
        assert LaunchContract.from_json(json.loads(json.dumps(each.to_json()))) == each
    older = whole.to_json()
    del older["split"]  # as versions before split-K wrote it
    assert LaunchContract.from_json(older) == whole


def _results(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


class Memory:
    """A driver's allocator: a new address for each allocation, and a record."""

    def __init__(self, fake_api: Any) -> None:
        self.api = fake_api()
        self.api.capturing, self.capture = set(), 1
        self._next = 0x1000
        answers = {
            "cuMemAllocAsync": self._allocate,
            "cuStreamGetId": lambda stream: 100 + stream,
            "cuStreamIsCapturing": lambda stream: int(stream in self.api.capturing),
            "cuStreamGetCaptureInfo": lambda stream: (1, self.capture, "graph", [], [], 0),
            "cuMemAlloc": lambda size_bytes: self._allocate(size_bytes, 0),
            "cuStreamCreate": lambda flags: 77,
        }
        plain = self.api._answer
        self.api._answer = lambda name, *rest: _results(answers[name](*rest)) if name in answers else plain(name, *rest)

    def _allocate(self, size_bytes: int, stream: int) -> int:
        self._next += 0x100000
        return self._next

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.api.calls if call[0] in names]


@pytest.fixture
def memory(fake_api: Any) -> Memory:
    return Memory(fake_api)


def use(held: Workspaces, stream: int, wanted: Workspace) -> tuple[int, int]:
    found: list[tuple[int, int]] = []
    held.launch(stream, wanted, found.append)
    return found[0]


def test_a_stream_keeps_its_workspace_and_zeroes_it_once(memory: Memory) -> None:
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4096, 8)
    first = use(held, 5, wanted)
    assert use(held, 5, wanted) == first
    assert use(held, 5, Workspace(64, 2)) == first
    assert memory.named("cuMemAllocAsync") == [("cuMemAllocAsync", 4096, 5), ("cuMemAllocAsync", 32, 5)]
    assert memory.named("cuMemsetD32Async") == [("cuMemsetD32Async", first[1], 0, 8, 5)]


def test_of_the_default_stream_the_driver_is_not_asked(memory: Memory) -> None:
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4096, 8)
    first = use(held, 0, wanted)
    memory.api.calls.clear()
    assert use(held, 1, wanted) == first  # the same stream by its other handle
    assert memory.api.names() == ["cuCtxGetCurrent"]
    assert not set(use(held, 2, wanted)) & set(first)  # a thread's own default stream is another
    assert memory.named("cuStreamGetId") == [("cuStreamGetId", 2)]


def test_streams_share_nothing(memory: Memory) -> None:
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4096, 8)
    assert not set(use(held, 5, wanted)) & set(use(held, 6, wanted))


def test_a_larger_launch_replaces_what_is_too_small_in_the_streams_order(memory: Memory) -> None:
    held = Workspaces(Driver(memory.api), 0)
    sums, counters = use(held, 5, Workspace(4096, 8))
    memory.api.calls.clear()
    new_sums, same_counters = use(held, 5, Workspace(8192, 8))
    assert (new_sums != sums, same_counters) == (True, counters)
    assert memory.named("cuMemFreeAsync", "cuMemFree") == [("cuMemFreeAsync", sums, 5)]
    assert memory.named("cuMemsetD32Async") == []


def test_a_captured_launch_brings_its_own(memory: Memory) -> None:
    """What a graph does must not depend on what else runs when it is replayed."""
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4100, 8)
    memory.api.capturing.add(5)
    first, second = use(held, 5, wanted), use(held, 5, wanted)
    assert first[0] != second[0]
    nodes = memory.named("cuMemAllocAsync", "cuMemsetD32Async", "cuMemFreeAsync")
    assert nodes == [
        node for sums, _ in (first, second) for node in (("cuMemAllocAsync", 4100, 5), ("cuMemFreeAsync", sums, 5))
    ]


def test_captured_launches_share_counters_where_one_comes_after_the_other(memory: Memory) -> None:
    """On one stream of one capture; each other's are another's, and all of them were zeroed outside of any graph."""
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4096, 8)
    memory.api.capturing |= {5, 6}
    _, here = use(held, 5, wanted)
    assert use(held, 5, wanted)[1] == use(held, 5, Workspace(64, 2))[1] == here
    _, beside = use(held, 6, wanted)
    _, more = use(held, 5, Workspace(4096, 100))
    memory.capture = 2
    _, of_another_graph = use(held, 5, wanted)
    _, enormous = use(held, 5, Workspace(64, 1 << 16))
    begins = {here: 8, beside: 8, more: 100, of_another_graph: 8, enormous: 1 << 16}
    taken = [address + 4 * i for address, count in begins.items() for i in range(count)]
    assert len(set(taken)) == len(taken)
    zeroed = [(address, address + size) for _, address, _, size, _ in memory.named("cuMemsetD8Async")]
    assert all(any(low <= begin and begin + 4 * begins[begin] <= high for low, high in zeroed) for begin in begins)
    assert {stream for *_, stream in memory.named("cuMemsetD8Async")} == {77}, "no node of a graph"
    assert len(zeroed) == 2
    assert memory.named("cuStreamSynchronize") == [("cuStreamSynchronize", 77)] * 2


def test_streams_that_are_gone_give_their_memory_back(memory: Memory) -> None:
    held, wanted = Workspaces(Driver(memory.api), 0), Workspace(4096, 8)
    first = use(held, 2, wanted)
    for stream in range(3, MOST_STREAMS + 3):
        use(held, stream, wanted)
    assert [address for _, address in memory.named("cuMemFree")] == list(first)
    assert memory.api.names().index("cuCtxSynchronize") < memory.api.names().index("cuMemFree")


def test_a_failed_allocation_is_told_and_forgotten(memory: Memory) -> None:
    held = Workspaces(Driver(memory.api), 0)
    memory.api.failures["cuMemAllocAsync"] = 2
    with pytest.raises(DeviceError, match="cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY"):
        use(held, 5, Workspace(4096, 8))
    memory.api.failures.clear()
    assert all(use(held, 5, Workspace(4096, 8)))


def test_a_launch_gets_the_workspace_behind_its_tensors(
    memory: Memory, artifact: Any, contract: Callable[..., LaunchContract], cuda_array: Any
) -> None:
    parts = in_slices(contract())
    memory.api.parameters = parts.parameters
    a, b = cuda_array(np.zeros((300, 48), np.float16)), cuda_array(np.zeros((72, 48), np.float16).T)
    out = cuda_array(np.zeros((300, 72), np.float16))
    Kernel(artifact(parts), driver=lambda: Driver(memory.api))(a, b, out=out)
    (launch,) = memory.api.launches
    assert launch["grid"] == (6, 3, 1)
    sums, counters = launch["values"][3:5]
    (zeroed,) = memory.named("cuMemsetD32Async")
    assert zeroed[1:4] == (counters, 0, 6)
    assert memory.named("cuMemAllocAsync")[0][1] == 6 * 3 * 32768
    assert sums


def test_on_the_default_stream_the_same_workspace_is_taken_without_a_question(memory: Memory) -> None:
    """Until any workspace moves: then it is asked for again."""
    held, calls = Workspaces(Driver(memory.api), 0), list[tuple[int, ...]]()
    small = WorkspaceLaunch(lambda addresses, scalars, stream: calls.append(addresses), held, Workspace(4096, 8))
    large = WorkspaceLaunch(lambda addresses, scalars, stream: calls.append(addresses), held, Workspace(8192, 16))
    small((1, 2, 3), (), 0)
    memory.api.calls.clear()
    small((4, 5, 6), (), 1)
    assert memory.api.names() == []
    assert [x[:3] for x in calls] == [(1, 2, 3), (4, 5, 6)]
    assert calls[0][3:] == calls[1][3:]
    large((1, 2, 3), (), 0)
    small((1, 2, 3), (), 0)
    assert calls[3] == calls[2]
    assert not set(calls[3][3:]) & set(calls[0][3:]), "what was given back to the driver"
    memory.api.calls.clear()
    small((1, 2, 3), (), 2)  # of another stream the driver is asked each time
    small((1, 2, 3), (), 2)
    assert memory.api.names().count("cuStreamGetId") == 2
    assert not set(calls[-1][3:]) & set(calls[3][3:])


def test_a_launch_that_adds_is_given_zeros(
    memory: Memory, artifact: Any, contract: Callable[..., LaunchContract], cuda_array: Any
) -> None:
    """In the elements of C alone: rows of 72 in a pitch of 80, a batch of 2 with a row between."""
    parts = replace(contract(dtype="f32"), split=SplitContract(slices=3, bytes_per_slice=0, atomics=True))
    memory.api.parameters = parts.parameters
    a, b = cuda_array(np.zeros((2, 300, 48), np.float32)), cuda_array(np.zeros((72, 48), np.float32).T)
    buffer = np.zeros((2, 301, 80), np.float32)
    out = cuda_array(buffer[:, :300, :72])
    Kernel(artifact(parts), driver=lambda: Driver(memory.api))(a, b, out=out)
    assert memory.named("cuMemsetD2D32Async", "cuLaunchKernelEx") == [
        ("cuMemsetD2D32Async", buffer.ctypes.data, 320, 0, 72, 300, memory.api.launches[0]["stream"]),
        ("cuMemsetD2D32Async", buffer.ctypes.data + 301 * 320, 320, 0, 72, 300, memory.api.launches[0]["stream"]),
        ("cuLaunchKernelEx", "function in 1000"),
    ]
