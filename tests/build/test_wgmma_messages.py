"""What the assembler says of real wgmma kernels: of sums that are read in flight, and of no others."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.api import build_request
from cutegen.build import builder
from cutegen.build.compiler import compile_source
from cutegen.spec import Epilogue
from tests.build.warm import WarmCompiler
from tests.plan.specs import gemm


@pytest.mark.slow
@pytest.mark.parametrize("warm", [False, True])
def test_sums_that_are_read_in_flight_are_told_of(warm: bool, tmp_path: Path, compiler_kept_warm: WarmCompiler) -> None:
    """A shipped spec's kernel without the wait before the epilogue reads the sums; as users compile it, and warm."""
    request = build_request("sm90_hgemm_tn", "sm_90")
    wait = "warpgroup.wait_group(0)"
    assert wait in request.source.text
    for text, codes in ((request.source.text, set()), (request.source.text.replace(wait, "pass"), {"C7514", "C7517"})):
        source = replace(request.source, text=text)
        with compiler_kept_warm.used() if warm else nullcontext():
            output = compile_source(source, "sm_90a", tmp_path, timeout_s=100, remarks=True)
        assert {code for code, _ in output.of_wgmma} == codes


def test_a_build_asks_for_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that multiplies by wgmma: others need not wait for it."""
    asked = []
    monkeypatch.setattr(builder, "compile_source", lambda *args, remarks, **options: asked.append(remarks))
    monkeypatch.setattr(builder, "inspect_output", lambda request, output: request)
    for name in ("sm90_hgemm_tn", "sm120_hgemm_tn"):
        builder._make(build_request(name, "sm_90"), 1.0)
    assert asked == [True, False]


@pytest.mark.dsl
@pytest.mark.parametrize("ops", [(), ("bias_n",)])
@pytest.mark.parametrize(
    "dtype", ["bf16", *(pytest.param(x, marks=pytest.mark.slow) for x in ("f16", "f32", "e5m2", "s8"))]
)
def test_no_result_that_is_stored_one_by_one_serializes(
    dtype: str, ops: tuple[str, ...], tmp_path: Path, compiler_kept_warm: WarmCompiler
) -> None:
    """Conversions of sums stay behind the wait for them, of an odd number of columns as `torch` has it too."""
    asked = gemm("kkn", c_dtype=dtype, align=(16, 16, 4 if dtype == "f32" else 2), epilogue=Epilogue(ops=ops))
    request = build_request(replace(asked, family="sm90"), "sm_90", problem=(2048, 2047, 2048))
    with compiler_kept_warm.used():
        output = compile_source(request.source, "sm_90a", tmp_path, timeout_s=100, remarks=True)
    assert output.of_wgmma == ()
