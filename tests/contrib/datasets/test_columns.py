"""Which columns of a list become what of a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawlproject.contrib.datasets.columns import mapped
from crawlproject.contrib.datasets.targets import ParquetTarget, WebDatasetTarget
from crawlproject.errors import BadInput
from crawlproject.frontier.seeds import seed_of
from crawlproject.ingest import files, seed_files
from crawlproject.ingest.seed_rows import Columns

LAION = dict.fromkeys(["URL", "TEXT", "hash", "key"], "string") | {"WIDTH": "int64", "similarity": "double"}


def test_names_of_the_dataset_are_given_to_columns_of_the_list() -> None:
    found = mapped("f", LAION, "caption=TEXT,id=key,similarity", WebDatasetTarget)
    assert found.columns.named == {"uuid": "key", "url": "URL", "identifier": ""}
    assert found.columns.kept == {"caption": "TEXT", "id": "key", "similarity": "similarity"}
    assert (found.keep, found.has_caption) == ("id:string,similarity:double", True)
    assert found.ignored == ["hash", "WIDTH"]
    assert mapped("f", LAION, "caption=TEXT", ParquetTarget).keep == "caption:string"


def test_images_of_lists_that_number_their_rows_alike_are_told_apart(tmp_path: Path) -> None:
    columns = mapped("f", {"url": "string", "id": "int64"}, "id", WebDatasetTarget).columns
    (tmp_path / "list.tsv").write_text("url\tid\nhttp://h/a\t7\nhttp://h/b\t7\nhttp://h/a\t7\n")
    [file] = seed_files.find([str(tmp_path / "list.tsv")], {})
    rows = [json.loads(line.seed or "") for line in files.read(file, lambda _: None, columns=columns)]
    first, second, again = map(seed_of, rows)
    assert first.identifier == again.identifier != second.identifier
    assert [row.get("extra") for row in rows] == [{"id": "7"}] * 3


@pytest.mark.parametrize("name", ["uuid", "Identifier"])
def test_the_keys_of_a_list_that_a_feed_would_use_are_kept_as_ids(name: str) -> None:
    found = mapped("f", {name: "string", "url": "string"}, None, ParquetTarget)
    assert found.columns.named == {"uuid": name, "url": "url", "identifier": ""}
    assert found.columns.kept == {"id": name}


@pytest.mark.parametrize("column", ["url", "URL", "Image_URL", "image_url"])
def test_the_column_of_urls_is_found(column: str) -> None:
    assert mapped("f", {"a": "string", column: "string"}, None, ParquetTarget).columns.named == {"url": column}


@pytest.mark.parametrize("first", [["http://h/a", "b.jpg"], ["h.example/a.jpg"], ["not a URL"]])
def test_a_plain_list_has_no_columns(first: list[str]) -> None:
    assert mapped("f", dict.fromkeys(first, "string"), None, ParquetTarget).columns == Columns()


@pytest.mark.parametrize(
    ("found", "wanted", "error", "reason"),
    [
        (LAION, "caption=text", BadInput, "f has no column 'text', only URL, TEXT, hash, key, WIDTH, similarity"),
        (
            {"link": "string", "a": "string"},
            None,
            BadInput,
            "no column of URLs, only link, a: name it, as in --url",
        ),
        ({"url": "string", "http://h": "string"}, "caption=TEXT", BadInput, "'TEXT', only url, http://h"),
        ({"http://h/a": "string"}, "caption=TEXT", BadInput, "no column 'TEXT', a plain list of URLs"),
        ({}, None, BadInput, "^f is empty$"),
        (LAION, "a=TEXT,a=key", ValueError, "each name once"),
        (LAION, "width=WIDTH", ValueError, "width: a dataset has a column of that name: .* listed_width=WIDTH"),
        (LAION, "key", ValueError, "key: a dataset has a column of that name"),
    ],
)
def test_what_cannot_be_is_refused(
    found: dict[str, str], wanted: str | None, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        mapped("f", found, wanted, WebDatasetTarget)
