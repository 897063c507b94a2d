"""What was measured on: the machine, the versions, and the commit. Every figure stands beside it."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("apsw", "httptools", "msgspec", "uvicorn", "uvloop")


def load() -> str:
    """How many processes wanted a core in the last minute, and in the last five."""
    one, five, _ = os.getloadavg()
    return f"{one:.1f} (five minutes: {five:.1f})"


def facts(root: Path, folder: Path, versions: dict[str, str], load_before: str) -> dict[str, str]:
    """What a reader needs to know, by name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(root),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB",
        "load": f"{load_before} before, {load()} behind, its own included",
        "system": f"{platform.system()} {platform.release()}, {_file_system(folder)}",
        "Python": f"{platform.python_implementation()} {platform.python_version()} ({sys.platform})",
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "peers": ", ".join(f"{name} {said}" for name, said in sorted(versions.items())),
    }


def _commit(root: Path) -> str:
    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
        except OSError:
            return ""
        return done.stdout.strip()

    head = git("rev-parse", "--short=12", "HEAD") or "unknown"
    return head + (" with changes" if git("status", "--porcelain", "--", "src") else "")


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in path.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(folder: Path) -> str:
    path = Path("/proc/mounts")
    if not path.exists():
        return "file system unknown"
    mounts = [line.split()[1:3] for line in path.read_text().splitlines()]
    fitting = [(len(where), kind) for where, kind in mounts if folder.is_relative_to(where)]
    return max(fitting)[1]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
