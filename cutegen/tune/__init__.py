"""Measuring: what a kernel asks of a multiprocessor by arithmetic, what it reaches, and what the hardware allows.

    suites.py        problems, their operations and bytes
    measure.py       the timing loop, the only one
    mma_peak.py      a PTX kernel of nothing but mma.sync; ceilings.py measures it, and copies
    contenders.py    who else multiplies: torch, Triton (triton_gemm.py), CUTLASS's example (cutlass_example.py)
    bench.py         checked results, then times
    roofline_svg.py  the same as a picture
    sass.py          the main loop in the disassembly
    limits.py        cycles of each resource for one k-tile
    counters.py      predicted hardware counters, ncu, the CPU executor
    report.py        one kernel: predicted against obtained

Nothing here decides anything: what is measured is shown, and people or later rules draw the conclusion.
"""
