"""What was wrong with bytes that are no HTTP/1.1 request, in words that help whoever sent it.

What must stay true: nothing of what was sent is repeated.
"""

import httptools


def what_the_parser_says(error: BaseException | None) -> str:
    """A sentence for what the parser raised."""
    said = str(error).lower()
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return "This begins with no method of HTTP/1.1, such as GET or POST, which are in capitals."
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return "The path or query holds a character that no URL may: percent-encode it (ü is %C3%BC)."
    if "transfer-encoding" in said and "content-length" in said:
        return "A request has a Content-Length or a Transfer-Encoding, not both."
    if "duplicate content-length" in said:
        return "There is more than one Content-Length."
    if "content-length" in said:
        return "The Content-Length is no number."
    if "transfer-encoding" in said:
        return "The only Transfer-Encoding here is chunked."
    if "chunk" in said:
        return "The chunks of the body are not framed as they have to be."
    if "header" in said:
        return "A header has a character that none may have, or is no 'name: value'."
    return (
        f"This is not HTTP/1.1 ({error})." if isinstance(error, httptools.HttpParserError) else "This is not HTTP/1.1."
    )
