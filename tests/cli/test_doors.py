"""The public face: what `import cutegen` offers, and what it must not drag in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cutegen

SPEC = "sm80_hgemm_tn"
HEAVY = ("cutlass", "torch", "cuda", "jinja2", "cutegen.ptx", "cutegen.build", "cutegen.run")


def loaded_after(statement: str) -> set[str]:
    """Top-level and cutegen modules that a fresh interpreter has after `statement`."""
    script = f"import sys\n{statement}\nprint('\\n' + '\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    "statement",
    [
        "import cutegen; cutegen.plan(cutegen.load_spec('sm80_hgemm_tn')).explain()",
        "from cutegen.cli.main import main; main(['plan', 'sm80_hgemm_tn'])",
        "from cutegen.cli.main import main; main(['show', 'sm80_hgemm_tn', 's2r'])",
        "from cutegen.cli.main import main; main(['list', '--json'])",
    ],
)
def test_looking_needs_neither_dsl_nor_torch(statement: str) -> None:
    modules = loaded_after(statement)
    assert "cutegen.spec" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_importing_opens_no_room_and_no_package() -> None:
    modules = loaded_after("import cutegen")
    assert {name for name in modules if name.startswith("cutegen.")} == set()
    assert modules & {"numpy", "tensor_layouts", "rich", "typer", *HEAVY} == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import cutegen, cutegen.plan.mma.atoms",
        "import cutegen.plan.mma.atoms, cutegen",
        "import cutegen; cutegen.GemmPlan; import cutegen.plan",
        "import cutegen; cutegen.compile, cutegen.emit",
        "import cutegen; cutegen.errors.SpecError, cutegen.hardware.TARGETS",
    ],
)
def test_plan_is_the_function_whatever_was_imported_first(statement: str) -> None:
    loaded_after(f"{statement}; from cutegen.tuned.answer import plan; assert cutegen.plan is plan, cutegen.plan")


def test_every_public_name_is_there_and_in_order() -> None:
    assert list(cutegen.__all__) == sorted(cutegen.__all__, key=lambda name: (name[0].islower(), name))
    assert all(getattr(cutegen, name) is not None for name in cutegen.__all__)
    assert set(cutegen.__all__) <= set(dir(cutegen))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = cutegen.nothing


def test_emit_is_what_the_target_makes_of_it() -> None:
    source = cutegen.emit(cutegen.load_spec("sm80_hgemm_tn"), "sm_80")
    assert source.entry == "sm80_hgemm_tn_0"
    assert "@cute.kernel" in source.text


@pytest.mark.parametrize("spec", [SPEC, "path", "text", "spec"])
def test_plan_emit_and_compile_take_a_spec_a_name_or_a_path(spec: str, tmp_path: Path) -> None:
    path = tmp_path / f"{SPEC}.toml"
    path.write_text((Path(cutegen.load_spec(SPEC).file)).read_text())
    given = {"path": path, "text": str(path), "spec": cutegen.load_spec(SPEC)}.get(spec, SPEC)
    planned = cutegen.plan(given, arch="h100", problem=(64, 64, 64))
    assert planned.target.name == "sm_90"
    source = cutegen.emit(given, arch="h100", problem=(64, 64, 64))
    assert source == cutegen.emit(SPEC, arch="sm_90", problem=(64, 64, 64))


@pytest.mark.dsl
def test_compile_finds_one_kernel_for_a_spec_its_name_and_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    spec = cutegen.load_spec(SPEC)
    found = [cutegen.compile(given, arch=arch) for given in (spec, SPEC, Path(spec.file)) for arch in ("a100", "sm_80")]
    assert len({kernel.artifact.key for kernel in found}) == 1
    assert [kernel.artifact.hit for kernel in found] == [False] + [True] * 5


def test_without_the_packages_of_the_command_line_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['typer'] = sys.modules['tensor_layouts'] = None\n"
        "import cutegen, cutegen.__main__\n"
        "print(cutegen.__main__.main())\n"
        "try: cutegen.plan\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "the command line needs typer, which is not installed" in done.stderr
    code, why = done.stdout.splitlines()
    assert code == "3"
    assert why.startswith("cutegen.plan needs tensor_layouts, which is not installed: this installation only runs")


@pytest.mark.parametrize("name", ["Linear", "Float8Copies", "float8_linear"])
def test_without_torch_the_names_that_need_it_say_how_to_add_it(name: str) -> None:
    """A complete installation may lack torch, so they must not call it one that only runs kernels."""
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import cutegen\n"
        f"try: cutegen.{name}\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"cutegen.{name} needs torch, which is not installed: pip install 'cutegen[torch]'\n"
