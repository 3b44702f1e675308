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

What `cutegen show` draws. `--format svg`, `--format latex` and `--format png` choose how, `--out FILE` where to; PNG
needs Pillow (`pip install 'cutegen[png]'`), the others need nothing. Text, the default, says the same in a terminal.

`python scripts/make_gallery.py` draws the pictures and writes this page; `python -m scripts.photograph_pages` takes
the photographs of interactive pages, which [inspector.md](inspector.md) describes.
"""
PAGES = (
    Photographed(
        "page_sm80",
        "sm80_hgemm_tn --arch sm_80",
        "`a(12, 40)` is followed: its sector, the thread that copies it, its offset, XOR and bank, the lane that "
        "addresses its row, the register, the accumulators. Each view marks it.",
    ),
    Photographed(
        "page_sm80_plain",
        "sm80_hgemm_tn --arch sm_80",
        "The same element, and a click on `plain`: the rows of a phase lie above one another, and the reads are 8-way.",
    ),
    Photographed(
        "page_sm90_dark",
        "sm90_hgemm_tn --arch sm_90",
        "B of a `wgmma` kernel: the descriptor of its block and the core matrix. The page is dark where the system is.",
    ),
    Photographed(
        "page_layout",
        '--layout "Sw<3,3,3> o (8,64):(64,1)"',
        "A layout by itself: what shares a bank with an element, the swizzle bit by bit, and how it lies in memory.",
    ),
)
EXHIBITS = {
    "Any layout": (
        Exhibit(
            "layout_plain",
            '--layout "(8,64):(64,1)"',
            "Eight rows of 64 halfs, 128 bytes each, as they come. A column lies in one bank: whoever reads eight "
            "rows at the same place, as `ldmatrix` does, waits eight times.",
        ),
        Exhibit(
            "layout_swizzled",
            '--layout "Sw<3,3,3> o (8,64):(64,1)"',
            "The same with a swizzle: the row's number is XORed into which 16 bytes of the row are meant. A row "
            "still fills all banks, and now every eight rows of a column do so as well.",
        ),
        Exhibit(
            "layout_padded",
            '--layout "(8,32):(40,1)"',
            "Padding does it too, at the price of memory: each row begins 16 bytes further on than the one above it "
            "ended.",
        ),
        Exhibit(
            "layout_divided",
            '--layout "zipped_divide((16,16):(16,1), (4,8))"',
            "CuTe's operations by name: each row is one place in a tile of 4 by 8, each column one of the tiles.",
        ),
        Exhibit(
            "layout_tv",
            '--layout "((4,8),(2,2)):((32,1),(16,8))" --tv 16,8 --thread 5',
            "Any layout as a thread-value layout: here the accumulators of `mma.m16n8k16`, those of thread 5 dark.",
        ),
    ),
    "The tiled MMA": (
        Exhibit(
            "mma",
            "sm80_hgemm_tn mma --thread 0 --arch sm_80",
            "A to the left of C, B above it. Each element with the thread that holds it and in which of its values; "
            "the dark ones are one thread's.",
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
            "On the left which thread copies which 16 bytes, on the right where one warp's `cp.async` land. Shared "
            "memory serves 16 bytes a lane in phases of 8 lanes; in each phase every lane has banks of its own. Below "
            "on the left the sectors of global memory that the warp's request touches, and the lanes that want them.",
        ),
    ),
    "From shared memory to registers": (
        Exhibit(
            "s2r",
            "sm80_hgemm_tn s2r --thread 0 --arch sm_80",
            "The four phases of one `ldmatrix.x4`: which lane addresses which row, and in which banks it lies; then "
            "which thread receives each element. Both differ: a lane addresses a row for others.",
        ),
        Exhibit(
            "s2r_no_swizzle",
            "docs/no_swizzle.toml s2r --thread 0 --arch sm_80",
            "The same load from a tile without a swizzle, `docs/no_swizzle.toml`. All rows of a phase lie in the "
            "same banks: the red ones wait, and a load takes 32 wavefronts instead of 4.",
        ),
        Exhibit(
            "s2r_transposed",
            "sm80_bf16_nn s2r --thread 0 --arch sm_80",
            "An A that is contiguous along M: `ldmatrix.trans` reads rows of it, and thread and value are transposed.",
        ),
    ),
    "The epilogue": (
        Exhibit(
            "epilogue",
            "sm80_hgemm_tn epilogue --arch sm_80",
            "C on its way through shared memory, so that each thread stores 16 bytes that are contiguous in global "
            "memory: the writes of a warp's sums, then its reads and its request to global memory.",
        ),
    ),
    "Specs beside each other": (
        Exhibit(
            "compare",
            "sm80_hgemm_tn cute_tutorial_tn --arch sm_80 --no-time",
            "What two specs decide otherwise, and what it costs.",
            verb="compare",
        ),
    ),
    "The pipeline": (
        Exhibit(
            "pipeline",
            "sm80_hgemm_tn pipeline --arch sm_80",
            "The main loop as the kernel runs it, with three stages. While the tensor cores multiply one k-block, "
            "the next one is loaded to registers, and two k-tiles are on their way from global memory.",
        ),
        Exhibit(
            "pipeline_two_stages",
            "sm80_bf16_nn pipeline --arch sm_80",
            "With two stages a k-tile has less time to arrive: it is waited for four k-blocks after it was sent "
            "for, not eight.",
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
