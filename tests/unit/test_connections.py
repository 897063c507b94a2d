"""Connections out of the settings: what is kept, and that a mistake is told with its file and key."""

from pathlib import Path

import pytest

from angelia.connections import connections_of
from angelia.model.address import RESERVED
from angelia.model.connection import Away, Connection, Speaks
from angelia.protocol.connections import CHECKS
from angelia.settings import Settings, SettingsError, load
from angelia.values import RESERVED as RESERVED_IN_SETTINGS


def written(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "angelia.toml").write_text(text, "utf-8")
    return load({}, {"HOME": str(tmp_path), "ANGELIA_CONFIG": str(tmp_path / "angelia.toml")})


def test_none(tmp_path: Path) -> None:
    assert connections_of(load({}, {"HOME": str(tmp_path)})) == []


def test_each_table_is_a_connection_that_no_command_removes(tmp_path: Path) -> None:
    settings = written(
        tmp_path,
        """
        [connections.Cloud]
        target = "wss://cloud.example"
        speaks = "hermes"
        token_file = "~/cloud.token"
        accept = ["Hermes"]
        away = "refuse"
        [connections.laptop]
        share = []
        """,
    )
    home = Path("~").expanduser()
    assert connections_of(settings) == [
        Connection(
            name="Cloud", target="wss://cloud.example", speaks=Speaks.HERMES, token_file=f"{home}/cloud.token",
            accept=("hermes",), away=Away.REFUSE, fixed=True,
        ),
        Connection(name="laptop", share=(), fixed=True),
    ]  # fmt: skip
    assert settings.where("connections.Cloud") == f"{tmp_path}/angelia.toml, connections.Cloud"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("connections = 3", "", "is no table"),
        ("[connections]\nmac = 'wss://mac'", ".mac", "is no table"),
        ("[connections.local]\ntarget = 'wss://mac'", ".local", "is reserved"),
        ("[connections.'a b']\ntarget = 'wss://mac'", ".a b", "is no name"),
        ("[connections.mac]\n[connections.Mac]", ".Mac", "twice"),
    ],
)
def test_a_wrong_table_is_told_by_every_command(tmp_path: Path, text: str, key: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        written(tmp_path, text)
    assert caught.value.where == f"{tmp_path}/angelia.toml, connections{key}"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("target = 'mac'", "target"), ("target = 3", "target"), ("target = 'wss://a:hush@mac'", "target"),
        ("targt = 'wss://mac'", "targt"), ("token = 'hush'", "token"), ("password = 'hush'", "password"),
        ("target = 'wss://mac'\ntoken_file = 'mac.token'", "token_file"), ("share = 'scout'", "share"),
        ("target = 'wss://mac'\nuser = 'ann'", "user"), ("hub = '7f'", "hub"), ("fixed = false", "fixed"),
        ("speaks = 'mcp'", "speaks"), ("away = true", "away"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_by_the_hub_with_its_key(tmp_path: Path, text: str, key: str) -> None:
    settings = written(tmp_path, f"[connections.mac]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        connections_of(settings)
    assert caught.value.where == f"{tmp_path}/angelia.toml, connections.mac.{key}"
    assert caught.value.allowed
    assert "hush" not in str(caught.value)


def test_no_secret_is_a_setting() -> None:
    assert not {"token", "password", "key"} & set(CHECKS)


def test_reserved_names_are_the_same_in_the_settings() -> None:
    assert set(RESERVED_IN_SETTINGS) == RESERVED
