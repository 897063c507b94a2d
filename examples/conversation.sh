#!/bin/sh
# Two agents that the hub wakes, and you: a question to one of them makes it ask the other, again and again.
#   angelia up                     # in another terminal
#   sh examples/conversation.sh    # ANGELIA_URL names another hub than the one of the data folder
set -eu
agents=$(dirname "$0")/agents
trap 'angelia leave keeper; angelia leave guesser' EXIT
trap 'exit 1' INT TERM

angelia join keeper --command "'$agents/keeper.sh'" --title 'Keeper' --description 'keeps a number'
angelia join guesser --command "'$agents/guesser.sh'" --title 'Guesser' --description 'finds out numbers'
angelia ask guesser keeper --wait 60

# Each question was a turn of its own; the guesser's was the one that took all the time.
angelia turns --all
# Whoever runs a model in place of these scripts tells it this:
angelia briefing --as guesser
