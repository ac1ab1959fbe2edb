"""A number as a PNG image: drawn with a small bitmap font, and read back from the pixels."""

import struct
import zlib

# Five rows of three pixels for each digit, a row as an octal number.
FONT = ["75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717"]
SCALE = 16
ROWS, COLUMNS = 7, 4
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def draw(number):
    """Returns the digits of a text, black on white, as a PNG."""
    cells = [[False] * (COLUMNS * len(number) + 1) for _ in range(ROWS)]
    for at, digit in enumerate(number):
        for row, bits in enumerate(FONT[int(digit)]):
            for column in range(3):
                cells[row + 1][COLUMNS * at + 1 + column] = bool(int(bits, 8) & 4 >> column)
    lines = [b"\0" + b"".join(bytes([0 if dark else 255]) * SCALE for dark in row) for row in cells for _ in range(SCALE)]
    size = struct.pack(">IIBBBBB", len(cells[0]) * SCALE, ROWS * SCALE, 8, 0, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"".join(lines))) + chunk(b"IEND", b"")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def read(image):
    """Returns the number that an image of `draw` shows. Raises an error if it is another image."""
    if not image.startswith(SIGNATURE):
        raise ValueError(f"no PNG: {image[:16]!r}")
    at, header, data = len(SIGNATURE), None, b""
    while at < len(image):
        length, kind = struct.unpack(">I4s", image[at : at + 8])
        body = image[at + 8 : at + 8 + length]
        header, data = (body if kind == b"IHDR" else header), (data + body if kind == b"IDAT" else data)
        at += length + 12
    width, _, depth, colour = struct.unpack(">IIBB", header[:10])
    lines = zlib.decompress(data)
    if (depth, colour) != (8, 0) or set(lines[:: width + 1]) != {0}:
        raise ValueError("the image was encoded again")
    dark = lambda row, column: lines[(row * SCALE + SCALE // 2) * (width + 1) + 1 + column * SCALE + SCALE // 2] == 0
    digits = range((width // SCALE - 1) // COLUMNS)
    rows = lambda digit: "".join(oct(sum(dark(row + 1, COLUMNS * digit + 1 + bit) << 2 - bit for bit in range(3)))[2:] for row in range(5))
    return "".join(str(FONT.index(rows(digit))) for digit in digits)
