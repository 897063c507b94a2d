"""Settings: which of flag, variable, file and default counts, and what is said of a wrong one."""

import os
from pathlib import Path
from typing import Any

import pytest

from angelia.settings import FIELDS, Settings, SettingsError, called, load, socket_path
from angelia.values import host_name


def read(tmp_path: Path, flags: dict[str, object] | None = None, platform: str = "linux", /, **env: str) -> Settings:
    return load(flags or {}, {"HOME": str(tmp_path), **env}, platform)


def write(tmp_path: Path, text: str) -> str:
    folder = tmp_path / ".config" / "angelia"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "angelia.toml").write_text(text, "utf-8")
    return str(folder / "angelia.toml")


def refused(
    tmp_path: Path, flags: dict[str, object] | None = None, platform: str = "linux", /, **env: str
) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, flags, platform, **env)
    return caught.value


def test_the_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.port == 18900
    assert settings.hosts == ("127.0.0.1", "::1")
    assert settings.durability == "full"
    assert settings.keepalive_seconds == 15
    assert settings.data_dir == str(tmp_path / ".local/share/angelia")
    assert settings.socket_path == str(tmp_path / ".local/share/angelia/hub.sock")
    assert settings.origins == {}
    assert settings.where("port") == "the default"
    assert settings.config_file is None
    assert not settings.no_color


def test_flag_before_variable_before_file_before_default(tmp_path: Path) -> None:
    path = write(tmp_path, "port = 1\nkeepalive_seconds = 2.5\ndurability = 'normal'\n")
    settings = read(tmp_path, {"port": "3", "agent": None}, ANGELIA_PORT="2", ANGELIA_KEEPALIVE_SECONDS="4")
    assert (settings.port, settings.keepalive_seconds, settings.durability) == (3, 4, "normal")
    assert settings.origins == {
        "port": "--port",
        "keepalive_seconds": "ANGELIA_KEEPALIVE_SECONDS",
        "durability": f"{path}, durability",
    }
    assert settings.config_file == path


@pytest.mark.parametrize(
    ("variables", "agent"),
    [
        ({}, None),
        ({"ANGELIA_AGENT": "scout"}, None),
        ({"ANGELIA_ID": "1"}, None),
        ({"ANGELIA_AGENT": "scout", "ANGELIA_TOKEN": "t", "ANGELIA_URL": "http://127.0.0.1:1"}, None),
        ({"ANGELIA_AGENT": "scout", "ANGELIA_CONVERSATION": "scout"}, "scout"),
        ({"ANGELIA_AGENT": "scout", "ANGELIA_ID": "1"}, "scout"),
        ({"ANGELIA_CONVERSATION": "scout"}, "an agent"),
    ],
)
def test_a_turn_is_known_by_what_the_hub_tells_a_program(
    tmp_path: Path, variables: dict[str, str], agent: str | None
) -> None:
    assert read(tmp_path, {"agent": "human"}, **variables).turn_of == agent


def test_more_flags_keep_the_earlier_ones(tmp_path: Path) -> None:
    first = load({"data_dir": str(tmp_path / "x"), "port": 5})
    assert (first.changed({"port": 6}).port, first.changed({"port": None}).port) == (6, 5)
    assert first.changed({"port": 6}).data_dir == str(tmp_path / "x")


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("ANGELIA_URL", "http://127.0.0.1:5/", "hub_url", "http://127.0.0.1:5"),
        ("ANGELIA_URL", "unix:/run/x.sock", "hub_url", "unix:/run/x.sock"),
        ("ANGELIA_AGENT", "hermes", "agent", "hermes"),
        ("ANGELIA_TOKEN", "t", "token", "t"),
        ("ANGELIA_HOSTS", "localhost, 192.0.2.1", "hosts", ("127.0.0.1", "::1", "192.0.2.1")),
        ("ANGELIA_HOSTS", "[::1]", "hosts", ("::1",)),
        ("ANGELIA_BEHIND_PROXY", "yes", "behind_proxy", True),
        ("ANGELIA_PORT", "0", "port", 0),
        ("ANGELIA_LIMITS_TEXT_BYTES", "1000", "limits", {"text_bytes": 1000}),
        ("NO_COLOR", "1", "no_color", True),
        ("NO_COLOR", "", "no_color", False),
        ("ANGELIA_PORT", "", "port", 18900),
    ],
)
def test_variables(tmp_path: Path, variable: str, value: str, name: str, expected: Any) -> None:
    assert getattr(read(tmp_path, **{variable: value}), name) == expected


