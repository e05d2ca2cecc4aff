"""Files of seeds, as people have them."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawlproject.errors import BadInput
from crawlproject.frontier.seeds import parse_seed
from crawlproject.ingest.files import LONGEST_LINE, columns_of, read
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.ingest.seed_rows import Columns
from tests.waiting import PATIENCE_S

A, B, C = (f"https://museum.org/{name}.jpg" for name in "abc")


def lines(tmp_path: Path, content: bytes | str, name: str = "seeds") -> list[tuple[int, Any]]:
    """Return what each line is: a plain URL, the JSON of a seed, or `!reason`."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found: list[tuple[int, Any]] = []
    for line in read(SeedFile(str(path)), lambda _: None):
        if line.seed is None:
            found.append((line.number, "!" + line.reason))
        else:
            parse_seed(line.seed)  # what the file's reader lets through is understood in the list, too
            found.append((line.number, json.loads(line.seed) if line.seed[0] == "{" else line.seed))
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_all_forms_with_all_ends_of_lines(tmp_path: Path, end: str, bom: str, last: bool) -> None:
    def content(*rows: str) -> str:
        return bom + end.join(rows) + (end if last else "")

    full = {"url": B, "uuid": "2", "source": "Flickr"}
    assert lines(tmp_path, content(A, "", B)) == [(1, A), (3, B)]
    tsv = content("uuid\turl\tsource", f"2\t{B}\tFlickr", "", f"\t{A}\t")
    assert lines(tmp_path, tsv) == [(2, full), (4, A)]
    csv = content("uuid,url,source", f"2,{B},Flickr", "", f",{A},")
    assert lines(tmp_path, csv) == [(2, full), (4, A)]
    jsonl = content(json.dumps(full), "", json.dumps({"url": A}))
    assert lines(tmp_path, jsonl) == [(1, full), (3, A)]


@pytest.mark.parametrize("separator", ["\t", ","])
def test_the_columns_that_count(tmp_path: Path, separator: str) -> None:
    header = ("Title", " URL ", "Identifier", "priority", "again", "licence")
    rows = [
        header,
        ("x", A, "1", "3", "true", "by"),
        ("x", B, "2", "-1", "FALSE", ""),
        ("x", C),  # the rest is missing
        ("", "", "", "", "", ""),
    ]
    content = "\n".join(separator.join(row) for row in rows)
    assert lines(tmp_path, content) == [
        (2, {"url": A, "identifier": "1", "priority": 3, "again": True}),
        (3, {"url": B, "identifier": "2", "priority": -1, "again": False}),
        (4, C),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"{A}\t5\tx\ty", "4 columns, more than the header's 3"),
        ("\t5\t", "no URL"),
        (f"{A}\t{'9' * 5000}\t", "priority must be a whole number: '999"),
        (f"{A}\t1.5\t", "priority must be a whole number: '1.5'"),
        (f"{A}\t\ta b", "source 'a b'"),
        (f'"{A}"\t\t', "must begin with http"),  # in TSV a quotation mark is a character like others
    ],
)
def test_an_invalid_row_is_reported_and_the_rest_is_fed(tmp_path: Path, row: str, reason: str) -> None:
    found = lines(tmp_path, f"url\tpriority\tsource\n{A}\t\t\n{row}\n{B}\t\t\n")
    assert [number for number, _ in found] == [2, 3, 4]
    assert (found[0][1], found[2][1]) == (A, B)
    assert found[1][1].startswith("!")
    assert reason in found[1][1]


def test_quoted_csv(tmp_path: Path) -> None:
    rows = [
        '"url","title","uuid"',
        f'"{A}","a, ""b""","1"',
        f'"{B}","two',
        'lines","2"',
        f"{C},,3",
        '"no url",,4',
    ]
    assert lines(tmp_path, "\n".join(rows)) == [
        (2, {"url": A, "uuid": "1"}),
        (3, {"url": B, "uuid": "2"}),
        (5, {"url": C, "uuid": "3"}),
        (6, "!not a URL: 'no url' begins neither with http:// nor with a host name"),
    ]


