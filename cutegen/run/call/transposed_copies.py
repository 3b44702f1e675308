"""Transposed copies of operands, made once and kept, for `problem.b.transposed = "once"`.

A copy is identified by its tensor's memory (address, shape, strides) and by torch's version counter, which every
operation that writes the tensor or a view of it increments. A changed tensor is copied again. A copy is dropped when
its source memory is freed, or when more recently used copies need the space. Copies miss writes that torch does not
count: by another library or by the replay of a CUDA graph, in inference mode through a view of another dtype, and
between a tensor and its `.data`, each of which has its own counter. `kept_copies.clear()` drops everything.
"""

import logging
import sys
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from cutegen.contract.launch import TensorContract
from cutegen.errors import OperandError
from cutegen.run.call.check import check_operand
from cutegen.run.call.operands import Form, TensorView, view_of
from cutegen.run.call.storage import CallTensor, empty

DEFAULT_LIMIT_BYTES = 2 << 30

_LOG = logging.getLogger("cutegen.run")

_Key = tuple[int, Form, TensorContract]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A kept copy of the bytes from `begin` to `end`, made at `version`.

    `memory` is the storage that it was made from. On a GPU, `ready` is recorded after the copy on `stream`.
    """

    copy: Any
    memory: weakref.ref[Any]
    version: int
    begin: int
    end: int
    bytes: int
    stream: Any
    ready: Any


class KeptCopies:
    """The copies of this process, at most `limit_bytes`; the least recently used goes first."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.entries: OrderedDict[_Key, Entry] = OrderedDict()
        # A tensor may be collected, and its copy dropped, at any point in the thread that holds the lock.
        self._lock = threading.RLock()

    @property
    def held_bytes(self) -> int:
        """The memory of all copies."""
        return sum(entry.bytes for entry in list(self.entries.values()))

    def clear(self) -> None:
        """Drop every copy."""
        with self._lock:
            self.entries.clear()

    def written(self, begin: int, end: int) -> None:
        """Drop copies of these addresses, which a kernel writes without torch's knowledge."""
        with self._lock:
            for key, entry in list(self.entries.items()):
                if begin < entry.end and entry.begin < end:
                    self.entries.pop(key, None)

    def find(self, key: _Key, memory: Any, version: int) -> Entry | None:
        """Return the copy of a tensor in its current state."""
        with self._lock:
            entry = self.entries.get(key)
            if entry is None or entry.version != version or entry.memory() is not memory:
                return None
            self.entries.move_to_end(key)
            return entry

    def keep(self, key: _Key, entry: Entry) -> None:
        """Keep a copy, replacing an older one; a copy larger than the limit is not kept."""
        with self._lock:
            self.entries.pop(key, None)
            room = self.limit_bytes - entry.bytes
            while self.entries and self.held_bytes > room:
                self.entries.popitem(last=False)
            if room >= 0:
                self.entries[key] = entry

    def forget(self, key: _Key, memory: weakref.ref[Any]) -> None:
        """Drop a copy whose source memory is gone."""
        with self._lock:
            entry = self.entries.get(key)
            if entry is not None and entry.memory is memory:
                del self.entries[key]


kept_copies = KeptCopies()


def span_elems(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the elements from the first to the last of a tensor that is not empty.

    >>> span_elems((3, 4), (10, 1))
    24
    """
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


class Transposed:
    """Copies of one operand for a kernel that reads another major than calls pass.

    `given` is the operand as passed, `read` as the kernel was compiled for.
    """

    def __init__(self, given: CallTensor, read: CallTensor, copies: KeptCopies = kept_copies) -> None:
        self._given, self._read, self._copies = given, read, copies
        self._warned = False

    def __call__(self, operand: Any, stream: int | None) -> Any:
        """Return the copy of `operand`, kept or new, ready for work on `stream`, by default the current one.

        Copies of torch tensors are kept. NumPy arrays and inference tensors do not report changes: their copy is made
        for this one call. The same holds during capture of a CUDA graph: the copy becomes part of the graph, whose
        replays see the values of B at that time. Raises OperandError, also for other arrays.
        """
        view = view_of(operand, self._given.name, stream)
        shared = len(view.form.shape) == 3 and view.form.shape[0] > 0 and view.form.strides[0] == 0
        if shared and view.form.framework == "torch":
            return self(operand[0], stream).expand(view.form.shape)
        torch = sys.modules.get("torch")
        if torch is None or view.form.framework != "torch":
            return self._of_array(operand, view)
        if not operand.is_cuda:
            return self._of_tensor(operand, view, None)
        here = torch.cuda.current_stream(operand.device)
        if stream is not None:
            here = torch.cuda.ExternalStream(stream, device=operand.device)
        with torch.cuda.stream(here):
            if torch.cuda.is_current_stream_capturing():
                return self._copy(operand, view)
            return self._of_tensor(operand, view, here)

    def _of_tensor(self, operand: Any, view: TensorView, here: Any) -> Any:
        """Return the copy; on a GPU `here` is the current stream."""
        version = self._version(operand)
        if version is None:
            return self._copy(operand, view)
        key, memory = (view.pointer, view.form, self._read.contract), operand.untyped_storage()
        entry = self._copies.find(key, memory, version)
        if entry is None:
            entry = self._entry(operand, view, version, weakref.ref(memory, partial(self._copies.forget, key)), here)
            self._copies.keep(key, entry)
        elif here is not None and here != entry.stream:
            here.wait_event(entry.ready)
            entry.copy.record_stream(here)
        return entry.copy

    def _entry(self, operand: Any, view: TensorView, version: int, memory: weakref.ref[Any], here: Any) -> Entry:
        form, size = view.form, self._read.dtype.bytes
        return Entry(
            copy=self._copy(operand, view),
            memory=memory,
            version=version,
            begin=view.pointer,
            end=view.pointer + span_elems(form.shape, form.strides) * size,
            bytes=prod(self._read.storage(form.shape).extents) * size,
            stream=here,
            ready=None if here is None else here.record_event(),
        )

    def _of_array(self, operand: Any, view: TensorView) -> Any:
        if view.form.framework != "numpy":
            raise OperandError(
                operand=self._given.name,
                found=f"an array of {view.form.framework}, which does not report changes",
                expected=f"a torch tensor, whose transposed copy can be kept ({self._given.key('transposed')})",
                fix=f"pass `torch.from_dlpack({self._given.name})`, and clear `kept_copies` when it changes",
            )
        return self._copy(operand, view)

    def _copy(self, operand: Any, view: TensorView) -> Any:
        """Return a copy in new memory, made on the current stream."""
        check_operand(self._given, view.form, view.pointer)
        copy = empty(self._read.storage(view.form.shape), self._read.dtype.torch_name, operand, view.form, None)
        if view.form.framework == "torch":
            copy.copy_(operand.detach())
        else:
            copy[...] = operand
        return copy

    def _version(self, operand: Any) -> int | None:
        """Return torch's count of the writes; None for a tensor without one."""
        if not operand.is_inference():
            return int(operand._version)
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "%s is an inference tensor, which does not report changes: each call transposes it",
                self._given.name,
            )
        return None
