"""Run a pack's kernels on the CPU in a fresh environment of requirements-run.txt and a wheel of cutegen.

    python scripts/run_only.py model.cutepack

Print what was installed, its size, and the error of the results against float64. This needs hatchling, which builds the
wheel, and pip.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements-run.txt"

INSIDE = """
import json, sys
from importlib import metadata
import numpy as np
import cutegen

TYPES = {"f16": np.float16, "f32": np.float32, "s8": np.int8, "s32": np.int32}
worst, ran = 0.0, []
with cutegen.load_pack(sys.argv[1]) as pack:
    for entry in pack.entries:
        kernel = pack.open(entry)
        random = np.random.default_rng()
        a, b = (random.integers(-4, 5, shape).astype(TYPES[t.dtype])
                for shape, t in zip(((48, 64), (32, 64)), kernel.contract.operands))
        out = np.full((48, 32), 77).astype(TYPES[kernel.contract.tensor("c").dtype])
        kernel(a, b.T, out=out)
        exact = a.astype(np.float64) @ b.T.astype(np.float64)
        worst = max(worst, float(np.abs(out - exact).max() / np.abs(exact).max()))
        ran.append(str(entry))
    a, b = (np.random.default_rng().integers(-4, 5, (16, 32)).astype(np.float16) for _ in "ab")
    called = bool((cutegen.matmul(a, b.T) == a.astype(np.float64) @ b.T).all())
try:
    cutegen.plan("sm80_hgemm_tn")
    planner = ""
except ImportError as error:
    planner = str(error)
print(json.dumps({
    "ran": ran,
    "called": called,
    "worst": worst,
    "planner": planner,
    "installed": sorted(d.metadata["Name"] for d in metadata.distributions()),
    "imported": sorted({name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)),
}))
"""
"""The program that runs in the environment. A and B are K-major integers whose products are exact in their types."""


def make_environment(folder: Path) -> Path:
    """Install the run-only set and this cutegen into a new environment in `folder`, and return its interpreter."""
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    _run([sys.executable, "-c", build, str(folder)], cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")])
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "--no-deps", "--requirement", str(REQUIREMENTS), str(wheel)])
    return python


def run_pack(python: Path, pack: Path) -> dict[str, Any]:
    """Call each kernel of `pack` with that interpreter, isolated, and return what it prints, and the sizes in bytes."""
    said = _run([str(python), "-I", "-c", INSIDE, str(pack)], cwd=python.parent)
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    sizes = {entry.name: _size_bytes(entry) for entry in packages.iterdir()}
    return {**json.loads(said.splitlines()[-1]), "bytes": sum(sizes.values()), "pack_bytes": pack.stat().st_size}


def summary(found: dict[str, Any]) -> str:
    """Return a summary in one line."""
    installed = ", ".join(found["installed"])
    return (
        f"{len(found['ran'])} kernels ran, {found['worst']:.1e} from float64 at most; "
        f"{found['bytes'] / 1e6:,.0f} MB in site-packages ({installed}), {found['pack_bytes'] / 1e6:.1f} MB of pack"
    )


def _size_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:6])} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Parse the arguments, run the pack and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path, help="GEMMs with K-major A and B of f16, f32 or s8; one must be all f16")
    pack = parser.parse_args().pack.resolve()
    with tempfile.TemporaryDirectory() as folder:
        print(summary(run_pack(make_environment(Path(folder)), pack)))


if __name__ == "__main__":
    main()
