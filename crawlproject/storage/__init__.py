"""Where thumbnails are kept."""
