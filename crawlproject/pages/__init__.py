"""What a page says: links, images, licences. Pure functions of URL, headers and bytes, which may be anything."""
