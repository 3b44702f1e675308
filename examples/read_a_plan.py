"""Read a plan as a Python value: decisions with reasons, rejected alternatives, and predictions for the hardware."""

from __future__ import annotations

import cutegen

plan = cutegen.plan(cutegen.load_spec("sm80_hgemm_tn"), "sm_80")

print("Decisions")
for decision in plan.decisions:
    print(f"  {decision.key:<16} {decision.chosen}")
    for rejected in decision.rejected[:1]:
        print(f"  {'':<16} and not {rejected.what}: {rejected.why}")

print("Shared memory")
for candidate in plan.a.smem.ranking[:3]:
    print(f"  {candidate.name:<24} {candidate.wavefronts:>6} wavefronts {candidate.tile_bytes:>8,} bytes")

print("Predictions")
for access, count in plan.predictions.wavefronts.items():
    print(f"  {access:<16} {count.ways:.0f}-way")
print(f"  {plan.threads} threads, {plan.smem_bytes:,} bytes, {plan.predictions.occupancy.ctas_per_sm} CTA per SM")
