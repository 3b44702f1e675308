"""The formula of a call as the ops of a spec's epilogue, and its activation, also one of pairs of columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

from cutegen.contract.problem import FactorsOfC, Pairs
from cutegen.dispatch.quantized import factors_of
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import Instruction, target
from cutegen.run.call.epilogue_operands import check_range
from cutegen.support.words import literal, nearest

# The formula of a call as the ops of a spec's epilogue.
#
# act(alpha * scale_a * scale_b * (a @ b) + beta * c + bias) + residual


ACTIVATIONS: Mapping[str, str] = {"relu": "relu", "gelu": "gelu_erf", "gelu_tanh": "gelu_tanh", "silu": "silu"}
"""Names of activations in calls, and their ops. `gelu` is PyTorch's, with the error function."""

TENSORS = ("a", "b", "bias", "residual", "c", "scale_a", "scale_b", "out", "scale_c", "scale_m", "scale_n")
"""Names of a call's tensors; `scale_m` and `scale_n` are factors of rows and columns beside those of blocks."""
_TERMS = ("alpha", "bias", "residual", "c", "scale_a", "scale_b")


@dataclass(frozen=True, slots=True)
class Formula:
    """Terms of the formula that a call has. With `aux` the value before the activation is stored as well.

    A `quantized` result has factors, rounded so.
    """

    activation: str | None = None
    alpha: bool = False
    scale_a: bool = False
    scale_b: bool = False
    c: bool = False
    bias: bool = False
    residual: bool = False
    aux: bool = False
    quantized: FactorsOfC | None = None

    @classmethod
    def of(cls, call: Any, *, aux: bool = False) -> Formula:
        """Return the terms of a call, which has `matmul`'s arguments as attributes. Raises RequestError."""
        if (gated := gated_of(call.activation)) is None:
            check_activation(call.activation)
        elif call.c is not None:
            raise RequestError(f"matmul: c: found with {gated.name}; expected none: C has half of the sums' columns")
        given = {name: getattr(call, name) is not None for name in _TERMS}
        return cls(call.activation, aux=aux, quantized=factors_of(call.quantize), **given)

    @property
    def gated(self) -> Gated | None:
        """The activation if it is one of pairs of columns."""
        return gated_of(self.activation)

    @property
    def expression(self) -> str | None:
        """The epilogue's last step, after its ops: an activation of pairs, with what is added to it."""
        return None if self.gated is None else self.gated.expression(residual=self.residual)

    @property
    def ops(self) -> tuple[str, ...]:
        """The epilogue's ops, in order.

        >>> Formula("gelu", alpha=True, bias=True, residual=True).ops
        ('alpha', 'bias_n', 'gelu_erf', 'residual')
        """
        asked = {
            "alpha": self.alpha,
            "scale_m": self.scale_a,
            "scale_n": self.scale_b,
            "beta": self.c,
            "bias_n": self.bias,
            "aux": self.aux,
            ACTIVATIONS.get(self.activation or "", ""): self.activation in ACTIVATIONS,
            "residual": self.residual and self.gated is None,
        }
        return tuple(op for op, wanted in asked.items() if wanted)


def check_activation(name: str | None, function: str = "matmul") -> None:
    """Reject an activation of a `function` that is not one of `ACTIVATIONS`. Raises RequestError."""
    if name is None or (isinstance(name, str) and name in ACTIVATIONS):
        return
    if isinstance(name, str) and name in GATED:
        raise RequestError(f"{function}: activation: found {literal(name)} in a call without pairs of columns")
    close = nearest(name, ACTIVATIONS) if isinstance(name, str) else ""
    raise RequestError(
        f"{function}: activation: found {literal(name)}; expected None or one of {', '.join(ACTIVATIONS)}; with "
        f"pairs= and first= one of {', '.join(GATED)}" + (f"; did you mean {close}?" if close else "")
    )


def check_scalars(alpha: Any, beta: Any, *, has_c: bool) -> None:
    """Reject a value that is not a number of float32, and a beta without c. Raises OperandError, RequestError."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is None:
            continue
        if isinstance(value, Real):
            check_range(name, value)
            continue
        fix = f"`{name}.item()`" if hasattr(value, "item") else f"`float({name})`"
        fix += "; for a factor on the device use scale_a=" if name == "alpha" else ""
        raise OperandError(operand=name, found=f"a {type(value).__qualname__}", expected="a number, by value", fix=fix)
    if beta is not None and not has_c:
        raise RequestError("matmul: beta: found without c; expected both, because beta * c is added; pass c=")


def scalars_of(call: Any) -> dict[str, float]:
    """Return the numbers that a kernel takes from a call; with c, beta is 1 by default."""
    numbers = {} if call.alpha is None else {"alpha": float(call.alpha)}
    return numbers if call.c is None else {**numbers, "beta": 1.0 if call.beta is None else float(call.beta)}


# Activations of pairs of columns, a gate and an up: by name, with the order of the weight's columns.
#
# Within the library they are one text, as the other activations are: "swiglu of halves, gate first".


GATED: Mapping[str, str] = {
    "swiglu": "silu(x) * y",
    "geglu": "gelu_erf(x) * y",
    "geglu_tanh": "gelu_tanh(x) * y",
    "reglu": "relu(x) * y",
    "swiglu_oai": "(max(min(y, {limit}), -{limit}) + 1) * min(x, {limit}) * sigmoid({alpha} * min(x, {limit}))",
}
"""Names in calls, and their expressions over the gate x and the up y. The last one is gpt-oss's."""
OAI = "swiglu_oai"
GATED_WIDTHS: Mapping[str, int | None] = {"halves": None, "interleaved": 1}
GATED_COLUMNS = 8
LEAST_OF_PAIRS = "sm_90"
"""The first target whose kernels take pairs of any columns."""
BY_VECTORS = ("f16", "bf16")
"""Element types of B whose pairs of columns threads take apart by vectors along K, where no tensor map does."""
ALPHA, LIMIT = 1.702, 7.0
"""Parameters of gpt-oss: the factor within its sigmoid; the limit of gates from above, and of ups from both sides."""
_NUMBER = r"[+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_CALL = re.compile(rf"(?P<name>\w+)(?:\((?P<alpha>{_NUMBER}), *(?P<limit>{_NUMBER})\))?", re.ASCII)
_TEXT = re.compile(rf"(?P<call>{_CALL.pattern}) of (?P<layout>\w+), (?P<first>gate|up) first", re.ASCII)


