"""Hardware counters: the plan's prediction for one launch, and what ncu counted."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from cutegen.hardware import UNIVERSAL, Instruction, dtype
from cutegen.hardware.units import LINE_BYTES, WARP, WARPGROUP
from cutegen.plan.kernel.program import Action, KernelLoop
from cutegen.plan.values.copies import AccessKey
from cutegen.spec.families import FAMILIES, family_with
from cutegen.support.tethered import run_tethered
from cutegen.support.words import round_up

# Predicts the hardware counters of `wgmma` and of bulk tensor copies, which other counters do not see.
#
# `wgmma` reads its operands from shared memory through the load/store pipe, where its wavefronts are counted. Bulk
# tensor copies bypass that pipe: counters exist for their instructions and for the sectors between L2 and shared
# memory. A multicast copy is counted in each CTA of the cluster.


DESCRIPTOR = "descriptor"
"""Entry of `plan.json` for fragment loads if `wgmma` reads shared memory itself."""

WGMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
WGMMA_WAVEFRONTS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
STMATRIX_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum"
STORE_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
BULK_LOADS = "smsp__inst_executed_op_tma_ld.sum"
BULK_STORES = "smsp__inst_executed_op_tma_st.sum"
BULK_SECTORS_READ = "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"
BULK_SECTORS_WRITTEN = "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum"
PLAIN_SECTORS_WRITTEN = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"

OF_BULK = (
    WGMMA,
    WGMMA_WAVEFRONTS,
    STMATRIX_WAVEFRONTS,
    BULK_LOADS,
    BULK_STORES,
    BULK_SECTORS_READ,
    BULK_SECTORS_WRITTEN,
)
"""Counters that exist from sm_90 on."""


def by_descriptor(plan: Mapping[str, Any]) -> bool:
    """Return whether `wgmma` itself reads the operands from shared memory."""
    return all(each["atom"] == DESCRIPTOR for each in plan["s2r"].values())


def predict_bulk(plan: Mapping[str, Any], problem: ProblemShape) -> Mapping[str, int]:
    """Predict the counters of one launch on complete tiles from the CTA tile and k-tile of `plan.json`."""
    m, n, k = plan["tile"]
    # Counted at the destination: what one CTA of a cluster requests from L2 reaches every CTA in its row or column.
    along_m, along_n = plan["launch"].get("cluster", (1, 1))
    tiles = problem.batch * problem.m * problem.n // (m * n)
    k_tiles = tiles * (problem.k // k)
    wavefronts = {key: row["predicted"] for key, row in plan["wavefronts"].items()}
    sectors = {key: row["predicted"] for key, row in plan["sectors"].items()}
    by_map, written = any(each["name"] == "c" for each in plan["launch"]["maps"]), plan["instructions"]
    stmatrix = any(opcode.startswith("stmatrix") for opcode in written)
    stores = sum(
        count for opcode, count in written.items() if opcode.startswith("cp.async.bulk") and _to_global(opcode)
    )
    beside = sectors.get("epilogue.aux", 0)
    staged = tiles * wavefronts[AccessKey.EPILOGUE_WRITE]
    return {
        WGMMA: problem.flops // (2 * math.prod(plan["mma"]["shape_mnk"])) * (WARPGROUP // WARP),
        WGMMA_WAVEFRONTS: k_tiles * sum(wavefronts[AccessKey.mma(x)] for x in plan["s2r"]),
        STMATRIX_WAVEFRONTS: staged if stmatrix else 0,
        STORE_WAVEFRONTS: 0 if stmatrix else staged,
        BULK_LOADS: k_tiles * sum(each["boxes"] for each in plan["g2s"].values()),
        BULK_STORES: tiles * stores * math.prod(plan["mma"]["atom_layout"]),
        BULK_SECTORS_READ: k_tiles * (sectors["g2s.a"] * along_n + sectors["g2s.b"] * along_m),
        BULK_SECTORS_WRITTEN: tiles * sectors["epilogue"] if by_map else 0,
        PLAIN_SECTORS_WRITTEN: tiles * (beside if by_map else beside + sectors["epilogue"]),
    }


def _to_global(opcode: str) -> bool:
    """Return whether the bulk tensor copy is a store."""
    return ".global.shared::cta" in opcode


# Hardware counters: the plan's prediction for one launch, and what ncu counted.
#
# A prediction holds for a problem of complete CTA tiles whose K fills every stage; such launches were checked against
# ncu. At edges and with a shorter K, threads do less than a complete tile. Counters have ncu's names.


WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
LDMATRIX = "smsp__inst_executed_op_ldsm.sum"
CP_ASYNC = "smsp__inst_executed_op_ldgsts.sum"
MMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
MATRIX_BITS = 8 * 8 * 16

ASKED = (
    f"{WAVEFRONTS}ldsm.sum",
    f"{WAVEFRONTS}ldgsts_cache_bypass.sum",
    f"{WAVEFRONTS}st.sum",
    f"{CONFLICTS}ld.sum",
    f"{CONFLICTS}st.sum",
    f"{CONFLICTS}ldgsts.sum",
    LDMATRIX,
    CP_ASYNC,
    MMA,
)
ASKED_TOO = (f"{WAVEFRONTS}ldgsts_cache_access.sum", STORE_SECTORS)
"""Counters that are dropped if this ncu does not know them, after those of bulk tensor copies."""

ALL = tuple(dict.fromkeys((*ASKED, *ASKED_TOO, *OF_BULK)))

BY_DIFFERENCE = f"{WAVEFRONTS}ldgsts_cache_bypass.sum"
"""Counters of a second launch with a longer K minus the first, because copies with a source size also write zeros."""

Counters = Mapping[str, int]
Launch = Mapping[str, str]
"""A row of ncu's table: its output for one launch, by column."""


