#!/bin/sh
# A worker that fails once: the message goes back, comes again under the next attempt, and is done once.
#   angelia up                    # in another terminal
#   sh examples/listen_exec.sh    # ANGELIA_URL names another hub than the one of the data folder
set -eu
folder=$(mktemp -d) worker=
trap 'kill "$worker" 2>/dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

cat > "$folder/work.sh" <<'WORK'
#!/bin/sh
# The message is on stdin; who sent it, its id and the attempt are in the environment.
cat > "$1/message.json"
if [ "$ANGELIA_ATTEMPT" -lt 2 ]; then
    echo "attempt $ANGELIA_ATTEMPT fails"
    exit 1
fi
echo "attempt $ANGELIA_ATTEMPT does the work of $ANGELIA_FROM"
touch "$1/done"
WORK
chmod +x "$folder/work.sh"

angelia listen --as worker --exec "$folder/work.sh $folder" &
worker=$!
until angelia agents | grep -q 'worker *online'; do sleep 0.1; done

id=$(angelia send --as boss worker 'sweep the yard' --intent request | cut -d' ' -f1)
until [ -e "$folder/done" ]; do sleep 0.1; done
until angelia message --as boss "$id" | grep -q 'worker: delivered'; do sleep 0.1; done
angelia message --as boss "$id"
