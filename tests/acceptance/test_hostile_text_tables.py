"""Every door and every hand of the product, and the tests that take the hostile texts through it.

What must stay true: the tables are compared with what the product itself lists (``/openapi.json``, the gateway's
methods, the commands, the kinds of agents, the hands that a delivery can have). What is added there and not here is
red, and so is what is here and not there. A test stands in a table by itself, not by its name.
"""

from collections.abc import Callable, Iterator
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest

from angelia import doors
from angelia.cli.main import COMMANDS
from angelia.doors.gateway.methods import METHODS
from angelia.doors.http.openapi import describe
from angelia.doors.http.routes import ROUTES
from angelia.model.connection import Speaks
from angelia.model.delivery import Hand
from angelia.turns.adapters.registry import KINDS
from tests.acceptance import test_hostile_text as routes
from tests.acceptance import test_hostile_text_commands as commands
from tests.acceptance import test_hostile_text_relays as relays
from tests.acceptance import test_hostile_text_turns as turns

Test = Callable[..., Any]
DOCUMENT = msgspec.json.decode(describe(ROUTES, "1"))
# Fields that may hold what somebody wrote, of what is asked and of what is answered. The seed's payloads have no shape.
ASKED = {"text", "body", "title", "description", "reason"}
ANSWERED = {"text", "body", "title", "description", "output"}
SEEDS = {"GET /poll"}

# Routes with such a field in what they take.
TAKE: dict[str, list[Test]] = {
    "POST /broadcast": [
        routes.test_by_the_seeds_way_as_a_text_and_as_any_json,
        routes.test_by_the_seeds_way_as_it_stands_with_nothing_around_it,
    ],
    "POST /v1/messages": [routes.test_by_v1, routes.test_by_a_batch, routes.test_as_a_body_whose_names_are_texts_too],
    "POST /v1/messages/{id}/reply": [routes.test_by_a_reply],
    "POST /v1/ask": [routes.test_by_a_question_and_to_whoever_waits_for_its_answer],
    "PUT /v1/agents/{handle}": [routes.test_as_what_an_agent_is_called_and_does],
    "POST /v1/leases/{token}/nack": [routes.test_by_each_route_that_shows_messages],
}
# Routes with such a field in what they answer.
SHOW: dict[str, list[Test]] = {
    **{route: [routes.test_by_each_route_that_shows_messages] for route in routes.SHOWN},
    "POST /v1/ask": [routes.test_by_a_question_and_to_whoever_waits_for_its_answer],
    **{
        f"{method} /v1/agents/{{handle}}": [routes.test_as_what_an_agent_is_called_and_does]
        for method in ("GET", "PUT")
    },
    "GET /v1/agents": [routes.test_as_what_an_agent_is_called_and_does],
    "GET /v1/agents/{handle}/briefing": [routes.test_as_what_an_agent_is_called_and_does],
    "GET /v1/turns": [commands.test_what_a_terminal_gets_does_nothing_to_it],
}
METHOD: dict[str, list[Test]] = {
    "session.open": [relays.test_by_a_chat],
    "prompt.submit": [relays.test_by_a_chat],
    "session.done": [relays.test_as_the_answer_of_a_chat_or_why_there_is_none],
    "session.close": [relays.test_by_a_chat],
    "bot_relay.deliver": [relays.test_by_a_relay_and_back],
    "bot_relay.roster.sync": [relays.test_to_a_desktop_and_back],
    "bot_relay.outbox.drain": [relays.test_to_a_desktop_and_back],
    "bot_relay.reply": [relays.test_to_a_desktop_and_back],
    "message_agent": [
        relays.test_by_the_tool_of_hermes_agents,
        relays.test_by_the_gateway_on_standard_input_and_output,
    ],
}
METHODS_WITHOUT = {"gateway.ping", "profiles.list"}
COMMAND: dict[str, list[Test]] = {
    "send": [
        commands.test_as_a_word_of_send,
        commands.test_as_a_word_that_might_be_an_option,
        commands.test_as_a_word_that_the_kernel_hands_on,
        commands.test_on_standard_input_in_a_file_and_in_json,
    ],
    "ask": [
        commands.test_as_a_question_and_as_its_printed_answer,
        commands.test_what_goes_on_at_a_terminal_does_nothing_to_it,
    ],
    "reply": [commands.test_as_a_word_of_reply],
    "message-agent": [commands.test_on_standard_input_in_a_file_and_in_json],
    "gateway": [relays.test_by_the_gateway_on_standard_input_and_output],
    "listen": [commands.test_by_a_listener, commands.test_by_a_listener_that_runs_a_command],
    "tail": [commands.test_what_goes_on_at_a_terminal_does_nothing_to_it],
    **{command: [commands.test_what_a_terminal_gets_does_nothing_to_it] for command in commands.SHOW},
}
COMMANDS_WITHOUT = {  # what they take is their owner's own word, and they show nobody's text
    "up", "down", "service", "doctor", "join", "leave", "connect", "connections", "disconnect", "pair", "desktop",
    "completion", "backup", "restore",
}  # fmt: skip
# By what a delivery is said to have been handed over by; who looks on takes nothing.
HAND: dict[str, list[Test]] = {
    "auto": [routes.test_by_a_stream_to_whoever_reads_and_to_whoever_looks_on],
    "manual": [routes.test_by_each_route_that_shows_messages],
    "claim": [routes.test_by_v1],
    "poll": [routes.test_by_each_route_that_shows_messages],
    "ask": [routes.test_by_a_question_and_to_whoever_waits_for_its_answer],
    "turn": [routes.test_by_a_turn_of_a_program_and_back, turns.test_by_a_turn_of_each_kind_of_agent_and_back],
    "link": [relays.test_over_a_link_and_back, relays.test_over_a_link_to_a_gateway_of_hermes_and_back],
}
KIND: dict[str, list[Test]] = {
    "command": [routes.test_by_a_turn_of_a_program_and_back],
    "webhook": [routes.test_by_a_webhook],
    **{kind: [turns.test_by_a_turn_of_each_kind_of_agent_and_back] for kind, _ in turns.WAYS},
}
LINK: dict[str, list[Test]] = {
    "hub": [relays.test_over_a_link_and_back],
    "hermes": [relays.test_over_a_link_to_a_gateway_of_hermes_and_back],
}
DOOR: dict[str, list[Test]] = {
    "http": [routes.test_as_a_body_and_as_every_word_that_a_caller_may_choose],  # and all of TAKE and SHOW
    "gateway": [relays.test_by_a_chat],  # and all of METHOD
    "hermes_home": [relays.test_by_the_files_of_hermes_and_back],
}


