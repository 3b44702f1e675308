// Prints what CuTe C++ knows of wgmma: a line "kind case fact value" each, the value a layout or the 64 bits of a descriptor.
// The table of tiled MMAs stands a second time in ../test_wgmma_cpp.py. Written with CUTLASS 7107b0553, CUDA 13.0, g++ 12:
//   g++ -std=c++17 -w -x c++ -I CUTLASS/include -I CUDA/include -I CUDA/include/cccl wgmma.cu -o wgmma
//   ./wgmma 2> wgmma.txt > /dev/null
// Lines go to stderr: on stdout CuTe complains that no host knows addresses of shared memory, all of which are 0 here.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
#include <cstdio>
#include <unistd.h>

#include <cute/tensor.hpp>  // first: the atoms' headers lean on it

#include <cute/atom/mma_atom.hpp>

using namespace cute;
using GMMA::Major;

// CuTe prints to stdout: what `value` is as text is turned round to stderr.
template <class T>
void show(char const* kind, char const* name, char const* fact, T const& value) {
  fprintf(stderr, "%s %s %s ", kind, name, fact);
  fflush(stdout);
  int kept = dup(1);
  dup2(2, 1);
  print(value);
  fflush(stdout);
  dup2(kept, 1);
  close(kept);
  fprintf(stderr, "\n");
}

template <class T>
void show(char const* name, int thread, char const* fact, T const& value) {
  char numbered[32];
  snprintf(numbered, sizeof numbered, "%s.%d", name, thread);
  show("tiled", numbered, fact, value);
}

template <class Atom>
void atom(char const* name) {
  using Traits = MMA_Traits<Atom>;
  show("atom", name, "Shape_MNK", typename Traits::Shape_MNK{});
  show("atom", name, "ThrID", typename Traits::ThrID{});
  show("atom", name, "ALayout", typename Traits::ALayout{});
  show("atom", name, "BLayout", typename Traits::BLayout{});
  show("atom", name, "CLayout", typename Traits::CLayout{});
}

