"""Forms of `tcgen05` that are refused, by name; texts that are mangled give errors with a line, never a traceback."""

from __future__ import annotations

import random
import re
from contextlib import suppress

import pytest
from tcgen05_kernels import Product
from tcgen05_more import FromTensorMemory, Scaled
from tcgen05_ring import Ring

from cutegen.errors import CutegenError, PtxSyntaxError
from cutegen.ptx import Program

MMA = "tcgen05.mma.cta_group::1.kind::f16"
OPERANDS = "[%r1], %rd1, %rd2, %r2"


def prepare(instruction: str) -> None:
    text = f""".version 8.8
.target sm_100a
.address_size 64
.visible .entry k() {{
    .reg .b32 %r<64>; .reg .b64 %rd<8>; .reg .pred %p<4>; .reg .b16 %rs<4>;
    {instruction}
    ret;
}}"""
    Program.parse(text).prepare("k")


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p1;", "sparse A is not supported"),
        ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;", ".ws is not supported"),
        (f"{MMA}.ashift {OPERANDS}, %p1;", ".ashift is not supported"),
        (f"{MMA}.collector::a::fill {OPERANDS}, %p1;", "reuse of the collector is not supported"),
        (f"{MMA}.collector::a::use {OPERANDS}, %p1;", "reuse of the collector is not supported"),
        (f"{MMA} {OPERANDS}, %p1, 3;", "scale-input-d is not supported"),
        (f"{MMA}.block_scale {OPERANDS}, %p1;", "has no .block_scale"),
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4 [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;", "needs .block_scale"),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;",
            "names the size of its blocks",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;",
            "has no .scale_vec::4X",
        ),
        (f"tcgen05.mma.kind::f16 {OPERANDS}, %p1;", "cta_group::1, .cta_group::2"),
        (f"tcgen05.mma.cta_group::1.kind::f64 {OPERANDS}, %p1;", "expected one of .kind::f16"),
        (f"{MMA} {OPERANDS};", "operands"),
        (f"{MMA} {OPERANDS}, {{%r3, %r4}}, %p1;", "vector of 4"),
        ("tcgen05.cp.cta_group::1.4x256b [%r1], %rd1;", ".4x256b is not supported"),
        ("tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r1], %rd1;", "decompression is not supported"),
        ("tcgen05.cp.cta_group::1.32x128b [%r1], %rd1;", "expected one of .warpx4"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.b32 {%r1, %r2}, %r3, [%r4];", "ld.red is not supported"),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2, %r3}, [%r4];", "has 2 registers"),
        ("tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1, %r2}, [%r4];", "has 256 registers, at most 128"),
        ("tcgen05.ld.sync.aligned.64x64b.x2.b32 {%r1, %r2}, [%r4];", "modifier .64x64b is not supported"),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r1}, [%r4];", "all different"),
        ("tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r1, %r2}, [%r4], %r5;", "the column of the second half"),
        ("tcgen05.st.sync.aligned.32x32b.x2.pack::16b.b32 [%r4], {%r1, %r2};", "pack::16b is not supported"),
        ("tcgen05.wait::mma.sync.aligned;", "tcgen05 is not supported"),
        ("tcgen05.fence::before_thread_sync.sync;", "modifier .sync is not supported"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r1];", "expected 2 operands"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd1], %rs1;", "expected 1 operands"),
        ("tcgen05.shift.cta_group::1.up [%r1];", "expected one of .down"),
    ],
)  # fmt: skip
def test_what_is_not_modeled_is_refused_by_name(instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=re.escape(message)) as caught:
        prepare(instruction)
    assert caught.value.line == 6


@pytest.mark.parametrize(
    "right",
    [
        Product(kind="f16", m=128, n=8, a="f16", b="f16", steps=4),
        Product(kind="f16", m=128, n=16, a="f16", b="f16", ctas=2),
        Scaled(kind="mxf4nvf4", m=128, n=8, a="e2m1", b="e2m1", blocks=4, factors="ue4m3"),
        FromTensorMemory(kind="f16", m=128, n=8, a="f16", b="f16", swizzles=(0, 128)),
        Ring(n=32, k_tiles=(1, 1), ctas=1),
    ],
    ids=lambda right: right.name,
)
def test_mangled_texts_give_errors_and_no_tracebacks(right: Product) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, text = random.Random(seed), right.text()
    words = re.findall(r"[\w.:%@!]+", text)
    for _ in range(12):
        mangled = _mangled(rng, text, words)
        with suppress(CutegenError):
            right.launch(mangled, policy=rng.choice(["in-order", "reversed", "random:1"]), max_steps=200_000)


def _mangled(rng: random.Random, text: str, words: list[str]) -> str:
    """The text with a word of a `tcgen05` instruction, or its operands, replaced, doubled or removed."""
    lines = text.split("\n")
    place = rng.choice([i for i, line in enumerate(lines) if "tcgen05." in line])
    parts = re.split(r"([.,;\[\]{} ])", lines[place])
    at = rng.randrange(len(parts))
    new = rng.choice(["", parts[at] * 2, rng.choice(words), str(rng.randrange(1 << 20)), "%r20", "%p0", "%rd10", "0"])
    lines[place] = "".join([*parts[:at], new, *parts[at + 1 :]])
    return "\n".join(lines)
