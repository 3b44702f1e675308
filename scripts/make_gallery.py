"""Draws docs/pictures/*.svg and writes docs/gallery.md, which shows them: `python scripts/make_gallery.py`.

Each picture is what the command beside it prints. A test draws them all again and compares.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from cutegen.cli.main import main as cutegen

ROOT = Path(__file__).parents[1]
GALLERY = Path("docs/gallery.md")
PICTURES = Path("docs/pictures")


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One picture: the file's name, what `cutegen show`, or another `verb`, is asked for, and what there is to see."""

    name: str
    request: str
    text: str
    verb: str = "show"

    @property
    def command(self) -> str:
        """The command that draws it."""
        return f"cutegen {self.verb} {self.request} --format svg"


@dataclass(frozen=True, slots=True)
class Photographed:
    """An interactive page: the photograph's file, what `cutegen show` is asked for, and what there is to see."""

    name: str
    request: str
    text: str

    @property
    def command(self) -> str:
        """The command that writes the page."""
        return f"cutegen show {self.request} --out page.html"


INTRODUCTION = """\
# Gallery

This page shows the pictures of `cutegen show`. `--format svg`, `--format latex` and `--format png` select the format,
`--out FILE` the file. PNG needs Pillow (`pip install 'cutegen[png]'`); the other formats need no extra package. Text,
the default, shows the same content in a terminal.

`python scripts/make_gallery.py` draws the pictures and writes this page. `python -m scripts.photograph_pages` takes
the screenshots of interactive pages, which [inspector.md](inspector.md) describes.
"""
PAGES = (
    Photographed(
        "page_sm80",
        "sm80_hgemm_tn --arch sm_80",
        "The page follows `a(12, 40)`: its sector, the thread that copies it, its offset, XOR and bank, the lane that "
        "addresses its row, the register, the accumulators. Each view marks it.",
    ),
    Photographed(
        "page_sm80_plain",
        "sm80_hgemm_tn --arch sm_80",
        "The same element after a click on `plain`: the rows of a phase share their banks, and the reads have 8-way "
        "conflicts.",
    ),
    Photographed(
        "page_sm90_dark",
        "sm90_hgemm_tn --arch sm_90",
        "B of a `wgmma` kernel: the descriptor of its block and the core matrix. The page follows the system's dark "
        "mode.",
    ),
    Photographed(
        "page_result",
        "sm90_bf16_swiglu --arch sm_90",
        "C of a kernel with pairs of columns: the sum `c(5, 200)` belongs to an up, which becomes element (5, 72) of C "
        "with the gate in column 72. The views show how C is written by `stmatrix` and stored by TMA.",
    ),
    Photographed(
        "page_layout",
        '--layout "Sw<3,3,3> o (8,64):(64,1)"',
        "A single layout: the elements that share a bank, the swizzle bit by bit, and the placement in memory.",
    ),
)
EXHIBITS = {
    "Any layout": (
        Exhibit(
            "layout_plain",
            '--layout "(8,64):(64,1)"',
            "Eight rows of 64 halfs, 128 bytes each, without padding or swizzle. A column lies in one bank. A read of "
            "eight rows at the same column, as by `ldmatrix`, takes eight wavefronts.",
        ),
        Exhibit(
            "layout_swizzled",
            '--layout "Sw<3,3,3> o (8,64):(64,1)"',
            "The same with a swizzle: the row number is XORed into the index of the 16-byte piece within the row. A "
            "row still fills all banks, and now so do any eight consecutive rows of a 16-byte column.",
        ),
        Exhibit(
            "layout_padded",
            '--layout "(8,32):(40,1)"',
            "Padding also avoids the conflicts, at the cost of memory: each row begins 16 bytes after the end of the "
            "row above.",
        ),
        Exhibit(
            "layout_divided",
            '--layout "zipped_divide((16,16):(16,1), (4,8))"',
            "CuTe's operations by name: each row is one position in a 4x8 tile, each column one of the tiles.",
        ),
        Exhibit(
            "layout_tv",
            '--layout "((4,8),(2,2)):((32,1),(16,8))" --tv 16,8 --thread 5',
            "Any layout as a thread-value layout: here the accumulators of `mma.m16n8k16`, thread 5's dark.",
        ),
    ),
    "The tiled MMA": (
        Exhibit(
            "mma",
            "sm80_hgemm_tn mma --thread 0 --arch sm_80",
            "A to the left of C, B above it. Each element shows the thread that holds it and the value index; the "
            "dark elements belong to one thread.",
        ),
    ),
    "Shared memory": (
        Exhibit(
            "smem",
            "sm80_hgemm_tn smem --arch sm_80",
            "The stages of A and B, bank by bank.",
        ),
    ),
    "From global to shared memory": (
        Exhibit(
            "g2s",
            "sm80_hgemm_tn g2s --thread 37 --arch sm_80",
            "Left: which thread copies which 16 bytes. Right: the destinations of one warp's `cp.async`. Shared "
            "memory serves 16 bytes per lane in phases of 8 lanes; in each phase the lanes use different banks. "
            "Bottom left: the sectors of global memory that the warp's request touches, and the lanes that use them.",
        ),
    ),
    "From shared memory to registers": (
        Exhibit(
            "s2r",
            "sm80_hgemm_tn s2r --thread 0 --arch sm_80",
            "The four phases of one `ldmatrix.x4`: which lane addresses which row, and the banks of that row; then "
            "which thread receives each element. The two differ: a lane addresses a row for other lanes.",
        ),
        Exhibit(
            "s2r_no_swizzle",
            "docs/no_swizzle.toml s2r --thread 0 --arch sm_80",
            "The same load from a tile without a swizzle, `docs/no_swizzle.toml`. All rows of a phase lie in the "
            "same banks. The red ones wait, and a load takes 32 wavefronts instead of 4.",
        ),
        Exhibit(
            "s2r_transposed",
            "sm80_bf16_nn s2r --thread 0 --arch sm_80",
            "A contiguous along M: `ldmatrix.trans` reads its rows, and thread and value are transposed.",
        ),
    ),
    "Tensor memory": (
        Exhibit(
            "tmem",
            "sm100_bf16_pair tmem --thread 0 --arch sm_100",
            "The lanes and columns that a CTA allocates, by what lies in them: accumulators, and factors if there are "
            "any. The dark ones belong to one thread, which loads them by `tcgen05.ld`.",
        ),
    ),
    "The epilogue": (
        Exhibit(
            "epilogue",
            "sm80_hgemm_tn epilogue --arch sm_80",
            "C goes through shared memory, so that each thread stores 16 contiguous bytes to global memory. The "
            "picture shows a warp's writes of accumulators, then its reads and its request to global memory.",
        ),
    ),
    "Specs side by side": (
        Exhibit(
            "compare",
            "sm80_hgemm_tn cute_tutorial_tn --arch sm_80 --no-time",
            "The decisions in which two specs differ, and their cost.",
            verb="compare",
        ),
    ),
    "The pipeline": (
        Exhibit(
            "pipeline",
            "sm80_hgemm_tn pipeline --arch sm_80",
            "The main loop as the kernel runs it, with three stages. While the tensor cores multiply one k-block, "
            "the next one is loaded to registers, and two k-tiles are in flight from global memory.",
        ),
        Exhibit(
            "pipeline_two_stages",
            "sm80_bf16_nn pipeline --arch sm_80",
            "With two stages a k-tile has less time to arrive: the kernel waits for it three k-blocks after issuing "
            "the copy, not seven.",
        ),
    ),
}


