"""The way out that a refusal prints is one: followed, it never leads back to a refusal that was there before.

The law: a fix that names a value is written into the spec at the key that was refused, again and again. The same
refusal, key and found value alike, does not come twice, and at most `MOST_STEPS` fixes lead to a plan or to a refusal
whose way out is a choice of the reader's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from cutegen.errors import SpecError
from cutegen.hardware import TARGETS
from cutegen.plan import plan
from cutegen.spec import G2s, G2sCopy, GemmSpec, Mma, Smem, SmemLayout, Tile, parse_spec
from tests.plan.fma_specs import SPECS as OF_SIMT
from tests.plan.specs import gemm
from tests.plan.test_random_specs import QUICK, maybe
from tests.plan.test_random_specs import specs as of_sm80

MOST_STEPS = 20  # a spec has about as many keys, and each may be wrong in a way of its own
Change = dict[str, Any]


def changes(error: SpecError, spec: GemmSpec) -> Change:
    """What the fix writes, by dotted keys; empty where it names no value."""
    fix, key = error.fix, error.key
    table, _, name = key.rpartition(".")
    if re.search(r"leave (it|\S+) out", fix) and " if " not in fix:
        named = re.search(r"leave (\S+) out", fix)
        return {key if named is None or "." not in named[1] else named[1]: None}
    first = re.split(r", or | or, ", fix)[0]
    if found := WRITTEN.findall(first):
        return {f"{key if is_table(key) else table}.{inner}": _value(text) for inner, text in found}
    if numbers := re.match(r"(?:swizzle = )?\[(\d+), (\d+), (\d+)\]", fix):
        return {key if name == "swizzle" else f"{key}.swizzle": tuple(map(int, numbers.groups()))}
    if family := re.match(r'family = "(\w+)"(?: without ([\w., ]+?) (?:copies|multiplies))?', fix):
        return {**dict.fromkeys(family[2].split(", ") if family[2] else ()), "family": family[1]}
    if key == "tile.stages" and (fits := re.match(r"(\d)(?:, | is the nearest| stages? fit| or)", fix)):
        return {key: int(fits[1])}
    if spec.tile.cta is not None and (mode := re.match(r"([MNK]) = (\d+) is the nearest", fix)):
        return {"tile.cta": _with(spec.tile.cta, mode[1], int(mode[2]))}
    if (extent := re.match(r"(\d+) is the nearest", fix)) and (along := re.search(r"along ([MNK])$", error.found)):
        return {key: _with(spec.mma.permutation, along[1], int(extent[1]))}
    if extents := re.match(r"(?:use )?(\d+)x(\d+)x(\d+)", fix):
        return {key: tuple(map(int, extents.groups()))}
    if threads := re.match(r'(".*:.*") has', fix):
        return {key: _value(threads[1])}
    if (atom := re.match(r'use "?(\w+)"?(?:,| or|$)', fix)) and name == "atom":
        return {key: atom[1]}
    return {}


WRITTEN = re.compile(r"(?<![\w.])(threads|bits|op|align|pad|accumulator|smem|stages) = (\"[^\"]*\"|\w+)")


def _with(extents: tuple[int, int, int] | None, mode: str, extent: int) -> tuple[int, ...]:
    assert extents is not None
    return tuple(extent if letter == mode else x for letter, x in zip("MNK", extents, strict=True))


def is_table(key: str) -> bool:
    return key in ("smem.a", "smem.b", "g2s.a", "g2s.b")


def _value(text: str) -> object:
    if text.startswith('"'):
        return text.strip('"')
    return {"true": True, "false": False}[text] if text in ("true", "false") else int(text)


def written(part: Any, dotted: str, value: object) -> Any:
    """`part` with the value at a dotted key; a table that is left out is made."""
    name, _, rest = dotted.partition(".")
    if not rest:
        return replace(part, **{name: value})
    inner = getattr(part, name)
    if not is_dataclass(inner):
        inner = {"smem": SmemLayout, "g2s": G2sCopy}[type(part).__name__.lower()]()
    return replace(part, **{name: written(inner, rest, value)})


def refusal(spec: GemmSpec, arch: str) -> SpecError | None:
    try:
        plan(spec, arch)
    except SpecError as error:
        return error
    return None


def followed(spec: GemmSpec, arch: str, seen: Callable[[str], None] = note) -> int:
    """Follow fixes from `spec` on; how many. Fails where one leads back or they do not end."""
    met: list[tuple[str, str]] = []
    for step in range(MOST_STEPS + 1):
        error = refusal(spec, arch)
        if error is None:
            return step
        seen(str(error))
        assert (error.key, error.found) not in met, f"the fix led back to {error}"
        met.append((error.key, error.found))
        change = changes(error, spec)
        if not change:
            return step
        try:
            for key, value in change.items():
                spec = written(spec, key, value)
        except SpecError as further:  # keys of one fix are judged one by one here
            seen(str(further))
            return step
    raise AssertionError(f"{MOST_STEPS} fixes and still refused: {met}")


def test_fixes_are_read() -> None:
    """A few refusals whose fixes are known to name a value: the test above them follows something."""
    narrow = gemm(g2s=G2s(a=G2sCopy(bits=128)), align=(2, None, None))
    assert followed(narrow, "sm_80", print) == 1
    assert followed(gemm(tile=Tile((100, 64, 32))), "sm_80", print) == 1
    assert followed(gemm(mma=Mma(atom_layout=(2, 1, 2))), "sm_80", print) == 1


@pytest.mark.parametrize("operands", ['"f16", major = "k", align = 8', '"tf32", major = "k"'])
def test_a_family_is_suggested_without_the_keys_that_it_lacks(operands: str) -> None:
    a, b = (f"problem.{name} = {{ dtype = {operands} }}" for name in "ab")
    c = 'problem.c = { dtype = "f32", major = "n" }'
    spec = parse_spec("\n".join((a, b, c, 'schedule = { consumers = "pingpong", cluster = [2, 1] }')))
    assert followed(spec, "sm_90", print) == 1


def test_a_thread_layout_that_is_suggested_shares_out_the_tile() -> None:
    """Of a copy of 64 bits the grid is one of vectors, not of elements."""
    spec = replace(gemm(dtype="f32", tile=Tile((32, 32, 8))), family="simt")
    spec = replace(spec, mma=Mma(threads="(8,8):(8,1)"))
    asked = replace(spec, g2s=G2s(a=G2sCopy(bits=64, threads="(2,16):(16,1)")))
    assert followed(asked, "sm_80", print) == 1
    assert followed(replace(spec, mma=Mma(threads="(64,2):(2,1)")), "sm_80", print) == 1


@pytest.mark.parametrize(("rows", "steps"), [(16, 1), (8, 0)])
def test_a_swizzle_is_suggested_where_one_has_a_period_that_divides_the_tile(rows: int, steps: int) -> None:
    """The shortest of f16 is 32 elements: of a tile of 16 none is named."""
    tile = Tile((rows, 64, 2), stages=3)
    threads = Mma(threads=f"({rows},{256 // rows}):(1,{rows})")
    spec = replace(gemm(tile=tile, smem=Smem(a=SmemLayout(swizzle=(1, 3, 3)))), family="simt", mma=threads)
    error = refusal(spec, "sm_80")
    assert error is not None
    assert error.key == "smem.a.swizzle"
    assert ("[1, 3, 1]" in error.fix, "a pad" in error.fix) == (bool(steps), not steps)
    assert followed(spec, "sm_80", print) >= steps


@pytest.mark.parametrize("swizzle", [(3, 0, 3), (8, 0, 8)])
def test_a_swizzle_of_a_longer_base_is_suggested_only_if_there_is_one(swizzle: tuple[int, int, int]) -> None:
    """[8, 3, 8] would swizzle 19 bits, which no spec may have."""
    asked = gemm(smem=Smem(a=SmemLayout(swizzle=swizzle)))
    error = refusal(asked, "sm_80")
    assert error is not None
    assert changes(error, asked) == {"smem.a.swizzle": (3, 3, 3)}
    assert followed(asked, "sm_80", print) == 1


@pytest.mark.parametrize("tile", [(96, 24, 24), (96, 32, 32), (96, 24, 32)])
def test_a_swizzle_of_bytes_is_told_in_elements_where_those_fit_the_tile(tile: tuple[int, int, int]) -> None:
    """[2, 4, 3] of bytes is [2, 2, 3] in elements of 4 bytes, a period of 128: 24 x 24 = 576 is no multiple of it."""
    asked = gemm(dtype="tf32", tile=Tile(tile), smem=Smem(b=SmemLayout(swizzle=(2, 4, 3))))
    elems = tile[1] * tile[2]
    error = refusal(asked, "sm_80")
    assert (error is None) == (elems % 512 == 0)
    if error is not None:
        meant = (2, 2, 3) if elems % 128 == 0 else (1, 2, 1)
        assert ("looks like a swizzle of bytes" in error.fix) == (elems % 128 == 0)
        assert changes(error, asked) == {"smem.b.swizzle": meant}
        assert followed(asked, "sm_80", print) == 1


@pytest.mark.parametrize("majors", ["kkn", "knn"])
def test_a_layout_that_ldmatrix_cannot_load_is_to_blame_not_the_major(majors: str) -> None:
    asked = replace(gemm(majors, smem=Smem(b=SmemLayout(pad=1))), family="sm120")
    error = refusal(asked, "sm_90")
    assert error is not None
    assert error.key == "smem.b"
    assert changes(error, asked) == {"smem.b": None}
    assert followed(asked, "sm_90", print) == 1


def test_a_bulk_copy_in_a_family_without_it_may_be_left_out() -> None:
    """`family = "sm120"` alone leads back where it is family sm80 that takes the alignment."""
    with pytest.raises(SpecError) as caught:
        gemm(align=(4, None, None), g2s=G2s(a=G2sCopy(op="cp.async.bulk.tensor")))
    assert changes(caught.value, gemm()) == {"g2s.a.op": None}


def test_the_alignment_that_is_suggested_suits_every_family() -> None:
    with pytest.raises(SpecError, match=r"write align = 16") as caught:
        gemm(dtype="tf32", align=(2, None, None))
    assert changes(caught.value, gemm()) == {"problem.a.align": 16}
    assert followed(replace(gemm(dtype="tf32", align=(16, None, None)), family="sm120"), "sm_90") == 0


SM90 = replace(gemm(), family="sm90")
PROMOTED = replace(gemm(dtype="e4m3", c_dtype="f16"), family="sm90", tile=Tile((64, 64, 64)), mma=Mma(promote_k=120))
NEAREST = {
    "M of warps": (gemm(tile=Tile((200, 64, 32)), mma=Mma(atom_layout=(4, 1, 1))), "M"),
    "K of two atoms": (gemm(tile=Tile((128, 128, 60))), "K"),
    "N of the permutation": (gemm(tile=Tile((64, 128, 64)), mma=Mma(None, (2, 2, 1), (32, 60, 16))), "N"),
    "M of warpgroups": (replace(SM90, tile=Tile((200, 64, 64)), mma=Mma(atom_layout=(2, 1, 1))), "M"),
    "N of two warpgroups": (replace(SM90, tile=Tile((64, 150, 64)), mma=Mma(atom_layout=(1, 2, 1))), "N"),
    "N of one": (replace(SM90, tile=Tile((64, 270, 64))), "N"),
    "K of wgmma": (replace(SM90, tile=Tile((64, 64, 62))), "K"),
    "K of promoted sums": (PROMOTED, ""),
}


@pytest.mark.parametrize("name", NEAREST)
def test_what_is_said_to_be_the_nearest_is_taken_and_nothing_nearer_is(name: str) -> None:
    spec, letter = NEAREST[name]
    error = refusal(spec, "sm_90")
    assert error is not None
    said = re.search(r"(\d+) is the nearest", error.fix)
    assert said is not None, error
    key = "mma.permutation" if error.key == "mma.permutation" else "tile.cta" if letter else error.key
    asked = getattr(getattr(spec, key.split(".")[0]), key.split(".")[1])

    def refused(extent: int) -> bool:
        return refusal(written(spec, key, _with(asked, letter, extent) if letter else extent), "sm_90") is not None

    found = asked["MNK".index(letter)] if letter else asked
    away = abs(int(said[1]) - found)
    assert not refused(int(said[1]))
    assert [extent for extent in range(found - away + 1, found + away) if not refused(extent)] == []


@QUICK
@given(of_sm80, st.sampled_from(list(TARGETS)))
def test_fixes_of_tensor_core_families(spec: GemmSpec, arch: str) -> None:
    followed(spec, arch)


@QUICK
@given(of_sm80, st.sampled_from(["sm_90", "sm_100", "sm_120"]))
def test_fixes_of_bulk_copies(spec: GemmSpec, arch: str) -> None:
    try:
        bulk = replace(spec, family="sm120")
    except SpecError:
        return
    followed(bulk, arch)


@QUICK
@given(OF_SIMT, maybe(st.sampled_from([16, 32, 64, 128])), st.sampled_from(list(TARGETS)))
def test_fixes_of_fma(spec: GemmSpec, bits: int | None, arch: str) -> None:
    followed(replace(spec, g2s=replace(spec.g2s, a=G2sCopy(bits=bits))), arch)
