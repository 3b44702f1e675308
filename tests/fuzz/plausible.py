"""Specs that a person might write: a table from dotted keys to TOML values, most of it fitting together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from cutegen.hardware import DTYPES, LDMATRIX_ATOMS, MMA_ATOMS, TARGETS, MmaAtom, dtype
from cutegen.spec import FAMILIES
from tests.fuzz.layouts import dense_layout, tile_layout

Table = dict[str, str]

BULK = frozenset(name for name, row in FAMILIES.items() if "bulk" in row.instructions)
BY_WARPGROUP = "sm90"
BESIDE = {"e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2"), "s8": ("s8", "u8"), "u8": ("s8", "u8")}
SUMS = {"f16": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16")}
OF_TENSOR_CORES = ("f16", "f16", "f16", "bf16", "bf16", "tf32", "s8", "u8", "e4m3", "e5m2")
OF_FMA = ("f32", "f32", "f16", "bf16")
RESULTS = tuple(name for name in DTYPES if name != "tf32")
ACROSS = {"a": "mk", "b": "nk", "c": "mn"}
LOADS = ("universal", *LDMATRIX_ATOMS)
WIDTHS = (8, 16, 32, 64, 128)
WARPS = (1, 1, 2, 2, 2, 4, 4, 3, 5, 6, 7)
WARPGROUPS = ((1, 1), (2, 1), (2, 1), (1, 2), (3, 1), (1, 3))
CLUSTERS = ([1, 1], [2, 1], [2, 1], [1, 2], [1, 2], [4, 1], [1, 4], [2, 2], [8, 1], [1, 1, 2], [1, 1, 4], [2, 1, 2])
REDUCTIONS = {BY_WARPGROUP: "cluster", "sm80": "atomics"}
OPS = (
    "alpha",
    "beta",
    "scale_m",
    "scale_n",
    "bias_n",
    "bias_m",
    "relu",
    "gelu_tanh",
    "gelu_erf",
    "silu",
    "residual",
    "aux",
)
FUNCTIONS = ("abs", "erf", "exp", "gelu_erf", "gelu_tanh", "relu", "sigmoid", "silu", "tanh")
LEAVES = (
    "x",
    "x",
    "x",
    "x",
    "alpha",
    "beta",
    "c",
    "residual",
    "bias_n",
    "scale_m",
    "0",
    "1",
    "2",
    "0.5",
    "1e-3",
    "6",
    "3e4",
)


def chance(rng: random.Random, share: float) -> bool:
    """True in so many cases."""
    return rng.random() < share


def text(value: str) -> str:
    """A TOML string."""
    return f'"{value}"'


def arch_of(rng: random.Random, family: str) -> str:
    """A target, most often one that has the family."""
    if family == BY_WARPGROUP and chance(rng, 0.97):
        return "sm_90"
    names = [name for name in TARGETS if family not in BULK or chance(rng, 0.03) or int(name[3:]) >= 90]
    return rng.choice(names)


def plausible(rng: random.Random, family: str, arch: str, extents: Sequence[int] | None = None) -> Table:
    """A spec of `family` for `arch`; `extents` are those that a tile may have along M and N."""
    table = {"family": text(family)} | _problem(rng, family, arch)
    table |= _tile(rng, family, table, extents)
    sections: tuple[tuple[float, Callable[[random.Random, str, Table], Table]], ...] = (
        (0.3, _mma),
        (0.25, _smem),
        (0.2, _g2s),
        (0.08, _s2r),
        (0.4, _epilogue),
        (0.6 if family == BY_WARPGROUP else 0.3, _schedule),
        (0.04, lambda rng, family, table: {"kind": text("ldmatrix_probe")}),
    )
    for share, section in sections:
        if chance(rng, share):
            table |= section(rng, family, table)
    return table


def _problem(rng: random.Random, family: str, arch: str) -> Table:
    first = rng.choice(OF_FMA if family == "simt" else OF_TENSOR_CORES)
    if family == BY_WARPGROUP and chance(rng, 0.7):
        first = rng.choice(("f16", "bf16"))
    if first.startswith("e") and int(arch[3:]) < 89 and chance(rng, 0.95):
        first = "f16"
    second = rng.choice(OF_FMA if family == "simt" and chance(rng, 0.4) else BESIDE.get(first, (first,)))
    result = rng.choice((*RESULTS, "f16", "f32", first.replace("tf32", "f32"), SUMS.get(first, ("f32",))[0]))
    if result.startswith("e") and int(arch[3:]) < 89 and chance(rng, 0.9):
        result = "f32"
    table: Table = {}
    for name, element in zip("abc", (first, second, result), strict=True):
        table |= _operand(rng, family, name, element)
    if chance(rng, 0.3) and (sums := SUMS.get(first)) and family != "simt":
        table["problem.accumulator"] = text(rng.choice(sums))
    return table


def _operand(rng: random.Random, family: str, name: str, element: str) -> Table:
    likely = {"a": "kkm", "b": "kkn", "c": "nnm"}[name]
    if family == BY_WARPGROUP and name != "c" and dtype(element).bytes == 1 and chance(rng, 0.9):
        likely = "k"
    keys = {"dtype": text(element), "major": text(rng.choice(likely))}
    if chance(rng, 0.3):
        least = 16 if family in BULK and name != "c" and chance(rng, 0.9) else dtype(element).bytes
        keys["align"] = str(rng.choice([x for x in (1, 2, 4, 8, 16, 16, 16, 32, 128) if x >= least]))
    if name == "b" and chance(rng, 0.06):
        keys["transposed"] = text("once")
    return {f"problem.{name}.{key}": value for key, value in keys.items()}


def element_of(table: Table, name: str) -> str:
    """The element type that a table says of operand `name`."""
    return table[f"problem.{name}.dtype"].strip('"')


def _tile(rng: random.Random, family: str, table: Table, extents: Sequence[int] | None) -> Table:
    tile: Table = {}
    if family == BY_WARPGROUP:
        return _tile_of_warpgroups(rng, table)
    if extents is not None or chance(rng, 0.85):
        allowed = extents or (16, 32, 32, 48, 64, 64, 96, 128, 128, 192, 256)
        depths = (4, 8, 8, 16, 32) if family == "simt" else (16, 32, 32, 64, 64, 128, 48)
        k = rng.choice(depths) * (2 if dtype(element_of(table, "a")).bytes == 1 else 1)
        tile["tile.cta"] = str([rng.choice(allowed), rng.choice(allowed), k])
    if chance(rng, 0.45):
        tile["tile.stages"] = str(rng.choice((1, 2) if family == "simt" else (1, 2, 2, 3, 3, 4, 5, 8)))
    return tile


def _tile_of_warpgroups(rng: random.Random, table: Table) -> Table:
    """64 rows for each warpgroup, as many columns as an instruction has, and lines of 32 to 256 bytes along K."""
    tile: Table = {}
    if chance(rng, 0.8):
        m = rng.choice((64, 64, 128, 128, 128, 192, 256))
        n = rng.choice((8, 16, 24, 32, 40, 64, 64, 96, 128, 128, 160, 192, 256))
        k = rng.choice((32, 64, 128, 128, 256)) // dtype(element_of(table, "a")).bytes
        tile["tile.cta"] = str([m, n, k])
    if chance(rng, 0.3):
        tile["tile.stages"] = str(rng.choice((1, 2, 3, 4, 6)))
    return tile


def cta_of(table: Table) -> tuple[int, int, int]:
    """The CTA tile of a table, or what it might become."""
    m, n, k = (int(x) for x in table.get("tile.cta", "[128, 128, 32]").strip("[]").split(","))
    return m, n, k


def _tile_of(table: Table, name: str) -> tuple[int, int]:
    m, n, k = cta_of(table)
    return {"a": (m, k), "b": (n, k), "c": (m, n)}[name]


def _mma(rng: random.Random, family: str, table: Table) -> Table:
    if family == "simt":
        threads = rng.choice((32, 64, 128, 128, 256, 256, 512))
        rows = rng.choice([x for x in (1, 2, 4, 8, 16, 32) if threads % x == 0])
        return {"mma.threads": text(dense_layout(rng, (rows, threads // rows)))}
    if family == BY_WARPGROUP:
        return _warpgroups(rng, table)
    made: Table = {}
    m, n, _ = cta_of(table)
    warps = [rng.choice([w for w in WARPS if extent % (atom * w) == 0] or [1]) for extent, atom in ((m, 16), (n, 8))]
    warps.append(1)
    if chance(rng, 0.7):
        made["mma.atom_layout"] = str(warps)
    if chance(rng, 0.15):
        fitting = [name for name, atom in MMA_ATOMS.items() if _fits(atom, table)]
        made["mma.atom"] = text(rng.choice(fitting or [*MMA_ATOMS]))
    if chance(rng, 0.3):
        repeats = rng.choice((1, 1, 2)), rng.choice((1, 2, 4))
        made["mma.permutation"] = str([16 * warps[0] * repeats[0], 8 * warps[1] * repeats[1], rng.choice((16, 16, 32))])
    if element_of(table, "a") == "tf32" and chance(rng, 0.5):
        made["mma.tf32"] = text(rng.choice(("truncate", "nearest")))
    return made


def _warpgroups(rng: random.Random, table: Table) -> Table:
    """How warpgroups share the tile, which ping-pong ones do not, and when sums of 8-bit floats are promoted."""
    made: Table = {}
    if chance(rng, 0.7):
        made["mma.atom_layout"] = str([*rng.choice(WARPGROUPS), 1])
    if element_of(table, "a").startswith("e") and chance(rng, 0.7):
        made["mma.promote_k"] = str(rng.choice((0, 1, 1, 2, 4)) * cta_of(table)[2])
    return made


def _fits(atom: MmaAtom, table: Table) -> bool:
    return (atom.a_dtype.name, atom.b_dtype.name) == (element_of(table, "a"), element_of(table, "b"))


def _smem(rng: random.Random, family: str, table: Table) -> Table:
    return {f"smem.{name}": _lay_out(rng, _tile_of(table, name)) for name in "ab" if chance(rng, 0.6)}


def _lay_out(rng: random.Random, tile: tuple[int, int]) -> str:
    kind = rng.random()
    if kind < 0.3:
        return f"{{ pad = {rng.choice((0, 1, 2, 4, 8, 8, 16, 24, 40, 64))} }}"
    if kind < 0.6:
        bits = rng.randint(0, 3)
        return f"{{ swizzle = [{bits}, {rng.choice((2, 3, 3, 4))}, {max(bits, rng.choice((3, 3, 3, 2, 4)))}] }}"
    modes = [rng.choice([d for d in (4, 8, 16, 32, 64, extent) if extent % d == 0] or [extent]) for extent in tile]
    return f"{{ layout = {text(tile_layout(rng, modes))} }}"


def _g2s(rng: random.Random, family: str, table: Table) -> Table:
    return {f"g2s.{name}": _copy(rng, family, table, name) for name in "ab" if chance(rng, 0.7)}


def _copy(rng: random.Random, family: str, table: Table, name: str) -> str:
    if family in BULK:
        keys = [f"op = {text(rng.choice(('cp.async.bulk.tensor',) * 5 + ('cp.async.cg',)))}"]
        if chance(rng, 0.5 if family == BY_WARPGROUP else 0.03):
            keys.append(f"l2 = {text(rng.choice(('evict_first', 'evict_normal')))}")
        if chance(rng, 0.3 if family == BY_WARPGROUP else 0.03):
            keys.append(f"prefetch = {rng.choice((0, 1, 2, 3, 5, 6))}")
        return f"{{ {', '.join(keys)} }}"
    op = "universal" if family == "simt" else rng.choice(("cp.async.ca", "cp.async.cg", "universal"))
    keys = [f"op = {text(op)}"] if chance(rng, 0.8) else []
    least = 32 if op == "cp.async.ca" else 8 * dtype(element_of(table, name)).bytes
    widths = [bits for bits in WIDTHS if bits >= least]
    bits = 128 if op == "cp.async.cg" else rng.choice(widths)
    if chance(rng, 0.6):
        keys.append(f"bits = {bits}")
    if chance(rng, 0.35):
        keys.append(f"threads = {text(_grid(rng, _tile_of(table, name)))}")
    return f"{{ {', '.join(keys)} }}"


def _grid(rng: random.Random, tile: tuple[int, int]) -> str:
    threads = rng.choice((32, 64, 128, 128, 256))
    rows = rng.choice([x for x in (4, 8, 16, 32, 64) if threads % x == 0 and x <= tile[0]] or [1])
    return dense_layout(rng, (rows, threads // rows))


def _s2r(rng: random.Random, family: str, table: Table) -> Table:
    loads = ("universal",) if family == "simt" else LOADS
    share = 0.05 if family == BY_WARPGROUP else 0.6
    return {f"s2r.{name}": f"{{ atom = {text(rng.choice(loads))} }}" for name in "ab" if chance(rng, share)}


def _epilogue(rng: random.Random, family: str, table: Table) -> Table:
    made: Table = {}
    ops = rng.sample(OPS, rng.choice((0, 1, 1, 2, 3, 4)))
    if ops and chance(rng, 0.7):
        made["epilogue.ops"] = f"[{', '.join(map(text, ops))}]"
    if chance(rng, 0.35):
        made["epilogue.expression"] = text(f"x -> {_with_x(rng, expression(rng, rng.choice((1, 2, 3))))}")
    if chance(rng, 0.5):
        ways = ("true", "false", f"{{ pad = {rng.choice((0, 1, 4, 8, 24))} }}", _lay_out(rng, _tile_of(table, "c")))
        made["epilogue.smem"] = rng.choice(ways)
    return made | _extras(rng, " ".join(made.values()))


def _extras(rng: random.Random, used: str) -> Table:
    made: Table = {}
    for name in ("residual", "aux"):
        if name in used and chance(rng, 0.5):
            kind = rng.choice(RESULTS)
            made |= {f"problem.{name}.dtype": text(kind), f"problem.{name}.major": text(rng.choice("nnm"))}
    if "bias" in used and chance(rng, 0.5):
        made["problem.bias.dtype"] = text(rng.choice(RESULTS))
    if "scale" in used and chance(rng, 0.5):
        made["problem.scale.dtype"] = text(rng.choice(("f16", "f32", "bf16")))
    return made


def _with_x(rng: random.Random, made: str) -> str:
    """An expression must not be a constant, which it mostly is without x."""
    return made if "x" in made.replace("exp", "").replace("max", "") else f"x {rng.choice('+-*')} {made}"


def expression(rng: random.Random, depth: int) -> str:
    """A random expression of the epilogue's language.

    >>> expression(random.Random(4), 2)
    'relu((0 - x))'
    """
    if depth == 0 or chance(rng, 0.15):
        return rng.choice(LEAVES)
    kind, inner = rng.random(), depth - 1
    if kind < 0.5:
        return f"({expression(rng, inner)} {rng.choice('+-**/')} {expression(rng, inner)})"
    if kind < 0.8:
        return f"{rng.choice(FUNCTIONS)}({expression(rng, inner)})"
    if kind < 0.9:
        return f"-{expression(rng, inner)}"
    return f"{rng.choice(('max', 'min'))}({expression(rng, inner)}, {expression(rng, inner)})"


def _schedule(rng: random.Random, family: str, table: Table) -> Table:
    made: Table = {}
    if chance(rng, 0.6):
        keys = [
            f"along = {text(rng.choice('mn'))}",
            f"group = {rng.choice((1, 2, 3, 4, 8, 16))}",
            f"zigzag = {rng.choice(('true', 'false'))}",
        ]
        made["schedule.raster"] = f"{{ {', '.join(rng.sample(keys, rng.randint(0, 3)))} }}"
    if family in (BY_WARPGROUP, "sm80") and chance(rng, 0.5):
        made["schedule.split_k"] = str(rng.choice((1, 2, 2, 3, 4, 5, 8, 16, 64)))
        if chance(rng, 0.3):
            made["schedule.reduction"] = text(rng.choice(("workspace", "workspace", REDUCTIONS[family])))
    return (
        made | _schedule_of_warpgroups(rng, int(made.get("schedule.split_k", "1"))) if family == BY_WARPGROUP else made
    )


def _schedule_of_warpgroups(rng: random.Random, slices: int) -> Table:
    """Clusters and whose tile it is, which mostly fit so many slices of K; what else the family alone has."""
    made: Table = {}
    if chance(rng, 0.4):
        made["schedule.cluster"] = str(rng.choice(CLUSTERS if chance(rng, 0.1) else _clusters(slices)))
    if slices == 1 or chance(rng, 0.05):
        made |= {"schedule.consumers": text(rng.choice(("pingpong", "cooperative")))} if chance(rng, 0.3) else {}
    for key in ("swap", "programmatic"):
        if chance(rng, 0.3):
            made[f"schedule.{key}"] = rng.choice(("true", "false"))
    if chance(rng, 0.2):
        made["schedule.pace"] = str(rng.choice((0, 1, 128, 1000, 65536)))
    return made


def _clusters(slices: int) -> list[list[int]]:
    if slices == 1:
        return [cluster for cluster in CLUSTERS if len(cluster) == 2]
    return [cluster for cluster in CLUSTERS if cluster[1] == 1 and slices % ([*cluster, 1][2]) == 0]


def toml(table: Table) -> str:
    """The text of a table."""
    return "".join(f"{key} = {value}\n" for key, value in table.items())
