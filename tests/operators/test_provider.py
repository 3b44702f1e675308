"""`cutegen.operators` in NVIDIA's interface: what it finds, supports, compiles, and runs on the CPU executor."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

import cutegen.operators
from cutegen.build import Cache
from cutegen.errors import RequestError

try:
    version("nvidia-cutlass-operators")
except PackageNotFoundError:
    pytest.skip("needs nvidia-cutlass-operators", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cutlass.operators as ops

import torch

from tests.house.documents import ROOT, fences
from tests.house.replay import compare, execute

PROVIDER = cutegen.operators.register()


@pytest.fixture(autouse=True)
def _shared_cache(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "from_environment", classmethod(lambda _: kernels))


def operands(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float16, transposed: str = "", seed: int = 3
) -> list[Any]:
    """Random A and B, and an `out` of NaN; those whose names are in `transposed` are contiguous along their rows."""
    generator, made = torch.Generator().manual_seed(seed), []
    for name, shape in zip("abc", shapes, strict=True):
        stored = (*shape[:-2], shape[-1], shape[-2]) if name in transposed else shape
        values = torch.randn(stored, generator=generator) if name != "c" else torch.full(stored, torch.nan)
        made.append(values.to(dtype).mT if name in transposed else values.to(dtype))
    return made


def gemm(*, transposed: str = "", dtype: torch.dtype = torch.float16, batch: tuple[int, ...] = ()) -> Any:
    a, b, c = operands((*batch, 72, 64), (*batch, 64, 48), (*batch, 72, 48), dtype=dtype, transposed=transposed)
    return ops.GemmArguments(a, b, c, torch.float32)


def only(args: Any, target: str = "80") -> Any:
    (found,) = ops.get_operators(args, target_sm=target, providers=[PROVIDER])
    return found


def test_registering_twice_is_registering_once() -> None:
    assert cutegen.operators.register() is PROVIDER is ops.available_providers["cutegen"]
    found = [each for each in ops.get_operators(gemm(), target_sm="80") if each.metadata.provider is PROVIDER]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("target", "instruction"), [("80", "AmpereMma"), ("90a", "HopperWgmma"), ("100a", "BlackwellTcgen05Mma")]
)
def test_the_metadata_is_that_of_the_plan(target: str, instruction: str) -> None:
    a, b, c = operands((512, 256), (256, 512), (512, 512), transposed="b")
    found = only(ops.GemmArguments(a, b, c, torch.float32), target)
    design, plan = found.metadata.design, found.plan
    assert design.mma_instruction_type.__name__ == instruction
    assert (design.tile_shape[:2], design.num_smem_stages) == (plan.launch.cta_tile, plan.stages)
    assert [str(each) for each in found.metadata.supported_targets] == [target]
    assert found.metadata.operands.B.stride == (0, 1, 0)
    assert found.metadata.operands.A.ptr_alignment_bytes == 16


def test_a_target_without_its_own_instructions_finds_nothing_on_hopper() -> None:
    assert ops.get_operators(gemm(), target_sm="90", providers=[PROVIDER]) == []


def test_without_arguments_and_with_an_epilogue_nothing_is_offered() -> None:
    assert ops.get_operators(target_sm="80", providers=[PROVIDER]) == []
    a, b, c = operands((72, 64), (64, 48), (72, 48))
    epilogue = ops.EpilogueArguments("def relu_of(accum):\n    D = relu(accum)\n    return D", D=c)
    args = ops.GemmArguments(a, b, c, torch.float32, epilogue)
    assert ops.get_operators(args, target_sm="80", providers=[PROVIDER]) == []


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("transposed", ["", "b", "ac"])
def test_on_the_cpu_it_computes_the_product(transposed: str) -> None:
    args = gemm(transposed=transposed)
    found = only(args)
    assert found.supports(args)
    assert found.get_workspace_size(args).size_bytes == 0
    found.run(args, found.compile(args))
    a, b, c = (getattr(args, name).tensor.runtime_tensor.double() for name in ("A", "B", "out"))
    # Rounding to f16 changes a value by 2^-11 of it; sums of 64 products in f32 are off by far less than 2^-12.
    assert torch.all((c - a @ b).abs() <= 2**-11 * (a @ b).abs() + 2**-12)


@pytest.mark.dsl
@pytest.mark.slow
def test_one_operator_serves_other_problems_and_a_batch() -> None:
    found, args = only(gemm()), gemm(batch=(2,))
    found.run(args)
    a, b, c = (getattr(args, name).tensor.runtime_tensor.double() for name in ("A", "B", "out"))
    assert torch.all((c - a @ b).abs() <= 2**-11 * (a @ b).abs() + 2**-12)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("along", ["m", "n", "k"])
def test_on_the_cpu_groups_are_multiplied(along: str) -> None:
    ends = torch.tensor([16, 16, 56], dtype=torch.int32)
    shapes = {
        "m": ((64, 32), (3, 32, 48), (64, 48)),
        "n": ((3, 48, 32), (32, 64), (48, 64)),
        "k": ((48, 64), (64, 32), (3, 48, 32)),
    }[along]
    a, b, c = operands(*shapes, dtype=torch.bfloat16)
    args = ops.IndexPtrGroupedGemmArguments(a, b, c, torch.float32, ends, along)
    only(args).run(args)
    begin = 0
    for group, end in enumerate(ends.tolist()):
        part = slice(begin, end)
        mine = {
            "m": lambda x=part, g=group: (a[x], b[g], c[x]),
            "n": lambda x=part, g=group: (a[g], b[:, x], c[:, x]),
            "k": lambda x=part, g=group: (a[:, x], b[x], c[g]),
        }[along]()
        left, right, found = (each.double() for each in mine)
        assert torch.all((found - left @ right).abs() <= 2**-8 * (left @ right).abs() + 2**-9)
        begin = end


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (gemm(transposed="b"), "Operand `B`"),
        (gemm(dtype=torch.bfloat16), "Operand `A`"),
        (ops.GemmArguments(*operands((72, 64), (64, 48), (72, 48)), torch.float16), "accumulator"),
    ],
)
def test_what_it_does_not_support_has_a_reason(args: Any, why: str) -> None:
    assert why in str(only(gemm()).supports(args).error)


def test_another_target_is_refused_although_the_interface_takes_80_for_later_ones() -> None:
    args = gemm()
    found = only(args)
    assert "expected 80, for which the kernel is planned" in str(found.supports(args, "90a").error)
    with pytest.raises(RequestError, match="found target 90a"):
        found.compile(args, "90a")


def test_tensors_without_memory_find_the_same_operator() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = only(gemm())
    with FakeTensorMode():
        a, b, c = (torch.empty(x, dtype=torch.float16, device="cuda") for x in ((72, 64), (64, 48), (72, 48)))
    assert only(ops.GemmArguments(a, b, c, torch.float32)).metadata.operator_name == real.metadata.operator_name


def test_what_the_page_shows_is_what_is_printed() -> None:
    python, text = (each for each in fences(ROOT / "docs" / "operators.md") if each.language in ("python", "text"))
    compare(f"{text.document}:{text.line}", text.text, execute(python, {}))
