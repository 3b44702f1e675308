"""The measuring process: `python -m cutegen.tune.child DESCRIPTOR` reads one job per line and reports its results.

It serves many jobs, since CUDA takes a second to start, and is replaced when a candidate hangs, crashes or leaves CUDA
unusable; the parent knows which candidate was running. Results go to DESCRIPTOR, since any code may write to stdout.
"""

import json
import os
import select
import sys
import threading
from dataclasses import asdict
from typing import Any

from cutegen.support.typed_json import parse, read
from cutegen.tune.jobs import MeasureJob

FATAL = 75
"""Exit code that says CUDA is unusable and a fresh process can continue."""


def main(arguments: list[str]) -> int:
    """Serve jobs until stdin ends or the parent is killed."""
    descriptor = int(arguments[0])
    threading.Thread(target=_end_with_reader, args=(descriptor,), daemon=True).start()
    with os.fdopen(descriptor, "wb", buffering=0) as answers:

        def say(message: dict[str, Any]) -> None:
            answers.write(json.dumps(message).encode() + b"\n")

        for line in sys.stdin.buffer:
            job = read(MeasureJob, parse(line, "job"), "job")
            say(_started(job))
            try:
                if job.timer.kind == "stand-in":
                    from cutegen.tune.stand_in import measure
                else:
                    from cutegen.tune.gpu_timer import measure
                measure(job, say)
            except Exception as error:  # a CUDA error is torch's RuntimeError, and no later call would succeed
                say({"say": "fatal", "why": f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"})
                return FATAL
            _release(job)
    return 0


def _end_with_reader(answers: int) -> None:
    """End when nobody can read `answers` any more: another process measures its problem again, possibly on this GPU."""
    waiting = select.poll()
    waiting.register(answers, 0)  # POLLERR, of a pipe without a reader, is always reported
    waiting.poll()
    os._exit(FATAL)


def _started(job: MeasureJob) -> dict[str, Any]:
    """Return the message with the GPU and the versions."""
    from cutegen.bench.conditions import versions
    from cutegen.tune.conditions import PACKAGES, present_device

    device = {"name": "stand-in"} if job.timer.kind == "stand-in" else asdict(present_device())
    return {"say": "started", "device": device, "versions": list(versions(PACKAGES).items())}


def _release(job: MeasureJob) -> None:
    """Free a job's operands before the next job allocates its own."""
    if job.timer.kind == "gpu":
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
