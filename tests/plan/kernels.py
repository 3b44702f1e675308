"""Kernels built from specs, and their PTX executed on the CPU with all its counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.contract.launch import CallSize, LaunchContract, Strides
from cutegen.contract.problem import ProblemShape
from cutegen.ptx import LaunchReport, Program
from cutegen.run.call.storage import ENDS_NAMES
from cutegen.run.cpu import MULTIPROCESSORS, tensor_maps
from cutegen.spec import GemmSpec
from cutegen.verify.grouped import given_by
from cutegen.verify.reference import bf16_bits, random_extras, random_operands

Build = Callable[..., Artifact]


def builder(cache: Cache) -> Build:
    """A function from a spec to its artifact."""

    def make(spec: GemmSpec, arch: str = "sm_80") -> Artifact:
        return build(build_request(spec, arch), cache)

    return make


def random_call(
    contract: LaunchContract,
    problem: ProblemShape,
    sizes: Sequence[int] = (),
    *,
    seed: int,
    framework: str = "numpy",
    device: str = "cpu",
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, a poisoned C, and the other arguments of a call by name; `sizes` are those of groups, if there are any."""
    m, n, k = problem.m, problem.n, problem.k
    data: dict[str, Any] = {"seed": seed, "framework": framework, "device": device}
    data["groups"] = None if contract.groups is None else len(sizes)
    a, b, out = random_operands(contract, m, n, k, **data)
    extras = random_extras(contract, m, n, k=k, **data)
    if contract.groups is not None:
        given = given_by(contract.groups, sizes)
        extras[ENDS_NAMES[contract.groups.layout]] = given if framework == "numpy" else new_tensor(given, device)
    return a, b, out, extras


def new_tensor(values: np.ndarray, device: str) -> Any:
    """The values as a tensor of torch."""
    import torch

    return torch.from_numpy(values).to(device)


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
