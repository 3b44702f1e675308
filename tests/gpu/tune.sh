#!/usr/bin/env bash
# What `cutegen bench` and `cutegen report` say on this GPU: ceilings, times beside torch and Triton, hardware counters.
#
#   tests/gpu/tune.sh OUT_DIR [TENSOROP_GEMM]      PYTHON names the interpreter (python3); OUT_DIR gets JSON and an SVG.
#                                                  TENSOROP_GEMM is CUTLASS's Ampere example of the CuTe DSL.
set -uo pipefail
out=${1:?usage: tune.sh OUT_DIR [TENSOROP_GEMM]}
example=(${2:+--cutlass "$2"})
cd "$(dirname "$0")/../.."
mkdir -p "$out"
failed=0
cutegen() { "${PYTHON:-python3}" -m cutegen "$@" || { echo "== cutegen $* failed"; failed=1; }; }
"${PYTHON:-python3}" -m pytest -q -m gpu tests/bench || failed=1
cutegen bench sm80_hgemm_tn --suite seed --plot "$out/roofline.svg" "${example[@]}"
cutegen bench sm80_hgemm_tn sm80_bf16_nn cute_tutorial_tn --problem 4096,4096,4096 --json >"$out/bench.json"
cutegen report sm80_hgemm_tn --problem 4096,4096,4096
cutegen report sm80_hgemm_tn --problem 4096,4096,4096 --json >"$out/report.json"
exit $failed
