"""Pictures made on the spot with Pillow alone: a few large scenes, and many variations cut from them.

Everything random comes from the `random.Random` handed in, so the same seed gives the same bytes. (For this
reason noise is not drawn by `Image.effect_noise`, which uses the C library's generator.) Sizes are in pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from random import Random

from PIL import ExifTags, Image, ImageDraw, ImageFont, ImageOps, features

Size = tuple[int, int]  # width, height
Colour = tuple[int, int, int]  # red, green, blue, 0 to 255

SCENE_SIZE: Size = (2000, 1500)
SHORTEST_LONGEST_SIDE = 200  # no picture's longer side is below this
BOMB_SIZE: Size = (20_000, 10_000)

WORDS = (
    "Harbour",
    "Meadow",
    "Evening",
    "Study",
    "Untitled",
    "Coast",
    "Orchard",
    "Winter",
    "Market",
    "Figure",
)
ARTISTS = ("Ada Lindqvist", "José Ferreira", "Mei Tanaka", "Oluwaseun Bello", "Greta Hoffmann")

# EXIF orientation -> how an upright picture is stored so that a viewer obeying the tag shows it upright.
STORED_AS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


# --- Scenes: one large RGB picture each ---


def scenes(rng: Random) -> list[Image.Image]:
    """Return the pool of large pictures from which `variation` cuts."""
    return [paint(rng) for paint in (_landscape, _still_life, _colour_fields, _marble, _poster) for _ in range(3)]


def _colour(rng: Random, darkest: int = 0, lightest: int = 255) -> Colour:
    return rng.randint(darkest, lightest), rng.randint(darkest, lightest), rng.randint(darkest, lightest)


def _noise(rng: Random, size: Size) -> Image.Image:
    """Return grey noise, every value equally likely."""
    return Image.frombytes("L", size, rng.randbytes(size[0] * size[1]))


def _clouds(rng: Random) -> Image.Image:
    """Return grey clouds: coarse noise, enlarged step by step, with ever less of ever finer noise."""
    width, height = SCENE_SIZE
    clouds = _noise(rng, (width >> 8, height >> 8))
    for halvings, share in ((6, 0.35), (4, 0.2), (2, 0.08), (0, 0.03)):
        size = (width >> halvings, height >> halvings)
        clouds = Image.blend(clouds.resize(size, Image.Resampling.BICUBIC), _noise(rng, size), share)
    return ImageOps.autocontrast(clouds, cutoff=1)


def _gradient(top: Colour, bottom: Colour) -> Image.Image:
    return ImageOps.colorize(Image.linear_gradient("L"), top, bottom).resize(SCENE_SIZE)


def _landscape(rng: Random) -> Image.Image:
    """Sky with clouds, a low sun, and four ranges of hills, each nearer and darker."""
    width, height = SCENE_SIZE
    sky = _gradient(_colour(rng, 40, 140), _colour(rng, 170, 250))
    scene = Image.composite(Image.new("RGB", SCENE_SIZE, _colour(rng, 210, 255)), sky, _clouds(rng))
    draw = ImageDraw.Draw(scene)
    x, y, radius = rng.randrange(width), rng.randrange(height // 4, height // 2), rng.randrange(40, 140)
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=(255, 240, rng.randint(150, 220)))
    red, green, blue = _colour(rng, 90, 170)
    for hills in range(4):
        level = height * (0.5 + 0.13 * hills)
        ridge = [(0.0, level)]
        while ridge[-1][0] < width:
            ridge.append((ridge[-1][0] + rng.uniform(10, 60), ridge[-1][1] + rng.gauss(0, 16)))
        shade = 1 - 0.2 * hills
        colour = (int(red * shade), int(green * shade), int(blue * shade))
        draw.polygon([(0, height), *ridge, (width, height)], fill=colour)
    return Image.blend(scene, _clouds(rng).convert("RGB"), 0.08)


def _still_life(rng: Random) -> Image.Image:
    """Shaded balls on a table."""
    width, height = SCENE_SIZE
    scene = _gradient(_colour(rng, 20, 90), _colour(rng, 90, 180))
    scene.paste(_colour(rng, 70, 150), (0, height * 2 // 3, width, height))
    for _ in range(14):
        across = rng.randrange(120, 520)
        shape = Image.new("L", (across, across))
        ImageDraw.Draw(shape).ellipse((0, 0, across - 1, across - 1), fill=255)
        light = ImageOps.invert(Image.radial_gradient("L")).resize((across, across))
        ball = ImageOps.colorize(light, _colour(rng, 0, 60), _colour(rng, 120, 255))
        scene.paste(ball, (rng.randrange(width - across), rng.randrange(height // 3, height - across)), shape)
    return Image.blend(scene, _clouds(rng).convert("RGB"), 0.06)


def _colour_fields(rng: Random) -> Image.Image:
    """Rectangles of flat colour on canvas, black bars between them."""
    width, height = SCENE_SIZE
    scene = Image.new("RGB", SCENE_SIZE, _colour(rng, 180, 250))
    draw = ImageDraw.Draw(scene)
    for _ in range(40):
        left, top = rng.randrange(width), rng.randrange(height)
        right, bottom = left + rng.randrange(60, 700), top + rng.randrange(60, 500)
        outline = "black" if rng.random() < 0.5 else None
        draw.rectangle((left, top, right, bottom), fill=_colour(rng), outline=outline, width=rng.randrange(1, 16))
    return Image.blend(scene, _noise(rng, SCENE_SIZE).convert("RGB"), 0.05)


def _marble(rng: Random) -> Image.Image:
    return ImageOps.colorize(
        _clouds(rng), _colour(rng, 0, 90), _colour(rng, 180, 255), mid=_colour(rng, 60, 200), midpoint=120
    )


def _poster(rng: Random) -> Image.Image:
    """Large type and rings on a gradient."""
    width, height = SCENE_SIZE
    scene = _gradient(_colour(rng), _colour(rng))
    draw = ImageDraw.Draw(scene)
    for _ in range(9):
        x, y, radius = rng.randrange(width), rng.randrange(height), rng.randrange(30, 400)
        box = (x - radius, y - radius, x + radius, y + radius)
        draw.ellipse(box, outline=_colour(rng), width=rng.randrange(4, 40))
    for line in range(7):
        font = ImageFont.load_default(rng.randrange(60, 220))
        place = (rng.randrange(width // 2), line * height // 7)
        draw.text(place, rng.choice(WORDS).upper(), fill=_colour(rng), font=font)
    return scene


# --- Variations: a picture of its own, cut from a scene ---


def variation(rng: Random, pool: list[Image.Image], longest: int) -> Image.Image:
    """Return an RGB picture cut from one of the scenes, tinted and captioned at random.

    Its longer side is at most `longest`; as on the web, small ones are more frequent than large ones.
    """
    scene = rng.choice(pool)
    long_side = int(SHORTEST_LONGEST_SIDE * (longest / SHORTEST_LONGEST_SIDE) ** rng.random())
    short_side = int(long_side / rng.choice((1, 4 / 3, 3 / 2, 16 / 9)))
    width, height = rng.choice(((long_side, short_side), (short_side, long_side)))
    # A crop no smaller than the picture, where the scene has as much, or the result would look blurred.
    largest = min(scene.width / width, scene.height / height)
    scale = rng.uniform(min(1.0, largest), largest)
    left, top = rng.uniform(0, scene.width - width * scale), rng.uniform(0, scene.height - height * scale)
    box = (left, top, left + width * scale, top + height * scale)
    picture = scene.resize((width, height), Image.Resampling.BILINEAR, box, reducing_gap=1.5)
    gains = [rng.uniform(0.7, 1.2) for _ in picture.getbands()]
    picture = picture.point([min(255, int(value * gain)) for gain in gains for value in range(256)])
    if rng.random() < 0.3:
        caption = f"{rng.choice(WORDS)} no. {rng.randrange(1, 500)}"
        font = ImageFont.load_default(max(10, height / 20))
        ImageDraw.Draw(picture).text((width / 30, height * 0.92), caption, fill="white", font=font)
    return picture


# --- Kinds: how a picture is written ---


@dataclass(frozen=True)
class Kind:
    """A way of writing a picture: its file names' suffix, the longest side it is used for, the encoder."""

    suffix: str
    longest: int
    encode: Callable[[Image.Image, Random], bytes]


