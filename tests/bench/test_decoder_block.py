"""The scripts that time a decoder block: what they compare computes the same, and what they judge is judged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.decoder_block import COMPILED, EAGER, DecoderBlock, joined, lines, replaced, rms_errors
from benchmarks.recorded_totals import row, traced_us


@pytest.fixture
def block() -> DecoderBlock:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return DecoderBlock(width=64, heads=4, inner=96, tokens=8).to(torch.bfloat16).requires_grad_(False)


def test_every_block_computes_the_same_and_a_wrong_one_is_noticed(block: DecoderBlock) -> None:
    x = torch.randn(2, 8, 64, generator=torch.Generator().manual_seed(6)).to(torch.bfloat16)
    blocks = {EAGER: block, "replaced": replaced(block), "joined": joined(block)}
    assert sum(isinstance(each, nn.Linear) for each in blocks["joined"].modules()) == 6
    assert set(rms_errors(blocks, block, x)) == set(blocks)
    weight = blocks["joined"].mlp.gate_up_proj.weight
    weight.copy_(weight.roll(96, 0))  # gates and ups change places
    with pytest.raises(AssertionError, match="joined"):
        rms_errors(blocks, block, x)


def test_attention_is_causal_and_depends_on_relative_positions(block: DecoderBlock) -> None:
    attention = block.attention.double()
    x = torch.randn(1, 8, 64, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    changed = x.clone()
    changed[:, 5:] += 1.0
    assert torch.equal(attention(x)[:, :5], attention(changed)[:, :5])
    q = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    turned = attention.rotated(q.expand(1, 1, 8, 16))[0, 0]
    products = turned @ turned.T
    torch.testing.assert_close(products[0, 3], products[4, 7], atol=0.1, rtol=0)  # the angles are of bf16


def test_losses_are_marked_against_the_faster_of_torchs_two() -> None:
    times = {EAGER: (30.0, 50.0), COMPILED: (20.0, 60.0), "ours": (25.0, 40.0)}
    found = {name: {"gpu_us": gpu, "call_us": call, "rms_error": 0.01} for name, (gpu, call) in times.items()}
    (last,) = (line for line in lines(1, found) if line.strip().startswith("ours"))
    assert last.split() == ["ours", "25.0", "0.80", "lost", "40.0", "1.25", "1.00e-02"]


def test_a_total_is_within_five_percent_of_the_traces_or_is_not() -> None:
    assert row("total", 104.9, 100.0) == (("total", "104.9", "100.0", "+4.9%"), True)
    assert not row("total", 94.9, 100.0)[1]


def test_only_kernels_of_the_given_names_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trace:
        def __init__(self, **_: object) -> None: ...
        def __enter__(self) -> Trace:
            return self

        def __exit__(self, *_: object) -> None: ...
        def key_averages(self) -> list[SimpleNamespace]:
            rows = [("mine_0", 12.5, 3), ("mine_00", 7.0, 1), ("theirs", 99.0, 4)]
            return [SimpleNamespace(key=key, self_device_time_total=us, count=count) for key, us, count in rows]

    monkeypatch.setattr("torch.profiler.profile", Trace)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert traced_us(lambda: None, ["mine_0", "other_0"]) == (12.5, 3)
