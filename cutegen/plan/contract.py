"""Names a kernel, and lists the parameters of a launch: one contract for every family."""

import re
from dataclasses import replace

from cutegen.contract import launch
from cutegen.plan.kernel.scheduler import SplitK, TileScheduler
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import align_bytes
from cutegen.plan.values.path import OperandPath
from cutegen.spec import MODES, GemmSpec

LONGEST_KERNEL_NAME = 60


def kernel_name(spec: GemmSpec) -> str:
    """Return the name of the PTX entry: the spec's name with all but letters, digits and _ replaced.

    >>> from cutegen.spec import load_spec
    >>> kernel_name(load_spec("sm80_hgemm_tn"))
    'sm80_hgemm_tn'
    """
    name = re.sub(r"\W", "_", spec.name, flags=re.ASCII)[:LONGEST_KERNEL_NAME] or "gemm"
    return f"_{name}" if name[0].isdigit() else name


def launch_contract(
    spec: GemmSpec,
    operands: tuple[OperandPath, ...],
    epilogue: EpiloguePlan,
    mma: MmaPlan,
    scheduler: TileScheduler,
    *,
    threads: int,
    smem_bytes: int,
    programmatic: bool,
    ahead: tuple[str, ...],
    addressed: tuple[str, ...],
) -> launch.LaunchContract:
    """Return the launcher's contract: A, B, C, the factors of A and B, then what the epilogue reads and writes."""
    fusion, (m, n, k), split_k = epilogue.fusion, mma.cluster, scheduler.split_k
    extras = (
        launch.TensorContract(x.name, x.dtype.name, x.modes, x.major, x.align_bytes, x.block) for x in fusion.beside_c
    )
    multiplied = (_of_path(x) for x in operands if x.is_multiplied)
    factors = (replace(_of_path(x), block=x.block, block_elems=x.block_elems) for x in operands if not x.is_multiplied)
    tensors = (*multiplied, tensor_contract(spec, launch.RESULT), *factors, *extras)
    copies = {**{x.name: x.g2s for x in operands}, launch.RESULT: epilogue.store}
    order = (x.name for x in tensors if x.name in copies)
    maps = tuple(found for name in order if (copy := copies[name]) is not None for found in copy.tensor_maps(name))
    workspace = (launch.SUMS, launch.COUNTERS) if split_k and split_k.leaves_sums else ()
    return launch.LaunchContract(
        entry=f"{kernel_name(spec)}_0",  # the DSL numbers the kernels of a module
        tensors=tensors,
        scalars=fusion.scalars,
        epilogue=tuple(step.text for step in fusion.steps),
        parameters=launch.gemm_parameters(tensors, fusion.scalars, maps, workspace, addressed, scheduler.groups),
        cta_tile=mma.cta_tile[:2],
        threads=threads,
        dynamic_smem_bytes=smem_bytes,
        ctas_per_multiprocessor=scheduler.ctas_per_multiprocessor,
        maps=maps,
        cluster=(m, n if split_k is None else k),
        spread=scheduler.spread,
        programmatic=programmatic,
        ahead=ahead,
        groups=scheduler.groups,
        pairs=fusion.pairs,
        quantized=None if fusion.quantization is None else fusion.quantization.scale,
        split=None if split_k is None else _split_contract(split_k, mma),
    )


def _of_path(x: OperandPath) -> launch.TensorContract:
    return launch.TensorContract(x.name, x.dtype.name, x.modes, x.major, x.align_bytes)


def _split_contract(split_k: SplitK, mma: MmaPlan) -> launch.SplitContract:
    return launch.SplitContract(split_k.slices, split_k.slice_bytes(mma.cta_tile), split_k.atomics)


def tensor_contract(spec: GemmSpec, name: str) -> launch.TensorContract:
    """Return A, B or C as the spec gives it."""
    operand, modes = spec.problem.operand(name), spec.modes(name)
    major = modes[MODES[name].index(operand.major)]
    return launch.TensorContract(name, operand.dtype, modes, major, align_bytes(operand))