def operations() -> Iterator[tuple[str, Any]]:
    for path, methods in DOCUMENT["paths"].items():
        yield from ((f"{method.upper()} {path}", operation) for method, operation in methods.items())


def holds(shape: Any, words: set[str], seen: tuple[str, ...] = ()) -> bool:
    """Whether a shape, or one inside it, has such a field."""
    if "$ref" in shape:
        name = shape["$ref"].rpartition("/")[2]
        return name not in seen and holds(DOCUMENT["components"]["schemas"][name], words, (*seen, name))
    inner = [*shape.get("anyOf", []), *shape.get("properties", {}).values(), shape.get("items"), shape.get("x-data")]
    found = bool(words & shape.get("properties", {}).keys())
    return found or any(holds(part, words, seen) for part in inner if isinstance(part, dict))


def takes(operation: Any) -> bool:
    content = operation.get("requestBody", {}).get("content", {})
    return any(kind == "*/*" or holds(each["schema"], ASKED) for kind, each in content.items())


def shows(operation: Any) -> bool:
    """What is no JSON may hold anything."""
    done = [said for status, said in operation["responses"].items() if status.startswith("2")]
    contents = [each for said in done for each in said.get("content", {}).items()]
    return any(not kind.endswith("json") or holds(each["schema"], ANSWERED) for kind, each in contents)


LISTED: dict[str, tuple[set[str], set[str]]] = {
    "routes that take a text": (set(TAKE), {route for route, each in operations() if takes(each)}),
    "routes that show a text": (set(SHOW), {route for route, each in operations() if shows(each)} | SEEDS),
    "methods of the gateway": (set(METHOD) | METHODS_WITHOUT, set(METHODS)),
    "commands": (set(COMMAND) | COMMANDS_WITHOUT, set(COMMANDS)),
    "hands": (set(HAND), {hand.value for hand in Hand}),
    "kinds of agents": (set(KIND), set(KINDS)),
    "links": (set(LINK), {what.value for what in Speaks} - {"auto"}),
    "doors": (set(DOOR), {found.name for found in iter_modules(doors.__path__)}),
}
TABLES = (TAKE, SHOW, METHOD, COMMAND, HAND, KIND, LINK, DOOR)
MODULES = (routes, commands, relays, turns)


@pytest.mark.parametrize("what", LISTED)
def test_every_door_and_every_hand_is_in_a_table(what: str) -> None:
    ours, theirs = LISTED[what]
    assert ours == theirs


def test_every_test_of_a_text_is_in_a_table() -> None:
    """And each place in a table has one."""
    placed = [test for table in TABLES for tests in table.values() for test in tests]
    assert not [name for table in TABLES for name, tests in table.items() if not tests]
    known = {each for module in MODULES for name, each in vars(module).items() if name.startswith("test_by_")}
    assert known <= set(placed)
