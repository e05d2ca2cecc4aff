"""The audio and video of a page, and their licences."""

from __future__ import annotations

import json

import pytest

from crawlproject.pages.media import KINDS, MOST_MEDIA
from tests.pages.reading import URL, read

BY = "https://creativecommons.org/licenses/by/4.0/"
MARK = f"<a rel=license href={BY}>BY</a>"


def media(html: str) -> list[tuple[str, str]]:
    return [(one.kind, one.url.removeprefix(URL)) for one in read(html, media=KINDS).media]


def described(**said: object) -> str:
    return f"<script type=application/ld+json>{json.dumps({'@type': 'AudioObject', **said})}</script>"


@pytest.mark.parametrize(
    ("html", "found"),
    [
        (f"<audio src=a.mp3></audio>{MARK}", [("audio", "a.mp3")]),
        (f"<video><source src=v.webm type=video/webm><source src=v.mp4></video>{MARK}", [("video", "v.webm")]),
        (f"<figure><video src=v></video>{MARK}</figure><video src=w></video>", [("video", "v")]),
        (f"<audio src=a></audio><audio src='a#t=10'></audio>{MARK}", [("audio", "a")]),
        (described(contentUrl="a.ogg", license=BY), [("audio", "a.ogg")]),
        (described(url="a.html", license=BY), []),  # its page
        ("<audio src=a></audio><a rel=license href=https://example.org/terms>terms</a>", []),
        ("<audio src=a></audio>", []),
        (
            f"<audio></audio><audio src='javascript:x'></audio><iframe src=https://tube.example/v></iframe>{MARK}",
            [],
        ),
        (f"<audio src=https://cdn.example/a></audio>{MARK}", [("audio", "https://cdn.example/a")]),
        (f"<audio src=https://cdn.example/a></audio><a href={BY}>a licence of something</a>", []),
        (f"<meta name=robots content=noai><audio src=a></audio>{MARK}", []),
    ],
)
def test_what_is_embedded_and_licensed(html: str, found: list[tuple[str, str]]) -> None:
    assert media(html) == found
    assert read(html).media == ()


def test_what_the_page_says_of_it() -> None:
    html = (
        f"<figure><video title=' A  cow '><source src=v type='Video/WebM; codecs=vp9'></video>{MARK}"
        "<span itemprop=creator>Ana</span></figure>"
        + described(contentUrl="a", license=BY, name="Song", creator={"name": "Bo"}, encodingFormat="audio/mpeg")
    )
    audio, video = read(html, media=KINDS).media
    assert [(one.title, one.creator, one.content_type) for one in (audio, video)] == [
        ("Song", "Bo", "audio/mpeg"),
        ("A cow", "Ana", "video/webm"),
    ]
    assert {audio.licence.url, video.licence.url} == {BY}
    assert [one.kind for one in read(html, media=("video",)).media] == ["video"]


def test_its_number_and_texts_are_bounded() -> None:
    many = "".join(f"<audio src={number} title='{'t' * 600}'></audio>" for number in range(3 * MOST_MEDIA))
    found = read(MARK + many, media=KINDS).media
    assert len(found) == MOST_MEDIA
    assert {len(one.title or "") for one in found} == {500}
    assert media(MARK + f"<audio src={'a' * 3_000}></audio>") == []


def test_media_in_each_other_without_a_source_are_read_in_a_bounded_time() -> None:
    assert media(MARK + "<div><audio>" * 20_000) == []
