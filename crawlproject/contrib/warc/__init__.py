"""WARC files of pages, and of whatever else a spider wants to keep as it came."""
