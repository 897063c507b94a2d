"""What a program that the hub starts sees of the hub's environment."""

from angelia.turns.surroundings import surroundings


def test_nothing_of_ours_and_nobodys_session_is_handed_on() -> None:
    given = {
        "ANGELIA_TOKEN": "secret", "ANGELIA_DATA_DIR": "/x", "CLAUDECODE": "1", "HERMES_SESSION_ID": "s",
        "ANTHROPIC_API_KEY": "theirs", "HERMES_HOME": "/h", "HERMES_SESSION_STALL_TIMEOUT": "9", "PATH": "/bin",
        "HOME": "/home/me",
    }  # fmt: skip
    assert surroundings(given) == {
        "ANTHROPIC_API_KEY": "theirs", "HERMES_HOME": "/h", "HERMES_SESSION_STALL_TIMEOUT": "9", "PATH": "/bin",
        "HOME": "/home/me",
    }  # fmt: skip


def test_angelia_itself_is_found_after_everything_else() -> None:
    assert surroundings({"PATH": "/bin"}, "/opt/angelia/bin")["PATH"] == "/bin:/opt/angelia/bin"
    assert surroundings({"PATH": "/opt/angelia/bin:/bin"}, "/opt/angelia/bin")["PATH"] == "/opt/angelia/bin:/bin"


def test_there_is_always_a_home_and_a_path() -> None:
    assert set(surroundings({})) == {"HOME", "PATH"}
