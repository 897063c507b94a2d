"""Opening a line by TLS: who shows a certificate that is not to be trusted gets nothing from us, no secret either."""

import shutil
import subprocess
from pathlib import Path

import pytest

from angelia.links.port import Kind
from angelia.model.connection import Connection, Speaks
from tests.links.dialling import SECRET, dialled, kind_of, secret_in, tools, trouble
from tests.links.lines import LOOPS
from tests.links.stand_ins.server import Server, hermes, hub, served

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make certificates with")


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=30)


def signed(folder: Path, name: str, names: str, days: str = "2") -> tuple[str, str]:
    """A certificate for these names, signed by the authority in the folder; and its key."""
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=box",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", days, "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an authority of its own: ``ca.pem``."""
    made = tmp_path_factory.mktemp("authority")
    openssl(made, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=our own", "-addext", "keyUsage=critical,keyCertSign",
            "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    return made


@pytest.fixture(scope="module")
def here(folder: Path) -> tuple[str, str]:
    """A certificate of this machine."""
    return signed(folder, "here", "DNS:localhost,IP:127.0.0.1")


def to(server: Server, host: str = "127.0.0.1", **more: str) -> Connection:
    return Connection(name="box", target=f"wss://{host}:{server.port}", **more)  # type: ignore[arg-type]  # texts all


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_private_authority_is_trusted_where_it_is_named(host: str, folder: Path, here: tuple[str, str]) -> None:
    ca_file = str(folder / "ca.pem")
    async with served(hub(), here) as server, dialled(to(server, host, ca_file=ca_file)) as found:
        assert found.speaks is Speaks.HUB
        await found.wire.send(b"x" * 3_000_000)
        assert await found.wire.receive() == b"x" * 3_000_000


async def test_a_token_goes_to_who_is_trusted_alone(folder: Path, here: tuple[str, str], tmp_path: Path) -> None:
    token_file = secret_in(tmp_path)
    async with served(hermes(token=SECRET), here) as server:
        found = await trouble(to(server, token_file=token_file))
        assert kind_of(found) == (Kind.REFUSED, True)
        assert "not one to trust" in found.problem
        assert "--ca" in found.advice
        assert not server.asked
        async with dialled(to(server, token_file=token_file, ca_file=str(folder / "ca.pem"))) as line:
            assert line.speaks is Speaks.HERMES


@pytest.mark.parametrize(("names", "days"), [("DNS:elsewhere.example", "2"), ("IP:127.0.0.1", "-1")])
async def test_a_certificate_of_another_name_or_time(names: str, days: str, folder: Path) -> None:
    certificate = signed(folder, "wrong", names, days)
    async with served(hub(), certificate) as server:
        found = await trouble(to(server, ca_file=str(folder / "ca.pem")))
        assert kind_of(found) == (Kind.REFUSED, True)
        assert not server.asked


async def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    (tmp_path / "text.pem").write_text("no certificate")
    async with served(hub()) as server:
        for name in ("none.pem", "empty.pem", "text.pem"):
            found = await trouble(to(server, ca_file=str(tmp_path / name)))
            assert kind_of(found) == (Kind.REFUSED, True)
            assert f"{tmp_path / name} cannot be read as a certificate" in found.problem


async def test_who_speaks_no_tls_and_who_speaks_nothing_else(here: tuple[str, str]) -> None:
    async with served(hub()) as server:
        found = await trouble(to(server))
        assert kind_of(found) == (Kind.UNREACHABLE, False)
        assert "Write ws:// in place of wss://" in found.advice
    async with served(hub(), here) as server:
        connection = Connection(name="box", target=f"ws://127.0.0.1:{server.port}")
        assert (await trouble(connection, tools())).kind in (Kind.UNREACHABLE, Kind.WRONG_VERSION)
