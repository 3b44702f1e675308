"""Transposed copies of B: kept, made again when B changes, gone when B is; bounded."""

from __future__ import annotations

import gc
import logging
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.launch import LaunchContract, TensorContract
from cutegen.errors import OperandError, SpecError
from cutegen.plan import plan
from cutegen.run import KeptCopies, Kernel, kept_copies
from cutegen.run.call.storage import CallTensor
from cutegen.run.call.transposed_copies import Transposed
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, Tile, parse_spec
from cutegen.verify import compare, float64_reference, random_operands

torch = pytest.importorskip("torch")

MODES = ("k", "n")
GIVEN = CallTensor("b", MODES, TensorContract("b", "f16", ("n", "k"), "n", 2))
READ = CallTensor("b", MODES, TensorContract("b", "f16", ("n", "k"), "k", 16))
SPEC = GemmSpec(
    family="sm80",
    problem=Problem(a=Operand("f16", "k"), b=Operand("f16", "n", 2, "once"), c=Operand("f16", "n", 2)),
    tile=Tile(cta=(64, 64, 32), stages=2),
    name="kept",
)


@pytest.fixture
def copies() -> KeptCopies:
    return KeptCopies()


@pytest.fixture
def transposed(copies: KeptCopies) -> Transposed:
    return Transposed(GIVEN, READ, copies)


@pytest.fixture(scope="module")
def kernel(kernels: Cache) -> Kernel:
    return Kernel(build(build_request(SPEC, "sm_80"), kernels))


@pytest.mark.dsl
def test_a_copy_of_b_is_multiplied_by_a_where_they_are_exchanged(kernels: Cache) -> None:
    swapped = replace(SPEC, family="sm90", tile=Tile(cta=(64, 16, 64), stages=2), schedule=Schedule(swap=True))
    kernel = Kernel(build(build_request(swapped, "sm_90"), kernels))
    a, b, out = random_operands(kernel.contract, 24, 72, 80, seed=3)
    assert b.strides[1] == 2  # along N, as calls pass it
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok


def matrix(k: int = 13, n: int = 9) -> Any:
    return torch.randn(k, n).half()


def test_the_copy_is_k_major_and_padded_as_the_kernel_wants_it(transposed: Transposed) -> None:
    b = matrix(13, 9)
    copy = transposed(b, None)
    assert torch.equal(copy, b)
    assert copy.stride() == (1, 16)
    assert copy.data_ptr() % 16 == 0


def test_the_same_b_has_one_copy(transposed: Transposed, copies: KeptCopies) -> None:
    b = matrix()
    assert transposed(b, None) is transposed(b, None)
    assert transposed(b.view(13, 9), None) is transposed(b, None)
    assert len(copies.entries) == 1
    assert copies.held_bytes == 9 * 16 * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.add_(1),
        lambda b: b[3].zero_(),
        lambda b: b.t().mul_(2),
        lambda b: b.detach().copy_(torch.zeros_like(b)),
        lambda b: b.view(-1)[5:7].fill_(3),
        lambda b: torch.neg(b, out=b),
        lambda b: b.view(torch.int16).zero_(),
    ],
    ids=["in place", "a row", "a view of it", "detached", "a flat view", "out", "another dtype"],
)
def test_a_change_in_place_is_noticed(transposed: Transposed, change: Any) -> None:
    b = matrix()
    for mode in (torch.enable_grad, torch.no_grad):
        transposed(b, None)
        with mode():
            change(b)
        assert torch.equal(transposed(b, None), b)


def test_a_change_of_what_b_is_a_view_of_is_noticed(transposed: Transposed) -> None:
    whole = matrix(20, 30)
    b = whole[2:15, 10:19]
    transposed(b, None)
    whole.add_(1)
    assert torch.equal(transposed(b, None), b)


def test_other_places_shapes_and_strides_have_copies_of_their_own(transposed: Transposed, copies: KeptCopies) -> None:
    whole = matrix(16, 32)
    for b in (whole, whole[:, 8:16], whole[::2], whole[:8]):
        assert torch.equal(transposed(b, None), b)
    assert len(copies.entries) == 4


def test_a_copy_goes_with_its_tensor(transposed: Transposed, copies: KeptCopies) -> None:
    b = matrix()
    transposed(b.view(13, 9), None)
    assert len(copies.entries) == 1
    del b
    gc.collect()
    assert len(copies.entries) == 0


