#!/bin/sh
# What the embedder does on a GPU, as one script for a machine without network.
#
#   sh tests/benchmarks/gpu.sh prepare        here: put what it needs into .gpu (under 64 MiB, ignored by git)
#   sh tests/benchmarks/gpu.sh run [OUT]      there: some minutes; a table on standard output, gpu.json in OUT
#
# The other machine needs Python with torch, sentence-transformers, tokenizers and safetensors, whatever their versions.
# The default model travels as fp16 weights (45 MB), which `run` widens on the spot; the large one is made there, of
# random weights. Missing small packages travel as wheels.
set -eu
cd "$(dirname "$0")/../.."
case "${1:-}" in
prepare)
    rm -rf .gpu && mkdir -p .gpu/wheels
    .venv/bin/python tests/benchmarks/gpu.py --pack .gpu
    for version in 3.11 3.12; do
        .venv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" \
            --dest .gpu/wheels --constraint constraints.txt msgspec platformdirs filelock
    done
    du -sh .gpu
    ;;
run)
    out=${2:-.gpu}
    python=${PYTHON:-python3}
    "$python" -m pip install --quiet --no-index --no-deps --find-links .gpu/wheels --target .gpu/site \
        msgspec platformdirs filelock
    # Behind what is installed there: only what is missing is taken from the wheels.
    PYTHONPATH="$PWD" GRISTMILL_SITE="$PWD/.gpu/site" "$python" tests/benchmarks/gpu.py --run .gpu --out "$out"
    ;;
*)
    sed -n '2,9p' "$0"
    exit 2
    ;;
esac
