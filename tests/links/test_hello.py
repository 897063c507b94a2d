"""The first words between two hubs: who is let in, and that nobody is who does not know the secret."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.links import greeting as first_words
from angelia.links import hello
from angelia.links.channel import Channel, Refused
from angelia.links.greeting import Guest, House, Met, connected_already, say_hello
from angelia.links.hello import CODE_SECONDS, WRONG_GUESSES, Greeting, Offer, nonce
from angelia.links.port import Dialled, Kind, Trouble
from angelia.model.connection import Connection, Speaks
from angelia.protocol.gateway import Refusal
from angelia.protocol.hub import VERSION
from tests.links.neighbours import End, Line, Stranger, running

HERE, FAR, THIRD = "a" * 32, "b" * 32, "c" * 32
FOLDER_KEY, SHARED = b"the key of the folder", b"k" * 32


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess that costs no 80 ms: these tests make many."""
    monkeypatch.setattr(hello, "_SCRYPT", {"n": 2, "r": 8, "p": 1, "dklen": 32})


class Far:
    """The hub that is dialled. ``met``: whom it let in."""

    def __init__(self) -> None:
        self.now = 0.0
        self.offer = Offer(lambda: self.now)
        self.keys: dict[str, bytes] = {}
        self.known: dict[str, Connection] = {}  # what the dialler knows
        self.met: list[Met] = []
        self.caller: Caller = OPEN
        self.meets: Callable[[Met], Awaitable[str]] | None = None
        self.lines: list[Line] = []

    async def meet(self, met: Met) -> str:
        if self.meets is not None:
            return await self.meets(met)
        self.met.append(met)
        return "home"

    def guest(self) -> Guest:
        return Guest(House(FAR, "garage", FOLDER_KEY, self.offer, self.keys.get, self.meet), self.caller)

    async def serve(self, end: End) -> None:
        channel = Channel(end, max_bytes=100_000, depth=32, handle=self.guest().handle, heard=lambda *_: None)
        with pytest.raises(Exception, match="cut"):
            await channel.run()

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Stranger]:
        """A line to it, and whoever may be at this end of it."""
        line = Line()
        self.lines.append(line)
        visitor = Stranger(line.ends[0])
        async with running(self.serve(line.ends[1]), visitor.run()):
            yield visitor

    async def greet(
        self, *, code: str | None = None, me: str = HERE, dialled: dict[str, Any] | None = None, **known: Any
    ) -> Met:
        """As a good hub greets it."""
        connection = Connection(**{"name": "garage", "target": "ws://garage:1", **known})
        async with self.visit() as visitor:
            line = Dialled(self.lines[-1].ends[0], Speaks.HUB, **(dialled or {}))
            found = await _outcome(say_hello(visitor.channel, me, "home", connection, line, code, self._check))
        return _met(found)

    def _check(self, hub: str) -> None:
        if (other := self.known.get(hub)) is not None and other.id != "garage":
            raise connected_already(other)


@pytest.fixture
def far() -> Far:
    return Far()


def hello_by(by: str, **more: Any) -> dict[str, Any]:
    return {"version": VERSION, "hub": HERE, "name": "home", "nonce": nonce(), "by": by, **more}


def greeting_of(said: dict[str, Any], answer: dict[str, Any]) -> Greeting:
    """What both have said, as the dialler has it."""
    nonces = f"{said['nonce']}|{answer['nonce']}"
    return Greeting(said["hub"], said["name"], answer["hub"], answer["name"], nonces, said["by"])


def reason(refused: object) -> str:
    assert isinstance(refused, Refused), refused
    assert refused.code == 403
    return str(refused.data["reason"])


# -------------------------------------------------------------------------------------------------------------- codes


async def test_a_code_pairs_two_hubs_and_both_keep_the_same_key(far: Far) -> None:
    code = far.offer.make()
    assert re.fullmatch(r"[A-HJ-NP-Z2-9]{4}(-[A-HJ-NP-Z2-9]{4}){2}", code)
    met = await far.greet(code=code)
    [guest] = far.met
    assert (met.hub, met.name, guest.hub, guest.name) == (FAR, "garage", HERE, "home")
    assert met.key == guest.key
    assert len(met.key or b"") == 32
    far.keys[HERE] = guest.key or b""
    again = await far.greet(hub=FAR, key=met.key)  # by the key from then on
    assert again.key == met.key
    assert far.met[1].key is None


