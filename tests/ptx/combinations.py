"""Every opcode with every type and modifier: texts of one instruction each, valid PTX or not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

TYPES = (
    *("pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16"),
    *("tf32", "f32", "f64", "f16x2", "bf16x2", "f32x2", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "s128", "f8"),
)
_WIDTHS = {"pred": 1, "b128": 128, "s128": 128, "f8": 8, "tf32": 32, "f16x2": 32, "bf16x2": 32, "f32x2": 64}
_WIDTHS |= {"e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "bf16": 16}
_ROUNDINGS = ("", "rn", "rz", "rm", "rp")
_FLOAT = tuple(product(_ROUNDINGS, ("", "ftz"), ("", "sat", "relu")))

TWO_TYPES = {
    "cvt": tuple(
        product(
            ("", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"),
            ("", "ftz"),
            ("", "sat", "satfinite", "relu"),
        )
    ),
    "set": tuple(product(("eq", "ltu", "lo", "num"), ("", "ftz"))),
    "slct": (("",), ("ftz",)),
    "dp4a": (("",),),
    "dp2a": (("lo",), ("hi",), ("",)),
}
ONE_TYPE: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    # opcode: operands (d and a, b, c: of the type; w: twice as wide; p: predicate; u: u32; i: literal), modifiers
    **dict.fromkeys(("add", "sub"), ("d a b", (*_FLOAT, ("cc",)))),
    **dict.fromkeys(("addc", "subc"), ("d a b", (("",), ("cc",)))),
    "mul": ("d a b", (*_FLOAT, ("lo",), ("hi",), ("lo", "sat"))),
    "mad": ("d a b c", (*_FLOAT, ("lo",), ("hi",), ("hi", "sat"), ("lo", "sat"), ("lo", "cc"))),
    "mul24": ("d a b", (("lo",), ("hi",), ("wide",))),
    "mad24": ("d a b c", (("lo",), ("hi",), ("hi", "sat"))),
    "fma": ("d a b c", _FLOAT),
    "div": ("d a b", (*_FLOAT, ("approx",), ("full",), ("approx", "ftz"), ("full", "ftz"))),
    "rem": ("d a b", (("",),)),
    **dict.fromkeys(("min", "max"), ("d a b", (("",), ("ftz",), ("NaN",), ("ftz", "NaN"), ("relu",)))),
    **dict.fromkeys(("abs", "neg"), ("d a", (("",), ("ftz",)))),
    "sad": ("d a b c", (("",),)),
    **dict.fromkeys(("shl", "shr"), ("d a u", (("",),))),
    **dict.fromkeys(("and", "or", "xor"), ("d a b", (("",),))),
    **dict.fromkeys(("not", "cnot", "brev"), ("d a", (("",),))),
    "lop3": ("d a b c i", (("",),)),
    "shf": ("d a b u", tuple(product(("l", "r", ""), ("clamp", "wrap", "")))),
    "prmt": ("d a b c", (("",), ("f4e",), ("rc16",))),
    **dict.fromkeys(("popc", "clz"), ("u a", (("",),))),
    "bfind": ("u a", (("",), ("shiftamt",))),
    "bfe": ("d a u u", (("",),)),
    "bfi": ("d a b u u", (("",),)),
    **dict.fromkeys(("rcp", "sqrt"), ("d a", tuple(product(("", "approx", *_ROUNDINGS[1:]), ("", "ftz"))))),
    **dict.fromkeys(
        ("rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), ("d a", tuple(product(("", "approx"), ("", "ftz"))))
    ),
    "copysign": ("d a b", (("",),)),
    "testp": ("p a", (("finite",), ("notanumber",), ("",))),
    "setp": ("p a b", tuple(product(("eq", "lt", "ltu", "lo", "num", ""), ("", "ftz")))),
    "selp": ("d a b p", (("",), ("ftz",))),
    "mov": ("d a", (("",), ("ftz",))),
    **dict.fromkeys(("ld", "ldu"), ("d m", (("global",), ("global", "v2"), ("global", "nc"), ("shared",)))),
    "st": ("m a", (("global",), ("shared",))),
    "atom": ("d m a", tuple(product(("global",), ("add", "and", "min", "inc", "exch", "")))),
    "red": ("m a", tuple(product(("global",), ("add", "and", "min", "inc", "exch", "")))),
    "shfl": ("d a u u -1", (("sync", "idx"), ("sync", ""))),
    "match": ("u a -1", (("any", "sync"),)),
    "redux": ("d a -1", tuple(product(("sync",), ("add", "min", "and", "")))),
    "activemask": ("d", (("",),)),
    "cvta": ("d a", (("to", "global"), ("shared",), ("",))),
}
WIDE = {"mul": "w a b", "mad": "w a b wc"}


def width(kind: str) -> int:
    """Bits of a value of type `kind`."""
    return _WIDTHS.get(kind) or int(kind.lstrip("busf"))


def _register(kind_bits: int, number: int) -> str:
    prefix = {1: "%p", 8: "%h", 16: "%h", 32: "%r", 64: "%rd", 128: "%q"}.get(kind_bits, "%rd")
    return f"{prefix}{number}"


def _operands(shape: str, kind: str, number: int = 0) -> str:
    words = []
    for place, word in enumerate(shape.split()):
        bits = width(kind) * (2 if word.startswith("w") else 1)
        fixed = {"p": _register(1, place), "u": _register(32, place), "i": "17", "m": "[%rd7]", "-1": "-1"}
        words.append(fixed.get(word) or _register(bits, place + number))
    return ", ".join(words)


def _opcode(*words: str) -> str:
    return ".".join(word for word in words if word)


def instructions() -> Iterator[str]:
    """Each instruction of the tables, without repetitions."""
    for opcode, (shape, modifiers) in ONE_TYPE.items():
        for words, kind in product(modifiers, TYPES):
            yield f"{_opcode(opcode, *words, kind)} {_operands(shape, kind)};"
    for (opcode, shape), kind in product(WIDE.items(), TYPES):
        yield f"{opcode}.wide.{kind} {_operands(shape, kind)};"
    for opcode, modifiers in TWO_TYPES.items():
        for words, first, second in product(modifiers, TYPES, TYPES):
            yield from _of_two_types(opcode, words, first, second)


def _of_two_types(opcode: str, words: tuple[str, ...], first: str, second: str) -> Iterator[str]:
    name = _opcode(opcode, *words, first, second)
    one, two = _register(width(first), 0), _register(width(second), 1)
    match opcode:
        case "cvt":
            yield f"{name} {one}, {two};"
            if first.endswith("x2"):
                yield f"{name} {one}, {two}, {two};"
        case "set":
            yield f"{name} {one}, {two}, {two};"
        case "slct":
            yield f"{name} {one}, {one}, {one}, {two};"
        case _:
            yield f"{name} {one}, {one}, {two}, {one};"


def program(bodies: list[str], target: str = "sm_90") -> str:
    """An entry `k` with `bodies`, one in each line from line 16 on, every register assigned before."""
    registers = [(".pred", "%p"), (".b16", "%h"), (".b32", "%r"), (".b64", "%rd")]
    lines = [".version 8.6", f".target {target}", ".address_size 64", ".visible .entry k(.param .u64 out)", "{"]
    lines += [".shared .align 16 .b8 smem[64];"]
    lines += [f".reg {kind} {name}<8>;" for kind, name in registers]
    lines += [".reg .b128 %q<8>;" if any("%q" in body for body in bodies) else ""]
    lines += ["setp.eq.u32 %p0, 1, 1; " + " ".join(f"mov.pred %p{i}, %p0;" for i in range(1, 8))]
    for kind, name in registers[1:]:
        lines += [" ".join(f"mov{kind} {name}{i}, {i + 1};" for i in range(8))]
    return "\n".join([*lines, *bodies, "ret;", "}", ""])


FIRST_LINE = 16