def test_new_memory_at_an_old_address_is_not_taken_for_the_old(transposed: Transposed) -> None:
    """The allocator gives the same address again and again, always at version 0."""
    for _ in range(50):
        b = matrix()
        assert torch.equal(transposed(b, None), b)


def test_a_view_keeps_the_copy_alive(transposed: Transposed, copies: KeptCopies) -> None:
    b = matrix()
    view = b[:]
    first = transposed(b, None)
    del b
    gc.collect()
    assert len(copies.entries) == 1
    assert torch.equal(first, view)


def test_the_copy_used_longest_ago_goes_first() -> None:
    copies = KeptCopies(limit_bytes=2 * 9 * 16 * 2)
    transposed = Transposed(GIVEN, READ, copies)
    first, second, third = matrix(), matrix(), matrix()
    kept = transposed(first, None)
    transposed(second, None)
    transposed(first, None)
    transposed(third, None)
    assert copies.held_bytes == 2 * 9 * 16 * 2
    assert transposed(first, None) is kept
    assert {entry.begin for entry in copies.entries.values()} == {first.data_ptr(), third.data_ptr()}


def test_what_is_larger_than_the_limit_is_right_and_not_kept() -> None:
    copies = KeptCopies(limit_bytes=100)
    b = matrix()
    assert torch.equal(Transposed(GIVEN, READ, copies)(b, None), b)
    assert len(copies.entries) == 0


def test_clear_forgets(transposed: Transposed, copies: KeptCopies) -> None:
    b = matrix()
    kept = transposed(b, None)
    copies.clear()
    assert transposed(b, None) is not kept


def zeroed_in_other_dtype(b: Any) -> Any:
    with torch.inference_mode():
        b.view(torch.int16).zero_()
    return b


@pytest.mark.parametrize(
    ("taken", "written"),
    [(lambda b: b, lambda b: b.data.zero_()), (lambda b: b.data, torch.zero_), (lambda b: b, zeroed_in_other_dtype)],
    ids=["written by .data", "passed by .data", "a view of another dtype in inference mode"],
)
def test_what_torch_does_not_count_is_not_seen(
    transposed: Transposed, copies: KeptCopies, taken: Any, written: Any
) -> None:
    """The documented limits, and the way out."""
    b = matrix()
    transposed(taken(b), None)
    written(b)
    assert not torch.equal(transposed(taken(b), None), b)
    copies.clear()
    assert torch.equal(transposed(taken(b), None), b)


@pytest.mark.parametrize(("at", "kept"), [("first", False), ("last", False), ("before", True), ("behind", True)])
def test_a_copy_goes_when_any_byte_of_its_tensor_is_written(
    transposed: Transposed, copies: KeptCopies, at: str, kept: bool
) -> None:
    b = torch.zeros(7, 30, dtype=torch.float16)[:, :5]
    transposed(b, None)
    begin = b.data_ptr()
    last = b[6, 4:].data_ptr() + 1
    byte = {"first": begin, "last": last, "before": begin - 1, "behind": last + 1}[at]
    copies.written(byte, byte + 1)
    assert bool(copies.entries) is kept


def test_a_weight_that_an_optimizer_steps_is_copied_again(transposed: Transposed) -> None:
    """`.detach()` of a parameter, new for each call as modules pass it, counts with the parameter."""
    weight = torch.nn.Parameter(matrix())
    optimizer = torch.optim.SGD([weight], lr=0.5)
    assert transposed(weight.detach(), None) is transposed(weight.detach(), None)
    weight.float().sum().backward()
    optimizer.step()
    assert torch.equal(transposed(weight.detach(), None), weight.detach())


def test_an_inference_tensor_is_transposed_at_each_call(
    transposed: Transposed, copies: KeptCopies, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.inference_mode(), caplog.at_level(logging.WARNING, "cutegen.run"):
        b = matrix()
        transposed(b, None)
        b.zero_()
        assert torch.equal(transposed(b, None), b)
    assert len(copies.entries) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "b is an inference tensor, which does not report changes: each call transposes it"
    ]


def test_a_numpy_array_is_transposed_at_each_call(transposed: Transposed, copies: KeptCopies) -> None:
    b = np.arange(6 * 5, dtype=np.float16).reshape(6, 5)
    transposed(b, None)
    b[:] = 0
    assert np.array_equal(transposed(b, None), b)
    assert len(copies.entries) == 0


class Foreign:
    """Speaks DLPack, is of no framework that counts writes."""

    def __init__(self, array: np.ndarray) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_other_arrays_are_refused_with_a_way_out(transposed: Transposed) -> None:
    with pytest.raises(OperandError, match=r"operand b: .*which does not report changes.*torch.from_dlpack\(b\)"):
        transposed(Foreign(np.zeros((4, 4), np.float16)), None)


