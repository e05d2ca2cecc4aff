"""The storage of thumbnails."""
