#!/bin/sh
# An agent that finds out another's number. The message is that agent's name. In a turn `angelia` acts as the agent whose
# turn it is, so each question is a message from this one, and wakes the other.
read -r keeper
low=1 high=100 questions=0 answer=
until [ "$answer" = yes ]; do
    guess=$(((low + high) / 2)) questions=$((questions + 1))
    answer=$(angelia ask "$keeper" "$guess")
    case $answer in
        higher) low=$((guess + 1)) ;;
        lower) high=$((guess - 1)) ;;
        yes) ;;
        *) echo "$keeper says '$answer' to $guess" >&2 && exit 1 ;;
    esac
done
echo "$keeper keeps $guess: it took me $questions questions"
