"""Scrapy's ImagesPipeline, with the thumbnails' JPEG quality that crawlproject uses.

Scrapy has no setting for the quality (Pillow's default is 75), so `convert_image` is Scrapy 2.19's, word for
word but for `quality` and what is there for older versions of Pillow.
"""

from io import BytesIO

from PIL import Image
from scrapy.pipelines.images import ImagesPipeline

QUALITY = 85


class WithFullPictures(ImagesPipeline):
    """As it comes: stores the full picture, converted to JPEG (at Pillow's quality), and the thumbnail.

    What is a JPEG already is meant to be stored as it came, but the copy that `exif_transpose` makes has no
    `format`, so that JPEGs are encoded anew, too.
    """

    def convert_image(self, image, size=None, *, response_body):
        """Return the picture as RGB, at most `size` large, and its JPEG."""
        if image.format in {"PNG", "WEBP"} and image.mode == "RGBA":
            background = Image.new("RGBA", image.size, (255, 255, 255))
            background.paste(image, image)
            image = background.convert("RGB")
        elif image.mode == "P":
            image = image.convert("RGBA")
            background = Image.new("RGBA", image.size, (255, 255, 255))
            background.paste(image, image)
            image = background.convert("RGB")
        elif image.mode != "RGB":
            image = image.convert("RGB")
        if size:
            image = image.copy()
            image.thumbnail(size, Image.Resampling.LANCZOS)
        elif image.format == "JPEG":
            return image, response_body
        buf = BytesIO()
        if size:
            image.save(buf, "JPEG", quality=QUALITY)
        else:
            image.save(buf, "JPEG")
        return image, buf


class ThumbnailsOnly(WithFullPictures):
    """Makes and stores nothing but the thumbnail. There is no setting for that: this is changed code.

    It does what its users would have to write to do no more work than crawlproject does.
    """

    def get_images(self, response, request, info, *, item=None):
        """Yield the thumbnail."""
        image = self._ImageOps.exif_transpose(Image.open(BytesIO(response.body)))
        for thumb_id, size in self.thumbs.items():
            path = self.thumb_path(request, thumb_id, response=response, info=info, item=item)
            yield path, *self.convert_image(image, size, response_body=None)
