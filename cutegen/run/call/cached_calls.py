"""Repeated calls with torch tensors: guards recognize them, then addresses are checked and the kernel is launched.

Views and their lookup are half of a small call's host time. What depends on the attributes of tensors was checked on
the first call; addresses are checked each time: their alignment, and that results do not overlap operands. Every
unusual call is left to the slow path, which finds the reason.

Guards are Dynamo's, in C++: they check whether torch tensors match others in all but values and addresses. They compare
shapes, strides, element types, Python types, devices, whether gradients are required, and dispatch keys, which show the
negative bit, autocast, inference mode and functorch. The same checks from Python take several times as long. Guards are
not part of torch's public API: with a version that lacks them, no call is recognized.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_, or_
from typing import Any, Protocol, Self, TypeVar

from cutegen.run.call.memory_overlap import Placed
from cutegen.run.call.streams import stream_handle

Guards = Callable[..., bool]

Launch = Callable[[tuple[int, ...], tuple[float, ...], int], object]
"""Takes the addresses in the contract's order, the values of its scalars, and a stream."""

FORMS_OF_SHAPES = 8
"""Limit on cached calls of the same shapes with other strides, types or devices."""
CACHED_SHAPES = 1024
"""Limit on the shapes that a table knows."""

_RESULT = 2
"""Its index among the addresses of every launch, after A and B."""


