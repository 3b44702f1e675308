"""What people read: whole outputs against files, and the manners of all of them."""

from __future__ import annotations

import re

import pytest

from cutegen.cli import doctor
from cutegen.cli.verbs import VERBS
from cutegen.hardware import TARGETS
from cutegen.spec import GEMM, load_spec, shipped_specs
from tests.cli.commands import Cli, Golden

OUTPUTS = {
    "list": "list",
    "plan_sm80_hgemm_tn": "plan sm80_hgemm_tn --arch sm_80",
    "plan_cute_tutorial_tn_all": "plan cute_tutorial_tn --arch sm_86 --all",
    "show_sm80_hgemm_tn": "show sm80_hgemm_tn --arch sm_80",
    "show_cute_tutorial_tn_mma": "show cute_tutorial_tn mma --thread 37 --arch sm_80",
    "show_sm80_bf16_nn_smem": "show sm80_bf16_nn smem --arch sm_80",
    "show_sm80_bf16_nn_g2s": "show sm80_bf16_nn g2s --thread 96 --arch sm_80",
    "show_sm80_bf16_nn_s2r": "show sm80_bf16_nn s2r --thread 33 --arch sm_80",
    "show_sm80_hgemm_tn_epilogue": "show sm80_hgemm_tn epilogue --arch sm_80",
    "show_cute_tutorial_tn_epilogue": "show cute_tutorial_tn epilogue --arch sm_80",
    "show_sm80_hgemm_tn_element_a": "show sm80_hgemm_tn --element a,12,40 --arch sm_80",
    "show_sm90_hgemm_tn_element_b": "show sm90_hgemm_tn --element b,300,100 --arch sm_90",
    "show_sm90_hgemm_tn_element_c": "show sm90_hgemm_tn --element c,130,77 --arch sm_90",
    "show_sm80_hgemm_tn_pipeline": "show sm80_hgemm_tn pipeline --arch sm_80",
    "plan_ldmatrix_probe": "plan ldmatrix_probe --arch sm_80",
    "show_ldmatrix_probe": "show ldmatrix_probe --arch sm_80",
    "show_sm100_mxf8_tn_tmem": "show sm100_mxf8_tn tmem --thread 70 --arch sm_100",
    "show_sm80_bf16_nn_partitions": "show sm80_bf16_nn partitions --thread 5 --problem 1000,264,96 --arch sm_80",
}
SPECS = shipped_specs()
PARTS = ("", "mma", "smem", "g2s", "s2r", "tmem", "epilogue", "pipeline", "partitions")
OF_A_PROBE = ("", "mma", "smem", "s2r", "partitions")


def has(spec: str, part: str) -> bool:
    """Return whether a spec has a part to be shown."""
    return part in OF_A_PROBE or load_spec(spec).kind == GEMM


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_as_expected(name: str, cli: Cli, golden: Golden) -> None:
    outcome = cli(OUTPUTS[name])
    assert (outcome.code, outcome.err) == (0, "")
    golden(name, outcome.out)


@pytest.mark.parametrize(
    "command",
    [f"plan {s} --all" for s in SPECS]
    + [f"show {s} {p} --thread 127" for s in SPECS for p in PARTS if has(s, p)]
    + [f"show {s} --element {x},130,77" for s in ("sm90_bf16_swiglu", "sm80_bf16_grouped") for x in "abc"]
    + [f"show sm90_e4m3_block_scaled --element scale_{x},13,7" for x in "ab"],
)
def test_text_fits_100_columns_and_has_no_color_in_a_pipe(command: str, cli: Cli) -> None:
    outcome = cli(command)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    # A layout or an opcode is one word: it is shown whole, as CuTe and PTX have it, however long it is.
    too_long = [line.split()[-1] for line in outcome.out.splitlines() if len(line) > 100]
    assert [word for word in too_long if not word.startswith(("((", "cp.async.bulk"))] == []


def test_a_kernel_without_tensor_cores_is_shown_by_what_it_has(cli: Cli) -> None:
    shown = {part: cli(f"show simt_sgemm_tn {part} --arch sm_80").out for part in ("mma", "s2r", "pipeline")}
    assert "fma.rn.f32" in shown["mma"]
    assert "1x1x1, 2 operations by 1 thread" in shown["mma"]
    assert "plain loads of 128 bits" in shown["s2r"]
    assert "fma" in shown["pipeline"]
    assert "mma " not in shown["pipeline"]
    assert "cp.async" not in shown["pipeline"]


def test_color_is_only_for_terminals_that_want_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cli("show sm80_hgemm_tn --arch sm_80").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    colored = cli("show sm80_hgemm_tn --arch sm_80").out
    assert "\x1b[1m" in colored
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli("show sm80_hgemm_tn --arch sm_80").out == plain


def test_doctor_is_content_anywhere(cli: Cli) -> None:
    outcome = cli("doctor")
    assert outcome.code == 0
    works = outcome.out.partition("What will work here")[2]
    assert {verb for verb in VERBS if verb not in re.findall(r"\w+", works)} == {"cache", "doctor"}


class _Driver:
    """GPUs of these compute capabilities."""

    def __init__(self, *capabilities: tuple[int, int]) -> None:
        self.capabilities = capabilities

    def call(self, function: str) -> int:
        return {"cuDriverGetVersion": 13000, "cuDeviceGetCount": len(self.capabilities)}[function]

    def compute_capability(self, ordinal: int) -> tuple[int, int]:
        return self.capabilities[ordinal]

    def device_name(self, ordinal: int) -> str:
        return f"GPU {ordinal}"


@pytest.mark.parametrize(
    ("capabilities", "sees", "works", "said"),
    [
        ([(7, 5), (9, 0)], True, True, "cuda:0 GPU 0 (sm_75), cuda:1 GPU 1 (sm_90)"),
        ([(7, 5)], True, False, "cuda:0 GPU 0 (sm_75), for which no kernel can be compiled; targets: sm_80"),
        ([], True, False, "none is visible; check nvidia-smi"),
        ([(9, 0)], False, False, ": torch sees no GPU; GPU operands need a torch built"),
    ],
)
def test_doctor_promises_a_gpu_only_if_it_can_be_used(
    capabilities: list[tuple[int, int]], sees: bool, works: bool, said: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "load_driver", lambda: _Driver(*capabilities))
    monkeypatch.setattr(doctor, "present_target", lambda: TARGETS["sm_90"] if (9, 0) in capabilities else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: sees)
    table = cli("doctor --json").json
    assert any(said in x["found"] for x in table["findings"])
    abilities = {x["what"]: x["works"] for x in table["abilities"]}
    assert abilities["bench and tune, times of compare"] == works
    assert abilities["run, probe and report on the CPU"]
