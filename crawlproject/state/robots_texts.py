"""How the text of a robots.txt is stored: compressed, and a short one so that Redis keeps its copy compact.

Redis stores a hash as a table, which takes half a kilobyte more, as soon as one of its values is longer than 64
bytes. Most robots.txt say what others say, too: with that, and their own address, known to the compression, they
take less.
"""

from __future__ import annotations

import zlib

from crawlproject.politeness.robots_txt import MAX_BYTES

SHORT = "short"  # the kind of a copy that is compressed like that; versions without it fetch its robots.txt anew

_COMPACT = 64  # bytes: `hash-max-ziplist-value`
_LONGEST = 1024  # bytes that are tried
_COMPRESSED = b"\0zlib\0"  # begins the stored text of another; no site's text begins so
_LONGEST_ROBOTS = MAX_BYTES + 1

# What most robots.txt are made of, the most frequent last. Never to be changed: copies that are stored need it.
_DICTIONARY = (
    b"Mediapartners-Google AdsBot-Google Baiduspider YandexBot DotBot MJ12bot PetalBot SemrushBot AhrefsBot "
    b"Amazonbot Applebot-Extended Bytespider CCBot ClaudeBot anthropic-ai PerplexityBot meta-externalagent "
    b"Google-Extended GPTBot ChatGPT-User /cgi-bin/ /tmp/ /includes/ /misc/ /modules/ /profiles/ /scripts/ "
    b"/themes/ /core/ /install.php /update.php /xmlrpc.php /node/add/ /filter/tips /user/register /user/password "
    b"/user/login "
    b"/user/logout /index.php/ /administrator/ /cache/ /components/ /language/ /libraries/ /logs/ /plugins/ /api/ "
    b"/private/ /internal/ /members/ /login /register /account /checkout /cart /basket /orders /wishlist "
    b"/customer/ /catalogsearch/ /search /search? /tag/ /author/ /feed/ /comments/ /trackback/ /wp-login.php "
    b"/wp-content/plugins/ /wp-content/uploads/ /wp-includes/ /wp-json/ /?s= /*? *.pdf$ *?s= Crawl-delay: 10\n"
    b"Host: www.\nUser-agent: Googlebot\nAllow: /\n\nUser-agent: *\nDisallow:\n\nUser-agent: *\nDisallow: /\n"
    b"Disallow: /admin/\nDisallow: /search/\nDisallow: /cart/\nDisallow: /checkout/\nDisallow: /my-account/\n"
    b"Disallow: /*?add-to-cart=\nUser-agent: *\nDisallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\n\n"
    b"Sitemap: /sitemap.xml\n/wp-sitemap.xml\n/sitemap_index.xml\nSitemap: "
)


def packed(body: bytes, url: str) -> tuple[str, bytes]:
    """Return the text of the robots.txt at `url` as it is stored, and the kind of that copy."""
    if len(body) <= _LONGEST:
        compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_known(url))
        short = compressor.compress(body) + compressor.flush()
        if len(short) <= _COMPACT:
            return SHORT, short
    compressed = _COMPRESSED + zlib.compress(body)
    keeps = len(body) < len(compressed) and not body.startswith(_COMPRESSED)
    return "rules", body if keeps else compressed


def unpacked(kind: str, stored: bytes, url: str) -> bytes:
    """Return the text of a copy; of what others have written, no more than is read of one, or nothing."""
    try:
        if kind == SHORT:
            decompressor = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_known(url))
            return decompressor.decompress(stored, _LONGEST_ROBOTS)
        if stored.startswith(_COMPRESSED):
            return zlib.decompressobj().decompress(stored.removeprefix(_COMPRESSED), _LONGEST_ROBOTS)
    except zlib.error:
        return b""
    return stored


def _known(url: str) -> bytes:
    return _DICTIONARY + url.encode("ascii", "ignore").removesuffix(b"robots.txt")
