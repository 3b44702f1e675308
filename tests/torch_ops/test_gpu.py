"""Calls from PyTorch on a GPU: gradients, training, graphs, streams, threads, and the switches of torch."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
from cutegen.errors import RequestError  # noqa: E402
from tests.torch_ops.cases import MAJORS, check_gradients, pair, train  # noqa: E402
from tests.torch_ops.exact import ACTIVATIONS, Exact, close  # noqa: E402

pytestmark = pytest.mark.gpu
HALF = {"device": "cuda", "dtype": torch.float16}


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_all_majors_and_activations(majors: str, activation: str | None) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        check_gradients("cuda", majors, activation, bias=True, dtype=dtype, shape=(136, 264, 200))


def test_gradients_of_batches_residuals_and_odd_extents() -> None:
    check_gradients("cuda", "tn", "gelu", bias=True, residual=True, batch=(3, 2))
    check_gradients("cuda", "tt", None, bias=False, batch=(3, 2), batched_b=True, alpha=0.5)
    check_gradients("cuda", "nt", "silu", bias=True, shape=(33, 47, 61), direct=True)
    check_gradients("cuda", "tn", None, bias=True, dtype=torch.float32, shape=(64, 64, 64))


@pytest.mark.filterwarnings("ignore")  # inductor's, of what this GPU could do faster
def test_a_block_compiled_by_inductor_trains_as_with_torchs_linear() -> None:
    make = {"width": 256, "device": "cuda", "dtype": torch.float16}
    theirs, mine = pair(**make)
    theirs.float(), mine.float()
    compiled = torch.compile(mine, fullgraph=True)

    def narrow(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(x: Any) -> Any:
            # As long as it lasts, autocast keeps the casts of nn.Linear's weights: it must end before they change.
            with torch.autocast("cuda", torch.float16):
                return run(x)

        return step

    wanted = train(theirs, narrow(theirs), rows=64, device="cuda")
    found = train(mine, narrow(compiled), rows=64, device="cuda")
    assert found == pytest.approx(wanted, rel=5e-3)


def test_a_captured_call_is_replayed_on_new_values() -> None:
    a, w, bias = torch.randn(64, 512, **HALF), torch.randn(256, 512, **HALF), torch.randn(256, **HALF)
    cutegen.matmul(a, w.T, bias=bias, activation="gelu")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cutegen.matmul(a, w.T, bias=bias, activation="gelu")
    a.copy_(torch.randn(64, 512, **HALF))
    graph.replay()
    torch.cuda.synchronize()
    close(out, Exact(a, w.T, bias, "gelu"), "replayed")


def test_a_kernel_that_is_missing_under_capture_is_an_error_that_names_it() -> None:
    a, b = torch.randn(40, 72, **HALF), torch.randn(72, 1288, **HALF)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)  # an empty graph is a warning
        with pytest.raises(RequestError, match=r"48x1408x80 on .*cutegen\.prepare"):
            cutegen.matmul(a, b, alpha=2.0, activation="relu")


def test_a_call_waits_for_the_stream_that_it_is_made_on() -> None:
    a, b = torch.zeros(512, 512, **HALF), torch.eye(512, **HALF)
    side = torch.cuda.Stream()
    cutegen.matmul(a, b)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        a.fill_(3.0)
        out = cutegen.matmul(a, b)
    side.synchronize()
    assert (out == 3).all()


def test_eight_threads_of_a_hundred_calls_are_right() -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        random = torch.Generator("cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(100):
                m = (16, 64, 200)[turn % 3]
                a, b = (torch.randn(*shape, generator=random, **HALF) for shape in ((m, 128), (128, 256)))
                try:
                    close(cutegen.matmul(a, b), Exact(a, b), f"{seed}, {turn}")
                except AssertionError as error:
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_sums_of_an_accumulation_are_f32_and_in_place() -> None:
    x, g = torch.randn(64, 96, **HALF), torch.randn(64, 128, **HALF)
    main = torch.full((128, 96), 0.25, device="cuda")
    for _ in range(2):
        cutegen.matmul(g.T, x, c=main, beta=1.0, out=main)
    close(main, Exact(g.T, x, alpha=2.0, c=torch.full_like(main, 0.25)), "main_grad")


def test_f32_is_tf32_only_where_torch_may() -> None:
    a, b = torch.randn(256, 512, device="cuda"), torch.randn(512, 128, device="cuda")
    wanted, before = a.double() @ b.double(), torch.backends.cuda.matmul.fp32_precision
    errors = {}
    try:
        for precision in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = precision
            errors[precision] = (cutegen.matmul(a, b).double() - wanted).abs().max().item()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert errors["ieee"] < 3e-4 < 1e-3 < errors["tf32"] < 0.2


def test_a_row_does_not_depend_on_how_many_there_are() -> None:
    a, w = torch.randn(2048, 1024, **HALF), torch.randn(768, 1024, **HALF)
    with cutegen.matmul_settings(batch_invariant=True):
        whole = cutegen.matmul(a, w.T)
        for rows in (1, 3, 64, 300):
            assert torch.equal(cutegen.matmul(a[:rows], w.T), whole[:rows])


def test_float8_with_scales_and_integers() -> None:
    a, w = torch.randn(64, 256, device="cuda"), torch.randn(128, 256, device="cuda")
    narrow_a, narrow_w = a.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    scale_a, scale_w = torch.rand(64, 1, device="cuda") + 0.5, torch.rand(1, 128, device="cuda") + 0.5
    out = cutegen.matmul(narrow_a, narrow_w.T, scale_a=scale_a, scale_b=scale_w, out_dtype=torch.float16)
    close(out, Exact(narrow_a, narrow_w.T, scale=scale_a.double() * scale_w.double()), "e4m3")
    whole_a, whole_w = (
        torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8) for shape in ((64, 256), (128, 256))
    )
    assert torch.equal(cutegen.matmul(whole_a, whole_w.T).cpu(), whole_a.cpu().int() @ whole_w.cpu().int().T)


def test_a_copy_of_a_model_is_served_by_the_same_kernels() -> None:
    layer = cutegen.Linear(128, 64, activation="silu", **HALF)
    x = torch.randn(5, 7, 128, **HALF)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_a_graph_of_groups_is_replayed_with_other_ends_and_no_call_waits_for_the_host() -> None:
    x, w = torch.randn(96, 64, **HALF), torch.randn(5, 48, 64, **HALF)
    ends = torch.tensor([3, 3, 40, 90, 90], dtype=torch.int32, device="cuda")
    weight = w.clone().requires_grad_()
    cutegen.grouped_mm(x, weight.mT, offs=ends).sum().backward()  # builds the kernels
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        cutegen.grouped_mm(x, weight.mT, offs=ends, activation="silu").sum().backward()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = cutegen.grouped_mm(x, w.mT, offs=ends)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for given in ([3, 3, 40, 90, 90], [0, 0, 0, 0, 96], [-5, 2**31 - 1, 3, 0, 9], [0] * 5):
        ends.copy_(torch.tensor(given, dtype=torch.int32))
        graph.replay()
        wanted, begin = torch.zeros(96, 48, dtype=torch.float64, device="cuda"), 0
        for group, number in enumerate(given):
            end = min(max(number, begin), 96)
            wanted[begin:end] = x[begin:end].double() @ w[group].double().T
            begin = end
        assert (y.double() - wanted).abs().max() <= 2.0**-9 * (1 + wanted.abs().max())
        assert not y[begin:].any()


@pytest.mark.parametrize("form", ["m", "n", "k", "padded"])
def test_groups_are_those_of_the_loop_on_a_gpu(form: str) -> None:
    from tests.torch_ops.test_grouped_mm import GIVEN, close, looped, named, operands

    for given in GIVEN.values():
        a, b = operands(form, len(given))
        terms = {name: x.cuda() for name, x in named(form, given).items()}
        found = cutegen.grouped_mm(a.cuda(), b.cuda(), **terms)
        close(found.cpu(), looped(form, a.double(), b.double(), given))
