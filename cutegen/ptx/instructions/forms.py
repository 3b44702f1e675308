"""Types and modifiers of instructions: others are refused before anything is lowered, and some altogether."""

import re
from collections.abc import Iterator
from itertools import product

from cutegen.ptx.text.syntax import Instruction

# Types and modifiers of instructions on lanes, fences and hints: others are refused before anything is lowered.
#
# Source: the syntax lines of the PTX ISA, "Integer Arithmetic Instructions" to "Data Movement and Conversion
# Instructions", fences and hints, without unsupported forms (`.sat` on conversions from integer to float, `.satfinite`
# of floats wider than 8 bits, `.sync_restrict`).


_INTEGER = r"[us](16|32|64)"
_BITS = r"b(16|32|64)"
_PLAIN = rf"({_INTEGER}|{_BITS}|f32|f64)"
_ROUNDING = r"(r[nzmp]\.)"
_HALF = r"(rn\.)?((ftz\.)?(sat\.)?f16(x2)?|bf16(x2)?)"
_FLOAT = rf"({_ROUNDING}?(ftz\.)?(sat\.)?f32|{_ROUNDING}?f64|{_HALF}|{_ROUNDING}?(ftz\.)?f32x2)"
_WITH_CARRY = rf"({_INTEGER}|cc\.[us](32|64))"
_FUSED = r"r[nzmp]\.((ftz\.)?(sat\.)?f32|f64)"
_MIXED = r"r[nzmp]\.(sat\.)?f32\.b?f16"
_FMA = rf"({_FUSED}|{_MIXED}|r[nzmp]\.((ftz\.)?f32x2|(relu\.)?bf16(x2)?)|rn\.((ftz\.)?(sat\.)?|(ftz\.)?relu\.)f16(x2)?)"
_EXTREME = rf"({_INTEGER}|relu\.s32|(ftz\.)?(NaN\.)?(f32|f16(x2)?)|(NaN\.)?bf16(x2)?|f64)"
_SIGN = r"(s(16|32|64)|(ftz\.)?(f32|f16(x2)?)|bf16(x2)?|f64)"
_COMBINED = r"(\.(and|or|xor))?\."
_FLOATS = r"((ftz\.)?(f32|f16)|bf16|f64)"
_SET_FLOATS = r"((ftz\.)?([us]32\.(f16|f32)|f32\.f32)|[us]32\.(bf16|f64)|f32\.f64)"


def _comparisons(before: str, floats: str) -> str:
    """The comparisons of each class of types; `before` stands between a comparison and an integer type."""
    classes = {
        "eq|ne": rf"({before}({_BITS}|{_INTEGER})|{floats})",
        "lt|le|gt|ge": rf"({before}{_INTEGER}|{floats})",
        "lo|ls|hi|hs": rf"{before}u(16|32|64)",
        "equ|neu|ltu|leu|gtu|geu|num|nan": floats,
    }
    return "|".join(f"({names}){_COMBINED}{types}" for names, types in classes.items())


def _clamped() -> str:
    """`cvt.sat` between integers: only if some value of the source does not fit the result."""
    sizes = (8, 16, 32, 64)
    pairs = [f"u{result}\\.s{source}" for result in sizes for source in sizes]
    pairs += [f"s{result}\\.u{source}" for result in sizes for source in sizes if source >= result]
    pairs += [f"{k}{result}\\.{k}{source}" for k in "us" for result in sizes for source in sizes if source > result]
    return f"sat\\.({'|'.join(pairs)})"


_LOGIC = rf"(pred|{_BITS})"
_TO_INTEGER = (
    r"r[nzmp]i\.((ftz\.)?(sat\.)?[us](8|16|32|64)\.f32|(sat\.)?[us](8|16|32|64)\.f(16|64)|[us](16|32|64)\.bf16)"
)
_WHOLE = r"r[nzmp]i\.((ftz\.)?f32\.f32|f64\.f64|f16\.f16|bf16\.bf16)"
_TO_FLOAT = r"r[nzmp]\.((ftz\.)?f32|f64|f16)\.[us](8|16|32|64)|r[nzmp]\.bf16\.[us](16|32|64)"
_WIDER = (
    r"(f16\.f16|f16\.bf16|bf16\.f16|bf16\.bf16|(sat\.)?(f16\.f16|f32\.f16|f64\.f(16|32|64))|f64\.bf16"
    r"|(ftz\.)?(sat\.)?f32\.(f16|f32)|(ftz\.)?f32\.bf16|ftz\.(sat\.)?f64\.f32)"
)
_NARROWER = (
    r"(r[nzmp]\.((ftz\.)?(sat\.)?f16\.f32|(sat\.)?f16\.f64|f16\.bf16|(ftz\.)?bf16\.f32|bf16\.f(16|64)"
    r"|(ftz\.)?(sat\.)?f32\.f64|(ftz\.)?f32\.bf16|f64\.bf16)|r[nz]\.(relu\.)?(f16|bf16|tf32|f16x2|bf16x2)\.f32|rna\.tf32\.f32)"
)
_SMALL = r"rn\.(satfinite\.(relu\.)?e[45]m[32]x2\.(f32|f16x2)|(relu\.)?f16x2\.e[45]m[32]x2)"
_BETWEEN_INTEGERS = r"[us](8|16|32|64)\.[us](8|16|32|64)|" + _clamped()

_SCOPE = r"(cta|cluster|gpu|sys)"
_ORDER = r"(sc|acq_rel|acquire|release)"
_PRIORITY = r"L2::evict_(last|normal|first|unchanged)"
_PROXY = (
    rf"proxy\.(alias|async(\.(global|shared::(cta|cluster)))?|tensormap::generic\.(acquire|release)\.{_SCOPE}"
    r"|async::generic\.(acquire\.sync_restrict::shared::cluster|release\.sync_restrict::shared::cta)\.cluster)"
)

