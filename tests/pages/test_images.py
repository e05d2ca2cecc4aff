"""The images, audio and video of a page, and whose licence each has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.images import MOST_IMAGES, FoundImage, largest
from crawlproject.pages.licences import Licence, known_licence, licence_of
from crawlproject.pages.media import KINDS, MOST_MEDIA
from tests.pages.reading import URL, read

BY = Licence("https://creativecommons.org/licenses/by/4.0/", "CC BY 4.0")
SA = Licence("https://creativecommons.org/licenses/by-sa/4.0/", "CC BY-SA 4.0")
CC0 = Licence("https://creativecommons.org/publicdomain/zero/1.0/", "CC0 1.0")


def linked(licence: Licence, rel: str = "license") -> str:
    return f"<a rel='{rel}' href='{licence.url}deed.en'>licence</a>"


def data(value: Any) -> str:
    return f"<script type='application/ld+json'>{json.dumps(value)}</script>"


def names(html: str) -> list[str]:
    return [image.url.removeprefix(URL) for image in read(html).images]


def licences(html: str) -> dict[str, str | None]:
    found = read(html).images
    return {image.url.removeprefix(URL): image.licence and image.licence.name for image in found}


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<img src=a.jpg>", ["a.jpg"]),
        ("<img src='a.jpg?w=300&amp;h=2#x'>", ["a.jpg?w=300&h=2"]),
        ("<img src=a.jpg srcset='b.jpg 300w, c.jpg 1200w,d.jpg 600w'>", ["c.jpg"]),
        ("<img src=a.jpg srcset=' , '>", ["a.jpg"]),
        (
            "<picture><source srcset='b.avif 100w, c.avif 900w'><source srcset='d 400w'><img src=a></picture>",
            ["c.avif"],
        ),
        ("<picture><source srcset='data:x 900w'><img src=a></picture>", ["a"]),
        ("<img src='data:image/gif;base64,R0' data-src=b.jpg>", ["b.jpg"]),
        ("<img data-srcset='b.jpg 1x, c.jpg 2x' srcset='tiny.jpg'>", ["c.jpg"]),
        ("<noscript><img src=a.jpg></noscript><img data-lazy-src=a.jpg>", ["a.jpg"]),
        ("<meta property='og:image' content=a.jpg><meta name=og:image:url content=b.jpg>", ["a.jpg", "b.jpg"]),
        ("<img src='data:x'><img src=''><img><img src='javascript:x'><img src='http://u:p@b.example/'>", []),
        ("<base href=/b/><img src=a.jpg>", ["https://museum.example/b/a.jpg"]),
        (data({"@type": "ImageObject", "contentUrl": "a.jpg"}), ["a.jpg"]),
        (data([{"@graph": [{"x": {"@type": ["Thing", "schema:ImageObject"], "url": "a.jpg"}}]}]), ["a.jpg"]),
        (data({"@type": "Article", "url": "a.jpg"}), []),
        (data({"@type": "ImageObject", "contentUrl": 7}), []),
    ],
)
def test_what_is_an_image(html: str, found: list[str]) -> None:
    assert names(html) == found


@pytest.mark.parametrize(
    ("srcset", "found"),
    [
        ("a 100w 50h, b 90w", "b"),
        ("a,b 2x", "a,b"),
        ("a.jpg?x=1,2 2x,, ,b 1x", "a.jpg?x=1,2"),
        ("", None),
        ("a 99999999999w, b 2w", "b"),
    ],
)
def test_the_largest_of_a_srcset(srcset: str, found: str | None) -> None:
    best = largest([srcset])
    assert (best and best[1]) == found


def test_what_is_said_of_an_image_is_kept() -> None:
    html = f"""<figure><img src=a.jpg alt=" A  vase " title=Vase><figcaption><span itemprop=creator>Ann
        Author</span> {linked(BY)}</figcaption></figure>"""
    assert read(html).images == (FoundImage(f"{URL}a.jpg", BY, "A vase", "Vase", "Ann Author"),)


def test_the_first_creator_named_anywhere_in_what_has_the_licence_is_that_of_its_images() -> None:
    html = f"""<div about=1><b><i><u rel=author>Ann</u></i></b><p rel=author>Bob</p>{linked(BY)}<img src=a.jpg>
        </div>
        <div about=2 rel=author>{linked(BY)}<img src=b.jpg>Cy</div>
        <div about=3>{linked(BY)}<img src=c.jpg></div><p rel=author>Dora</p>"""
    assert [image.creator for image in read(html).images] == ["Ann", "licenceCy", None]


def test_what_has_no_licence_of_its_own_has_its_creator() -> None:
    html = f"""<figure><img src=a.jpg><span itemprop=creator>Ann</span></figure>
        <div itemscope><meta itemprop=author content=Bob><figure><img src=b.jpg></figure></div>
        <section itemscope>
        <figure><img src=c.jpg><i rel=author>Cy</i></figure><figure><img src=d.jpg></figure></section>
        <figure><img src=e.jpg><p itemprop=creator itemscope><b itemprop=name>Eve</b></p></figure>
        <div itemscope><span itemprop=creator>Fay</span><figure><img src=f.jpg>{linked(SA)}</figure></div>
        <article itemscope itemtype='https://schema.org/Article'><a rel=author>Dora</a><img src=g.jpg></article>
        {linked(BY)}"""
    found = {image.url.removeprefix(URL): image.creator for image in read(html).images}
    assert found == {
        **{"a.jpg": "Ann", "b.jpg": "Bob", "c.jpg": "Cy", "d.jpg": None, "e.jpg": "Eve"},
        **{"f.jpg": None, "g.jpg": None},
    }


def test_half_a_character_in_json_ld_is_replaced_as_it_could_not_be_stored() -> None:
    (image,) = read(
        data({"@type": "ImageObject", "url": "a.jpg", "name": "a \ud800 b", "creator": "\udfff"})
    ).images
    assert (image.title, image.creator) == ("a ? b", "?")


def test_json_ld_says_licence_title_and_creator() -> None:
    html = data(
        {
            **{"@type": "ImageObject", "contentUrl": "a.jpg", "license": {"@id": SA.url}, "name": "A vase"},
            **{"creator": [{"@type": "Person", "name": "Ann Author"}], "creditText": "x"},
        }
    )
    assert read(html + "<img src=a.jpg alt=vase>").images == (
        FoundImage(f"{URL}a.jpg", SA, "vase", "A vase", "Ann Author"),
    )


def test_an_image_has_the_licence_of_what_encloses_it_else_the_pages() -> None:
    html = f"""
        <img src=page.jpg>
        <figure><img src=figure.jpg>{linked(BY)}</figure>
        <div itemscope itemtype="https://schema.org/ImageObject"><img src=micro.jpg>
            <link itemprop=license href="{CC0.url}"></div>
        <div about="elsewhere.jpg" typeof="dctypes:Image"><a property="cc:license" href="{CC0.url}">x</a></div>
        <p><a rel=license about="named.jpg" href="{BY.url}">x</a></p>
        <img src=elsewhere.jpg><img src=named.jpg>
        <figure><img src=other.jpg></figure>
        <footer>{linked(SA)}</footer>"""
    assert licences(html) == {
        "page.jpg": "CC BY-SA 4.0",
        "figure.jpg": "CC BY 4.0",
        "micro.jpg": "CC0 1.0",
        "elsewhere.jpg": "CC0 1.0",
        "named.jpg": "CC BY 4.0",
        "other.jpg": "CC BY-SA 4.0",
    }


@pytest.mark.parametrize(
    ("html", "licence"),
    [
        (linked(BY), BY),
        (f"<link rel=license href='{BY.url}'>", BY),
        (f"<div itemscope itemtype='https://schema.org/WebPage'>{linked(BY)}</div>", BY),
        (data({"@type": "WebPage", "license": BY.url}), BY),
        ("<a rel=license href='/terms'>", Licence("https://museum.example/terms")),
        (linked(BY) + linked(SA), None),
        (linked(BY, "") + linked(SA, ""), None),
        (f"<figure>{linked(BY)}</figure>", None),
        ("<a href='https://creativecommons.org/licenses/'>about licences</a>", None),
        ("", None),
    ],
)
def test_the_licence_of_a_page_is_the_only_one_that_it_names(html: str, licence: Licence | None) -> None:
    page = read(f"<body>{html}<img src=a.jpg></body>")
    assert page.licence == licence
    assert page.images[-1].licence == licence


OF_ALL_DOMAINS = """<base href=https://cdn.example/><img src=https://museum.example/a.jpg>
    <img src=https://img.museum.example/b.jpg><img src=https://adverts.example/c.jpg><img src=d.jpg>"""


