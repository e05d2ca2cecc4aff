"""What a page may cost at most, whatever its tags are."""

from __future__ import annotations

import random
from itertools import cycle, islice

import pytest
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from crawlproject.pages import nesting
from crawlproject.pages.nesting import parsable

SIZE = 250_000


def filled(unit: str, size: int = SIZE) -> str:
    return "".join(islice(cycle(unit), size))


def shape(text: str) -> tuple[int, int]:
    """Return how many elements Lexbor opens in each other at most, and how many nodes it makes."""
    deepest = count = 0
    tree = LexborHTMLParser(text, options=LexborDocumentOptions.WO_EVENTS.value)
    waiting = [(tree.root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            continue
        count += 1
        deepest = max(deepest, depth)
        child = node.child
        while child is not None:
            waiting.append((child, depth + 1))
            child = child.next
    return deepest, count


@pytest.mark.parametrize(
    "unit",
    [
        *("<div>", "<ul><li>", "<b><div></b>", "<a><div>", "<svg>", "<svg><path>", "<math><mi>", "<table><td>"),
        *("<object><p>", "<button>", "<x>", "<template><div>", "<svg><![CDATA[><div>", "<select><div>", "<div/>"),
        *(
            "<dd><li>",
            "<section></b>",
            "<svg><title><",
            "<form><div>",
            "<noscript>",
            "<script></div></script><div>",
        ),
        *("<div><!--!></div>-->", '<p ="></div><div>', "<svg><foreignObject><path/>"),
    ],
)
def test_the_number_of_tags_is_bounded(unit: str) -> None:
    text = filled(unit)
    kept = text[: parsable(text)]
    assert len(kept) < SIZE
    deepest, _ = shape(kept)
    assert deepest <= 2 * nesting.MAX_TAGS + 12


@pytest.mark.parametrize("attribute", ["a{}", "a{}=1", "{}='>'"])
def test_formatting_elements_are_not_opened_again_without_end(attribute: str) -> None:
    tags = "".join(f"<b {attribute.format(number)}>" for number in range(4000))
    text = f"<p>{tags}</p>" + "<p>x" * 40_000
    kept = text[: parsable(text)]
    _, count = shape(kept)
    assert count <= 2 * nesting.MAX_REOPENED + 4 * kept.count("<")


@pytest.mark.parametrize("attribute", [" {:x}", ' {:x}=">"', 'a{:x}=""'])
@pytest.mark.parametrize("head", ["<p ", "<body ", "<svg><![CDATA[><p ", '<!-- <a b=" --><p '])
def test_a_tag_of_thousands_of_attributes_is_not_parsed(head: str, attribute: str) -> None:
    text = "<i>x</i>" + head + "".join(attribute.format(number) for number in range(50_000)) + ">"
    assert parsable(text) <= len("<i>x</i>" + head)


def test_the_attributes_of_many_body_tags_count_together() -> None:
    text = "".join(f'<body a{number}=">">' for number in range(15_000))
    assert text[: parsable(text)].count("<body") < 10


WORDS = """
    div p b i a span li ul dd dt dl table tr td th tbody caption option select optgroup button form h1
    h2 object svg math foreignObject desc title style script textarea template noscript iframe font em
    nobr ruby rt rb body html head frameset colgroup col br img hr input applet marquee address article
    figure details summary fieldset xmp plaintext noembed mi mtext annotation-xml path g
"""
TAGS = WORDS.split()
ODD = (
    *(
        "<!-- ",
        "-->",
        "--!>",
        "<!-->",
        "<!--->",
        "<!--!>",
        "<!---!>",
        "<![CDATA[",
        "]]>",
        "x",
        " ",
        "</",
        "'",
        '"',
    ),
    *('<p ="', ">", "<!", "<?", "=", "<a b=", '<div a="', "/>", "<", "</ ", "\0"),
)


def made_up(seed: int) -> str:
    """Return a page that says a few tags, end tags and fragments over and over."""
    chance = random.Random(seed)
    names = chance.sample(TAGS, chance.randint(2, 7))

    def piece() -> str:
        name, kind = chance.choice(names), chance.random()
        if kind < 0.45:
            return f"<{name}>"
        if kind < 0.75:
            return f"</{name}>"
        if kind < 0.85:
            return f"<{name} a=#>"
        return f"<{name}/>" if kind < 0.88 else chance.choice(ODD)

    unit = "".join(piece() for _ in range(chance.randint(2, 10)))
    return "".join(unit.replace("#", str(number)) for number in range(150))


@pytest.mark.parametrize("start", range(0, 1000, 250))
def test_the_estimate_is_never_too_low(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nesting, "MAX_REOPENED", 300)
    for seed in range(start, start + 250):
        text = made_up(seed)
        kept = text[: parsable(text)]
        _, count = shape(kept)
        assert count <= 2 * 300 + 4 * kept.count("<") + 50, (seed, text[:200])


def test_a_long_honest_page_is_parsed_whole() -> None:
    icon = '<svg viewBox="0 0 9 9"><title>x</title><path d="M0 0"/><g><use href="#a"/></g></svg>'
    link = "<a href=x><img src=y alt='a > b'></a><ul><li>1<li>2</ul>"
    row = f"<tr><td class=c>{icon}<p>One <b>bold</b> and <i>more</i><td>{link}</tr>"
    script = "<script>if (a < b) document.write('</p>' + \"<b>\")</script><!-- <div> -->"
    text = f"<html><body><div><table>{row * 250}</table>{script * 300}</div></body></html>"
    assert parsable(text) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "<ul>" + "<li><p>A <b>word</b> and <a href=x>a link</a>" * 800,
        "<table>" + "<tr><td><font size=-1>One<br></font></td></tr>" * 800,
        "<div>" + "<p><a name=x><h2>One</h2>" * 1500,
    ],
)
def test_a_long_page_without_some_end_tags_is_parsed_whole(text: str) -> None:
    assert parsable(text) == len(text)
