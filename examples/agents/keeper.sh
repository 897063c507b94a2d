#!/bin/sh
# An agent that keeps a number between 1 and 100. For each message it is run once: the guess is on its standard input,
# what it prints is its answer.
read -r guess
number=73
if [ "$guess" -lt "$number" ]; then
    echo higher
elif [ "$guess" -gt "$number" ]; then
    echo lower
else
    echo yes
fi
