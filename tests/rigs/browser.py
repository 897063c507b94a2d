"""A real browser without a window: Chromium, driven over the pipe of its DevTools protocol, with a profile of its own.

What must stay true: nothing of the developer's own browser is touched, and nothing is fetched but what a page asks for;
every wait has an end; leaving the context ends every process that it started. The pipe needs no port and no package.
"""

import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

START_SECONDS = 60.0  # its first start on a small machine
ANSWER_SECONDS = 30.0
LOOK_SECONDS = 0.02
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
    "--disable-sync", "--disable-dev-shm-usage", "--metrics-recording-only", "--mute-audio", "--no-proxy-server",
    "--remote-debugging-pipe",
)  # fmt: skip
# The browser wants its pipe at 3 and 4, which Popen cannot promise.
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """The browser of this machine, if there is one."""
    on_path = next((path for name in NAMES if (path := shutil.which(name))), None)
    return on_path or (str(MAC) if MAC.exists() else None)


class Browser:
    """Use it as a context. ``open`` makes a page. ``more``: further flags."""

    def __init__(self, *more: str) -> None:
        self._more = more
        self._folder = tempfile.mkdtemp(prefix="ang-browser-")
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._serial = 0

    def __enter__(self) -> "Browser":
        program = found()
        assert program is not None
        theirs, self._out = _high(*os.pipe())
        self._in, theirs_too = _high(*os.pipe())
        words = [program, *FLAGS, *self._more, f"--user-data-dir={self._folder}/profile", "about:blank"]
        with open(f"{self._folder}/said", "wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(theirs), str(theirs_too), *words],
                pass_fds=(theirs, theirs_too),
                env={"PATH": os.defpath, "HOME": self._folder, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        os.close(theirs)
        os.close(theirs_too)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.call("Browser.getVersion", seconds=START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(AssertionError, OSError):
            self.call("Browser.close", seconds=5.0)
        self._reader.join(5)  # it sees the browser's end of the pipe go
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # before it is waited for, so that the number is still its own
        self._process.wait(10)
        os.close(self._out)
        self._reader.join(10)
        os.close(self._in)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str) -> "Page":
        """A page of that address, loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        page.call("Page.enable")
        gone = page.call("Page.navigate", {"url": url})
        assert "errorText" not in gone, gone
        page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, session: str = "", seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        """One command, and its result."""
        self._serial += 1
        mine = self._answers[self._serial] = queue.SimpleQueue()
        asked = {"id": self._serial, "method": method, "params": params or {}}
        message = json.dumps({**asked, "sessionId": session} if session else asked).encode() + b"\0"
        while message:
            message = message[os.write(self._out, message) :]
        try:
            answer = mine.get(timeout=seconds)
        except queue.Empty:
            said = Path(self._folder, "said").read_text("utf-8", "replace")
            raise AssertionError(f"the browser did not answer {method} within {seconds:g} s:\n{said}") from None
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._in, 1 << 16):
            *whole, rest = (rest + piece).split(b"\0")
            for each in whole:
                answer = json.loads(each)
                if "id" in answer:
                    self._answers.pop(answer["id"]).put(answer)


class Page:
    """One page. ``run`` is JavaScript in it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.call(method, params, session=self._session)

    def run(self, code: str) -> Any:
        """The value of an expression; of what it promises, where it does."""
        asked = {"expression": code, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, code: str, seconds: float = ANSWER_SECONDS) -> Any:
        """The value of an expression, once there is one that counts as true."""
        ends = time.monotonic() + seconds
        while not (value := self.run(code)):
            assert time.monotonic() < ends, f"not within {seconds:g} s: {code}"
            time.sleep(LOOK_SECONDS)
        return value


def _high(one: int, other: int) -> tuple[int, int]:
    """The two ends of a pipe, at numbers that nobody dups onto."""
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (one, other)]
    os.close(one)
    os.close(other)
    return moved[0], moved[1]
