"""The long description, and enough for `scrapyd-deploy`; all other metadata is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def long_description() -> str:
    """Return README.md with links that lead to the repository: on PyPI there is no docs/ beside it."""
    urls = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    readme = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{urls['Source']}/raw/main/", readme)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{urls['Source']}/blob/main/", readme)


setup(long_description=long_description(), long_description_content_type="text/markdown")
