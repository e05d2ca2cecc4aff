"""The store of pages as a reader has it: its files, in a folder or in S3."""

from __future__ import annotations

from pathlib import Path

from crawlproject.storage.blobs import sync
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable


class Folder:
    """The files of a folder."""

    remedy = "bring the folder back, or name another"

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # on whose disk new files are made
        self.place = printable(str(folder), 500)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files, in bytes, by their names."""
        return {path.name: path.stat().st_size for path in self.folder.iterdir() if path.is_file()}

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def local(self, name: str, folder: Path) -> Path:
        """Return a file of this machine with this content; `folder` is for copies."""
        return self.folder / name

    def put(self, file: Path) -> None:
        """Have a file in the store under its name, in place of what is there."""
        sync(file)
        file.replace(self.folder / file.name)
        sync(self.folder)


class Bucket(S3Storage):
    """The objects of a bucket, below a prefix."""

    folder = None  # new files may be made anywhere

    def local(self, name: str, folder: Path) -> Path:
        """As in `Folder`."""
        copy = folder / name
        if not copy.exists():
            self.client.download_file(self.bucket, self.prefix + name, str(copy))
        return copy

    def put(self, file: Path) -> None:
        """As in `Folder`."""
        self.upload(file.name, file, "text/plain")


Store = Folder | Bucket  # methods block, and raise OSError, or boto's errors
