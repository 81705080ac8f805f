#!/bin/sh
# The demo: build, publish and ask an index over infra/demo/docs. `make demo` sets everything up and calls this.
#   DEMO_INDEX   where the index goes (.demo/index)
#   DEMO_NOTES   how many notes the local LLM writes in the second part (40; 0 leaves it out)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
index=${DEMO_INDEX:-.demo/index}
notes=${DEMO_NOTES:-40}

say() { printf '\n== %s\n' "$*"; }
ask() { printf '\n$ gristmill search %s\n' "$*"; gristmill search "$@" --index "$index" -k 3; }
build() {
    status=0
    gristmill build "$here/docs" --index "$index" "$@" || status=$?
    # 3: published, and some documents failed, as is meant here.
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
}

say "Building an index of the documents in infra/demo/docs (one of them is broken on purpose, one is a scan)"
build --no-notes

say "First answers"
ask "X-42B torque" --mode bm25
ask "how long may food stay in a compartment that has lost its cooling?"
ask "压缩机" --mode bm25

say "What is published"
gristmill status --index "$index"

say "How many answers of infra/demo/golden.jsonl are found"
gristmill evaluate "$here/golden.jsonl" --index "$index"

say "A second build with nothing changed"
build --no-notes

say "The same as a Prefect flow, on a server of its own: the run, its tasks and its artifacts"
DEMO_INDEX="$index" sh "$here/prefect.sh"

if [ "$notes" -gt 0 ]; then
    say "llama.cpp, for notes: compiled once, if no earlier run has left its wheel"
    make --no-print-directory notes
    say "Notes: the local LLM places $notes chunks in their documents, as a second revision (some seconds each)"
    gristmill models fetch --notes llm
    build --notes llm --notes-limit "$notes"

    say "What the notes changed"
    ask "how long may food stay in a compartment that has lost its cooling?"
    gristmill evaluate "$here/golden.jsonl" --index "$index" --against last
fi
