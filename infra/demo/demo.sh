#!/bin/sh
# The demo: build, publish and ask an index over infra/demo/docs. `make demo` sets everything up and calls this.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
index=${DEMO_INDEX:-.demo/index}

say() { printf '\n== %s\n' "$*"; }
ask() { printf '\n$ gristmill search %s\n' "$*"; gristmill search "$@" --index "$index" -k 3; }

say "Building an index of the documents in infra/demo/docs (one of them is broken on purpose)"
status=0
gristmill build "$here/docs" --index "$index" || status=$?
# 3: published, and some documents failed, as is meant here.
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"

say "First answers"
ask "X-42B torque" --mode bm25
ask "how long may food stay in a compartment that has lost its cooling?"
ask "压缩机"

say "What is published"
gristmill status --index "$index"

say "How many of the 32 answerable questions of infra/demo/golden.jsonl are found"
gristmill evaluate "$here/golden.jsonl" --index "$index"

say "A second build with nothing changed"
status=0
gristmill build "$here/docs" --index "$index" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