async def test_no_two_pairings_make_the_same_key(far: Far) -> None:
    for _ in range(2):
        await far.greet(code=far.offer.make())
    assert far.met[0].key != far.met[1].key


@pytest.mark.parametrize("typed", ["{0}", "  {0} ", "{1}", "{2}", "{3}"])
async def test_a_code_may_be_typed_as_people_type(far: Far, typed: str) -> None:
    code = far.offer.make()
    await far.greet(code=typed.format(code, code.lower(), code.replace("-", ""), code.replace("-", " ")))
    assert far.met


async def test_a_code_is_good_once(far: Far) -> None:
    code = far.offer.make()
    await far.greet(code=code)
    trouble = await _trouble(far.greet(code=code))
    assert (trouble.kind, "no longer good" in trouble.problem, trouble.lasting) == (Kind.REFUSED, True, True)
    assert len(far.met) == 1


async def test_a_code_is_good_for_some_minutes_and_a_new_one_takes_its_place(far: Far) -> None:
    code = far.offer.make()
    far.now = CODE_SECONDS - 1
    newer = far.offer.make()
    await _trouble(far.greet(code=code))
    far.now += CODE_SECONDS
    await _trouble(far.greet(code=newer))
    assert far.met == []


async def test_a_wrong_code_lets_nobody_in_and_some_of_them_end_the_right_one(far: Far) -> None:
    code = far.offer.make()
    for guess in range(WRONG_GUESSES):
        assert far.offer.open() is not None, guess
        async with far.visit() as guesser:
            said = hello_by("code")
            answer = await guesser.call("hub.hello", **said)
            greeting = greeting_of(said, answer)
            proof = greeting.proof(greeting.key_of(f"WRNG-WRNG-WRN{guess + 2}"), "dialler")
            assert reason(await guesser.ask("hub.prove", proof=proof)) == "wrong_code"
    assert far.offer.open() is None
    await _trouble(far.greet(code=code))
    assert far.met == []


async def test_guesses_on_many_lines_at_once_are_no_more_guesses(far: Far) -> None:
    """Whoever has greeted while the code was good has nothing of it once it is gone."""
    code = far.offer.make()
    async with far.visit() as late:
        said = hello_by("code")
        greeting = greeting_of(said, await late.call("hub.hello", **said))
        for _ in range(WRONG_GUESSES):
            async with far.visit() as guesser:
                await guesser.call("hub.hello", **hello_by("code"))
                await guesser.ask("hub.prove", proof="x")
        proof = greeting.proof(greeting.key_of(code), "dialler")
        assert reason(await late.ask("hub.prove", proof=proof)) == "wrong_code"
    assert far.met == []


@pytest.mark.parametrize("how", ["time", "replaced", "used"])
async def test_who_greeted_with_a_code_that_is_gone_when_it_proves_is_not_let_in(far: Far, how: str) -> None:
    code = far.offer.make()
    async with far.visit() as late:
        said = hello_by("code")
        greeting = greeting_of(said, await late.call("hub.hello", **said))
        if how == "time":
            far.now += CODE_SECONDS
        elif how == "replaced":
            far.offer.make()
        else:
            await far.greet(code=code, me=THIRD)
        before = len(far.met)
        proof = greeting.proof(greeting.key_of(code), "dialler")
        assert reason(await late.ask("hub.prove", proof=proof)) == "wrong_code"
        assert len(far.met) == before


async def test_one_line_has_one_guess(far: Far) -> None:
    code = far.offer.make()
    async with far.visit() as guesser:
        said = hello_by("code")
        greeting = greeting_of(said, await guesser.call("hub.hello", **said))
        assert reason(await guesser.ask("hub.prove", proof="x")) == "wrong_code"
        proof = greeting.proof(greeting.key_of(code), "dialler")
        assert reason(await guesser.ask("hub.prove", proof=proof)) == "not_proved"
    assert far.met == []
    assert far.offer.open() is not None


async def test_who_has_a_wrong_code_is_told_so_and_gets_nothing_to_guess_by(far: Far) -> None:
    """The side that dials proves itself first: a stranger hears no proof that it could try codes on."""
    far.offer.make()
    trouble = await _trouble(far.greet(code="WRNG-WRNG-WRNG"))
    assert (trouble.kind, trouble.problem) == (Kind.REFUSED, "The code is wrong, or is no longer good.")
    assert sum(b'"proof"' in frame for _, frame in far.lines[-1].passed) == 1  # the dialler's own
    assert far.met == []


