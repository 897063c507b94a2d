"""The end of a hub: whoever asks for it gets it, whatever its loop is doing. Each in a process of its own."""

import subprocess
import sys

import pytest

BEGUN = """
import os, signal, sys, uvloop
from angelia.ending import End, Ending

ending = Ending()
heard = []

def send(number):
    os.kill(os.getpid(), number)

async def serve(*numbers):
    ending.hear_signals(lambda: heard.append("hung up"))
    for number in numbers:
        send(number)
    print(await ending.wait())

"""
BEHIND_THE_LOOP = """
ending.call(End.STORE_FAILED)
uvloop.run(serve())
send(signal.SIGHUP)
send(number)
print(ending.reason, heard)
"""
WHILE_IT_WAITS = """
ending.call(End.STORE_FAILED)
uvloop.run(serve())
ending.obey_at_once()
try:
    send(number)
    print("it went on")
finally:
    print("put away")
"""
ASKED = ["End.ASKED"]


def said(program: str, number: str, code: int = 0) -> list[str]:
    """What such a process says, once it has ended with this code."""
    words = [sys.executable, "-c", BEGUN + f"number = signal.{number}\n" + program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_whoever_asks_a_hub_that_serves_gets_its_end(number: str) -> None:
    assert said("uvloop.run(serve(number))", number) == ASKED


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_it_wakes_a_loop_that_sleeps(number: str) -> None:
    assert said("import threading; threading.Timer(0.2, send, [number]).start()\nuvloop.run(serve())", number) == ASKED


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_who_asks_behind_the_loop_of_a_hub_that_replaces_itself_is_heard(number: str) -> None:
    assert said(BEHIND_THE_LOOP, number) == ["End.STORE_FAILED", "End.ASKED []"]


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_who_asks_while_it_waits_to_become_a_new_one_ends_it_in_order(number: str) -> None:
    assert said(WHILE_IT_WAITS, number) == ["End.STORE_FAILED", "put away"]


def test_a_terminal_that_is_closed_is_told_on_the_loop_and_ends_nothing() -> None:
    program = "uvloop.run(serve(number, signal.SIGHUP, signal.SIGTERM))\nprint(heard)"
    assert said(program, "SIGHUP") == ["End.ASKED", "['hung up', 'hung up']"]
