"""One of two processes: layers and calls with sharded tensors, compared with the same on whole ones."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
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


def replaced(device: str) -> torch.nn.Sequential:
    """The same model of torch's layers, replaced, with a place for the activation."""
    mine = model(device)
    theirs = [torch.nn.Linear(x.in_features, x.out_features, device=device, dtype=x.weight.dtype) for x in mine]
    for one, other in zip(theirs, mine, strict=True):
        one.load_state_dict(other.state_dict())
    made = torch.nn.Sequential(OrderedDict({"0": theirs[0], "gelu": torch.nn.GELU(), "1": theirs[1]}))
    assert len(cutegen.replace_linear(made, fold_activations=True).replaced) == 2
    return made


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float, what: str) -> None:
    scale = max(1.0, wanted.abs().max().item())
    worst = (found - wanted).abs().max().item()
    assert worst <= tolerance * scale, f"{what}: {worst} of {scale}"


def check_calls(mesh: DeviceMesh) -> None:
    """Calls with sharded tensors; a case has their placements, the terms, and the placement of the result."""
    torch.manual_seed(2)
    all_ranks, rows, columns, summed = Replicate(), Shard(0), Shard(1), Partial()
    a, b = torch.randn(4, 16), torch.randn(16, 8)
    batch_a, batch_b = torch.randn(2, 4, 16), torch.randn(2, 16, 8)
    ints = [torch.randint(-100, 100, shape, dtype=torch.int8) for shape in ((4, 16), (16, 8))]
    c, bias, by_k, by_batch = torch.randn(4, 8), torch.randn(8), (columns, rows), (rows, rows)
    cases: list[tuple[Any, ...]] = [
        ("a row", (a, b), (rows, all_ranks), {"c": c, "beta": 0.5}, rows),
        ("a column", (a, b), (all_ranks, columns), {"bias": bias, "residual": c}, columns),
        ("K, alpha", (a, b), by_k, {"alpha": 0.5, "out_dtype": torch.float32}, summed),
        ("K, gelu", (a, b), by_k, {"activation": "gelu", "out_dtype": torch.float32}, all_ranks),
        ("K, c", (a, b), by_k, {"c": c, "beta": 0.5}, summed),
        ("K, bias and residual", (a, b), by_k, {"bias": bias, "residual": c}, summed),
        ("K, a residual of integers", (a, b), by_k, {"residual": ints[1][:4]}, all_ranks),
        ("K, exact sums", ints, by_k, {}, summed),
        ("K, scaled sums as integers", ints, by_k, {"alpha": 0.25}, all_ranks),
        *[
            (f"K, {dtype}", (10 * a, 10 * b), by_k, {"out_dtype": dtype}, all_ranks)
            for dtype in (torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn)
        ],
        ("K, int8 as int8", ints, by_k, {"out_dtype": torch.int8}, all_ranks),
        ("a batch", (batch_a, batch_b), by_batch, {"c": torch.randn(2, 4, 8)}, rows),
        ("a batch of A", (batch_a, b), (rows, all_ranks), {"bias": bias}, rows),
        ("residual of one batch", (batch_a, batch_b), by_batch, {"residual": torch.randn(1, 4, 8)}, all_ranks),
    ]
    for name, operands, placements, terms, placed in cases:
        shards = [distribute_tensor(x, mesh, [each]) for x, each in zip(operands, placements, strict=True)]
        tensors = {key: x for key, x in terms.items() if isinstance(x, torch.Tensor)}
        given = terms | {key: distribute_tensor(x, mesh, [all_ranks]) for key, x in tensors.items()}
        found, wanted = cutegen.matmul(*shards, **given), cutegen.matmul(*operands, **terms)
        assert found.placements == (placed,), f"{name}: {found.placements}"
        assert found.dtype == wanted.dtype, name
        close(whole(found).double(), wanted.double(), 1e-6, name)


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
    columns_and_rows = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    layers = replaced(device)
    for layer in (layers[0], layers[2]):
        fully_shard(layer, mesh=mesh)
    them = {
        "tensor parallel": parallelize_module(model(device), mesh, columns_and_rows),
        "tensor parallel, replaced": parallelize_module(replaced(device), mesh, columns_and_rows),
        "FSDP2": fully_shard(model(device), mesh=mesh),
        "FSDP2, replaced": fully_shard(layers, mesh=mesh),
    }
    for name, made in them.items():
        found = whole(made(x))
        close(found, wanted, tolerance, name)
        found.float().square().sum().backward()
        for (key, mine), theirs in zip(made.named_parameters(), reference.parameters(), strict=True):
            assert isinstance(mine, DTensor), key
            close(whole(mine.grad), theirs.grad, 10 * tolerance, f"{name}: {key}")
    if device == "cpu":  # how a call is sharded does not depend on the device
        check_calls(mesh)
    dist.barrier()  # who leaves while the other still talks to it dies of it, one time in four
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)  # a thread of gloo may free its last tensor after the interpreter, and aborts (torch 2.13)