def test_a_cell_larger_than_csv_allows_is_a_bad_row(tmp_path: Path) -> None:
    content = f"url,title\n{A},x\n{B},{'x' * 200_000}\n{C},x\n"
    found = lines(tmp_path, content)
    assert [number for number, _ in found] == [2, 3, 4]
    assert found[1][1].startswith("!field larger")
    assert (found[0][1], found[2][1]) == (A, C)


@pytest.mark.parametrize(
    ("line", "seed"),
    [
        ("museum.org/a.jpg", "http://museum.org/a.jpg"),
        ("museum.org/?to=https://b.org/", "http://museum.org/?to=https://b.org/"),
        ("archive.org/web/https://b.org/a", "http://archive.org/web/https://b.org/a"),
        ("localhost:8000/a", "http://localhost:8000/a"),
        ('{"url": "[::1]:8000/a"}', "http://[::1]:8000/a"),
        ("žluť.cz/a", "http://žluť.cz/a"),
        ("HTTPS://museum.org/", "HTTPS://museum.org/"),
    ],
)
def test_a_url_without_scheme_gets_one(tmp_path: Path, line: str, seed: str) -> None:
    assert lines(tmp_path, f"{line}\n") == [(1, seed)]


def test_the_scheme_of_a_domain_is_the_spiders(tmp_path: Path) -> None:
    path = tmp_path / "domains.txt"
    path.write_text("museum.org\nhttp://plain.org/\n//other.org/a\n")
    assert [line.seed for line in read(SeedFile(str(path)), lambda _: None, "https")] == [
        "https://museum.org",
        "http://plain.org/",
        "https://other.org/a",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ftp://museum.org/a.jpg", "must begin with http"),
        ("museum.org/a b", "spaces"),
        ("http://museum.org:99999/", "invalid URL"),
        ("javascript:alert(1)", "not a URL: 'javascript:alert(1)'"),
        ("notaurl", "not a URL: 'notaurl' begins neither with http:// nor with a host name"),
        ("images/a.jpg", "not a URL"),
        ("../a.jpg", "not a URL"),
        ("localhosts/a.jpg", "not a URL"),
        ("{", "not JSON"),
        ('{"url": 5}', "no URL: 5"),
        ("[1]", "not an object"),
        ("[" * 100_000, "not JSON"),
        ('{"url": "http://a/", "again": "yes"}', "again"),
    ],
)
def test_an_invalid_line_is_reported_and_the_rest_is_fed(tmp_path: Path, line: str, reason: str) -> None:
    found = lines(tmp_path, f"{A}\n{line}\n{B}\n")
    assert [number for number, _ in found] == [1, 2, 3]
    assert (found[0][1], found[2][1]) == (A, B)
    assert reason in found[1][1]


def test_what_a_json_line_says_beside_is_left_out(tmp_path: Path) -> None:
    row = {"url": A, "uuid": "1", "title": "x" * 10_000, "meta": {"a": 1}, "source": "žluť", "again": True}
    assert lines(tmp_path, json.dumps(row)) == [(1, {"url": A, "uuid": "1", "source": "žluť", "again": True})]


def test_bytes_that_are_no_utf8_spoil_their_own_line_only(tmp_path: Path) -> None:
    content = f"{A}\nhttps://museum.org/caf\udce9\n{B}\n".encode(errors="surrogateescape")
    found = lines(tmp_path, content)
    assert [number for number, _ in found] == [1, 2, 3]
    assert (found[0][1], found[2][1]) == (A, B)
    assert found[1][1].startswith("!invalid URL")
    assert lines(tmp_path, f"url\ttitle\n{A}\tcaf\udce9\n".encode(errors="surrogateescape")) == [(2, A)]
    scoped = f"url\tscope\n{A}\tmuseum.org/caf\udce9\n{B}\t\n".encode(errors="surrogateescape")
    (of_scope, of_b) = lines(tmp_path, scoped)
    assert of_scope[1].startswith("!scope ")
    assert of_b == (3, B)


@pytest.mark.parametrize("content", ["", "\r\n\r\n", "\ufeff"])
def test_a_file_of_nothing(tmp_path: Path, content: str) -> None:
    assert lines(tmp_path, content) == []


