"""What an agent is told with a message: the turn as its adapter gets it.

What must stay true: who writes and whether that is proved is said by the hub, outside the fence; the text inside is as
it was sent. A child gets its own agent's name and token, and nothing else of ours; a token that others can use, no turn
gets.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from pathlib import Path

from angelia.bus.core import Bus
from angelia.bus.ports import Parcel
from angelia.bus.runs import Run
from angelia.model.envelope import Envelope
from angelia.protocol.native import text_of
from angelia.protocol.prompt import Note, attribution, prompt
from angelia.turns.adapters.port import Turn
from angelia.turns.adapters.secret_file import secret_in
from angelia.turns.way import Way

BODY_BYTES = 32 * 1024  # of a body in a variable: the kernel takes 128 KiB for one, and some MiB for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """``url``: where agents find the hub; ``tokens``: the folder of their token files."""

    bus: Bus
    url: str
    tokens: str

    async def turn(self, run: Run, way: Way, *, again: bool) -> Turn:
        """The turn that is about to run, without its token (again: an earlier attempt may have left traces in the
        conversation)."""
        bus, envelope = self.bus, run.parcel.envelope
        conversation = run.mailbox if way.options.conversation == "agent" else f"{run.mailbox}-{envelope.thread}"
        name = f"session:{way.kind}:{conversation}"
        session = await bus.store.read(lambda view: view.note(name))
        text = said(envelope)
        key = f"{envelope.id}-{run.parcel.delivery.attempt}"
        return Turn(
            agent=run.agent,
            message=envelope,
            text=text,
            prompt=prompt(envelope, text, [_note(note) for note in run.notes], self._randomness(key)),
            stamped=attribution(self._title(envelope.sender), envelope.sender) + text,
            conversation=conversation,
            session=session.decode() if session is not None else None,
            key=key,
            again=again,
            seconds=way.options.timeout_seconds or bus.limits.turn_seconds,
            environment=self._environment(run, conversation),
            begun=self._remember(name),
        )

    def with_token(self, run: Run, turn: Turn) -> Turn:
        """The same turn with the token that ``angelia join`` kept for its agent, where there is one. Raises
        ``UnfitSecret``: without its token an agent could not answer under its name."""
        folder = Path(self.tokens)
        found = [file for file in folder.iterdir() if file.name.lower() == run.mailbox] if folder.is_dir() else []
        if not found:
            return turn
        return replace(turn, environment={**turn.environment, "ANGELIA_TOKEN": secret_in(str(found[0]))})

    def _title(self, sender: str) -> str:
        agent = self.bus.directory.find(sender.lower())
        return agent.title if agent is not None and agent.title else sender

    def _remember(self, name: str) -> Callable[[str], None]:
        def begun(session: str) -> None:
            now = self.bus.clock.now()
            self.bus.submit(lambda tx: tx.put_note(name, session.encode(), now))

        return begun

    def _randomness(self, key: str) -> Callable[[int], bytes]:
        """Bytes that nobody else can guess, and the same when the same attempt is told again: after a crash its prompt
        is looked for in the agent's history."""
        calls = count()

        def some(size: int) -> bytes:
            return blake2b(f"fence {key} {next(calls)}".encode(), key=self.bus.store.secret, digest_size=size).digest()

        return some

    def _environment(self, run: Run, conversation: str) -> dict[str, str]:
        envelope = run.parcel.envelope
        told = {
            "ANGELIA_AGENT": run.agent,
            "ANGELIA_URL": self.url,
            "ANGELIA_FROM": envelope.sender,
            "ANGELIA_VERIFIED": "1" if envelope.verified else "0",
            "ANGELIA_ID": envelope.id,
            "ANGELIA_THREAD": envelope.thread,
            "ANGELIA_INTENT": envelope.intent.value,
            "ANGELIA_KIND": envelope.kind.value,
            "ANGELIA_ATTEMPT": str(run.parcel.delivery.attempt),
            "ANGELIA_CONVERSATION": conversation,
        }
        if envelope.body is not None and len(envelope.body) <= BODY_BYTES:
            told["ANGELIA_BODY"] = envelope.body.decode()
        return told


def _note(parcel: Parcel) -> Note:
    return Note(parcel.envelope.sender, said(parcel.envelope))


def said(envelope: Envelope) -> str:
    """What a message says: its text, else its body as JSON."""
    text = text_of(envelope)
    return text if text is not None else (envelope.body or b"").decode()
