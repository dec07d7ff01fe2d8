"""Packed files of random pixels, by way of a folder of PNG files, for scripts that train on images of bytes."""
import os
import random
import shutil
import struct
import subprocess
import zlib


def png(height, width, pixels):
    """An image of three colours, stored as it is."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def make(pack, folder, path, sides, images, classes):
    """By the program `pack`, of each class in turn; `folder` is there meanwhile. sides: height, width."""
    source = random.Random(1)
    for i in range(images):
        name = os.path.join(folder, "train", f"{i % classes:05}", f"{i:06}.png")
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(png(*sides, source.randbytes(3 * sides[0] * sides[1])))
    subprocess.run([pack, "--train-only", "folder:" + folder, path], check=True)
    shutil.rmtree(folder)
