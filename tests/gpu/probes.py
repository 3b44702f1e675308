"""Runs prebuilt probes on the GPU and holds every register against the fragments that its MMA wants.

    python -m tests.gpu.probes OUT_DIR [--device cuda]

OUT_DIR is what `python -m tests.gpu.prebuild OUT_DIR --probes` leaves. Prints a line for each atom and repetition, and
for each wrong probe; exits 1 when there is one, or none at all.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cutegen.hardware import MMA_ATOMS
from cutegen.plan import ProbePlan, plan
from cutegen.run import Probe
from cutegen.verify.probes import check_registers
from tests.gpu.prebuild import PROBES
from tests.plan.probes import REPEATS, matrix


def main() -> int:
    """0 when every register of every probe is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    framework = "torch" if arguments.device == "cuda" else "numpy"
    start, wrong, ran, registers = time.monotonic(), 0, 0, 0
    for atom in MMA_ATOMS:
        for repeat in REPEATS:
            specs, before = matrix(atom, repeat), registers
            for spec in specs:
                probe = Probe.open(arguments.out_dir / PROBES / spec.name)
                planned = plan(spec, probe.artifact.manifest.inputs.gpu_arch)
                assert isinstance(planned, ProbePlan)
                received = check_registers(planned, probe, seed=ran, framework=framework, device=arguments.device)
                ran, registers = ran + 1, registers + sum(each.agreeing for each in received)
                for each in received:
                    if not each.ok:
                        wrong += 1
                        print(f"{spec.name}: {each}")
            print(
                f"{atom}, N repeated {repeat} times: {len(specs)} probes, {registers - before:,} registers as predicted"
            )
    print(f"{ran} probes, {registers:,} registers as predicted, {wrong} wrong, {time.monotonic() - start:.0f} s")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
