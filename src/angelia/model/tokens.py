"""What a token looks like, so that one which stands in a wrong place is known for what it is.

What must stay true: every token that this hub makes is found, an agent's (32 random bytes as 43 signs), the owner's and
a link's key (64 hexadecimal digits), a lease's; and no id of a message is taken for one. Where it was cut, as errors
cut what they quote, so that ``CUT`` signs are left, it is found, too.
"""

import base64
import re

CUT = 40  # signs of a word that an error quotes; an id has 32
HIDDEN = "(token)"
_SIGN = "[A-Za-z0-9_-]"
_MIXED = rf"(?={_SIGN}*[a-z])(?={_SIGN}*[A-Z])(?={_SIGN}*[0-9])"  # as a word of people's seldom is
_DIGIT = "[0-9a-f]"
_HEX = rf"(?={_DIGIT}*[a-f])(?={_DIGIT}*[0-9])"
_WHOLE = re.compile(rf"{_MIXED}{_SIGN}{{43}}|{_HEX}{_DIGIT}{{64}}")
_ANYWHERE = re.compile(
    rf"(?<!{_SIGN}){_MIXED}{_SIGN}{{{CUT},}}"
    rf"|(?<!{_DIGIT}){_HEX}{_DIGIT}{{{CUT},}}"
    rf"|(?<![0-9])[0-9]+-[0-9]+-{_DIGIT}{{24}}(?!{_DIGIT})"
)


def written(secret: bytes) -> str:
    """Random bytes as a token."""
    return base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def is_like_a_token(text: str) -> bool:
    """Whether it is one, as far as can be seen: somebody may have put theirs where a name belongs."""
    return len(text) in (43, 64) and _WHOLE.fullmatch(text) is not None


def masked(text: str) -> str:
    """A text with ``HIDDEN`` in the place of every token."""
    return _ANYWHERE.sub(HIDDEN, text)
