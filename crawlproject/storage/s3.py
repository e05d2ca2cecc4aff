"""Thumbnails, originals, and segments of pages, in a bucket of S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crawlproject.errors import ConfigError
from crawlproject.plugins import content_type_of
from crawlproject.texts import missing, printable, without_secrets


class S3Storage:
    """Objects of an S3 bucket. Scrapy's `AWS_*` settings apply; boto's defaults if unset.

    Not Scrapy's `S3FilesStore`: that writes from the reactor's thread pool, which also resolves names, and sends
    an ACL, which buckets refuse by default since 2023.

    Raises:
        ConfigError: there is no boto.
        Exception: boto rejects the settings.

    """

    remedy = "check the storage, its bucket and the AWS_* settings"

    def __init__(self, uri: str, settings: Any) -> None:
        try:
            import boto3
            from botocore.config import Config as BotoConfig
        except ImportError as error:
            raise ConfigError(missing("s3://", "boto3", error, "s3")) from None

        parts = urlsplit(uri)
        self.bucket, self.prefix = parts.netloc, parts.path.lstrip("/")
        endpoint = settings.get("AWS_ENDPOINT_URL")
        self.place = printable(uri + (f" at {without_secrets(endpoint)}" if endpoint else ""), 500)
        options = {
            "endpoint_url": endpoint,
            "aws_access_key_id": settings.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": settings.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": settings.get("AWS_SESSION_TOKEN"),
            "region_name": settings.get("AWS_REGION_NAME"),
            "use_ssl": settings.get("AWS_USE_SSL"),
            "verify": settings.get("AWS_VERIFY"),
        }
        # By boto's defaults (60 s to connect, 60 s to read, five attempts) a dead endpoint hangs for minutes.
        limits = BotoConfig(
            max_pool_connections=16,
            connect_timeout=5,
            read_timeout=10,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        given = {name: value for name, value in options.items() if value is not None}
        self.client = boto3.client("s3", config=limits, **given)

    def write(self, name: str, data: bytes) -> None:
        """Put the object; S3 replaces it as a whole."""
        self.client.put_object(
            Bucket=self.bucket, Key=self.prefix + name, Body=data, ContentType=content_type_of(name)
        )

    def has(self, name: str, size: int | None = None) -> bool:
        """Tell whether there is such an object, of so many bytes.

        Not `IfNoneMatch` of `put_object`, which not every store of this interface knows. Without the right to list
        a bucket, what is not there is forbidden (403): then `write` finds out whether all is.
        """
        head = self.head(name, 404) if size is None else self.head(name, 403, 404)
        return head is not None and size in {None, head["ContentLength"]}

    def remove(self, name: str) -> None:
        """Delete the object."""
        self.client.delete_object(Bucket=self.bucket, Key=self.prefix + name)

    def local(self, name: str, copies: Path) -> Path:
        """Return a copy of the object, in `copies`."""
        copy = copies / name
        if not copy.exists():
            self.client.download_file(self.bucket, self.prefix + name, str(copy))
        return copy

    def put(self, file: Path, content_type: str) -> None:
        """Put a file of any size under its name, in parts if it is large; the object appears as a whole."""
        from boto3.s3.transfer import TransferConfig

        self.client.upload_file(
            str(file),
            self.bucket,
            self.prefix + file.name,
            ExtraArgs={"ContentType": content_type},
            Config=TransferConfig(use_threads=False),
        )

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Get the object, or what it has of a part; FileNotFoundError where there is none."""
        from botocore.exceptions import ClientError

        part = {} if length is None else {"Range": f"bytes={offset}-{offset + length - 1}"}
        try:
            found = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name, **part)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                raise FileNotFoundError(name) from error
            if part and error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 416:  # it ends before
                return b""
            raise
        body: bytes = found["Body"].read()
        is_whole = length is None or found["ResponseMetadata"]["HTTPStatusCode"] == 206
        return body if is_whole else body[offset : offset + (length or 0)]

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of objects, in bytes, by their names: those that have nothing but `folder` before."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self.prefix + folder, Delimiter="/"
        )
        found = (one for page in pages for one in page.get("Contents", ()))
        return {one["Key"].removeprefix(self.prefix): one["Size"] for one in found}

    def head(self, name: str, *none: int) -> Any:
        """Return what S3 says of an object, None if that is one of the statuses `none`."""
        from botocore.exceptions import ClientError

        try:
            return self.client.head_object(Bucket=self.bucket, Key=self.prefix + name)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in none:
                return None
            raise

    def is_permanent(self, error: Exception) -> bool:
        """Tell whether S3 refuses the request as such; overload, or a silent endpoint, may pass."""
        from botocore import exceptions as boto

        if isinstance(error, boto.ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            code = error.response.get("Error", {}).get("Code")
            return status < 500 and status not in {408, 429} and code not in {"RequestTimeout", "SlowDown"}
        if isinstance(error, boto.SSLError):
            return "CERTIFICATE_VERIFY_FAILED" in str(error)
        passing = (boto.HTTPClientError, boto.ConnectionError, boto.CredentialRetrievalError)
        lasting = (boto.BotoCoreError, ValueError, FileNotFoundError)
        return isinstance(error, lasting) and not isinstance(error, passing)