@dataclass(frozen=True, slots=True)
class CounterRow:
    """One counter of one launch."""

    counter: str
    predicted: int
    measured: int

    @property
    def equal(self) -> bool:
        """True if the prediction matches."""
        return self.predicted == self.measured


def compare(predicted: Counters, measured: Counters) -> tuple[CounterRow, ...]:
    """Return the counters that both sides know, in the measured order."""
    return tuple(CounterRow(name, predicted[name], value) for name, value in measured.items() if name in predicted)


def unpredictable(plan: Mapping[str, Any], problem: ProblemShape) -> str:
    """Return why `predict` does not hold for a problem, and what makes it hold; empty if it does."""
    k = plan["tile"][2]
    if plan["launch"]["maps"] and not by_descriptor(plan):
        return f"operands arrive by bulk tensor copies, which these counters do not see; {_other_family()}"
    if not by_descriptor(plan) and any(plan["s2r"][x]["matrices"] is None for x in plan["s2r"]):
        return f"fragments are not loaded with ldmatrix, which these counters need; {_other_loads(plan)}"
    if plan.get("split_k"):
        return "K is split: counters also include the slices' partial sums; schedule.split_k = 1 is countable"
    stages = 1 if by_descriptor(plan) else plan["stages"]
    (m, n), what = _covered(plan)
    # The least problem that holds this one, with complete CTA tiles and a k-tile for every stage.
    nearest = ProblemShape(round_up(problem.m, m), round_up(problem.n, n), max(round_up(problem.k, k), stages * k))
    way_out = f"--problem {nearest.m},{nearest.n},{nearest.k} is countable"
    if problem.m % m or problem.n % n or problem.k % k:
        return f"{problem} is not a multiple of the {what} {m}x{n}x{k}; {way_out}"
    if problem.k // k < stages:
        return f"K = {problem.k} fills {problem.k // k} of {plan['stages']} stages; {way_out}"
    return ""


def _other_family() -> str:
    """Return the way out of what no counter sees: a family whose threads copy, and load fragments by ldmatrix."""
    return f'family = "{family_with(Instruction.LDMATRIX, Instruction.CP_ASYNC)}" is countable'


def _other_loads(plan: Mapping[str, Any]) -> str:
    """Return the key that selects ldmatrix: the copy atoms if the family has it, else the family."""
    if Instruction.LDMATRIX in FAMILIES[plan["family"]].needs:
        return "an ldmatrix as s2r.a.atom and s2r.b.atom is countable"
    return _other_family()


