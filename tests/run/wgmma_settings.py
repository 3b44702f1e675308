"""Every setting of family sm90 with its values, which of them go together, and the kernel and problem that they mean.

A new key of the spec is a row in SETTINGS, its line in `spec_of`, and a row in RULES for each plan that refuses it.
Tiles are as small as still have each kind of edge; K is 0, less than a k-tile, or some k-tiles and a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutegen.hardware import dtype
from cutegen.hardware.units import SECTOR_BYTES
from cutegen.spec import Bias, Extra, GemmSpec, Operand, Raster
from tests.run import wgmma
from tests.run.covering import Row, Rule

FLOATS_OF_8_BITS = ("e4m3", "e5m2")
ONCE = "n once"
EPILOGUES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "bias, gelu": ("bias_n", "gelu_tanh"),
    "blas and residual": ("alpha", "beta", "residual"),
    "aux": ("bias_m", "aux", "silu"),
    "scales": ("scale_m", "scale_n", "bias_n", "bias_m"),
}
SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "dtype": ("f16", "bf16", "e4m3", "e5m2", "s8", "u8"),
    "sums": (None, "f16"),
    "c_bits": (16, 32, 8),
    "a_major": ("k", "m"),
    "b_major": ("k", "n", ONCE),
    "c_major": ("n", "m"),
    "tile": ((64, 16), (64, 32), (128, 32), (128, 64)),
    "k_tile_bytes": (64, 128),
    "stages": (2, 3, 4),
    "warpgroups": (None, (1, 2, 1)),
    "consumers": ("cooperative", "pingpong"),
    "cluster": ((1, 1), (2, 1), (1, 2), (1, 1, 2)),
    "swap": (False, True),
    "split_k": (1, 2, 3, 4),
    "reduction": (None, "cluster"),
    "epilogue": tuple(EPILOGUES),
    "c_way": ("shared memory", "registers", "unaligned"),
    "promote_k": (None, "never", "every second"),
    "raster": (None, ("m", 3)),
    "extents": ("odd", "whole tiles", "less than a tile"),
    "k": ("tiles and a part", "whole tiles", "part", "none"),
    "batch": (None, 2, "of the same b"),
    "policy": ("in-order", "reversed", "random:7"),
}


def _of_16_bits(name: str) -> bool:
    return dtype(name).bits == 16


def _along_k(cluster: tuple[int, ...]) -> int:
    return cluster[2] if len(cluster) == 3 else 1


def _promoted(name: str, sums: str | None) -> bool:
    return name in FLOATS_OF_8_BITS and sums is None


def _held(tile: tuple[int, int], groups: tuple[int, int, int] | None) -> tuple[int, int]:
    """Columns of an instruction, and all of a warpgroup's, those of its instructions one behind the other."""
    m, n, _ = groups or (tile[0] // 64, 1, 1)
    return tile[1] // n, tile[0] * tile[1] // (64 * m * n)


def _in_halves(
    tile: tuple[int, int], groups: tuple[int, int, int] | None, c_bits: int, c_major: str, swap: bool
) -> bool:
    """Return whether half of what a warpgroup multiplies is made of pieces of a row of C that fill sectors."""
    columns, held = _held(tile, groups)
    least = max(8, SECTOR_BYTES * 8 // c_bits) if (c_major == "n") != swap else 8
    return any(columns % width == 0 == held % (2 * width) for width in range(least, columns + 1, 8))


def _hold_sums(tile: tuple[int, int], k_tile_bytes: int, stages: int) -> bool:
    """Return whether the stages have as many bytes as a tile's sums, of 4 bytes each."""
    m, n = tile
    return stages * (m + n) * k_tile_bytes >= 4 * m * n


RULES = (
    Rule(("dtype", "a_major"), lambda name, major: major == "k" or _of_16_bits(name), "8 bits are read only K-major"),
    Rule(("dtype", "b_major"), lambda name, major: major != "n" or _of_16_bits(name), "8 bits are read only K-major"),
    Rule(
        ("dtype", "sums"), lambda name, sums: sums is None or name in ("f16", *FLOATS_OF_8_BITS), "no such accumulator"
    ),
    Rule(
        ("dtype", "sums", "promote_k"),
        lambda name, sums, every: every != "every second" or _promoted(name, sums),
        "no others lose digits in the tensor core",
    ),
    Rule(
        ("split_k", "cluster"),
        lambda slices, cluster: slices % _along_k(cluster) == 0 and (slices == 1 or cluster[1] == 1),
        "a cluster has tiles along M and whole numbers of slices",
    ),
    Rule(
        ("split_k", "cluster", "tile", "warpgroups"),
        lambda _, cluster, *of_c: _along_k(cluster) == 1 or _held(*of_c)[1] % 16 == 0,
        "a warpgroup has no narrower part than 8 columns to share",
    ),
    Rule(
        ("split_k", "reduction", "cluster", "tile", "warpgroups", "c_bits", "c_major", "swap"),
        lambda slices, reduction, cluster, *of_c: (
            slices == 1 or reduction is None or _along_k(cluster) > 1 or (slices % 2 == 0 and _in_halves(*of_c))
        ),
        "the CTAs of a cluster bring out even shares of a tile, a sector of a row each",
    ),
    Rule(
        ("split_k", "reduction", "cluster", "tile", "k_tile_bytes", "stages"),
        lambda slices, reduction, cluster, *stages: (
            slices == 1 or (reduction is None and _along_k(cluster) == 1) or _hold_sums(*stages)
        ),
        "a tile's sums lie in the stages",
    ),
    Rule(
        ("split_k", "consumers"),
        lambda slices, consumers: slices == 1 or consumers == "cooperative",
        "all threads that multiply count a tile's slices together",
    ),
    Rule(
        ("consumers", "warpgroups"),
        lambda consumers, groups: groups is None or consumers == "cooperative",
        "each warpgroup has a tile of its own",
    ),
)
"""Which settings a plan takes together: what breaks a rule is refused."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row as a spec and a problem."""

    spec: GemmSpec
    m: int
    n: int
    k: int
    batch: int | None
    same_b: bool
    policy: str


def case_of(row: Row) -> Case:
    """What a row stands for."""
    batch = row["batch"]
    spec = spec_of(row)
    assert spec.tile.cta is not None
    m, n = _extents(row)
    k = {"tiles and a part": 5, "whole tiles": 4, "part": 1, "none": 0}[row["k"]] * spec.tile.cta[2] // 2
    return Case(
        spec=spec,
        m=m,
        n=n,
        k=k - (row["k"] == "part"),
        batch=None if batch is None else 2,
        same_b=batch == "of the same b",
        policy=row["policy"],
    )


def _extents(row: Row) -> tuple[int, int]:
    """M and N in tiles, an odd number of them and an odd number of elements, or a part of one."""
    m, n = reversed(row["tile"]) if row["swap"] else row["tile"]
    match row["extents"]:
        case "odd":
            return m + m // 2 + 1, n + 5
        case "whole tiles":
            return 2 * m, 3 * n
        case _:
            return m // 2 - 1, n - 3


def spec_of(row: Row) -> GemmSpec:
    """The kernel of a row."""
    element, ops = row["dtype"], EPILOGUES[row["epilogue"]]
    k = row["k_tile_bytes"] // dtype(element).bytes
    c = Operand(
        _result_type(row), row["c_major"], dtype(_result_type(row)).bytes if row["c_way"] == "unaligned" else 16
    )
    extras: dict[str, Extra | Bias] = {"aux": Extra("f32", "m")} if "aux" in ops else {}
    made = wgmma.spec(
        "pairs",
        f"{row['a_major']}{row['b_major'][0]}{row['c_major']}",
        element,
        *ops,
        c=c,
        accumulator=row["sums"],
        cta=(*row["tile"], k),
        stages=row["stages"],
        groups=row["warpgroups"],
        raster=None if row["raster"] is None else Raster(*row["raster"], zigzag=True),
        smem=False if row["c_way"] == "registers" else None,
        promote_k={None: None, "never": 0, "every second": 2 * k}[row["promote_k"]],
        consumers=row["consumers"],
        cluster=row["cluster"],
        split_k=row["split_k"],
        reduction=row["reduction"],
        **extras,
    )
    b = replace(made.problem.b, transposed="once" if row["b_major"] == ONCE else None)
    schedule = replace(made.schedule, swap=row["swap"] or None)
    return replace(made, problem=replace(made.problem, b=b), schedule=schedule)


def _result_type(row: Row) -> str:
    """C's type: the operands' where it has as many bits."""
    element = dtype(row["dtype"])
    if row["c_bits"] == element.bits:
        return element.name
    if row["c_bits"] == 32:
        return "s32" if element.is_integer else "f32"
    return "bf16" if row["c_bits"] == 16 else "e4m3"
