"""`scrapy feed --probe`, and `--again` with the files of a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.test_feed import broken_off, seeds
from tests.conftest import Scrapy
from tests.contrib.probes import datasets


def rows_of_dataset(path: Path, numbers: range, at: int) -> None:
    datasets.write(path, [{"identifier": str(number), "status": "probed", "at": at} for number in numbers])


def test_a_check_of_a_dataset_is_resumed_exactly_while_the_dataset_grows(
    scrapy: Scrapy, environment: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    for number in range(3):
        rows_of_dataset(tmp_path / f"{number:08d}.parquet", range(number * 4_500, number * 4_500 + 4_500), at=1)
    rows_of_dataset(tmp_path / "00000003.parquet", range(0, 100), at=2)
    fed = broken_off(environment, redis_url, "--probe", "--again", str(tmp_path))
    assert fed < 13_500, "it was not killed in time"
    rows_of_dataset(tmp_path / "00000004.parquet", range(100, 5_000), at=3)  # of this check's probes
    done = scrapy("feed", "--probe", "--again", "--resume", str(tmp_path))
    assert done.stdout == f"{13_500 - fed} seeds fed, 0 rejected\n"
    assert "note: continuing after row" in done.stderr
    identifiers = [int(json.loads(seed)["identifier"]) for seed in seeds(redis_url)]
    assert identifiers == [*range(100, 13_500), *range(100)]

    done = scrapy("feed", "--probe", "--again", "--resume", str(tmp_path))
    assert done.stdout == "0 seeds fed, 0 rejected\n"
    assert done.stderr == "note: these files have been fed already: begin the next feed without --resume\n"
    done = scrapy("feed", "--probe", "--again", str(tmp_path))
    assert (done.stdout, done.stderr) == ("13500 seeds fed, 0 rejected\n", "")
    rows_of_dataset(tmp_path / "00000002.parquet", range(5), at=9)
    done = scrapy("feed", "--probe", "--again", "--resume", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "begin without --resume, which feeds all rows again" in done.stderr


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--again", "out/"), "--again goes with --probe"),
        (("--probe", "--again", "-"), "--again goes with --probe and with the folder or files of a dataset"),
        (("--probe", "--spider", "pages", "-"), "--probe is for the spider images: pages fetches no images"),
        (("--probe",), "expected at least one FILE (- for stdin)"),
    ],
)
def test_options_that_cannot_be_used_are_refused(scrapy: Scrapy, args: tuple[str, ...], reason: str) -> None:
    done = scrapy("feed", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
