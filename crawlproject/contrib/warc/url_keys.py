"""The keys of an index: URLs with their hosts reversed, without what makes no other page (SURT).

By the rules of the Wayback Machine (webarchive-commons), as pywb and cdxj-indexer apply them. Their package surt
has a licence that this project's users would have to follow, too (AGPL).
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

_SAFE = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"  # what is not escaped, beside letters and digits
_PORTS = {"http": 80, "https": 443}
_ESCAPED_ESCAPE = re.compile(rb"%(?:25)++")  # in one step: the time is linear
_WWW = re.compile(r"www\d*+\.")
_SESSION_IN_PATH = re.compile(r"(?<=/)\((?:(?:[a-z]\([0-9a-z]{24}\))++|[0-9a-z]{24})\)/")
_SESSION_IN_QUERY = re.compile(
    r"(?:(?:jsessionid|phpsessid|sid)=[0-9a-z]{32}|aspsessionid[a-z]{8}=[a-z]{24}|cfid=[^&=]++&cftoken=[^&]++)(?:&|\Z)"
)


def url_key(url: str) -> str:
    """Return the key of a URL; the URL itself where it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = unquote_to_bytes(parts.hostname or "").decode(errors="replace").replace("..", ".").strip(".")
    www = _WWW.match(host)
    key = ",".join(reversed(host[www.end() if www else 0 :].split(".")))
    if port and port != _PORTS.get(parts.scheme):
        key += f":{port}"
    key += f"){_path(parts.path)}"
    query = _SESSION_IN_QUERY.sub("", _escaped(_unescaped(parts.query)))
    query = "&".join("=".join(pair) for pair in sorted(one.split("=", 1) for one in query.split("&")))
    return f"{key}?{query}" if query else key


def _path(path: str) -> str:
    kept: list[bytes] = []
    for part in _unescaped(path).split(b"/")[1:]:
        if part == b".." and kept:
            kept.pop()
        elif part != b".":
            kept.append(part)
    *folders, last = kept or [b""]
    found = _escaped(b"/" + b"".join(part + b"/" for part in folders if part) + last)
    if found.endswith(".aspx"):
        found = _SESSION_IN_PATH.sub("", found)
    return found.removesuffix("/") or "/"


def _unescaped(text: str) -> bytes:
    """Return a text without escapes, nor what was escaped several times."""
    data = text.encode(errors="replace")
    while (found := unquote_to_bytes(_ESCAPED_ESCAPE.sub(b"%", data))) != data:
        data = found
    return data


def _escaped(data: bytes) -> str:
    return quote_from_bytes(data, safe=_SAFE).lower()
