#!/usr/bin/env bash
# compute-sanitizer memcheck, synccheck and racecheck over fourteen kernels at sizes that cut tiles in M, N and K.
#
#   tests/gpu/sanitize.sh OUT_DIR [TOOL ...]     OUT_DIR as tests.gpu.prebuild leaves it; PYTHON names the interpreter
#   KERNELS='planted_*' tests/gpu/sanitize.sh OUT_DIR racecheck     races that are planted: what is found is an error
#
# Each tensor gets an allocation of its own, so that memcheck sees an access one element past the end.
set -euo pipefail
artifacts=${1:?usage: sanitize.sh OUT_DIR [TOOL ...]}
shift
cd "$(dirname "$0")/../.."
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
failed=0
[ $# -gt 0 ] || set -- memcheck synccheck racecheck
for tool in "$@"; do
  echo "== $tool"
  # cuda-python asks the driver for functions of other versions; that these are absent is no error of a kernel's.
  # shellcheck disable=SC2086  # KERNELS is a pattern
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 --target-processes all \
    "${PYTHON:-python3}" -m tests.gpu.launch "$artifacts"/${KERNELS:-sanitize_*} \
    --problem 130,72,88 --problem 1,8,8 --problem 64,136,264 --problem 65,33,47 || { echo "== $tool failed"; failed=1; }
done
exit $failed