def _encoded(picture: Image.Image, file_format: str, **options: object) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, file_format, **options)
    return buffer.getvalue()


def _exif(rng: Random, orientation: int = 1) -> Image.Exif:
    exif = Image.Exif()
    artist = rng.choice(ARTISTS)
    # As bytes: many programs write UTF-8 here. The standard says ASCII, to which Pillow reduces strings.
    exif[ExifTags.Base.Artist] = artist.encode()
    exif[ExifTags.Base.Copyright] = f"© {rng.randrange(1990, 2025)} {artist}, CC BY 4.0".encode()
    exif[ExifTags.Base.Make] = "Crawlproject"
    exif[ExifTags.Base.Orientation] = orientation
    position = exif.get_ifd(ExifTags.IFD.GPSInfo)
    position[ExifTags.GPS.GPSLatitudeRef] = "N"
    position[ExifTags.GPS.GPSLatitude] = (float(rng.randrange(90)), float(rng.randrange(60)), 0.0)
    position[ExifTags.GPS.GPSLongitudeRef] = "E"
    position[ExifTags.GPS.GPSLongitude] = (float(rng.randrange(180)), float(rng.randrange(60)), 0.0)
    return exif


def _jpeg(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture, "JPEG", quality=rng.randrange(55, 98), subsampling=rng.choice((0, 1, 2)))


def _progressive_jpeg(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture, "JPEG", quality=rng.randrange(55, 98), progressive=True)


