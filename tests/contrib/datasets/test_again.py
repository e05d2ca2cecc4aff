"""`scrapy feed --again FOLDER/`: from images to a dataset, and back as probes."""

from __future__ import annotations

import pytest
from pyarrow import parquet as pq

from tests.conftest import Scrapy
from tests.spiders.test_probes import DATE, ETAG, Probing, Site, crawl

__all__ = ["crawl"]


def test_a_catalogue_is_checked_again_from_its_own_dataset(
    crawl: Probing,
    scrapy: Scrapy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urls = [crawl.url(name) for name in ("full.jpg", "small-ok.png", "missing.jpg", "forbidden.jpg")]
    scrapy("feed", "-", stdin="\n".join(urls))
    crawl.run()
    dataset = f"{crawl.folder / 'out'}/"
    scrapy("events", f"{dataset}:parquet")
    table = pq.read_table(crawl.folder / "out" / "00000000.parquet").to_pylist()
    told = {row["url"]: (row["status"], row["etag"], row["last_modified"]) for row in table}
    assert told == {
        urls[0]: ("ok", ETAG, DATE),
        urls[1]: ("ok", None, None),
        urls[2]: ("gone", None, None),
        urls[3]: ("gone", None, None),
    }
    monkeypatch.setattr(Site, "answer_full", Site.answer_same)
    for number in (1, 2):
        before = len(crawl.server.asked)
        done = scrapy("feed", "--probe", "--again", dataset)
        assert done.stdout == "2 seeds fed, 0 rejected\n", done.stderr
        crawl.run()
        scrapy("events", f"{dataset}:parquet")
        rows = pq.read_table(crawl.folder / "out" / f"{number:08d}.parquet").to_pylist()
        assert {row["url"]: (row["status"], row["http_status"], row["etag"]) for row in rows} == {
            urls[0]: ("unchanged", 304, ETAG),
            urls[1]: ("unchanged", 200, None),
        }
        assert {row["identifier"] for row in rows} <= {row["identifier"] for row in table}
        assert len(crawl.server.asked) == before + 2
