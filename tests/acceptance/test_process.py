"""One process, one folder: starting, being found, stopping, replacing itself. Real processes, seen from outside."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from angelia.storage.lock import who_holds
from tests.acceptance.hub import MARGIN, ROOT, Hub, Stream, environment, eventually, free_port, hub

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, or sets another process' limits")


def start(found: Hub, *words: str, **how: Any) -> "subprocess.Popen[str]":
    """Another ``angelia`` beside the hub, without waiting for it."""
    given: dict[str, Any] = {
        "env": found.cli_environment(),
        "cwd": found.base,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    return subprocess.Popen([sys.executable, "-m", "angelia", *words], **(given | how))


def holder_pid(found: Hub) -> int | None:
    holder = who_holds(str(found.folder))
    return holder.pid if holder else None


def is_gone(pid: int) -> bool:
    """No such process, or one that has ended and is only not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return sys.platform == "linux"
        return True


@contextmanager
def folder_of_a_hub() -> Iterator[Hub]:
    """A hub that is not started; at the end whoever holds its folder is stopped."""
    with hub_unstarted() as found:
        try:
            yield found
        finally:
            found.run("down")
            assert holder_pid(found) is None


@contextmanager
def hub_unstarted() -> Iterator[Hub]:
    found = Hub()
    try:
        yield found
    finally:
        found.__exit__()


# ------------------------------------------------------------------------------------------------------------ one owner


def test_of_fifty_starts_at_once_one_serves_and_the_others_name_it() -> None:
    with folder_of_a_hub() as found:
        begun: list[float] = []
        ended: dict[int, float] = {}
        starts = []
        for _ in range(50):
            begun.append(time.monotonic())
            starts.append(start(found, "up", "--port", str(found.port)))

        def all_but_one() -> bool:
            for place, process in enumerate(starts):
                if place not in ended and process.poll() is not None:
                    ended[place] = time.monotonic() - begun[place]
            return len(ended) >= 49

        eventually(all_but_one, 2 * MARGIN + 5)
        assert max(ended.values()) < 2 * MARGIN, max(ended.values())
        (winner,) = [process for place, process in enumerate(starts) if place not in ended]
        for place in ended:
            _, said = starts[place].communicate()
            assert starts[place].returncode == 3, said
            assert f"pid {winner.pid}, port {found.port}, since 20" in said
        eventually(lambda: found.get("/health").json["pid"] == winner.pid if answers(found) else False)
        assert found.run("down").returncode == 0
        assert winner.wait(10) == 0
        winner.communicate()


def say(found: Hub, text: str) -> str:
    """A message from hermes to openclaw, on a connection of its own (hubs come and go here); its id."""
    answer = found.post("/v1/messages", {"to": "openclaw", "text": text, "from": "hermes"})
    assert answer.status == 201, answer
    return str(answer.json["id"])


def heard(found: Hub) -> list[str]:
    """What openclaw gets."""
    return [each["text"][:20] for each in found.get("/poll?agent=openclaw").json["messages"]]


def answers(found: Hub) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", found.port), 1).close()
        return True
    return False


def test_a_second_start_changes_nothing() -> None:
    with hub() as found:
        say(found, "before")
        note = (found.folder / "hub.json").read_text()
        second = found.run("up", "--port", str(free_port()))
        assert second.returncode == 3
        assert f"pid {found.pid}, port {found.port}, since 20" in second.stderr
        assert second.stdout == ""
        assert (found.folder / "hub.json").read_text() == note
        assert found.run("up", "--detach").returncode == 3
        assert heard(found) == ["before"]


def test_pid_files_with_a_strangers_living_pid_mean_nothing() -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        with folder_of_a_hub() as found:
            found.folder.mkdir(mode=0o700)
            note = {"pid": stranger.pid, "port": 5, "since": "2020-01-01T00:00:00Z", "socket": found.socket_path}
            (found.folder / "hub.json").write_text(json.dumps(note))
            (found.folder / "hub.lock").touch()
            (found.folder / "hub.pid").write_text(str(stranger.pid))
            stale = socket.socket(socket.AF_UNIX)
            stale.bind(found.socket_path)
            stale.close()
            assert found.run("down").returncode == 4
            found.start()
            assert found.run("up").returncode == 3
            assert found.run("down").returncode == 0
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_hub_whose_lock_file_was_removed_ends() -> None:
    with hub() as found:
        (found.folder / "hub.lock").unlink()
        assert found.process is not None
        assert found.process.wait(10 * MARGIN) == 1
        assert "no longer ours" in found.output()
        found.process = None


