"""The connections that stand in the settings, as the hub keeps them.

What must stay true: one that cannot be kept is ``SettingsError``, which names the file and the key, before the hub
serves. Secrets are not in the file: it says in which file or variable each stands.
"""

import os

from angelia.model.connection import Connection
from angelia.protocol.connections import WrongField, read
from angelia.settings import Settings, SettingsError

_PATHS = ("token_file", "password_file", "ca_file")
_SECRETS = {"token": "token_file or token_variable", "password": "password_file or password_variable"}


def connections_of(settings: Settings) -> list[Connection]:
    """Every connection of ``[connections.NAME]``, in the order of the file."""
    return [_connection(settings, name) for name in settings.connections]


def _connection(settings: Settings, name: str) -> Connection:
    where = settings.where(f"connections.{name}")
    fields = dict(settings.connections[name])
    for secret, instead in _SECRETS.items():
        if secret in fields:
            raise SettingsError(f"{where}.{secret}", "does not belong in a file that is read and copied", instead)
    for field in _PATHS:
        path = fields.get(field)
        if isinstance(path, str):
            fields[field] = os.path.expanduser(path)
    try:
        return read(name, fields, fixed=True)
    except WrongField as wrong:
        raise SettingsError(f"{where}.{wrong.field}", wrong.problem, wrong.allowed) from None
