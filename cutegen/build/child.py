"""Compiles one generated kernel:
`python -I -S child.py PARENT KERNEL_PY GPU_ARCH LIMIT_S NAME=VALUE... [-- MODULE_PATH...]`.

The CuTe DSL can abort its process, so it gets a separate one, which ends with the process PARENT that started it. This
file imports nothing of cutegen: the process starts as fast as Python does. Modules come only from Python itself and
from the given paths. It writes `kernel.ptx` and `kernel.cubin` to the current directory.
"""

import ctypes
import gc
import importlib.util
import os
import resource
import signal
import sys
from pathlib import Path
from types import ModuleType

PR_SET_PDEATHSIG = 1
"""Constant of linux/prctl.h."""


def main() -> None:
    """Compile as the arguments request; any failure is an exception, and so a traceback and exit status 1."""
    gc.disable()  # a process of seconds, which frees everything at its end
    (parent, kernel_py, gpu_arch, limit_s, *options), paths = split(sys.argv[1:])
    end_with_parent(int(parent))
    sys.path.extend(path for path in paths if path not in sys.path)
    signal.alarm(int(limit_s))  # the parent may be stopped, and then cannot end us
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TMPDIR"] = os.getcwd()  # the DSL makes a folder there as soon as it is imported
    set_compiler_options([*options, f"CUTE_DSL_ARCH={gpu_arch}", "CUTE_DSL_SHOW_STACKTRACE=1"])
    artifacts = load(Path(kernel_py)).compile_kernel(gpu_arch).artifacts
    Path("kernel.ptx").write_text(artifacts.PTX, encoding="utf-8")
    Path("kernel.cubin").write_bytes(artifacts.CUBIN)


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process with the thread of `parent` that waits for it, whatever ends that.

    No thread could watch here: the compiler holds Python's lock for seconds.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and after `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def set_compiler_options(options: list[str]) -> None:
    """Make `options` the only CUTE_DSL_* variables: a user's debugging switch must not affect a cached kernel."""
    for name in [name for name in os.environ if name.startswith("CUTE_DSL_")]:
        del os.environ[name]
    for option in options:
        name, _, value = option.partition("=")
        os.environ[name] = value


def load(kernel_py: Path) -> ModuleType:
    """Import the generated file."""
    spec = importlib.util.spec_from_file_location("kernel", kernel_py)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel"] = module  # the DSL finds a function's source through its module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
