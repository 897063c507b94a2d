"""service: the files that are written, that nothing of others is touched, and what is said without a manager."""

import os
import plistlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from angelia.cli import launchd, supervised, systemd
from angelia.cli.exits import Refused
from angelia.settings import load
from tests.unit.cli.conftest import Run

COMMAND = ["/opt/a b/python", "-P", "-m", "angelia", "up", "--data-dir", '/home/x/$HOME "y" %h\\']


@pytest.fixture
def home(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose systemctl and launchctl only note what they were asked, and end as the file ``ends`` says."""
    for name in ("systemctl", "launchctl"):
        path = data_dir / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> "{data_dir}/asked"\n. "{data_dir}/ends"\n')
        path.chmod(0o755)
    (data_dir / "ends").write_text("exit 0\n")
    monkeypatch.setenv("PATH", f"{data_dir}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(data_dir / "config"))
    monkeypatch.delenv("ANGELIA_PORT")
    return data_dir


def unit_path(home: Path) -> Path:
    return home / "config/systemd/user/angelia.service"


def asked(home: Path) -> list[str]:
    path = home / "asked"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


# ---- the files


def test_a_unit_holds_every_word_as_it_is() -> None:
    text = systemd.unit(COMMAND, {"ANGELIA_HOSTS": "127.0.0.1,::1", "ANGELIA_TLS_KEY": "/a b/%$x"})
    assert 'ExecStart="/opt/a b/python" -P -m angelia up --data-dir "/home/x/$$HOME \\"y\\" %%h\\\\"\n' in text
    assert "Environment=ANGELIA_HOSTS=127.0.0.1,::1\n" in text
    assert 'Environment="ANGELIA_TLS_KEY=/a b/%%$x"\n' in text
    with pytest.raises(Refused):
        systemd.unit([*COMMAND, "a\nExecStartPre=/bin/evil"], {})


def test_what_a_restart_does_not_help_is_not_restarted() -> None:
    lines = systemd.unit(COMMAND, {}).splitlines()
    assert "Restart=on-failure" in lines
    assert "RestartPreventExitStatus=78 3" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / systemd.UNIT
    python = tmp_path / "a b" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path.write_text(systemd.unit([str(python), *COMMAND[1:]], {"ANGELIA_TLS_KEY": "/a b/%$x"}))
    line = ["systemd-analyze", "verify", "--user", "--man=no", str(path)]
    done = subprocess.run(
        line, capture_output=True, text=True, env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_agent_of_launchd_is_a_property_list() -> None:
    text = launchd.agent(COMMAND, {"ANGELIA_PORT": "18901"}, "/d")
    found = plistlib.loads(text.encode())
    assert found["ProgramArguments"][4:] == COMMAND
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["EnvironmentVariables"] == {"ANGELIA_PORT": "18901"}
    assert supervised.MARK in text


@pytest.mark.parametrize(("code", "told"), [(0, 0), (1, 1), (3, 0), (78, 0), (130, 130)])
def test_launchd_is_told_0_where_a_restart_does_not_help(code: int, told: int) -> None:
    done = subprocess.run(["/bin/sh", "-c", launchd.WRAPPER, "angelia", "/bin/sh", "-c", f"exit {code}"], check=False)
    assert done.returncode == told


@pytest.mark.parametrize("shell", [["/bin/sh"], ["bash", "--posix"]], ids=["sh", "bash"])
def test_launchds_signal_reaches_the_hub_and_its_end_is_waited_for(tmp_path: Path, shell: list[str]) -> None:
    hub = (
        "import signal, pathlib; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
        f"print('ready', flush=True); signal.sigwait([signal.SIGTERM]); pathlib.Path('{tmp_path}/gone').touch()"
    )
    line = [*shell, "-c", launchd.WRAPPER, "angelia", sys.executable, "-c", hub]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert (tmp_path / "gone").exists()


def settings_of(environ: Mapping[str, str], **flags: object) -> dict[str, str]:
    return supervised.environment(load(flags, {"HOME": "/nonexistent", **environ}, "linux"), "linux")


def test_only_what_was_set_for_the_hub_is_kept_and_never_a_token() -> None:
    told = {
        "ANGELIA_PORT": "18901", "ANGELIA_HOSTS": "localhost", "ANGELIA_LOG_JSON": "yes", "ANGELIA_DATA_DIR": "/d",
        "ANGELIA_LIMITS_TTL_SECONDS": "60", "ANGELIA_TOKEN": "secret", "ANGELIA_AGENT": "scout",
        "ANGELIA_URL": "http://h", "PATH": "/bin", "LANG": "C",
    }  # fmt: skip
    assert settings_of(told) == {
        "ANGELIA_PORT": "18901", "ANGELIA_HOSTS": "127.0.0.1,::1", "ANGELIA_LOG_JSON": "true",
        "ANGELIA_LIMITS_TTL_SECONDS": "60",
    }  # fmt: skip
    assert settings_of({}) == {}


def test_a_settings_file_in_another_place_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("port = 18902\n")
    assert settings_of({"ANGELIA_CONFIG": str(path)}) == {"ANGELIA_CONFIG": str(path)}


# ---- the command


def test_print_changes_nothing(run: Run, home: Path) -> None:
    code, out, err = run("service", "install", "--print", "--kind", "systemd")
    assert (code, err, asked(home)) == (0, "", [])
    assert f"ExecStart={sys.executable} -P -m angelia up --data-dir" in out
    assert not unit_path(home).exists()


def test_install_twice_is_install_once(run: Run, home: Path) -> None:
    code, out, _ = run("service", "install", "--kind", "systemd")
    assert (code, out) == (0, f"installed: {unit_path(home)}\n")
    written = unit_path(home).read_text()
    assert written == run("service", "install", "--kind", "systemd", "--print")[1]
    code, out, err = run("service", "install", "--kind", "systemd")
    assert (code, out, err) == (0, f"unchanged: {unit_path(home)}\n", "")
    assert unit_path(home).read_text() == written
    assert set(asked(home)) == {
        "systemctl --user is-active angelia.service", "systemctl --user daemon-reload",
        "systemctl --user enable angelia.service",
    }  # fmt: skip


def test_a_service_that_runs_is_not_restarted_behind_its_back(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("service", "install", "--kind", "systemd")
    monkeypatch.setenv("ANGELIA_PORT", "18901")
    code, out, err = run("service", "install", "--kind", "systemd")
    assert (code, out) == (0, f"changed: {unit_path(home)}\n")
    assert "systemctl --user restart angelia.service" in err
    assert not any("start" in line.split()[2] for line in asked(home))


def test_a_folder_that_is_served_is_handed_over_by_a_person(run: Run, home: Path) -> None:
    (home / "ends").write_text('[ "$2" != is-active ]\n')
    serving = (
        "from angelia.storage.lock import FolderLock; import sys; l = FolderLock.acquire(sys.argv[1]); print(); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", serving, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hub:
        assert hub.stdout is not None
        hub.stdout.readline()
        code, _, err = run("service", "install", "--kind", "systemd")
        hub.communicate(b"\n")
    assert code == 0
    assert f"angelia down --data-dir {home} && systemctl --user start angelia.service" in err
    assert "systemctl --user start angelia.service" not in asked(home)


def test_without_a_manager_it_says_what_to_type(run: Run, home: Path) -> None:
    (home / "ends").write_text("echo 'Failed to connect to bus: No medium found' >&2; exit 1\n")
    code, _, err = run("service", "install", "--kind", "systemd")
    assert code == 1
    assert "Failed to connect to bus" in err
    for line in ("daemon-reload", "enable angelia.service", "start angelia.service"):
        assert f"  systemctl --user {line}\n" in err
    assert unit_path(home).exists()


def test_uninstall_removes_what_install_made(run: Run, home: Path) -> None:
    run("service", "install", "--kind", "systemd")
    asked(home)
    (unit_path(home).parent / "mine.service").touch()
    assert run("service", "uninstall", "--kind", "systemd")[0] == 0
    assert asked(home) == ["systemctl --user disable --now angelia.service", "systemctl --user daemon-reload"]
    assert [path.name for path in unit_path(home).parent.iterdir()] == ["mine.service"]
    code, out, _ = run("service", "uninstall", "--kind", "systemd")
    assert (code, out, asked(home)) == (0, f"not installed: there is no {unit_path(home)}\n", [])


def test_uninstall_without_a_manager_leaves_nothing_that_would_start(run: Run, home: Path) -> None:
    run("service", "install", "--kind", "systemd")
    wanted = unit_path(home).parent / "default.target.wants"
    wanted.mkdir()
    (wanted / "angelia.service").symlink_to(unit_path(home))
    (home / "ends").write_text("exit 1\n")
    assert run("service", "uninstall", "--kind", "systemd")[0] == 0
    assert list(wanted.iterdir()) == []


@pytest.mark.parametrize("what", ["install", "uninstall", "status"])
def test_somebody_elses_unit_is_left_alone(run: Run, home: Path, what: str) -> None:
    unit_path(home).parent.mkdir(parents=True)
    unit_path(home).write_text("[Service]\nExecStart=/bin/true\n")
    code, out, err = run("service", what, "--kind", "systemd")
    assert (code, out, asked(home)) == (1, "", [])
    assert "was not made by angelia service install" in err
    assert unit_path(home).read_text() == "[Service]\nExecStart=/bin/true\n"


def test_launchds_commands(run: Run, home: Path) -> None:
    path = home / "home/Library/LaunchAgents/angelia.hub.plist"
    domain = f"gui/{os.getuid()}"
    (home / "ends").write_text('[ "$1" != bootstrap ] && [ "$1" != print ]\n')
    code, out, err = run("service", "install", "--kind", "launchd")
    assert (code, out) == (1, f"installed: {path}\n")
    assert f"  launchctl bootstrap {domain} {path}\n" in err
    assert asked(home)[-1] == f"launchctl bootstrap {domain} {path}"
    (home / "ends").write_text("exit 0\n")
    assert run("service", "uninstall", "--kind", "launchd")[0] == 0
    assert asked(home) == [f"launchctl print {domain}/angelia.hub", f"launchctl bootout {domain}/angelia.hub"]
    assert not path.exists()


def test_status_says_how_it_stands(run: Run, home: Path) -> None:
    assert run("service", "status", "--kind", "systemd")[1].startswith("not installed: ")
    run("service", "install", "--kind", "systemd")
    code, out, _ = run("service", "status", "--kind", "systemd")
    assert (code, out) == (0, f"runs: {unit_path(home)}\nnobody serves {home}\n")
    (home / "ends").write_text("exit 3\n")
    code, out, _ = run("service", "status", "--kind", "systemd")
    assert code == 1
    assert out.startswith(f"does not run: {unit_path(home)}\nsee why: systemctl --user status")
