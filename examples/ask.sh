#!/bin/sh
# A question on the command line, and an agent that answers it: whatever stands behind --exec may be one.
#   angelia up            # in another terminal
#   sh examples/ask.sh    # ANGELIA_URL names another hub than the one of the data folder
set -eu

# The agent: for each message a command, with the message as JSON on its stdin.
angelia listen --as adder --exec 'sh -c "sleep 0.2; angelia reply $ANGELIA_ID 42"' &
agent=$!
trap 'kill "$agent" 2>/dev/null || true' EXIT
trap 'exit 1' INT TERM
until angelia agents | grep -q 'adder *online'; do sleep 0.1; done

answer=$(angelia ask --as pupil adder 'what is 6 times 7?' --wait 30s)
echo "adder says $answer"

# A question that nobody answers ends with 5. It stays on its way, and the same id waits on.
id=$(python3 -c 'import uuid; print(uuid.uuid4().hex)')
angelia ask --as pupil openclaw 'anybody?' --wait 1 --id "$id" || echo "ended with $?"
angelia reply --as openclaw "$id" 'I, but late'
angelia ask --as pupil openclaw 'anybody?' --wait 10 --id "$id"
