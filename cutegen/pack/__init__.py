"""Many kernels at once, built ahead of time and packed into one file.

    kernel_list.py  which: specs x problems x targets, a list in TOML, or the calls that such a list counts
    building.py     planned and compiled in parallel, by any executor of concurrent.futures, and written into a pack
    header.py       a pack's kernels in a header for C++
    tables.py       the results as text and JSON

`cutegen.build.pack_file` writes and reads packs, and `cutegen.dispatch.pack` serves calls from them.
"""
