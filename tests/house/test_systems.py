"""docs/systems/ maps published kernels to specs: every key, value and printed line there is the spec's own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cutegen.spec import load_spec, shipped_specs
from cutegen.spec.file import spec_path
from tests.house.documents import ROOT, Transcript, fences, inline_code, transcripts
from tests.house.replay import compare, execute, printed, replay

FOLDER = ROOT / "docs" / "systems"
PAGES = {path.stem: path for path in sorted(FOLDER.glob("*.md")) if path.name != "README.md"}
KERNEL = "\n".join(path.read_text() for path in sorted((ROOT / "benchmarks" / "wmma").glob("wmma_gemm.*")))
WMMA = "wmma_padded_256x128x32"
TWINS = {
    f"{WMMA}_f32": WMMA,
    "cute_tutorial_nt": "cute_tutorial_tn",
    "simt_sgemm_tn": "simt_sgemm_nt",
    "cutlass_hopper_pingpong": "cutlass_hopper_cooperative",
}
TABLES = ("problem", "tile", "mma", "smem", "g2s", "s2r", "epilogue", "schedule")


def keys(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The keys of a spec one level below its tables, such as problem.a and tile.cta."""
    for name, value in table.items():
        if isinstance(value, dict) and not prefix:
            yield from keys(value, f"{name}.")
        elif prefix:
            yield prefix + name, value


def written(name: str) -> dict[str, object]:
    """What the spec's file says."""
    return dict(keys(tomllib.loads(spec_path(name).read_text())))


def mapped(name: str) -> dict[str, object]:
    """What the page says that the file says: every `key = value` of its prose."""
    assignments = [code for code in inline_code(PAGES[name]) if re.match(rf"({'|'.join(TABLES)})\.\w+ = ", code)]
    assert assignments
    return {key: value for code in assignments for key, value in keys(tomllib.loads(code))}


def test_every_page_is_of_a_shipped_spec_and_in_the_index() -> None:
    index = (FOLDER / "README.md").read_text()
    assert set(PAGES) <= set(shipped_specs())
    assert [name for name in PAGES if f"| [`{name}`]({name}.md) |" not in index] == []


@pytest.mark.parametrize("name", sorted(set(PAGES) - set(TWINS)))
def test_a_page_maps_every_key_of_its_spec(name: str) -> None:
    assert mapped(name) == written(name)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_differs_in_what_its_page_says(name: str) -> None:
    mine, other = written(name), written(TWINS[name])
    assert mapped(name) == {key: value for key, value in mine.items() if value != other.get(key)}
    assert set(other) <= set(mine)


def shown(page: Path, folder: Path) -> list[Transcript]:
    """The commands whose output the page shows; the spec files that it shows are written into `folder`."""
    found = []
    for fence in fences(page):
        if fence.language == "toml":
            (folder / fence.text.splitlines()[0].removeprefix("# ")).write_text(fence.text)
        elif fence.language == "console":
            found += [transcript for transcript in transcripts(fence) if transcript.output]
    return found


def rewrite(page: Path, commands: list[Transcript]) -> None:
    """Put what is printed now in the place of each output that is shown whole."""
    for transcript in commands:
        if "...\n" not in transcript.output:
            page.write_text(page.read_text().replace(transcript.output, printed(transcript.command).rstrip() + "\n"))


@pytest.mark.dsl
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_is_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    if request.config.getoption("--update-golden"):
        rewrite(PAGES[name], shown(PAGES[name], tmp_path))
    assert sum(replay(transcript) for transcript in shown(PAGES[name], tmp_path)) >= 1


@pytest.mark.dsl
def test_python_on_a_page_prints_what_stands_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    blocks = [fence for page in PAGES.values() for fence in fences(page) if fence.language in ("python", "text")]
    assert [fence.language for fence in blocks] == ["python", "text"]
    compare(f"{blocks[1].document}:{blocks[1].line}", blocks[1].text, execute(blocks[0], {}))


def test_the_kernel_by_hand_has_the_parameters_of_the_spec() -> None:
    spec = load_spec(WMMA)
    found = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)[,;]", KERNEL)}
    assert spec.mma.atom_layout is not None
    warps_m, warps_n, _ = spec.mma.atom_layout
    assert (found["M_MULTIPLE"], found["N_MULTIPLE"], found["K_MULTIPLE"]) == spec.tile.cta
    assert (found["STAGES"], found["WARPS_N"], found["WARPS"]) == (spec.tile.stages, warps_n, warps_m * warps_n)
    assert spec.smem.a is not None
    assert spec.smem.a == spec.smem.b == spec.epilogue.smem
    assert found["PAD"] == spec.smem.a.pad
    assert spec.schedule.raster is not None
    assert found["BAND"] == spec.schedule.raster.group


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_kernel_by_hand_compiles_without_spills(tmp_path: Path) -> None:
    sources, program = sorted((ROOT / "benchmarks" / "wmma").glob("*.cu")), tmp_path / "wmma_gemm"
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra", "-o", program]
    done = subprocess.run([*command, *sources], check=True, capture_output=True, text=True)
    spills = re.findall(r"(\d+) bytes spill", done.stdout + done.stderr)
    assert spills
    assert set(spills) == {"0"}
    assert "warning" not in done.stderr
    refused = subprocess.run([program, "4096", "4095", "4096"], check=False, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr.split(":")[0]) == (2, "usage")
