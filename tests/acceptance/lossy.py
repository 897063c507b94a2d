"""A wire between two network namespaces that loses packets, as a bad radio link does; the kernel sends them again.

What must stay true: what is lost is a whole IP packet, either way, and nobody is told; whatever was made here is gone
afterwards. It takes Linux and root, and nothing of the kernel's but TUN devices: not each has `netem`.
"""

import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET = 65536
LOOK_SECONDS = 0.2  # until its thread sees that it is to end
COMMAND_SECONDS = 20


def why_not() -> str | None:
    """Why there can be no such wire here; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces take Linux and root"
    if shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        return "a wire of one's own takes the command ip and /dev/net/tun"
    try:
        with Wire(0.0, 0):
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"there can be no wire here: {error}"


class Wire:
    """Use it as a context. ``sent`` and ``lost`` count packets."""

    def __init__(self, loss: float, seed: int) -> None:
        """``loss``: how many of all packets vanish, 0 to 1."""
        self.sent = self.lost = 0
        self._loss, self._dice = loss, random.Random(seed)
        self._names = [f"ang{os.getpid()}-wire{end}" for end in range(2)]
        self._ends: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry)

    def __enter__(self) -> "Wire":
        try:
            for number, name in enumerate(self._names):
                self._ends.append(_end(f"ang{os.getpid() % 100_000}w{number}", name, self.address(number)))
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._remove()

    def address(self, number: int) -> str:
        """Of either end."""
        return f"10.78.0.{number + 1}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """What is put before a command, so that it runs there."""
        return ("ip", "netns", "exec", self._names[number])

    def _carry(self) -> None:
        others = dict(zip(self._ends, reversed(self._ends), strict=True))
        while not self._over.is_set():
            for end in select.select(self._ends, [], [], LOOK_SECONDS)[0]:
                packet = os.read(end, PACKET)
                self.sent += 1
                if self._dice.random() < self._loss:
                    self.lost += 1
                    continue
                with suppress(OSError):  # the other end takes no more just now, which is a loss too
                    os.write(others[end], packet)

    def _remove(self) -> None:
        for end in self._ends:
            os.close(end)
        for name in self._names:
            if Path("/run/netns", name).exists():
                _ip("netns", "del", name)


def _end(device: str, namespace: str, address: str) -> int:
    """A device in a new namespace; what it sends is read from the file that is returned, and the other way round."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
        _ip("netns", "add", namespace)
        _ip("link", "set", device, "netns", namespace)
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
        _ip("-n", namespace, "link", "set", device, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
    except BaseException:
        os.close(file)
        raise
    return file


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS)
