"""An analysis whose module sets for all of Pillow what it wants for itself, as some libraries do."""

from PIL import Image, ImageFile

Image.MAX_IMAGE_PIXELS = 1000
ImageFile.LOAD_TRUNCATED_IMAGES = True


def size(image: Image.Image) -> list[int]:
    return list(image.size)
