"""What the tests of kernels on a GPU have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cutegen.run import Kernel
from tests.run import against_float64

torch = pytest.importorskip("torch")
ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.dsl,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
"""The marks of a file whose tests compile kernels for a GPU and call them there."""


def made(kernel: Kernel, m: int, n: int, k: int, batch: int | None = None) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, the result and what the epilogue takes, on the GPU."""
    return against_float64.made(kernel, m, n, k, batch, framework="torch", device="cuda")


def in_threads(call: Callable[..., object], sets: Sequence[tuple[Any, Any, Any]]) -> None:
    """A hundred calls on each set of operands, of a thread of its own."""
    failures: list[BaseException] = []

    def work(a: Any, b: Any, out: Any) -> None:
        try:
            for _ in range(100):
                call(a, b, out=out)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=one) for one in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not failures
