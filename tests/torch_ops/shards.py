"""One of two processes: a layer pair sharded by columns and rows, and by FSDP, held against the whole one."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import cutegen
from cutegen.dispatch.settings import settings

WIDTHS = {"cpu": (16, 32, 8), "cuda": (256, 512, 128)}
TYPES = {"cpu": (torch.float32, 1e-5), "cuda": (torch.float16, 2e-2)}
"""Types that are computed, and how far sharded results may be from whole ones."""


def model(device: str) -> torch.nn.Sequential:
    torch.manual_seed(0)
    first, inner, last = WIDTHS[device]
    layers = cutegen.Linear(first, inner, activation="gelu"), cutegen.Linear(inner, last)
    return torch.nn.Sequential(*layers).to(device, TYPES[device][0])


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float, what: str) -> None:
    scale = max(1.0, wanted.abs().max().item())
    worst = (found - wanted).abs().max().item()
    assert worst <= tolerance * scale, f"{what}: {worst} of {scale}"


def main(rank: int, port: int, device: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "gloo", "cuda": "nccl"}[device]
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh(device, (2,))
    assert settings.cpu_tensors == "torch"
    dtype, tolerance = TYPES[device]
    x = torch.randn(4, 3, WIDTHS[device][0], generator=torch.Generator().manual_seed(1)).to(device, dtype)
    reference = model(device)
    wanted = reference(x)
    wanted.float().square().sum().backward()
    parallel = parallelize_module(model(device), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    sharded = fully_shard(model(device), mesh=mesh)
    for name, made in (("tensor parallel", parallel), ("FSDP2", sharded)):
        found = whole(made(x))
        close(found, wanted, tolerance, name)
        found.float().square().sum().backward()
        for (key, mine), theirs in zip(made.named_parameters(), reference.parameters(), strict=True):
            assert isinstance(mine, DTensor), key
            close(whole(mine.grad), theirs.grad, 10 * tolerance, f"{name}: {key}")
    dist.barrier()  # who leaves while the other still talks to it dies of it, one time in four
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)  # a thread of gloo may free its last tensor after the interpreter, and aborts (torch 2.13)