class PreparedLaunch(Protocol):
    """A call that took the slow path: its operands in the order of their addresses, and its launch."""

    @property
    def placed(self) -> Sequence[Placed]: ...
    @property
    def launch(self) -> Launch | None: ...
    @property
    def apart(self) -> Sequence[tuple[int, int]]:
        """The pairs that must not overlap, the written one first."""

    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        """Raise OperandError for addresses that do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedCall:
    """The rest of a call that was made before: new addresses are checked and launched.

    `align_masks` are the address bits that must be 0, in the order of addresses, and `align_mask` all of them. `apart`
    lists pairs of addresses of tensors that share memory if their difference is within two limits; it is empty if the
    call allocates all results. `ordinal` is the GPU's, -1 for the executor.
    """

    launch: Launch
    check_addresses: Callable[[tuple[int, ...]], None]
    align_mask: int
    align_masks: tuple[int, ...]
    apart: tuple[tuple[int, int, int, int], ...]
    allocate: Callable[[], Any]
    stream: Callable[[int], int]
    ordinal: int

    @classmethod
    def of(
        cls,
        prepared: PreparedLaunch,
        *,
        given: Iterable[int],
        allocate: Callable[[], Any],
        stream: Callable[[int], int],
        ordinal: int,
        aligned: Sequence[int] = (),
    ) -> Self:
        """Return what remains of a call whose caller passes the results with the indices `given`.

        `aligned` are the bytes to which each address is aligned, if a call must meet more than its kernel requires.
        """
        assert prepared.launch is not None
        placed, results = prepared.placed, set(given)
        fresh = {i for i, each in enumerate(placed) if each.tensor.written} - results
        masks = tuple(each - 1 for each in aligned or [x.align_bytes for x in placed])
        spans = [each.span_bytes for each in placed]
        return cls(
            launch=prepared.launch,
            check_addresses=prepared.check_addresses,
            align_mask=reduce(or_, masks),
            align_masks=masks,
            apart=tuple((i, j, -spans[j], spans[i]) for i, j in prepared.apart if i in results and j not in fresh),
            allocate=allocate,
            stream=stream,
            ordinal=ordinal,
        )


def replay(
    call: CachedCall,
    a: Any,
    b: Any,
    out: Any = None,
    beside: Iterable[Any] = (),
    scalars: tuple[float, ...] = (),
    stream: int | None = None,
) -> Any:
    """Launch a cached call on other tensors and return its result; None if an address is unaligned or freed.

    `beside` are the tensors after the result, in the kernel's order. Torch is not told what is written. Raises
    OperandError if a result of the caller shares memory with an operand.

    A, B and the result, which every call has, are written out: this function is most of the host time of a small call.
    """
    result = call.allocate() if out is None else out
    at_a, at_b, at_result = a.data_ptr(), b.data_ptr(), result.data_ptr()
    if not (at_a and at_b and at_result):  # its memory was freed
        return None
    bits = at_a | at_b | at_result
    addresses: tuple[int, ...] = (at_a, at_b, at_result)
    for tensor in beside:
        if not (address := tensor.data_ptr()):
            return None
        bits |= address
        addresses += (address,)
    if bits & call.align_mask and any(map(and_, addresses, call.align_masks)):
        return None
    for i, j, before, after in call.apart:
        if before < addresses[j] - addresses[i] < after:
            call.check_addresses(addresses)  # raises, unless one is the other in place
    call.launch(addresses, scalars, call.stream(call.ordinal) if stream is None else stream)
    return result


class CachedCalls:
    """The calls `kernel(a, b, ...)` that one thread has made with tensors of GPUs."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[Guarded[CachedCall]]] = {}
        self._forward_ad: Any = None

    def __call__(
        self, a: Any, b: Any, out: Any, stream: Any, beside: Sequence[Any] = (), scalars: tuple[float, ...] = ()
    ) -> Any:
        """Launch a known call and return its result; None if it must take the slow path. Raises OperandError."""
        try:
            some = self._known.get((a.shape, b.shape, out is None, len(beside)))
        except (AttributeError, RuntimeError, TypeError):  # not torch tensors, or some without a shape
            return None
        if some is None or (out is None and stream is not None):  # memory for the result belongs to that stream
            return None
        found = matching(some, (a, b, *beside) if out is None else (a, b, *beside, out))
        if found is None or self._forward_ad._current_level >= 0:
            return None
        return replay(found, a, b, out, beside, scalars, None if stream is None else stream_handle(stream))

    def remember(
        self, a: Any, b: Any, out: Any, result: Any, prepared: PreparedLaunch, ordinal: int, beside: Sequence[Any] = ()
    ) -> None:
        """Remember a call: `out` as it was passed, `result` as it was returned.

        Not without gradients if a tensor requires them: its guards would accept it with gradients too.
        """
        tensors = (a, b, *beside) if out is None else (a, b, *beside, out)
        torch: Any = sys.modules["torch"]
        self._forward_ad = torch.autograd.forward_ad
        if any(x.requires_grad for x in tensors):
            return
        written = (
            i for i, each in enumerate(prepared.placed) if each.tensor.written and (i != _RESULT or out is not None)
        )
        like = {"dtype": result.dtype, "device": result.device}
        call = CachedCall.of(
            prepared,
            given=written,
            allocate=partial(torch.empty_strided, result.shape, result.stride(), **like),
            stream=torch._C._cuda_getCurrentRawStream,
            ordinal=ordinal,
        )
        keep(self._known, (a.shape, b.shape, out is None, len(beside)), call, tensors)


Known = TypeVar("Known")
Guarded = tuple[Guards, Known]
"""Guards that recognize a call's tensors, and what is known of the call."""


def matching(some: Sequence[Guarded[Known]], tensors: tuple[Any, ...]) -> Known | None:
    """Return what is known of a call with such tensors."""
    for guards, known in some:
        if guards(*tensors):
            return known
    return None


def keep(
    table: dict[tuple[object, ...], list[Guarded[Known]]], key: tuple[object, ...], known: Known, tensors: Any
) -> None:
    """Add a call with these tensors to the first of `key`, unless no guards recognize them; the oldest are dropped."""
    guards = guards_of(tensors)
    if not guards(*tensors):
        return
    if len(table) >= CACHED_SHAPES and key not in table:
        table.clear()
    others = [each for each in table.get(key, ()) if not each[0](*tensors)]
    table[key] = [(guards, known), *others[: FORMS_OF_SHAPES - 1]]


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
