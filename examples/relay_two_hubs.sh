#!/bin/sh
# Two hubs, as on two machines: an agent on each, a link between them, and mail for the one that is off.
#   sh examples/relay_two_hubs.sh    # starts two hubs of its own and stops them, whatever ANGELIA_URL names
set -eu
unset ANGELIA_URL ANGELIA_AGENT ANGELIA_TOKEN ANGELIA_CONFIG
folder=$(mktemp -d) agents=
export ANGELIA_HERMES_HOME=off
laptop() { ANGELIA_DATA_DIR=$folder/laptop angelia "$@"; }
server() { ANGELIA_DATA_DIR=$folder/server angelia "$@"; }
end() {
    for agent in $agents; do kill "$agent" 2>/dev/null || true; done
    laptop down || true
    server down || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' INT TERM

echo "# two hubs"
ANGELIA_HUB_NAME=laptop laptop up --detach --port 0 | sed -n 1,2p
ANGELIA_HUB_NAME=server server up --detach --port 0 | sed -n 1,2p
port=$(sed -n 's/.*"port": *\([0-9]*\).*/\1/p' "$folder/server/hub.json")

echo "# an agent on each, which answers"
ANGELIA_DATA_DIR=$folder/laptop angelia listen --as scout --exec 'sh -c "angelia reply $ANGELIA_ID blue"' &
agents=$!
ANGELIA_DATA_DIR=$folder/server angelia listen --as oracle --exec 'sh -c "angelia reply $ANGELIA_ID 8443"' &
agents="$agents $!"
until laptop agents | grep -q 'scout *online' && server agents | grep -q 'oracle *online'; do sleep 0.1; done

echo "# one connects to the other; two machines pair first, or take ssh://USER@HOST: docs/howto/connect.md"
laptop connect server "ws://127.0.0.1:$port"
until laptop agents | grep -q oracle && server agents | grep -q scout; do sleep 0.1; done
laptop agents

echo "# each asks across"
echo "oracle says $(laptop ask --as pupil oracle 'which port does staging use?' --wait 30)"
echo "scout says $(server ask --as pupil scout@laptop 'which light?' --wait 30)"
laptop connections

echo "# the server is off: mail waits"
server down
id=$(laptop send --as pupil oracle 'for when you are back' --intent request | tee /dev/stderr | cut -d' ' -f1)
laptop connections

echo "# and goes when it is back"
ANGELIA_HUB_NAME=server server up --detach --port "$port" | sed -n 1,2p
until laptop message --as pupil "$id" | grep -q 'oracle.*: answered'; do sleep 0.1; done
laptop message --as pupil "$id"
