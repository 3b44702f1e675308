"""The benchmark: checked results, then times, beside other contenders and what the hardware allows.

suites.py        problems, their operations and bytes
measure.py       times, in two regimes: the only module that takes any
ceilings.py      an instruction alone (mma_types.py, mma_peak.py, wgmma_peak.py) and memory read (read_peak.py) or
                 copied, by kernels written in PTX (peak_kernel.py, random_words.py)
contenders.py    who else multiplies: torch, Triton (triton_gemm.py), QuACK, and CUTLASS's examples (hopper_example.py,
                 cutlass_example.py)
entrants.py      cutegen's own kernels
checked.py       results held against float64 before they are timed
benchmark.py     everyone on one problem
device_state.py  clocks, power, temperature and energy by NVML; conditions.py has the versions
tables.py        the results in words and numbers
roofline_svg.py  the same as a picture
"""
