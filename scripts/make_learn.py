"""Draw the pictures of docs/learn that are not in the gallery: `python scripts/make_learn.py`.

`cutegen show` draws each. A test draws them all again and compares.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from cutegen.cli.main import main as cutegen

CHAPTERS = Path(__file__).parents[1] / "docs" / "learn"
PICTURES = {
    "rows": '--layout "(4,3):(3,1)"',
    "nested": '--layout "(4,(2,4)):(2,(1,8))"',
    "one_warp": "one_warp.toml mma --thread 0 --arch sm_80",
    "interleaved": '--layout "((4,8,2),((2,2),2)):((32,1,128),((16,8),256))" --tv 16,32 --thread 0',
    "permuted": '--layout "((4,8,2),((2,2),2)):((32,1,256),((16,8),128))" --tv 16,32 --thread 0',
    "factors": '--layout "(8,(4,4)):(1,(0,8))" --dtype f32',
    "tensor_memory": "sm100_hgemm_tn tmem --thread 40 --arch sm_100",
    "pipeline_sm90": "sm90_hgemm_tn pipeline --arch sm_90",
}


def make_pictures(folder: Path) -> None:
    """Draw every picture into `folder`, with the commands of the chapters."""
    folder.mkdir(exist_ok=True)
    for name, request in PICTURES.items():
        path = folder.resolve() / f"{name}.svg"
        with contextlib.chdir(CHAPTERS):
            if code := cutegen(["show", *shlex.split(request), "--format", "svg", "--out", os.fspath(path)]):
                raise SystemExit(code)


if __name__ == "__main__":
    make_pictures(CHAPTERS / "pictures")
