"""An open pack: which kernel it answers with, what the kernel computes, and when `cutegen.matmul` gets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cutegen
from cutegen.build import Cache
from cutegen.contract import ProblemShape
from cutegen.contract.launch import SOURCE, SplitContract, TensorContract
from cutegen.contract.problem import Groups, Pairs, bucket
from cutegen.dispatch.pack import Pack
from cutegen.dispatch.provider import PACK, Answer
from cutegen.dispatch.providers import Providers, providers
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import ArtifactError, RequestError
from cutegen.grouped_mm import resolved_groups
from cutegen.hardware import target
from cutegen.pack.building import build_all, make_pack
from cutegen.pack.kernel_list import combinations
from cutegen.run import Kernel, Probe
from cutegen.run.call.bits import bf16_bits, bf16_values
from cutegen.verify.reference import compare, float64_reference
from tests.pack.conftest import SMALL
from tests.seeding import new_generator

pytestmark = pytest.mark.dsl

ROW = Matrix("f16", "k", 16)
REQUEST = Request(a=ROW, b=ROW, c=Matrix("f16", "n", 16), problem=ProblemShape(512, 512, 512), target="sm_80")


@pytest.fixture
def pack(pack_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pack]:
    present(monkeypatch, None)
    with cutegen.load_pack(pack_path) as opened:
        yield opened


def present(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    monkeypatch.setattr("cutegen.dispatch.pack.present_target", lambda: None if name is None else target(name))


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("sm80_hgemm_tn", {}, 0),
        ("sm80_hgemm_tn", {"problem": SMALL}, 1),
        ("sm80_hgemm_tn", {"problem": (64, 64, 64)}, 0),
        ("sm80_hgemm_tn", {"problem": SMALL, "target": "a100"}, 1),
        ("sm80_bf16_nn", {"problem": SMALL}, 2),
        ("sm90_hgemm_tn", {"target": "sm_90a"}, 3),
    ],
)
def test_a_kernel_is_found_by_name_problem_and_target(
    pack: Pack, name: str, asked: dict[str, object], expected: int
) -> None:
    assert pack.entry(name, **asked) is pack.entries[expected]  # type: ignore[arg-type]
    assert pack.kernel(name, **asked) is pack.kernel(name, **asked)  # type: ignore[arg-type]


def test_a_probe_is_opened_as_one(pack: Pack) -> None:
    assert isinstance(pack.kernel("ldmatrix_probe"), Probe)
    assert pack.names() == ("sm80_hgemm_tn", "sm80_bf16_nn", "sm90_hgemm_tn", "ldmatrix_probe")


@pytest.mark.parametrize(
    ("gpu", "asked", "expected"),
    [
        ("sm_80", "sm80_hgemm_tn", "sm_80"),
        ("sm_86", "sm80_hgemm_tn", "sm_80"),  # whose cubins run there
        ("sm_90", "sm90_hgemm_tn", "sm_90"),
    ],
)
def test_the_present_gpu_decides(
    pack: Pack, gpu: str, asked: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present(monkeypatch, gpu)
    assert pack.entry(asked).target == expected


@pytest.mark.parametrize(
    ("gpu", "name", "asked", "said"),
    [
        (None, "sm80_hgem_tn", {}, "did you mean sm80_hgemm_tn?"),
        (None, None, {}, "it has sm80_hgemm_tn, sm80_bf16_nn, sm90_hgemm_tn, ldmatrix_probe"),
        (None, "sm80_hgemm_tn", {"target": "sm_86"}, "it has sm_80; pack it with --arch sm_86"),
        (None, "sm80_hgemm_tn", {"target": "x"}, "unknown target"),
        ("sm_90", "sm80_hgemm_tn", {}, "no kernel of sm80_hgemm_tn for sm_90; it has sm_80"),
        ("sm_100", "sm90_hgemm_tn", {}, "no kernel of sm90_hgemm_tn for sm_100"),  # sm_90a runs on no later GPU
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    pack: Pack, gpu: str | None, name: str | None, asked: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present(monkeypatch, gpu)
    with pytest.raises(RequestError) as refused:
        pack.kernel(name, **asked)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_a_kernel_of_one_problem_is_not_given_for_another(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pack, "entries", pack.entries[1:])
    assert pack.entry("sm80_hgemm_tn").problem == ProblemShape(*SMALL)  # the only one
    with pytest.raises(RequestError, match="no kernel of sm80_hgemm_tn on sm_80 for 64x64x64; it has 256x256x128"):
        pack.entry("sm80_hgemm_tn", problem=(64, 64, 64))


def test_a_packed_kernel_computes(pack: Pack) -> None:
    random = new_generator()
    a, b = (random.standard_normal((rows, 72)).astype(np.float16) for rows in (60, 72))
    kernel = pack.kernel("sm80_hgemm_tn")
    assert isinstance(kernel, Kernel)
    out = np.full((60, 72), np.nan, np.float16)
    kernel(a, b.T, out=out)
    assert compare(out, float64_reference(a, b.T), dtype="f16").ok


def given(pack: Pack, request: Request) -> int | None:
    """The index of the entry that serves `request`."""
    answer = pack.answer(request)
    if answer.open is None:
        return None
    assert answer.ready
    kernel = answer.open()
    return next(index for index, entry in enumerate(pack.entries) if pack.open(entry) is kernel)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"problem": bucket(ProblemShape(*SMALL))}, 1),
        ({"problem": bucket(ProblemShape(250, 256, 120))}, 1),  # whose bucket is the same
        ({"a": replace(ROW, dtype="bf16"), "b": replace(ROW, dtype="bf16")}, None),
        ({"a": Matrix("bf16", "m", 16), "b": Matrix("bf16", "n", 16), "c": Matrix("bf16", "n", 16)}, None),
        ({"a": Matrix("bf16", "m", 16), "b": Matrix("bf16", "k", 16), "c": Matrix("bf16", "n", 16)}, 2),
        ({"a": replace(ROW, align_bytes=8)}, None),
        ({"ops": ("relu",)}, None),
        ({"ops": ("bias_n",), "bias": "f16"}, None),
        ({"residual": Matrix("f16", "n", 16)}, None),
        ({"target": "sm_86", "device": "NVIDIA A10"}, 0),
        ({"target": "sm_90", "device": "NVIDIA H200"}, 3),
        ({"target": "sm_100", "device": "NVIDIA B200"}, None),
        ({"target": "sm_100"}, 0),  # executed on the CPU
    ],
)
def test_a_call_is_served_by_what_does_the_same(pack: Pack, changes: dict[str, object], expected: int | None) -> None:
    assert given(pack, replace(REQUEST, **changes)) == expected  # type: ignore[arg-type]


def test_of_two_that_serve_a_call_the_wider_accesses_are_taken(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pack.entries[0]
    tensors = tuple(replace(each, align_bytes=8) for each in wide.launch.tensors)
    narrow = replace(wide, name="narrow", launch=replace(wide.launch, tensors=tensors))
    monkeypatch.setattr(Pack, "entries", (narrow, wide))
    assert pack.answer(REQUEST).why == "sm80_hgemm_tn, made for every problem"
    eight = Matrix("f16", "k", 8)
    assert pack.answer(replace(REQUEST, a=eight)).why == "narrow, made for every problem"
    bias = TensorContract("bias_n", "f16", ("n",), "n", 2)  # always read by elements
    biased = [
        replace(each, ops=("bias_n",), launch=replace(each.launch, tensors=(*each.launch.tensors, bias)))
        for each in (narrow, wide)
    ]
    monkeypatch.setattr(Pack, "entries", tuple(biased))
    asked = replace(REQUEST, ops=("bias_n",), bias="f16")
    assert pack.answer(asked).why == "sm80_hgemm_tn, made for every problem"


def test_a_kernel_that_reads_a_transposed_copy_serves_what_it_reads(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of the kernel pass B n-major and it reads a copy that is K-major; `matmul` passes what a kernel reads."""
    entry = pack.entries[0]
    passed = replace(entry.launch.tensor("b"), major="n")
    monkeypatch.setattr(Pack, "entries", (replace(entry, launch=replace(entry.launch, given=(passed,))),))
    assert pack.answer(replace(REQUEST, b=Matrix("f16", "n", 16))).open is None
    assert pack.answer(REQUEST).why == "sm80_hgemm_tn, made for every problem"


