"""What nobody writes by intention: values of wrong types, extremes, deep nesting, broken text."""

from __future__ import annotations

import random

from cutegen.spec import GemmSpec, known_keys
from tests.fuzz.plausible import Table, text

DOTTED = tuple(dotted for dotted, _ in known_keys(GemmSpec))
NUMBERS = (
    "0", "-1", "1", "3", "7", "33", "1023", "8192", "8193", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775807", "99999999999999999999999999", "1e308", "-0.0", "nan", "inf", "1.5", "0x7fffffff",
)  # fmt: skip
STRINGS = (
    "", " ", "k", "K", "sm80", "f16", "f64", "x -> ", "x -> x / 0", "x -> x x", "\\u0000", "\\u202e", "\\n",
    "\\u00e9", "\\U0001F600", "universal", "(", "()", "(8,8)", "(8,8):(8,1", "((((8))))", "(0,8):(8,1)",
    "(-8,8):(8,1)", "{{ x }}", "(8,8):(0,0)", "(8,8):(-8,1)", "Sw<3,3,3> o ", "Sw<99,99,99> o (8,8):(8,1)", "8:1",
    "(8,8,8):(64,8,1)", "__import__('os')", "(2147483648,2):(1,1)", "(65536,65536):(1,65536)", "(1,1):(0,0)",
    "($(id),8):(8,1)", "{{ 7*7 }}", "'''", "%s%n", "../..",
)  # fmt: skip
INNER_KEYS = ("a", "b", "cta", "dtype", "major", "pad", "layout", '"a b"', '"\\u0000"', '""', "x.y.z")
LIKELY_NUMBERS = tuple(map(str, (1, 2, 3, 4, 5, 8, 12, 16, 24, 40, 48, 64, 72, 96, 128, 256, 512, 1024)))


def hostile_value(rng: random.Random, depth: int = 0) -> str:
    """A TOML value of any kind."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NUMBERS)
    if kind < 0.6:
        return text(rng.choice(STRINGS))
    if kind < 0.68:
        return rng.choice(("true", "false", "2024-01-01", "12:30:00", "[]", "{}", "''", '""'))
    if kind < 0.74:
        return _nested(rng)
    if kind < 0.8:
        return text(rng.choice("x8a(\\u00fc,") * rng.choice((50, 300, 20_000)))
    if depth > 3:
        return "1"
    inner = [hostile_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if kind < 0.93:
        return f"[{', '.join(inner)}]"
    keys = rng.sample(INNER_KEYS, len(inner))
    return f"{{ {', '.join(f'{key} = {value}' for key, value in zip(keys, inner, strict=True))} }}"


def _nested(rng: random.Random) -> str:
    depth = rng.choice((10, 100, 900, 20_000))
    kind = rng.randrange(5)
    if kind == 0:
        return "[" * depth + "]" * (depth if rng.random() < 0.7 else 1)
    if kind == 1:
        return "{ a = " * depth + "1" + " }" * depth
    if kind == 2:
        return text(f"x -> {'(' * depth}x{')' * depth}")
    if kind == 3:
        return text(f"{'(' * depth}8{')' * depth}:{'(' * depth}1{')' * depth}")
    return text("x -> " + "-" * depth + "x")


def odd(rng: random.Random, table: Table) -> Table:
    """The table with one to three values of their right types and unlikely sizes."""
    changed = dict(table)
    for _ in range(rng.randint(1, 3)):
        key, value = rng.choice(_ODD)
        changed[key] = value(rng)
    return changed


def _number(rng: random.Random) -> str:
    return rng.choice(LIKELY_NUMBERS)


def _triple(rng: random.Random) -> str:
    return f"[{_number(rng)}, {_number(rng)}, {_number(rng)}]"


def _large_triple(rng: random.Random) -> str:
    return str([rng.choice((1, 8, 256, 4096, 8191, 8192)) for _ in range(3)])


def _layout(rng: random.Random) -> str:
    shape, stride = (f"({_number(rng)},{_mode(rng)})" for _ in range(2))
    swizzle = f"Sw<{rng.randint(0, 5)},{rng.randint(0, 5)},{rng.randint(-3, 6)}> o " if rng.random() < 0.4 else ""
    return text(f"{swizzle}{shape}:{stride}")


def _mode(rng: random.Random) -> str:
    return _number(rng) if rng.random() < 0.6 else f"({_number(rng)},{_number(rng)})"


def _table_of(key: str, value: str) -> str:
    return f"{{ {key} = {value} }}"


_ODD = (
    ("tile.cta", _triple),
    ("tile.cta", _large_triple),
    ("tile.stages", _number),
    ("mma.atom_layout", _triple),
    ("mma.permutation", _triple),
    ("mma.threads", _layout),
    *((f"smem.{name}", lambda rng: _table_of("pad", _number(rng))) for name in "ab"),
    *((f"smem.{name}", lambda rng: _table_of("layout", _layout(rng))) for name in "ab"),
    *((f"smem.{name}", lambda rng: _table_of("swizzle", str([rng.randint(0, 9) for _ in range(3)]))) for name in "ab"),
    *((f"g2s.{name}", lambda rng: _table_of("threads", _layout(rng))) for name in "ab"),
    *((f"g2s.{name}", lambda rng: _table_of("bits", _number(rng))) for name in "ab"),
    ("epilogue.smem", lambda rng: _table_of("layout", _layout(rng))),
    ("epilogue.smem", lambda rng: _table_of("pad", _number(rng))),
    ("schedule.split_k", _number),
    ("schedule.raster", lambda rng: _table_of("group", _number(rng))),
)


def hostile(rng: random.Random, table: Table) -> Table:
    """The table with a few values that can be anything, at keys that are known or not."""
    changed = dict(table)
    for _ in range(rng.randint(1, 3)):
        key = rng.choice((*DOTTED, *table, "x", "tile.x", '"\\u0000"', "family.x", "problem.a.dtype.x"))
        changed[key] = hostile_value(rng)
    return changed


def mangled(rng: random.Random, content: str) -> str:
    """The text with characters lost, doubled, exchanged or foreign."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content) + 1)
        length = rng.choice((0, 1, 1, 3, 20))
        foreign = ("", "\0", "\ufeff", "\u2028", "\ud7ff", "é", "[", "]", '"', "=", "#", "\r", "\x1b[31m", "9" * 5000)
        content = content[:at] + rng.choice(foreign) + content[at + length :]
    return content
