"""Arrays of NumPy and torch in every state that a caller may have them in, each with what it means.

`MAKERS` are by name; a maker is given the values (float64, small integers), the element type and order in memory, and
random numbers. It answers with the operand and its meaning: its values as NumPy or torch themselves read them, None
where there are none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Made = tuple[Any, Array | None]
Kind = tuple[str, str]
"""The element type's name, and "C" or "F": whether rows or columns lie together."""
Maker = Callable[[Array, Kind, random.Random], Made]

NUMPY = {"f16": np.float16, "f32": np.float32}
TORCH = {"f16": torch.float16, "f32": torch.float32}
HOSTILE = (
    None,
    "",
    "x",
    -1,
    0,
    1,
    2**31,
    2**63,
    2**70,
    1.5,
    float("nan"),
    (),
    (1,),
    (-1, -1),
    (2**40, 2**40),
    ("a", "b"),
    [],
    {},
    True,
    b"",
)


def stored(values: Array, kind: Kind, rng: random.Random) -> Array:
    """The values in an array of their own, most often in that order and with rows of whole 16 bytes."""
    dtype, order = kind
    if rng.random() < 0.06:
        order = rng.choice("CF")
    rows = values if order == "C" else values.swapaxes(-1, -2)
    stride = (
        -(-rows.shape[-1] // 8) * 8 + rng.choice((0, 0, 8, 16)) + (rng.choice((1, 3)) if rng.random() < 0.04 else 0)
    )
    inner = np.full((*rows.shape[:-1], stride), np.nan, NUMPY[dtype])[..., : rows.shape[-1]]
    inner[...] = rows
    return inner if order == "C" else inner.swapaxes(-1, -2)


def _numpy(change: Callable[[Array, random.Random], Any]) -> Maker:
    def make(values: Array, kind: Kind, rng: random.Random) -> Made:
        made = change(stored(values, kind, rng), rng)
        return made, np.asarray(made).astype(np.float64)

    return make


def _read_only(array: Array, rng: random.Random) -> Array:
    array.flags.writeable = False
    return array


def _unaligned(array: Array, rng: random.Random) -> Array:
    room = np.zeros(array.nbytes + 16, np.uint8)
    made = room[rng.choice((1, 2, 4, 8)) :][: array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _field(array: Array, rng: random.Random) -> Array:
    made = np.zeros(array.shape, [("x", array.dtype), ("y", rng.choice((np.int8, array.dtype)))])
    made["x"] = array
    return made["x"]


def _every_other(array: Array, rng: random.Random) -> Array:
    made = np.repeat(np.repeat(array, 2, -1), 2, -2)
    return made[..., :: rng.choice((1, 2)), ::2][..., : array.shape[-2], :]


def _one_row(array: Array, rng: random.Random) -> Array:
    return np.broadcast_to(array[..., :1, :], array.shape)


class Subclass(np.ndarray[Any, Any]):
    """An array that claims to be more than one."""


def _torch(change: Callable[[Any, random.Random], Any]) -> Maker:
    def make(values: Array, kind: Kind, rng: random.Random) -> Made:
        made = change(torch.from_numpy(stored(values, kind, rng)), rng)
        with torch.no_grad():
            return made, made.detach().to_dense().resolve_conj().resolve_neg().double().numpy()

    return make


def _meaningless(change: Callable[[Any], Any]) -> Maker:
    return lambda values, kind, rng: (change(torch.from_numpy(values).to(TORCH[kind[0]])), None)


def _freed(tensor: Any) -> Any:
    tensor.untyped_storage().resize_(0)
    return tensor


def _conjugate(tensor: Any, rng: random.Random) -> Any:
    kind = torch.complex64 if tensor.dtype == torch.float32 else torch.complex32
    return torch.complex(torch.zeros_like(tensor), -tensor).to(kind).conj().imag


def _subclass(tensor: Any, rng: random.Random) -> Any:
    return tensor.as_subclass(type("Mine", (torch.Tensor,), {}))


def _fake(tensor: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(tensor)


def _cuda_array(values: Array, kind: Kind, rng: random.Random) -> Made:
    """The interface with some of its fields wrong; the memory is not a GPU's in any case."""
    array = stored(values, kind, rng)
    kept = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}
    interface = kept | {"strides": array.strides, "stream": rng.choice((None, 1, 0, -1, "x"))}
    for key in rng.sample(sorted(interface), rng.choice((0, 1, 1, 2))):
        if rng.random() < 0.2:
            del interface[key]
        else:
            interface[key] = rng.choice(HOSTILE)
    whole = rng.choice(HOSTILE) if rng.random() < 0.15 else interface
    return SimpleNamespace(__cuda_array_interface__=whole, array=array), None


def _dlpack(values: Array, kind: Kind, rng: random.Random) -> Made:
    """The protocol as NumPy speaks it, or a part of it that answers with something else."""
    array = stored(values, kind, rng)
    part, answer = rng.choice(("none", "device", "capsule", "both")), rng.choice(HOSTILE)

    def capsule(**options: Any) -> Any:
        return array.__dlpack__(**options) if part in ("none", "device") else answer

    def device() -> Any:
        return array.__dlpack_device__() if part in ("none", "capsule") else rng.choice((answer, (2, 0), (1, 7)))

    made = SimpleNamespace(__dlpack__=capsule, __dlpack_device__=device)
    return made, array.astype(np.float64) if part == "none" else None


def _anything(values: Array, kind: Kind, rng: random.Random) -> Made:
    return rng.choice((*HOSTILE, values.tolist(), object(), np.float32(1), len, np)), None


MAKERS: Mapping[str, Maker] = {
    "numpy": _numpy(lambda x, rng: x),
    "numpy, read-only": _numpy(_read_only),
    "numpy, unaligned": _numpy(_unaligned),
    "numpy, a field": _numpy(_field),
    "numpy, every other": _numpy(_every_other),
    "numpy, one row": _numpy(_one_row),
    "numpy, backwards": _numpy(lambda x, rng: x[..., ::-1, :] if rng.random() < 0.5 else x[..., ::-1]),
    "numpy, foreign bytes": _numpy(lambda x, rng: x.astype(x.dtype.newbyteorder(">"))),
    "numpy, another type": _numpy(lambda x, rng: x.astype(rng.choice((np.float64, np.int32, np.int8, bool, complex)))),
    "numpy, bits": _numpy(lambda x, rng: x.astype(np.int16).view(np.uint16)),
    "numpy, masked": _numpy(lambda x, rng: np.ma.masked_array(x, mask=rng.random() < 0.5)),
    "numpy, a subclass": _numpy(lambda x, rng: x.view(Subclass)),
    "numpy, objects": _numpy(lambda x, rng: x.astype(object)),
    "numpy, other dimensions": _numpy(
        lambda x, rng: rng.choice((x[None], x[0], x[None, None], x.ravel(), x[..., None]))
    ),
    "torch": _torch(lambda x, rng: x),
    "torch, negative bit": _torch(lambda x, rng: torch._neg_view(x)),
    "torch, conjugate bit": _torch(_conjugate),
    "torch, grad": _torch(lambda x, rng: x.requires_grad_()),
    "torch, parameter": _torch(lambda x, rng: torch.nn.Parameter(x, requires_grad=rng.random() < 0.5)),
    "torch, expanded": _torch(lambda x, rng: x[..., :1, :].expand(x.shape)),
    "torch, a subclass": _torch(_subclass),
    "torch, another type": _torch(
        lambda x, rng: x.to(rng.choice((torch.float64, torch.bfloat16, torch.int32, torch.bool)))
    ),
    "torch, sparse": _torch(lambda x, rng: x.float().to_sparse()),
    "torch, freed": _meaningless(_freed),
    "torch, meta": _meaningless(lambda x: x.to("meta")),
    "torch, fake": _meaningless(_fake),
    "torch, nested": _meaningless(lambda x: torch.nested.nested_tensor([x.float()])),
    "cuda array": _cuda_array,
    "dlpack": _dlpack,
    "anything": _anything,
}
