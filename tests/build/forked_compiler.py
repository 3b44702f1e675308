"""The compiler's process, started once and forked for each kernel: importing the CuTe DSL is half of a compilation.

`python -m tests.build.forked_compiler`: each line on stdin is a JSON list, a folder and then the arguments of
`cutegen/build/child.py`, which runs there as ever. Its exit status is answered on stdout, one line each.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback

from cutegen.build import child
from cutegen.build.request import COMPILE_OPTIONS


def main() -> None:
    """Answer until stdin ends."""
    child.set_compiler_options([*COMPILE_OPTIONS])  # the DSL reads some of them when it is imported
    gc.disable()  # as child.py does, and before what all forks share is looked at by each
    import cutlass.cute  # noqa: F401

    for line in sys.stdin:
        directory, *arguments = json.loads(line)
        if (pid := os.fork()) == 0:
            compile_in(directory, arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def with_options(arguments: list[str]) -> None:
    """The DSL has read its settings when it was imported: the one that is not the same for all kernels is told it."""
    from cutlass.cutlass_dsl import CuTeDSL

    for option in arguments:
        name, _, value = option.partition("=")
        if name == "CUTE_DSL_COMPILER_OPT":
            CuTeDSL._get_dsl().envar.compiler_opt = value


def compile_in(directory: str, arguments: list[str]) -> None:
    """What a process of its own would do, to the end of the process."""
    status = 1
    try:
        os.chdir(directory)
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else log, stream)
        sys.argv = ["child.py", str(os.getppid()), *arguments]
        with_options(arguments)
        child.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
