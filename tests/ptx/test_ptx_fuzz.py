"""Broken and random PTX never crashes or hangs: it is refused, it faults, or it runs into the step limit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kernels import CUDA_DIR

from cutegen.errors import PtxFault, PtxSyntaxError
from cutegen.ptx import LaunchError, Program
from tests.fuzz.ptx_texts import mangled

FINE = {"refused", "fault", "not launched", "ran"}
BLOCKS = {"cluster_softmax": 128, "naive_gemm": (16, 16), "pipelined_gemm": 128, "shuffle_reduction": 64}
GRIDS = {"cluster_softmax": 4}
SOURCES = {name: (CUDA_DIR / f"{name}.ptx").read_text() for name in BLOCKS}


def attempt(name: str, text: str) -> str:
    """Runs whatever the text is; only the errors that are meant for it may come out."""
    rng = np.random.default_rng(1)
    half = rng.standard_normal(64 * 64).astype(np.float16)
    single = rng.standard_normal(64 * 64).astype(np.float32)
    arguments = {
        "cluster_softmax": [single, single.copy(), np.zeros(4, np.int32), 700],
        "naive_gemm": [single, single.copy(), single.copy(), 20, 20, 20, 1.0, 0.0],
        "pipelined_gemm": [half, half.copy(), single, 40, 40, 40],
        "shuffle_reduction": [single, single.copy(), np.zeros(4, np.int32), np.zeros(9, np.uint32), 100],
    }[name]
    try:
        program = Program.parse(text)
        for entry in program.entries:
            program.launch(
                entry,
                grid=GRIDS.get(name, 1),
                block=BLOCKS[name],
                args=arguments,
                dynamic_smem_bytes=24576,
                policy="random:1",
                max_steps=3000,
            )
    except PtxSyntaxError as error:
        return "refused" if error.line >= 1 else "refused without a line"
    except PtxFault as fault:
        return "fault" if fault.line >= 1 else "fault without a line"
    except LaunchError:
        return "not launched"
    return "ran"


@pytest.mark.parametrize("name", list(SOURCES))
def test_mangled_text(name: str) -> None:
    outcomes = {attempt(name, mangled(SOURCES[name], random.Random(f"{name}{seed}"))) for seed in range(60)}
    assert {"refused", "fault"} <= outcomes <= FINE


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SOURCES))
def test_much_mangled_text(name: str) -> None:
    for seed in range(200):
        assert attempt(name, mangled(SOURCES[name], random.Random(f"much {name}{seed}"))) in FINE


@pytest.mark.parametrize("name", list(SOURCES))
def test_truncated_text(name: str) -> None:
    text = SOURCES[name]
    for end in range(text.index(".entry") + 7, len(text) - 4, 97):
        with pytest.raises(PtxSyntaxError) as caught:
            Program.parse(text[:end])
        assert caught.value.line <= text.count("\n", 0, end) + 1


@pytest.mark.parametrize("instruction", ["mov.u32 %r1;", "mov.b32;", "prmt.b32;", "ld.global.u32 %r1;", "add.u32 %r1;"])
def test_operands_that_are_missing(instruction: str) -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<9>;\n"
    with pytest.raises(PtxSyntaxError, match="line 6"):
        Program.parse(head + instruction + "\nret;\n}\n").prepare("k")


def test_random_tokens() -> None:
    generator = random.Random(4)
    words = sorted({word for text in SOURCES.values() for word in text.split()})
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<9>; .reg .pred %p<9>;\n"
    for _ in range(300):
        text = head + " ".join(generator.choice(words) for _ in range(generator.randint(1, 30)))
        with pytest.raises(PtxSyntaxError):
            Program.parse(text)
    for _ in range(300):
        text = "".join(chr(generator.randrange(1, 256)) for _ in range(generator.randint(0, 200)))
        with pytest.raises(PtxSyntaxError):
            Program.parse(text)
