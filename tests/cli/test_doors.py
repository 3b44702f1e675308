"""The public face: what `import cutegen` offers, what it must not drag in, and how the target is chosen."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cutegen
from cutegen.build import Cache
from cutegen.errors import RequestError
from cutegen.hardware import targeting

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
        "import cutegen, cutegen.plan.rules.mma",
        "import cutegen.plan.rules.mma, cutegen",
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


@pytest.mark.dsl
def test_compile_finds_what_it_built(tmp_path: Path) -> None:
    spec, cache = cutegen.load_spec("sm80_hgemm_tn"), Cache(tmp_path)
    first = cutegen.compile(spec, "sm_80", cache=cache)
    again = cutegen.compile(spec, "sm_80", cache=cache)
    assert (first.artifact.hit, again.artifact.hit) == (False, True)
    assert first.artifact.key == again.artifact.key
    assert again.contract.threads == 128


class FakeNvml:
    """A management library with one GPU of some compute capability; a call named in `failing` fails."""

    def __init__(self, capability: tuple[int, int], failing: str = "") -> None:
        self.capability, self.failing, self.open = capability, failing, 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return int(self.failing == "init")

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: object) -> int:
        return int(self.failing == "handle")

    def nvmlDeviceGetCudaComputeCapability(self, device: object, major: object, minor: object) -> int:
        for pointer, value in zip((major, minor), self.capability, strict=True):
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value  # type: ignore[arg-type]
        return int(self.failing == "capability")


@pytest.fixture
def forgetful() -> Iterator[None]:
    """The present GPU is asked for anew, before and after."""
    targeting.present_target.cache_clear()
    yield
    targeting.present_target.cache_clear()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(
    ("nvml", "target"),
    [
        (FakeNvml((9, 0)), "sm_90"),
        (FakeNvml((8, 6)), "sm_86"),
        (FakeNvml((7, 5)), "sm_80"),
        (FakeNvml((9, 0), "init"), "sm_80"),
        (FakeNvml((9, 0), "handle"), "sm_80"),
        (FakeNvml((9, 0), "capability"), "sm_80"),
    ],
)
def test_the_default_target_is_the_present_gpus(nvml: FakeNvml, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nvml)
    assert targeting.choose_target().name == target
    assert cutegen.plan(cutegen.load_spec("sm80_bf16_nn")).target.name == target
    assert nvml.open == int(nvml.failing == "init")


@pytest.mark.usefixtures("forgetful")
def test_without_a_driver_it_is_sm_80(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert targeting.present_target() is None
    assert targeting.choose_target().name == "sm_80"


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(RequestError, match="sm_99 is not supported, the nearest is sm_90"):
        targeting.choose_target("99")


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
