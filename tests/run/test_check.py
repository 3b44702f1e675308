"""Operands against a contract: what fits, what is refused, and that every pasted fix works."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import CallSize, LaunchContract, Strides
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT, ProblemShape
from cutegen.errors import OperandError
from cutegen.run.call.check import CheckedCall, check_call, check_inputs, place
from cutegen.run.call.memory_overlap import check_address, check_apart
from cutegen.run.call.operands import CPU, Form, view_of
from cutegen.run.call.storage import call_tensor

torch = pytest.importorskip("torch")
MakeContract = Callable[..., LaunchContract]


def check(contract: LaunchContract, a: Any, b: Any, out: Any) -> CheckedCall:
    """All checks of a call, in the order of a call."""
    views = [view_of(operand, name) for operand, name in ((a, "a"), (b, "b"), (out, "out"))]
    call = check_call(contract, *(view.form for view in views))
    for placed, view in zip(call.placed.values(), views, strict=True):
        check_address(placed, view.pointer)
    for role, view in zip("ab", views[:2], strict=True):
        check_apart(call.placed["c"], views[2].pointer, call.placed[role], view.pointer)
    return call


def leading(size: CallSize) -> tuple[int, ...]:
    """The leading strides of A, B and C."""
    return tuple(size.strides[name].leading for name in "abc")


def form(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "f16", framework: str = "numpy", device: Any = CPU
) -> Form:
    return Form(shape, strides, dtype, device, framework, False)


def half(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.float16)


def refused(contract: LaunchContract, a: Any, b: Any, out: Any) -> OperandError:
    with pytest.raises(OperandError) as caught:
        check(contract, a, b, out)
    return caught.value


def pasted(error: OperandError, a: Any, b: Any, out: Any) -> dict[str, Any]:
    """The operands after the expression in the message's backticks was pasted in."""
    expression = re.findall(r"`([^`]+)`", error.fix)
    assert len(expression) == 1, error.fix
    operands = {"a": a, "b": b, "out": out}
    value = eval(expression[0], {"torch": torch, "np": np, **operands})
    return {**operands, error.operand: value}


@pytest.mark.parametrize("majors", [f"{a}{b}{c}" for a in "mk" for b in "nk" for c in "mn"])
def test_strides_say_the_major(contract: MakeContract, majors: str) -> None:
    m, n, k = 64, 32, 48
    a = half(m, k) if majors[0] == "k" else half(k, m).t()
    b = half(k, n) if majors[1] == "n" else half(n, k).t()
    out = half(m, n) if majors[2] == "n" else half(n, m).t()
    size = check(contract(majors), a, b, out).size
    extents = {"m": m, "n": n, "k": k}
    strides = {name: Strides(extents[major]) for name, major in zip("abc", majors, strict=True)}
    assert size == CallSize(problem=ProblemShape(m, n, k), strides=strides)


def test_leading_strides_may_be_padded(contract: MakeContract) -> None:
    size = check(contract(), half(64, 56)[:, :49], half(32, 64).t()[:49], half(64, 40)[:, :32]).size
    assert (size.problem.k, *leading(size)) == (49, 56, 64, 40)


@pytest.mark.parametrize("stride", [0, 1, 3, -5, 10**9])
def test_stride_of_a_mode_of_extent_one_says_nothing(contract: MakeContract, stride: int) -> None:
    # M = 1: the leading stride of A and of C is free. K = 20 is rounded up to the 8 elements of 16 bytes.
    size = check_call(contract(), form((1, 20), (stride, 1)), form((20, 16), (1, 24)), form((1, 16), (stride, 1))).size
    assert leading(size) == (24, 24, 16)
    # K = 1: the contiguous stride of A and B is free, their leading strides are not.
    size = check_call(contract(), form((8, 1), (8, stride)), form((1, 16), (stride, 8)), form((8, 16), (16, 1))).size
    assert leading(size)[:2] == (8, 8)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)])
def test_empty_operands_have_no_layout_to_check(contract: MakeContract, m: int, n: int, k: int) -> None:
    size = check(contract(), half(m, k), half(n, k).t(), half(m, n)).size
    assert size.problem == ProblemShape(m, n, k)


