"""`cutegen.operators` without NVIDIA's package: what a kernel takes in place, and what the package's absence says."""

from __future__ import annotations

import sys

import pytest

import cutegen.operators
from cutegen.contract.problem import ProblemShape
from cutegen.dispatch.resolve import Given
from cutegen.errors import OutsideError, RequestError
from cutegen.operators.in_place import plan_of, request_in_place
from cutegen.run.call.operands import Form

M, N, K = 300, 256, 128


def form(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "bf16") -> Form:
    return Form(shape, strides, dtype, ("cuda", 0), "torch", read_only=False)


def given(**changed: tuple[Form, int]) -> Given:
    return {
        "a": (form((M, K), (K, 1)), 0),
        "b": (form((K, N), (1, K)), 0),
        "out": (form((M, N), (N, 1)), 0),
    } | changed


@pytest.mark.parametrize(("target", "family"), [("sm_80", "sm80"), ("sm_90", "sm90"), ("sm_100", "sm100")])
def test_the_plan_is_for_the_extents_on_the_target(target: str, family: str) -> None:
    made = plan_of(request_in_place(given(), target))
    assert (made.family, made.target.name) == (family, target)
    assert made.problem == ProblemShape(384, N, K)  # M is rounded up to its bucket


def test_operands_are_aligned_as_their_addresses_and_strides_are() -> None:
    request = request_in_place(given(a=(form((M, K), (K + 4, 1)), 0), b=(form((K, N), (1, K)), 4)), "sm_80")
    assert [each.align_bytes for each in (request.a, request.b, request.c)] == [8, 4, 16]


def test_groups_of_each_mode_are_planned() -> None:
    offs = (form((3,), (1,), "int32"), 0)
    of_b, of_a, of_c = (form((3, *x), (x[0] * x[1], x[1], 1)) for x in ((K, N), (M, K), (M, N)))
    for mode, changed in (("m", {"b": of_b}), ("n", {"a": of_a}), ("k", {"out": of_c})):
        tensors = given(**{name: (each, 0) for name, each in changed.items()}, offs=offs)
        groups = request_in_place(tensors, "sm_80").groups
        assert groups is not None
        assert groups.of == mode


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"a": (form((M, K), (2 * K, 2)), 0)}, "operand a: found a tensor to copy"),
        ({"out": (form((M, N), (2 * N, 2)), 0)}, "operand out: found a tensor to copy"),
        ({"out": (form((M, N + 8), (N + 8, 1)), 0)}, "operand out: found shape"),
        ({"b": (form((K, N), (1, K), "f16"), 0)}, "operand b: found"),
        ({"a": (form((0, K), (K, 1)), 0), "out": (form((0, N), (N, 1)), 0)}, "the empty problem"),
    ],
)
def test_what_a_kernel_does_not_take_as_it_is_is_refused(changed: dict[str, tuple[Form, int]], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        request_in_place(given(**changed), "sm_80")


def test_without_the_package_registering_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cutegen.operators.provider", raising=False)
    monkeypatch.setitem(sys.modules, "cutlass", None)
    with pytest.raises(OutsideError, match=r"pip install 'cutegen\[operators\]'"):
        cutegen.operators.register()
