"""Events as datasets of Parquet and WebDataset."""

from crawlproject.plugins import Plugin

PLUGIN = Plugin(
    commands="crawlproject.contrib.datasets.commands",
    readers={
        "parquet": "crawlproject.contrib.datasets.targets.ParquetTarget",
        "pages": "crawlproject.contrib.datasets.targets.PagesTarget",
        "webdataset": "crawlproject.contrib.datasets.targets.WebDatasetTarget",
    },
)