def test_blank_lines_before_the_header_count(tmp_path: Path) -> None:
    assert lines(tmp_path, f"\n\nurl,uuid\n\n{A},\nx y,\n") == [
        (5, A),
        (6, "!not a URL: 'x y' begins neither with http:// nor with a host name"),
    ]


def test_gzip_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    content = f"url\tuuid\n{A}\t1\n{B}\t2\n".encode()
    expected = [(2, {"url": A, "uuid": "1"}), (3, {"url": B, "uuid": "2"})]
    assert lines(tmp_path, gzip.compress(content), "seeds.tsv.gz") == expected
    assert lines(tmp_path, gzip.compress(content), "seeds.tsv") == expected
    assert lines(tmp_path, content, "seeds.tsv.gz") == expected
    two = gzip.compress(f"{A}\n".encode()) + gzip.compress(f"{B}\n".encode())
    assert lines(tmp_path, two) == [(1, A), (2, B)]


@pytest.mark.parametrize("damage", ["cut", "flipped", "sum"])
def test_a_broken_gzip_file_is_reported_by_name(tmp_path: Path, damage: str) -> None:
    whole = bytearray(gzip.compress("".join(f"https://museum.org/{n}\n" for n in range(20_000)).encode()))
    if damage == "cut":
        del whole[len(whole) // 2 :]
    else:
        whole[-6 if damage == "sum" else len(whole) // 2] ^= 0xFF
    with pytest.raises(OSError, match=r"seeds\.gz"):
        lines(tmp_path, bytes(whole), "seeds.gz")


@pytest.mark.parametrize("form", ["plain", "gzip"])
def test_stdin(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    content = f"{A}\n{B}\n".encode()
    stream = io.BytesIO(gzip.compress(content) if form == "gzip" else content)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    assert [line.seed for line in read(SeedFile("-"), lambda _: None)] == [A, B]


TOO_LONG = "!longer than 1 MiB"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("more", [1, 65_536, 5_000_000])
def test_a_line_longer_than_a_mebibyte_is_reported_and_the_rest_is_fed(
    tmp_path: Path, end: str, more: int
) -> None:
    beyond = f"{A}?".ljust(LONGEST_LINE + more, "x")
    content = end.join([A, beyond, B, "", beyond, A]) + end + beyond
    assert lines(tmp_path, content) == [(1, A), (2, TOO_LONG), (3, B), (5, TOO_LONG), (6, A), (7, TOO_LONG)]


def test_a_line_of_a_mebibyte_is_read(tmp_path: Path) -> None:
    line = json.dumps({"url": A, "caption": ""})
    line = line.replace('""', '"' + "x" * (LONGEST_LINE - len(line) - 1) + '"')
    assert lines(tmp_path, f"{line}\n{B}\n") == [(1, A), (2, B)]
    assert lines(tmp_path, f"x{line}\n{B}\n") == [(1, TOO_LONG), (2, B)]


@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_row_longer_than_a_mebibyte_is_reported_and_the_rest_is_fed(tmp_path: Path, separator: str) -> None:
    row = separator.join([A, "1"])
    content = [separator.join(["url", "uuid"]), row, row + separator + "x" * 2_000_000, row]
    expected: list[tuple[int, Any]] = [(2, {"url": A, "uuid": "1"}), (3, TOO_LONG), (4, {"url": A, "uuid": "1"})]
    if separator == ",":  # cells in quotation marks may have several lines, and a row many such cells
        content += [",".join(['"x\n"'] * 400_000), '"', row]
        found = lines(tmp_path, "\n".join(content))
        assert found[:4] == [*expected, (5, TOO_LONG)]
        assert found[-1] == (400_007, {"url": A, "uuid": "1"})
        return
    assert lines(tmp_path, "\n".join(content)) == expected


def test_an_endless_line_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "seeds.gz"
    path.write_bytes(gzip.compress(bytes(100_000_000)) + gzip.compress(f"\n{A}\n".encode()))
    code = (
        "import resource\n"
        "from crawlproject.ingest.files import read\n"
        "from crawlproject.ingest.seed_files import SeedFile\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        f"lines = read(SeedFile({str(path)!r}), lambda _: None)\n"
        "print([line.number for line in lines], (used() - before) // 1024)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    numbers, mebibytes = run.stdout.rsplit(maxsplit=1)
    assert numbers == "[1, 2]"
    assert int(mebibytes) < 50


TABLE = {
    "tsv": f"key\tURL\tTEXT\tsource\tLICENSE\n1\t{A}\tone\tmuseum\tby\n\t{B}\t\t\tby\n3\tftp://a/\tx\t\t\n",
    "csv": f'key,URL,TEXT,source,LICENSE\n1,{A},"one",museum,by\n,{B},,,by\n3,ftp://a/,x,,\n',
    "jsonl": f"""{{"key": "1", "URL": "{A}", "TEXT": "one", "source": "museum", "LICENSE": "by", "other": 5}}
{{"URL": "{B}", "TEXT": null, "LICENSE": "by"}}
{{"key": "3", "URL": "ftp://a/", "TEXT": "x"}}
""",
}
COLUMNS = Columns.of_options("url=URL, uuid=key,", "TEXT,LICENSE")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("url\tTEXT\nx\ty\n", {"url": "string", "TEXT": "string"}),
        ("\nkey,URL\n", {"key": "string", "URL": "string"}),
        ('{"url": "x", "size": 5}\n', {"url": "json", "size": "json"}),
        ("http://h/a,b.jpg\n", {"http://h/a": "string", "b.jpg": "string"}),
        ("", {}),
    ],
)
def test_the_first_line_has_the_columns(tmp_path: Path, text: str, columns: dict[str, str]) -> None:
    (tmp_path / "f").write_bytes(gzip.compress(text.encode()))
    assert columns_of(SeedFile(str(tmp_path / "f"))) == columns


@pytest.mark.parametrize("form", TABLE)
def test_columns_of_other_names_and_those_to_keep(tmp_path: Path, form: str) -> None:
    path = tmp_path / "seeds"
    path.write_text(TABLE[form])
    one, two, three = read(SeedFile(str(path)), lambda _: None, columns=COLUMNS)
    assert json.loads(one.seed or "") == {
        "url": A,
        "uuid": "1",
        "source": "museum",
        "extra": {"TEXT": "one", "LICENSE": "by"},
    }
    assert json.loads(two.seed or "") == {"url": B, "extra": {"LICENSE": "by"}}
    assert (three.seed, three.reason[:19]) == (None, "URL must begin with")


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seeds").write_text(f"{A}\n{B}\n")
    with pytest.raises(BadInput, match=f"seeds has no column 'TEXT', only {A}"):
        list(read(SeedFile(str(tmp_path / "seeds")), lambda _: None, columns=Columns({}, {"TEXT": "TEXT"})))


def test_an_object_has_an_extra_of_its_own_and_a_column_of_that_name_is_none(tmp_path: Path) -> None:
    data = {"url": A, "extra": {"TEXT": "x"}}
    assert lines(tmp_path, json.dumps(data)) == [(1, data)]
    assert lines(tmp_path, f"url,extra\n{A},x\n") == [(2, A)]


@pytest.mark.parametrize("form", [*TABLE, "plain", "cells", "gzip"])
def test_what_was_read_before_is_skipped(tmp_path: Path, form: str) -> None:
    path = tmp_path / "seeds"
    content = {
        "plain": f"{A}\n\nftp://a/\n{B}\n{C}\n",
        "cells": f'title,url\n"one\n\ntwo",{A}\n"{"x" * 200_000}",{B}\nthree,{C}\n',
        "gzip": f"{A}\n{B}\n",
    }.get(form) or TABLE[form]
    path.write_bytes(gzip.compress(content.encode()) if form == "gzip" else content.encode())
    columns = COLUMNS if form in TABLE else Columns()
    whole = list(read(SeedFile(str(path)), lambda _: None, columns=columns))
    assert len(whole) > 1
    for line in whole:
        rest = list(read(SeedFile(str(path)), lambda _: None, columns=columns, after=line.number))
        assert rest == whole[whole.index(line) + 1 :]
