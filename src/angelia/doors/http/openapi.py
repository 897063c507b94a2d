"""The contract as an OpenAPI 3.1 document, made from the list of routes and the shapes in ``protocol/native.py``."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from angelia.protocol.json import encode

if TYPE_CHECKING:
    from angelia.doors.http.routes import Route

REFERENCE = "#/components/schemas/{name}"


def describe(routes: "Iterable[Route]", version: str) -> bytes:
    """The document as JSON."""
    listed = list(routes)
    shapes = list(dict.fromkeys(shape for route in listed for shape in (route.takes, route.gives) if shape is not None))
    references, schemas = msgspec.json.schema_components(shapes, ref_template=REFERENCE)
    by_shape = dict(zip(shapes, references, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_shape)
    schemas["Problem"] = _PROBLEM
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
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}


def _operation(route: "Route", by_shape: dict[type, dict[str, object]]) -> dict[str, object]:
    parameters: list[dict[str, object]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in route.arguments]
    kind = _KINDS.get(route.path.rpartition("/")[2], "application/json")
    schema = by_shape[route.gives] if route.gives is not None else {}
    operation: dict[str, object] = {
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "Done", "content": {kind: {"schema": schema}}},
            "default": {
                "description": "Refused, with a stable code",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if route.takes is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": by_shape[route.takes]}}}
    elif route.path == "/broadcast":
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    return operation
