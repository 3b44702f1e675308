"""The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills.

`plan_sm80` is the whole line of decisions, in order; each rule sees what earlier ones settled and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutegen.algebra import Layout, TiledMma, ldmatrix_trace, tile_to_shape
from cutegen.arch import LdmatrixAtom, Target, dtype
from cutegen.plan.decision import Choice
from cutegen.plan.gemm_plan import FragmentCopy, GemmPlan, OperandPlan, Predictions, VectorCopy
from cutegen.plan.launch import GEMM_PARAMETERS, LaunchContract, TensorContract
from cutegen.plan.sm80 import mma, predict
from cutegen.plan.sm80.access import by_warp, contiguity, fragment_loads, vectors
from cutegen.plan.sm80.epilogue import choose_epilogue
from cutegen.plan.sm80.g2s import choose_g2s
from cutegen.plan.sm80.pipeline import choose_raster, choose_stages, smem_offsets
from cutegen.plan.sm80.proof import prove
from cutegen.plan.sm80.s2r import OPERANDS, choose_s2r
from cutegen.plan.sm80.smem import Access, SmemRanking, SmemRequest, choose_smem, lay_out, requested_shape
from cutegen.spec import MODES, GemmSpec

DEFAULT_ALIGN_BYTES = 16
MAX_VECTOR_ELEMS = 8


def plan_sm80(spec: GemmSpec, target: Target) -> GemmPlan:
    """Decide everything that `spec` leaves open, for `target`. Raises SpecError where the spec cannot be met."""
    cta_tile = mma.choose_cta_tile(spec)
    atom = mma.choose_atom(spec, cta_tile.value)
    atom_layout = mma.choose_atom_layout(spec, cta_tile.value, atom.value)
    permutation = mma.choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value)
    tiled_mma = mma.tiled_mma(atom.value, atom_layout.value, permutation.value)

    for_a = _choose_operand(spec, "a", cta_tile.value, tiled_mma)
    for_b = _choose_operand(spec, "b", cta_tile.value, tiled_mma)
    stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
    registers = predict.estimate_registers(cta_tile.value, tiled_mma, atom.value)
    by_registers = predict.predict_occupancy(target, tiled_mma.threads, 0, registers).by_registers
    stages = choose_stages(spec, target, stage_bytes, by_registers)
    a = for_a.finish(spec, stages.value)
    b = for_b.finish(spec, stages.value)
    epilogue = choose_epilogue(spec, tiled_mma, cta_tile.value, target.smem_per_cta_bytes)
    raster = choose_raster(spec)

    smem_b_offset_bytes, pipeline_bytes = smem_offsets(stage_bytes, stages.value)
    smem_bytes = max(pipeline_bytes, epilogue.value.smem.bytes if epilogue.value.smem else 0)
    kernel = kernel_name(spec)
    entry = f"{kernel}_0"  # the DSL numbers the kernels of a module
    plan = GemmPlan(
        spec=spec,
        target=target,
        kernel_name=kernel,
        cta_tile=cta_tile.value,
        stages=stages.value,
        atom=atom.value,
        tiled_mma=tiled_mma,
        a=a,
        b=b,
        epilogue=epilogue.value,
        raster=raster.value,
        smem_bytes=smem_bytes,
        smem_b_offset_bytes=smem_b_offset_bytes,
        predictions=Predictions(
            wavefronts=predict.predict_wavefronts(a, b, epilogue.value),
            sectors=predict.predict_sectors(a, b, epilogue.value, tiled_mma, cta_tile.value),
            instructions=predict.predict_instructions(a, b, atom.value, tiled_mma, cta_tile.value, stages.value),
            occupancy=predict.predict_occupancy(target, tiled_mma.threads, smem_bytes, registers),
        ),
        launch=LaunchContract(
            entry=entry,
            tensors=(_tensor(spec, "a"), _tensor(spec, "b"), _tensor(spec, "c")),
            parameters=GEMM_PARAMETERS,
            cta_tile=cta_tile.value[:2],
            threads=tiled_mma.threads,
            dynamic_smem_bytes=smem_bytes,
        ),
        decisions=(
            *(choice.decision for choice in (cta_tile, atom, atom_layout, permutation)),
            *(choice.decision for choice in (for_a.g2s, for_b.g2s, for_a.s2r, for_b.s2r, for_a.smem, for_b.smem)),
            *(choice.decision for choice in (stages, epilogue, raster)),
        ),
    )
    prove(plan)
    return plan


def kernel_name(spec: GemmSpec) -> str:
    """The kernel function: the spec's name as an identifier.

    >>> from cutegen.spec import load_spec
    >>> kernel_name(load_spec("sm80_hgemm_tn"))
    'sm80_hgemm_tn'
    """
    name = re.sub(r"\W", "_", spec.name, flags=re.ASCII) or "gemm"
    return f"_{name}" if name[0].isdigit() else name


def _tensor(spec: GemmSpec, name: str) -> TensorContract:
    operand = getattr(spec.problem, name)
    return TensorContract(name, operand.dtype, MODES[name], operand.major, operand.align or DEFAULT_ALIGN_BYTES)


@dataclass(frozen=True, slots=True)
class _OperandChoices:
    """All that is settled for one operand before the number of stages is, which depends on a stage's bytes."""

    name: str
    tile: tuple[int, int]
    g2s: Choice[VectorCopy]
    s2r: Choice[FragmentCopy]
    smem: Choice[SmemRanking]

    def finish(self, spec: GemmSpec, stages: int) -> OperandPlan:
        operand = getattr(spec.problem, self.name)
        return OperandPlan(
            name=self.name,
            operand=OPERANDS[self.name],
            dtype=dtype(operand.dtype),
            modes=MODES[self.name],
            major=operand.major,
            align_bytes=operand.align or DEFAULT_ALIGN_BYTES,
            tile=self.tile,
            g2s=self.g2s.value,
            smem=lay_out(self.smem.value, self.tile, stages),
            s2r=self.s2r.value,
        )