def _exif_jpeg(picture: Image.Image, rng: Random) -> bytes:
    orientation = rng.randrange(1, 9)
    if orientation in STORED_AS:
        picture = picture.transpose(STORED_AS[orientation])
    return _encoded(picture, "JPEG", quality=90, exif=_exif(rng, orientation))


def _cmyk_jpeg(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture.convert("CMYK"), "JPEG", quality=rng.randrange(75, 96))


def _grey_jpeg(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture.convert("L"), "JPEG", quality=rng.randrange(70, 96))


def _transparent(picture: Image.Image) -> Image.Image:
    """Return the picture fading to nothing from its middle outwards."""
    picture = picture.copy()
    picture.putalpha(ImageOps.invert(Image.radial_gradient("L")).resize(picture.size))
    return picture


def _transparent_png(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(_transparent(picture), "PNG", compress_level=1, exif=_exif(rng))


def _palette_png(picture: Image.Image, rng: Random) -> bytes:
    palette = picture.quantize(64, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    return _encoded(palette, "PNG", transparency=rng.randrange(8), compress_level=1)


def _deep_png(picture: Image.Image, rng: Random) -> bytes:
    """Write 16 bits a pixel, grey; the lower byte is noise, so that there is something in it."""
    high, low = picture.convert("L").tobytes(), rng.randbytes(picture.width * picture.height)
    pixels = bytearray(2 * len(high))
    pixels[0::2], pixels[1::2] = low, high  # Pillow's "I;16" is little-endian
    return _encoded(Image.frombytes("I;16", picture.size, bytes(pixels)), "PNG", compress_level=1)


def _animated_gif(picture: Image.Image, rng: Random) -> bytes:
    first = picture.quantize(64, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    frames: Iterator[Image.Image] = (first.rotate(angle) for angle in (90, 180))
    return _encoded(first, "GIF", save_all=True, append_images=frames, duration=rng.randrange(50, 400), loop=0)


def _webp(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture, "WEBP", quality=rng.randrange(60, 96), method=0, exif=_exif(rng))


def _transparent_webp(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(_transparent(picture), "WEBP", quality=rng.randrange(60, 96), method=0)


def _tiff(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture, "TIFF", compression=rng.choice((None, "tiff_lzw")), exif=_exif(rng))


def _bmp(picture: Image.Image, _rng: Random) -> bytes:
    return _encoded(picture, "BMP")


def _avif(picture: Image.Image, rng: Random) -> bytes:
    return _encoded(picture, "AVIF", quality=rng.randrange(50, 90), speed=10, max_threads=1)


JPEG = Kind(".jpg", 2000, _jpeg)
EXIF_JPEG = Kind(".jpg", 1600, _exif_jpeg)
PROGRESSIVE_JPEG = Kind(".jpeg", 1200, _progressive_jpeg)
WEBP = Kind(".webp", 800, _webp)

# Dealt out in turn. Mostly JPEG, as on the web; the slow encoders get the smaller pictures. The first six are
# as different as can be, because the smallest source has no more.
KINDS: tuple[Kind, ...] = (
    EXIF_JPEG,
    Kind(".png", 900, _transparent_png),
    JPEG,
    Kind(".gif", 480, _animated_gif),
    Kind(".tif", 700, _tiff),
    PROGRESSIVE_JPEG,
    JPEG,
    WEBP,
    JPEG,
    Kind(".jpg", 1200, _cmyk_jpeg),
    Kind(".png", 800, _palette_png),
    JPEG,
    EXIF_JPEG,
    Kind(".avif", 800, _avif) if features.check("avif") else WEBP,
    JPEG,
    Kind(".jpg", 1200, _grey_jpeg),
    Kind(".png", 700, _deep_png),
    PROGRESSIVE_JPEG,
    Kind(".bmp", 500, _bmp),
    Kind(".webp", 600, _transparent_webp),
    JPEG,
    EXIF_JPEG,
)


# --- What is no picture, or should not be opened ---


def truncated_jpeg(picture: Image.Image) -> bytes:
    """Return a JPEG whose header can be read but whose second half is missing."""
    whole = _encoded(picture, "JPEG", quality=85)
    return whole[: len(whole) // 2]


def html_page() -> bytes:
    """Return what many sites send, with status 200 and an image's type, for a picture they no longer have."""
    return b"<!DOCTYPE html>\n<html><title>Oops</title><body><p>Image not available</p></body></html>\n"


def decompression_bomb() -> bytes:
    """Return a valid PNG of a few kilobytes that is 200 million black pixels once decoded.

    Written by hand, row by row: Pillow would need those 200 million pixels in memory to save them.
    """
    width, height = BOMB_SIZE
    compressor = zlib.compressobj(9)
    row = bytes(1 + width // 8)  # filter type 0, then one bit a pixel
    pixels = b"".join(compressor.compress(row) for _ in range(height)) + compressor.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)  # 1 bit, greyscale
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