def test_the_input_c_lies_as_the_result_does(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pack.entries[0]
    source = replace(entry.launch.tensor("c"), name=SOURCE)
    with_c = replace(entry.launch, tensors=(*entry.launch.tensors, source))
    monkeypatch.setattr(Pack, "entries", (replace(entry, ops=("beta",), launch=with_c),))
    asked = replace(REQUEST, ops=("beta",))
    assert pack.answer(asked).open is not None
    assert pack.answer(replace(asked, c=Matrix("f16", "m", 16))).open is None


def test_of_targets_that_run_on_a_gpu_the_latest_is_taken(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pack.entries[0]
    for names in (("sm_80", "sm_86"), ("sm_86", "sm_80")):
        monkeypatch.setattr(Pack, "entries", tuple(replace(entry, name=name, target=name) for name in names))
        for gpu in ("sm_86", "sm_89"):
            answer = pack.answer(replace(REQUEST, target=gpu, device="a GPU"))
            assert answer.why == "sm_86, made for every problem"


def test_slices_serve_no_call_that_is_to_be_batch_invariant(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """How K is split depends on the problem, and with it the last bits."""
    whole, invariant = pack.entries[0], replace(REQUEST, batch_invariant=True)
    assert given(pack, invariant) == 0
    in_slices = replace(whole, launch=replace(whole.launch, split=SplitContract(2, 4)))
    monkeypatch.setattr(Pack, "entries", (in_slices,))
    assert pack.answer(REQUEST).open is not None
    assert pack.answer(invariant).open is None


def test_a_call_may_ask_for_a_family(pack: Pack) -> None:
    """Kernels of other families do not serve it, though they could; none that is here is untried."""
    families = (None, "sm80", "tried", "sm100")
    answers = {family: pack.answer(replace(REQUEST, family=family)).open for family in families}
    assert [family for family, open_ in answers.items() if open_ is None] == ["sm100"]


def test_an_epilogue_of_the_spec_is_asked_for_by_its_ops(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same expression over pairs in another order is another kernel."""
    last, pairs = "x, y -> silu(x) * y", Pairs("gate")
    (entry, *_), asked = pack.entries, replace(REQUEST, expression=last, pairs=pairs)
    launch = replace(entry.launch, pairs=pairs)
    monkeypatch.setattr(Pack, "entries", (replace(entry, expression=last, launch=launch),))
    assert pack.answer(asked).open is not None
    others = {"expression": "x, y -> relu(x) * y"}, {"pairs": Pairs("up")}, {"pairs": Pairs("gate", 8)}
    for each in (REQUEST, *(replace(asked, **changes) for changes in others)):  # type: ignore[arg-type]
        assert pack.answer(each).open is None


@pytest.mark.parametrize("others", [("alpha",), ("relu",), ("beta", "relu")])
def test_a_kernel_that_does_more_serves_no_call_that_asks_for_less(
    others: tuple[str, ...], pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pack, "entries", (replace(pack.entries[0], ops=others),))
    assert given(pack, REQUEST) is None
    assert given(pack, replace(REQUEST, ops=others)) == 0
    assert given(pack, replace(REQUEST, ops=(*others, "silu"))) is None


def test_an_open_pack_is_asked_until_it_is_closed(pack_path: Path) -> None:
    with cutegen.load_pack(pack_path) as pack:
        served = providers.kernel_for(REQUEST)
        assert served.kernel is pack.kernel("sm80_hgemm_tn", target=REQUEST.target)
        assert served.provider == f"the pack {pack_path}"
    said: list[tuple[object, Answer]] = list(providers.answers(REQUEST))
    assert pack not in [provider for provider, _ in said]


def test_matmul_takes_its_kernel_from_an_open_pack(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutegen.build.builder.compile_source", None)  # nothing is compiled
    random = new_generator()
    a, b = (random.standard_normal((rows, 64)).astype(np.float16) for rows in (33, 40))
    result = cutegen.matmul(a, b.T)
    assert compare(result, float64_reference(a, b.T), dtype="f16").ok
    assert f"the pack {pack.path}" in cutegen.explain(a, b.T)


def test_a_damaged_pack_serves_nobody(pack_path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.cutepack"
    damaged.write_bytes(pack_path.read_bytes()[:-1])
    before = providers.changes
    with pytest.raises(ArtifactError, match="copy the file again"):
        cutegen.load_pack(damaged)
    assert providers.changes == before


def test_several_packs_are_asked_the_last_first(pack: Pack, pack_path: Path) -> None:
    mine = Providers()
    with cutegen.load_pack(pack_path) as second:
        for each in (pack, second):
            mine.register(PACK, each)
        assert mine.kernel_for(REQUEST).kernel is second.kernel("sm80_hgemm_tn")


@pytest.mark.dsl
def test_calls_of_groups_take_their_kernel_from_a_pack(
    kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = build_all(combinations(["sm80_bf16_grouped"], [None], ["sm_80"]), kernels, jobs=1)
    make_pack(tmp_path / "experts.cutepack", outcomes)
    monkeypatch.setattr("cutegen.build.builder.compile_source", None)  # nothing is compiled
    random, ends = new_generator(), np.array([5, 5, 30], np.int32)
    a, w = random.standard_normal((33, 64), np.float32), random.standard_normal((3, 16, 64), np.float32)
    with cutegen.load_pack(tmp_path / "experts.cutepack") as pack:
        (entry,) = pack.entries
        assert entry.launch.groups == Groups("m")
        found = bf16_values(cutegen.grouped_mm(bf16_bits(a), bf16_bits(w).swapaxes(1, 2), offs=ends))
        request = resolved_groups(bf16_bits(a), bf16_bits(w).swapaxes(1, 2), offs=ends).request
        assert given(pack, request) == 0
        assert given(pack, replace(request, groups=None)) is None
        assert given(pack, replace(request, groups=Groups("m", "padded"))) is None
    wanted = np.zeros((33, 16))
    for group, (begin, end) in enumerate(((0, 5), (5, 5), (5, 30))):
        wanted[begin:end] = a[begin:end].astype(np.float64) @ w[group].T
    assert np.abs(found - wanted).max() < 2.0**-4 * (1 + np.abs(wanted).max())
    assert not found[30:].any()
