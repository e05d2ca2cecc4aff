"""Makes the event of a picture."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from crawlproject.models import FetchedImage, ImageEvent


class MetadataPipeline:
    """Turns an analysed `FetchedImage` into an `ImageEvent`. The lease keeper emits it with the settlement."""

    def process_item(self, item: Any) -> Any:
        """Return the event of an analysed picture; other items as they are."""
        if not isinstance(item, FetchedImage):
            return item
        facts = item.facts
        assert facts is not None, "ITEM_PIPELINES must have the thumbnail pipeline before this one"
        return ImageEvent(
            identifier=item.identifier,
            url=item.url,
            source=item.source,
            **facts.named(),
            content_type=item.content_type,
            thumbnail=item.thumbnail,
            fetched_at=item.fetched_at,
            status=200,
            **asdict(item.fetch),
            opt_out=item.opt_out,
            tls_failure=item.tls_failure,
            extra=item.extra,
            **item.found,
            thumbnails=item.thumbnails,
            original=item.original,
            analysis=item.analysis,
            analysis_errors=item.analysis_errors,
            etag=item.etag,
            last_modified=item.last_modified,
        )
