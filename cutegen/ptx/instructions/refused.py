"""Instructions that PTX has and this package does not execute, each with its reason and what to write instead."""

from __future__ import annotations

from cutegen.ptx.text.syntax import Instruction

_TEXTURES = "textures and surfaces are not modeled; read the array by ld.global"
_ROWS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("wmma",), "PTX leaves its fragments' layouts open; write ldmatrix and mma.sync"),
    *((("mma", word), "sparse operands are not modeled; write mma.sync") for word in ("sp", "sp::ordered_metadata")),
    (("st", "bulk"), "it fills shared memory with zeros asynchronously; write a loop of st.shared"),
    (("red", "async"), "write st.async, or red.shared::cluster with an mbarrier.arrive"),
    (("multimem",), "a launch has one GPU here; write ld, st or red of global memory"),
    *(((name,), _TEXTURES) for name in ("tex", "tld4", "txq", "suld", "sust", "sured", "suq")),
    *(((name,), "declare the array .local") for name in ("alloca", "stacksave", "stackrestore")),
    (("discard",), "it leaves memory undefined; remove it, since it changes no result"),
    (("brkpt",), "there is no debugger here; write trap"),
)


def check_modeled(instruction: Instruction) -> None:
    """Raise `PtxSyntaxError` with the reason if `instruction` is one of the known ones that are not executed."""
    for words, reason in _ROWS:
        if words[0] == instruction.parts[0] and all(word in instruction.parts for word in words):
            raise instruction.error(f"{'.'.join(words)} is not supported: {reason}")
