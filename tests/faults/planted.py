"""Faults by name, each in a line or two, and the test that dies of it: rules, values, proofs, counts, templates,
contract, calls, executor, command line.

A fault is planted in a copy of the sources (`tests/faults/test_planted.py`), or by hand: replace `before` by `after` in
`file`, and run `test`. Faults of generated PTX and of whole templates have tables of their own, beside the tests that
execute them: `PLANTED` in tests/plan/families and tests/run, and tests/run/wgmma_mutants.py.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A mistake in a source file, and the test that notices it first."""

    file: str
    before: str
    after: str
    test: str


_KERNEL, _PLAN, _TESTS = "cutegen/plan/kernel/", "cutegen/plan/", "tests/plan/"
_SCHEDULER, _HANDSHAKES, _LOOP = (_TESTS + f"test_{name}.py::" for name in ("scheduler", "handshakes", "loop"))
_MEMORY, _ACCUMULATOR, _PIPELINES = (_TESTS + f"test_{name}.py::" for name in ("memory", "accumulator", "pipelines"))
_EVERY_TILE = _SCHEDULER + "test_every_tile_of_a_launch_is_computed_once"
_LEFT_OUT = _HANDSHAKES + "test_no_step_may_be_left_out_and_no_number_may_be_off_by_one"
_NAMED = _HANDSHAKES + "test_what_does_not_fit_is_named"
_ORDER_NAMED = _HANDSHAKES + "test_an_order_of_all_threads_that_does_not_fit_is_named"
_GOES_ON = _HANDSHAKES + "test_every_kind_of_loop_goes_on_in_order"
_SPOILED = _TESTS + "test_proof.py::test_a_spoiled_plan_is_noticed"
_SPOILED_LAUNCH = _TESTS + "test_proof_of_launches.py::test_a_spoiled_launch_is_noticed"
_NOT_PROVED = _PIPELINES + "test_pipelines_that_are_not_the_plans_are_not_proved"
_BARRIERS_BY_HAND = _PIPELINES + "test_the_pipelines_of_a_kernel_by_hand"
_SAME_SUM = _LOOP + "test_how_k_tiles_are_shared_out_does_not_change_the_sum"
_BY_HAND = _LOOP + "test_a_pipeline_of_cp_async_by_hand"
_SHARED = _TESTS + "test_clusters_of_slices.py::test_what_a_cta_shares_with_others"
_WORD_FOR_WORD = "tests/render/test_render.py::test_shipped_specs_word_for_word"