// Operands of 16 bits have majors, floats of 8 bits scales alone, integers neither.
#define OF_16_BITS(op) atom<op<Major::K, Major::K>>(#op);
#define OF_FLOAT8(op) atom<op<>>(#op);
#define OF_INTEGERS(op) atom<op>(#op);
#define BOTH(show, stem, tail) show(stem##_SS##tail) show(stem##_RS##tail)
#define ONE_16_BIT(n) OF_16_BITS(SM90_64x##n##x16_F32F16F16_SS)
#define ONE_INTEGER(n) OF_INTEGERS(SM90_64x##n##x32_S32S8U8_SS_TN_SATURATE)
#define EVERY_16_BIT(n)                            \
  BOTH(OF_16_BITS, SM90_64x##n##x16_F16F16F16, )   \
  BOTH(OF_16_BITS, SM90_64x##n##x16_F32F16F16, )   \
  BOTH(OF_16_BITS, SM90_64x##n##x16_F32BF16BF16, )
#define EVERY_FLOAT8(n)                               \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F16E4M3E4M3, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F16E4M3E5M2, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F16E5M2E4M3, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F16E5M2E5M2, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F32E4M3E4M3, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F32E4M3E5M2, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F32E5M2E4M3, _TN)  \
  BOTH(OF_FLOAT8, SM90_64x##n##x32_F32E5M2E5M2, _TN)
#define EVERY_INTEGER(n)                                    \
  BOTH(OF_INTEGERS, SM90_64x##n##x32_S32S8S8, _TN_SATURATE) \
  BOTH(OF_INTEGERS, SM90_64x##n##x32_S32S8U8, _TN_SATURATE) \
  BOTH(OF_INTEGERS, SM90_64x##n##x32_S32U8S8, _TN_SATURATE) \
  BOTH(OF_INTEGERS, SM90_64x##n##x32_S32U8U8, _TN_SATURATE)

// What a thread holds of row-major C and of A.
template <class Op, class AtomLayout, class Tile>
void tiled(char const* name, AtomLayout atom_layout, Tile tile, int thread) {
  auto mma = make_tiled_mma(MMA_Atom<Op>{}, atom_layout);
  auto [bm, bn, bk] = tile;
  auto gA = make_tensor(make_gmem_ptr(static_cast<half_t*>(nullptr)), make_layout(make_shape(bm, bk), LayoutRight{}));
  auto gC = make_tensor(make_gmem_ptr(static_cast<float*>(nullptr)), make_layout(make_shape(bm, bn), LayoutRight{}));
  auto thr = mma.get_slice(thread);
  auto tCgC = thr.partition_C(gC);
  auto tCgA = thr.partition_A(gA);
  show(name, thread, "vmnk", mma.get_thr_layout_vmnk());
  show(name, thread, "tvA", mma.get_layoutA_TV());
  show(name, thread, "tvB", mma.get_layoutB_TV());
  show(name, thread, "tvC", mma.get_layoutC_TV());
  show(name, thread, "tCgC", tCgC.layout());
  show(name, thread, "tCgC@", int(raw_pointer_cast(tCgC.data()) - static_cast<float const*>(nullptr)));
  show(name, thread, "tCgA", tCgA.layout());
  show(name, thread, "tCgA@", int(raw_pointer_cast(tCgA.data()) - static_cast<half_t const*>(nullptr)));
  show(name, thread, "tCrC", partition_fragment_C(mma, make_shape(bm, bn)).layout());
}

template <class Type, class Atom>
void shared(char const* name, Atom) {
  auto elems = as_position_independent_swizzle_layout(Atom{});
  show("shared", name, "atom", elems);
  auto rows = Int<128>{};
  show("shared", name, "rows_first", tile_to_shape(elems, make_shape(rows, rows, Int<3>{})));
  show("shared", name, "k_first", tile_to_shape(elems, make_shape(rows, rows, Int<3>{}), Step<_2, _1, _3>{}));
}

#define SHARED(atom, type, label) shared<type>(#atom "." label, GMMA::atom<type>{});
#define EVERY_TYPE(atom) SHARED(atom, int8_t, "8") SHARED(atom, half_t, "16") SHARED(atom, float, "32")

// The descriptor of a tile's first block, and the steps to the others in units of 16 bytes: blocks along M or N, along K,
// then stages. K lies first behind a box where M or N is contiguous, as CUTLASS's collectives have it.
template <Major major, class Type, int rows, class Atom, class Tile>
void descriptor(char const* name, Atom atom, Tile tile) {
  using Order = conditional_t<major == Major::K, Step<_1, _2, _3>, Step<_2, _1, _3>>;
  auto smem = make_tensor(make_smem_ptr(static_cast<Type*>(nullptr)), tile_to_shape(atom, tile, Order{}));
  auto blocks = zipped_divide(smem, Shape<Int<rows>, Int<256 / sizeof_bits_v<Type>>>{});
  auto descriptors = MakeTensor<GMMA::smem_desc<major>>{}(blocks);
  char bits[32];
  snprintf(bits, sizeof bits, "0x%016llx", static_cast<unsigned long long>(descriptors.data().desc_.desc_));
  char numbered[96];
  snprintf(numbered, sizeof numbered, "%s.%d.%d.%dx%dx%d", name, int(sizeof_bits_v<Type>), rows, int(size<0>(tile)),
           int(size<1>(tile)), int(size<2>(tile)));
  fprintf(stderr, "descriptor %s first %s\n", numbered, bits);
  show("descriptor", numbered, "steps", layout<1>(descriptors.layout()));
}

#define DESCRIPTOR(major, atom, type, rows, x, k, stages) \
  descriptor<Major::major, type, rows>(#atom, GMMA::atom<type>{}, Shape<Int<x>, Int<k>, Int<stages>>{});

int main() {
  auto one = Layout<Shape<_1, _1, _1>>{};
  auto two = Layout<Shape<_2, _1, _1>>{};
  auto three = Layout<Shape<_3, _1, _1>>{};
  auto beside = Layout<Shape<_1, _2, _1>>{};
  ONE_16_BIT(8) ONE_16_BIT(16) ONE_16_BIT(24) ONE_16_BIT(32) ONE_16_BIT(40) ONE_16_BIT(48) ONE_16_BIT(56) ONE_16_BIT(72)
  ONE_16_BIT(80) ONE_16_BIT(88) ONE_16_BIT(96) ONE_16_BIT(104) ONE_16_BIT(112) ONE_16_BIT(120) ONE_16_BIT(128)
  ONE_16_BIT(136) ONE_16_BIT(144) ONE_16_BIT(152) ONE_16_BIT(160) ONE_16_BIT(168) ONE_16_BIT(176) ONE_16_BIT(184)
  ONE_16_BIT(192) ONE_16_BIT(200) ONE_16_BIT(208) ONE_16_BIT(216) ONE_16_BIT(224) ONE_16_BIT(232) ONE_16_BIT(240)
  ONE_16_BIT(248) ONE_16_BIT(256)
  ONE_INTEGER(8) ONE_INTEGER(16) ONE_INTEGER(24) ONE_INTEGER(32) ONE_INTEGER(48) ONE_INTEGER(80) ONE_INTEGER(96)
  ONE_INTEGER(112) ONE_INTEGER(128) ONE_INTEGER(144) ONE_INTEGER(160) ONE_INTEGER(176) ONE_INTEGER(192)
  ONE_INTEGER(208) ONE_INTEGER(224) ONE_INTEGER(240) ONE_INTEGER(256)
  EVERY_16_BIT(64) EVERY_FLOAT8(64) EVERY_INTEGER(64)

  using N256 = SM90_64x256x16_F32F16F16_SS<Major::K, Major::K>;
  using N96 = SM90_64x96x16_F32F16F16_RS<Major::K, Major::MN>;
  using N64 = SM90_64x64x32_S32S8S8_RS_TN_SATURATE;
  using N24 = SM90_64x24x32_F16E4M3E5M2_SS_TN<>;
  for (int thread : {0, 37, 229, 383}) {
    if (thread < 128) {
      tiled<N256>("one_warpgroup", one, Shape<_128, _256, _64>{}, thread);
      tiled<N24>("narrow", one, Shape<_64, Int<72>, _128>{}, thread);
    }
    if (thread < 256) {
      tiled<N256>("cooperative", two, Shape<_128, _256, _64>{}, thread);
      tiled<N96>("registers", two, Shape<_256, Int<192>, _64>{}, thread);
      tiled<N64>("bytes", beside, Shape<_64, _128, _128>{}, thread);
    }
    tiled<N64>("three", three, Shape<Int<192>, _64, _64>{}, thread);
  }

  EVERY_TYPE(Layout_K_SW128_Atom)
  EVERY_TYPE(Layout_K_SW64_Atom)
  EVERY_TYPE(Layout_K_SW32_Atom)
  EVERY_TYPE(Layout_K_INTER_Atom)
  EVERY_TYPE(Layout_MN_SW128_Atom)
  EVERY_TYPE(Layout_MN_SW64_Atom)
  EVERY_TYPE(Layout_MN_SW32_Atom)
  EVERY_TYPE(Layout_MN_INTER_Atom)

  DESCRIPTOR(K, Layout_K_SW128_Atom, half_t, 64, 128, 64, 4)
  DESCRIPTOR(K, Layout_K_SW128_Atom, half_t, 256, 256, 128, 3)
  DESCRIPTOR(K, Layout_K_SW128_Atom, half_t, 8, 64, 64, 2)
  DESCRIPTOR(K, Layout_K_SW64_Atom, half_t, 64, 128, 32, 4)
  DESCRIPTOR(K, Layout_K_SW32_Atom, half_t, 24, 96, 48, 2)
  DESCRIPTOR(K, Layout_K_INTER_Atom, half_t, 64, 128, 64, 2)
  DESCRIPTOR(K, Layout_K_INTER_Atom, half_t, 8, 8, 16, 2)
  DESCRIPTOR(K, Layout_K_SW128_Atom, int8_t, 64, 128, 128, 4)
  DESCRIPTOR(K, Layout_K_SW64_Atom, int8_t, 192, 192, 128, 2)
  DESCRIPTOR(K, Layout_K_SW32_Atom, int8_t, 64, 64, 32, 1)
  DESCRIPTOR(K, Layout_K_INTER_Atom, int8_t, 16, 32, 64, 2)
  DESCRIPTOR(K, Layout_K_SW128_Atom, float, 64, 128, 32, 2)
  DESCRIPTOR(MN, Layout_MN_SW128_Atom, half_t, 64, 128, 64, 4)
  DESCRIPTOR(MN, Layout_MN_SW128_Atom, half_t, 256, 256, 64, 3)
  DESCRIPTOR(MN, Layout_MN_SW128_Atom, half_t, 128, 256, 16, 2)
  DESCRIPTOR(MN, Layout_MN_SW64_Atom, half_t, 64, 128, 64, 2)
  DESCRIPTOR(MN, Layout_MN_SW64_Atom, half_t, 96, 192, 32, 2)
  DESCRIPTOR(MN, Layout_MN_SW32_Atom, half_t, 16, 64, 64, 2)
  DESCRIPTOR(MN, Layout_MN_SW32_Atom, half_t, 64, 64, 48, 2)
  DESCRIPTOR(MN, Layout_MN_INTER_Atom, half_t, 64, 128, 64, 2)
  DESCRIPTOR(MN, Layout_MN_INTER_Atom, half_t, 8, 8, 16, 2)
  DESCRIPTOR(MN, Layout_MN_INTER_Atom, half_t, 24, 72, 32, 2)
}
