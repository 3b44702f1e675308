"""The benchmark: checked results, then times, compared with other contenders and the hardware's limits.

suites.py        problems, their operations and bytes
measure.py       times, in two regimes: the only module that measures them
ceilings.py      one instruction alone (mma_peak.py, wgmma_peak.py), and memory read (read_peak.py) or copied, by
                 kernels written in PTX (peak_kernel.py)
contenders.py    cutegen's own kernels, and the others: torch, Triton (triton_gemm.py), QuACK, and CUTLASS's examples
                 (cutlass_examples.py)
grouped.py       sizes of groups, and torch's two ways to multiply them
checked.py       results checked against float64 before timing
benchmark.py     all contenders on one problem
recorded.py      the calls that a program made, beside the same in torch
conditions.py    clocks, power, temperature and energy by NVML, and the versions
tables.py        the results as text and JSON
roofline_svg.py  the same as a picture
"""
