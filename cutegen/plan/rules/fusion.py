"""Rule for what is fused into the epilogue: the chain from an accumulator to C, and the tensors it reads and writes."""

from __future__ import annotations

from cutegen.contract.launch import SCALARS, SOURCE
from cutegen.hardware import dtype
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.epilogue import EpilogueTensor, Fusion
from cutegen.plan.values.operand import align_bytes
from cutegen.spec import OPS, STORE, GemmSpec, guards_source

_NAMES = {"c": SOURCE, "residual": "residual", "bias_n": "bias", "bias_m": "bias", STORE: "aux"}


def choose_fusion(spec: GemmSpec) -> tuple[Fusion, tuple[Decision, ...]]:
    """The chain as the spec writes it, with a decision for it and for each tensor it names; none without a chain."""
    operands = spec.epilogue.operands
    tensors = tuple(_tensor(spec, name) for name in operands if name in _NAMES)
    scalars = tuple(name for name in operands if name in SCALARS)
    fusion = Fusion(spec.epilogue.steps, tensors, scalars, guards_source(spec.epilogue.steps))
    if not fusion.steps:
        return fusion, ()
    extras = (_tensor_decision(spec, tensor) for tensor in tensors if tensor.name != SOURCE)
    return fusion, (_chain_decision(spec, fusion), *extras)


def _tensor(spec: GemmSpec, name: str) -> EpilogueTensor:
    if name.startswith("bias"):
        element = dtype((spec.problem.bias and spec.problem.bias.dtype) or spec.problem.c.dtype)
        mode = name[-1]
        return EpilogueTensor("bias", element, (mode,), mode, element.bytes)
    operand = spec.problem.matrix(name)
    return EpilogueTensor(_NAMES[name], dtype(operand.dtype), ("m", "n"), operand.major, align_bytes(operand))


def _chain_decision(spec: GemmSpec, fusion: Fusion) -> Decision:
    chosen = ", ".join(step.name if step.name in OPS else step.text for step in fusion.steps)
    why = "given; each accumulator goes this way in registers, in f32, and is rounded once, to C's type"
    if fusion.source_behind_beta:
        why += "; C is not read when beta is 0"
    key = "epilogue.ops" if spec.epilogue.ops else "epilogue.expression"
    return Decision(key, chosen, why, given=True)


def _tensor_decision(spec: GemmSpec, tensor: EpilogueTensor) -> Decision:
    asked = getattr(spec.problem, tensor.name)
    matrix = len(tensor.modes) == 2
    chosen = f"{tensor.dtype.name}, " + (f"{tensor.major}-major" if matrix else f"along {tensor.major}")
    missing = [key for key in (("dtype", "major") if matrix else ("dtype",)) if getattr(asked, key, None) is None]
    if not missing:
        return Decision(f"problem.{tensor.name}", chosen, "given", given=True)
    return Decision(f"problem.{tensor.name}", chosen, f"{' and '.join(missing)} as C has, where the spec says nothing")