# ------------------------------------------------------------------------------------------------------------- proofs


async def test_the_shared_key_lets_in_and_another_does_not(far: Far) -> None:
    far.keys[HERE] = SHARED
    assert (await far.greet(hub=FAR, key=SHARED)).key == SHARED
    trouble = await _trouble(far.greet(hub=FAR, key=b"x" * 32))
    assert (trouble.kind, trouble.lasting, "angelia pair garage" in trouble.advice) == (Kind.REFUSED, True, True)
    assert len(far.met) == 1


async def test_who_does_not_know_the_key_cannot_prove_it(far: Far) -> None:
    far.keys[HERE] = SHARED
    proof: object
    for proof in ("", "x", None, 7, [], {}, "0" * 64, "é"):
        async with far.visit() as stranger:
            await stranger.call("hub.hello", **hello_by("key"))
            assert reason(await stranger.ask("hub.prove", proof=proof)) == "not_paired"
    async with far.visit() as stranger:
        await stranger.call("hub.hello", **hello_by("key"))
        assert reason(await stranger.ask("hub.prove")) == "not_paired"
    assert far.met == []


@pytest.mark.parametrize("by", ["key", "folder"])
async def test_the_acceptors_own_proof_proves_nothing(far: Far, by: str) -> None:
    """What it proves by on one line is no proof of who dials, on that line or another."""
    far.keys[HERE] = SHARED
    async with far.visit() as known:
        said = hello_by(by)
        answer = await known.call("hub.hello", **said)
        assert "proof" not in answer
        greeting = greeting_of(said, answer)
        key = SHARED if by == "key" else FOLDER_KEY
        reflected = await known.ask("hub.prove", proof=greeting.proof(key, "acceptor"))
        assert reason(reflected) == "not_paired"
    assert far.met == []


async def test_a_proof_of_another_line_proves_nothing(far: Far) -> None:
    far.keys[HERE] = SHARED
    await far.greet(hub=FAR, key=SHARED)
    heard = [json.loads(frame) for _, frame in far.lines[-1].passed]
    said = next(each["params"] for each in heard if each.get("method") == "hub.hello")
    proof = next(each["params"]["proof"] for each in heard if each.get("method") == "hub.prove")
    async with far.visit() as thief:
        await thief.call("hub.hello", **said)  # with the same nonce, too
        assert reason(await thief.ask("hub.prove", proof=proof)) == "not_paired"
    assert len(far.met) == 1


async def test_a_proof_for_one_hub_is_none_for_another(far: Far) -> None:
    """Who is asked to prove to a third cannot pass it on to this one, nor under another name."""
    far.keys[HERE] = far.keys[THIRD] = SHARED
    async with far.visit() as known:
        said = hello_by("key")
        answer = await known.call("hub.hello", **said)
        proof = (await known.call("hub.prove", proof=greeting_of(said, answer).proof(SHARED, "dialler")))["proof"]
        for changed in ({"hub": THIRD}, {"by": "folder"}):
            assert not greeting_of({**said, **changed}, answer).is_proof(SHARED, "acceptor", proof)
        assert not greeting_of(said, {**answer, "hub": THIRD}).is_proof(SHARED, "acceptor", proof)
        assert greeting_of(said, answer).is_proof(SHARED, "acceptor", proof)


async def test_a_hub_that_is_not_known_is_not_let_in_by_a_key(far: Far) -> None:
    trouble = await _trouble(far.greet(hub=FAR, key=SHARED))
    assert "does not know" in trouble.problem
    assert far.met == []


async def test_only_the_owner_comes_in_as_the_owner(far: Far) -> None:
    far.caller = ADMIN
    await far.greet(dialled={"by_owner": True})
    assert far.met == [Met(HERE, "home", None)]
    for caller in (OPEN, Caller(Rank.AGENT, "ann"), Caller(Rank.LINK, "x")):
        far.caller = caller
        trouble = await _trouble(far.greet(dialled={"by_owner": True}))
        assert "owner" in trouble.problem
    assert len(far.met) == 1