PLANTED = {
    # The tile scheduler: order, groups, slices, grids.
    "a zigzag turns in the wrong bands": Fault(
        _KERNEL + "scheduler.py",
        "sweep = np.where(band % 2 == 1,",
        "sweep = np.where(band % 2 == 0,",
        _SCHEDULER + "test_an_order_and_its_inverse",
    ),
    "the last band is as wide as the others": Fault(
        _KERNEL + "scheduler.py",
        "width = np.minimum(across - band * self.group, self.group)",
        "width = np.minimum(across, self.group)",
        _EVERY_TILE,
    ),
    "a tile's number forgets the narrow band": Fault(
        _KERNEL + "scheduler.py",
        "sweep * min(across - band * self.group, self.group) + within",
        "sweep * self.group + within",
        _SCHEDULER + "test_an_order_and_its_inverse",
    ),
    "slices take their extra k-tile too late": Fault(
        _KERNEL + "scheduler.py",
        "first = index * each + min(index, left_over)",
        "first = index * each + left_over",
        _SCHEDULER + "test_slices_cover_k_once_and_differ_by_one_at_most",
    ),
    "one slice has all that is left over": Fault(
        _KERNEL + "scheduler.py",
        "range(first, first + each + (index < left_over))",
        "range(first, first + each + (index <= left_over))",
        _SCHEDULER + "test_slices_cover_k_once_and_differ_by_one_at_most",
    ),
    "a grid leaves out the tile at the edge": Fault(
        _KERNEL + "scheduler.py", "return -(-rows // (tile_m * m)),", "return rows // (tile_m * m),", _EVERY_TILE
    ),
    "persistent CTAs step by their own number": Fault(
        _KERNEL + "scheduler.py",
        "for number in range(first, total, step) if",
        "for number in range(first, total, step + 1) if",
        _EVERY_TILE,
    ),
    "a spread launch keeps the wrong half": Fault(
        _KERNEL + "scheduler.py",
        "            if first % 2:\n",
        "            if first % 2 == 0:\n",
        _SCHEDULER + "test_of_two_ctas_on_a_tpc_the_second_exits_and_each_cta_is_named_by_its_rank",
    ),
    "a cluster's second row of tiles is the first again": Fault(
        _KERNEL + "scheduler.py",
        "yield WorkTile(tile_m * m + rank_m,",
        "yield WorkTile(tile_m * m,",
        _EVERY_TILE,
    ),
    "a group's tiles begin one late": Fault(
        _KERNEL + "scheduler.py",
        "        if number < count:\n",
        "        if number <= count:\n",
        _SCHEDULER + "test_every_tile_of_every_group_is_computed_once_whatever_the_ends",
    ),
    "the bytes of sums forget their type": Fault(
        _KERNEL + "scheduler.py",
        "return cta_tile[0] * cta_tile[1] * self.dtype.bytes",
        "return cta_tile[0] * cta_tile[1]",
        _SHARED,
    ),
    "a CTA reads its own sums from its cluster": Fault(
        _KERNEL + "scheduler.py",
        "// self.clustered * (self.clustered - 1)",
        "// self.clustered * self.clustered",
        _SHARED,
    ),
    # Shared memory.
    "a region ends one byte late": Fault(
        _KERNEL + "memory.py",
        "return self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes",
        "return self.offset_bytes <= other.end_bytes and other.offset_bytes < self.end_bytes",
        _MEMORY + "test_regions_overlap_if_they_have_a_byte_in_common",
    ),
    "regions of one phase share their place": Fault(
        _KERNEL + "memory.py",
        "for other in placed if region.meets(other)), default=0)",
        "for other in placed if not region.meets(other)), default=0)",
        _MEMORY + "test_no_byte_has_two_uses_in_one_phase",
    ),
    "a region is not aligned": Fault(
        _KERNEL + "memory.py",
        "offset_bytes=round_up(behind, region.align_bytes)",
        "offset_bytes=behind",
        _MEMORY + "test_no_byte_has_two_uses_in_one_phase",
    ),
    "a CTA's memory is that of its last region": Fault(
        _KERNEL + "memory.py",
        "return max(region.end_bytes for region in self.regions)",
        "return self.regions[-1].end_bytes",
        _MEMORY + "test_no_byte_has_two_uses_in_one_phase",
    ),
    "C is in use while K is multiplied": Fault(
        _KERNEL + "memory.py",
        "align_bytes=align_bytes, phases=frozenset({Phase.STORE}))",
        "align_bytes=align_bytes)",
        _MEMORY + "test_a_producer_keeps_the_stages_while_c_is_stored",
    ),
    # Pipelines and roles.
    "a pipeline has barriers for one stage": Fault(
        _KERNEL + "pipeline.py",
        "return MBARRIER_BYTES * self.stages * len(self.mbarriers)",
        "return MBARRIER_BYTES * len(self.mbarriers)",
        _TESTS + "test_blackwell_shape.py::test_its_barriers_by_hand",
    ),
    "the barrier `empty` is not initialized": Fault(
        _KERNEL + "pipeline.py",
        "for name, barrier in each.barriers.items()\n        if barrier.sync is Sync.MBARRIER",
        'for name, barrier in each.barriers.items()\n        if name == "full" and barrier.sync is Sync.MBARRIER',
        _PIPELINES + "test_the_pipelines_of_a_kernel_by_hand",
    ),
    "groups of the last k-tiles have tiles of their own": Fault(
        _KERNEL + "pipeline.py",
        "return self.turns is Turns.TILES",
        "return self.turns is not None",
        _WORD_FOR_WORD,
    ),
    "a group has the threads of the role": Fault(
        _KERNEL + "pipeline.py", "return self.threads // self.groups", "return self.threads", _BARRIERS_BY_HAND
    ),
    # Programs and what is counted of them.
    "turns run k-tiles that no copy fills": Fault(
        _KERNEL + "program.py",
        "return max(k_tiles - ahead, 0) // turn * turn",
        "return max(k_tiles, 0) // turn * turn",
        _SAME_SUM,
    ),
    "the text counts each step once a turn": Fault(
        _KERNEL + "program.py",
        "_integer(len(step.nth.of(each.copies)) * self._share(step) * count)",
        "_integer(self._share(step) * count)",
        _LOOP + "test_the_text_of_a_pipeline_by_hand",
    ),
    "a step is counted beyond its mark": Fault(
        _KERNEL + "program.py",
        "stop = min(stop, step.below.of(*marks))",
        "stop = max(stop, step.below.of(*marks))",
        _LOOP + "test_plain_copies_store_what_they_did_not_load",
    ),
    "an empty K takes no k-tile": Fault(
        _KERNEL + "program.py",
        "taken = max(k_tiles, self.least_k_tiles)",
        "taken = k_tiles",
        _LOOP + "test_a_k_tile_that_is_taken_of_an_empty_k_lies_past_the_end",
    ),
    "steps on a later k-tile are counted on this one": Fault(
        _KERNEL + "program.py",
        "each.last.of(*marks) + step.ahead\n",
        "each.last.of(*marks)\n",
        _BY_HAND,
    ),
    "the remaining k-tiles begin one early": Fault(
        _KERNEL + "program.py",
        "in_turns = max(k_tiles - stages, 0)",
        "in_turns = max(k_tiles - stages - 1, 0)",
        _GOES_ON,
    ),
    "all copies but the first are all": Fault(
        _KERNEL + "program.py",
        "Nth.LATER: range(1, copies)",
        "Nth.LATER: range(copies)",
        _TESTS + "test_main_loop.py::test_with_two_sets_a_stage_is_free_a_k_tile_later",
    ),
    "the timeline fills one stage fewer": Fault(
        _KERNEL + "timeline.py",
        "not in ab.producers else ab.empty.credits",
        "not in ab.producers else ab.empty.credits - 1",
        _TESTS + "test_loops_by_hand.py::test_a_timeline_fetches_where_a_stage_is_released",
    ),
    "a copy lands when it is issued": Fault(
        _KERNEL + "timeline.py",
        "for k_tile, _ in sent[: len(sent) - (step.pending or 0)]:",
        "for k_tile, _ in sent:",
        _TESTS + "test_main_loop.py::test_copies_have_all_but_one_stage_to_arrive",
    ),
    # The accumulator.
    "promoted sums have no registers": Fault(
        _KERNEL + "accumulator.py",
        "sums + sums * self.promotion.sets // prod(self.promotion.waves)",
        "sums * self.promotion.sets // prod(self.promotion.waves)",
        _ACCUMULATOR + "test_registers_of_sums_by_hand",
    ),
    "sums of f16 take a register each": Fault(
        _KERNEL + "accumulator.py",
        "return values * self.dtype.bits // REGISTER_BITS",
        "return values",
        _ACCUMULATOR + "test_registers_of_sums_by_hand",
    ),
    "sums in tensor memory take registers": Fault(
        _KERNEL + "accumulator.py",
        "return self.registers_of(self.values if holds_all else values)",
        "return self.registers_of(self.values)",
        _ACCUMULATOR + "test_the_rule_chooses_parts_of_an_accumulator_in_tensor_memory",
    ),
    "a part begins with other rows of the tile": Fault(
        _KERNEL + "accumulator.py",
        "return first % self.tile[0] + first // self.tile[0] * rows",
        "return first % self.tile[0] + first // rows * rows",
        _ACCUMULATOR + "test_a_part_is_held_as_the_dsl_partitions_it",
    ),
    # Pairs of CTAs and clusters.
    "a pair waits for the bytes of one CTA": Fault(
        "cutegen/plan/mainloop/tensor_memory.py",
        "payload_bytes=stage_bytes * mma.atom.ctas",
        "payload_bytes=stage_bytes",
        "tests/run/test_sm100_pairs.py::test_a_cta_of_a_pair_has_half_of_b",
    ),
    "a stage waits for its own CTA twice": Fault(
        "cutegen/plan/mainloop/tensor_memory.py",
        "commits = sum(mma.sharing) - 1\n    arrivals =",
        "commits = sum(mma.sharing)\n    arrivals =",
        "tests/run/test_sm100_pairs.py::test_barriers_by_hand",
    ),
    "the second half of a pair's columns in the first lanes": Fault(
        "cutegen/hardware/tcgen05.py",
        "Layout((rows, (columns // 2, 2)), (1, (LANES, rows)))",
        "Layout((rows, (columns // 2, 2)), (1, (LANES, LANES * columns // 2)))",
        "tests/hardware/test_tcgen05_loads.py::test_sums_are_where_the_executor_puts_them",
    ),
    # The proof of roles and pipelines.
    "a wait passes one phase early": Fault(
        _KERNEL + "handshakes.py", "return turn + 1 - free", "return turn - free", _GOES_ON
    ),
    "arrivals of one CTA count for a cluster": Fault(
        _KERNEL + "handshakes.py",
        "return sum([each[arrival.by] * arrival.ctas for",
        "return sum([each[arrival.by] for",
        _TESTS + "test_blackwell_shape.py::test_its_roles_go_on_in_order",
    ),
    "arrivals need not balance": Fault(
        _KERNEL + "handshakes.py", "if sum(made.values()) != barrier.count:", "if not made:", _LEFT_OUT
    ),
    "a producer may exit before its stages are free": Fault(
        _KERNEL + "handshakes.py", "    _prove_exits(loop)\n", "", _LEFT_OUT
    ),
    "a role may use another's end": Fault(
        _KERNEL + "handshakes.py",
        "if role not in ends and pipeline.full.sync is not Sync.CLUSTER:",
        "if False:",
        _NAMED,
    ),
    "a stage may be filled while it is read": Fault(
        _KERNEL + "handshakes.py",
        "        if self.held.get(stage) in self.read:\n",
        "        if False:\n",
        _ORDER_NAMED,
    ),
    "no barrier is needed after a wait": Fault(
        _KERNEL + "handshakes.py",
        "there = self.visible.issuperset(",
        "there = self.landed.issuperset(",
        _ORDER_NAMED,
    ),
    "a stage may be released while it is multiplied": Fault(
        _KERNEL + "handshakes.py",
        "if end.pipeline.name == AB and [group for group in (self.issued, *self.flying) if item in group]:",
        "if False:",
        _NAMED,
    ),
    "a stage may be read after its release": Fault(
        _KERNEL + "handshakes.py", "if item <= self.released.get(name, -1):", "if False:", _NAMED
    ),
    "bytes need not be announced": Fault(
        _KERNEL + "handshakes.py", "if (name, item) not in self.announced:", "if False:", _LEFT_OUT
    ),
    # The proof of a plan.
    "a cluster's slices need no pipeline": Fault(
        _PLAN + "prove.py", "_demand(adds == (k > 1),", "_demand(True,", _NOT_PROVED
    ),
    "a stage may wait for other bytes than are copied": Fault(
        _PLAN + "prove.py", "_demand(found == copied,", "_demand(True,", _NOT_PROVED
    ),
    "a stage may be released in other CTAs than fill it": Fault(
        _PLAN + "prove.py", "_demand(released == fill,", "_demand(released > 0,", _NOT_PROVED
    ),
    "a copy may claim other bits than it moves": Fault(
        _PLAN + "prove.py", "_demand(copy.bits == length * copy.tiled_copy.bits,", "_demand(True,", _SPOILED
    ),
    "C may have other buffers than its pipeline": Fault(
        _PLAN + "prove.py", "_demand(buffers_bytes == plan.epilogue.smem.bytes,", "_demand(True,", _NOT_PROVED
    ),
    "a tile may have holes": Fault(
        _PLAN + "prove.py",
        "return bool(table.min() >= 0) and _distinct(table) == elems == table.max() + 1",
        "return True",
        _SPOILED,
    ),
    "an element that comes twice is no hindrance": Fault(
        _PLAN + "prove.py",
        "return table.size == elems and _covers(table, elems)",
        "return _covers(table, elems)",
        _SPOILED,
    ),
    "a role may have more threads than its tiled MMA": Fault(
        _PLAN + "prove.py", "_demand(tiled == role.threads == multiplying,", "_demand(tiled == multiplying,", _SPOILED
    ),
    "two elements may have one place": Fault(
        _PLAN + "prove.py", "_demand(_distinct(table) == table.size,", "_demand(True,", _SPOILED
    ),
    "a vector may cross its alignment": Fault(_PLAN + "prove.py", "_demand(bool(straight),", "_demand(True,", _SPOILED),
    "boxes may lie elsewhere than the layout says": Fault(
        _PLAN + "prove.py", "_demand(np.array_equal(address, placed),", "_demand(True,", _SPOILED_LAUNCH
    ),
    "a stage may begin within a period of the swizzle": Fault(
        _PLAN + "prove.py", "_demand(not (stages % copy.period_bytes).any(),", "_demand(True,", _SPOILED_LAUNCH
    ),
    "a copy may be wider than its alignment": Fault(
        _PLAN + "prove.py", "_demand(copy.bits <= 8 * matrix.align_bytes,", "_demand(True,", _SPOILED
    ),
    # Counts and predictions.
    "the system's share of shared memory is forgotten": Fault(
        _PLAN + "predict.py",
        "round_up(smem_bytes + target.smem_reserved_per_cta_bytes, ",
        "round_up(smem_bytes, ",
        _TESTS + "test_occupancy.py::test_what_is_reserved_for_each_cta_counts",
    ),
    "registers are allocated singly": Fault(
        _PLAN + "predict.py",
        "per_warp = round_up(registers_per_thread * WARP, target.register_allocation_unit)",
        "per_warp = registers_per_thread * WARP",
        _TESTS + "test_occupancy.py::test_registers_are_allocated_to_warps_in_units_of_256",
    ),
    "the most plentiful resource decides": Fault(
        _PLAN + "predict.py",
        "ctas_per_sm=min(by_threads, by_smem, by_registers),",
        "ctas_per_sm=max(by_threads, by_smem, by_registers),",
        _TESTS + "test_occupancy.py::test_the_scarcest_resource_decides",
    ),
    "a thread has more registers than its CTA": Fault(
        _PLAN + "predict.py",
        "held = round_up(threads, WARP * target.warp_allocation_unit)",
        "held = threads",
        _TESTS + "test_occupancy.py::test_no_thread_has_more_registers_than_its_cta_can_have",
    ),
    # The launch contract.
    "an end may come before the one before it": Fault(
        "cutegen/contract/problem.py",
        "end = min(max(number, begin), room)",
        "end = min(number, room)",
        "tests/contract/test_groups.py::test_any_ends_are_groups_within_the_room",
    ),
    "a host allows for one group's last tile": Fault(
        "cutegen/contract/problem.py",
        "(extent + groups * (tile - 1)) // tile",
        "(extent + tile - 1) // tile",
        "tests/contract/test_groups.py::test_no_sizes_have_more_tiles_than_the_host_assumes_and_some_have_as_many",
    ),
    "a bucket is smaller than its problem": Fault(
        "cutegen/contract/problem.py",
        "return -(-extent // step) * step",
        "return extent // step * step",
        "tests/dispatch/test_providers.py::test_buckets_hold_what_they_stand_for_and_are_few",
    ),
    "a batch chooses a kernel that must not depend on it": Fault(
        "cutegen/contract/problem.py",
        "(BATCH_INVARIANT_M, 1) if batch_invariant",
        "(BATCH_INVARIANT_M, problem.batch) if batch_invariant",
        "tests/dispatch/test_providers.py::test_rows_that_must_not_depend_on_their_number_have_one_slice_of_k_and_one_problem",
    ),
    "few CTAs are launched side by side": Fault(
        "cutegen/contract/launch.py",
        "if self.spread and 2 * clusters",
        "if self.spread and 3 * clusters",
        "tests/contract/test_launch.py::test_few_ctas_have_one_to_spare_each",
    ),
    "a workspace holds one slice of each tile": Fault(
        "cutegen/contract/launch.py",
        "tiles * self.split.slices * self.split.bytes_per_slice",
        "tiles * self.split.bytes_per_slice",
        "tests/contract/test_launch.py::test_a_cluster_may_hold_a_tiles_slices",
    ),
    "atomics add to what was there": Fault(
        "cutegen/contract/launch.py",
        "return self.split is not None and self.split.atomics",
        "return False",
        "tests/run/test_workspaces.py::test_a_launch_that_adds_is_given_zeros",
    ),
    # Calls of matmul: placement of tensors.
    "strides that do not follow are one": Fault(
        "cutegen/dispatch/placement.py",
        "elif step != extent * stride:",
        "elif step < extent * stride:",
        "tests/dispatch/test_resolve.py::test_what_no_kernel_reads_is_copied_and_said",
    ),
    "an operand that is read once is not expanded": Fault(
        "cutegen/dispatch/placement.py",
        "0 if mine == 1 else step",
        "step",
        "tests/dispatch/test_resolve.py::test_a_batch_of_one_is_read_again_for_each_of_the_others",
    ),
    "a batch's stride need not be aligned": Fault(
        "cutegen/dispatch/placement.py",
        "bits |= form.strides[0] * element_bytes",
        "pass",
        "tests/dispatch/test_resolve.py::test_an_odd_stride_is_read_narrowly_or_padded_by_what_it_is_worth",
    ),
    "rows may overlap": Fault(
        "cutegen/dispatch/placement.py",
        "(rows <= 1 or row_stride >= columns)",
        "(rows <= 1 or row_stride >= 1)",
        "tests/dispatch/test_arrays.py::test_an_empty_result_is_written_nowhere",
    ),
    "batches that do not broadcast are expanded": Fault(
        "cutegen/dispatch/shapes.py",
        "if one != other and 1 not in (one, other):",
        "if False:",
        "tests/dispatch/test_resolve.py::test_wrong_calls_name_the_operand_and_a_way_out",
    ),
    "a copied result is not copied back": Fault(
        "cutegen/dispatch/arrays.py",
        "    if resolved.out_copied:\n        out[...]",
        "    if False:\n        out[...]",
        "tests/dispatch/test_arrays.py::test_a_result_that_no_kernel_writes_in_place_arrives_in_out",
    ),
    # Rules of operands and schedules, and what keys cost.
    "stages begin within a row of banks": Fault(
        "cutegen/plan/operands/staging.py",
        "total += round_up(each * stages, BANK_ROW_BYTES)",
        "total += each * stages",
        "tests/plan/test_stages.py::test_a_tile_of_which_one_stage_does_not_fit_is_refused_first",
    ),
    "stages crowd out CTAs that registers allow": Fault(
        "cutegen/plan/operands/staging.py",
        "return min(ctas_by_registers, ctas_by_smem(target, totals[stages]))",
        "return ctas_by_registers",
        "tests/plan/test_stages.py::test_stages_leave_room_for_the_ctas_that_registers_allow",
    ),
    "more stages than copies in flight": Fault(
        "cutegen/plan/operands/staging.py",
        "most = most if asynchronous else DOUBLE_BUFFERED",
        "most = most",
        "tests/plan/test_stages.py::test_stages_are_filled_ahead_if_any_copy_is_asynchronous",
    ),
    "stages that do not fit may be given": Fault(
        "cutegen/plan/operands/staging.py",
        "given not in (None, *fitting):\n        raise too_much(spec, target, stage_bytes, given or least,",
        "False:\n        raise too_much(spec, target, stage_bytes, given or least,",
        "tests/plan/test_refusals.py::test_refused_at_its_key_with_the_arithmetic_and_a_way_out",
    ),
    "an ldmatrix may bring more than a thread wants": Fault(
        "cutegen/plan/operands/s2r.py",
        "return self.values % (self.per_matrix(atom) * atom.matrices) == 0",
        "return True",
        "tests/plan/test_loads.py::test_too_few_values_are_rejected_in_cutes_words",
    ),
    "bytes are transposed on every target": Fault(
        "cutegen/plan/operands/s2r.py",
        "return tuple(atom for atom in atoms if target.has(atom.needs))",
        "return tuple(atoms)",
        "tests/plan/test_loads.py::test_bytes_that_are_transposed_name_the_targets_that_can",
    ),
    "a plain load crosses the layout's runs": Fault(
        "cutegen/plan/operands/s2r.py",
        "self.bits * min(REGISTER_BITS // self.x.multiplied.bits, self.x.last_elems)",
        "REGISTER_BITS",
        "tests/plan/test_loads.py::test_bytes_that_are_transposed_name_the_targets_that_can",
    ),
    "phases that share are counted twice": Fault(
        "cutegen/plan/operands/shared_memory.py",
        "int(hardware.merged_phases(placed, self.bytes) @ times) if self.shares else 0",
        "0",
        "tests/plan/test_simt.py::test_how_fma_loads_lie",
    ),
    "a swizzle may differ from stage to stage": Fault(
        "cutegen/plan/operands/shared_memory.py",
        "return by_stages or bool(torn)",
        "return bool(torn)",
        "tests/plan/test_torn_layouts.py::test_stages_that_swizzle_what_threads_share_out_go_astray",
    ),
    "narrow grids go along their longer side": Fault(
        "cutegen/plan/schedule/order.py",
        'along = "m" if across["m"] < across["n"] else "n"',
        'along = "n" if across["m"] < across["n"] else "m"',
        "tests/plan/test_tile_orders.py::test_which_grids_have_other_orders",
    ),
    "a cache keeps what it read first": Fault(
        "cutegen/plan/schedule/order.py",
        "self._used[rows] = self._uses + np.arange(len(rows))",
        "self._used[rows] = np.arange(len(rows))",
        "tests/plan/test_slices_and_orders.py::test_orders_that_are_rejected_read_more",
    ),
    "a given key costs what its plan costs": Fault(
        "cutegen/analysis/costs.py",
        "key=lambda cost: -cost.rank",
        "key=lambda cost: cost.rank",
        "tests/plan/test_costs.py::test_layouts_cost_wavefronts_and_are_ranked",
    ),
    # Layouts.
    "repetitions follow the order backwards": Fault(
        "cutegen/algebra/expressions.py",
        "for at in sorted(range(len(shape)), key=ranks.__getitem__):",
        "for at in range(len(shape)):",
        "tests/algebra/test_expressions_by_the_dsl.py::test_random_expressions_are_printed_as_the_dsl_prints_them",
    ),
    # The PTX executor: what it finds, and what it counts.
    "an mbarrier completes before its bytes": Fault(
        "cutegen/ptx/machine/mbarriers.py",
        "if self.pending == 0 and self.transactions == 0:",
        "if self.pending == 0:",
        "tests/ptx/test_ptx_mbarrier.py::test_a_phase_needs_its_transactions_too",
    ),
    "a phase that nobody has seen may be arrived at": Fault(
        "cutegen/ptx/machine/mbarriers.py",
        "if is_early or ordering.is_news(warp, barrier.released, thread, own_agent):",
        "if is_early:",
        "tests/ptx/test_ptx_wrong_kernels.py::test_the_wrong_one_is_caught",
    ),
    "mbarriers need no barrier after their init": Fault(
        "cutegen/ptx/machine/mbarriers.py",
        "if not self._is_made_for(thread, barrier):",
        "if False:",
        "tests/ptx/test_ptx_mbarrier.py::test_misuse_is_found",
    ),
    "bulk copies need no fence of their mbarrier": Fault(
        "cutegen/ptx/machine/mbarriers.py",
        "if not barrier.is_fenced and not self._ordering",
        "if False and not self._ordering",
        "tests/ptx/test_ptx_async_copies.py::test_a_run_of_bytes_may_signal_an_mbarrier_whose_init_was_not_fenced",
    ),
    "a write does not race with reads": Fault(
        "cutegen/ptx/watch/shadow.py",
        "            for row in np.flatnonzero(reads.any(axis=(1, 2))).tolist():",
        "            for row in ():",
        "tests/ptx/test_ptx_violations.py::test_a_race_names_both_instructions_and_threads",
    ),
    "bytes of a copy from them may be written": Fault(
        "cutegen/ptx/watch/shadow.py",
        "def _check_lent(self, access: Access, stamps: Stamps) -> None:\n        if stamps.any():",
        "def _check_lent(self, access: Access, stamps: Stamps) -> None:\n        if False:",
        "tests/ptx/test_ptx_bulk.py::test_wrong_stores_are_found",
    ),
    "the async proxy sees ordinary writes": Fault(
        "cutegen/ptx/watch/shadow.py",
        "if agent.proxy is not Proxy.ASYNC:",
        "if True:",
        "tests/ptx/test_ptx_async_copies.py::test_the_wrong_ones_are_caught",
    ),
    "never written memory may be read": Fault(
        "cutegen/ptx/watch/shadow.py",
        "elif writes.min() == 0:",
        "elif False:",
        "tests/ptx/test_ptx_violations.py::test_shared_memory_starts_uninitialized",
    ),
    "lanes of one warp do not race": Fault(
        "cutegen/ptx/watch/shadow.py",
        "race = unordered & (owners != access.threads[:, None])",
        "race = unordered & (owners // WARP_LANES != access.threads[:, None] // WARP_LANES)",
        "tests/ptx/test_ptx_violations.py::test_lanes_of_a_warp_need_a_warp_barrier",
    ),
    "conflicts are counted for the whole warp": Fault(
        "cutegen/ptx/watch/traffic.py",
        "lanes_per_phase = BANK_ROW_BYTES // unit",
        "lanes_per_phase = 32",
        "tests/ptx/test_ptx_traffic.py::test_ldmatrix_is_served_in_phases_of_8_rows",
    ),
    "a sector has 64 bytes": Fault(
        "cutegen/ptx/watch/traffic.py",
        "SECTOR_BYTES = 32",
        "SECTOR_BYTES = 64",
        "tests/ptx/test_ptx_traffic.py::test_sectors_are_32_bytes",
    ),
    # The command line and expressions of specs.
    "an interrupt does not say what was kept": Fault(
        "cutegen/cli/main.py",
        "if code == INTERRUPTED and words[0] in VERBS and VERBS[words[0]].kept:",
        "if False:",
        "tests/cli/test_manners.py::test_an_interrupt_says_what_was_kept",
    ),
    "an option may be given twice": Fault(
        "cutegen/cli/parsing.py",
        "if times > 1 and keeps_one(parameter):",
        "if False:",
        "tests/cli/test_options.py::test_every_option_with_one_value_is_refused_if_it_is_given_twice",
    ),
    "a defect hides its traceback": Fault(
        "cutegen/cli/main.py",
        "if verbose or code == DEFECT:",
        "if verbose:",
        "tests/cli/test_errors.py::test_a_defect_says_so_and_keeps_its_traceback",
    ),
    "a sum has two terms at most": Fault(
        "cutegen/spec/steps.py",
        'while self._next.text in ("+", "-"):',
        'if self._next.text in ("+", "-"):',
        "tests/spec/test_expression.py::test_what_is_read_means_what_python_means",
    ),
    "an expression may divide by zero": Fault(
        "cutegen/spec/steps.py",
        'if token.text == "/" and other == Number(0.0):',
        "if False:",
        "tests/spec/test_expression.py::test_hostile_texts_are_refused_with_a_caret_under_the_place",
    ),
    # Templates, in the text of the shipped kernels. Tables named above execute other faults.
    "a stage is released while wgmma reads it": Fault(
        "templates/mainloops/wgmma.py.j2",
        "        warpgroup.wait_group(1)\n",
        "        warpgroup.wait_group(2)\n",
        _WORD_FOR_WORD,
    ),
    "the last multiplications are not waited for": Fault(
        "templates/mainloops/wgmma.py.j2",
        "    warpgroup.wait_group(0)\n    release(barrier",
        "    warpgroup.wait_group(1)\n    release(barrier",
        _WORD_FOR_WORD,
    ),
    "a barrier counts one arrival fewer": Fault(
        "cutegen/plan/kernel/pipeline.py",
        "(each.stages, barrier.count)",
        "(each.stages, barrier.count - 1)",
        _BARRIERS_BY_HAND,
    ),
}
