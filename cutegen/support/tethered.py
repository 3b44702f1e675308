"""Runs a command that ends, with the processes it starts, when the caller ends, whatever ends the caller.

A killed process cannot end its children, but the kernel closes its end of a pipe. `python tethered.py DESCRIPTOR
COMMAND...` becomes the command, in a process group of its own; a watcher waits at the other end of the pipe and then
kills the group.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress


def run_tethered(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Return the output and the exit status of `command`. Raises OSError."""
    tether, held = os.pipe()
    try:
        words = [sys.executable, "-I", "-S", __file__, str(tether), *command]
        return subprocess.run(words, capture_output=True, text=True, check=False, pass_fds=(tether,))
    finally:
        os.close(held)  # what the command left behind ends, too
        os.close(tether)


def main(arguments: Sequence[str]) -> None:
    """Become the command."""
    tether, command = int(arguments[0]), arguments[1:]
    os.set_inheritable(tether, False)
    os.setpgid(0, 0)
    group = os.getpid()
    if os.fork() == 0:
        _watch(tether, group)
    os.execvp(command[0], list(command))


def _watch(tether: int, group: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # the caller reads the command's output to its end
        os.dup2(nothing, stream)
    os.read(tether, 1)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
