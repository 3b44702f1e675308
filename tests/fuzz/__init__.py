"""Hostile testing: `python -m tests.fuzz` tries seeded random cases of each kind, and says which seed broke its law.

    specs      planned and proved, or refused in one line with its key; under 2 s and 500 MiB
    ptx_texts  refused with a line, or executed for a few steps
    operands   a call gives what NumPy and torch say of its operands, or is refused
    caches     a damaged entry is never another kernel, and costs no other entry anything
    packs      what is damaged, foreign or forged loads nothing but the kernels that were packed
    kills      what killed builds leave is whole, and goes with the next build
    built      what is planned compiles, and computes within its bounds; small integers exactly
    products   so do kernels of groups and of pairs of columns, with any bits in ends and sizes
    tensor_memory   so do those of family sm100, for each of its targets, in two orders and without a convention
    scaled     so do kernels with factors of blocks, with quantized results, groups and pairs

`make fuzz` tries them all, for hours; FUZZ="--kind specs --seed 2000 --count 500" is a slice, and a case is the same in
every run. What was found once lies in `kept/`, a folder for each kind, and is tried with the tests. A new kind is a
module with `case(seed)` and `check(case)`, and a row in `case.py`.
"""
