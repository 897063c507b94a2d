"""What a program that the hub starts sees of the hub's environment."""

import pytest

from angelia.bus.agents import put_agent, remove_agent
from angelia.bus.caller import ADMIN
from angelia.bus.ports import Tx
from angelia.bus.surroundings import secret_variables, surroundings, variables_for_secrets, without
from angelia.model.connection import Connection
from tests.fakes.small_hub import SmallHub


def test_what_is_not_named_is_not_handed_on() -> None:
    """A secret that happened to stand there reaches nobody."""
    given = {"DATABASE_URL": "theirs", "GITHUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "PYTHONPATH": "/x"}
    known = {"PATH": "/bin", "HOME": "/home/me"}
    assert surroundings({**given, **known}) == known


@pytest.mark.parametrize(
    "name",
    ["LANG", "LC_ALL", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "https_proxy", "NODE_EXTRA_CA_CERTS", "DOCKER_HOST",
     "NVM_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "OPENCLAW_STATE_DIR", "OPENROUTER_API_KEY",
     "OPENAI_BASE_URL"],
)  # fmt: skip
def test_what_programs_and_known_agents_need_is(name: str) -> None:
    assert surroundings({name: "x"})[name] == "x"


def test_the_owner_may_let_more_pass() -> None:
    given = {"GITHUB_TOKEN": "x", "TEAM_ONE": "1", "TEAM_TWO": "2", "OTHER": "3"}
    kept = surroundings(given, ("GITHUB_TOKEN", "TEAM_*"))
    assert {name for name in kept if name in given} == {"GITHUB_TOKEN", "TEAM_ONE", "TEAM_TWO"}


def test_nothing_of_ours_and_nobodys_session_is_handed_on() -> None:
    """Whatever the owner lets pass."""
    given = {
        "ANGELIA_TOKEN": "secret", "ANGELIA_DATA_DIR": "/x", "CLAUDECODE": "1", "HERMES_SESSION_ID": "s",
        "ANTHROPIC_API_KEY": "theirs", "HERMES_HOME": "/h", "HERMES_SESSION_STALL_TIMEOUT": "9", "PATH": "/bin",
        "HOME": "/home/me", "ELSE": "y",
    }  # fmt: skip
    assert surroundings(given, ("*", "ANGELIA_TOKEN")) == {
        "ANTHROPIC_API_KEY": "theirs", "HERMES_HOME": "/h", "HERMES_SESSION_STALL_TIMEOUT": "9", "PATH": "/bin",
        "HOME": "/home/me", "ELSE": "y",
    }  # fmt: skip


def test_a_secret_is_taken_from_any_variable_but_ours() -> None:
    assert variables_for_secrets({"HOOK": "x", "ANGELIA_TOKEN": "y"}) == {"HOOK": "x"}


def test_angelia_itself_is_found_after_everything_else() -> None:
    assert surroundings({"PATH": "/bin"}, own="/opt/angelia/bin")["PATH"] == "/bin:/opt/angelia/bin"
    assert surroundings({"PATH": "/opt/angelia/bin:/bin"}, own="/opt/angelia/bin")["PATH"] == "/opt/angelia/bin:/bin"


def test_there_is_always_a_home_and_a_path() -> None:
    assert set(surroundings({})) == {"HOME", "PATH"}


async def connect(hub: SmallHub, **more: str) -> Connection:
    """A connection, as it is kept."""
    made = Connection(name="box", target="wss://box", **more)  # type: ignore[arg-type]  # texts all

    def unit(tx: Tx) -> None:
        hub.bus.neighbours.put(tx, made, hub.bus.clock.now())

    await hub.bus.store.write(unit)
    return made


async def test_what_takes_a_secret_from_a_variable_is_asked_anew_each_time(hub: SmallHub) -> None:
    bus = hub.bus
    assert secret_variables(bus) == set()
    await put_agent(bus, ADMIN, "hook", None, None, b'{"kind":"webhook","secret_env":"HOOK","url":"https://x"}')
    await put_agent(bus, ADMIN, "plain", None, None, b'{"kind":"command","argv":["/bin/true"]}')
    made = await connect(hub, token_variable="BOX")
    assert secret_variables(bus) == {"HOOK", "BOX"}
    await connect(hub, user="ada", password_variable="PASSWORD")
    assert secret_variables(bus) == {"HOOK", "PASSWORD"}
    await remove_agent(bus, "hook")
    await bus.store.write(lambda tx: bus.neighbours.remove(tx, made, bus.clock.now()))
    assert secret_variables(bus) == set()


async def test_those_of_the_settings_count_before_they_are_kept(hub: SmallHub) -> None:
    fixed = [Connection(name="box", target="wss://box", token_variable="BOX", fixed=True)]
    assert secret_variables(hub.bus, fixed) == {"BOX"}


@pytest.mark.parametrize("name", ["ANGELIA_TOKEN", "PATH", "HOME"])
async def test_a_turn_keeps_its_own_token_a_path_and_a_home_whatever_a_connection_names(
    hub: SmallHub, name: str
) -> None:
    await connect(hub, token_variable=name)
    assert secret_variables(hub.bus) == set()


def test_what_is_withheld_is_not_there_and_the_rest_is() -> None:
    assert without(frozenset({"BOX", "GONE"}), {"BOX": "secret", "SSH_AUTH_SOCK": "/s"}) == {"SSH_AUTH_SOCK": "/s"}
