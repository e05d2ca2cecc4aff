"""Mutated texts of strangers through all that reads them, for some time: a result, or the documented error.

    python -m benchmarks.fuzz_texts [--seconds 600] [--seed N] [--only READER ...] [--keep DIR]

Seeds, files of seeds, stored requests, content codings, robots.txt, Retry-After and Cache-Control, opt-outs, and
hosts that may be addresses: good samples of each with bytes changed, cut out, doubled, and exchanged for what has
a meaning there. Each result is looked at, too: see the functions below. Prints how many ended how, the slowest
of each reader, and peak memory. `--keep` gets the texts that ended otherwise or took too long. Exit code 1 when
there were any.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import hashlib
import json
import math
import random
import re
import resource
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import brotli
import msgpack
from backports import zstd
from scrapy import Request

from benchmarks.fuzz_pictures import mutated
from crawlproject.errors import BadEntry, BadSeed
from crawlproject.frontier import codec
from crawlproject.frontier.dupefilter import SeenFilter
from crawlproject.frontier.seeds import LONGEST_IDENTIFIER, new_request, parse_seed
from crawlproject.imaging.codings import decoded
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.ingest import files as feedfile
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.models import OPT_OUTS, Seed
from crawlproject.politeness.addresses import AddressGuard, literal, port_of
from crawlproject.politeness.optouts import opt_outs
from crawlproject.politeness.reasons import retry_after
from crawlproject.politeness.robots_txt import MAX_BYTES, Rules, freshness, robots_url
from crawlproject.sources.domains import canonical_host, domain_of_url, host_of_url, url_fault, with_canonical_host
from crawlproject.sources.names import is_name
from crawlproject.spiders.images import ImagesSpider
from crawlproject.storage.blobs import thumbnail_name
from crawlproject.texts import LONGEST_URL, printable, shown_seed, without_userinfo

MIB = 1 << 20
TOO_LONG = 2.0  # seconds for one text, on a machine that has other work
HANGS = 60  # seconds
LARGEST = 1_000_000  # bytes that a content coding may hold
MOST_MEMORY = 512 * MIB

SPIDER = ImagesSpider()
SEEN = SeenFilter()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = re.compile(r"[0-9a-f]{2}/[A-Za-z0-9._%-]{1,200}\.jpg")

URLS = (
    b"https://museum.org/a.jpg",
    b"http://[2001:db8::7]:8080/%7Ea/?b=c&d#e",
    "http://www.bücher.de/ä b.jpg".encode(),
    b"http://127.0.0.1:80/..;/a",
    b"http://user:S3CRET@museum.org/a",
)
SEED = {"url": "https://museum.org/a.jpg", "uuid": "b-1", "source": "Museum", "priority": 4, "again": True}
JSON = (json.dumps(SEED).encode(), b'{"identifier": 7, "url": "http://a/", "source": null, "priority": -1}')

TOKENS: tuple[bytes, ...] = (
    *(
        b"\x00",
        b"\n",
        b"\r\n",
        b"\t",
        b'"',
        b"\\",
        b"'",
        b",",
        b";",
        b":",
        b"=",
        b"/",
        b"//",
        b"@",
        b"#",
        b"?",
        b"%",
    ),
    *(
        b"%00",
        b"%2e%2e%2f",
        b"../",
        b"..",
        b"[",
        b"]",
        b"{",
        b"}",
        b"[[[[",
        b"null",
        b"true",
        b"NaN",
        b"1e400",
        b"-1",
    ),
    *(b"9" * 20, b"9" * 5000, b"\\ud800", b"\\u0000", b"\xff\xfe", b"\xef\xbb\xbf", "\u2028\u202e\u0085".encode()),
    *(
        "\u0130\u212a\u00df\uff0e".encode(),
        b"xn--",
        b"http://",
        b"https:",
        b"file://",
        b"S3CRET@",
        b"0x7f",
        b"0177",
    ),
    *(
        b"User-agent: *\n",
        b"Disallow: /",
        b"Crawl-delay: ",
        b"Content-Usage: / ai=n",
        b"Allow: *$",
        b"*" * 40,
        b"$",
        b"crawlproject",
    ),
    *(b"Fri, 31 Dec 1999 23:59:59 GMT", b"0001-01-01", b"9999-12-31T23:59:60+24:00", b"-0", b"noai", b"=n"),
)


class Reader(NamedTuple):
    """What reads texts: good samples, and a function that raises nothing but the errors of `refuses`."""

    samples: Sequence[bytes]
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = ()


def _check_seed(seed: Seed) -> None:
    """A seed can be named and stored, comes back as it was, and has no password."""
    assert len(seed.url) <= LONGEST_URL
    assert url_fault(seed.url) is None
    assert 1 <= len(seed.identifier) <= LONGEST_IDENTIFIER
    assert seed.priority is None or 0 <= seed.priority <= 4
    assert NAME.fullmatch(thumbnail_name(seed.identifier))
    parts = urlsplit(seed.url)
    assert (parts.username, parts.password) == (None, None)
    try:
        request = SPIDER.request_for(seed)
        new = new_request(request, SPIDER, SEEN)
    except (TypeError, ValueError):  # a dead letter, too: seeds.py
        return
    assert is_name(new.source or new.domain or "")
    again = codec.decode(new.entry, SPIDER)
    assert (again.url, again.meta, again.priority) == (request.url, request.meta, request.priority)


def read_seed(data: bytes) -> None:
    """Read a line of the seed list; as `scrapy dead list` shows it, too."""
    shown_seed(data.decode(errors="replace"))
    try:
        seed = parse_seed(data)
    except BadSeed as error:
        assert len(printable(str(error), 1000)) <= 1000
        assert len(str(error)) < 10_000
        raise
    _check_seed(seed)


FILE = Path(tempfile.gettempdir()) / f"crawl-fuzz-{random.SystemRandom().randrange(1 << 60):x}"


def read_file(data: bytes) -> None:
    """Read a file of seeds: what it gives out as seeds are some."""
    FILE.write_bytes(data)
    size, before = 0, 0
    for line in feedfile.read(SeedFile(str(FILE)), lambda _: None):
        assert line.number > before or line.seed is None
        before = line.number
        if line.seed is None:
            assert line.reason
        else:
            _check_seed(parse_seed(line.seed))
        if (size := size + 1) > 10_000:
            break


def read_entry(data: bytes) -> None:
    """Read a stored request: what can be decoded is encoded to what is decoded to the same."""
    codec.peek(data)
    codec.deliveries_of(data)
    if len(data) >= 3:
        assert codec.deliveries_of(codec.renewed(data)) == 0
    request = codec.decode(data, SPIDER)
    assert request.url.startswith(("http://", "https://"))
    again = codec.decode(codec.encode(request, SPIDER, deliveries=1), SPIDER)
    assert again.to_dict(spider=SPIDER) | {"priority": 0} == request.to_dict(spider=SPIDER) | {"priority": 0}


def read_coding(data: bytes) -> None:
    """Undo the coding that the first byte chooses."""
    codings = ("gzip", "deflate", "br", "zstd")
    first = data[0] if data else 0
    names = (codings[first % 4], codings[first // 4 % 4])[: 1 + first // 128]
    assert len(decoded(data[1:], names, LARGEST)) <= LARGEST


def read_robots(data: bytes) -> None:
    """Read a robots.txt: it has an answer for every URL, and itself may always be fetched."""
    rules = Rules.parse(data[: MAX_BYTES + 1])
    assert rules.delay is None or (math.isfinite(rules.delay) and rules.delay >= 0)
    assert rules.allows("http://museum.org/robots.txt")
    for url in ("http://museum.org/", "http://museum.org/a/b.jpg?c=%2A", data[:200].decode("latin-1")):
        verdict, rule = rules.allows(url), rules.rule_for(url)
        assert verdict or rule is not None
        assert rule is None or rule[0] >= 1
        assert rules.opt_outs(url).keys() <= OPT_OUTS.keys()


def read_header(data: bytes) -> None:
    """Read Retry-After, Cache-Control and the opt-outs."""
    asked = retry_after(data, NOW)
    assert asked is None or (math.isfinite(asked) and asked >= 0)
    assert 60 <= freshness(data) <= 86400
    for name in ("X-Robots-Tag", "Content-Usage", "Content-Signal", "TDM-Reservation"):
        assert set(opt_outs({name.encode(): [data]}, NOW)) <= OPT_OUTS.keys()


def read_host(data: bytes) -> None:
    """Judge a URL: one that may be requested has a host, a port and a robots.txt, and shows no password."""
    text = data.decode("latin-1")[:LONGEST_URL]
    host = literal(text)
    assert host is None or AddressGuard().refusal([host], 80) is not None or host.is_global
    for spelled in (text, f"http://{text}/"):
        without_userinfo(spelled)
        try:
            url = Request(with_canonical_host(spelled)).url  # it is looked at again, as it is then
        except ValueError:
            continue
        if url_fault(url) is None:
            assert 0 < port_of(url) < 65536
            assert domain_of_url(url)
            assert canonical_host(host_of_url(url)) == host_of_url(url)
            assert robots_url(url).isprintable()


def _entry(**more: object) -> bytes:
    request = {"url": "http://a/", "callback": None, "errback": "failed", **more}
    return bytes((1, 0, 2)) + bytes(msgpack.packb(request))


PLAIN = b"picture" * 50 + bytes(range(256))
READERS = {
    "seeds": Reader((*URLS, *JSON), read_seed, (BadSeed,)),
    "files": Reader(
        (
            b"url\tidentifier\tsource\thttp://a/\t1\n" + b"http://a/x\tb\tmuseum\t0\n" * 3,
            b'url,uuid,priority,again\n"http://a/",1,4,true\nhttp://b/,,,\n',
            b"\n".join(JSON),
            b"\n".join(URLS),
            gzip.compress(b"\n".join(URLS), mtime=0),
        ),
        read_file,
        (OSError,),
    ),
    "stored requests": Reader(
        (
            _entry(meta={"identifier": "1", "source": "museum", "retries": 1, "redirect_urls": ["http://b/"]}),
            _entry(meta={"identifier": "x" * 100}, headers={"a": [b"b"]}, priority=0, method="POST", body=b"x"),
        ),
        read_entry,
        (BadEntry,),
    ),
    "content codings": Reader(
        (
            b"\x00" + gzip.compress(PLAIN, mtime=0),
            b"\x01" + zlib.compress(PLAIN),
            b"\x02" + brotli.compress(PLAIN),
            b"\x03" + zstd.compress(PLAIN),
            b"\x80" + gzip.compress(gzip.compress(bytes(500_000), mtime=0), mtime=0),
        ),
        read_coding,
        (UnreadableImage,),
    ),
    "robots.txt": Reader(
        (
            b"User-agent: *\nDisallow: /a*b$\nAllow: /a/%2F?x=%2A\nCrawl-delay: 2.5\nRequest-rate: 1/5m\n"
            b"Content-Usage: /*a$ train-ai=n, search=y\nContent-Signal: ai-train=no\n",
            b"User-agent: crawlproject\r\nUser-agent: other/2\r\nDisallow:\r\nDisallow /x\r\n# end\r\n",
        ),
        read_robots,
    ),
    "headers": Reader(
        (
            b"120",
            b"Fri, 31 Dec 2027 23:59:59 GMT",
            b'max-age=300, no-store, private="a, b"',
            b"crawlproject: noai, unavailable_after: 25 Jun 2010 15:00:00 PST, otherbot: noindex",
            b"train-ai=n, search=y;q=1, bots=no",
            b"unavailable_after: Friday, 31-Dec-99 23:59:59 GMT, none",
        ),
        read_header,
    ),
    "hosts": Reader(
        (
            b"127.0.0.1",
            b"2001:db8::7%25eth0",
            b"::ffff:10.0.0.1",
            b"0x7f.1",
            b"museum.org.:80",
            b"64:ff9b::1.2.3.4",
        ),
        read_host,
    ),
}


def one_of(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """Return a mutated text: bytes as in pictures, and words that mean something somewhere."""
    text = bytearray(mutated(rng, list(samples)) if rng.random() < 0.6 else rng.choice(samples))
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.choice((0, 0, 1, 8))] = rng.choice(TOKENS) * rng.choice((1, 1, 1, 2, 200))
    return bytes(text)


class Fuzz:
    """What has come out so far."""

    def __init__(self, seed: int, keep: Path | None) -> None:
        self.rng = random.Random(seed)
        self.ended: Counter[tuple[str, str]] = Counter()
        self.slowest: dict[str, float] = {}
        self.wrong: Counter[str] = Counter()
        self._keep = keep

    def run(self, name: str, reader: Reader) -> None:
        """Have a reader read one text."""
        text = one_of(self.rng, reader.samples)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        began = time.process_time()
        ended = "read"
        try:
            reader.read(text)
        except reader.refuses:
            ended = "refused"
        except Exception:
            ended = "WRONG"
            self._note(f"{name}: {traceback.format_exc(limit=-2).strip()}", text)
        seconds = time.process_time() - began
        if seconds > TOO_LONG:
            ended = "WRONG"
            self._note(f"{name}: took too long", text)
        self.ended[name, ended] += 1
        self.slowest[name] = max(self.slowest.get(name, 0.0), seconds)

    def _note(self, what: str, text: bytes) -> None:
        self.wrong[what] += 1
        if self._keep is not None:
            (self._keep / hashlib.sha1(text, usedforsecurity=False).hexdigest()).write_bytes(text)


def main() -> None:
    """Fuzz and tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_texts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    fuzz = Fuzz(arguments.seed, arguments.keep)
    until = time.monotonic() + arguments.seconds
    try:
        while time.monotonic() < until:
            for name in arguments.only:
                fuzz.run(name, READERS[name])
    finally:
        faulthandler.cancel_dump_traceback_later()
        FILE.unlink(missing_ok=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total = sum(fuzz.ended.values())
    print(f"{total} texts in {arguments.seconds:.0f} s, seed {arguments.seed}; peak memory {peak / MIB:.0f} MiB")
    for name in arguments.only:
        counts = {end: fuzz.ended[name, end] for end in ("read", "refused", "WRONG") if fuzz.ended[name, end]}
        print(f"{name:16} {counts}, slowest {1000 * fuzz.slowest[name]:.0f} ms")
    for what, count in fuzz.wrong.most_common(20):
        print(f"{count} x {what}")
    if fuzz.wrong or peak > MOST_MEMORY:
        sys.exit(1)


if __name__ == "__main__":
    main()