async def test_nothing_is_said_to_who_has_no_way_to_prove_itself(far: Far) -> None:
    trouble = await _trouble(far.greet())
    assert (trouble.kind, trouble.lasting) == (Kind.REFUSED, True)
    assert "Run 'angelia pair' there" in trouble.advice
    assert far.lines[-1].passed == []


# -------------------------------------------------------------------------------------------------- the folder's key


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "link.key"
    path.write_bytes(FOLDER_KEY + b"\n")
    path.chmod(0o600)
    return path


async def test_a_hub_of_the_same_user_is_let_in_by_the_key_of_its_folder(far: Far, key_file: Path) -> None:
    assert (await far.greet(dialled={"key_file": str(key_file)})).key is None
    assert far.met == [Met(HERE, "home", None)]


async def test_a_key_of_another_folder_lets_nobody_in(far: Far, key_file: Path) -> None:
    key_file.write_bytes(b"another")  # noqa: ASYNC240 - a few bytes
    trouble = await _trouble(far.greet(dialled={"key_file": str(key_file)}))
    assert (trouble.kind, "pair" in trouble.advice) == (Kind.REFUSED, True)
    assert far.met == []


@pytest.mark.parametrize("what", ["missing", "symlink", "folder", "pipe", "of another user", "unreadable", "empty"])
async def test_a_key_that_is_no_file_of_this_user_is_not_read(far: Far, key_file: Path, what: str) -> None:
    path = key_file
    if what == "missing":
        path.unlink()
    elif what == "symlink":
        path = key_file.with_name("link")
        path.symlink_to(key_file)
    elif what == "folder":
        path.unlink()
        path.mkdir()
    elif what == "pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif what == "empty":
        path.write_bytes(b"")
    elif os.geteuid() != 0 and what == "of another user":
        pytest.skip("only root can give a file away")
    elif what == "of another user":
        os.chown(path, 12345, 12345)
    else:
        path = Path("/proc/self/mem/link.key")
    trouble = await _trouble(far.greet(dialled={"key_file": str(path)}))
    assert (trouble.kind, trouble.lasting) == (Kind.REFUSED, True)
    assert far.met == []


# ------------------------------------------------------------------------------------------------------ misbehaviour


async def test_a_hub_that_is_itself_is_told_so(far: Far) -> None:
    trouble = await _trouble(far.greet(me=FAR, code=far.offer.make()))
    assert trouble.problem == "That is this hub itself."
    async with far.visit() as mirror:  # one that does not look
        said = hello_by("folder", hub=FAR)
        greeting = greeting_of(said, await mirror.call("hub.hello", **said))
        assert reason(await mirror.ask("hub.prove", proof=greeting.proof(FOLDER_KEY, "dialler"))) == "not_paired"
    assert far.met == []


@pytest.mark.parametrize(
    ("target", "typed"),
    [
        ("ws://127.0.0.1:41802", "ws://127.0.0.1:41802"),
        ("exec:env HOME=/x gateway --stdio", "'exec:env HOME=/x gateway --stdio'"),
        ("", "TARGET"),
    ],
)
async def test_the_command_to_pair_with_can_be_pasted(far: Far, target: str, typed: str) -> None:
    trouble = await _trouble(far.greet(target=target))
    assert trouble.advice == f"Run 'angelia pair' there, and here: angelia pair garage {typed}"


async def test_what_the_other_side_says_ends_with_one_stop(far: Far) -> None:
    for said in ("it speaks version 2", "It speaks version 2."):
        refused = Refused(400, said, {"reason": "wrong_version"})
        found = first_words._trouble(refused, Connection(name="garage"))
        assert found.problem == f"The other side says: {said.rstrip('.')}."
    with pytest.raises(Trouble) as wrong:
        hello.read_welcome({"version": VERSION, "nonce": nonce(), "hub": "x", "name": "garage"})
    assert wrong.value.problem.endswith("hex digits.")


async def test_another_hub_than_was_paired_is_told_apart_and_learns_nothing(far: Far) -> None:
    far.keys[HERE] = SHARED
    trouble = await _trouble(far.greet(hub=THIRD, key=SHARED))
    assert "Another hub answers there" in trouble.problem
    assert trouble.lasting
    assert far.met == []
    assert not any(b"hub.prove" in frame for _, frame in far.lines[-1].passed)