def _choose_operand(spec: GemmSpec, name: str, cta_tile: tuple[int, int, int], tiled_mma: TiledMma) -> _OperandChoices:
    """One operand's copies and shared layout.

    A layout that the spec writes down limits the copies; otherwise the copies come first and the layout is ranked for them.
    """
    operand = getattr(spec.problem, name)
    element = dtype(operand.dtype)
    tile = (cta_tile[0] if name == "a" else cta_tile[1], cta_tile[2])
    major_mode = MODES[name].index(operand.major)
    asked = getattr(spec.smem, name)
    requested = requested_shape(spec, f"smem.{name}", asked, tile, major_mode)
    together = MAX_VECTOR_ELEMS
    if requested is not None:
        together = contiguity(tile_to_shape(requested.atom, tile), tile, major_mode)
    g2s = choose_g2s(
        spec,
        name,
        tile=tile,
        major_mode=major_mode,
        element_bits=element.bits,
        align_bytes=operand.align or DEFAULT_ALIGN_BYTES,
        smem_vector_elems=together,
        threads=tiled_mma.threads,
    )
    s2r = choose_s2r(
        spec,
        name,
        tiled_mma=tiled_mma,
        tile=tile,
        major_mode=major_mode,
        element_bits=element.bits,
        smem_vector_elems=together,
    )
    request = SmemRequest(
        key=f"smem.{name}",
        tile=tile,
        major_mode=major_mode,
        element_bytes=element.bytes,
        write=Access(by_warp(vectors(g2s.value.threads, g2s.value.values, tile)[..., 0]), g2s.value.bits // 8),
        read=_fragment_access(tiled_mma, name, tile, s2r.value, element.bits),
    )
    return _OperandChoices(name, tile, g2s, s2r, choose_smem(spec, request, asked))


def _fragment_access(
    tiled_mma: TiledMma, name: str, tile: tuple[int, int], s2r: FragmentCopy, element_bits: int
) -> Access:
    """Which addresses the lanes of each fragment load have: of an ldmatrix, 8 lanes for each matrix."""
    if isinstance(s2r.atom, LdmatrixAtom):
        trace = ldmatrix_trace(tiled_mma, OPERANDS[name], Layout(tile), s2r.atom, element_bits)
        return Access(trace.source_coords[:, :, : 8 * s2r.atom.matrices, 0], 16)
    return Access(
        by_warp(fragment_loads(tiled_mma, OPERANDS[name], tile, s2r.bits // element_bits)[..., 0]), s2r.bits // 8
    )
