"""torch's FlopCounterMode counts 2 M N K for each matrix product, forward and backward, as of torch.matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

import cutegen  # noqa: E402
from cutegen import Float8Copies  # noqa: E402

M, N, K, BATCH = 64, 48, 32, 3
ONE = 2 * M * N * K
ENDS = torch.tensor([5, 5, 30], dtype=torch.int32)
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


def random(*shape: int, dtype: Any = BF16, grad: bool = True) -> Any:
    return torch.randn(shape).to(dtype).requires_grad_(grad)


def of_8_bits(dtype: Any) -> tuple[Any, Any]:
    return random(M, K, dtype=dtype, grad=False), random(N, K, dtype=dtype, grad=False).t()


def trained(out: Any) -> None:
    out.float().sum().backward()


def quantized() -> None:
    x, weight = random(M, K), random(N, K)
    of_x, of_weight = Float8Copies.of(x), Float8Copies.of(weight)
    trained(cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight, activation="gelu"))


def accumulated() -> None:
    layer = cutegen.Linear(K, N, activation="gelu", dtype=BF16)
    layer.weight.main_grad = torch.zeros(N, K)
    trained(layer(random(M, K)))


CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "matmul": (lambda: cutegen.matmul(random(M, K, grad=False), random(K, N, grad=False)), ONE),
    "terms": (lambda: cutegen.matmul(random(M, K, grad=False), random(K, N), bias=random(N), activation="gelu"), ONE),
    "op": (lambda: torch.ops.cutegen.matmul(random(M, K), random(K, N)), ONE),
    "out": (lambda: cutegen.matmul(torch.ones(M, K), torch.ones(K, N), out=torch.empty(M, N)), ONE),
    "backward": (lambda: trained(cutegen.matmul(random(M, K), random(K, N), activation="gelu")), 3 * ONE),
    "of one": (lambda: trained(cutegen.matmul(random(M, K, grad=False), random(K, N))), 2 * ONE),
    "batch": (lambda: trained(cutegen.matmul(random(BATCH, M, K), random(BATCH, K, N))), 3 * BATCH * ONE),
    "batch of a": (lambda: trained(cutegen.matmul(random(BATCH, M, K), random(K, N))), 3 * BATCH * ONE),
    "batch of b": (lambda: cutegen.matmul(random(M, K), random(BATCH, K, N)), BATCH * ONE),
    "vmap": (lambda: torch.vmap(cutegen.matmul)(random(BATCH, M, K), random(BATCH, K, N)), BATCH * ONE),
    "groups of rows": (lambda: trained(cutegen.grouped_mm(random(M, K), random(BATCH, K, N), offs=ENDS)), 3 * ONE),
    "groups of k": (lambda: cutegen.grouped_mm(random(M, K), random(K, N), offs=ENDS), ONE),
    "row": (lambda: trained(cutegen.matmul(random(K), random(K, N))), 3 * 2 * N * K),
    "column": (lambda: cutegen.matmul(random(M, K), random(K)), 2 * M * K),
    "vectors": (lambda: cutegen.matmul(random(K), random(K)), 2 * K),
    "meta": (lambda: cutegen.matmul(random(M, K).to("meta"), random(K, N).to("meta")), ONE),
    "integers": (lambda: cutegen.matmul(*of_8_bits(torch.int8)), ONE),
    "8-bit floats": (lambda: cutegen.matmul(*of_8_bits(E4M3), out_dtype=BF16), ONE),
    "float8_linear": (quantized, 3 * ONE),
    "main_grad": (accumulated, 3 * ONE),
}


def counted(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("case", CASES)
def test_operations_are_counted(case: str) -> None:
    call, expected = CASES[case]
    assert counted(call) == expected


def test_operations_of_an_exported_program_are_counted() -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return cutegen.matmul(x, y, activation="gelu")

    operands = random(M, K, grad=False), random(K, N, grad=False)
    program = torch.export.export(Model(), operands).module()
    assert counted(lambda: program(*operands)) == ONE


def test_a_counter_that_is_older_than_the_ops_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matmul", "matmul_aux", "matmul_out"):
        monkeypatch.delitem(flop_registry, getattr(torch.ops.cutegen, name))
    assert counted(CASES["backward"][0]) == 3 * ONE