@pytest.mark.parametrize(
    ("b", "said"),
    [
        (lambda: matrix().t(), r'stride 1 in N \(problem.b.major = "n"\)'),
        (lambda: matrix().float(), "dtype f32; expected f16"),
        (lambda: matrix()[0], "1 dimension, shape"),
        (lambda: matrix().float().requires_grad_(), "requires grad"),
    ],
    ids=["K-major", "f32", "a vector", "grad"],
)
def test_what_does_not_fit_is_refused(transposed: Transposed, copies: KeptCopies, b: Any, said: str) -> None:
    with pytest.raises(OperandError, match=said):
        transposed(b(), None)
    assert len(copies.entries) == 0


def test_a_batch_and_one_matrix_for_a_whole_batch(transposed: Transposed, copies: KeptCopies) -> None:
    batch, one = torch.randn(3, 13, 9).half(), matrix()
    assert torch.equal(transposed(batch, None), batch)
    shared = transposed(one.expand(4, 13, 9), None)
    assert torch.equal(shared, one.expand(4, 13, 9))
    assert shared.stride(0) == 0
    assert transposed(one, None).data_ptr() == shared.data_ptr()
    assert len(copies.entries) == 2


def test_an_empty_batch_of_one_matrix(transposed: Transposed) -> None:
    assert transposed(matrix()[None].expand(0, 13, 9), None).shape == (0, 13, 9)


def test_threads(transposed: Transposed) -> None:
    tensors = [matrix() for _ in range(4)]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(200):
            if not torch.equal(transposed(tensors[index], None), tensors[index]):
                wrong.append(index)
            tensors[index].add_(1)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.dsl
def test_a_kernel_uses_the_copy_and_notices_changes(kernel: Kernel) -> None:
    a, b, out = random_operands(kernel.contract, 20, 33, 41, seed=1, framework="torch")
    assert b.stride()[1] == 1
    for _ in range(2):
        kernel(a, b, out=out)
        assert compare(out, float64_reference(a, b), dtype="f16").ok
        b.mul_(-2)
    report = kernel.execute(a, b, out=out)
    assert report.violations == ()
    assert compare(out, float64_reference(a, b), dtype="f16").ok


@pytest.mark.dsl
def test_a_result_written_over_b_is_noticed(kernel: Kernel) -> None:
    """Torch does not see what a kernel writes; the kernel says so itself."""
    a, b, _ = random_operands(kernel.contract, 24, 24, 24, seed=2, framework="torch")
    first, second = torch.empty_like(b), torch.empty_like(b)
    kernel(a, b, out=first)
    kernel(a, first, out=second)
    kernel(a, b, out=first)
    b.zero_()
    kernel(a, b, out=first)
    kernel(a, first, out=second)
    assert not bool(second.any())


@pytest.mark.dsl
def test_a_kernel_takes_numpy_too(kernel: Kernel) -> None:
    a, b, out = random_operands(kernel.contract, 20, 33, 41, seed=3)
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok
    before = len(kept_copies.entries)
    assert kernel.call_size(a, b, out).strides["b"].leading == 48
    assert len(kept_copies.entries) == before


def test_the_plan_says_it_and_the_contract_travels() -> None:
    found = plan(SPEC, "sm_80")
    assert (found.b.major, found.b.align_bytes, found.spec) == ("k", 16, SPEC)
    assert found.decisions[0].key == "problem.b.transposed"
    assert LaunchContract.from_json(found.launch.to_json()) == found.launch
    assert [(x.major, x.align_bytes) for x in found.launch.of_a_call().tensors] == [("k", 16), ("n", 2), ("n", 2)]
    assert [(x.major, x.align_bytes) for x in found.launch.tensors] == [("k", 16), ("k", 16), ("n", 2)]


@pytest.mark.parametrize("name", ["a", "c"])
def test_only_b_is_kept(name: str) -> None:
    operands = {"a": '"f16", major = "k"', "b": '"f16", major = "k"', "c": '"f16", major = "n"'}
    operands[name] += ', transposed = "once"'
    toml = "\n".join(f"problem.{x} = {{ dtype = {rest} }}" for x, rest in operands.items())
    with pytest.raises(SpecError, match=rf'problem.{name}.transposed: found "once"; expected nothing: only B'):
        parse_spec(f'family = "sm80"\n{toml}\n')
