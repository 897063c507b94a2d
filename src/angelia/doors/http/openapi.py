"""The contract as an OpenAPI 3.1 document, made from the list of routes and the shapes in ``protocol/``.

What must stay true: an answer whose status, kind or shape the document does not name is a fault, and
``tests/acceptance/test_contract.py`` looks for one. Every refusal is a problem with one of the codes of
``model/errors.py``. What is asked is described as far as a program can use it; the hub is the one who checks.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from angelia.model import errors
from angelia.model.address import PATTERN
from angelia.model.delivery import State
from angelia.protocol.json import encode

if TYPE_CHECKING:
    from angelia.doors.http.routes import Route

JSON, PROBLEM = "application/json", "application/problem+json"
Schema = Mapping[str, object]


def describe(routes: "Iterable[Route]", version: str) -> bytes:
    """The document as JSON."""
    listed = list(routes)
    named = (shape for route in listed for shape in (route.takes, route.gives, *(route.batch or ())))
    shapes = list(dict.fromkeys(shape for shape in named if shape is not None))
    references, schemas = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    by_shape = dict(zip(shapes, references, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_shape)
    schemas["Problem"] = _problem()
    return encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Angelia", "version": version, "license": {"name": "MIT", "identifier": "MIT"}},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"token": []}],
        }
    )


# Of an answer that is no JSON, by the last word of its path.
_KINDS = {
    "stream": "text/event-stream",
    "subscribe": "text/event-stream",
    "events": "text/event-stream",
    "briefing": "text/markdown",
}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NAME: Schema = {"type": "string", "pattern": f"^{PATTERN}$"}
_IN_PATHS: dict[str, Schema] = {"handle": _NAME, "name": _NAME}
_BEHIND: dict[str, Schema] = {  # after the ``?``; what is not here is any text
    "limit": _COUNT,
    "after": _COUNT,
    "before": {**_COUNT, "maximum": (1 << 40) - 1},
    "last": _COUNT,
    "window": _COUNT,
    "wait": {"type": "number"},
    "ack": {"enum": ["auto", "manual"]},
    "mode": {"enum": ["own", "observe"]},
    "state": {"type": "string", "description": "Any of these, with commas: " + ", ".join(s.word for s in State)},
}


def _problem() -> Schema:
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    return {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "code": {"enum": sorted(codes)},
            "detail": _TEXT,
        },
    }


def _operation(route: "Route", by_shape: Mapping[type, Schema]) -> Schema:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _IN_PATHS.get(name, _TEXT)}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": _BEHIND.get(name, _TEXT)} for name in route.arguments]
    operation: dict[str, object] = {
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "parameters": parameters,
        "responses": _responses(route, by_shape),
    }
    if route.takes is not None:
        taken = _either(by_shape[route.takes], by_shape[route.batch[0]] if route.batch else None)
        operation["requestBody"] = {"content": {JSON: {"schema": taken}}}
    elif route.path == "/broadcast":
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    return operation


def _either(one: Schema, other: Schema | None) -> Schema:
    return one if other is None else {"anyOf": [one, other]}


def _responses(route: "Route", by_shape: Mapping[type, Schema]) -> dict[str, object]:
    """What it may be answered with, by status. A stream's schema is that of the data of its messages."""
    kind = _KINDS.get(route.path.rpartition("/")[2], JSON)
    shape = _TEXT if route.gives is None else by_shape[route.gives]
    shape = _either(shape, by_shape[route.batch[1]] if route.batch else None)
    given: dict[str, Schema] = {kind: {"schema": shape if kind == JSON else _TEXT}}
    if kind != JSON and route.gives is not None:
        given = {kind: {"schema": _TEXT, "x-data": shape}}
    problem: dict[str, Schema] = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, object] = {}
    for status in route.answers:
        if status == 304:
            found["304"] = {"description": "Nothing has changed"}
        elif status < 400:
            found[str(status)] = {"description": "Done", "content": given}
        else:
            found[str(status)] = {"description": "Not well, or refused", "content": {**given, **problem}}
    return found | {
        "4XX": {"description": "Refused: the same call again is refused again", "content": problem},
        "5XX": {"description": "Not now: ask again later", "content": problem},
    }
