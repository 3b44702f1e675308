"""Many kernels at once, built ahead of time and packed into one file.

    kernel_list.py  which: specs x problems x targets, or a list in TOML; calls.py: the calls that such a list counts
    building.py     planned and compiled in parallel, by any executor of concurrent.futures
    making.py       the results, written into a pack or into folders
    header.py       a pack's kernels in a header for C++
    tables.py       the results as text and JSON

`cutegen.build.pack_file` writes and reads packs, and `cutegen.dispatch.pack` serves calls from them.
"""