def test_a_link_to_a_licence_that_is_not_marked_says_nothing_of_images_of_other_domains() -> None:
    html = f"""{OF_ALL_DOMAINS}{linked(BY, "")}
        <figure><img src=https://photos.example/e.jpg>{linked(BY)}</figure>
        {data({"@type": "ImageObject", "url": "https://photos.example/f.jpg", "license": BY.url})}"""
    assert {image.url for image in read(html).images if image.licence == BY} == {
        "https://museum.example/a.jpg",
        "https://img.museum.example/b.jpg",
        "https://photos.example/e.jpg",
        "https://photos.example/f.jpg",
    }


@pytest.mark.parametrize("page", [linked(BY), data({"@type": "WebPage", "license": BY.url})])
def test_a_licence_marked_as_that_of_the_page_is_that_of_its_images_wherever_they_are_served(page: str) -> None:
    images = read(OF_ALL_DOMAINS + page).images
    assert [image.licence for image in images] == [BY] * 4


@pytest.mark.parametrize("rule", ["noimageindex", "noai", "noimageai"])
def test_pages_that_forbid_it_have_no_images(rule: str) -> None:
    assert read(f"<meta name=robots content={rule}><img src=a.jpg>").images == ()
    assert read("<img src=a.jpg>", X_Robots_Tag=rule).images == ()
    assert read("<meta name=robots content=noindex><img src=a.jpg>").images != ()


