"""What a person waits for: ``angelia send`` as a process of its own, over a Python that only loads an HTTP client."""

import subprocess
import sys
import time
from pathlib import Path

from bench.figures import Bench, Figure, Measured
from bench.load import median
from bench.peers.angelia import READER, Angelia

CLI = Figure(
    "cli", "`angelia send` over `python -c 'import http.client'`", 1.5, 1.1, "×",
    "Starting Python and http.client, which the client is made of; then its own modules, and one commit.",
)  # fmt: skip
FIGURES = (CLI,)


def measure(bench: Bench) -> list[Measured]:
    """The figure."""
    hub = Angelia(bench.place("angelia"))
    try:
        clean = ["env", "-i", f"HOME={hub.folder}", f"PYTHONPATH={hub.source}"]
        script = Path(sys.executable).with_name("angelia")
        start = [str(script)] if script.exists() else [sys.executable, "-m", "angelia"]
        commands = {
            "send": [*clean, *start, "--hub", f"http://127.0.0.1:{hub.port}", "--as", "me", "send", READER, "hello"],
            "import": [*clean, sys.executable, "-c", "import http.client"],
        }
        took: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(5 if bench.quick else 21):
            for name, command in commands.items():
                started = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                took[name].append(time.perf_counter() - started)
                assert done.returncode == 0, done.stderr
            if number % 10 == 9:
                bench.tell(f"{number + 1} rounds")
    finally:
        hub.stop()
    middle = {name: median(values) for name, values in took.items()}
    told = f"{middle['send'] * 1000:.0f} ms over {middle['import'] * 1000:.0f} ms"
    return [Measured(CLI, middle["send"] / middle["import"], told, took)]