@linux_only
def test_no_child_gets_the_lock_or_a_socket() -> None:
    with hub() as found:
        flags = {}
        for entry in Path(f"/proc/{found.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                info = Path(f"/proc/{found.pid}/fdinfo/{entry.name}").read_text()
                flags[os.readlink(entry)] = int(re.findall(r"flags:\s*(\d+)", info)[0], 8)
        ours = {name: flag for name, flag in flags.items() if name.startswith(("socket:", str(found.folder)))}
        assert f"{found.folder}/hub.lock" in ours
        assert {name for name, flag in ours.items() if not flag & os.O_CLOEXEC} == set()


# ------------------------------------------------------------------------------------------------- a port that is taken


class Shop(BaseHTTPRequestHandler):
    """Some other web server."""

    server_version = "Shop/1.0"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"welcome")

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def stranger(host: str, behave: Callable[[socket.socket], None] | None) -> Iterator[int]:
    """Another program on a port; ``behave`` None: a web server."""
    if behave is None:
        server = HTTPServer((host, 0), Shop)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        port = free_port()
        listener.bind((host, port))
        listener.listen()
        thread = threading.Thread(target=behave, args=(listener,), daemon=True)
        thread.start()
        yield port


def silent(listener: socket.socket) -> None:
    time.sleep(30)


def chatty(listener: socket.socket) -> None:
    """Trickles for ever, and speaks no HTTP."""
    with suppress(OSError):
        caller, _ = listener.accept()
        with caller:
            while True:
                caller.sendall(b"220 mail.example.org\r\n")
                time.sleep(0.1)


@pytest.mark.parametrize(
    ("host", "behave", "who"),
    [
        ("127.0.0.1", None, "a web server (Shop/1.0"),
        ("127.0.0.1", silent, "a program that does not answer"),
        ("127.0.0.1", chatty, "a program that does not speak HTTP"),
        ("::1", silent, "a program that does not answer"),
    ],
)
def test_a_port_that_is_taken_is_told_with_who_has_it(host: str, behave: Any, who: str) -> None:
    with folder_of_a_hub() as found, stranger(host, behave) as port:
        begun = time.monotonic()
        refused = found.run("up", "--port", str(port))
        assert time.monotonic() - begun < 1 * MARGIN + 1
        assert refused.returncode == 3
        assert who in refused.stderr
        assert (f"[::1]:{port}" if ":" in host else f"127.0.0.1:{port}") in refused.stderr
        assert not (found.folder / "angelia.db").exists()
        assert holder_pid(found) is None


def test_another_hubs_port_is_told_with_its_folder() -> None:
    with hub() as first, folder_of_a_hub() as second:
        refused = second.run("up", "--port", str(first.port))
        assert refused.returncode == 3
        assert f"pid {first.pid}" in refused.stderr
        assert str(first.folder) in refused.stderr


def test_it_is_ready_when_it_says_so() -> None:
    """F086. A hundred calls; the ten hubs start at once, so that each is slow about it."""

    def served(found: Hub) -> int:
        with start(found, "up", "--port", str(found.port)) as process:
            try:
                assert process.stdout is not None
                assert "serves" in process.stdout.readline()
                holder = who_holds(str(found.folder))  # which tells other commands the same
                assert holder is not None
                assert (holder.pid, holder.ready) == (process.pid, True)
                ids = [say(found, "at once") for _ in range(9)]
                health = found.get("/health").json
                assert (health["status"], health["pid"]) == ("ok", process.pid)
                process.terminate()
                process.communicate(timeout=20)
                assert process.returncode == 0
                return len(ids) + 1
            finally:
                process.kill()

    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        hubs = [stack.enter_context(hub_unstarted()) for _ in range(10)]
        assert sum(pool.map(served, hubs)) == 100


# -------------------------------------------------------------------------------------- detach, down, replace, terminal