async def test_a_hub_that_is_connected_under_another_name_keeps_the_key_that_it_has(far: Far) -> None:
    """The two would agree on a new key, and the connection that is there would know the old one."""
    far.known[FAR] = Connection(name="shed", hub=FAR, key=SHARED)
    trouble = await _trouble(far.greet(code=far.offer.make()))
    assert trouble.problem.startswith("The hub there has a connection here already, shed.")
    assert trouble.lasting
    assert far.met == []
    far.known[FAR] = Connection(name="Garage", hub=FAR, key=SHARED)
    assert (await far.greet(code=far.offer.make())).hub == FAR


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5])
async def test_another_version_is_told_apart_on_both_sides(far: Far, version: object) -> None:
    async with far.visit() as old:
        refused = await old.ask("hub.hello", **hello_by("folder", version=version))
        assert isinstance(refused, Refused)
        assert refused.data["reason"] == "wrong_version"
    answer = {"version": version, "hub": FAR, "name": "garage", "nonce": nonce(), "proof": ""}
    trouble = await _trouble(_greet_script(hub_hello=answer))
    assert (trouble.kind, trouble.lasting) == (Kind.WRONG_VERSION, True)


@pytest.mark.parametrize(
    "said",
    [
        {"by": "magic"}, {"by": None}, {"by": ["key"]}, {"hub": "x"}, {"hub": None}, {"name": "a b"}, {"name": ""},
        {"name": None}, {"nonce": "x"}, {"nonce": None}, {"nonce": 7}, {"nonce": "x" * 5000}, {"name": "../../etc"},
    ],
    ids=repr,
)  # fmt: skip
async def test_a_hello_that_is_none_is_refused(far: Far, said: dict[str, Any]) -> None:
    async with far.visit() as stranger:
        refused = await stranger.ask("hub.hello", **{**hello_by("folder"), **said})
        assert isinstance(refused, Refused)
        assert refused.code != -32000, "nothing broke inside"
        assert reason(await stranger.ask("hub.prove", proof="")) == "not_proved"
    assert far.met == []


@pytest.mark.parametrize(
    "answer",
    [
        None, 7, [], {}, {"version": VERSION}, {"version": VERSION, "hub": FAR, "name": "garage", "nonce": "x"},
        {"version": VERSION, "hub": "x", "name": "garage", "nonce": "n" * 64},
        {"version": VERSION, "hub": FAR, "name": "a b", "nonce": "n" * 64},
    ],
    ids=repr,
)  # fmt: skip
async def test_an_answer_to_hello_that_is_none_is_told_as_another_version(answer: object) -> None:
    trouble = await _trouble(_greet_script(hub_hello=lambda _: answer))
    assert (trouble.kind, trouble.lasting) == (Kind.WRONG_VERSION, True)


@pytest.mark.parametrize("proof", [None, 7, "", "x", "0" * 64])
async def test_a_side_that_does_not_prove_itself_is_not_served(proof: object) -> None:
    answer = {"version": VERSION, "hub": FAR, "name": "garage", "nonce": nonce()}
    there: list[Stranger] = []
    trouble = await _trouble(_greet_script(there, hub_hello=answer, hub_prove={"connection": "home", "proof": proof}))
    assert (trouble.kind, trouble.lasting) == (Kind.REFUSED, True)
    assert "does not know our secret" in trouble.problem


async def test_a_side_that_says_nothing_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_words, "SECONDS", 0.1)
    trouble = await _trouble(_greet_script(hub_hello=asyncio.Event()))
    assert (trouble.kind, trouble.lasting) == (Kind.UNREACHABLE, False)


