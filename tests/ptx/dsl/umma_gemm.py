"""C = A B^T in f16 with sums in f32, on Blackwell's tensor cores: loads, multiplications and stores of four warps.

`python umma_gemm.py` writes the PTX of each variant beside this file. The tests read only the PTX, so the CuTe DSL is
needed only when this changes. Warp 0 loads and multiplies, all four warps store; the variants differ in the tile, the
majors of A and B, and in whether two CTAs multiply together.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
os.environ.setdefault("CUTE_DSL_KEEP", "ptx")

import cutlass
from cutlass import Float16, Float32, cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05

THREADS, STAGES, COLUMNS = 128, 3, 512


@dataclass(frozen=True)
class Variant:
    """A kernel: the tile of a pair or of one CTA, and whether A and B are K-major."""

    name: str
    tile: tuple[int, int, int] = (128, 128, 64)
    k_major: bool = True
    ctas: int = 1


VARIANTS = (
    Variant("umma_gemm_1cta"),
    Variant("umma_gemm_1cta_mn", tile=(128, 64, 64), k_major=False),
    Variant("umma_gemm_2cta", tile=(256, 128, 64), ctas=2),
)


def make(variant: Variant):
    """The jitted function of a variant."""
    group = tcgen05.CtaGroup.TWO if variant.ctas == 2 else tcgen05.CtaGroup.ONE
    major = OperandMajorMode.K if variant.k_major else OperandMajorMode.MN
    m, n, _ = variant.tile

    @cute.struct
    class Storage:
        full_empty: cute.struct.MemRange[cutlass.Int64, 2 * STAGES]
        sums: cute.struct.MemRange[cutlass.Int64, 2]
        freed: cutlass.Int64
        columns: cutlass.Int32

    @cute.kernel
    def kernel(
        mma: cute.TiledMma,
        load_a: cute.CopyAtom,
        a: cute.Tensor,
        load_b: cute.CopyAtom,
        b: cute.Tensor,
        c: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        vmnk: cute.Layout,
    ):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        x, y, _ = cute.arch.block_idx()
        place = (x // variant.ctas, y)
        in_pair = x % variant.ctas
        leads = in_pair == 0
        memory = cutlass.memory.SmemAllocator()
        storage = memory.allocate(Storage)
        shared_a = memory.allocate_tensor(
            element_type=Float16, layout=layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner
        )
        shared_b = memory.allocate_tensor(
            element_type=Float16, layout=layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner
        )
        tensor_memory = cutlass.memory.TmemAllocator(
            storage.columns.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS),
            is_two_cta=variant.ctas == 2,
            two_cta_tmem_dealloc_mbar_ptr=storage.freed.ptr,
        )
        group_of = pipeline.CooperativeGroup
        agent = pipeline.Agent.Thread
        stage_bytes = variant.ctas * (
            cute.size_in_bytes(Float16, cute.select(layout_a, mode=[0, 1, 2]))
            + cute.size_in_bytes(Float16, cute.select(layout_b, mode=[0, 1, 2]))
        )
        producer, consumer = pipeline.PipelineTmaUmma.create(
            num_stages=STAGES,
            producer_group=group_of(agent),
            consumer_group=group_of(agent),
            tx_count=stage_bytes,
            barrier_storage=storage.full_empty.data_ptr(),
            cta_layout_vmnk=vmnk,
        ).make_participants()
        multiplier, storer = pipeline.PipelineUmmaAsync.create(
            num_stages=1,
            producer_group=group_of(agent),
            consumer_group=group_of(agent, THREADS * variant.ctas),
            barrier_storage=storage.sums.data_ptr(),
            cta_layout_vmnk=vmnk,
        ).make_participants()
        tiles_a = cute.local_tile(a, cute.select(variant.tile, mode=[0, 2]), (place[0], None))
        tiles_b = cute.local_tile(b, cute.select(variant.tile, mode=[1, 2]), (place[1], None))
        tile_c = cute.local_tile(c, cute.select(variant.tile, mode=[0, 1]), place)
        mine = mma.get_slice(in_pair)
        parts_a, parts_b, part_c = mine.partition_A(tiles_a), mine.partition_B(tiles_b), mine.partition_C(tile_c)
        fragment_a, fragment_b = mma.make_fragment_A(shared_a), mma.make_fragment_B(shared_b)
        to_a, from_a = cpasync.tma_partition(
            load_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 3), cute.group_modes(parts_a, 0, 3)
        )
        to_b, from_b = cpasync.tma_partition(
            load_b, 0, cute.make_layout(1), cute.group_modes(shared_b, 0, 3), cute.group_modes(parts_b, 0, 3)
        )
        if cutlass.const_expr(variant.ctas == 2):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        tensor_memory.allocate(COLUMNS)
        tensor_memory.wait_for_alloc()
        pointer = tensor_memory.retrieve_ptr(Float32)
        sums = cute.make_tensor(pointer, mma.make_fragment_C(mma.partition_shape_C((m, n))).layout)
        k_tiles = cute.size(tiles_a, mode=[2])
        if warp == 0:
            free = multiplier.acquire_and_advance()
            for tile in cutlass.range(k_tiles, unroll=1):
                empty = producer.acquire_and_advance()
                cute.copy(load_a, from_a[None, tile], to_a[None, empty.index], tma_bar_ptr=empty.barrier)
                cute.copy(load_b, from_b[None, tile], to_b[None, empty.index], tma_bar_ptr=empty.barrier)
                if leads:
                    full = consumer.wait_and_advance()
                    for block in cutlass.range_constexpr(cute.size(fragment_a, mode=[2])):
                        at = (None, None, block, full.index)
                        cute.gemm(mma, sums, fragment_a[at], fragment_b[at], sums)
                        mma.set(tcgen05.Field.ACCUMULATE, True)
                    full.release()
            if leads:
                free.commit()
        tensor_memory.relinquish_alloc_permit()
        done = storer.wait_and_advance()
        load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), Float32)
        flat = cute.flat_divide(sums[(None, None), 0, 0], (128, 32))
        copy = tcgen05.make_tmem_copy(load, flat[None, None, 0, 0]).get_slice(thread)
        sources = copy.partition_S(flat)
        targets = copy.partition_D(cute.flat_divide(part_c[(None, None), 0, 0], (128, 32)))
        for piece in cutlass.range_constexpr(n // 32):
            values = cute.make_rmem_tensor(targets[None, None, None, 0, 0].shape, Float32)
            cute.copy(copy, sources[None, None, None, 0, piece], values)
            cute.autovec_copy(values, targets[None, None, None, 0, piece])
        done.release()
        pipeline.sync(barrier_id=1)
        tensor_memory.free(pointer)

    @cute.jit
    def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        op = tcgen05.MmaF16BF16Op(Float16, Float32, (m, n, 16), group, tcgen05.OperandSource.SMEM, major, major)
        mma = cute.make_tiled_mma(op)
        layout_a = utils.sm100.make_smem_layout_a(mma, variant.tile, Float16, STAGES)
        layout_b = utils.sm100.make_smem_layout_b(mma, variant.tile, Float16, STAGES)
        vmnk = cute.tiled_divide(cute.make_layout((variant.ctas, 1, 1)), (mma.thr_id,))
        load = cpasync.CopyBulkTensorTileG2SOp(group)
        one = [cute.select(layout, mode=[0, 1, 2]) for layout in (layout_a, layout_b)]
        load_a, a = cute.nvgpu.make_tiled_tma_atom_A(load, a, one[0], variant.tile, mma, vmnk.shape)
        load_b, b = cute.nvgpu.make_tiled_tma_atom_B(load, b, one[1], variant.tile, mma, vmnk.shape)
        grid = cute.ceil_div((*c.shape, 1), (m // variant.ctas, n, 1))
        kernel(mma, load_a, a, load_b, b, c, layout_a, layout_b, vmnk).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(variant.ctas, 1, 1)
        )

    return launch


def compiled(variant: Variant) -> str:
    """The PTX of a variant, with short names."""
    rows, columns, depth = (cute.sym_int(divisibility=64) for _ in range(3))
    order = (1, 0) if variant.k_major else (0, 1)
    make_tensor = cute.runtime.make_fake_compact_tensor
    a = make_tensor(Float16, (rows, depth), stride_order=order, assumed_align=16)
    b = make_tensor(Float16, (columns, depth), stride_order=order, assumed_align=16)
    c = make_tensor(Float32, (rows, columns), stride_order=(1, 0), assumed_align=16)
    text = cute.compile(make(variant), a, b, c, options="--gpu-arch sm_100a").artifacts.PTX
    name = re.search(r"\.entry (\w+)", text)[1]
    text = text.replace(f"{name}_param_", "p").replace(name, variant.name)
    text = re.sub(r"^//.*\n|\t// (?:\.globl|begin inline|end inline).*\n", "", text, flags=re.MULTILINE)
    return f"// Made by umma_gemm.py beside this file, with CuTe DSL {cutlass.__version__}.\n{text.strip()}\n"


def main() -> None:
    """Compiles the variants."""
    for variant in VARIANTS:
        Path(__file__).resolve().with_name(f"{variant.name}.ptx").write_text(compiled(variant))


if __name__ == "__main__":
    main()
