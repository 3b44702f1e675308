"""One cache of kernels for all tests of a session."""

from __future__ import annotations

import pytest

from cutegen.build import Cache
from tests.plan.kernels import Build, builder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a spec, once."""
    return builder(Cache(tmp_path_factory.mktemp("kernels")))