def takes_any_pairs(target_name: str) -> bool:
    """Return whether kernels for a target take pairs of any columns, by tensor maps.

    >>> [takes_any_pairs(name) for name in ("sm_80", "sm_90", "sm_100", "sm_120")]
    [False, True, True, False]
    """
    return any(target(target_name).has(each) for each in (Instruction.WGMMA, Instruction.TCGEN05))


@dataclass(frozen=True, slots=True)
class Gated:
    """The activation `name` of pairs in the order `layout` and `first` of a spec; `alpha` and `limit` are gpt-oss's."""

    name: str
    layout: str | int
    first: str
    alpha: float = ALPHA
    limit: float = LIMIT

    def __str__(self) -> str:
        parameters = f"({self.alpha!r}, {self.limit!r})" if self.name == OAI else ""
        return f"{self.name}{parameters} of {self.layout}, {self.first} first"

    @property
    def pairs(self) -> Pairs:
        """The order of columns."""
        width = GATED_WIDTHS[self.layout] if isinstance(self.layout, str) else self.layout
        return Pairs("gate" if self.first == "gate" else "up", width)

    def expression(self, *, residual: bool) -> str:
        """Return the last step of an epilogue, as a spec has it.

        >>> Gated("swiglu", "halves", "gate").expression(residual=True)
        'x, y -> silu(x) * y + residual'
        """
        written = GATED[self.name].format(alpha=self.alpha, limit=self.limit)
        return f"x, y -> {written}" + (" + residual" if residual else "")


def paired(activation: Any, pairs: Any, first: Any, function: str = "matmul") -> Any:
    """Return an activation as the library passes it on: with the order of pairs, if it has any.

    `pairs` and `first` are those of a call. `activation` may have its parameters, "swiglu_oai(1.702, 7)". Raises
    RequestError.

    >>> paired("swiglu", "halves", "gate"), paired("gelu", None, None)
    ('swiglu of halves, gate first', 'gelu')
    """
    written = activation if isinstance(activation, str) else ""
    if (name := written.partition("(")[0]) not in GATED:
        if pairs is None and first is None:
            return activation
        close = nearest(written, GATED)
        raise RequestError(
            f"{function}: {'first' if pairs is None else 'pairs'}: found with activation={activation!r}; expected one "
            f"of {', '.join(GATED)}, whose columns are pairs" + (f"; did you mean {close}?" if close else "")
        )
    if pairs is None or first is None:
        raise RequestError(
            f"{function}: {'pairs' if pairs is None else 'first'}: found None with {activation}; expected the order of "
            'the weight\'s columns: pairs="halves", "interleaved" or a multiple of 8, and first="gate" or "up"'
        )
    is_width = type(pairs) is int and pairs > 0 and pairs % GATED_COLUMNS == 0
    if not (is_width or (isinstance(pairs, str) and pairs in GATED_WIDTHS)):
        expected = f'"halves", "interleaved" or a multiple of {GATED_COLUMNS}'
        raise RequestError(f"{function}: pairs: found {literal(pairs)}; expected {expected}")
    if first not in ("gate", "up"):
        raise RequestError(f'{function}: first: found {literal(first)}; expected "gate" or "up"')
    if written == name:
        return str(Gated(name, pairs, first))
    if name == OAI and (found := _CALL.fullmatch(written)) is not None:
        alpha, limit = float(found["alpha"]), float(found["limit"])
        if math.isfinite(alpha) and 0 < limit < math.inf:
            return str(Gated(name, pairs, first, alpha, limit))
    raise RequestError(
        f"{function}: activation: found {literal(activation)}; expected parameters, a factor and a limit above 0, "
        f'only of {OAI}, as in "{OAI}({ALPHA}, {LIMIT})"'
    )


def is_gated(activation: Any) -> bool:
    """Return whether an activation is one of pairs, as `paired` has written it; Dynamo traces this.

    >>> is_gated("swiglu of halves, gate first"), is_gated("silu")
    (True, False)
    """
    return isinstance(activation, str) and activation.endswith(" first")


def gated_of(activation: Any) -> Gated | None:
    """Return the activation of pairs that `paired` has written; None for any other.

    >>> gated_of("swiglu_oai(1.702, 7.0) of 32, up first")
    Gated(name='swiglu_oai', layout=32, first='up', alpha=1.702, limit=7.0)
    """
    return _read(activation) if is_gated(activation) else None  # Dynamo warns of caches that it traces


@lru_cache(maxsize=64)
def _read(text: str) -> Gated | None:
    found = _TEXT.fullmatch(text)
    if found is None or found["name"] not in GATED:
        return None
    layout: str | int = int(found["layout"]) if found["layout"].isdigit() else found["layout"]
    numbers = () if found["alpha"] is None else (float(found["alpha"]), float(found["limit"]))
    return Gated(found["name"], layout, found["first"], *numbers)