_SYNTAX = {
    **dict.fromkeys(("add", "sub"), rf"({_WITH_CARRY}|sat\.s32|{_FLOAT}|{_MIXED})"),
    **dict.fromkeys(("addc", "subc"), _WITH_CARRY),
    "mul": rf"((lo|hi)\.{_INTEGER}|wide\.[us](16|32)|{_FLOAT})",
    "mad": rf"((lo|hi)\.{_INTEGER}|hi\.sat\.s32|wide\.[us](16|32)|{_FUSED})",
    "mul24": r"(lo|hi)\.[us]32",
    "mad24": r"(lo|hi)\.[us]32",
    "fma": _FMA,
    "div": rf"({_INTEGER}|r[nzmp]\.((ftz\.)?f32|f64)|(approx|full)\.(ftz\.)?f32)",
    **dict.fromkeys(("rem", "sad"), _INTEGER),
    **dict.fromkeys(("min", "max"), _EXTREME),
    **dict.fromkeys(("abs", "neg"), _SIGN),
    "shl": _BITS,
    "shr": rf"({_BITS}|{_INTEGER})",
    **dict.fromkeys(("and", "or", "xor", "not"), _LOGIC),
    "cnot": _BITS,
    **dict.fromkeys(("popc", "clz", "brev", "bfi"), r"b(32|64)"),
    "bfind": r"(shiftamt\.)?[us](32|64)",
    "bfe": r"[us](32|64)",
    "bmsk": r"(clamp|wrap)\.b32",
    "szext": r"(clamp|wrap)\.[us]32",
    "rcp": r"(approx\.(ftz\.)?f32|r[nzmp]\.((ftz\.)?f32|f64))",
    "sqrt": r"(approx\.(ftz\.)?f32|r[nzmp]\.((ftz\.)?f32|f64))",
    "rsqrt": r"approx\.((ftz\.)?f32|f64)",
    "ex2": r"approx\.((ftz\.)?f32|f16(x2)?|ftz\.bf16(x2)?)",
    **dict.fromkeys(("lg2", "sin", "cos"), r"approx\.(ftz\.)?f32"),
    "tanh": r"approx\.(f32|f16(x2)?|bf16(x2)?)",
    "copysign": r"f(32|64)",
    "setp": _comparisons("", _FLOATS),
    "set": _comparisons(r"[usf]32\.", _SET_FLOATS),
    "selp": _PLAIN,
    "slct": rf"({_PLAIN}\.s32|(ftz\.)?{_PLAIN}\.f32)",
    "mov": rf"({_PLAIN}|pred|b128)",
    "cvt": "|".join((_TO_INTEGER, _WHOLE, _TO_FLOAT, _WIDER, _NARROWER, _SMALL, _BETWEEN_INTEGERS)),
    "ldu": rf"(global\.)?(v[24]\.)?([bus]8|{_PLAIN})",
    "fence": rf"({_ORDER}\.)?{_SCOPE}|{_SCOPE}\.{_ORDER}|mbarrier_init\.release\.cluster|{_PROXY}",
    "membar": rf"cta|gl|sys|{_PROXY}",
    "createpolicy": (rf"(fractional|range(\.global)?)\.{_PRIORITY}(\.L2::evict_(first|unchanged))?\.b64|cvt\.L2\.b64"),
    "prefetch": r"((global|local)\.)?L[12]|global\.L2::evict_(last|normal)|((const|param)\.)?tensormap",
    "prefetchu": "L1",
    "applypriority": r"(global\.)?L2::evict_normal",
    "griddepcontrol": "launch_dependents|wait",
    "nanosleep": "u32",
    "pmevent": "(mask)?",
    "redux": r"sync\.((add|min|max)\.[us]32|(and|or|xor)\.b32)",
}
_VOCABULARY = (
    *("u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64", "u16", "s16", "b16", "f16", "bf16", "f16x2", "bf16x2"),
    *(
        "u8",
        "s8",
        "pred",
        "e4m3x2",
        "e5m2x2",
        "tf32",
        "rn",
        "rni",
        "rzi",
        "rna",
        "lo",
        "approx",
        "eq",
        "sync",
        "satfinite",
        "cta",
        "gpu",
        "wait",
    ),
)
_MOST_WORDS = 12  # at least two more than any form; n words have about n times the vocabulary as neighbors
_FORMS = {name: re.compile(syntax) for name, syntax in _SYNTAX.items()}


def check_form(instruction: Instruction) -> None:
    """Raises `PtxSyntaxError` if PTX has no such modifiers and types, or this package does not model them."""
    name, *words = instruction.parts
    form = _FORMS.get(name)
    if form is None or form.fullmatch(".".join(words)):
        return
    neighbors = _neighbors(words) if len(words) <= _MOST_WORDS else ()
    near = next((near for near in neighbors if form.fullmatch(near)), None)
    hint = f"; the nearest that is: {name}.{near}" if near else ""
    raise instruction.error(f"{instruction.opcode} is not PTX, or not supported here{hint}")


def _neighbors(words: list[str]) -> Iterator[str]:
    """The words with one of them removed, replaced or added."""
    for place in range(len(words)):
        yield ".".join(words[:place] + words[place + 1 :])
    for place, word in product(reversed(range(len(words))), _VOCABULARY):
        yield ".".join([*words[:place], word, *words[place + 1 :]])
    for place, word in product(range(len(words) + 1), _VOCABULARY):
        yield ".".join([*words[:place], word, *words[place:]])


# Instructions that PTX has and this package does not execute, each with its reason and what to write instead.


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
