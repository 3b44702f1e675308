#!/usr/bin/env bash
# compute-sanitizer memcheck and racecheck over four kernels at sizes that cut tiles in M, N and K.
#
#   tests/gpu/sanitize.sh OUT_DIR        OUT_DIR as tests.gpu.prebuild leaves it; PYTHON names the interpreter (python3)
#
# Each tensor gets an allocation of its own, so that memcheck sees an access one element past the end.
set -euo pipefail
artifacts=${1:?usage: sanitize.sh OUT_DIR}
cd "$(dirname "$0")/../.."
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
failed=0
for tool in memcheck racecheck; do
  echo "== $tool"
  # cuda-python asks the driver for functions of other versions; that these are absent is no error of a kernel's.
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 --target-processes all \
    "${PYTHON:-python3}" -m tests.gpu.launch "$artifacts"/sanitize_* \
    --problem 130,72,88 --problem 1,8,8 --problem 64,136,264 --problem 65,33,47 || { echo "== $tool failed"; failed=1; }
done
exit $failed
