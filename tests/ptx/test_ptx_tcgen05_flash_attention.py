"""FlashAttention-4's forward for sm_100, compiled when this runs: right in every order, by conventions only.

Sixteen warps: two softmax warpgroups that keep P in tensor memory, where the second multiplication reads it, one that
corrects the sums, and warps that load, multiply and store.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from record_flash_attention import VARIANTS, Variant
from recorded import Array, Recorded, bf16_of, missing, record, values_of_bf16

from cutegen.errors import CutegenError

LACKING = missing("flash-attn-4", "quack-kernels", "apache-tvm-ffi", "einops")
pytestmark = [pytest.mark.slow, pytest.mark.dsl, pytest.mark.skipif(LACKING is not None, reason=f"needs {LACKING}")]

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
CONVENTIONS = (
    "no tcgen05.fence::after_thread_sync",
    "no tcgen05.fence::before_thread_sync between the tcgen05.st",
    "no tcgen05.wait::ld after",
    "other warps of the warpgroup execute",
    "tcgen05.mma overwrites words of the tcgen05.mma",
    "a release at scope cta to another CTA",
    "an acquire at scope cta of what another CTA",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded launches."""
    return record(tmp_path_factory.mktemp("flash_attention"), "record_flash_attention.py")


def operands(variant: Variant) -> dict[str, Array]:
    """The arguments, with poisoned results."""
    rng = np.random.default_rng(1)
    queries = 1, variant.queries, variant.heads, variant.depth
    keys = 1, variant.keys, variant.kv_heads, variant.depth
    q = rng.standard_normal(queries) * variant.size_of_q
    return {
        "q": bf16_of(q),
        "k": bf16_of(rng.standard_normal(keys)),
        "v": bf16_of(rng.standard_normal(keys)),
        "o": np.full(queries, 0xFFFF, np.uint16),
        "lse": np.full((1, variant.heads, variant.queries), np.nan, np.float32),
    }


def expected(variant: Variant, arrays: dict[str, Array]) -> tuple[Array, Array, Array]:
    """(attention, logarithms of the sums, attention of absolute values) in float64."""
    q, k, v = (values_of_bf16(arrays[name]) for name in "qkv")
    k, v = (np.repeat(each, variant.heads // variant.kv_heads, axis=2) for each in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * variant.depth**-0.5
    if variant.is_causal:
        last = np.arange(variant.queries) + variant.keys - variant.queries
        scores = np.where(np.arange(variant.keys) <= last[:, None], scores, -np.inf)
    most = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - most)
    sums = weights.sum(axis=-1, keepdims=True)
    found, sizes = (np.einsum("bhqk,bkhd->bqhd", weights / sums, each) for each in (v, np.abs(v)))
    return found, (most + np.log(sums))[..., 0], sizes


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_attention_is_right_in_every_order(folder: Path, name: str, policy: str) -> None:
    arrays = operands(VARIANTS[name])
    (report,) = Recorded.load(folder / f"{name}.pickle").launch(arrays, policy=policy)
    assert is_right(VARIANTS[name], arrays)
    assert report.executed("tcgen05.mma") > 0
    for convention in report.conventions:
        assert convention.message.startswith(CONVENTIONS), convention.message


def is_right(variant: Variant, arrays: dict[str, Array]) -> bool:
    """True if O and the logarithms are what they must be."""
    attention, logarithms, sizes = expected(variant, arrays)
    # O and the weights are rounded to bf16; exp2 is a polynomial of degree 3 for a part of the weights.
    bound = 2.0**-8 * np.abs(attention) + (2.0**-8 + 2.0**-12) * sizes
    is_near = np.abs(values_of_bf16(arrays["o"]) - attention) <= bound
    return bool(is_near.all() and np.abs(arrays["lse"] - logarithms).max() <= 2.0**-13)


SYNCHRONIZES = r"tcgen05\.(wait|commit)|fence\.proxy"


def test_each_instruction_that_synchronizes_is_needed(folder: Path) -> None:
    """Without one of them there is a fault, or another result, in one of three orders.

    One survives: the commit that frees Q's place for a next tile, of which there is none.
    """
    variant, right = VARIANTS["ragged"], Recorded.load(folder / "ragged.pickle")
    survivors = []
    for line, wrong in right.without(SYNCHRONIZES):
        for policy in POLICIES[:3]:
            arrays = operands(variant)
            try:
                wrong.launch(arrays, policy=policy)
            except CutegenError:
                break
            if not is_right(variant, arrays):
                break
        else:
            survivors.append(line)
    assert len(survivors) == 1
    assert survivors[0].startswith("tcgen05.commit")