def test_detached_it_serves_on_and_down_ends_it() -> None:
    reader, writer = os.pipe()
    with folder_of_a_hub() as found:
        # Were anything of ours inherited, run() would wait for its end, and the pipe would not.
        begun = found.run("up", "--detach", "--port", str(found.port))
        assert begun.returncode == 0, begun.stderr
        assert f"http://127.0.0.1:{found.port}" in begun.stdout
        pid = holder_pid(found)
        assert pid is not None
        health = found.get("/health").json
        assert (health["pid"], health["data_dir"]) == (pid, str(found.folder))
        assert os.getsid(pid) == pid
        again = found.run("up", "--detach")
        assert again.returncode == 3
        assert f"pid {pid}, port {found.port}" in again.stderr
        ended = found.run("down")
        assert (ended.returncode, f"pid {pid}" in ended.stdout) == (0, True)
        assert holder_pid(found) is None
        eventually(lambda: is_gone(pid))
        assert not Path(found.socket_path).exists()
        assert not (found.folder / "hub.json").exists()
        assert found.run("down").returncode == 4
    os.close(reader)
    os.close(writer)


@linux_only
def test_detached_it_keeps_nothing_of_whoever_started_it() -> None:
    reader, writer = os.pipe()
    with folder_of_a_hub() as found:
        process = start(found, "up", "--detach", "--port", str(found.port), pass_fds=(writer,))
        os.close(writer)
        process.communicate(timeout=30)
        pid = holder_pid(found)
        assert os.read(reader, 1) == b""  # the end: nobody has the other side any more
        links = {number: os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)}
        assert links == {0: "/dev/null", 1: f"{found.folder}/hub.log", 2: f"{found.folder}/hub.log"}
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4] == "0"  # no terminal
    os.close(reader)


def test_a_detached_start_that_fails_says_why() -> None:
    with folder_of_a_hub() as found, stranger("127.0.0.1", None) as port:
        failed = found.run("up", "--detach", "--port", str(port))
        assert failed.returncode == 3
        assert "a web server (Shop/1.0" in failed.stderr


@pytest.mark.parametrize("detach", [True, False])
def test_replace_stops_the_holder_and_takes_over(detach: bool) -> None:
    with hub() as found:
        say(found, "kept")
        first = found.process
        assert first is not None
        process = start(found, "up", "--replace", "--port", str(found.port), *(["--detach"] if detach else []))
        assert first.wait(10 + MARGIN) == 0
        pid = eventually(lambda: (found.folder / "hub.json").exists() and holder_pid(found), 20)
        assert pid != first.pid
        found.process = None
        eventually(lambda: answers(found))
        assert found.get("/health").json["pid"] == pid
        assert heard(found) == ["kept"]
        assert found.run("down").returncode == 0
        process.communicate(timeout=20)


def test_down_signals_the_holder_of_the_lock_where_its_socket_is_dead() -> None:
    with hub() as found:
        Path(found.socket_path).unlink()
        assert found.run("down").returncode == 0
        assert found.process is not None
        assert found.process.wait(10) == 0
        found.process = None


def test_down_says_so_when_the_hub_does_not_end() -> None:
    with hub() as found:
        found.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        try:
            refused = found.run("down", seconds=60)
        finally:
            found.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        assert refused.returncode == 5
        assert f"pid {found.pid}" in refused.stderr
        assert found.process is not None
        assert found.process.wait(10) == 0  # it was asked, and hears of it now
        found.process = None


@pytest.mark.parametrize("detach", [True, False])
def test_replace_says_how_to_end_a_hub_that_hangs(detach: bool) -> None:
    with hub() as found:
        found.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        refused = found.run("up", "--replace", *(["--detach"] if detach else []), seconds=60)
        assert refused.returncode == 3
        assert f"kill -9 {found.pid}" in refused.stderr
        assert "--replace" not in refused.stderr


@pytest.mark.parametrize("words", [("status",), ("inbox",), ("agents",), ("join", "scout")], ids=lambda each: each[0])
def test_a_look_at_a_hub_that_hangs_is_soon_over(words: tuple[str, ...]) -> None:
    with hub() as found:
        found.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        begun = time.monotonic()
        assert found.run(*words, seconds=60).returncode == 5
        assert time.monotonic() - begun < 5 * MARGIN


