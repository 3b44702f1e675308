"""Reads an artifact's `plan.json` for a launch, and checks each value before use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.build import Artifact
from cutegen.contract.launch import GEMM, REGISTERS, RESULT, LaunchContract
from cutegen.contract.launch_check import check_launch
from cutegen.errors import ArtifactError
from cutegen.support.typed_json import parse_object, read

_RESULTS = {GEMM: (RESULT,)}
_OPENS = {GEMM: "expected a GEMM; open it as a Probe"}
_OTHERWISE = "expected a probe; open it as a Kernel"


@dataclass(frozen=True, slots=True)
class PlanTable:
    """The launch contract of a kernel; `table` is the complete `plan.json`, and messages name `file`."""

    launch: LaunchContract
    table: dict[str, Any]
    file: str

    @classmethod
    def of(cls, artifact: Artifact, kind: str) -> PlanTable:
        """Read an artifact. Raises ArtifactError if it is not of `kind`, or its contract cannot be launched."""
        file = f"{artifact.path}: plan.json"
        table = parse_object(artifact.plan_json, file)
        if (found := read(str, table.get("kind", GEMM), file, "kind")) != kind:
            raise ArtifactError(f"{artifact.path}: found a kernel of kind {found}; {_OPENS.get(kind, _OTHERWISE)}")
        launch = LaunchContract.from_json(table.get("launch"), file)
        check_launch(launch, file, _RESULTS.get(kind, tuple(REGISTERS.values())))
        if launch.entry != artifact.manifest.entry:
            raise ArtifactError(f"{file}: launch.entry: found {launch.entry}; expected {artifact.manifest.entry}")
        return cls(launch, table, file)