def test_limits_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    write(tmp_path, "[limits]\ntext_bytes = 10\nstreams = 5\nauto_ack_seconds = 0.5\n")
    settings = read(tmp_path, ANGELIA_LIMITS_STREAMS="6")
    assert settings.limits == {"text_bytes": 10, "streams": 6, "auto_ack_seconds": 0.5}
    assert settings.where("limits.streams") == "ANGELIA_LIMITS_STREAMS"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "x"), ("port", "-1"), ("port", "65536"), ("port", "1.5"), ("port", "nan"), ("port", "inf"),
        ("durability", "fast"), ("keepalive_seconds", "0"), ("keepalive_seconds", "inf"), ("hosts", "example.org"),
        ("hosts", ","), ("behind_proxy", "perhaps"), ("hub_url", "ftp://x"), ("log_level", "loud"), ("agent", "a\nb"),
        ("pass_environment", "TWO WORDS"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_place_and_what_is_allowed(tmp_path: Path, name: str, value: str) -> None:
    flag, variable = called(name)
    for error in (refused(tmp_path, {name: value}), refused(tmp_path, **{variable: value})):
        assert error.where in (flag, variable)
        assert error.allowed == FIELDS[name].allowed
        assert str(error).startswith(f"{error.where}: ")
        assert error.exit_code == 78


def test_what_should_be_a_variables_name_is_not_shown_where_it_is_none(tmp_path: Path) -> None:
    """Somebody put the secret itself there."""
    error = refused(tmp_path, ANGELIA_PASS_ENVIRONMENT="ONE,TEAM_*,KEY=whsec_secret")
    assert "place 3" in str(error)
    assert "whsec" not in str(error)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("port = ", "", "is no TOML"),
        ("port = '18900x'", ", port", "no number"),
        ("port = true", ", port", "no number"),
        ("prot = 1", ", prot", "no setting has that name"),
        ("token = 'secret'", ", token", "ANGELIA_TOKEN"),
        ("limits = 3", ", limits", "is no table"),
        ("[limits]\ntext_bytes = 'many'", ", limits.text_bytes", "no number"),
        ("[limits]\ntext_bytes = 0", ", limits.text_bytes", "out of range"),
        ("data_dir = 'here'", ", data_dir", "an absolute path"),
    ],
)
def test_a_wrong_file_is_told_with_its_path(tmp_path: Path, text: str, where: str, words: str) -> None:
    path = write(tmp_path, text)
    error = refused(tmp_path)
    assert error.where == path + where
    assert words in str(error)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path, ANGELIA_CONFIG=str(tmp_path / "none.toml")).where == "ANGELIA_CONFIG"
    (tmp_path / "latin.toml").write_bytes(b"agent = '\xe9'")
    assert "UTF-8" in str(refused(tmp_path, ANGELIA_CONFIG=str(tmp_path / "latin.toml")))
    assert refused(tmp_path, ANGELIA_CONFIG=str(tmp_path)).problem == "cannot be read: Is a directory"


def test_a_chosen_file_counts(tmp_path: Path) -> None:
    write(tmp_path, "port = 1")
    (tmp_path / "mine.toml").write_text("port = 2")
    assert read(tmp_path, ANGELIA_CONFIG=str(tmp_path / "mine.toml")).port == 2


def test_a_slip_in_a_variables_name_is_seen(tmp_path: Path) -> None:
    settings = read(tmp_path, ANGELIA_PROT="1", ANGELIA_CONFIG="", ANGELIA_URL="http://x", ANGELIA_LIMITS_X="1")
    assert settings.unknown_variables == ("ANGELIA_PROT",)


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("mac", "mac"), ("Mac-7.fritz.box", "Mac-7"), ("a b", "a-b"), ("-x_", "x"), ("büro.lan", "b-ro"), ("", "hub"),
        ("localhost", "localhost"), ("local", "hub"), ("Desktop.lan", "hub"), ("…", "hub"), ("x" * 70, "x" * 64),
    ],
)  # fmt: skip
def test_a_hub_without_a_name_is_called_as_its_machine(machine: str, name: str) -> None:
    assert host_name(machine) == name


def test_a_hubs_name(tmp_path: Path) -> None:
    assert read(tmp_path).hub_name == host_name(os.uname().nodename)
    assert read(tmp_path, ANGELIA_HUB_NAME="garage").hub_name == "garage"
    for value in ("local", "Human", "a b", "-x", "x" * 65):
        error = refused(tmp_path, ANGELIA_HUB_NAME=value)
        assert (error.where, error.allowed) == ("ANGELIA_HUB_NAME", FIELDS["hub_name"].allowed)


def test_settings_are_frozen_and_show_no_token(tmp_path: Path) -> None:
    settings = read(tmp_path, {"token": "hush"})
    with pytest.raises(AttributeError, match="frozen"):
        settings.port = 3
    assert "hush" not in repr(settings)
    assert settings.token == "hush"


def test_folders(tmp_path: Path) -> None:
    xdg = read(tmp_path, XDG_DATA_HOME="/data", XDG_CONFIG_HOME="/config", XDG_RUNTIME_DIR="/run/user/1")
    assert (xdg.data_dir, xdg.runtime_dir) == ("/data/angelia", "/run/user/1/angelia")
    assert read(tmp_path, XDG_DATA_HOME="relative").data_dir == str(tmp_path / ".local/share/angelia")
    mac = read(tmp_path, None, "darwin", XDG_DATA_HOME="/data", TMPDIR="/var/folders/x")
    assert mac.data_dir == str(tmp_path / "Library/Application Support/angelia")
    assert mac.runtime_dir.startswith("/var/folders/x/angelia-")


def test_the_data_folder_is_one_whichever_way_leads_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read(tmp_path, {"data_dir": str(tmp_path / "link")}).data_dir == str(tmp_path / "real")


@pytest.mark.parametrize(("platform", "room"), [("linux", 108), ("darwin", 104)])
def test_a_socket_whose_path_is_too_long_stands_in_the_runtime_folder(platform: str, room: int) -> None:
    fits = "/" + "d" * (room - len("/hub.sock") - 2)
    assert socket_path(fits, "/run/u", platform) == f"{fits}/hub.sock"
    for longer in (fits + "d", "/" + "é" * 60):
        path = socket_path(longer, "/run/u", platform)
        assert path.startswith("/run/u/")
        assert path == socket_path(longer, "/run/u", platform) != socket_path(longer + "x", "/run/u", platform)
    assert socket_path(fits + "d", "/" + "r" * 200, platform).startswith("/tmp/angelia-")


def test_what_reaches_beyond_loopback_is_known(tmp_path: Path) -> None:
    assert read(tmp_path).beyond_loopback == ()
    assert read(tmp_path, {"hosts": "127.0.0.2,0.0.0.0,::"}).beyond_loopback == ("0.0.0.0", "::")
