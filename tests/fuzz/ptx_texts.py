"""PTX texts, mangled, composed and nonsensical: each is refused with its line, or runs, faults, or reaches a limit."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from cutegen.errors import PtxFault, PtxSyntaxError
from cutegen.ptx import LaunchError, Program
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.ptx_words import MODIFIERS, OPCODES, OPERANDS, TYPES

SOURCES = Path(__file__).parents[1] / "ptx" / "cuda"
MAX_STEPS = 600
HEAD = """.version 8.0
.target {target}
.address_size 64
.visible .entry k({parameters})
{{
    .shared .align 16 .b8 smem[1024];
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .f64 %fd<4>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
"""


@lru_cache
def sources() -> dict[str, str]:
    """What nvcc made of CUDA C++, by name."""
    return {path.stem: path.read_text() for path in sorted(SOURCES.glob("*.ptx"))}


@lru_cache
def _statements() -> tuple[tuple[str, str, str], ...]:
    """Guard, opcode and operands of the instructions that occur in them, with numbers of registers that `HEAD` has."""
    lines = {line.strip() for text in sources().values() for line in text.splitlines()}
    few = (re.sub(r"(%[a-z]+)\d+", _few_registers, line) for line in sorted(lines))
    found = (re.fullmatch(r"(@\S+\s+)?([a-z][\w.:]*)(\s.*)?", line) for line in few)
    return tuple((match[1] or "", match[2], match[3] or "") for match in found if match)


def _few_registers(match: re.Match[str]) -> str:
    return match[1] + match[0][-1].translate(str.maketrans("89", "01"))


def case(seed: int) -> Case:
    """A text."""
    rng = random_of("ptx_texts", seed)
    kind = rng.random()
    if kind < 0.3:
        return Case(seed, mangled(rng.choice(list(sources().values())), rng))
    if kind < 0.85:
        return Case(seed, _composed(rng))
    if kind < 0.93:
        return Case(seed, _structures(rng))
    return Case(seed, _nonsense(rng))


def mangled(text: str, rng: random.Random) -> str:
    """The text with a few random edits: characters, words, lines, numbers."""
    for _ in range(rng.randint(1, 4)):
        text = rng.choice((_character, _cut, _lines, _words, _digits))(text, rng)
    return text


def _character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + chr(rng.randrange(32, 127)) + text[at + 1 :]


def _cut(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.randrange(1, 40) :]


def _lines(text: str, rng: random.Random) -> str:
    """Two lines exchanged, one left out, or one written again elsewhere."""
    lines = text.split("\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 1:
        del lines[first]
    else:
        lines.insert(first, lines[second])
    return "\n".join(lines)


def _words(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    words[rng.randrange(len(words))] = rng.choice(words)
    return " ".join(words)


def _digits(text: str, rng: random.Random) -> str:
    places = [at for at, character in enumerate(text) if character.isdigit()]
    if not places:
        return text
    at = rng.choice(places)
    return text[:at] + rng.choice("0123456789") * rng.choice([1, 1, 1, 9]) + text[at + 1 :]


def _composed(rng: random.Random) -> str:
    """A kernel of a few instructions: known ones with other modifiers, or modifiers and operands at random."""
    parameters = rng.choice((".param .u64 out", ".param .u64 out", ".param .u64 out, .param .u32 n", ""))
    body = "".join(f"    {_instruction(rng)}\n" for _ in range(rng.choice((1, 1, 1, 2, 4))))
    head = HEAD.format(target=rng.choice(("sm_80", "sm_90a", "sm_120")), parameters=parameters)
    return f"{head}{body}    st.global.b32 [%rd1], %r1;\nLABEL:\n    ret;\n}}\n"


def _instruction(rng: random.Random) -> str:
    if rng.random() < 0.55:
        guard, opcode, operands = rng.choice(_statements())
        return f"{guard}{_varied(rng, opcode) if rng.random() < 0.6 else opcode}{operands}"
    parts = rng.choices(MODIFIERS, k=rng.choice((0, 0, 1, 1, 2, 3)))
    parts += rng.choices(TYPES, k=rng.choice((0, 1, 1, 1, 2, 4)))
    operands = ", ".join(rng.choices(OPERANDS, k=rng.choice((0, 1, 2, 2, 3, 3, 4, 5))))
    guard = rng.choice(("", "", "", "@%p1 ", "@!%p2 ", "@%r1 "))
    return f"{guard}{'.'.join([rng.choice(OPCODES), *parts])} {operands};"


def _varied(rng: random.Random, opcode: str) -> str:
    """The opcode with one of its parts exchanged, lost, doubled or added."""
    parts = opcode.split(".")
    at, kind = rng.randrange(len(parts)), rng.random()
    if kind < 0.6:
        last = len(parts) - 1
        parts[max(at, min(1, last))] = rng.choice(TYPES if rng.random() < 0.75 else MODIFIERS)
    elif kind < 0.75:
        del parts[at]
    elif kind < 0.9:
        parts.insert(at + 1, rng.choice((*TYPES, *MODIFIERS)))
    return ".".join(parts)


def _structures(rng: random.Random) -> str:
    """Declarations and nesting of unlikely sizes."""
    many = rng.choice((0, 1, 200, 3000, 30_000))
    large = rng.choice((0, 1, 65_536, 2**31, 2**63, 10**30))
    bodies = (
        "{" * many + "}" * many,
        "{" * many,
        f".reg .b32 %x<{large}>; mov.u32 %x1, 1;",
        f".shared .align {rng.choice((0, 3, 16, large))} .b8 more[{large}];",
        "".join(f"L{number}: bra L{rng.randrange(min(many, 500) + 1)};\n" for number in range(min(many, 500))),
        "".join(f"mov.u32 %r{rng.randrange(32)}, {number};\n" for number in range(min(many, 3000))),
        "".join(f".reg .b32 %y{number}; mov.u32 %y{number}, 1;\n" for number in range(min(many, 3000))),
        f"mov.u32 %r1, {'(' * many}1{')' * many};",
        f"mov.u32 %r1, {'-' * many}1;",
        f"mov.u32 %r1, {'9' * many};",
        f"mov.f32 %f1, {'1' * many}.{'5' * many}e{many};",
        f".branchtargets {', '.join(f'L{number}' for number in range(min(many, 500)))};",
        f'.pragma "{"x" * many}";' + "/*" * many,
        f"add.u32 {', '.join(['%r1'] * many)};",
        f"ld.global.v4.u32 {{{', '.join(['%r1'] * many)}}}, [%rd1+{large}];",
        f"mov{'.u32' * many} %r1, 1;",
    )
    parameters = rng.choice((".param .u64 out", f".param .align {large} .b8 out[{large}]", f".param .b8 out[{large}]"))
    return HEAD.format(target="sm_80", parameters=parameters) + rng.choice(bodies) + "\nret;\n}\n"


def _nonsense(rng: random.Random) -> str:
    """Words of PTX in any order, or characters."""
    if rng.random() < 0.3:
        return "".join(chr(rng.randrange(0, 0x2FFF)) for _ in range(rng.randint(0, 300)))
    words = sorted({word for text in sources().values() for word in text.split()})
    return HEAD.format(target="sm_80", parameters="") + " ".join(rng.choice(words) for _ in range(rng.randint(1, 40)))


def check(case: Case) -> Outcome:
    """Parse it, and run what was accepted for a few steps; instructions may be read as late as that."""
    try:
        return Outcome(ACCEPTED, _run(case, Program.parse(case.text)))
    except PtxSyntaxError as error:
        there = 1 <= error.line <= case.text.count("\n") + 2
        return Outcome(REFUSED if there else FOUND, str(error))
    except PtxFault as fault:
        return Outcome(ACCEPTED if fault.line >= 1 else FOUND, str(fault))


def _run(case: Case, program: Program) -> str:
    """What a launch says, where it refuses."""
    said = ""
    for name, entry in program.entries.items():
        try:
            program.launch(
                name,
                grid=1,
                block=64,
                args=[_argument(parameter.type) for parameter in entry.parameters],
                policy=f"random:{case.seed}",
                max_steps=MAX_STEPS,
                dynamic_smem_bytes=4096,
            )
        except LaunchError as error:
            said = str(error)
    return said


def _argument(kind: object) -> object:
    """An array where it might be an address, else a number."""
    name = str(getattr(kind, "name", kind)).lstrip(".")
    return np.zeros(256, np.float32) if name in ("u64", "b64", "s64") else 3.5 if name.startswith("f") else 5
