"""Dynamo guards: they check in C++ whether torch tensors match others in all but values and addresses.

They compare shapes, strides, element types, Python types, devices, whether autograd records, and dispatch keys, which
show the negative bit, autocast, inference mode and functorch. The same checks from Python take several times as long.
Guards are not part of torch's public API: with a version that lacks them, no call is recognized.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

Guards = Callable[..., bool]

FORMS_OF_SHAPES = 8
"""Limit on remembered tensors of the same shapes with other strides, types or devices."""


class Guarded(Protocol):
    """Knowledge about tensors."""

    @property
    def guards(self) -> Guards:
        """Return the check whether tensors are already known."""


Known = TypeVar("Known", bound=Guarded)


def guards_of(tensors: Sequence[Any]) -> Guards:
    """Return a check whether torch tensors match these, and are identical where these are."""
    place = {id(tensor): i for i, tensor in reversed([*enumerate(tensors)])}
    first = [place[id(tensor)] for tensor in tensors]
    distinct = sorted(set(first))
    check = _guards_of_distinct([tensors[i] for i in distinct])
    if len(distinct) == len(tensors):
        return check
    # Guards do not accept the same tensor twice.
    twins = [(i, j) for i, j in enumerate(first) if i != j]

    def fits(*found: Any) -> bool:
        return all(found[i] is found[j] for i, j in twins) and check(*[found[i] for i in distinct])

    return fits


def _guards_of_distinct(tensors: Sequence[Any]) -> Guards:
    dynamo = getattr(sys.modules["torch"]._C, "_dynamo", None)
    guards = getattr(getattr(dynamo, "guards", None), "TensorGuards", None)
    if guards is None:
        return _nothing
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    check: Guards = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def _nothing(*_: Any) -> bool:
    return False


def with_latest(known: Iterable[Known], latest: Known, tensors: Sequence[Any]) -> list[Known]:
    """Return `latest` followed by the knowledge about other tensors, without the oldest beyond the limit."""
    others = [each for each in known if not each.guards(*tensors)]
    return [latest, *others[: FORMS_OF_SHAPES - 1]]
