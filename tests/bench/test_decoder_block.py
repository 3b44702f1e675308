"""The scripts that time a decoder block: what they compare computes the same, and what they judge is judged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.autograd.profiler_util import Interval

from benchmarks.decoder_block import COMPILED, EAGER, DecoderBlock, joined, lines, replaced, rms_errors
from benchmarks.recorded_totals import Measured, by_problem, each_lines, row, traced_us


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


def test_only_kernels_of_the_given_names_are_counted_in_the_order_of_their_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Trace:
        def __init__(self, **_: object) -> None: ...
        def __enter__(self) -> Trace:
            return self

        def __exit__(self, *_: object) -> None: ...
        def events(self) -> list[SimpleNamespace]:
            rows = [("mine_0", 30.0, 2.5), ("mine_0", 10.0, 4.0), ("mine_00", 12.0, 7.0), ("theirs", 20.0, 99.0)]
            events = [
                SimpleNamespace(name=name, device_type=DeviceType.CUDA, time_range=Interval(start, start + us))
                for name, start, us in rows
            ]
            on_the_host = SimpleNamespace(name="mine_0", device_type=DeviceType.CPU, time_range=Interval(0, 1))
            return [on_the_host, *events]

    monkeypatch.setattr("torch.profiler.profile", Trace)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert traced_us(lambda: None, ["mine_0", "other_0"]) == [4.0, 2.5]


def test_launches_of_whole_passes_belong_to_their_problems() -> None:
    assert by_problem([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], ["x", "y", "x"]) == {"x": [1.0, 3.0, 4.0, 6.0], "y": [2.0, 5.0]}
    with pytest.raises(AssertionError, match="found 4 launches; expected passes of 3"):
        by_problem([1.0] * 4, ["x", "y", "x"])


def test_each_problems_launch_stands_beside_the_traces_and_another_kernel_is_marked() -> None:
    bench = Measured({}, {("64x8x8", "launch"): 11.0, ("64x8x8", "graph"): 9.0}, {"64x8x8": "key"})
    other = Measured({}, {("64x8x8", "launch"): 12.0, ("64x8x8", "graph"): 13.0}, {"64x8x8": "other"})
    header, line = each_lines({"64x8x8": [10.0, 11.0]}, {"bench": bench, "tune": other})
    assert line.split() == ["64x8x8", "2", "10.5", "11.0", "9.0", "12.0", "*", "13.0", "*"]
    assert "tune, launch" in header