def test_extents_that_32_bits_do_not_count_to_the_end_of_are_refused(contract: MakeContract) -> None:
    def on_gpu(*shape: int) -> Form:
        return form(shape, (shape[1], 1), device=("cuda", 0))

    with pytest.raises(OperandError, match=rf"operand a: found M = {MAX_EXTENT + 1}; expected at most {MAX_EXTENT}"):
        check_call(contract(), on_gpu(MAX_EXTENT + 1, 8), on_gpu(8, 8), on_gpu(MAX_EXTENT + 1, 8))
    huge = form((8, MAX_EXTENT), (2**31 + 8, 1), device=("cuda", 0))
    size = check_call(contract("knn"), on_gpu(8, 8), huge, huge).size
    assert (size.problem.n, size.strides["b"].leading) == (MAX_EXTENT, 2**31 + 8)


def test_strides_that_leave_every_address_space_are_refused(contract: MakeContract) -> None:
    far = form((64, 48), (1 << 60, 1))
    with pytest.raises(OperandError, match=r"operand a: found strides \(1152921504606846976, 1\): 145,268,"):
        check_call(contract(), far, view_of(Bad.b, "b").form, view_of(Bad.out, "out").form)


class Bad:
    """a (64,48), b (48,32), out (64,32) fit; each case spoils one of them."""

    a, b, out = half(64, 48), half(32, 48).t(), half(64, 32)


def unaligned(*shape: int) -> Any:
    """Begins 2 bytes after an aligned address."""
    flat = torch.zeros(shape[0] * shape[1] + 1, dtype=torch.float16)
    return flat[1:].view(shape)


