"""Request to a build, and the key of its result.

The key is a SHA-256 over everything that determines the compiler's output, and nothing else: no path, no time, no log
level. Two requests with the same key have the same PTX.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields

from cutegen.contract.source import KernelSource
from cutegen.hardware import Target
from cutegen.support import environment

FORMAT_VERSION = 5

# The DSL's settings in the child process, which sees no other CUTE_DSL_* variable.
COMPILE_OPTIONS = ("CUTE_DSL_KEEP=ptx,cubin", "CUTE_DSL_DISABLE_FILE_CACHING=1")

_DISTRIBUTION = re.compile(r"(nvidia[-_.]cutlass[-_.]dsl[-_.\w]*)-([^-]+)\.(?:dist|egg)-info", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInputs:
    """The named fields of the key; the rendered text is represented by its SHA-256."""

    format_version: int
    source_sha256: str
    gpu_arch: str
    dsl_distributions: tuple[str, ...]
    compile_options: tuple[str, ...]

    @property
    def key(self) -> str:
        """The SHA-256 in hex over each field's name, value count and values, each preceded by its length."""
        digest = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            values = value if isinstance(value, tuple) else (str(value),)
            for part in (field.name, str(len(values)), *values):
                encoded = part.encode()
                digest.update(b"%d:" % len(encoded) + encoded)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A rendered kernel, its target, and the plan's expectations.

    `instructions` are the predicted static counts by full PTX opcode, as in `count_instructions`. `plan_json` is kept
    in the artifact unchanged. `mbarriers` are those of the plan's pipelines by name: their number, and the arrivals
    that each counts; None if they are not checked. `tile_is_chosen` if the plan chose the register contents, and so is
    responsible for the assembler's result. For `edited` text, differences are warnings instead of errors: its code is
    not the plan's.
    """

    source: KernelSource
    target: Target
    plan_json: str
    instructions: Mapping[str, int]
    mbarriers: Mapping[str, tuple[int, int]] | None = None
    tile_is_chosen: bool = False
    edited: bool = False

    @property
    def inputs(self) -> KeyInputs:
        """The key's fields, with the DSL distributions that are installed now."""
        return KeyInputs(
            format_version=FORMAT_VERSION,
            source_sha256=hashlib.sha256(self.source.text.encode()).hexdigest(),
            gpu_arch=self.target.gpu_arch,
            dsl_distributions=dsl_distributions(),
            compile_options=COMPILE_OPTIONS,
        )


def module_paths() -> tuple[str, ...]:
    """Return the folders and archives of `sys.path` that the compiler's process imports from, in order.

    It leaves out relative ones, the current folder and that of the script, which Python adds by itself: their files
    must not be taken for modules of the compiler. PYTHONPATH may name them nevertheless.
    """
    main_file = getattr(sys.modules.get("__main__"), "__file__", None)
    script = os.path.dirname(os.path.abspath(main_file)) if main_file else ""
    by_itself = {_current_folder(), script} - set(environment.python_path())
    return tuple(dict.fromkeys(path for path in sys.path if os.path.isabs(path) and path not in by_itself))


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def dsl_distributions() -> tuple[str, ...]:
    """Return `name==version` of every `nvidia-cutlass-dsl*` distribution in `module_paths`, sorted.

    It reads the names of the `.dist-info` folders, not their metadata: `importlib.metadata` would cost 30 ms, and the
    folder's name has both name and version (PyPA specification "Recording installed projects").
    """
    found: dict[str, str] = {}
    for directory in module_paths():
        for name in _names_in(directory):
            if match := _DISTRIBUTION.fullmatch(name):
                # The first is the imported one.
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return tuple(sorted(f"{name}=={version}" for name, version in found.items()))


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:  # a zip file, or a missing folder: sys.path may have both
        return []