def test_the_doctor_is_soon_done_with_a_hub_that_hangs_and_says_so_once() -> None:
    with hub() as found:
        found.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        begun = time.monotonic()
        looked = found.run("doctor", "--json", seconds=60)
        assert time.monotonic() - begun < 5 * MARGIN
        assert looked.returncode == 1
        [wrong] = [each for each in json.loads(looked.stdout)["checks"] if each["state"] != "ok"]
        assert "did not answer" in wrong["text"]
        assert "not looked at" in wrong["text"]
        assert "angelia down" in wrong["mend"]


def test_the_vanished_terminal_does_not_end_the_hub() -> None:
    with folder_of_a_hub() as found:
        pid, terminal = os.forkpty()
        if pid == 0:
            os.chdir(found.base)
            words = [sys.executable, "-m", "angelia", "up", "--port", str(found.port)]
            os.execve(words[0], words, found.cli_environment())
        eventually(lambda: answers(found))
        eventually(lambda: (found.folder / "hub.json").exists() and "true" in (found.folder / "hub.json").read_text())
        os.close(terminal)  # hangs up: SIGHUP, and EIO from then on
        eventually(lambda: (found.folder / "hub.log").exists() and "terminal is gone" in found.output())
        say(found, "still here")
        assert found.get("/health").json["pid"] == pid
        assert found.run("down").returncode == 0
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert "the hub has stopped" in (found.folder / "hub.log").read_text()


def test_a_reader_of_its_words_that_goes_away_does_not_end_the_hub() -> None:
    with folder_of_a_hub() as found:
        process = start(found, "up", "--port", str(found.port), "--log-level", "debug")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        eventually(lambda: answers(found))
        say(found, "hello")
        process.terminate()
        assert process.wait(20) == 0


@linux_only
def test_without_standard_streams_their_numbers_are_taken_by_nothing_else() -> None:
    with folder_of_a_hub() as found:
        words = [sys.executable, "-m", "angelia", "up", "--port", str(found.port)]
        shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]
        process = subprocess.Popen(shell, env=found.cli_environment(), cwd=found.base)
        eventually(lambda: answers(found))
        say(found, "hello")
        links = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)]
        assert set(links) <= {"/dev/null", f"{found.folder}/hub.log"}
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(number: int) -> None:
    with hub() as found:
        code, seconds = found.stop(number=number)
        assert code == 0
        assert seconds < 3 * MARGIN
        assert holder_pid(found) is None
        assert not Path(found.socket_path).exists()


def test_a_thousand_open_streams_hear_goodbye_and_it_is_gone_in_three_seconds() -> None:
    with hub() as found:
        streams = [Stream(found, f"/subscribe?agent=a{number}", opens=False) for number in range(1000)]
        for stream in streams:
            stream.opened(30)
        code, seconds = found.stop()
        assert code == 0
        assert seconds < 3 * MARGIN, seconds
        last = [stream.rest()[-1].kind for stream in streams]
        assert last == ["bye"] * 1000
        for stream in streams:
            stream.close()


# ----------------------------------------------------------------------------------------------------- replacing itself