# (operand, value, what the message must say, whether its fix can be pasted)
REFUSED = {
    "dtype": ("a", half(64, 48).float(), "found dtype f32; expected f16; `a.to(torch.float16)`", True),
    "dtype unknown to cutegen": ("b", half(48, 32).to(torch.int16), "found dtype int16; expected f16", False),
    "four dimensions": (
        "a",
        half(2, 3, 64, 48),
        "found 4 dimensions, shape (2, 3, 64, 48); expected 2, (M, K), or 3 with a batch first",
        False,
    ),
    "one dimension": ("a", half(48), "found 1 dimension, shape (48,); expected 2, (M, K)", False),
    "inner sizes": (
        "b",
        half(40, 32),
        "found shape (40, 32), so K = 40; expected K = 48, as in a of shape (64, 48)",
        False,
    ),
    "b not transposed": ("b", half(32, 48), "so K = 32; expected K = 48", True),
    "a M-major": (
        "a",
        half(48, 64).t(),
        'found M-major strides (1, 64); expected stride 1 in K (problem.a.major = "k"); `a.contiguous()`, '
        'or compile with problem.a.major = "m" to take it as it is',
        True,
    ),
    "b N-major": (
        "b",
        half(48, 32),
        'found N-major strides (32, 1); expected stride 1 in K (problem.b.major = "k"); `b.t().contiguous().t()`, '
        'or compile with problem.b.major = "n" to take it as it is',
        True,
    ),
    "out M-major": ("out", half(32, 64).t(), 'or compile with problem.c.major = "m" to take it as it is', True),
    "every second column": ("a", half(64, 96)[:, ::2], "found strides (96, 2), contiguous in neither mode", True),
    "broadcast row": (
        "a",
        half(1, 48).expand(64, 48),
        "found strides (0, 1) (broadcast); expected a leading stride",
        True,
    ),
    "broadcast scalar": (
        "a",
        half(1, 1).expand(64, 48),
        "found strides (0, 0), contiguous in neither mode (broadcast)",
        True,
    ),
    "overlapping rows": (
        "a",
        half(10**4).as_strided((64, 48), (8, 1)),
        "expected a leading stride of at least 48",
        True,
    ),
    "out broadcast": ("out", half(1, 32).expand(64, 32), "found strides (0, 1) (broadcast)", True),
    "leading stride": (
        "a",
        half(64, 50)[:, :48],
        "found leading stride 50: 50 x 2 = 100 bytes; expected a multiple of 16 bytes, that is 8 elements (problem.a",
        True,
    ),
    "out leading stride": ("out", half(64, 33)[:, :32], "found leading stride 33: 33 x 2 = 66 bytes", True),
    "a address": ("a", unaligned(64, 48), "2 bytes past a multiple of 16; expected a multiple of 16 bytes", True),
    "b address": ("b", unaligned(32, 48).t(), "2 bytes past a multiple of 16", True),
    "out address": ("out", unaligned(64, 32), "2 bytes past a multiple of 16", True),
    "out shape": ("out", half(32, 64), "found shape (32, 64); expected (64, 32), (M, N) of a @ b", True),
    "out dtype": ("out", half(64, 32).bfloat16(), "found dtype bf16; expected f16", True),
    "out is a": ("out", None, "found memory shared with a; expected separate memory", False),
    "a device": (
        "a",
        torch.empty(64, 48, dtype=torch.float16, device="meta"),
        "found device meta; expected a CUDA",
        False,
    ),
    "b device": (
        "b",
        torch.empty(48, 32, dtype=torch.float16, device="meta"),
        "found device meta; expected a CUDA",
        False,
    ),
    "out device": (
        "out",
        torch.empty(64, 32, dtype=torch.float16, device="meta"),
        'found device meta:0; expected cpu, the device of a; `out.to("cpu")`',
        False,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_found_expected_and_fix(contract: MakeContract, case: str) -> None:
    name, value, message, can_be_pasted = REFUSED[case]
    operands = {"a": Bad.a, "b": Bad.b, "out": Bad.out, name: Bad.a[:, :32] if value is None else value}
    error = refused(contract(), **operands)
    assert error.operand == name
    assert error.exit_code == 2
    assert message in str(error)
    if can_be_pasted:
        fixed = pasted(error, **operands)
        check(contract(), **fixed)
        if name != "out" and case != "b not transposed":
            assert torch.equal(fixed[name], operands[name].to(torch.float16))


@pytest.mark.parametrize("majors", ["kkn", "mnm"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 9, 13), (1, 257, 127), (16, 8, 1)])
def test_fix_for_any_major_pads_what_must_be_padded(
    contract: MakeContract, majors: str, framework: str, m: int, n: int, k: int
) -> None:
    """Operands of the wrong major whose right major has no aligned leading stride: the fix gives both at once."""
    compiled = contract(majors)
    generator = np.random.default_rng(m * n * k)
    values = [generator.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n))]
    operands = dict(
        zip(("a", "b"), [np.asarray(v, order="F" if majors == "kkn" else "C") for v in values], strict=True)
    )
    if framework == "torch":
        operands = {name: torch.from_numpy(value) for name, value in operands.items()}
    rows, columns = (m, n) if majors[2] == "n" else (n, m)
    storage = half(rows, -(-columns // 8) * 8)[:, :columns]
    out = storage if majors[2] == "n" else storage.t()
    for _ in range(2):
        try:
            check(compiled, **operands, out=out)
        except OperandError as error:
            operands = {name: pasted(error, **operands, out=out)[name] for name in ("a", "b")}
    check(compiled, **operands, out=out)
    for found, expected in zip(operands.values(), values, strict=True):
        assert np.array_equal(np.asarray(found), expected)


def test_columns_of_one_buffer_do_not_share_memory(contract: MakeContract) -> None:
    buffer = half(64, 96)
    check(contract(), buffer[:, :48], Bad.b, buffer[:, 48:80])
    error = refused(contract(), buffer[:, :48], Bad.b, buffer[:, 40:72])
    assert error.found == "memory shared with a"


@pytest.mark.parametrize("seed", range(300))
def test_shared_memory_is_found_exactly(contract: MakeContract, seed: int) -> None:
    """Two random windows of one buffer, against the sets of their elements."""
    generator = np.random.default_rng(seed)
    buffer = torch.zeros(4000, dtype=torch.float16)
    rows, *columns = (int(extent) for extent in generator.integers(1, 30, 3))
    strides = [extent + int(generator.integers(0, 60)) for extent in columns]
    a, out = (
        buffer.as_strided((rows, extent), (stride, 1), int(generator.integers(0, 60)))
        for extent, stride in zip(columns, strides, strict=True)
    )
    b = half(columns[0], columns[1])
    if _elements(a) & _elements(out):
        assert refused(contract("knn", align=2), a, b, out).found == "memory shared with a"
    else:
        check(contract("knn", align=2), a, b, out)


def _elements(view: Any) -> set[int]:
    (rows, columns), first = view.shape, view.storage_offset()
    return {first + row * view.stride(0) + column for row in range(rows) for column in range(columns)}


def test_result_may_not_be_b(contract: MakeContract) -> None:
    square = half(32, 32)
    assert refused(contract("knn"), half(32, 32), square, square).found == "memory shared with b"


def test_read_only_result_is_refused(contract: MakeContract) -> None:
    out = np.zeros((64, 32), np.float16)
    out.flags.writeable = False
    assert refused(contract(), Bad.a, Bad.b, out).found == "a read-only array"


def test_operands_on_two_gpus(contract: MakeContract, cuda_array: Any) -> None:
    a = cuda_array(np.zeros((64, 48), np.float16), ordinal=1)
    error = refused(contract(), a, cuda_array(np.zeros((32, 48), np.float16).T), Bad.out)
    assert str(error).startswith("operand b: found device cuda:0; expected cuda:1, the device of a")
    error = refused(contract(), a, Bad.b, Bad.out)
    assert error.fix == '`b.to("cuda:1")`'


def test_a_tensor_that_requires_grad_is_refused_only_where_autograd_records(contract: MakeContract) -> None:
    a = half(64, 48).requires_grad_()
    assert "`a.detach()`" in refused(contract(), a, Bad.b, Bad.out).fix
    with torch.no_grad():
        check(contract(), a, Bad.b, Bad.out)


def test_sparse_tensor_is_refused(contract: MakeContract) -> None:
    error = refused(contract(), half(64, 48).to_sparse(), Bad.b, Bad.out)
    assert error.fix.startswith("`a.to_dense()`")


@pytest.mark.parametrize("operand", [[[1.0]], 3, None, "a"])
def test_no_array_at_all(contract: MakeContract, operand: Any) -> None:
    error = refused(contract(), operand, Bad.b, Bad.out)
    assert "__dlpack__" in error.expected
    assert error.found == f"a {type(operand).__qualname__}"


def test_57_bits_of_addresses_may_be_spanned(contract: MakeContract) -> None:
    """Five-level paging has virtual addresses of 57 bits."""
    tensor = call_tensor(contract().tensor("a"))
    stride = (1 << 57) // 2 - 8  # elements of 2 bytes
    assert place(tensor, form((2, 8), (stride, 1))).span_bytes == 1 << 57
    with pytest.raises(OperandError, match="at most 144,115,188,075,855,872"):
        place(tensor, form((2, 8), (stride + 8, 1)))


def test_a_batch_fills_grid_z(contract: MakeContract) -> None:
    def shape(batch: int) -> tuple[int, ...]:
        return check_inputs(contract(), form((batch, 8, 8), (64, 8, 1)), form((8, 8), (1, 8)))

    assert shape(MAX_BATCH) == (65535, 8, 8)
    with pytest.raises(OperandError, match="a batch of 65536; expected at most 65535"):
        shape(MAX_BATCH + 1)


def test_the_tiles_of_a_matrix_have_numbers_of_32_bits(contract: MakeContract) -> None:
    """The driver would take the low 32 bits of a larger grid, and leave most of the result unwritten."""
    small = replace(contract(align=2), cta_tile=(1, 32))

    def shape(n: int) -> tuple[int, ...]:
        return check_inputs(small, form((MAX_EXTENT, 8), (8, 1)), form((8, n), (1, 8)))

    assert shape(32) == (MAX_EXTENT, 32)
    with pytest.raises(OperandError, match="so 4294705152 tiles of 1 x 32; expected at most 2147352576") as caught:
        shape(33)
    assert caught.value.fix == "split the problem, or compile with a larger tile.cta"


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_batch_spans_to_the_end_of_its_last_matrix(contract: MakeContract, batch: int) -> None:
    array = np.zeros((batch, 6, 24), np.float16)[:, :, :16]
    placed = place(call_tensor(contract().tensor("a")), view_of(array, "a").form)
    first, end = np.lib.array_utils.byte_bounds(array)
    assert placed.span_bytes == end - first


@pytest.mark.parametrize(("stride", "oddity"), [(-64, "reversed"), (0, "broadcast")])
def test_only_a_matrix_of_the_other_major_is_told_to_compile_for_it(
    contract: MakeContract, stride: int, oddity: str
) -> None:
    """Strides (1, 64) would be the other major; reversed or broadcast columns fit no major."""
    tensor = call_tensor(contract().tensor("a"))
    with pytest.raises(OperandError, match=re.escape('or compile with problem.a.major = "m"')):
        place(tensor, form((64, 48), (1, 64)))
    with pytest.raises(OperandError, match="contiguous in neither mode") as caught:
        place(tensor, form((64, 48), (1, stride)))
    assert f"({oddity})" in caught.value.found
    assert "compile with" not in caught.value.fix


@pytest.mark.parametrize("dtype", ["f16", "s8", "f32"])
@pytest.mark.parametrize("other", ["float64", "uint16", "uint8", "None"])
def test_a_type_that_numpy_has_is_not_carried_by_another(contract: MakeContract, dtype: str, other: str) -> None:
    with pytest.raises(OperandError, match=f"a: found dtype {other}"):
        check_inputs(contract(dtype=dtype), form((8, 8), (8, 1), other), form((8, 8), (1, 8), dtype))
