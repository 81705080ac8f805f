#!/bin/sh
# One build as a Prefect flow: start a Prefect server, build, show the run with its tasks and artifacts, stop the server.
#   DEMO_INDEX         the index (.demo/index)
#   DEMO_PREFECT_PORT  where the server listens (4267)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
index=${DEMO_INDEX:-.demo/index}
port=${DEMO_PREFECT_PORT:-4267}

export PREFECT_HOME="$PWD/.demo/prefect" PREFECT_API_URL="http://127.0.0.1:$port/api"
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1 PREFECT_CLI_COLORS=false COLUMNS=120
mkdir -p "$PREFECT_HOME"
trap 'prefect server stop > "$PREFECT_HOME/stop.log" 2>&1 || true' EXIT
trap 'exit 130' INT TERM
prefect server start --host 127.0.0.1 --port "$port" --background > "$PREFECT_HOME/start.log" 2>&1 ||
    { cat "$PREFECT_HOME/start.log" >&2; exit 1; }
waited=0
until python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health", timeout=5)' \
    "$PREFECT_API_URL" 2> /dev/null; do
    waited=$((waited + 1))
    [ "$waited" -lt 120 ] || { echo "the Prefect server did not start, see $PREFECT_HOME/start.log" >&2; exit 1; }
    sleep 1
done

status=0
gristmill build "$here/docs" --index "$index" --reread --orchestrator prefect --quiet || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"

prefect flow-run ls --limit 1
prefect task-run ls --limit 12
prefect artifact ls