def make_gallery(folder: Path) -> None:
    """Draw every picture and write the page below `folder`, at the same places as in the repository."""
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    page = [INTRODUCTION]
    for heading, exhibits in EXHIBITS.items():
        page.append(f"## {heading}\n")
        for exhibit in exhibits:
            _draw(exhibit, folder / PICTURES / f"{exhibit.name}.svg")
            page += [
                f"{textwrap.fill(exhibit.text, 120, break_on_hyphens=False)}\n",
                f"```console\n$ {exhibit.command}\n```\n",
                f"![{exhibit.command}]({PICTURES.name}/{exhibit.name}.svg)\n",
            ]
    page.append("## The interactive page\n")
    for photographed in PAGES:
        page += [
            f"{textwrap.fill(photographed.text, 120, break_on_hyphens=False)}\n",
            f"```console\n$ {photographed.command}\n```\n",
            f"![{photographed.command}]({PICTURES.name}/{photographed.name}.png)\n",
        ]
    (folder / GALLERY).write_text("\n".join(page), encoding="utf-8")


def _draw(exhibit: Exhibit, path: Path) -> None:
    # The commands name files of the repository; what a comparison says of builds depends on the cache.
    with contextlib.chdir(ROOT), TemporaryDirectory() as cache, patch.dict(os.environ, CUTEGEN_CACHE_DIR=cache):
        code = cutegen([*shlex.split(exhibit.command)[1:], "--out", str(path.resolve())])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    make_gallery(ROOT)
