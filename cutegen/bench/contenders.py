"""Contenders of a benchmark: cutegen's kernels, and others that multiply the same operands.

A contender is prepared for three tensors and can then be called repeatedly, on torch's current stream at that time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutegen.bench.cutlass_examples import HOPPER_TILES, HopperTile, cutlass_example, hopper_example, is_hopper_example
from cutegen.bench.measure import Call
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract
from cutegen.hardware import Instruction, dtype
from cutegen.hardware.targeting import present_target
from cutegen.run import Kernel
from cutegen.support.typed_json import parse_object

TORCH = "torch.matmul"
TORCH_REDUCED = "torch.matmul, reduced"
"""Torch's default: cuBLAS may round partial sums to the operands' type."""
TORCH_SCALED, TORCH_INT = "torch._scaled_mm", "torch._int_mm"
"""PyTorch's function for 8-bit operands, which torch.matmul does not accept: e4m3, and s8 with s32 results."""
TORCH_GROUPED, TORCH_LOOP = "torch grouped_mm", "torch.matmul of each group"
TRITON = "Triton"
QUACK = "QuACK, tuned"
CUTLASS = "CUTLASS example"
CUTLASS_HOPPER = "CUTLASS Hopper"
"""Prefix of its tiles' names: `CUTLASS Hopper 128x256, clusters of 2x1`."""

Prepare = Callable[["Operands"], Call]
"""Prepares a contender for operands, which may compile it."""

Against = Callable[[LaunchContract], Iterable[tuple[str, Prepare]]]
"""Other contenders that multiply operands of a contract, by name."""

_HALVES = ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class Operands:
    """`a` (M,K), `b` (K,N) and `out` (M,N), torch tensors on one GPU; `extras` of the epilogue by argument name."""

    a: Any
    b: Any
    out: Any
    extras: Mapping[str, Any] = field(default_factory=dict)


def others(contract: LaunchContract, cutlass: Sequence[Path] = ()) -> Iterator[tuple[str, Prepare]]:
    """Return all other contenders here that multiply such operands."""
    operands, result = contract.tensor("a").dtype, contract.tensor(RESULT).dtype
    if operands == "e4m3" and _has_majors(contract, a="k", b="k", c="n"):
        yield TORCH_SCALED, _scaled
    elif (operands, result) == ("s8", "s32"):
        yield TORCH_INT, _int
    else:
        yield TORCH, partial(_torch, operands, False)
    if operands in _HALVES:
        yield TORCH_REDUCED, partial(_torch, operands, True)
    if find_spec("triton") is not None and operands != "f32":  # tl.dot turns f32 into tf32
        yield TRITON, _triton
    if find_spec("quack") is not None and operands in _HALVES and has_wgmma():
        yield QUACK, _quack
    if _is_f16_tn(contract):
        yield from of_cutlass(cutlass)


def only(*names: str) -> Against:
    """Return those of `others` with these names."""
    return lambda contract: (one for one in others(contract) if one[0] in names)


def of_cutlass(files: Sequence[Path]) -> Iterator[tuple[str, Prepare]]:
    """Return CUTLASS's examples, each by its file; they multiply f16 TN."""
    for path in files:
        if not is_hopper_example(path):
            yield CUTLASS, partial(_ampere, path)
        elif has_wgmma():
            for tile in HOPPER_TILES:
                yield f"{CUTLASS_HOPPER} {tile}", partial(_hopper, path, tile)


def has_wgmma() -> bool:
    """Return whether this GPU is of the Hopper architecture."""
    target = present_target()
    return target is not None and target.has(Instruction.WGMMA)


def _torch(operands: str, reduced: bool, x: Operands) -> Call:
    import torch

    if operands == "tf32":
        torch.set_float32_matmul_precision("high")  # tf32, like the kernels it is compared with
    settings = torch.backends.cuda.matmul

    def call() -> None:
        # Set at each call: other contenders run in between.
        settings.allow_fp16_reduced_precision_reduction = reduced
        settings.allow_bf16_reduced_precision_reduction = reduced
        torch.matmul(x.a, x.b, out=x.out)

    return call if operands in _HALVES else partial(torch.matmul, x.a, x.b, out=x.out)


