"""What every request passes on its way to the downloader."""
