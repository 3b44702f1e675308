"""One view of operands from every protocol."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.errors import OperandError
from cutegen.run.call import operands
from cutegen.run.call.interfaces import read_cuda_array
from cutegen.run.call.operands import CPU, Form, count_write, view_of
from cutegen.run.driver import Driver
from tests.run.dlpack_producer import Producer

torch = pytest.importorskip("torch")


def test_torch_tensor() -> None:
    tensor = torch.zeros(40, 64, dtype=torch.bfloat16)[3:, 8:50]
    view = view_of(tensor, "a")
    assert view.pointer == tensor.data_ptr()
    assert view.form == Form((37, 42), (64, 1), "bf16", CPU, "torch", False)
    assert view_of(torch.nn.Parameter(torch.zeros(2, 2), requires_grad=False), "a").form.dtype == "f32"


def test_numpy_array() -> None:
    array = np.zeros((40, 64), np.float16)[::2].T
    view = view_of(array, "a")
    assert view.pointer == array.ctypes.data
    assert view.form == Form((64, 20), (1, 128), "f16", CPU, "numpy", False)
    array.flags.writeable = False
    assert view_of(array, "a").form.read_only


def test_uint16_is_bf16_for_numpy_alone() -> None:
    assert view_of(np.zeros((2, 2), np.uint16), "a").form.dtype == "bf16"
    assert view_of(torch.zeros(2, 2, dtype=torch.uint16), "a").form.dtype == "uint16"


def test_numpy_array_in_foreign_byte_order() -> None:
    assert view_of(np.zeros((2, 2), ">f2"), "a").form.dtype == "float16 in foreign byte order"


def test_strides_that_are_no_whole_elements() -> None:
    array = np.zeros(4, np.dtype([("x", np.float16), ("y", np.int8)]))["x"]
    with pytest.raises(
        OperandError, match=r"found strides of \(3,\) bytes; expected multiples of the element's 2 bytes"
    ):
        view_of(array, "b")


@pytest.mark.parametrize("dtype", ["V0", [], "O", "M8[s]", "U3", np.longdouble])
def test_types_that_no_kernel_takes_have_a_view_with_their_name(dtype: Any) -> None:
    assert view_of(np.zeros((2, 2), dtype), "a").form.dtype == np.zeros(1, dtype).dtype.name


def test_cuda_array_interface(cuda_array: Any) -> None:
    array = np.zeros((8, 16), np.float16)
    view = view_of(cuda_array(array, ordinal=1, stream=99, read_only=True), "a")
    assert view.pointer == array.ctypes.data
    assert view.form == Form((8, 16), (16, 1), "f16", ("cuda", 1), "conftest", True)
    assert view.stream == 99
    assert view_of(cuda_array(array.T), "a").form.strides == (1, 16)


def test_cuda_array_without_a_device_asks_the_driver(fake_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api = fake_api()
    monkeypatch.setattr(operands, "load_driver", lambda: Driver(api))
    interface = {"shape": (2, 8), "typestr": "<u2", "data": (4096, False), "version": 2}
    view = view_of(SimpleNamespace(__cuda_array_interface__=interface), "a")
    assert view.form.device == ("cuda", 1)
    assert ("cuPointerGetAttribute", "ordinal", 4096) in api.calls
    assert (view.form.dtype, view.form.strides, view.stream) == ("uint16", (8, 1), None)


class Never:
    """A value that nothing can be done with."""

    def __repr__(self) -> str:
        return "x" * 5000

    def __index__(self) -> int:
        raise TypeError("never")


TABLE: dict[str, Any] = {"shape": (4, 8), "typestr": "<f2", "data": (4096, False), "version": 3}


@pytest.mark.parametrize(
    "change", [{}, {"version": 0}, {"stream": None}, {"stream": 0}, {"stream": 2**64 - 1}, {"data": [0, True]}]
)
def test_tables_of_cuda_memory_that_are_taken(change: dict[str, Any]) -> None:
    found = read_cuda_array({**TABLE, **change})
    assert (found.shape, found.stream) == ((4, 8), change.get("stream"))


MALFORMED = {
    "no table": (3, "found a int, expected a dict"),
    "shape missing": ({"shape": ...}, "shape: found none"),
    "shape a number": ({"shape": 32}, "shape: found 32, expected a tuple"),
    "shape of text": ({"shape": ("4", 8)}, "shape: found '4', expected an integer"),
    "shape of floats": ({"shape": (4.0, 8)}, "shape: found 4.0"),
    "shape below zero": ({"shape": (-4, 8)}, "shape: found -4, expected 0 to"),
    "shape huge": ({"shape": (10**5000, 8)}, "shape: found an integer of 16610 bits"),
    "shape of 65": ({"shape": (1,) * 65}, "shape: found"),
    "shape endless": ({"shape": Never()}, r"shape: found x{57}\.\.\., expected"),
    "data missing": ({"data": ...}, "data: found none"),
    "data a number": ({"data": 4096}, "data: found 4096, expected an address and"),
    "data None": ({"data": (None, False)}, "data: found None, expected an integer"),
    "data below zero": ({"data": (-1, False)}, "data: found -1"),
    "data of text": ({"data": "ab"}, "data: found 'ab', expected"),
    "data of a table": ({"data": {1: 2, 3: 4}}, "data: found"),
    "data huge": ({"data": (1 << 64, False)}, "data: found 18446744073709551616"),
    "typestr missing": ({"typestr": ...}, "typestr: found none"),
    "typestr nonsense": ({"typestr": "<q9"}, "typestr: found '<q9'"),
    "typestr None": ({"typestr": None}, "typestr: found None"),
    "typestr of no bytes": ({"typestr": "|V0"}, r"typestr: found '\|V0'"),
    "typestr long": ({"typestr": "f2," * 9999}, "typestr"),
    "strides a number": ({"strides": 2}, "strides: found 2"),
    "strides too few": ({"strides": (2,)}, "strides: found 1, expected 2"),
    "strides huge": ({"strides": (1 << 63, 4)}, "strides: found 9223372036854775808"),
    "stream text": ({"stream": "main"}, "stream: found 'main'"),
    "stream huge": ({"stream": 2**64}, "stream: found 18446744073709551616"),
    "stream below zero": ({"stream": -1}, "stream: found -1"),
    "version missing": ({"version": ...}, "version: found none"),
    "version to come": ({"version": 4}, "version: found 4, expected 0 to 3"),
    "version below zero": ({"version": -1}, "version: found -1"),
    "version None": ({"version": None}, "version: found None"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_cuda_array_interface_is_refused_by_its_key(case: str) -> None:
    changed, message = MALFORMED[case]
    if isinstance(changed, dict):
        changed = {key: value for key, value in {**TABLE, **changed}.items() if value is not ...}
    with pytest.raises(
        OperandError, match=f"^operand a: found a malformed __cuda_array_interface__.*{message}"
    ) as caught:
        view_of(SimpleNamespace(__cuda_array_interface__=changed), "a")
    assert len(str(caught.value)) < 500


def test_numbers_of_numpy_are_numbers(cuda_array: Any) -> None:
    array = SimpleNamespace(
        __dlpack_device__=lambda: (2, 0),
        __cuda_array_interface__={
            "shape": list(np.array([4, 8])),
            "typestr": "<f2",
            "data": [np.uint64(4096), np.False_],
            "strides": tuple(np.array([16, 2], np.int32)),
            "version": np.int8(2),
        },
    )
    form = view_of(array, "a").form
    assert (form.shape, form.strides) == ((4, 8), (8, 1))
    assert {type(x) for x in (*form.shape, *form.strides)} == {int}


@pytest.mark.parametrize("error", [RuntimeError, KeyError, MemoryError, RecursionError, ZeroDivisionError])
@pytest.mark.parametrize("attribute", ["__cuda_array_interface__", "__dlpack__", "__dlpack_device__"])
def test_what_a_property_raises_is_an_operand_error(attribute: str, error: type[Exception]) -> None:
    def fails(self: Any) -> Any:
        raise error("on purpose")

    members = {"__dlpack__": lambda self, **options: None, "__dlpack_device__": lambda self: (1, 0)}
    for made in (property(fails), lambda self, **options: fails(self)):
        operand = type("Failing", (), {**members, attribute: made})()
        with pytest.raises(OperandError, match="operand a: found"):
            view_of(operand, "a")


def test_masked_numpy_array_is_refused() -> None:
    with pytest.raises(OperandError, match="operand a: found a masked array; expected one without a mask"):
        view_of(np.ma.masked_array(np.zeros((2, 2), np.float16)), "a")


def test_masked_cuda_array_is_refused() -> None:
    interface = {"shape": (2, 8), "typestr": "<f2", "data": (4096, False), "version": 3, "mask": object()}
    with pytest.raises(OperandError, match="found a masked array"):
        view_of(SimpleNamespace(__cuda_array_interface__=interface), "a")


def freed(tensor: Any) -> Any:
    """Without its memory, as sharded training leaves a weight between two uses."""
    tensor.untyped_storage().resize_(0)
    return tensor


def wrapped(tensor: Any) -> Any:
    """A tensor that stands for another, as distributed and masked tensors do."""

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, *arguments: Any) -> Any:
            raise AssertionError("nobody computes with it")

    return torch.Tensor._make_wrapper_subclass(Wrapper, tensor.shape, dtype=tensor.dtype)


def fake(tensor: Any) -> Any:
    with torch._subclasses.FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


def jagged(tensor: Any) -> Any:
    return torch.nested.nested_tensor([tensor, tensor[1:]], layout=torch.jagged)


def exported(array: Any, **changed: Any) -> Any:
    interface = {"shape": (4, 8), "typestr": "<f4", "data": (0, False), "version": 3, **changed}
    return SimpleNamespace(__cuda_array_interface__=interface)


def null_dlpack(tensor: Any) -> Any:
    return Producer(freed(tensor))


# Torch's own, when fake tensors are first used:
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("made", [freed, wrapped, fake, jagged, exported, null_dlpack])
@pytest.mark.parametrize("name", ["a", "b", "c", "residual", "bias", "aux", "out"])
def test_an_operand_that_is_not_empty_has_an_address(made: Any, name: str) -> None:
    with pytest.raises(OperandError, match=f"operand {name}: found shape .* at address 0: its memory was freed"):
        view_of(made(torch.zeros(4, 8)), name)


def test_an_empty_operand_needs_no_address() -> None:
    assert view_of(torch.zeros(0, 8), "a").pointer == 0
    assert view_of(exported(None, shape=(4, 0)), "a").pointer == 0


def pasted(error: OperandError, tensor: Any) -> Any:
    """The operand after the expression in the message's backticks."""
    return eval(error.fix.split("`")[1], {"a": tensor, "torch": torch})