def torch_product(operands: str, x: Operands) -> Call:
    """Return torch.matmul of operands of a type, with sums in f32."""
    return _torch(operands, False, x)


def _scaled(x: Operands) -> Call:
    import torch

    one = torch.ones((), dtype=torch.float32, device=x.a.device)
    return partial(torch._scaled_mm, x.a, x.b, scale_a=one, scale_b=one, out_dtype=x.out.dtype, out=x.out)


def _int(x: Operands) -> Call:
    import torch

    return partial(torch._int_mm, x.a, x.b, out=x.out)


def _triton(x: Operands) -> Call:
    gemm = importlib.import_module("cutegen.bench.triton_gemm").gemm  # importing it imports Triton
    return partial(gemm, x.a, x.b, x.out)


def _quack(x: Operands) -> Call:
    gemm = importlib.import_module("quack.gemm_interface").gemm
    return partial(gemm, x.a, x.b, out=x.out, tuned=True)


def _ampere(path: Path, x: Operands) -> Call:
    return cutlass_example(path, x.a, x.b, x.out)


def _hopper(path: Path, tile: HopperTile, x: Operands) -> Call:
    return hopper_example(path, tile, x.a, x.b, x.out)


def _is_f16_tn(contract: LaunchContract) -> bool:
    halves = all(contract.tensor(role).dtype == "f16" for role in (*OPERANDS, RESULT))
    return halves and _has_majors(contract, a="k", b="k", c="n")


def _has_majors(contract: LaunchContract, **majors: str) -> bool:
    return all(contract.tensor(role).major == major for role, major in majors.items())


# cutegen's own kernels in a benchmark, and the conditions of a fair comparison.


_MULTIPLIERS = {"fma": Instruction.FMA, "wgmma": Instruction.WGMMA, "mma": Instruction.MMA_SYNC}
"""Multipliers, by the first word of an opcode."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A kernel of cutegen's and its display name."""

    name: str
    kernel: Kernel

    @property
    def types(self) -> MmaTypes:
        """The types of its MMA atom, and the instruction."""
        mma = parse_object(self.kernel.artifact.plan_json, "plan.json")["mma"]
        multiplier = _MULTIPLIERS[mma["ptx"].partition(".")[0]]
        return MmaTypes.of(self.kernel.contract.tensor("a").dtype, mma["accumulator"], multiplier)

    @property
    def ceiling_types(self) -> tuple[MmaTypes, MmaTypes]:
        """The ceilings for the libraries' results and its own.

        Libraries sum in f32, integers in s32, and use the fastest tensor cores available for all types but f32.
        """
        operands = self.kernel.contract.tensor("a").dtype
        libraries_sums = self.types.accumulator if dtype(operands).is_integer else "f32"
        target = present_target()
        has = frozenset() if target is None else target.instructions
        return MmaTypes.fastest(operands, libraries_sums, has), self.types

    @property
    def setting(self) -> Setting:
        """Settings that must be equal for a fair comparison."""
        return Setting.of(self.kernel.contract)


@dataclass(frozen=True, slots=True)
class Setting:
    """Element type and major of A, B and C: equal formats mean the same tensors."""

    a: tuple[str, str]
    b: tuple[str, str]
    c: tuple[str, str]

    @classmethod
    def of(cls, contract: LaunchContract) -> Setting:
        """Return the format of a kernel."""
        return cls(*((x.dtype, x.major) for x in (*contract.operands, contract.tensor(RESULT))))

    def __str__(self) -> str:
        return ", ".join(f"{role.upper()} {x} {major}-major" for role, (x, major) in self.tensors.items())

    @property
    def tensors(self) -> Mapping[str, tuple[str, str]]:
        """Its tensors by role."""
        return {"a": self.a, "b": self.b, RESULT: self.c}


def by_setting(entrants: Iterable[Entrant]) -> Mapping[Setting, list[Entrant]]:
    """Group the entrants that multiply the same tensors."""
    found: dict[Setting, list[Entrant]] = {}
    for entrant in entrants:
        found.setdefault(entrant.setting, []).append(entrant)
    return found
