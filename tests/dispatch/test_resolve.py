"""What a call asks for: shapes as torch.matmul has them, majors and alignments, copies where no kernel fits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cutegen.contract import ProblemShape
from cutegen.dispatch.formula import Formula, check_activation, check_scalars
from cutegen.dispatch.placement import merged
from cutegen.dispatch.request import Request
from cutegen.dispatch.resolve import CallTarget, Resolved, resolve
from cutegen.errors import CutegenError, OperandError, RequestError
from cutegen.run.call.operands import CPU, Form, compact_strides
from tests.seeding import new_generator

HERE = CallTarget("sm_90")


def form(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, dtype: str = "f16") -> Form:
    return Form(shape, compact_strides(shape) if strides is None else strides, dtype, CPU, "torch", False)


def ask(a: Form, b: Form, out_dtype: str | None = None, *, at: int = 4096, **others: Form) -> Resolved:
    terms = {name: name in others for name in ("bias", "c", "residual", "scale_a", "scale_b")}
    given = {name: (each, at) for name, each in {"a": a, "b": b, **others}.items()}
    return resolve(given, Formula(**terms), HERE, out_dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((8, 16), (16, 24)),
        ((16,), (16, 24)),
        ((8, 16), (16,)),
        ((16,), (16,)),
        ((3, 8, 16), (16, 24)),
        ((3, 1, 8, 16), (5, 16, 24)),
        ((16,), (4, 16, 24)),
        ((2, 3, 8, 16), (16,)),
        ((0, 16), (16, 24)),
        ((8, 0), (0, 24)),
        ((0, 8, 16), (16, 24)),
    ],
)
def test_shapes_are_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert ask(form(a), form(b)).problem.result == np.matmul(np.zeros(a), np.zeros(b)).shape


def test_the_letters_of_blas_are_read_from_strides() -> None:
    row, column = form((64, 64)), form((64, 64), (1, 64))
    found = [ask(a, b).request for a in (row, column) for b in (column, row)]
    assert [(x.a.major, x.b.major) for x in found] == [("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")]
    assert all(x.a.align_bytes == x.b.align_bytes == 16 for x in found)


def test_a_batch_of_one_weight_is_more_rows_of_one_product() -> None:
    folded = ask(form((4, 6, 64)), form((64, 32), (1, 64)))
    assert folded.placements["a"].form.shape == (24, 64)
    assert folded.placements["out"].form.shape == (24, 32)
    assert folded.request.problem == ProblemShape(24, 32, 64)
    apart = ask(form((4, 6, 64), (64, 256, 1)), form((64, 32)))  # (rows, batch, K), the first two exchanged
    assert apart.placements["a"].form.shape == (4, 6, 64)
    assert apart.request.problem.batch == 4
    assert not apart.copies


def test_batches_of_several_dimensions_are_one_with_the_strides_of_their_matrices() -> None:
    """Where A's rows lie apart, B's columns, and both batches are parts of larger ones."""
    a, b = form((2, 3, 8, 16), (1200, 400, 20, 1)), form((2, 3, 16, 24), (3600, 1200, 1, 30))
    found = {name: placed.form for name, placed in ask(a, b).placements.items()}
    assert (found["a"].shape, found["a"].strides) == ((6, 8, 16), (400, 20, 1))
    assert (found["b"].shape, found["b"].strides) == ((6, 16, 24), (1200, 1, 30))
    assert (found["out"].shape, found["out"].strides) == ((6, 8, 24), (192, 24, 1))


def test_a_batch_of_one_is_read_again_for_each_of_the_others() -> None:
    """Its own stride, to matrices that do not exist, does not count: it would fit those of the next dimension."""
    found = ask(form((1, 2, 8, 16)), form((3, 2, 16, 24)))
    assert set(found.copies) == {"a"}
    copy = found.placements["a"].copy
    assert copy is not None
    assert (copy.seen, copy.shape) == ((1, 2, 8, 16), (3, 2, 8, 16))


def test_what_no_kernel_reads_is_copied_and_said() -> None:
    every_other = ask(form((64, 64), (256, 2)), form((64, 64)))
    assert set(every_other.copies) == {"a"}
    expanded = ask(form((5, 1, 8, 16)), form((3, 16, 24)))
    assert set(expanded.copies) == {"a", "b"}
    copy = expanded.placements["a"].copy
    assert copy is not None
    assert (copy.shape, copy.strides, copy.elems) == ((5, 3, 8, 16), (384, 128, 16, 1), 5 * 3 * 8 * 16)
    stepped = form((3, 8, 24), (0, 24, 1))
    assert not ask(form((3, 8, 16), (0, 16, 1)), form((3, 16, 24))).copies, "a batch at distance 0 is read as it is"
    assert set(ask(form((3, 8, 16)), form((3, 16, 24)), residual=stepped).copies) == set()


def test_an_odd_stride_is_read_narrowly_or_padded_by_what_it_is_worth() -> None:
    narrow = ask(form((64, 63)), form((63, 64)))
    assert (narrow.request.a.align_bytes, narrow.copies) == (2, {})
    wide = ask(form((64, 63)), form((63, 2048)))
    assert set(wide.copies) == {"a"}
    placed = wide.placements["a"]
    assert (placed.form.shape, placed.form.strides, placed.matrix.align_bytes) == ((64, 63), (64, 1), 16)
    assert ask(form((64, 64)), form((64, 64)), at=4098).request.a.align_bytes == 2
    batched = ask(form((3, 8, 16), (132, 16, 1)), form((3, 16, 24)))
    assert batched.request.a.align_bytes == 8, "matrices are 264 bytes apart"


def test_out_lies_anyhow_and_c_as_out_does() -> None:
    a, b = form((32, 64)), form((64, 48))
    column = form((32, 48), (1, 32))
    assert ask(a, b, out=column).request.c.major == "m"
    assert not ask(a, b, out=column).copies
    assert set(ask(a, b, out=form((32, 48), (96, 2))).copies) == {"out"}
    backwards = ask(form((3, 32, 64)), form((3, 64, 48)), out=form((3, 32, 48), (-32 * 48, 48, 1)))
    assert set(backwards.copies) == {"out"}, "no kernel counts matrices down"
    assert set(ask(a, b, out=column, c=form((32, 48))).copies) <= {"c", "out"}
    mixed = ask(a, b, out=column, c=form((32, 48)))
    assert mixed.placements["c"].matrix.major == mixed.placements["out"].matrix.major
    assert ask(a, b, c=form((32, 48), (50, 1)), out=form((32, 48))).request.c.align_bytes == 4


def test_scales_are_one_element_or_vectors_with_or_without_a_dimension_of_one() -> None:
    a, b = form((4, 6, 64), dtype="e4m3"), form((64, 32), (1, 64), "e4m3")
    for shape in ((4, 6), (4, 6, 1)):
        assert ask(a, b, scale_a=form(shape, dtype="f32")).placements["scale_a"].form.shape == (24,)
    for shape in ((), (1,), (1, 1)):
        assert ask(a, b, scale_b=form(shape, dtype="f32")).placements["scale_b"].form.shape == (1,)
    for shape in ((32,), (1, 32), (1, 1, 32)):
        assert ask(a, b, scale_b=form(shape, dtype="f32")).placements["scale_b"].form.shape == (32,)
    of_all = ask(a, b, scale_a=form((1, 6, 1), dtype="f32")).placements["scale_a"]  # rows of the batch are rows of A
    assert (of_all.form.shape, of_all.copy and of_all.copy.shape) == ((24,), (4, 6))
    apart = ask(a, form((4, 64, 32), (2048, 1, 64), "e4m3"), scale_a=form((1, 6, 1), dtype="f32"))
    assert (apart.placements["scale_a"].form.shape, set(apart.copies)) == ((6,), set())
    for layout in (None, (1, 4 * 64, 4)):  # a batch that could be more rows, and one that could not
        each = ask(form((4, 6, 64), layout, "e4m3"), b, scale_b=form((4, 1, 32), dtype="f32"))
        assert (each.placements["scale_b"].form.shape, each.called.batch) == ((4, 32), 4)
    assert ask(a, b, scale_b=form((32,), (3,), "f32")).copies.keys() == {"scale_b"}
    assert "scale_b" in ask(a, b, at=4098, scale_b=form((32,), dtype="f32")).copies, "between two of its elements"
    one_row = form((4, 1, 64), dtype="e4m3")
    for shape in ((4, 1), (4, 1, 1)):
        assert ask(one_row, b, scale_a=form(shape, dtype="f32")).placements["scale_a"].form.shape == (4,)
    request = ask(a, b, scale_a=form((), dtype="f32"), scale_b=form((32,), dtype="f32")).request
    assert (request.ops, request.scale, request.c.dtype) == (("scale_m", "scale_n"), "f32", "bf16")


@pytest.mark.parametrize(
    ("k", "b"),
    [
        (256, form((256, 512), (1, 256))),
        (100, form((100, 512), (1, 100))),  # rows aligned to 8 bytes; one row alone would be to 16
        (256, form((256, 100))),  # so is C
        (4100, form((4100, 512), (1, 4100))),  # worth a copy of B for many rows
        (4096, form((4096, 508))),
    ],
)
@pytest.mark.parametrize("terms", [{}, {"bias": True}, {"residual": True}, {"c": True}])
def test_rows_that_must_not_depend_on_their_number_make_the_same_request(
    k: int, b: Form, terms: dict[str, bool]
) -> None:
    def request(*rows: int) -> Request:
        n = b.shape[1]
        given = {"a": form((*rows, k)), "b": b} | {name: form((n,) if name == "bias" else (*rows, n)) for name in terms}
        where = CallTarget("sm_90", batch_invariant=True)
        return resolve({name: (x, 0) for name, x in given.items()}, Formula(**terms), where).request

    assert len({request(*rows) for rows in ((), (1,), (2,), (7,), (1023,), (1024,), (5000,), (3, 1), (3, 7))}) == 1


def test_types_of_results() -> None:
    def of(dtype: str, asked: str | None = None) -> str:
        return ask(form((8, 16), dtype=dtype), form((16, 8), dtype=dtype), asked).dtype

    assert [of(x) for x in ("f16", "bf16", "f32", "s8", "u8", "e4m3")] == ["f16", "bf16", "f32", "s32", "s32", "bf16"]
    assert of("f16", "f32") == "f32"
    f32 = form((64, 64), dtype="f32")
    assert resolve({"a": (f32, 0), "b": (f32, 0)}, Formula(), CallTarget("sm_90", tf32=True)).request.a.dtype == "tf32"
    assert ask(f32, f32).request.a.dtype == "f32"


F16, B = form((8, 16)), form((16, 8))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ask(F16, form((15, 8))), r"operand b: found shape \(15, 8\), so K = 15; expected K = 16"),
        (lambda: ask(F16, form((8, 16))), r"`b.T` if it is stored as \(N, K\)"),
        (lambda: ask(form(()), F16), "operand a: found a tensor without dimensions"),
        (lambda: ask(form((2, 8, 16)), form((3, 16, 8))), r"batch of \(3,\); expected one that broadcasts with \(2,\)"),
        (lambda: ask(F16, form((16, 8), dtype="bf16")), "dtype bf16; expected f16 as in a"),
        (lambda: ask(form((8, 16), dtype="float64"), F16), "dtype float64; expected one of"),
        (lambda: ask(F16, B, "s16"), "out_dtype: found s16"),
        (lambda: ask(F16, B, bias=form((9,))), r"operand bias: found shape \(9,\); expected \(8,\)"),
        (lambda: ask(F16, B, residual=form((3, 8))), r"residual: found shape \(3, 8\); expected \(8, 8\)"),
        (lambda: ask(F16, B, c=form((8, 8), dtype="s32")), "operand c: found dtype s32; expected f16"),
        (lambda: ask(F16, B, out=form((8, 9))), r"operand out: found shape \(8, 9\); expected \(8, 8\)"),
        (lambda: ask(F16, B, out=form((8, 8))._replace(read_only=True)), "out: found a read-only array"),
        (lambda: ask(F16, B, out=form((8, 8))._replace(strides=(0, 1))), r"strides \(0, 1\), with elements that share"),
        (lambda: ask(F16, B, out=form((8, 8))._replace(strides=(4, 1))), r"strides \(4, 1\), with elements that share"),
        (
            lambda: ask(F16, form((16, 8))._replace(device=("cuda", 1))),
            'found device cuda:1; expected cpu.*b.to\\("cpu"',
        ),
        (lambda: ask(F16, B, scale_a=form((7,), dtype="f32")), r"one for each row of a: \(8,\)"),
        (
            lambda: ask(F16, B, scale_a=form((8,), dtype="s8")),
            "scale_a: found dtype s8; expected one of f32",
        ),
        (lambda: check_activation("gleu"), 'activation: found "gleu".*did you mean gelu'),
        (
            lambda: check_scalars(np.ones(3), None, has_c=False),
            r"found a ndarray.*`alpha.item\(\)`; for a factor on",
        ),
        (lambda: check_scalars(None, 1.0, has_c=False), "beta: found without c"),
    ],
)
def test_wrong_calls_name_the_operand_and_a_way_out(call: Any, match: str) -> None:
    with pytest.raises(CutegenError, match=match) as caught:
        call()
    assert isinstance(caught.value, (OperandError, RequestError))


def test_merged_dimensions_visit_the_same_elements_in_the_same_order() -> None:
    random = new_generator()
    for _ in range(300):
        shape = tuple(int(x) for x in random.integers(1, 4, size=random.integers(0, 4)))
        strides = tuple(int(x) for x in random.choice([0, 1, 2, 3, 4, 6, 8, 12], size=len(shape)))
        visited = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)]
        found = merged(shape, strides)
        if found is None:
            steps = {b - a for a, b in pairwise(visited)}
            assert len(steps) > 1, (shape, strides)
        else:
            assert visited == [i * found[1] for i in range(found[0])], (shape, strides)
