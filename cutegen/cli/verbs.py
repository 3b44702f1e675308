"""The verbs of the command line: what each does, an example, and the page about it.

Help is written from this table, so that `cutegen --help` imports none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """A verb's first sentence, a command to try, its page in the repository, and what an interrupt leaves behind."""

    summary: str
    example: str
    page: str = "README.md"
    kept: str = ""

    @property
    def epilog(self) -> str:
        """The last lines of the verb's help."""
        return f"Example: `{self.example}`. See {self.page}."


KERNELS_KEPT = "kernels that were compiled are in the cache; the same command goes on with the others"

VERBS: Mapping[str, About] = {
    "plan": About(
        "Shows every decision, the reason, the rejected alternatives with their reasons, and the predictions.",
        "cutegen plan hgemm_tn --problem 4096,4096,4096",
        "docs/tour.md",
    ),
    "show": About(
        "Shows layouts as CuTe C++ prints them, thread-value maps, swizzled offsets and banks, as text or picture.",
        "cutegen show sm80_hgemm_tn --element a,12,40",
        "docs/seeing.md",
    ),
    "emit": About(
        "Shows the generated CuTe DSL kernel, a standalone Python file, or its PTX, SASS or cubin.",
        "cutegen emit sm80_hgemm_tn --what ptx",
        "docs/stages.md",
    ),
    "build": About(
        "Compiles a kernel or finds it: key, path, sizes, registers, spills, predicted and emitted instruction counts.",
        "cutegen build sm80_hgemm_tn --arch sm_80",
        "docs/cache.md",
        KERNELS_KEPT,
    ),
    "run": About(
        "Builds, runs on random data and compares with a float64 reference. Exit 1 if the result is wrong.",
        "cutegen run sm80_hgemm_tn --problem 256,128,64",
    ),
    "compare": About(
        "Compares specs: decisions, layouts, conflicts, instructions, registers, bounds, and times with a GPU.",
        "cutegen compare sm80_hgemm_tn cute_tutorial_tn",
    ),
    "report": About(
        "Compares predictions with results; adds times with a GPU, and hardware counters if ncu is on PATH.",
        "cutegen report sm80_hgemm_tn --problem 512,512,512",
        "docs/measurements.md",
    ),
    "bench": About(
        "Times kernels, torch.matmul, Triton, QuACK and the measured ceilings in one run. Needs a GPU and torch.",
        "cutegen bench hgemm_tn --problem 4096,4096,4096",
        "docs/benchmarking.md",
        "no time is kept; kernels that were compiled are in the cache",
    ),
    "tune": About(
        "Measures the fastest kernel for each problem on this GPU and keeps it. Also lists the results.",
        "cutegen tune hgemm_tn --problem 4096,4096,4096",
        "docs/tuning.md",
    ),
    "probe": About(
        "Executes a spec's loads to registers and compares each with what the MMA needs. Exit 1 if one differs.",
        "cutegen probe ldmatrix_probe",
    ),
    "check": About(
        "Executes PTX in several orders of CTAs, warps and copies. Exit 1 if it finds undefined behavior.",
        "cutegen check kernel.ptx --arg f32[1024]:random",
        "docs/checking.md",
    ),
    "pack": About(
        "Compiles specs x problems x targets, without a GPU, into one file for `cutegen.load_pack`.",
        "cutegen pack hgemm_tn --arch h100 --problem 4096,4096,4096 --out kernels.cutepack",
        "docs/deploying.md",
        f"no pack was written; {KERNELS_KEPT}",
    ),
    "list": About("Lists the shipped specs with their descriptions.", "cutegen list", "layouts/README.md"),
    "cache": About("Lists what is cached, why a lookup missed, and sizes.", "cutegen cache list", "docs/cache.md"),
    "doctor": About(
        "Shows what this machine can do: CuTe DSL, driver, GPU, targets, cache. Exit 0 even if something is missing.",
        "cutegen doctor",
    ),
}
"""Verbs in README's order.

Each has a module of its name, with a function of that name or the typer.Typer `verbs` of its own verbs."""
