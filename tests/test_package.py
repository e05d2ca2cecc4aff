"""The package: a wheel that is installed elsewhere, and the sdist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import shtab
from scrapy import Spider
from scrapy.settings import Settings

from crawlproject.commands.completion import _parser
from tests.conftest import ROOT, ran
from tests.sites import served
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

_NOT_OURS = (".venv", ".git", ".crawl", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "results.jsonl*")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("package")
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*_NOT_OURS), symlinks=True)
    code = "from setuptools import build_meta as b; b.build_sdist('../out'); b.build_wheel('../out')"
    (folder / "out").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=PATIENCE_S)
    return folder / "out"


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with the wheel, and the other packages of this one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    [wheel] = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    subprocess.run(
        [*install, "--no-deps", "--no-index", "--ignore-installed", str(wheel)],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return folder / "bin"


class Elsewhere:
    """An empty folder, in which a program is run."""

    def __init__(self, folder: Path, programs: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
        for name in ("PYTHONPATH", "SCRAPY_SETTINGS_MODULE"):
            self.environ.pop(name, None)

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        program = shutil.which(words[0], path=self.environ["PATH"]) or words[0]
        return ran([program, *words[1:]], self.folder, self.environ, stdin)


@pytest.fixture
def elsewhere(tmp_path: Path, installed: Path, environment: dict[str, str]) -> Elsewhere:
    return Elsewhere(tmp_path, installed, environment)


@pytest.fixture
def site() -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=ROOT / "docs" / "images")
    with served(handler) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_the_program_crawls_in_an_empty_folder(elsewhere: Elsewhere, site: str) -> None:
    elsewhere.environ.pop("REDIS_URL")  # it starts its own
    (elsewhere.folder / "sources.json").write_text(
        '[{"source_name": "site", "image_count": 500000000, "hosts": ["127.0.0.1"]}]'
    )
    elsewhere.environ["CRAWL_SOURCES"] = "sources.json"
    try:
        fed = elsewhere.run("crawlproject", "feed", "-", stdin=f"{site}/report.png\n")
        assert fed.stdout == "1 seed fed, 0 rejected\n", fed.stderr
        done = elsewhere.run("crawlproject", "crawl", "images", "-s", "MAX_IDLE_TIME_BEFORE_CLOSE=1")
        assert done.returncode == 0, done.stderr
        assert "crawlproject events results.jsonl appends them" in done.stderr
        assert elsewhere.run("crawlproject", "events", "results.jsonl").returncode == 0
        assert f'"url":"{site}/report.png"' in (elsewhere.folder / "results.jsonl").read_text()
        assert list(elsewhere.folder.glob(".crawl/thumbnails/**/*.*"))
    finally:
        stopped = elsewhere.run("crawlproject", "redis", "stop")
    assert stopped.stdout == "stopped; workers that still run wait until it is started again\n"


def test_help_and_errors_call_the_program_by_its_name(elsewhere: Elsewhere) -> None:
    said = elsewhere.run("crawlproject", "--help").stdout
    assert "scrapy " not in said
    listed = re.findall(r"^  (halt|shell|completion) +\S", said, flags=re.MULTILINE)
    assert listed == ["halt", "shell", "completion"]
    for order, usage in (("halt", "[options] SOURCE..."), ("crawl", "[options] <spider>")):
        said = elsewhere.run("crawlproject", order, "--help").stdout
        assert f"  crawlproject {order} {usage}" in said
        assert re.search(r"scrapy\s", said) is None  # nor where a line ends between the two words
    done = elsewhere.run("crawlproject", "crawl", "nothing")
    assert done.stderr.splitlines()[-1].startswith("crawlproject crawl: unknown spider 'nothing'")
    done = elsewhere.run("crawlproject", "fede")
    assert (done.returncode, done.stderr) == (1, "crawlproject: unknown command 'fede': did you mean feed?\n")


def test_help_loads_no_scrapy(installed: Path) -> None:
    code = "import sys; from crawlproject import __main__ as it; it.main(); print('scrapy' in sys.modules)"
    done = subprocess.run([installed / "python", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_a_project_in_the_folder_keeps_its_settings(elsewhere: Elsewhere) -> None:
    elsewhere.run("crawlproject", "startproject", "mine", ".")
    done = elsewhere.run("crawlproject", "settings", "--get", "BOT_NAME")
    assert done.stdout == "mine\n", done.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[settings\n", "scrapy.cfg cannot be read: File contains no section headers"),
        (
            "[settings]\ndefault = nosuch.settings\n",
            "there are no settings nosuch.settings (No module named 'nosuch')",
        ),
    ],
)
def test_a_project_that_cannot_be_read_is_said_in_a_sentence(
    elsewhere: Elsewhere, text: str, sentence: str
) -> None:
    (elsewhere.folder / "scrapy.cfg").write_text(text)
    done = elsewhere.run("crawlproject", "list")
    assert done.returncode == 1
    assert done.stderr.startswith("crawlproject: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


class Odd(Spider):
    """A spider whose name a shell would run."""

    name = "$(touch here)"


def test_a_name_that_a_shell_would_run_is_not_completed() -> None:
    parser = _parser(Settings({"SPIDER_MODULES": [__name__]}))
    assert all("touch" not in shtab.complete(parser, shell) for shell in ("bash", "zsh", "fish"))


_COMPLETES = """
    source ./bash
    tab() { COMP_WORDS=("$@" ""); COMP_CWORD=$#; _shtab_crawlproject; echo "${COMPREPLY[@]}"; }
    tab crawlproject; tab crawlproject crawl; tab crawlproject redis; tab crawlproject feed
"""


def test_a_shell_completes_commands_spiders_words_and_files(elsewhere: Elsewhere) -> None:
    for shell in filter(shutil.which, ("bash", "zsh", "fish")):
        script = elsewhere.run("crawlproject", "completion", shell).stdout
        (elsewhere.folder / shell).write_text(script)
        assert elsewhere.run(shell, "-n", shell).stderr == ""
    done = elsewhere.run("bash", "-c", _COMPLETES)
    assert done.stderr == ""
    assert {"feed", "completion", "images", "pages", "stop"} <= set(done.stdout.split())


def test_the_metadata_is_whole_and_its_links_work_on_pypi(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
        assert "crawlproject/py.typed" in archive.namelist()
    head, _, description = text.partition("\n\n")
    for line in ("License-Expression: MIT", "License-File: LICENSE", "Provides-Extra: parquet"):
        assert line in head.splitlines()
    assert head.count("\nProject-URL: ") >= 2
    assert head.count("\nClassifier: ") >= 5
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert len(targets) > 30
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_sdist_holds_the_repository(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        missing = set(listed.splitlines()) - held
    else:  # in an sdist
        missing = {"tests/conftest.py", "docs/usage.md", "requirements-dev.lock", ".ci/run"} - held
    assert missing == set()
