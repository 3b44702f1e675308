"""Records FlashAttention-4's forward for sm_100: `python record_flash_attention.py FOLDER`, one file per variant.

Needs the packages flash-attn-4, quack-kernels and torch, a C compiler and no GPU. Nothing that it writes is kept.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording import Recording, on_a_gpu, without_triton


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Queries and keys of one batch: how many, their heads, and their elements."""

    queries: int = 256
    keys: int = 256
    heads: int = 2
    kv_heads: int = 2
    depth: int = 64
    is_causal: bool = False
    size_of_q: float = 1.0
    """Where it is large the maxima of rows grow so much that the sums are scaled anew."""


VARIANTS = {
    "plain": Variant(),
    "ragged": Variant(queries=200, keys=300, heads=1, kv_heads=1, size_of_q=8.0),
    "causal_shared_heads": Variant(keys=384, kv_heads=1, is_causal=True),
    "causal_128": Variant(depth=128, heads=1, kv_heads=1, is_causal=True),
    "pair": Variant(queries=512, depth=128, heads=1, kv_heads=1),
}


def main() -> None:
    """Compile and record each variant."""
    recording = Recording(Path(sys.argv[1]))
    os.environ.update(FLASH_ATTENTION_ARCH="sm_100", FLASH_ATTENTION_NUM_SMS="148", QUACK_ARCH="sm_100")
    with without_triton():
        import flash_attn.cute.interface as flash_attention
    import cutlass
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    on_a_gpu(cutlass)
    compiled: list[tuple[tuple[Any, ...], Any]] = []
    compile_ = flash_attention.cute.compile

    def spy(*arguments: Any, **options: Any) -> Any:
        compiled.append((arguments, compile_(*arguments, **options)))
        return compiled[-1][1]

    flash_attention.cute.compile = spy
    for name, variant in VARIANTS.items():
        q_shape = 1, variant.queries, variant.heads, variant.depth
        kv_shape = 1, variant.keys, variant.kv_heads, variant.depth
        with FakeTensorMode():
            fakes = (torch.empty(s, dtype=torch.bfloat16, device="cuda") for s in (q_shape, kv_shape, kv_shape))
            flash_attention._flash_attn_fwd(*fakes, causal=variant.is_causal, return_lse=True)
        arguments, function = compiled[-1]
        shapes = {"q": q_shape, "k": kv_shape, "v": kv_shape, "o": q_shape}
        tensors = [recording.tensor(each, "bf16", *shape) for each, shape in shapes.items()]
        lse = recording.tensor("lse", "f32", 1, variant.heads, variant.queries)
        # What it was compiled with: itself, 5 tensors, the scale, options that are absent or numbers, a stream.
        recording.save(name, function, *tensors, lse, variant.depth**-0.5, *arguments[7:-1])


if __name__ == "__main__":
    main()
