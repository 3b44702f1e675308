from __future__ import annotations

from tests.run.conftest import artifact, contract

__all__ = ["artifact", "contract"]
