"""How fast a file of an image is read, beside the same file of the host.

    python bench_read.py [--size 1G] [--folder DIR] [--rounds 5]

Both are read whole, in turn, from the page cache: by `read()` in pieces of 1 MiB, by `readinto` in pieces
of 8 MiB, and at once. Of each the fastest round counts. The goal is a ratio of 0.8 or more. Build the wheel
with `maturin build --release` first: that of the tests is not optimised.
"""

import argparse
import os
import sys
import tempfile
import time

import hectare
from hectare import _native

PIECE = 1 << 20


def pieces(file):
    while file.read(PIECE):
        pass


def into(file):
    buffer = memoryview(bytearray(8 << 20))
    while file.readinto(buffer):
        pass


def whole(file):
    file.read()


def fastest(rounds, sides, work):
    """Seconds of the fastest round of each side; the sides take turns."""
    best = [float("inf")] * len(sides)
    for _ in range(rounds):
        for number, opened in enumerate(sides):
            with opened() as file:
                start = time.perf_counter()
                work(file)
                best[number] = min(best[number], time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="1G")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    size = _native.parse_size(arguments.size)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        plain, image = os.path.join(folder, "plain"), os.path.join(folder, "disk.img")
        block = os.urandom(PIECE)
        hectare.mkfs(image, size + size // 8 + (64 << 20))
        with (
            hectare.open(image, "rw") as volume,
            volume.open("/data", "wb") as inside,
            open(plain, "wb") as outside,
        ):
            for _ in range(size // PIECE):
                inside.write(block)
                outside.write(block)
        ratios = []
        with hectare.open(image) as volume:
            sides = [
                lambda: open(plain, "rb", buffering=0),
                lambda: volume.open("/data", "rb", buffering=0),
            ]
            for work in (pieces, into, whole):
                host, ours = fastest(arguments.rounds, sides, work)
                ratios.append(host / ours)
                print(
                    f"{work.__name__}: host {size / host / 1e9:.2f} GB/s, "
                    f"image {size / ours / 1e9:.2f} GB/s, ratio {host / ours:.2f}"
                )
    print(f"smallest ratio {min(ratios):.2f}, goal 0.80")
    return 0 if min(ratios) >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
