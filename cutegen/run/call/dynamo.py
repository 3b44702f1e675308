"""Guards of Dynamo: whether torch tensors are like others in all but values and addresses, asked once, in C++.

They compare shapes, strides, types of elements, Python's types, devices, whether autograd looks, and dispatch keys, in
which the negative bit, autocast, inference mode and functorch show. To look at all of that from Python takes several
times as long. They are no promise of torch's: of a version without them nothing is known again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

Guards = Callable[..., bool]

FORMS_OF_SHAPES = 8
"""What is known at once of tensors of the same shapes: of other strides, types, devices."""


class Guarded(Protocol):
    """Something that is known of tensors."""

    @property
    def guards(self) -> Guards:
        """Return the question to tensors whether it is known of them."""


Known = TypeVar("Known", bound=Guarded)


def guards_of(tensors: Sequence[Any]) -> Guards:
    """Return a question to as many torch tensors: are they like these, and the same one where these are?"""
    place = {id(tensor): i for i, tensor in reversed([*enumerate(tensors)])}
    first = [place[id(tensor)] for tensor in tensors]
    distinct = sorted(set(first))
    check = _guards_of_distinct([tensors[i] for i in distinct])
    if len(distinct) == len(tensors):
        return check
    # Guards take no tensor twice.
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
    """`latest` before what is known of other tensors than these; the oldest goes where they are too many."""
    others = [each for each in known if not each.guards(*tensors)]
    return [latest, *others[: FORMS_OF_SHAPES - 1]]
