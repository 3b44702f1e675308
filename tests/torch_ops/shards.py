"""One of two processes: a layer pair sharded by columns and rows, and by FSDP, held against the whole one."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import cutegen
from cutegen.dispatch.settings import settings


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(cutegen.Linear(16, 32, activation="gelu"), cutegen.Linear(32, 8))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main(rank: int, port: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    assert settings.cpu_tensors == "torch"
    x = torch.randn(4, 3, 16, generator=torch.Generator().manual_seed(1))
    reference = model()
    wanted = reference(x)
    wanted.square().sum().backward()
    parallel = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    sharded = fully_shard(model(), mesh=mesh)
    for name, made in (("tensor parallel", parallel), ("FSDP2", sharded)):
        found = whole(made(x))
        assert torch.allclose(found, wanted, atol=1e-5), name
        found.square().sum().backward()
        for (key, mine), theirs in zip(made.named_parameters(), reference.parameters(), strict=True):
            assert isinstance(mine, DTensor), key
            assert torch.allclose(whole(mine.grad), theirs.grad, atol=1e-4), f"{name}: {key}"
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
