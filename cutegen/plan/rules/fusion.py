"""Rule for what is fused into the epilogue: the chain from an accumulator to C, and the tensors it reads and writes."""

from __future__ import annotations

from cutegen.contract.launch import SCALARS, SOURCE
from cutegen.hardware import dtype
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.epilogue import EpilogueTensor, Fusion
from cutegen.plan.values.operand import align_bytes
from cutegen.spec import OPS, STORE, GemmSpec, guards_source

_MATRICES = {"c": SOURCE, "residual": "residual", STORE: "aux"}
_BIASES = ("bias_n", "bias_m")
_LEFT_OUT = {"scale": "f32 by default, as in quantization"}


def choose_fusion(spec: GemmSpec) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the chain of the spec, with a decision for it and for each tensor that it names; none without a chain."""
    operands = spec.epilogue.operands
    tensors = tuple(_tensor(spec, name) for name in operands if name not in SCALARS)
    scalars = tuple(name for name in operands if name in SCALARS)
    fusion = Fusion(spec.epilogue.steps, tensors, scalars, guards_source(spec.epilogue.steps))
    if not fusion.steps:
        return fusion, ()
    tables = dict.fromkeys(tensor.table for tensor in tensors if tensor.name != SOURCE)
    extras = (_table_decision(spec, [tensor for tensor in tensors if tensor.table == table]) for table in tables)
    return fusion, (_chain_decision(spec, fusion), *extras)


def _tensor(spec: GemmSpec, name: str) -> EpilogueTensor:
    if name not in _MATRICES:
        return _vector(spec, name)
    operand = spec.problem.matrix(name)
    return EpilogueTensor(_MATRICES[name], dtype(operand.dtype), ("m", "n"), operand.major, align_bytes(operand), name)


def _vector(spec: GemmSpec, name: str) -> EpilogueTensor:
    """Return a bias, which calls pass as "bias" if it is the only one, or a scale."""
    table, mode = name.split("_")
    asked = getattr(spec.problem, table)
    element = dtype((asked and asked.dtype) or (spec.problem.c.dtype if table == "bias" else "f32"))
    only = table == "bias" and not set(_BIASES) <= set(spec.epilogue.operands)
    return EpilogueTensor(table if only else name, element, (mode,), mode, element.bytes, name)


def _chain_decision(spec: GemmSpec, fusion: Fusion) -> Decision:
    chosen = ", ".join(step.name if step.name in OPS else step.text for step in fusion.steps)
    why = "applied to each accumulator in registers, in f32, and rounded once, to C's type"
    if fusion.source_behind_beta:
        why += "; C is not read when beta is 0"
    key = "epilogue.ops" if spec.epilogue.ops else "epilogue.expression"
    return Decision.as_given(key, chosen, why)


def _table_decision(spec: GemmSpec, tensors: list[EpilogueTensor]) -> Decision:
    """Decide on a table of the problem: one matrix, or the vectors of a kind."""
    first, key = tensors[0], f"problem.{tensors[0].table}"
    asked = getattr(spec.problem, first.table)
    matrix = len(first.modes) == 2
    along = f"along {' and '.join(tensor.major for tensor in tensors)}"
    chosen = f"{first.dtype.name}, " + (f"{first.major}-major" if matrix else along)
    missing = [name for name in (("dtype", "major") if matrix else ("dtype",)) if getattr(asked, name, None) is None]
    if not missing:
        return Decision.as_given(key, chosen)
    as_c = f"{' and '.join(missing)} of C by default"
    return Decision(key, chosen, _LEFT_OUT.get(first.table, as_c))
