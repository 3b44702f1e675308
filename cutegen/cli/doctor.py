"""`cutegen doctor`: what this machine has, and what will and will not work on it."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from cutegen.build import Cache, dsl_distributions, find_nvdisasm
from cutegen.cli.options import JsonOption, OutOption
from cutegen.cli.output import Answer
from cutegen.errors import CutegenError, DeviceError
from cutegen.hardware import TARGETS
from cutegen.hardware.targeting import choose_target, present_target
from cutegen.run.driver import load_driver
from cutegen.support.words import aligned
from cutegen.verify.reference import require_torch_gpu


@dataclass(frozen=True, slots=True)
class Finding:
    """One prerequisite; `ok` is False if something will not work without it."""

    name: str
    ok: bool
    found: str


@dataclass(frozen=True, slots=True)
class Ability:
    """One task, and whether it will work here; if not, `why` says what is missing."""

    what: str
    works: bool
    why: str


def doctor(out: OutOption = None, json: JsonOption = False) -> None:
    """Shows what this machine can do: CuTe DSL, driver, GPU, targets, cache. Exit 0 even if something is missing."""
    answer = Answer.asked(json=json, out=out)
    findings = _findings()
    abilities = _abilities({finding.name: finding for finding in findings})
    answer.give(
        lambda: {"findings": [asdict(x) for x in findings], "abilities": [asdict(x) for x in abilities]},
        lambda: _lines(findings, abilities),
    )


def _lines(findings: Sequence[Finding], abilities: Sequence[Ability]) -> list[str]:
    lines = ["This machine", *aligned([(x.name, "ok" if x.ok else "no", x.found) for x in findings])]
    rows = [(x.what, "yes" if x.works else "no", x.why) for x in abilities]
    return [*lines, "", "What will work here", *aligned(rows)]


def _findings() -> list[Finding]:
    from_probes = [_probe(name, probe) for name, probe in _PROBES.items()]
    return [Finding("python", True, platform.python_version()), *from_probes]


def _probe(name: str, probe: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, probe())
    except CutegenError as error:
        return Finding(name, False, str(error))
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed")


def _dsl() -> str:
    found = dsl_distributions()
    if not found:
        raise metadata.PackageNotFoundError
    return ", ".join(found)


def _driver() -> str:
    version = load_driver().call("cuDriverGetVersion")
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _gpus() -> str:
    try:
        driver = load_driver()
    except DeviceError as error:
        raise DeviceError("not checked without a driver") from error
    names, capabilities = [], []
    for ordinal in range(driver.call("cuDeviceGetCount")):
        capabilities.append(driver.compute_capability(ordinal))
        major, minor = capabilities[-1]
        names.append(f"cuda:{ordinal} {driver.device_name(ordinal)} (sm_{major}{minor})")
    if not names:
        raise DeviceError("none is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES")
    if not any(target.compute_capability in capabilities for target in TARGETS.values()):
        raise DeviceError(f"{', '.join(names)}, for which no kernel can be compiled; targets: {', '.join(TARGETS)}")
    return ", ".join(names)


def _torch() -> str:
    version = metadata.version("torch")
    if present_target() is not None:  # importing torch takes seconds, and matters only with a GPU
        try:
            require_torch_gpu()
        except DeviceError as error:
            raise DeviceError(f"{version}: {error}") from error
    return version


def _cache() -> str:
    info = Cache.from_environment().info()
    state = "" if info.writable else ", not writable"
    return f"{info.directory}: {info.entries} entries, {info.size_bytes:,} of {info.size_limit_bytes:,} bytes{state}"


_PROBES: dict[str, Callable[[], str]] = {
    "cutegen": lambda: metadata.version("cutegen"),
    "CuTe DSL": _dsl,
    "nvdisasm": find_nvdisasm,
    "cuda-python": lambda: metadata.version("cuda-python"),
    "driver": _driver,
    "GPU": _gpus,
    "torch": _torch,
    "targets": lambda: f"{', '.join(TARGETS)}; default here {choose_target().name}",
    "cache": _cache,
}


_NEEDS: dict[str, tuple[str, ...]] = {
    "list, show, plan, emit, compare": (),
    "run and check of a PTX file": (),
    "build and pack, for any target": ("CuTe DSL",),
    "run, probe and report on the CPU": ("CuTe DSL",),
    "run, probe and report on a GPU": ("CuTe DSL", "cuda-python", "driver", "GPU", "torch"),
    "bench and tune, times of compare": ("CuTe DSL", "cuda-python", "driver", "GPU", "torch"),
    "kernel(a, b) of an artifact on a GPU": ("cuda-python", "driver", "GPU"),
    "matmul of PyTorch's tensors on a GPU": ("CuTe DSL", "cuda-python", "driver", "GPU", "torch"),
    "emit --what sass": ("CuTe DSL", "nvdisasm"),
}
"""Tasks, each with the prerequisites that it needs."""


def _abilities(found: dict[str, Finding]) -> list[Ability]:
    missing = {what: [name for name in needs if not found[name].ok] for what, needs in _NEEDS.items()}
    return [Ability(what, not names, f"needs {_listed(names)}" if names else "") for what, names in missing.items()]


def _listed(names: list[str]) -> str:
    """Return what is missing, in words."""
    words = [f"a {name}" if name in ("driver", "GPU") else name for name in names]
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
