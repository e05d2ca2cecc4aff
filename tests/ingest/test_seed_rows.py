"""Which columns of a file are what of a seed."""

from __future__ import annotations

import pytest

from crawlproject.errors import BadInput
from crawlproject.ingest.seed_rows import Columns


def test_the_options_of_the_command() -> None:
    assert Columns.of_options(None, None) == Columns()
    assert Columns.of_options(" url=URL ,uuid = key,source=,", "TEXT, license = LICENSE,TEXT") == Columns(
        {"url": "URL", "uuid": "key", "source": ""}, {"TEXT": "TEXT", "license": "LICENSE"}
    )


@pytest.mark.parametrize("text", ["url", "link=URL", "extra=x", "url=a,url=b", "=x", "url="])
def test_what_is_no_such_option_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--columns"):
        Columns.of_options(text, None)


def test_a_column_of_its_own_name_is_used_unless_another_is_named() -> None:
    columns = ["URL ", "Source", "uuid", "TEXT"]
    assert Columns().layout("f", columns).keys == {"url": "URL ", "source": "Source", "uuid": "uuid"}
    named = Columns({"uuid": "TEXT", "source": ""}).layout("f", columns)
    assert named.keys == {"url": "URL ", "uuid": "TEXT"}
    for wanted, missing in (
        (Columns({"url": "link"}), "'link', only URL , Source, uuid, TEXT"),
        (Columns({}, {"text": "text"}), "'text', only"),
        (Columns({"url": ""}), "'url', only"),
    ):
        with pytest.raises(BadInput, match=f"^f has no column {missing}.*: name columns as in --columns url=URL"):
            wanted.layout("f", columns)
