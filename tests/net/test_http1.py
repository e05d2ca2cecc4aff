"""What goes over the wire: heads of requests, and responses however they are cut, spelled and framed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from crawlproject.net.http1 import (
    MAX_FRAMING,
    MAX_HEADERS,
    Answer,
    BadResponse,
    FramingTooLarge,
    HeadersTooLarge,
    _named,
    request_head,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WIRE = 3_000_000  # bytes of each hostile answer


def cut(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


class Taken(Answer):
    """A response and the pieces of its body."""

    def __init__(self, method: str = "GET") -> None:
        super().__init__(method)
        self.pieces: list[bytes] = []

    def received(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return False


def read(data: bytes, method: str = "GET", size: int = 65_536) -> tuple[Answer, bytes]:
    """Read a response that comes in pieces."""
    answer = Taken(method)
    for piece in cut(data, size):
        answer.read(piece)
    return answer, b"".join(answer.pieces)


# Requests


@pytest.mark.parametrize(("method", "length", "said"), [("GET", None, b""), ("POST", 3, b"Content-Length: 3\r\n")])
def test_a_head_has_the_host_first_and_a_length_if_there_is_a_body(
    method: str, length: int | None, said: bytes
) -> None:
    fields = [(b"Accept", [b"*/*"]), (b"X-Own", [b"1", b"2\r\nEvil: 3"])]
    assert request_head(method, b"/a?b=%20", b"museum.org:8080\nEvil: 4", fields, length) == (
        method.encode() + b" /a?b=%20 HTTP/1.1\r\nHost: museum.org:8080 Evil: 4\r\n" + said + b"Accept: */*\r\n"
        b"X-Own: 1\r\nX-Own: 2 Evil: 3\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("GET /evil HTTP/1.1\r\nA:", b"/", b"A"),
        ("G\u00c9T", b"/", b"A"),
        ("", b"/", b"A"),
        ("GET", b"/ HTTP/1.1\r\nEvil: 1", b"A"),
        ("GET", "/\u00e9".encode(), b"A"),
        ("GET", b"/", b"A: 1\r\nEvil"),
        ("GET", b"/", b""),
    ],
)
def test_what_would_be_another_request_is_not_written(method: str, target: bytes, name: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|invalid name"):
        request_head(method, target, b"museum.org", [(name, [b"1"])], None)


# Heads of responses


ODD_HEAD = b"HTTP/1.1 200 Tr\xe8s bien\r\nx-odd:1\r\nX-Odd: 2\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"], ids=["", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_head_is_kept_as_the_site_sent_it(before: bytes, size: int) -> None:
    answer, body = read(before + ODD_HEAD + b"\r\n\r\nbody\n", size=size)
    assert (answer.head, body, answer.is_whole, answer.keeps_open) == (ODD_HEAD, b"\r\n\r\nbody\n", True, True)
    assert (answer.status, answer.version, answer.length) == (200, "HTTP/1.1", 9)
    assert dict(answer.headers.items()) == {b"X-Odd": [b"1", b"2"], b"Content-Length": [b"9"]}


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        (b"HTTP/1.0 200\nA: 1\n\n", {b"A": [b"1"]}),  # bare line feeds, no phrase
        (b"http/1.1  200 OK\r\nA: 1\r\n\r\n", {b"A": [b"1"]}),
        (HEAD + b"A: 1\r\n  2\r\n\t3\r\n\r\n", {b"A": [b"1  2\t3"]}),  # folded
        (HEAD + b" A: 1\r\nB : 2\r\n\r\n", {b"B": [b"2"]}),
        (HEAD + b"no colon\r\n: no name\r\nno token: 1\r\nA:\r\n\r\n", {b"A": [b""]}),
        (HEAD + b"A: 1\r2\r\n\r\n", {b"A": [b"1 2"]}),
        (HEAD + b"Connection: close\r\nKeep-Alive: 1\r\nUpgrade: h2c\r\nA: \xff\r\n\r\n", {b"A": [b"\xff"]}),
    ],
)
def test_odd_heads_are_read_as_browsers_do(head: bytes, fields: dict[bytes, list[bytes]]) -> None:
    answer, body = read(head + b"abc")
    assert (answer.head, answer.status, body) == (head, 200, b"abc")
    assert dict(answer.headers.items()) == fields
    assert (answer.is_whole, answer.needs_more, answer.keeps_open) == (False, False, False)  # until it closes


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"SSH-2.0-x\r\n",  # at once, though the head has no end
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 -1 OK\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        HEAD + b"Content-Length: \r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"1\r\nabc",
    ],
)
def test_an_answer_whose_end_cannot_be_found_fails(head: bytes) -> None:
    with pytest.raises(BadResponse):
        read(head)


@pytest.mark.parametrize(
    ("wishes", "keeps_open"),
    [
        (b"HTTP/1.1 200\r\n", True),
        (b"HTTP/1.1 200\r\nConnection: Keep-Alive, Close\r\n", False),
        (b"HTTP/1.0 200\r\n", False),
        (b"HTTP/1.0 200\r\nConnection: Keep-Alive\r\n", True),
    ],
)
def test_a_site_says_whether_a_connection_stays_open(wishes: bytes, keeps_open: bool) -> None:
    for rest in (
        b"Content-Length: 3\r\n\r\nabc",
        b"Content-Length: 0\r\n\r\n",
        b"Content-Length: 3, 3\r\n\r\nabc",
    ):
        answer, _ = read(wishes + rest)
        assert (answer.is_whole, answer.keeps_open) == (True, keeps_open)
        answer, _ = read(wishes + rest + b"more")
        assert (answer.is_whole, answer.keeps_open) == (True, False)  # unsolicited bytes


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
@pytest.mark.parametrize("length", [b"9", b"", b"-1"])
def test_some_responses_have_no_body_whatever_they_say(method: str, status: int, length: bytes) -> None:
    answer, body = read(b"HTTP/1.1 %d\r\nContent-Length: %b\r\n\r\n" % (status, length), method)
    assert (answer.is_whole, answer.keeps_open, body) == (True, True, b"")
    assert answer.headers.getlist("Content-Length") == ([length] if method == "HEAD" else [])


def test_names_of_fields_that_sites_make_up_take_no_memory() -> None:
    before = _named.cache_info().currsize
    for number in range(10):
        answer, _ = read(HEAD + b"%d" % number + b"x" * 1000 + b": 1\r\nContent-Length: 0\r\n\r\n")
        assert dict(answer.headers.items()) == {b"Content-Length": [b"0"]}
    assert _named.cache_info().currsize <= before + 1


# Bodies


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_chunks_are_joined(size: int) -> None:
    twice = b"Content-Length: ?\r\nTransfer-Encoding: Chunked\r\n"  # the coding alone counts
    data = HEAD + twice + CHUNKED.removeprefix(HEAD) + b"3\r\nabc\r\n04;ext=1\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n"
    answer, body = read(data, size=size)
    assert (body, answer.is_whole, answer.keeps_open) == (b"abcdefg", True, True)
    assert read(data + b"more")[0].keeps_open is False
    assert read(data[:-1])[0].is_whole is False


def test_small_chunks_come_in_few_pieces() -> None:
    count = WIRE // 56
    answer = Taken()
    for data in cut(CHUNKED + (b"32\r\n" + b"x" * 50 + b"\r\n") * count + b"0\r\n\r\n", 65_536):
        answer.read(data)
    assert answer.is_whole
    assert sum(map(len, answer.pieces)) == 50 * count
    assert len(answer.pieces) < count / 100


FRAMING: dict[str, tuple[list[bytes], type[Exception]]] = {
    "chunks of a byte": ([CHUNKED, b"1\r\nx\r\n" * (WIRE // 6)], FramingTooLarge),
    "extensions": ([CHUNKED, b"5;%b\r\nabcde\r\n" % (b"a" * 1000) * (WIRE // 1010)], FramingTooLarge),
    "trailers": ([CHUNKED, b"0\r\n", b"X: a\r\n" * (WIRE // 6)], BadResponse),  # Twisted's, or ours
    "header lines": ([HEAD, b"a:\n" * (WIRE // 3)], HeadersTooLarge),
    "one line": ([HEAD, b"a: ", b"a" * WIRE], HeadersTooLarge),
    "lines by the byte": ([HEAD, *[b"a", b"\n"] * MAX_HEADERS], HeadersTooLarge),
    "interim responses": ([b"HTTP/1.1 100 \n\n" * (WIRE // 15)], HeadersTooLarge),
}


@pytest.mark.parametrize("name", FRAMING)
def test_an_answer_of_little_else_than_framing_fails_before_its_end(name: str) -> None:
    parts, error = FRAMING[name]
    answer = Taken()
    with pytest.raises(error):
        for part in parts:
            for data in cut(part, 16_384):
                answer.read(data)
    assert sum(map(len, answer.pieces)) < MAX_FRAMING
