"""The host side of a generated file: its launch and the self-check's workspace are those of the launch contract."""

from __future__ import annotations

import ast
import re
from types import FunctionType
from typing import Any
from unittest.mock import MagicMock

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.render import render
from cutegen.render.edited import KernelText
from cutegen.render.self_check import CHECKED_MNK
from cutegen.spec import GemmSpec, load_spec
from tests.run.split_k import CASES as SLICES
from tests.run.wgmma import CASES as WARPGROUPS

CASES: dict[str, tuple[GemmSpec, str]] = {
    **{name: (SLICES[name], "sm_80") for name in ("plain_split_3", "many_split_24", "added_split_3")},
    **{
        name: (WARPGROUPS[name], "sm_90")
        for name in (
            "tn",
            "pingpong",
            "cluster_of_two_boxes",
            "cluster_along_n",
            "split_k",
            "slices_of_a_cluster",
            "clusters_leave_shares",
            "slices_share_copies",
            "cluster_of_tiles_and_slices",
        )
    },
    **{name: (load_spec(name), "sm_80") for name in ("sm80_hgemm_tn", "simt_sgemm_tn")},
    "sm120_hgemm_tn": (load_spec("sm120_hgemm_tn"), "sm_120"),
}


class _Host:
    """The functions `launch` and `main` of a file, executed as Python; what they launch is recorded."""

    def __init__(self, text: str) -> None:
        self.launched: dict[str, Any] = {}
        self.names: dict[str, Any] = {name: each.value for name, each in KernelText.of(text, "").constants.items()}
        cute, cpasync = MagicMock(), MagicMock()
        cute.jit = lambda function: function
        cute.assume = lambda x, divby: x
        cute.ceil_div = lambda x, y: -(-x // y)
        cpasync.make_tiled_tma_atom.return_value = (None, None)
        self.names |= {"cute": cute, "cpasync": cpasync, "Int32": int, "Int64": int, "Float32": float}
        self.names |= {"cuda": MagicMock(CUstream=hex), "cutlass": MagicMock(min=min, max=max)}
        self.names |= {"pointers": lambda *addresses: addresses, "compile_kernel": lambda _: None}
        self.names |= {"gemm": lambda *_: MagicMock(launch=self._record)}
        body = "\n".join(
            ast.unparse(each)
            for each in ast.parse(text).body
            if isinstance(each, ast.FunctionDef) and each.name in ("launch", "main")
        )
        body = re.sub(r"compiled\((\*addresses.*)\)", r"return locals() | {'passed': (\1)}", body)
        exec(body.replace("'cuda'", "'cpu'"), self.names)

    def _record(self, **launched: Any) -> None:
        self.launched = launched

    @property
    def launch(self) -> FunctionType:
        found: FunctionType = self.names["launch"]
        return found

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of `launch`'s parameters."""
        code = self.launch.__code__
        return code.co_varnames[: code.co_argcount]

    def operands(self) -> dict[str, Any]:
        """What `main` has when it calls the kernel; `passed` are the call's arguments."""
        found: dict[str, Any] = self.names["main"]()
        return found


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest) -> GemmPlan:
    found = plan(*CASES[request.param])
    assert isinstance(found, GemmPlan)
    return found


@pytest.fixture(scope="module")
def host(made: GemmPlan) -> _Host:
    return _Host(render(made).text)


def test_the_self_check_makes_the_contracts_operands(
    made: GemmPlan, host: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: MagicMock(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: MagicMock(cuda_stream=0x5A5A))
    found, problem = host.operands(), ProblemShape(*CHECKED_MNK)
    host.launch(*found["passed"])
    assert host.launched["grid"] == made.launch.geometry(problem, multiprocessors=132).grid
    assert host.launched["stream"] == "0x5a5a"
    if (workspace := made.launch.workspace(problem)) is not None:
        assert found["sums"].numel() * found["sums"].element_size() == workspace.sums_bytes
        assert found["counters"].numel() == workspace.counters
        assert not found["counters"].any()
    passed = dict(zip(host.parameters, found["passed"], strict=True))
    for name, tensor in (("lda", found["a"]), ("ldb", found["b"]), ("ldc", found["c"])):
        assert passed[name] == max(tensor.stride())
    if made.launch.adds_to_result:
        assert not found["c"].any(), "each slice adds to C"
    else:
        assert found["c"].isnan().all(), "an element that is not written fails the check"


@pytest.mark.parametrize("problem", [(100, 60, 256), (300, 300, 256, 3), (600, 200, 0), CHECKED_MNK])
def test_a_file_launches_the_contracts_grid(made: GemmPlan, host: _Host, problem: tuple[int, ...]) -> None:
    """Few CTAs are spread over a GPU that they leave half idle; a batch counts there, and is grid.z."""
    shape = ProblemShape(*problem)
    half_of = 2 * made.launch.tiles(shape) * (made.split_k.slices if made.split_k else 1)
    for multiprocessors in (16, 48, 132, 5000, half_of - 1, half_of):
        extents = {**shape.extents, "batches": shape.batch, "multiprocessors": multiprocessors}
        host.launch(*(extents.get(each, 8) for each in host.parameters))
        wanted = made.launch.geometry(shape, multiprocessors=multiprocessors)
        assert host.launched["grid"] == wanted.grid
        assert host.launched["block"] == wanted.block
        assert host.launched["smem"] == wanted.dynamic_smem_bytes
        assert host.launched.get("cluster", (1, 1, 1)) == wanted.cluster
