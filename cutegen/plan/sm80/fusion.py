"""Rule for what is fused into the epilogue: the chain from an accumulator to C, and the tensors it reads and writes."""

from __future__ import annotations

from cutegen.arch import dtype
from cutegen.plan.decision import Choice, Decision
from cutegen.plan.gemm_plan import EpilogueTensor, Fusion
from cutegen.plan.launch import SOURCE
from cutegen.plan.sm80.operand import align_bytes
from cutegen.spec import OPS, SCALARS, STORE, GemmSpec, guards_source

_NAMES = {"c": SOURCE, "residual": "residual", "bias_n": "bias", "bias_m": "bias", STORE: "aux"}


def choose_fusion(spec: GemmSpec) -> tuple[Choice[Fusion], tuple[Decision, ...]]:
    """The chain as the spec writes it, with a decision for each tensor whose type or major it leaves open."""
    operands = spec.epilogue.operands
    tensors = tuple(_tensor(spec, name) for name in operands if name in _NAMES)
    scalars = tuple(name for name in operands if name in SCALARS)
    fusion = Fusion(spec.epilogue.steps, tensors, scalars, guards_source(spec.epilogue.steps))
    return Choice(fusion, _chain_decision(spec, fusion)), tuple(
        _tensor_decision(spec, tensor) for tensor in tensors if tensor.name != SOURCE
    )


def _tensor(spec: GemmSpec, name: str) -> EpilogueTensor:
    if name.startswith("bias"):
        element = dtype((spec.problem.bias and spec.problem.bias.dtype) or spec.problem.c.dtype)
        mode = name[-1]
        return EpilogueTensor("bias", element, (mode,), mode, element.bytes)
    operand = spec.problem.matrix(name)
    return EpilogueTensor(_NAMES[name], dtype(operand.dtype), ("m", "n"), operand.major, align_bytes(operand))


def _chain_decision(spec: GemmSpec, fusion: Fusion) -> Decision:
    if not fusion.steps:
        why = "nothing is asked for: C is the sum, rounded once from the accumulator's type to its own"
        return Decision("epilogue.ops", "none", why)
    chosen = ", ".join(step.name if step.name in OPS else step.text for step in fusion.steps)
    why = "given; in registers, in f32, rounded once: C makes no second trip through memory"
    if fusion.source_behind_beta:
        why += "; C is not read when beta is 0"
    return Decision("epilogue.ops", chosen, why, given=True)


def _tensor_decision(spec: GemmSpec, tensor: EpilogueTensor) -> Decision:
    asked = getattr(spec.problem, tensor.name)
    matrix = len(tensor.modes) == 2
    chosen = f"{tensor.dtype.name}, " + (f"{tensor.major}-major" if matrix else f"along {tensor.major}")
    missing = [key for key in (("dtype", "major") if matrix else ("dtype",)) if getattr(asked, key, None) is None]
    if not missing:
        return Decision(f"problem.{tensor.name}", chosen, "given", given=True)
    return Decision(f"problem.{tensor.name}", chosen, f"{' and '.join(missing)} as C has, where the spec says nothing")
