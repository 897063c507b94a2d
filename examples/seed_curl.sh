#!/bin/sh
# The first bus, with curl alone: hermes and openclaw, a stream, a broadcast, a poll.
#   angelia up                  # in another terminal
#   sh examples/seed_curl.sh    # ANGELIA_URL names another hub than the one on port 18900
set -eu
hub=${ANGELIA_URL:-http://127.0.0.1:18900}
heard=$(mktemp) stream=
trap 'kill "$stream" 2>/dev/null || true; rm -f "$heard"' EXIT
trap 'exit 1' INT TERM

echo "# who is here"
curl -sS "$hub/status" | tr ',' '\n' | grep online

echo "# openclaw listens"
curl -sSN "$hub/subscribe?agent=openclaw" > "$heard" &
stream=$!
until grep -q connected "$heard"; do sleep 0.1; done

echo "# hermes sends; delivered: it is on the stream already"
curl -sS "$hub/broadcast?from=hermes&to=openclaw" -d '{"type": "test", "text": "messaggio"}'; echo
until grep -q messaggio "$heard"; do sleep 0.1; done
grep '^data: .*messaggio' "$heard"

echo "# openclaw answers; hermes has no stream, so it waits"
curl -sS "$hub/broadcast?from=openclaw&to=hermes" -d '{"type": "test", "text": "arrivato"}'; echo

echo "# hermes polls, and polls again"
curl -sS "$hub/poll?agent=hermes"; echo
curl -sS "$hub/poll?agent=hermes"; echo
