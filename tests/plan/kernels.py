"""Kernels built from specs, and their PTX executed on the CPU with all its counters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.contract.launch import CallSize, LaunchContract, Strides
from cutegen.contract.problem import ProblemShape
from cutegen.ptx import LaunchReport, Program
from cutegen.run.cpu import MULTIPROCESSORS, tensor_maps
from cutegen.spec import GemmSpec
from cutegen.verify.reference import bf16_bits

Build = Callable[..., Artifact]


def builder(cache: Cache) -> Build:
    """A function from a spec to its artifact."""

    def make(spec: GemmSpec, arch: str = "sm_80") -> Artifact:
        return build(build_request(spec, arch), cache)

    return make


def execute(artifact: Artifact, contract: LaunchContract, m: int, n: int, k: int) -> LaunchReport:
    """One launch on compact operands of random data; `m`, `n` and `k` suit the alignment."""
    extents = {"m": m, "n": n, "k": k}
    random = np.random.default_rng(m + n + k)
    arrays, strides = [], {}
    for tensor in contract.tensors:
        inner = extents[tensor.major]
        values = random.standard_normal(extents[tensor.modes[0]] * extents[tensor.modes[1]], np.float32)
        kinds = {"f16": np.float16, "f32": np.float32}
        arrays.append(bf16_bits(values) if tensor.dtype == "bf16" else values.astype(kinds[tensor.dtype]))
        strides[tensor.name] = Strides(inner)
    size = CallSize(problem=ProblemShape(m, n, k), strides=strides)
    geometry = contract.geometry(size.problem, multiprocessors=MULTIPROCESSORS)
    return Program.parse(artifact.ptx).launch(
        contract.entry,
        grid=geometry.grid,
        block=geometry.block,
        args=contract.arguments(tuple(arrays), (), size, tensor_maps(contract, tuple(arrays), size)),
        dynamic_smem_bytes=geometry.dynamic_smem_bytes,
    )
