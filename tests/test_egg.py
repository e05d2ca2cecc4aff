"""What scrapyd gets: an egg with the functions in it."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_scrapyd_deploy_builds_an_egg_that_carries_the_functions_and_decodes_pictures(tmp_path: Path) -> None:
    for name in ("scrapy.cfg", "setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "crawlproject", tmp_path / "crawlproject", ignore=shutil.ignore_patterns("__pycache__"))
    egg = tmp_path / "crawlproject.egg"
    deploy = Path(sys.executable).with_name("scrapyd-deploy")
    subprocess.run([deploy, f"--build-egg={egg}"], cwd=tmp_path, check=True, capture_output=True)
    package = {
        path.relative_to(tmp_path).as_posix()
        for path in (tmp_path / "crawlproject").rglob("*.*")
        if path.suffix != ".md"
    }
    assert package - set(zipfile.ZipFile(egg).namelist()) == set()
    code = (
        "import crawlproject.spiders.images\n"
        "from crawlproject.state import functions\n"
        "print(crawlproject.__file__)\n"
        "from crawlproject.imaging.decoders import Decoders\n"
        "from crawlproject.imaging.messages import Job\n"
        "import asyncio, sys; decoders = Decoders(1, Job(10**6, 10**6, 85, 20))\n"
        "made = asyncio.run(decoders.analyse(sys.stdin.buffer.read()))\n"
        "assert made.facts.width == 9\n"
        "text = functions.crawl_library().text\n"
        "for verb in ('lease', 'settle'): assert f\"register('{verb}'\" in text\n"
    )
    picture = io.BytesIO()
    Image.new("RGB", (9, 9)).save(picture, "PNG")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(egg)},
        cwd="/",
        check=True,
        input=picture.getvalue(),
        capture_output=True,
    )
    assert done.stdout.startswith(bytes(egg))
