"""How a webhook is described: its address, its secret, and what is wrong with either.

What must stay true: a secret is read where it lies each time it is used, so that another may take its place, and is
shown in no sentence. A file with one is private. An address holds nothing that could end a line of a request early.
"""

import os
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from angelia.protocol import webhooks
from angelia.turns.adapters.port import Options, Tools
from angelia.turns.adapters.secret_file import UnfitSecret, secret_in


class WebhookOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``url``: where to post. The secret (``whsec_…``; two while one replaces the other) stands here as ``secret``, in
    a private file ``secret_file``, or in a variable of the hub ``secret_env``.

    ``allow_private``: the endpoint may be on this machine or its networks. ``answer``: in the ``response``, unless that
    has none; or always ``later``, by a reply, whatever the response holds.
    """

    url: str
    secret: str | None = None
    secret_file: str | None = None
    secret_env: str | None = None
    allow_private: bool = False
    answer: Literal["response", "later"] = "response"


def secrets_of(options: WebhookOptions, tools: Tools) -> list[str]:
    """The secrets, as they stand there now. Raises ``UnfitSecret`` with what is wrong, without showing them."""
    if options.secret_file is not None:
        text = secret_in(options.secret_file)
    elif options.secret_env is not None:
        text = tools.variables.get(options.secret_env, "")
    else:
        text = options.secret or ""
    secrets = text.split()
    if not secrets:
        raise UnfitSecret("The webhook has no secret where one should be.")
    for secret in secrets:
        try:
            webhooks.key_of(secret)
        except ValueError as error:
            raise UnfitSecret(f"The webhook has a secret that is none: {error}.") from None
    return secrets


def check(options: WebhookOptions, tools: Tools) -> str | None:
    """What is wrong with the options."""
    given = [one for one in (options.secret, options.secret_file, options.secret_env) if one is not None]
    if len(given) != 1:
        return "A webhook has one of: secret, secret_file, secret_env."
    if options.secret_file is not None and not os.path.isabs(options.secret_file):
        return "secret_file is a whole path."
    wrong = _url_trouble(options.url)
    if wrong:
        return wrong
    try:
        secrets_of(options, tools)
    except UnfitSecret as error:
        return str(error)
    return None


def _url_trouble(text: str) -> str | None:
    if not (text.isascii() and text.isprintable()) or " " in text:
        return "url is printable ASCII without spaces; everything else in it is written as %XX, a host's name as xn--…"
    try:
        url = urlsplit(text)
        known = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        known = False
        url = SplitResult("", "", "", "", "")
    if not known or url.fragment:
        return "url begins with http:// or https:// and a host, and has no part after a #."
    if "@" in url.netloc:
        return "url holds no name or password; the signature says who we are."
    return None
