"""Errors as OpenCode 1.18 says them, by the word that brings them about in its stand-ins."""

from typing import Any

ERRORS: dict[str, Any] = {
    "E401": {"name": "APIError", "data": {"message": "Incorrect API key: sk-1.", "statusCode": 401}},
    "E402": {"name": "APIError", "data": {"message": "Insufficient credits.", "statusCode": 402}},
    "EQUOTA": {"name": "APIError", "data": {"message": "You exceeded your current quota.", "statusCode": 429}},
    "E429": {
        "name": "APIError",
        "data": {"message": "Rate limit.", "statusCode": 429, "responseHeaders": {"retry-after": "7"}},
    },
    "E503": {"name": "APIError", "data": {"message": "Oh no.", "statusCode": 503}},
    "ECTX": {"name": "ContextOverflowError", "data": {"message": "too long"}},
    "EAUTH": {"name": "ProviderAuthError", "data": {"message": "no key"}},
    "ECUT": {"name": "UnknownError", "data": {"message": "Cannot connect to API: it hung up"}},
    "EODD": {"name": "A\nstrange one", "data": None},
}
