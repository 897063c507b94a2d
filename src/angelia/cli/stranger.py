"""Who is on our port? What a person needs to know to decide which of the two should move.

What must stay true: it takes a second at most, whatever the other program does, and only looks.
"""

import json
import socket
import time

LOOK_SECONDS = 1.0
NOBODY = "nobody"
_MOST_BYTES = 64 * 1024


def who_answers(host: str, port: int) -> str:
    """What answers at an address, in words that end a sentence."""
    answer = _ask(host, port)
    if answer is None:
        return NOBODY
    if not answer.startswith(b"HTTP/"):
        return f"a program that {'does not speak HTTP' if answer else 'does not answer'}"
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        health = json.loads(body)
    except ValueError:
        health = None
    if isinstance(health, dict) and health.get("product") == "angelia":
        folder = health.get("data_dir") or "another folder"
        return f"another Angelia hub, version {health.get('version')}, pid {health.get('pid')}, which serves {folder}"
    lines = head.decode("latin-1").split("\r\n")
    server = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("server:")), "")
    status = lines[0].partition(" ")[2][:40]
    return f"a web server{f' ({server[:60]})' if server else ''} that answers GET /health with '{status}'"


def _ask(host: str, port: int) -> bytes | None:
    """Whatever comes back from GET /health within the time; None where nothing takes the connection."""
    deadline = time.monotonic() + LOOK_SECONDS
    answer: bytes | None = None
    try:
        with socket.create_connection((host, port), timeout=LOOK_SECONDS) as connection:
            answer = b""
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
            while len(answer) < _MOST_BYTES and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
    except OSError:
        return answer
    return answer
