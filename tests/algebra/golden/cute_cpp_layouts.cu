// Prints what CuTe C++ makes of a set of tiled MMAs and tiled copies: one line "case name layout" each, seen by one thread.
// The table of cases stands a second time in ../test_cute_cpp.py. Written with CUTLASS 7107b0553 and CUDA 13.0:
//   nvcc -std=c++17 -O0 -arch=sm_80 -I CUTLASS/include --expt-relaxed-constexpr cute_cpp_layouts.cu -o cute_cpp_layouts
//   ./cute_cpp_layouts 37 > cute_cpp_layouts.txt
#include <cstdio>
#include <cstdlib>

#include <cute/tensor.hpp>  // first: the atoms' headers lean on it

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>

using namespace cute;

constexpr int N = 5120, K = 4096;  // leading strides of C and A; only their run-time copies below are used

template <class T>
void show(char const* name, char const* fact, T const& value) {
  printf("%s %s ", name, fact);
  print(value);
  printf("\n");
}

template <class Tensor>
void show_partition(char const* name, char const* fact, Tensor const& t) {
  printf("%s %s ", name, fact);
  print(t.layout());
  printf(" @ %d\n", int(raw_pointer_cast(t.data()) - static_cast<half_t const*>(nullptr)));
}

template <class Layout>
auto smem_tensor(Layout const& layout) {
  return make_tensor(make_smem_ptr(static_cast<half_t*>(nullptr)), layout);
}

template <class Mma, class CopyA, class CopyB, class AtomLayout, class Permutation, class SmemA, class SmemB, class Tile>
void mma_case(char const* name, AtomLayout atom_layout, Permutation permutation, SmemA smem_a, SmemB smem_b, Tile tile,
              int thread, int n) {
  auto mma = make_tiled_mma(MMA_Atom<Mma>{}, atom_layout, permutation);
  auto [bm, bn, bk, stages] = tile;
  auto sA = smem_tensor(tile_to_shape(smem_a, make_shape(bm, bk, stages)));
  auto sB = smem_tensor(tile_to_shape(smem_b, make_shape(bn, bk, stages)));
  auto gC = make_tensor(make_gmem_ptr(static_cast<half_t*>(nullptr)), make_shape(bm, bn), make_stride(n, Int<1>{}));
  auto thr = mma.get_slice(thread);
  auto tCrA = thr.partition_fragment_A(sA(_, _, 0));
  auto tCrB = thr.partition_fragment_B(sB(_, _, 0));
  auto copy_a = make_tiled_copy_A(Copy_Atom<CopyA, half_t>{}, mma);
  auto copy_b = make_tiled_copy_B(Copy_Atom<CopyB, half_t>{}, mma);
  show(name, "vmnk", mma.get_thr_layout_vmnk());
  show(name, "tvA", mma.get_layoutA_TV());
  show(name, "tvB", mma.get_layoutB_TV());
  show(name, "tvC", mma.get_layoutC_TV());
  show(name, "sA", sA.layout());
  show(name, "sB", sB.layout());
  show_partition(name, "tCsA", thr.partition_A(sA));
  show_partition(name, "tCsB", thr.partition_B(sB));
  show_partition(name, "tCgC", thr.partition_C(gC));
  show(name, "tCrA", tCrA.layout());
  show(name, "tCrB", tCrB.layout());
  show(name, "tCrC", thr.make_fragment_C(thr.partition_C(gC)).layout());
  show_partition(name, "tXsA", copy_a.get_slice(thread).partition_S(sA));
  show_partition(name, "tXsB", copy_b.get_slice(thread).partition_S(sB));
  show(name, "tXrA", copy_a.get_slice(thread).retile_D(tCrA).layout());
  show(name, "tXrB", copy_b.get_slice(thread).retile_D(tCrB).layout());
  show(name, "srcA", copy_a.get_layoutS_TV());
  show(name, "dstA", copy_a.get_layoutD_TV());
  show(name, "srcB", copy_b.get_layoutS_TV());
  show(name, "dstB", copy_b.get_layoutD_TV());
}

template <class Threads, class Values, class Smem, class Tile>
void copy_case(char const* name, Threads threads, Values values, Smem smem, Tile tile, int thread, int k) {
  auto copy = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, half_t>{}, threads, values);
  auto sA = smem_tensor(tile_to_shape(smem, append(tile, _3{})));
  auto mA = make_tensor(make_gmem_ptr(static_cast<half_t*>(nullptr)), make_shape(5120, k), make_stride(k, Int<1>{}));
  auto gA = local_tile(mA, tile, make_coord(0, _));
  auto thr = copy.get_slice(thread);
  show(name, "sA", sA.layout());
  show_partition(name, "tAgA", thr.partition_S(gA));
  show_partition(name, "tAsA", thr.partition_D(sA));
  show(name, "src", copy.get_layoutS_TV());
}