def test_the_number_of_images_is_bounded() -> None:
    page = read("".join(f"<img src={number}>" for number in range(MOST_IMAGES + 30)))
    assert len(page.images) == MOST_IMAGES


MARK = f"<a rel=license href={BY.url}>BY</a>"


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
        (described(contentUrl="a.ogg", license=BY.url), [("audio", "a.ogg")]),
        (described(url="a.html", license=BY.url), []),  # its page
        ("<audio src=a></audio><a rel=license href=https://example.org/terms>terms</a>", []),
        ("<audio src=a></audio>", []),
        (
            f"<audio></audio><audio src='javascript:x'></audio><iframe src=https://tube.example/v></iframe>{MARK}",
            [],
        ),
        (f"<audio src=https://cdn.example/a></audio>{MARK}", [("audio", "https://cdn.example/a")]),
        (f"<audio src=https://cdn.example/a></audio><a href={BY.url}>a licence of something</a>", []),
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
        + described(
            contentUrl="a", license=BY.url, name="Song", creator={"name": "Bo"}, encodingFormat="audio/mpeg"
        )
    )
    audio, video = read(html, media=KINDS).media
    assert [(one.title, one.creator, one.content_type) for one in (audio, video)] == [
        ("Song", "Bo", "audio/mpeg"),
        ("A cow", "Ana", "video/webm"),
    ]
    assert {audio.licence.url, video.licence.url} == {BY.url}
    assert [one.kind for one in read(html, media=("video",)).media] == ["video"]


def test_its_number_and_texts_are_bounded() -> None:
    many = "".join(f"<audio src={number} title='{'t' * 600}'></audio>" for number in range(3 * MOST_MEDIA))
    found = read(MARK + many, media=KINDS).media
    assert len(found) == MOST_MEDIA
    assert {len(one.title or "") for one in found} == {500}
    assert media(MARK + f"<audio src={'a' * 3_000}></audio>") == []


def test_media_in_each_other_without_a_source_are_read_in_a_bounded_time() -> None:
    assert media(MARK + "<div><audio>" * 20_000) == []


CC = "https://creativecommons.org"


@pytest.mark.parametrize(
    ("url", "path", "name"),
    [
        ("https://creativecommons.org/licenses/by-sa/4.0/deed.de", "licenses/by-sa/4.0", "CC BY-SA 4.0"),
        ("//www.creativecommons.org/licenses/BY-NC/2.5/deed.zh-hans", "licenses/by-nc/2.5", "CC BY-NC 2.5"),
        ("https://creativecommons.org/licenses/by/3.0/us/legalcode", "licenses/by/3.0/us", "CC BY 3.0 US"),
        ("http://creativecommons.org/licenses/by-nd-nc/1.0/", "licenses/by-nc-nd/1.0", "CC BY-NC-ND 1.0"),
        ("http://creativecommons.org/licenses/by/2.5/scotland/", "licenses/by/2.5/scotland", "CC BY 2.5 SCOTLAND"),
        ("http://creativecommons.org/publicdomain/zero/1.0/deed.fr", "publicdomain/zero/1.0", "CC0 1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "publicdomain/mark/1.0", "PDM 1.0"),
        ("http://creativecommons.org/licenses/publicdomain/", "licenses/publicdomain", "Public domain"),
    ],
)
def test_creative_commons_in_any_spelling(url: str, path: str, name: str) -> None:
    licence = licence_of(url, "http://museum.example/")
    assert licence == Licence(f"{CC}/{path}/", name)
    assert licence.is_open
    assert licence_of(licence.url) == licence


def test_rights_statements_are_known_and_not_open() -> None:
    licence = licence_of("http://rightsstatements.org/page/InC/1.0/?language=en")
    assert licence == Licence("http://rightsstatements.org/vocab/InC/1.0/", "RS InC 1.0")
    assert not licence.is_open


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://www.gnu.org/licenses/fdl-1.3.html",
            f"{CC}/licenses/",
            f"{CC}/licenses/by/",
            f"{CC}/licenses/all/1.0/",
        ),
        *(
            "https://creativecommons.org.evil.example/licenses/by/4.0/",
            "https://evil.example/creativecommons.org/licenses/by/4.0/",
        ),
        *(f"{CC}/licenses/by/4.0/evil/more", f"{CC}/publicdomain/by/4.0/"),
    ],
)
def test_what_is_only_marked_as_a_licence_has_no_name_and_is_not_open(url: str) -> None:
    licence = licence_of(url)
    assert licence == Licence(url, "")
    assert not licence.is_open
    assert known_licence(url) is None


@pytest.mark.parametrize("url", ["javascript:x", "CC BY", "", "mailto:a@b.example"])
def test_what_is_no_address_is_no_licence(url: str) -> None:
    assert licence_of(url) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    licence_of(text, "http://museum.example/")
    known_licence(f"https://creativecommons.org/licenses/{text}")
