"""The compiler's process: what it sees of the environment, and where its modules come from."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from cutegen.build import BuildRequest, Cache, build
from cutegen.build.request import COMPILE_OPTIONS, module_paths

MakeRequest = Callable[..., BuildRequest]
ROOT = Path(__file__).parents[2]

# What a person's settings may be that change how Python starts, what it imports or what the compiler does.
SETTINGS = {
    "PYTHONSTARTUP": "{folder}/startup.py",
    "PYTHONINSPECT": "1",
    "PYTHONHOME": "/nowhere",
    "PYTHONWARNINGS": "error",
    "PYTHONOPTIMIZE": "2",
    "PYTHONVERBOSE": "1",
    "PYTHONUSERBASE": "{folder}",
    "PYTHONPLATLIBDIR": "{folder}",
    "CUTE_DSL_LINEINFO": "1",
    "CUTE_DSL_DUMP_DIR": "{folder}",
    "CUDA_HOME": "{folder}",
    "CUDA_PATH": "{folder}",
    "CUDA_TOOLKIT_PATH": "{folder}",
    "LLVM_OVERRIDE_PRODUCER": "{folder}",
    "LD_PRELOAD": "",
    "HOME": "{folder}",
    "XDG_CACHE_HOME": "{folder}",
    "LC_ALL": "C",
    "UNRELATED": "1",
}
MODULES = ("sitecustomize", "usercustomize", "numpy", "cutlass", "json", "os", "typing_extensions", "torch")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules that leave a mark when anybody imports them."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in (*MODULES, "startup"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'marks')!r}, 'a').write({name + ' '!r})\n")
    return folder


def seen_by_the_child(stand_in: MakeRequest, cache: Cache, tmp_path: Path, expression: str) -> object:
    """What `expression` is in the compiler's process."""
    seen = tmp_path / "seen"
    build(stand_in(f"import os, sys; Path({str(seen)!r}).write_text(repr({expression}))"), cache)
    return eval(seen.read_text())


def test_the_environment_is_ours_and_nothing_else(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value.format(folder=tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    found = seen_by_the_child(stand_in, cache, tmp_path, "(dict(os.environ), os.getcwd())")
    assert isinstance(found, tuple)
    environment, folder = found
    assert Path(folder).parent == temporary_files
    options = dict(option.split("=", 1) for option in COMPILE_OPTIONS)
    assert environment == {
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/somewhere",
        "CUTE_DSL_ARCH": "sm_80",
        "CUTE_DSL_SHOW_STACKTRACE": "1",
        **options,
    }


@pytest.mark.dsl
def test_modules_of_the_current_folder_and_startup_files_have_no_influence(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value.format(folder=hostile))
    monkeypatch.chdir(hostile)
    monkeypatch.setattr(sys, "path", ["", str(hostile), ".", *sys.path])
    expression = "[__import__(name).__file__ for name in ('numpy', 'cutlass', 'json', 'os')]"
    found = seen_by_the_child(stand_in, cache, tmp_path, expression)
    assert isinstance(found, list)
    assert [path for path in found if str(hostile) in path] == []
    assert not (tmp_path / "marks").exists()


def test_what_the_interpreters_own_packages_run_at_its_start_is_not_run(
    stand_in: MakeRequest, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment with a sitecustomize and a .pth file, which every Python there runs."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    mark = f"open({str(tmp_path / 'marks')!r}, 'a').write('x')\n"
    (packages / "sitecustomize.py").write_text(mark)
    (packages / "x.pth").write_text(f"import sys; {mark}")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-c", ""], check=True, env={})
    (tmp_path / "marks").unlink()  # it is there: the environment runs them
    monkeypatch.setattr(sys, "executable", str(python))
    flags = seen_by_the_child(stand_in, cache, tmp_path, "(sys.flags.isolated, sys.flags.no_site)")
    assert flags == (1, 1)
    assert not (tmp_path / "marks").exists()


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize", "json", "os"])
def test_a_folder_of_pythonpath_shadows_neither_python_nor_its_start(
    name: str, stand_in: MakeRequest, cache: Cache, tmp_path: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PYTHONPATH names is handed over, behind Python's own modules, and without any that run by themselves."""
    monkeypatch.setenv("PYTHONPATH", str(hostile))
    monkeypatch.setattr(sys, "path", [str(hostile), *sys.path])
    found = seen_by_the_child(stand_in, cache, tmp_path, f"({str(hostile)!r} in sys.path, {name!r} in sys.modules)")
    assert found == (True, name == "os")
    assert not (tmp_path / "marks").exists()


def test_the_script_and_the_current_folder_count_only_where_pythonpath_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    here, script, packages = (str(tmp_path / name) for name in ("here", "script", "packages"))
    for folder in (here, script, packages):
        os.mkdir(folder)
    monkeypatch.chdir(here)
    monkeypatch.setattr(main, "__file__", f"{script}/main.py", raising=False)
    monkeypatch.setattr(sys, "path", [script, "", ".", "relative", here, packages, packages])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert module_paths() == (packages,)
    monkeypatch.setenv("PYTHONPATH", f"{here}:{script}")
    assert module_paths() == (script, here, packages)
    os.rmdir(here)
    assert script in module_paths()


@pytest.mark.dsl
def test_an_unpacked_dsl_on_pythonpath_compiles(tmp_path: Path) -> None:
    """A Python that has nothing installed, and everything on PYTHONPATH, the current folder among it."""
    site = str(metadata.distribution("nvidia-cutlass-dsl").locate_file(""))
    paths = [str(ROOT), site, f"{site}/nvidia_cutlass_dsl/dsl_packages"]
    done = subprocess.run(
        [Path(sys.base_prefix, "bin", "python3"), "-S", "-m", "cutegen", "build", "sm80_hgemm_tn", "--arch", "sm_80"],
        env={"PYTHONPATH": os.pathsep.join(paths), "CUTEGEN_CACHE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "miss, compiled" in done.stdout