def _covered(plan: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Return M and N that CTAs scheduled together compute, in the caller's terms, and the name of that unit."""
    launch = plan["launch"]
    (m, n), (x, y) = launch["cta_tile"], launch.get("cluster", (1, 1))
    tiles = (y, x) if launch.get("swapped") else (x, y)
    return (m * tiles[0], n * tiles[1]), "CTA tile" if x * y == 1 else "cluster's tiles"


def predict(plan: Mapping[str, Any], problem: ProblemShape) -> Counters:
    """Predict the counters of one launch from the values in `plan.json` for one CTA and one k-tile.

    Holds only for problems for which `unpredictable` returns nothing.
    """
    assert not unpredictable(plan, problem)
    if by_descriptor(plan):
        return predict_bulk(plan, problem)
    cta_m, cta_n, cta_k = plan["tile"]
    ctas, k_tiles = problem.batch * (problem.m // cta_m) * (problem.n // cta_n), problem.k // cta_k
    loop = KernelLoop.from_json(plan["loop"])
    loaded_k_tiles = loop.executed(Action.LOAD, k_tiles).total

    operands = tuple(plan["s2r"])
    s2r = _sum(plan, *map(AccessKey.s2r, operands))
    extra = {name: _extra(plan, name) for name in plan["wavefronts"]}
    stored = [x for x in operands if plan["g2s"][x]["op"] == UNIVERSAL]
    stored_k_tiles = loop.executed(Action.STORE, k_tiles).total
    epilogue_writes = plan["wavefronts"][AccessKey.EPILOGUE_WRITE]["predicted"]
    stores, store_conflicts = _sum(plan, *map(AccessKey.g2s, stored)), sum(extra[AccessKey.g2s(x)] for x in stored)
    copied = [x for x in operands if x not in stored]
    access = [AccessKey.g2s(x) for x in copied if plan["g2s"][x]["op"] == "cp.async.ca"]
    by_line = sum(int(row["predicted"]) for row in plan["line_writes"].values())
    vectors = sum(_bits(plan, x) // plan["g2s"][x]["bits"] for x in copied)
    matrices = sum(_matrices(plan, x) // plan["s2r"][x]["registers"] for x in plan["s2r"])
    atom_m, atom_n, atom_k = plan["mma"]["shape_mnk"]
    loads = sum(extra[AccessKey.s2r(x)] for x in operands) * loaded_k_tiles + extra[AccessKey.EPILOGUE_READ]
    # 8-bit operands are multiplied by IMMA or QMMA, or by two HMMA and conversions: the count is not known.
    hmma = {} if _element_bits(plan, "a") == 8 else {MMA: problem.flops // (2 * atom_m * atom_n * atom_k)}
    return {
        **hmma,
        f"{WAVEFRONTS}ldsm.sum": _whole(ctas * s2r * loaded_k_tiles),
        f"{WAVEFRONTS}ldgsts_cache_bypass.sum": ctas * k_tiles * by_line,
        f"{WAVEFRONTS}ldgsts_cache_access.sum": ctas * k_tiles * _sum(plan, *access),
        f"{WAVEFRONTS}st.sum": _whole(ctas * (stored_k_tiles * stores + epilogue_writes)),
        f"{CONFLICTS}ld.sum": _whole(ctas * loads),
        f"{CONFLICTS}st.sum": _whole(ctas * (stored_k_tiles * store_conflicts + extra[AccessKey.EPILOGUE_WRITE])),
        f"{CONFLICTS}ldgsts.sum": ctas * k_tiles * sum(extra[AccessKey.g2s(x)] for x in copied),
        LDMATRIX: _whole(ctas * matrices * loaded_k_tiles),
        CP_ASYNC: ctas * k_tiles * vectors // WARP,
        STORE_SECTORS: ctas * _sum_sectors(plan, "epilogue", "epilogue.aux"),
    }


def _sum_sectors(plan: Mapping[str, Any], *keys: str) -> int:
    """Add the sectors of the operands that the plan has: not every epilogue stores a second matrix."""
    return sum(int(plan["sectors"][key]["predicted"]) for key in keys if key in plan["sectors"])


def longer_k(plan: Mapping[str, Any], k: int) -> int:
    """Return K of the second launch, about twice `k`: longer by complete turns of the main loop and of memory lines.

    Everything else that a launch copies is the same as in the first, and reads L1 in the same banks.
    """
    turn = int(plan["k_tiles_per_turn"] * plan["tile"][2])
    step = math.lcm(turn, 8 * LINE_BYTES // _element_bits(plan, "a"))
    return k + round_up(k, step)


def by_difference(once: Counters, longer: Counters, k: int, longer_k: int) -> Counters:
    """Return the counters of a launch of `k`; BY_DIFFERENCE needs another with the same M and N and with `longer_k`."""
    if BY_DIFFERENCE not in once or BY_DIFFERENCE not in longer:
        return once
    return {**once, BY_DIFFERENCE: (longer[BY_DIFFERENCE] - once[BY_DIFFERENCE]) * k // (longer_k - k)}


def profile(ncu: str, kernels: str, child: Sequence[str]) -> Mapping[str, Counters]:
    """Return counters by entry for the kernels that `child` launches and whose names match the regex `kernels`.

    Raises OutsideError with ncu's message if it printed no counters.
    """
    return read(launches(ncu, kernels, child))


def launches(ncu: str, kernels: str, child: Sequence[str]) -> tuple[Launch, ...]:
    """Return ncu's output for each such launch, in order. Raises OutsideError."""
    said, metrics = "", ALL
    while metrics:
        options = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        selection = ["--kernel-name", f"regex:{kernels}", "--metrics", ",".join(metrics)]
        done = run_tethered([ncu, *options, *selection, *child])
        if done.returncode == 0 and (found := parse(done.stdout)):
            return found
        said = f"exit status {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        metrics = _known(metrics, said)
    raise OutsideError(f"{ncu}: {said}")


def _known(metrics: tuple[str, ...], said: str) -> tuple[str, ...]:
    """Return the next metrics to request after ncu refused: without those it names, else of older GPUs, else none."""
    lines = [line for line in said.splitlines() if "metric" in line.lower()]
    fewer = tuple(x for x in metrics if x in ASKED or not any(x in line for line in lines))
    return next((x for x in (fewer, (*ASKED, *ASKED_TOO), ASKED) if len(x) < len(metrics)), ())


def parse(text: str) -> tuple[Launch, ...]:
    """Parse `--csv --page raw`: a header, a row of units, a row per launch; other output precedes it."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return ()
    rows = csv.DictReader(io.StringIO("\n".join(row for row in lines[start:] if row.startswith('"'))))
    return tuple(row for row in rows if row["ID"])  # the row of units has none


def read(printed: Iterable[Launch]) -> Mapping[str, Counters]:
    """Return the counters of each launch, by entry, without other columns."""
    return {
        row["Kernel Name"].split("(")[0]: {name: number(value) for name, value in row.items() if name in ALL and value}
        for row in printed
    }


def number(text: str) -> int:
    """Parse a count as ncu prints it.

    >>> number("1,597,440"), number("128.00")
    (1597440, 128)
    """
    return round(float(text.replace(",", "")))


def _sum(plan: Mapping[str, Any], *names: str) -> int:
    return sum(plan["wavefronts"][name]["predicted"] for name in names)


def _extra(plan: Mapping[str, Any], name: str) -> int:
    return int(plan["wavefronts"][name]["predicted"] - plan["wavefronts"][name]["ideal"])


def _whole(count: Fraction) -> int:
    """Return a launch's count: k-blocks are fractions of a k-tile, and add up to an integer."""
    assert count.denominator == 1, f"{count} of a counter"
    return int(count)


def _element_bits(plan: Mapping[str, Any], name: str) -> int:
    return dtype(_tensor(plan, name)["dtype"]).bits


def _tensor(plan: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(tensor for tensor in plan["launch"]["tensors"] if tensor["name"] == name)


def _bits(plan: Mapping[str, Any], name: str) -> int:
    """Return the bits of an operand's k-tile."""
    extents = dict(zip("mnk", plan["tile"], strict=True))
    return int(math.prod(extents[mode] for mode in _tensor(plan, name)["modes"])) * _element_bits(plan, name)


def _matrices(plan: Mapping[str, Any], name: str) -> int:
    """Return the 8x16-byte matrices that all warps load for one k-tile; warps side by side load the same."""
    warps = dict(zip("mnk", plan["mma"]["atom_layout"], strict=True))
    (other,) = {"m", "n"} - set(_tensor(plan, name)["modes"])
    return _bits(plan, name) // MATRIX_BITS * int(warps[other])
