"""The storage of thumbnails and of pages."""