using Sw3 = Swizzle<3, 3, 3>;
using Sw2 = Swizzle<2, 3, 3>;
using M8 = SM80_16x8x8_F16F16F16F16_TN;
using M16 = SM80_16x8x16_F32F16F16F32_TN;
using N1 = SM75_U32x1_LDSM_N;
using N2 = SM75_U32x2_LDSM_N;
using N4 = SM75_U32x4_LDSM_N;
using T2 = SM75_U16x4_LDSM_T;
using T4 = SM75_U16x8_LDSM_T;
using Smallest = Tile<Underscore, Underscore, Underscore>;

template <int M, int N_, int K_>
constexpr auto atoms() { return make_layout(Shape<Int<M>, Int<N_>, Int<K_>>{}); }

int main(int argc, char** argv) {
  int t = argc > 1 ? atoi(argv[1]) : 0;
  int n = N + argc - 2, k = K + argc - 2;  // unknown to the compiler
  auto tutorial = composition(Sw3{}, Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>{});
  auto k64 = composition(Sw3{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{});
  auto m64 = composition(Sw3{}, Layout<Shape<_64, _8>, Stride<_1, _64>>{});
  auto k32 = composition(Sw2{}, Layout<Shape<_8, _32>, Stride<_32, _1>>{});
  auto k32x16 = composition(Sw2{}, Layout<Shape<_16, _32>, Stride<_32, _1>>{});
  auto m32 = composition(Sw2{}, Layout<Shape<_32, _8>, Stride<_1, _32>>{});
  auto pad40 = Layout<Shape<_8, _32>, Stride<Int<40>, _1>>{};
  auto pad72 = Layout<Shape<_1, _64>, Stride<Int<72>, _1>>{};
  auto pad136 = Layout<Shape<_128, _8>, Stride<_1, Int<136>>>{};
  auto wide = Shape<_128, _128, _64, _3>{};
  auto narrow = Shape<_128, _128, _32, _2>{};
  auto tall = Shape<_192, _64, _64, _2>{};

  mma_case<M8, N4, N4>("tutorial", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, tutorial, tutorial, wide, t, n);
  mma_case<M16, N4, N4>("k64", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, k64, k64, wide, t, n);
  mma_case<M16, N4, N2>("k64_smallest", atoms<2, 2, 1>(), Smallest{}, k64, k64, wide, t, n);
  mma_case<M16, T4, T4>("m64", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, m64, m64, wide, t, n);
  mma_case<M16, T4, N4>("m64_k64", atoms<4, 1, 1>(), Tile<_64, _16, _16>{}, m64, k64, wide, t, n);
  mma_case<M16, N4, N4>("k32", atoms<1, 4, 1>(), Tile<_16, _64, _16>{}, k32, k32x16, narrow, t, n);
  mma_case<M16, T4, T4>("m32", atoms<2, 2, 1>(), Tile<_32, _32, _32>{}, m32, m32, narrow, t, n);
  mma_case<M16, N4, N4>("pad40", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, pad40, pad40, narrow, t, n);
  mma_case<M16, N4, N4>("pad72", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, pad72, pad72, wide, t, n);
  mma_case<M16, T4, T4>("pad136", atoms<2, 2, 1>(), Tile<_32, _32, _16>{}, pad136, pad136, wide, t, n);
  mma_case<M8, N2, N1>("k8", atoms<2, 2, 1>(), Tile<_32, _16, _8>{}, k64, k64, wide, t, n);
  mma_case<M8, T2, T2>("m_k8", atoms<2, 2, 1>(), Tile<_32, _32, _8>{}, m64, m64, wide, t, n);
  mma_case<M16, N4, N4>("split_k", atoms<2, 1, 2>(), Tile<_64, _32, _32>{}, k64, k64, wide, t, n);
  mma_case<M16, N4, N4>("tall", atoms<2, 2, 1>(), Tile<_64, _32, _16>{}, k64, k64, tall, t, n);
  mma_case<M16, N4, N4>("row_major_warps", make_layout(Shape<_2, _2, _1>{}, Stride<_2, _1, _0>{}),
                        Tile<_32, _32, _16>{}, k64, k64, wide, t, n);

  auto across = Layout<Shape<_1, _8>>{};
  copy_case("copy_tutorial", Layout<Shape<_16, _8>, Stride<_8, _1>>{}, across, tutorial, Shape<_128, _64>{}, t, k);
  copy_case("copy_k64", Layout<Shape<_16, _8>, Stride<_8, _1>>{}, across, k64, Shape<_128, _64>{}, t, k);
  copy_case("copy_k32", Layout<Shape<_32, _4>, Stride<_4, _1>>{}, across, k32, Shape<_128, _32>{}, t, k);
  copy_case("copy_pad40", Layout<Shape<_32, _4>, Stride<_4, _1>>{}, across, pad40, Shape<_128, _32>{}, t, k);
  copy_case("copy_m64", Layout<Shape<_8, _16>>{}, Layout<Shape<_8, _1>>{}, m64, Shape<_128, _64>{}, t, k);
}
