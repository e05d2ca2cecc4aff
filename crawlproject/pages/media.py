"""The audio and video that a page embeds, as far as it says that they are openly licensed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from crawlproject.pages.canonical import image_url
from crawlproject.pages.document import Document
from crawlproject.pages.images import Licences
from crawlproject.pages.licences import Licence, licence_of

KINDS = ("audio", "video")
MOST_MEDIA = 100  # of a page
_MOST_LOOKED_AT = 2 * MOST_MEDIA
_LONGEST_TITLE = 500  # characters
_LONGEST_TYPE = 100


@dataclass(frozen=True, slots=True)
class FoundMedia:
    """Audio or video (`kind`) of a page, at its absolute address, with what the page says of it."""

    kind: str
    url: str
    licence: Licence
    content_type: str | None = None
    title: str | None = None
    creator: str | None = None


def media_of(document: Document, licences: Licences, kinds: Collection[str]) -> tuple[FoundMedia, ...]:
    """Return the openly licensed audio and video of a page, each once, in their order.

    They are those of JSON-LD (`AudioObject`, `VideoObject`, by their `contentUrl`), and of `audio` and `video`: of
    several sources the first. Their licences are found as those of images are. Players in frames are none.
    """
    found: dict[str, FoundMedia] = {}
    for one in _media(document, licences, kinds):
        found.setdefault(one.url, one)
    return tuple(islice(found.values(), MOST_MEDIA))


def _media(document: Document, licences: Licences, kinds: Collection[str]) -> Iterator[FoundMedia]:
    described = (one for one in licences.described if one.kind in kinds)
    for one in islice(described, _MOST_LOOKED_AT):
        if url := image_url(one.url, document.base):
            licence = licence_of(one.licence, document.base) if one.licence else licences.of_address(url)
            if licence is not None and licence.is_open:
                yield FoundMedia(one.kind, url, licence, _type(one.content_type), one.title, one.creator)
    for node in islice(document.root.iter(*kinds), _MOST_LOOKED_AT):
        sources = islice(node.iter("source"), _MOST_LOOKED_AT)
        place = next((one for one in chain((node,), sources) if one.get("src")), None)
        if place is not None and (url := image_url((place.get("src") or "").strip(), document.base)):
            said = licences.of(node)
            licence = said.licence or licences.of_address(url)
            if licence is not None and licence.is_open:
                title = " ".join((node.get("title") or "")[:_LONGEST_TITLE].split()) or None
                yield FoundMedia(node.tag, url, licence, _type(place.get("type")), title, said.creator)


def _type(said: str | None) -> str | None:
    return (said or "")[:_LONGEST_TYPE].partition(";")[0].strip().lower() or None
