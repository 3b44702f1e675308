"""Compiles the kernel.py of each folder: `python compile_many.py GPU_ARCH FOLDER...`. The CuTe DSL is imported once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cutegen.build.child import load, set_compiler_options
from cutegen.build.request import COMPILE_OPTIONS


def main() -> None:
    gpu_arch, *folders = sys.argv[1:]
    os.environ["TMPDIR"] = folders[0]
    set_compiler_options([*COMPILE_OPTIONS, f"CUTE_DSL_ARCH={gpu_arch}"])
    for folder in map(Path, folders):
        artifacts = load(folder / "kernel.py").compile_kernel(gpu_arch).artifacts
        (folder / "kernel.ptx").write_text(artifacts.PTX, encoding="utf-8")
        (folder / "kernel.cubin").write_bytes(artifacts.CUBIN)


if __name__ == "__main__":
    main()
