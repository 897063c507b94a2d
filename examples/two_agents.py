"""Two agents talk: one asks, the other answers from its stream, and the first learns what became of a third message.

angelia up                          # in another terminal
python examples/two_agents.py       # ANGELIA_URL names another hub than the one on port 18900
"""

import argparse
import os
import threading

from angelia import Client

HUB = os.environ.get("ANGELIA_URL", "http://127.0.0.1:18900")  # noqa: TID251 - a program of its own, not the hub


def painter(questions: int) -> None:
    """Answers so many messages, then ends. Each is acked once its answer is on the hub's disk."""
    with Client(HUB, name="painter") as hub:
        for item in hub.stream():
            message = item.data.get("message")
            if message is None:
                continue  # a word of the hub's own, or who came online
            if message["kind"] == "message":
                hub.reply(message["id"], f"{message['text']}? Blue, I should say.")
                questions -= 1
            hub.ack(item.data["lease"]["token"])
            if not questions:
                return


def main() -> None:
    """Run both; print what the asking one hears."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with Client(HUB, name="painter") as hub:
        hub.claim()  # a name is known once it reads; nobody can be written to before
    other = threading.Thread(target=painter, args=(2,))
    other.start()
    with Client(HUB, name="builder") as hub:
        for thing in ("the door", "the roof"):
            answer = hub.ask("painter", thing, wait_seconds=30)
            print(f"painter: {answer['reply']['text']}")
        other.join()
        sent = hub.send("painter", "thank you")
        print(f"the thanks are {hub.message(sent['id'])['deliveries'][0]['state']}")


if __name__ == "__main__":
    main()
