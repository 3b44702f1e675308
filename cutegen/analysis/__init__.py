"""Comparison of predictions with results.

limits.py        cycles of each resource for one k-tile
counters.py      predicted hardware counters, ncu, the CPU executor
sass.py          the main loop in the disassembly
report.py        one kernel: predictions, the compiler's output and the CPU executor's counts
measured.py      the same kernel on a GPU: times, ceilings, hardware counters
report_text.py   the report as text and JSON
machine.py       every kernel on this machine, as a file to send; machine_kernel.py runs one of them
comparison.py    several specs side by side; comparison_text.py and comparison_picture.py show them
costs.py         a spec beside itself without a key: what the key costs
launch_of_sizes.py   a launch for given sizes of its groups
"""
