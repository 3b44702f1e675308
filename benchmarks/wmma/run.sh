#!/usr/bin/env bash
# Compares the hand-written WMMA kernel with the specs of the same parameters on this GPU. It runs before and after
# `cutegen bench`, because clocks drift.
#
#   benchmarks/wmma/run.sh [M,N,K] [SPEC...]   Defaults: 4096,4096,4096 and both wmma_padded specs. SPEC is what
#                                              `cutegen bench` takes, such as a directory from `cutegen build`.
#                                              PYTHON names the interpreter (python3), ARCH the target (sm_90),
#                                              ROUNDS the number of counted runs (20).
#
# Compiles into build/ if there is an nvcc; otherwise runs the program that is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
problem=${1:-4096,4096,4096}
shift || true
specs=("$@")
[ $# -gt 0 ] || specs=(wmma_padded_256x128x32 wmma_padded_256x128x32_f32)
rounds=${ROUNDS:-20}
program=build/wmma_gemm
if command -v nvcc >/dev/null; then
    mkdir -p build
    nvcc -O3 -std=c++17 -arch="${ARCH:-sm_90}" -Xptxas -v -o "$program" benchmarks/wmma/main.cu benchmarks/wmma/wmma_gemm.cu
fi
by_hand() { "$program" ${problem//,/ } "$rounds"; }

by_hand
"${PYTHON:-python3}" -m cutegen bench "${specs[@]}" --problem "$problem" --rounds "$rounds"
by_hand
