"""Thumbnails, originals, and segments of pages, in a bucket of S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crawlproject.errors import ConfigError
from crawlproject.models import content_type_of
from crawlproject.texts import printable, without_secrets


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
        except ImportError:
            raise ConfigError("s3:// needs boto3: pip install 'crawlproject[s3]'") from None

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

    def has(self, name: str, size: int) -> bool:
        """Tell whether there is such an object, of so many bytes.

        Not `IfNoneMatch` of `put_object`, which not every store of this interface knows. Without the right to list
        a bucket, what is not there is forbidden (403): then `write` finds out whether all is.
        """
        head = self.head(name, 403, 404)
        return head is not None and bool(head["ContentLength"] == size)

    def upload(self, name: str, file: Path) -> None:
        """Put a WARC file of any size, in parts if it is large; the object appears as a whole."""
        from boto3.s3.transfer import TransferConfig

        self.client.upload_file(
            str(file),
            self.bucket,
            self.prefix + name,
            ExtraArgs={"ContentType": "application/warc"},
            Config=TransferConfig(use_threads=False),
        )

    def read(self, name: str) -> bytes:
        """Get the object."""
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        return body

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
        return isinstance(error, (boto.BotoCoreError, ValueError)) and not isinstance(error, passing)
