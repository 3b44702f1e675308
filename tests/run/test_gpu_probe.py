"""Every probe of the matrix on a real GPU: each register of each thread, bit for bit.

Kernels that CUTEGEN_CACHE_DIR holds (`python -m tests.gpu.prebuild OUT_DIR --probes` fills OUT_DIR/cache) are not
compiled again.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.api import build_request, compile_probe
from cutegen.build import Cache, build
from cutegen.hardware import MMA_ATOMS
from cutegen.plan import ProbePlan, plan
from cutegen.run import Probe
from cutegen.spec import S2r, S2rCopy, load_spec
from cutegen.verify.probes import check_registers
from tests.plan.probes import ONE_OF_EACH_K, REPEATS, fragments_by_hand, matrix, probe
from tests.run.on_gpu import ON_A_GPU

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("atom", MMA_ATOMS)
def test_every_register_of_the_matrix(atom: str, repeat: int) -> None:
    for spec in matrix(atom, repeat):
        planned, artifact = plan(spec), build(build_request(spec), Cache.from_environment())
        assert isinstance(planned, ProbePlan)
        received = check_registers(planned, Probe(artifact), seed=repeat, framework="torch", device="cuda")
        assert [each.first_wrong for each in received] == [None, None], spec.name


def test_plain_loads_bring_the_same() -> None:
    spec = probe(ONE_OF_EACH_K[1], 2, s2r=S2r(a=S2rCopy("universal"), b=S2rCopy("universal")), name="plain")
    planned = plan(spec)
    assert isinstance(planned, ProbePlan)
    received = check_registers(planned, compile_probe(spec), seed=0, framework="torch", device="cuda")
    assert [each.ok for each in received] == [True, True]


def test_a_call_on_the_gpu_gives_tables_there() -> None:
    """Numbered elements in, PTX ISA's fragments out, without the checker between."""
    spec = load_spec("ldmatrix_probe")
    assert spec.mma.atom is not None
    numbers = torch.arange(64 * 64, device="cuda").to(torch.int16)
    a = numbers.reshape(64, 64).T.contiguous().view(torch.float16)
    b = numbers.reshape(64, 64).view(torch.float16)
    for operand, table in zip("ab", compile_probe(spec)(a, b), strict=True):
        held = fragments_by_hand(operand, spec.mma.atom)
        assert (table.device.type, table.dtype, tuple(table.shape)) == ("cuda", torch.float16, (128, 64))
        first_stage = table.view(torch.int16).cpu().numpy()[:, :32]
        assert np.array_equal(first_stage, held[..., 0] + 64 * held[..., 1])
