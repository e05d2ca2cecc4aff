"""Events as datasets of Parquet and WebDataset."""

from crawlproject.plugins import Plugin

PLUGIN = Plugin(
    readers={
        "parquet": "crawlproject.contrib.datasets.targets.ParquetTarget",
        "webdataset": "crawlproject.contrib.datasets.targets.WebDatasetTarget",
    },
)
