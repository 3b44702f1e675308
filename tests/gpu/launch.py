"""Launches prebuilt kernels once each on random data and checks every element, under ncu or compute-sanitizer.

python -m tests.gpu.launch ARTIFACT_DIR ... --problem M,N,K [--problem M,N,K ...]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome, random_extras, random_operands


def main() -> int:
    """0 when every result is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--problem", action="append", required=True, help="M,N,K")
    arguments = parser.parse_args()
    wrong = 0
    for path in arguments.artifacts:
        kernel = Kernel.open(path)
        for problem in arguments.problem:
            m, n, k = map(int, problem.split(","))
            a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k, framework="torch", device="cuda")
            torch.cuda.synchronize()
            extras = random_extras(kernel.contract, m, n, seed=m + n + k, framework="torch", device="cuda")
            kernel(a, b, out=out, **extras)
            torch.cuda.synchronize()
            expected = expected_outcome(kernel.contract, a, b, extras, accumulator=accumulator(kernel))
            found = compare(out, expected.result, dtype=kernel.contract.tensor("c").dtype)
            wrong += not found.ok
            print(f"{path.name} {problem}: {'right' if found.ok else 'WRONG'}, relative error {found.rel_error:.2e}")
    return 1 if wrong else 0


def accumulator(kernel: Kernel) -> str:
    """The accumulator's type, which the plan names."""
    return str(json.loads(kernel.artifact.plan_json)["mma"]["accumulator"])


if __name__ == "__main__":
    sys.exit(main())
