"""Templates and layouts are found beside the package and inside a wheel."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cutegen.errors import OutsideError
from cutegen.support import resources

REPOSITORY = Path(__file__).parents[2]


def test_beside_the_package() -> None:
    assert resources.layouts_dir() == REPOSITORY / "layouts"
    assert resources.templates_dir() == REPOSITORY / "templates"


def test_package_data_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "cutegen")
    (tmp_path / "layouts").mkdir()
    assert resources.layouts_dir() == tmp_path / "layouts"
    (tmp_path / "cutegen" / "_data" / "layouts").mkdir(parents=True)
    assert resources.layouts_dir() == tmp_path / "cutegen" / "_data" / "layouts"


def test_a_broken_installation_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "cutegen")
    with pytest.raises(OutsideError, match=r"layouts/ is missing: looked for .*_data.* or "):
        resources.layouts_dir()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling, which builds the wheel")
def test_a_wheel_carries_templates_and_layouts(tmp_path: Path) -> None:
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    page = REPOSITORY / "cutegen" / "show" / "page"
    shipped = {path.name for path in (installed / "cutegen" / "show" / "page").iterdir()}
    assert {path.name for path in page.iterdir() if path.suffix in (".js", ".css")} <= shipped
    imports = "from cutegen import spec; from cutegen.support import resources"
    ask = f"{imports}; print(resources.layouts_dir(), *spec.shipped_specs())"
    answer = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert answer == [
        str(installed / "cutegen" / "_data" / "layouts"),
        *sorted(p.stem for p in REPOSITORY.glob("layouts/*.toml")),
    ]
    assert any((installed / "cutegen" / "_data" / "templates").iterdir())