@pytest.mark.parametrize(
    ("refusal", "kind", "lasting"),
    [
        (Refusal(-32601, "no such method"), Kind.WRONG_VERSION, True),
        (Refusal(400, "too old", {"reason": "wrong_version"}), Kind.WRONG_VERSION, True),
        (Refusal(403, "no", {"reason": "not_paired"}), Kind.REFUSED, True),
        (Refusal(403, "no", {"reason": "wrong_code"}), Kind.REFUSED, True),
        (Refusal(403, "up", {"reason": "already_linked"}), Kind.REFUSED, False),
        (Refusal(403, "gone", {"reason": "removed"}), Kind.REFUSED, True),
        (Refusal(-32000, "broken", {"reason": ["?"]}), Kind.REFUSED, True),
    ],
)
async def test_each_refusal_is_told_in_words_that_help(refusal: Refusal, kind: Kind, lasting: bool) -> None:
    trouble = await _trouble(_greet_script(hub_hello=refusal))
    assert (trouble.kind, trouble.lasting) == (kind, lasting)
    assert trouble.problem
    assert trouble.advice


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("laptop", "There: angelia connect laptop"),
        (None, "Run 'angelia pair' there, and here: angelia pair garage ws://garage:1"),
        (["laptop"], "Run 'angelia pair' there, and here: angelia pair garage ws://garage:1"),
        ("x; rm -r ~", "Run 'angelia pair' there, and here: angelia pair garage ws://garage:1"),
        ("human", "Run 'angelia pair' there, and here: angelia pair garage ws://garage:1"),
    ],
)
async def test_who_was_removed_there_is_told_so_and_what_either_owner_can_type(name: object, there: str) -> None:
    refusal = Refusal(403, "The owner …", {"reason": "removed", "name": name})
    trouble = await _trouble(_greet_script(hub_hello=refusal))
    assert (trouble.kind, trouble.lasting) == (Kind.REFUSED, True)
    assert trouble.problem == "That hub's owner removed the connection."
    assert trouble.advice == f"{there}; or here: angelia disconnect garage"


async def test_nothing_but_hello_is_answered_before_it_and_it_is_said_once(far: Far) -> None:
    async with far.visit() as stranger:
        for method in ("hub.prove", "hub.send", "hub.roster", "hub.settle", "hub.ping", "prompt.submit", "x"):
            assert reason(await stranger.ask(method, messages=[], rows=[])) == "not_proved"
        await stranger.call("hub.hello", **hello_by("folder"))
        for method in ("hub.hello", "hub.send", "hub.roster", "hub.ping"):
            assert reason(await stranger.ask(method, **hello_by("folder"))) == "not_proved"
    assert far.met == []


async def test_two_hellos_and_two_proofs_at_once_count_as_one(far: Far) -> None:
    far.offer.make()
    async with far.visit() as eager:
        answers = await asyncio.gather(*(eager.ask("hub.hello", **hello_by("code")) for _ in range(5)))
        assert sum(isinstance(answer, dict) for answer in answers) == 1
    async with far.visit() as eager:
        said = hello_by("folder")
        greeting = greeting_of(said, await eager.call("hub.hello", **said))
        proof = greeting.proof(FOLDER_KEY, "dialler")
        answers = await asyncio.gather(*(eager.ask("hub.prove", proof=proof) for _ in range(5)))
        assert [reason(answer) for answer in answers[1:]] == ["not_proved"] * 4
    assert len(far.met) == 1


async def test_one_that_may_not_be_met_is_told_why(far: Far) -> None:
    async def no(met: Met) -> str:
        raise Refusal(403, "A link between the two hubs is up.", {"reason": "already_linked"})

    far.meets = no
    far.keys[HERE] = SHARED
    trouble = await _trouble(far.greet(hub=FAR, key=SHARED))
    assert (trouble.kind, trouble.lasting) == (Kind.REFUSED, False)


# -------------------------------------------------------------------------------------------------------------- rigging


async def _greet_script(there: list[Stranger] | None = None, **answers: object) -> Met:
    """Greet a scripted side, by a shared key."""
    line = Line()
    near, script = Stranger(line.ends[0]), Stranger(line.ends[1], **answers)
    if there is not None:
        there.append(script)
    connection = Connection(name="garage", target="ws://garage:1", hub=FAR, key=SHARED)
    async with running(near.run(), script.run()):
        dialled = Dialled(line.ends[0], Speaks.HUB)
        found = await _outcome(say_hello(near.channel, HERE, "home", connection, dialled, None, lambda _: None))
    return _met(found)


async def _outcome(greeting: Awaitable[Met]) -> Met | Trouble:
    """What it comes to, so that nothing is raised where lines are still open."""
    try:
        return await greeting
    except Trouble as trouble:
        return trouble


def _met(found: Met | Trouble) -> Met:
    if isinstance(found, Trouble):
        raise found
    return found


async def _trouble(work: Awaitable[object]) -> Trouble:
    """The trouble that it ends in."""
    with pytest.raises(Trouble) as caught:
        await work
    return caught.value