@linux_only
@pytest.mark.timeout(120)
def test_after_a_failed_commit_it_replaces_itself_and_keeps_pid_lock_and_mail() -> None:
    with Hub() as found:
        stored = say(found, "before")
        since = json.loads((found.folder / "hub.json").read_text())["since"]
        free = threading.Event()
        watching = threading.Event()

        def watch() -> None:
            while not watching.wait(0.001):
                if holder_pid(found) != found.pid:
                    free.set()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            # From now on no file of the hub's may grow: the next commit cannot be written.
            _, most = resource.prlimit(found.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(found.pid, resource.RLIMIT_FSIZE, (4096, most))
            refused = found.post("/v1/messages", {"to": "openclaw", "text": "x" * 100_000, "from": "hermes"})
            resource.prlimit(found.pid, resource.RLIMIT_FSIZE, (most, most))
            assert (refused.status, refused.code) == (503, "outcome_unknown")
            eventually(lambda: "replaces itself" in found.output(), 10)
            eventually(lambda: found.is_ready(), 10 * MARGIN)
        finally:
            watching.set()
            thread.join()
        assert not free.is_set()
        assert found.get("/health").json["pid"] == found.pid
        assert json.loads((found.folder / "hub.json").read_text())["since"] == since
        assert found.get(f"/v1/messages/{stored}").json["deliveries"][0]["state"] == "queued"
        say(found, "after")
        assert found.run("up").returncode == 3
        assert {"before", "after"} <= set(heard(found))
        assert found.stop()[0] == 0


@linux_only
def test_whoever_asks_a_hub_that_is_replacing_itself_for_its_end_gets_it() -> None:
    """It was swallowed: the reason to stop was another one already. A reader that stands still makes it stop slowly."""
    with Hub() as found, found.raw() as reader:
        reader.sendall(b"GET /subscribe?agent=slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        eventually(lambda: found.get("/status").json["streams"] == 1)
        for _ in range(8):
            found.send("slow", "x" * 900_000, "hermes")
        assert found.process is not None
        _, most = resource.prlimit(found.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(found.pid, resource.RLIMIT_FSIZE, (4096, most))
        found.post("/v1/messages", {"to": "openclaw", "text": "x" * 100_000, "from": "hermes"})
        resource.prlimit(found.pid, resource.RLIMIT_FSIZE, (most, most))
        eventually(lambda: "replaces itself" in found.output(), 10)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(3 * MARGIN) == 0
        found.process = None


@linux_only
@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_disk_that_stays_broken_ends_the_hub_after_a_few_tries() -> None:
    with Hub() as found:
        _, most = resource.prlimit(found.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(found.pid, resource.RLIMIT_FSIZE, (4096, most))
        found.post("/v1/messages", {"to": "openclaw", "text": "x" * 100_000, "from": "hermes"})
        assert found.process is not None
        assert found.process.wait(40 * MARGIN) == 1
        assert "gives up" in found.output()
        assert holder_pid(found) is None
        found.process = None
        found.start()


# ----------------------------------------------------------------------------------------------------- settings, doctor


@pytest.mark.parametrize(
    ("words", "env", "place"),
    [
        (["--port", "x"], {}, "--port"),
        ([], {"ANGELIA_DURABILITY": "fast"}, "ANGELIA_DURABILITY"),
        ([], {"ANGELIA_LIMITS_TEXT_BITES": "5"}, "ANGELIA_LIMITS_TEXT_BITES"),
        (["--host", "0.0.0.0"], {}, "--host:"),
        (["--host", "192.0.2.1", "--behind-proxy"], {}, "192.0.2.1"),
    ],
)
def test_wrong_settings_end_with_78_and_name_their_place(words: list[str], env: dict[str, str], place: str) -> None:
    with folder_of_a_hub() as found:
        refused = found.run("up", "--port", str(found.port), *words, **env)
        assert refused.returncode == 78, refused.stderr
        assert place in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_doctor_finds_a_hub_well_and_leaves_nothing_behind() -> None:
    with hub() as found:
        well = found.run("doctor", "--json")
        checks = {each["name"]: each["state"] for each in json.loads(well.stdout)["checks"]}
        assert well.returncode == 0, checks
        for way in (f"http://127.0.0.1:{found.port}", f"unix:{found.socket_path}"):
            assert {checks[f"{what} {way}"] for what in ("health at", "message by", "stream by")} == {"ok"}
        names = [each["handle"] for each in found.get("/v1/agents").json["agents"]]
        assert not [name for name in names if name.startswith("doctor")]


def test_the_doctor_says_what_is_wrong() -> None:
    with folder_of_a_hub() as found, stranger("127.0.0.1", None) as port:
        ill = found.run("doctor", ANGELIA_PORT=str(port))
        assert ill.returncode == 1
        assert "angelia up" in ill.stdout
        assert "a web server (Shop/1.0" in ill.stdout
        assert not found.folder.exists()


def test_the_environment_of_tests_is_their_own(tmp_path: Path) -> None:
    assert "ANGELIA_DATA_DIR" not in environment(tmp_path)


PICKS = """
import random
from tests.acceptance.hub import free_port
random.seed(7)
print(free_port(), flush=True)
input()
"""


def test_no_two_testers_are_given_one_port_while_both_are_at_it(tmp_path: Path) -> None:
    """They run side by side, and each lets its hubs end and come back on their ports."""
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "src")]))
    words = [sys.executable, "-c", PICKS]
    testers = [
        subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        ports = [each.stdout.readline() for each in testers if each.stdout is not None]
    finally:
        ended = [each.communicate("\n") for each in testers]
    assert [each.returncode for each in testers] == [0, 0], ended
    assert len(set(map(int, ports))) == 2, ports
