"""What a model's answer looks like on the wire, for each of the four dialects that the lab's agents speak.

Each dialect turns one ``Reply`` into a whole answer or into the events of a stream, and one ``Fault`` into its error.
What is answered, and when it fails, is ``model.py``'s part.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MODEL = "fake-model"
CONTEXT_TOKENS = 200_000
MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "lab", "context_length": CONTEXT_TOKENS}],
}

Event = tuple[str | None, Any]  # the event's name, if it has one; its data


@dataclass(frozen=True)
class ToolCall:
    name: str  # may carry a namespace: `space::tool`
    arguments: str


@dataclass(frozen=True)
class Reply:
    """What the model says, or the tool that it calls. ``number`` makes its ids."""

    number: str
    text: str
    tool: ToolCall | None = None


@dataclass(frozen=True)
class Fault:
    status: int
    kind: str
    code: str
    message: str
    retry_after: str | None = None


class Dialect(Protocol):
    def whole(self, reply: Reply) -> dict[str, Any]: ...

    def events(self, reply: Reply) -> Iterator[Event]: ...

    def error(self, fault: Fault) -> dict[str, Any]: ...


class Chat:
    """OpenAI, chat completions."""

    def _head(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{reply.number}", "created": 1, "model": MODEL, "object": kind}

    def _message(self, reply: Reply) -> dict[str, Any]:
        if reply.tool is None:
            return {"role": "assistant", "content": reply.text}
        function = {"name": reply.tool.name, "arguments": reply.tool.arguments}
        call = {"index": 0, "id": f"call_{reply.number}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    _usage: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}  # noqa: RUF012 — read only

    def whole(self, reply: Reply) -> dict[str, Any]:
        choice = {"index": 0, "message": self._message(reply), "finish_reason": "tool_calls" if reply.tool else "stop"}
        return {**self._head(reply, "chat.completion"), "choices": [choice], "usage": self._usage}

    def events(self, reply: Reply) -> Iterator[Event]:
        head = self._head(reply, "chat.completion.chunk")
        for delta, finish in (self._message(reply), None), ({}, "tool_calls" if reply.tool else "stop"):
            yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        yield None, {**head, "choices": [], "usage": self._usage}
        yield None, "[DONE]"

    def error(self, fault: Fault) -> dict[str, Any]:
        return {"error": {"message": fault.message, "type": fault.kind, "code": fault.code, "param": None}}


class Responses:
    """OpenAI, responses."""

    def _item(self, reply: Reply) -> dict[str, Any]:
        if reply.tool is None:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            about = {"id": f"msg_{reply.number}", "role": "assistant", "status": "completed"}
            return {"type": "message", **about, "content": content}
        space, _, name = reply.tool.name.rpartition("::")
        called = {"name": name, "arguments": reply.tool.arguments, "call_id": f"call_{reply.number}"}
        about = {"id": f"fc_{reply.number}", "status": "completed"} | ({"namespace": space} if space else {})
        return {"type": "function_call", **about, **called}

    def whole(self, reply: Reply) -> dict[str, Any]:
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10, **details}
        about = {"id": f"resp_{reply.number}", "object": "response", "created_at": 1, "status": "completed"}
        return {**about, "model": MODEL, "output": [self._item(reply)], "usage": usage}

    def events(self, reply: Reply) -> Iterator[Event]:
        whole, item = self.whole(reply), self._item(reply)
        begun = {**whole, "status": "in_progress", "output": []}
        steps: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        if reply.tool is None:
            started = {**item, "status": "in_progress", "content": []}
            steps.append({"type": "response.output_item.added", "output_index": 0, "item": started})
            where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            steps.append({"type": "response.output_text.delta", **where, "delta": reply.text})
        steps.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        steps.append({"type": "response.completed", "response": whole})
        for step in steps:
            yield step["type"], step

    def error(self, fault: Fault) -> dict[str, Any]:
        return Chat().error(fault)


class Messages:
    """Anthropic, messages."""

    def _block(self, reply: Reply) -> dict[str, Any]:
        if reply.tool is None:
            return {"type": "text", "text": reply.text}
        called = {"name": reply.tool.name, "input": json.loads(reply.tool.arguments)}
        return {"type": "tool_use", "id": f"toolu_{reply.number}", **called}

    def whole(self, reply: Reply) -> dict[str, Any]:
        about = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant", "model": MODEL}
        ended = {"stop_reason": "tool_use" if reply.tool else "end_turn", "stop_sequence": None}
        return {**about, "content": [self._block(reply)], **ended, "usage": {"input_tokens": 5, "output_tokens": 5}}

    def events(self, reply: Reply) -> Iterator[Event]:
        whole, block = self.whole(reply), self._block(reply)
        start = {**whole, "content": [], "stop_reason": None}
        if reply.tool is None:
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": reply.text}
        else:
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": reply.tool.arguments}
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        for step in (
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ):
            yield str(step["type"]), step

    def error(self, fault: Fault) -> dict[str, Any]:
        kind = "rate_limit_error" if fault.status == 429 else fault.kind
        # The one text that Claude Code knows a full context by.
        full = fault.code == "context_length_exceeded"
        message = "prompt is too long: 250000 tokens > 200000 maximum" if full else fault.message
        return {"type": "error", "error": {"type": kind, "message": message}}


class Generate:
    """Gemini, generateContent."""

    def whole(self, reply: Reply) -> dict[str, Any]:
        part: dict[str, Any] = {"text": reply.text}
        if reply.tool is not None:
            part = {"functionCall": {"name": reply.tool.name, "args": json.loads(reply.tool.arguments)}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 5, "totalTokenCount": 10}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}

    def events(self, reply: Reply) -> Iterator[Event]:
        yield None, self.whole(reply)

    _words = ((401, "UNAUTHENTICATED"), (429, "RESOURCE_EXHAUSTED"), (400, "INVALID_ARGUMENT"), (500, "INTERNAL"))

    def error(self, fault: Fault) -> dict[str, Any]:
        word = dict(self._words).get(fault.status, "UNKNOWN")
        return {"error": {"code": fault.status, "message": fault.message, "status": word}}


def of(path: str) -> Dialect | None:
    """The dialect that is spoken at ``path``; None where none is."""
    bare = path.partition("?")[0]
    if "enerateContent" in bare:
        return Generate()
    endings: dict[str, Dialect] = {"/chat/completions": Chat(), "/responses": Responses(), "/messages": Messages()}
    return next((dialect for ending, dialect in endings.items() if bare.endswith(ending)), None)


def text_of(content: Any) -> str:
    """The text in a message's content, which is a string, a block, or a list of either."""
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or content.get("parts"))
    if isinstance(content, Sequence) and not isinstance(content, str):
        return "\n".join(text_of(part) for part in content)
    return content if isinstance(content, str) else ""


def name_of(tool: dict[str, Any]) -> str:
    """What a tool on offer is called."""
    function = tool.get("function")
    return str(
        tool.get("name") or (function.get("name") if isinstance(function, dict) else "") or tool.get("type") or ""
    )


def tool_answer(messages: Sequence[dict[str, Any]]) -> str | None:
    """What a tool said, where that is what the model is asked about now. A note may follow."""
    for message in reversed(messages[-3:]):
        if message.get("role") == "tool" or message.get("type") == "function_call_output":
            return text_of(message.get("content") or message.get("output")) or json.dumps(message)
        content = message.get("content") or message.get("parts")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and (part.get("type") == "tool_result" or "functionResponse" in part):
                return text_of(part.get("content")) or json.dumps(part)
    return None