def test_lazy_zeros_are_refused_with_a_way_out() -> None:
    lazy = torch._efficientzerotensor((4, 8))
    with pytest.raises(OperandError, match="address 0") as caught:
        view_of(lazy, "a")
    assert view_of(pasted(caught.value, lazy), "a").pointer


@pytest.mark.parametrize("made", [torch._neg_view, lambda x: torch.complex(x, x).conj().imag], ids=["view", "conj"])
def test_a_negative_bit_is_refused_with_a_way_out(made: Any) -> None:
    """Such a tensor's memory holds the values with the other sign."""
    tensor = made(torch.randn(4, 8))
    with pytest.raises(OperandError, match="operand a: found a tensor with the negative bit set") as caught:
        view_of(tensor, "a")
    found = pasted(caught.value, tensor)
    assert view_of(found, "a").form.dtype == "f32"
    assert torch.equal(found, tensor)


def test_a_conjugate_bit_comes_with_a_dtype_that_no_kernel_takes() -> None:
    tensor = torch.zeros(4, 8, dtype=torch.complex64).conj()
    assert tensor.is_conj()
    assert view_of(tensor, "a").form.dtype == "complex64"
    assert not torch.zeros(4, 8).conj().is_conj()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when forward-mode AD is first used
def test_a_tangent_of_forward_mode_ad_is_refused_as_a_gradient_is() -> None:
    plain = torch.zeros(4, 8)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(plain, torch.ones(4, 8))
        with pytest.raises(
            OperandError, match=r"found a tensor with a tangent of forward-mode AD.*`a.detach\(\)`"
        ) as caught:
            view_of(dual, "a")
        assert view_of(pasted(caught.value, dual), "a").pointer == dual.data_ptr()
        assert view_of(plain, "a").pointer == plain.data_ptr()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_tensors_of_function_transforms_are_refused(transform: Any) -> None:
    """What they carry beside memory (a gradient, a batch) would be lost."""

    def reads_memory(tensor: Any) -> Any:
        with pytest.raises(OperandError):
            view_of(tensor, "a")
        return tensor.sum()

    transform(reads_memory)(torch.ones(4, 8))


def test_a_write_counts_where_autograd_kept_the_values() -> None:
    kept = torch.ones(4, 8)
    product = (torch.ones(4, 8, requires_grad=True) * kept).sum()
    count_write(kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    count_write(np.ones(3))
