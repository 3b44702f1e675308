"""CuTe C++ is the reference: `golden/wgmma.txt` is what `golden/wgmma.cu` prints of its atoms and layouts of wgmma."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cutegen.algebra import Layout, TiledMma, format_layout, tile_to_shape
from cutegen.hardware import GMMA_LAYOUTS, WGMMA_ATOMS

# kind, case, fact, value
GOLDEN = [line.split(" ", 3) for line in (Path(__file__).parent / "golden/wgmma.txt").read_text().splitlines()]

# name: atom, atom layout, (bM, bN, bK)
TILED = {
    "one_warpgroup": ("SM90_64x256x16_F32F16F16_SS", (1, 1, 1), (128, 256, 64)),
    "narrow": ("SM90_64x24x32_F16E4M3E5M2_SS_TN", (1, 1, 1), (64, 72, 128)),
    "cooperative": ("SM90_64x256x16_F32F16F16_SS", (2, 1, 1), (128, 256, 64)),
    "registers": ("SM90_64x96x16_F32F16F16_RS", (2, 1, 1), (256, 192, 64)),
    "bytes": ("SM90_64x64x32_S32S8S8_RS_TN_SATURATE", (1, 2, 1), (64, 128, 128)),
    "three": ("SM90_64x64x32_S32S8S8_RS_TN_SATURATE", (3, 1, 1), (192, 64, 64)),
}

Facts = dict[str, str]


@cache
def printed(kind: str) -> dict[str, Facts]:
    """The facts of each case."""
    found: dict[str, Facts] = {}
    for each, case, fact, value in GOLDEN:
        if each == kind:
            found.setdefault(case, {})[fact] = value
    return found


def atom_facts(name: str) -> Facts:
    atom = WGMMA_ATOMS[name]
    return {
        "Shape_MNK": f"({','.join(f'_{extent}' for extent in atom.shape_mnk)})",
        "ThrID": format_layout(atom.thr_id),
        "ALayout": format_layout(atom.a_layout),
        "BLayout": format_layout(atom.b_layout),
        "CLayout": format_layout(atom.c_layout),
    }


def tiled_facts(case: str) -> Facts:
    name, thread = case.split(".")
    atom, atom_layout, (bm, bn, bk) = TILED[name]
    mma = TiledMma(WGMMA_ATOMS[atom], atom_layout)
    a = mma.partition("A", Layout((bm, bk), (bk, 1)), int(thread))
    c = mma.partition("C", Layout((bm, bn), (bn, 1)), int(thread))
    return {
        "vmnk": format_layout(mma.thr_layout_vmnk),
        "tvA": format_layout(mma.tv_layout("A")),
        "tvB": format_layout(mma.tv_layout("B")),
        "tvC": format_layout(mma.tv_layout("C")),
        "tCgC": str(c),
        "tCgC@": str(c.offset),
        "tCgA": str(a),
        "tCgA@": str(a.offset),
        "tCrC": format_layout(mma.fragment("C", Layout((bm, bn)), int(thread))),
    }


def shared_facts(case: str) -> Facts:
    name, bits = case.split(".")
    atom = GMMA_LAYOUTS[name].atom(int(bits))
    tile = (128, 128, 3)
    return {
        "atom": format_layout(atom),
        "rows_first": format_layout(tile_to_shape(atom, tile)),
        "k_first": format_layout(tile_to_shape(atom, tile, (1, 0, 2))),
    }


@pytest.mark.parametrize("name", printed("atom"))
def test_an_atoms_layouts(name: str) -> None:
    assert atom_facts(name) == printed("atom")[name]


@pytest.mark.parametrize("case", printed("tiled"))
def test_what_a_thread_holds(case: str) -> None:
    assert tiled_facts(case) == printed("tiled")[case]


@pytest.mark.parametrize("case", printed("shared"))
def test_shared_memory_layouts(case: str) -> None:
    facts = printed("shared")[case]
    assert shared_facts(case) == facts
    # CUTLASS's collectives put K first where M or N is contiguous (Step<_2, _1, _3>), so that boxes lie one by one.
    name, bits = case.split(".")
    boxes = format_layout(GMMA_LAYOUTS[name].tile((128, 128, 3), int(bits)))
    assert boxes == facts["k_first" if "_MN_" in name else "rows_first"]


def test_the_golden_file_holds_every_case() -> None:
    # 8-bit floats come with the same N as 16 bits: the golden file has them at one.
    shapes = {name.split("_")[1] for name, atom in WGMMA_ATOMS.items() if not atom.a_dtype.is_float8}
    assert shapes == {name.split("_")[1] for name in printed("atom")}
    assert {name for name in WGMMA_ATOMS if "_64x64x" in name} <= set(printed("atom"))
    assert {case.split(".")[0] for case in printed("tiled")} == set(TILED)
    assert {case.split(".")[0] for case in printed("descriptor")} == set(GMMA_LAYOUTS)
    assert set(printed("shared")) == {f"{name}.{bits}" for name in GMMA_LAYOUTS for bits in (8, 16, 32)}
