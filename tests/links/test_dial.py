"""Opening a line over the network: who is there is found out, and why there is no line is told apart."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from angelia.links.port import Kind
from angelia.model.connection import Speaks
from tests.acceptance.hub import MARGIN, free_port
from tests.links.dialling import SECRET, SILENCE, dialled, kind_of, secret_in, to, tools, trouble
from tests.links.lines import LOOPS
from tests.links.stand_ins.server import NEVER, Server, hermes, hub, says, served


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


# ------------------------------------------------------------------------------------------------------- who is there


@pytest.mark.parametrize("speaks", [Speaks.AUTO, Speaks.HUB])
async def test_a_hub_is_found_and_its_line_is_open(speaks: Speaks) -> None:
    async with served(hub()) as server, dialled(to(server, speaks=speaks)) as found:
        assert (found.speaks, found.by_owner, found.key_file) == (Speaks.HUB, False, None)
        assert found.ready["frame_bytes"] == 8388608
        await found.wire.send(b'{"a":1}')
        assert await found.wire.receive() == b'{"a":1}'
        assert [asked.path for asked in server.asked] == ["/health", "/api/hub"]
        head = server.asked[-1].head
        assert head["host"] == f"127.0.0.1:{server.port}"
        assert not {"origin", "sec-websocket-extensions", "authorization"} & head.keys()


async def test_a_hub_that_is_unwell_is_a_hub() -> None:
    async with served(hub()) as server:
        server.answers["/health"] |= {"status": "unwell"}
        async with dialled(to(server)) as found:
            assert found.speaks is Speaks.HUB


async def test_a_gateway_of_hermes_is_found_behind_a_path() -> None:
    for path in ("/mine", "/mine/", "/mine/api/ws"):
        async with served(hermes(prefix="/mine")) as server:
            async with dialled(to(server, target=f"ws://127.0.0.1:{server.port}{path}")) as found:
                assert (found.speaks, found.by_owner, found.ready) == (Speaks.HERMES, False, {"skin": {}})
            assert [asked.path for asked in server.asked] == ["/health", "/api/status", "/api/ws"]


async def test_what_is_said_to_be_hermes_is_not_asked_whether_it_is_a_hub() -> None:
    async with served(hermes()) as server, dialled(to(server, speaks=Speaks.HERMES)) as found:
        assert found.speaks is Speaks.HERMES
        assert [asked.path for asked in server.asked] == ["/api/status", "/api/ws"]


async def test_a_hub_of_this_machine_and_user_names_its_key(tmp_path: Path) -> None:
    key, other = tmp_path / "link.key", tmp_path / "other"
    other.write_bytes(b"k" * 32)
    other.chmod(0o600)

    async def named(target: str = "", note: int | None = 0) -> str | None:
        async with served(hub(str(tmp_path))) as server:
            if note is not None:
                (tmp_path / "hub.json").write_text(json.dumps({"port": server.port + note}))
                (tmp_path / "hub.json").chmod(0o600)
            connection = to(server, **({"target": target.format(server.port)} if target else {}))
            async with dialled(connection) as found:
                return found.key_file

    assert await named() is None
    key.write_bytes(b"k" * 32)
    for mode, is_ours in ((0o600, True), (0o400, True), (0o640, False), (0o604, False)):
        key.chmod(mode)
        assert await named() == (str(key) if is_ours else None)
    key.chmod(0o600)
    assert await named("ws://localhost:{}") == str(key)
    assert await named(note=1) is None  # who listens there is not the hub of that folder, whatever it says
    (tmp_path / "hub.json").unlink()
    assert await named(note=None) is None
    key.unlink()
    key.symlink_to(other)
    assert await named() is None
    key.unlink()
    key.mkdir(0o700)
    assert await named() is None


@pytest.mark.parametrize("folder", ["relative", "/nul\0", 7, None, ["/"]])
async def test_a_folder_that_is_none_names_no_key(folder: object) -> None:
    async with served(hub()) as server:
        server.answers["/health"]["data_dir"] = folder
        async with dialled(to(server)) as found:
            assert found.key_file is None


# -------------------------------------------------------------------------------------------------- why there is none


async def test_nobody_there() -> None:
    found = await trouble(to(free_port()))
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert re.fullmatch(r"At 127\.0\.0\.1:\d+ nobody listens\.", found.problem)


async def test_a_name_that_nobody_has() -> None:
    found = await trouble(to(0, target="ws://nobody.invalid:18900"))
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert found.problem == "The name in nobody.invalid:18900 leads to no machine."


@pytest.mark.parametrize("at", ["tcp", "/health", "/api/status", "handshake", "ready"])
async def test_whoever_says_nothing_is_given_up_in_time(at: str) -> None:
    async with says(None) as port, served(hermes()) as server:
        if at == "ready":
            server.ready = None
        elif at.startswith("/"):
            server.answers[at] = NEVER
        target: Server | int = port if at == "tcp" else server
        if at == "handshake":
            server.door = NEVER
        begun = asyncio.get_running_loop().time()
        found = await trouble(to(target), tools(SILENCE))
        took = asyncio.get_running_loop().time() - begun
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert f"did not answer within {SILENCE:g} s" in found.problem
    assert SILENCE * 0.9 <= took < SILENCE * MARGIN


async def test_what_speaks_another_protocol() -> None:
    async with says(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        found = await trouble(to(port))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "does not speak HTTP" in found.problem


async def test_whoever_hangs_up() -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        found = await trouble(to(server.sockets[0].getsockname()[1]))
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "closed the connection without an answer" in found.problem
    assert "write wss:// in place of ws://" in found.advice


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, (Kind.WRONG_VERSION, True)),  # a web server
        ({"/api/status": {"hello": 1}}, (Kind.WRONG_VERSION, True)),
        ({"/health": {"product": "other"}}, (Kind.WRONG_VERSION, True)),
        ({"/api/status": 401}, (Kind.REFUSED, True)),
        ({"/api/status": 421}, (Kind.REFUSED, True)),
        ({"/api/status": 502}, (Kind.UNREACHABLE, False)),
        ({"/api/status": "https://elsewhere/"}, (Kind.UNREACHABLE, True)),
    ],
)
async def test_what_is_none_of_the_two(answers: Mapping[str, Any], expected: tuple[Kind, bool]) -> None:
    async with served(Server(answers=dict(answers))) as server:
        assert kind_of(await trouble(to(server))) == expected


async def test_a_hub_that_is_too_old_for_links() -> None:
    async with served(hub(door="/api/ws")) as server:
        found = await trouble(to(server))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "has no place for links (HTTP 404)" in found.problem


async def test_a_gateway_of_another_product() -> None:
    async with served(hermes(ready={"product": "iris\n\x1b[31m"})) as server:
        found = await trouble(to(server))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "a gateway of 'iris [31m'" in found.problem


async def test_a_first_frame_that_is_something_else() -> None:
    async with served(hermes(first='{"hello": "\x1b[2J"}')) as server:
        found = await trouble(to(server))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert """ began with '{"hello": " [2J"}', as no gateway does.""" in found.problem


async def test_whoever_is_not_what_was_said() -> None:
    async with served(hermes()) as server:
        found = await trouble(to(server, speaks=Speaks.HUB))
        assert kind_of(found) == (Kind.WRONG_VERSION, True)
    async with served(hermes(ready={"product": "angelia"})) as server:
        found = await trouble(to(server, speaks=Speaks.HERMES))
        assert kind_of(found) == (Kind.WRONG_VERSION, True)
        assert "is a hub of Angelia's, not a gateway of Hermes'" in found.problem


@pytest.mark.parametrize("target", ["", "http://x", "ws://", "nonsense", "ws://user:pw@x", "exec:", "ws://x/?token=a"])
async def test_a_target_that_is_none(target: str) -> None:
    found = await trouble(to(0, target=target))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "pw" not in found.problem


# --------------------------------------------------------------------------------------------------------- signing in


@pytest.mark.parametrize("by", ["file", "variable"])
async def test_a_token_lets_in(by: str, tmp_path: Path) -> None:
    given = {"token_file": secret_in(tmp_path, SECRET + "\n")} if by == "file" else {"token_variable": "BOX"}
    async with served(hermes(token=SECRET)) as server, dialled(to(server, **given), tools(BOX=SECRET)) as found:
        assert found.speaks is Speaks.HERMES


@pytest.mark.parametrize("code", [None, 4401, 4403])
@pytest.mark.parametrize("given", ["wrong", None])
async def test_a_wrong_token_is_refused(given: str | None, code: int | None) -> None:
    more = {"token_variable": "BOX"} if given else {}
    async with served(hermes(token=SECRET, refuses=code)) as server:
        found = await trouble(to(server, **more), tools(BOX=given or ""))
    assert kind_of(found) == (Kind.REFUSED, True)
    assert ("--token-file" in found.advice) == (given is None)


@pytest.mark.parametrize("provider", ["basic", "own"])
async def test_a_password_gets_a_ticket_for_each_dial(provider: str, tmp_path: Path) -> None:
    more = {"user": "ada", "password_file": secret_in(tmp_path)}
    async with served(hermes(signs_in=True, password=SECRET, provider=provider)) as server:
        for _ in range(2):
            async with dialled(to(server, **more)) as found:
                assert found.speaks is Speaks.HERMES
        tickets = [asked.query["ticket"][0] for asked in server.asked if asked.path == "/api/ws"]
        assert len(set(tickets)) == 2
        assert not server.tickets  # each was used
        assert all(SECRET not in json.dumps([asked.path, asked.query, asked.head]) for asked in server.asked)


async def test_a_bearer_token_gets_a_ticket(tmp_path: Path) -> None:
    async with served(hermes(signs_in=True, bearer=SECRET)) as server:
        async with dialled(to(server, token_file=secret_in(tmp_path))) as found:
            assert found.speaks is Speaks.HERMES
        assert all("token" not in asked.query for asked in server.asked)


async def test_a_ticket_that_is_not_good_any_more_is_asked_for_again_soon(tmp_path: Path) -> None:
    more = {"token_file": secret_in(tmp_path)}
    async with served(hermes(signs_in=True, bearer=SECRET, tickets_are_good=False)) as server:
        assert kind_of(await trouble(to(server, **more))) == (Kind.REFUSED, False)
        server.tickets_are_good = True
        async with dialled(to(server, **more)) as found:
            assert found.speaks is Speaks.HERMES


@pytest.mark.parametrize(
    ("answers", "more", "expected", "says"),
    [
        ({}, {}, (Kind.REFUSED, True), "asks for a sign-in"),
        ({}, {"user": "ada", "password_variable": "WRONG"}, (Kind.REFUSED, True), "HTTP 401"),
        ({}, {"token_variable": "WRONG"}, (Kind.REFUSED, True), "HTTP 401"),
        ({"/auth/password-login": 429}, {"user": "ada", "password_variable": "RIGHT"}, (Kind.REFUSED, True),
         "too many tries"),
        ({"/auth/password-login": 404}, {"user": "ada", "password_variable": "RIGHT"}, (Kind.REFUSED, True),
         "takes no password"),
        ({"/auth/password-login": 503}, {"user": "ada", "password_variable": "RIGHT"}, (Kind.UNREACHABLE, False),
         "cannot sign anybody in"),
        ({"/api/auth/ws-ticket": {}}, {"user": "ada", "password_variable": "RIGHT"}, (Kind.WRONG_VERSION, True),
         "no ticket"),
    ],
)  # fmt: skip
async def test_a_sign_in_that_fails(
    answers: dict[str, Any], more: dict[str, str], expected: tuple[Kind, bool], says: str
) -> None:
    async with served(hermes(signs_in=True, password=SECRET, answers=answers)) as server:
        found = await trouble(to(server, **more), tools(RIGHT=SECRET, WRONG="wr0ng"))
    assert kind_of(found) == expected
    assert says in found.problem
    assert "wr0ng" not in found.problem


@pytest.mark.parametrize("what", ["token", "password"])
async def test_secrets_are_taken_from_safe_places_alone(what: str, tmp_path: Path) -> None:
    user = {"user": "ada"} if what == "password" else {}
    server = hermes(signs_in=bool(user), **{what: SECRET})

    async def refused(**more: str) -> str:
        found = await trouble(to(server, **user, **more))
        assert kind_of(found) == (Kind.REFUSED, True)
        assert not any(asked.path == "/api/ws" for asked in server.asked)
        return f"{found.problem} {found.advice}"

    async with served(server):
        for mode in (0o640, 0o604, 0o620, 0o644):
            path = secret_in(tmp_path, mode=mode)
            assert f"Run: chmod 600 {path}" in await refused(**{f"{what}_file": path})
        if os.geteuid() == 0:
            path = secret_in(tmp_path)
            os.chown(path, 65534, 65534)
            assert f"Run: chown 0 {path}" in await refused(**{f"{what}_file": path})
            os.unlink(path)
        assert "holds no" in await refused(**{f"{what}_file": secret_in(tmp_path, "\n")})
        assert "holds no" in await refused(**{f"{what}_file": secret_in(tmp_path, "x" * 20_000)})
        assert "cannot be read: No such file" in await refused(**{f"{what}_file": str(tmp_path / "none")})
        assert "is no file" in await refused(**{f"{what}_file": str(tmp_path)})
        os.mkfifo(tmp_path / "pipe", 0o600)
        assert "is no file" in await refused(**{f"{what}_file": str(tmp_path / "pipe")})
        assert "The variable NONE is not set" in await refused(**{f"{what}_variable": "NONE"})
        if what == "token":
            assert "no token can have" in await refused(token_file=secret_in(tmp_path, f"{SECRET}\nX-Header: 1"))


async def test_no_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(hermes(token=SECRET)) as server:
        async with dialled(to(server, token_file=secret_in(tmp_path))) as found:
            await found.wire.send(b"{}")
            await found.wire.receive()
        server.token = "another"
        await trouble(to(server, token_file=secret_in(tmp_path)))
    told = [record for record in caplog.records if not record.name.startswith("uvicorn")]  # that is the other side
    assert not any("s3cr3t" in record.getMessage() for record in told)
