"""What a generated file says of itself: its `main` accepts right results of any type, and no wrong ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cutegen.build import Cache
from cutegen.plan import plan
from cutegen.render import render
from cutegen.render.self_check import CHECKED_MNK
from cutegen.run import Kernel
from cutegen.spec import Epilogue, Tile
from tests.plan.kernels import builder
from tests.plan.specs import gemm

TILE = Tile(cta=(32, 32, 64), stages=2)
SPECS = {
    "truncated sums": (gemm(c_dtype="f32", tile=TILE), "sm_80"),
    "integers near ties": (gemm(dtype="tf32", c_dtype="s32", tile=TILE), "sm_80"),
    "8-bit integers saturate": (gemm(dtype="s8", c_dtype="s8", tile=TILE), "sm_80"),
    "8-bit floats saturate": (gemm(dtype="s8", c_dtype="e4m3", tile=TILE), "sm_89"),
    "an exponential": (gemm(tile=TILE, epilogue=Epilogue(expression="x -> exp(x)")), "sm_80"),
    "a quotient": (gemm(c_dtype="f32", tile=TILE, epilogue=Epilogue(expression="x -> 1 / x")), "sm_80"),
    "a quotient of zeros": (gemm(tile=TILE, epilogue=Epilogue(expression="x -> relu(x) / relu(x)")), "sm_80"),
}
AT_THE_ENDS = {
    "integers": gemm(dtype="s8", c_dtype="s8", tile=TILE, epilogue=Epilogue(expression="x -> 1e-5 * x")),
    "subnormals": gemm(tile=TILE, epilogue=Epilogue(expression="x -> x / 1e7")),
    "a factor": gemm(tile=TILE, epilogue=Epilogue(expression="x -> 3e4 * x")),
    "a power": gemm(tile=TILE, epilogue=Epilogue(expression="x -> x * x * x")),
}
"""Results that the type of C rounds to 0 or subnormals, and f16 that overflow."""
SMALL_MN = (48, 48)


def check_of(text: str, compiled: Callable[..., None]) -> Callable[[], None]:
    """`main` of a file for the CPU, on fewer rows and columns; `compiled` is called with the names that it has."""
    body = text[text.index("def main():") : text.index("if __name__")]
    extents = "m, n, k = " + ", ".join(map(str, (*SMALL_MN, CHECKED_MNK[2])))
    body = body.replace("m, n, k = " + ", ".join(map(str, CHECKED_MNK)), extents).replace('"cuda"', '"cpu"')
    body = re.sub(r"compiled\(\*addresses.*", "compiled(locals())", body)
    body = body.replace("torch.cuda.get_device_capability()", "9, 0").replace("torch.cuda.synchronize()", "")
    body = body.replace("cuda.CUstream(torch.cuda.current_stream().cuda_stream)", "None")
    names: dict[str, Any] = {"compile_kernel": lambda _: compiled, "pointers": lambda *_: ()}
    exec(body, names)
    check: Callable[[], None] = names["main"]
    return check


@pytest.mark.dsl
@pytest.mark.parametrize("name", SPECS)
def test_a_right_result_is_accepted_and_a_wrong_one_is_not(name: str, kernels: Cache) -> None:
    spec, arch = SPECS[name]
    text, kernel = render(plan(spec, arch)).text, Kernel(builder(kernels)(spec, arch))

    def right(names: Mapping[str, Any]) -> None:
        kernel(names["a"], names["b"].T, out=names["c"])

    def wrong(names: Mapping[str, Any]) -> None:
        right(names)
        names["c"][-2:] = names["c"][:2].clone()

    check_of(text, right)()
    with pytest.raises(SystemExit, match="wrong result"):
        check_of(text, wrong)()


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["truncated sums", "an exponential", "a quotient"])
def test_a_result_that_is_a_fifth_too_large_is_not_accepted(name: str, kernels: Cache) -> None:
    """Also where the chain amplifies errors, and elements are compared by a wide tolerance."""
    spec, arch = SPECS[name]
    text, kernel = render(plan(spec, arch)).text, Kernel(builder(kernels)(spec, arch))

    def too_large(names: Mapping[str, Any]) -> None:
        kernel(names["a"], names["b"].T, out=names["c"])
        names["c"].mul_(1.2)

    with pytest.raises(SystemExit, match="wrong result"):
        check_of(text, too_large)()


@pytest.mark.dsl
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_right_results_at_either_end_of_a_type_are_accepted(name: str, kernels: Cache) -> None:
    spec = AT_THE_ENDS[name]
    kernel = Kernel(builder(kernels)(spec, "sm_80"))
    check_of(render(plan(spec, "sm_80")).text, lambda names: kernel(names["a"], names["b"].T, out=names["c"]))()


@pytest.mark.dsl
def test_unsigned_results_that_all_saturate_are_not_there_before_the_launch() -> None:
    spec = gemm(dtype="u8", c_dtype="u8", tile=TILE)
    with pytest.raises(SystemExit, match="wrong result"):
        check_of(render(plan(spec, "sm_80")).text, lambda names: None)()


@pytest.mark.parametrize("dtype", ["f16", "s8"])
@pytest.mark.parametrize("align", [16, 32, 128])
def test_rows_begin_where_the_alignment_of_the_spec_promises(dtype: str, align: int) -> None:
    made = plan(gemm(dtype=dtype, c_dtype="f16", align=(align, align, align)), "sm_80")
    ((n, k),) = re.findall(r"m, n, k = \d+, (\d+), (\d+)$", render(made).text, flags=re.MULTILINE)
    assert (int(k) * made.a.dtype.bytes % align, int(n) * made.epilogue.dtype.bytes % align) == (0, 0)
