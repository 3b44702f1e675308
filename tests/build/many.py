"""Many kernels built at the price of one start of the compiler."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cutegen.build import Artifact, BuildRequest, Cache
from cutegen.build.builder import inspect_output
from cutegen.build.compiler import CompilerOutput

_SCRIPT = Path(__file__).with_name("compile_many.py")


def build_many(requests: Sequence[BuildRequest], cache: Cache, *, timeout_s: float = 300.0) -> list[Artifact]:
    """The artifact of each request, all for one target: from the cache, or compiled in one child process.

    What comes out is inspected as `cutegen.build.build` does it.
    """
    found = {request.inputs.key: cache.lookup(request) for request in requests}
    missing = {request.inputs.key: request for request in requests if found[request.inputs.key] is None}
    with tempfile.TemporaryDirectory() as directory:
        folders = {key: Path(directory) / key for key in missing}
        for key, request in missing.items():
            folders[key].mkdir()
            (folders[key] / "kernel.py").write_text(request.source.text, encoding="utf-8")
        if missing:
            (gpu_arch,) = {request.target.gpu_arch for request in missing.values()}
            command = [sys.executable, str(_SCRIPT), gpu_arch, *map(str, folders.values())]
            # The DSL leaves files named after signatures in the current folder, which two builds must not share.
            done = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            assert done.returncode == 0, done.stderr[-4000:]
        for key, request in missing.items():
            output = CompilerOutput(*((folders[key] / name).read_bytes() for name in ("kernel.ptx", "kernel.cubin")))
            found[key] = cache.publish(inspect_output(request, output))
    artifacts = [found[request.inputs.key] for request in requests]
    return [artifact for artifact in artifacts if artifact is not None]
