"""How fast a file of an image is read, beside the same file of the host.

    python bench_read.py [--size 1G] [--folder DIR] [--pairs 7]

Both are read whole, in turn, from the page cache: by `read()` in pieces of 1 MiB, by `readinto` in pieces
of 8 MiB, and at once. Each pair gives a ratio; its median counts, with the lowest and the highest. The goal
is 0.8 or more. `cargo xtask python bench` builds an optimised wheel and runs this; the wheel of the tests is
not optimised.
"""

import argparse
import os
import statistics
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


def measured(pairs, sides, work):
    """Seconds of each side in each pair; the sides take turns, and the order alternates."""
    seconds = []
    for number in range(pairs + 1):
        pair = [0.0, 0.0]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            with sides[side]() as file:
                start = time.perf_counter()
                work(file)
                pair[side] = time.perf_counter() - start
        seconds.append(pair)
    return seconds[1:]  # the first warms up


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="1G")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--pairs", type=int, default=7)
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
        medians = []
        with hectare.open(image) as volume:
            sides = [
                lambda: open(plain, "rb", buffering=0),
                lambda: volume.open("/data", "rb", buffering=0),
            ]
            for work in (pieces, into, whole):
                seconds = measured(arguments.pairs, sides, work)
                ratios = sorted(host / ours for host, ours in seconds)
                speeds = [[size / pair[side] / 1e9 for pair in seconds] for side in (0, 1)]
                host, ours = map(statistics.median, speeds)
                medians.append(statistics.median(ratios))
                print(
                    f"{work.__name__}: host {host:.2f} GB/s, image {ours:.2f} GB/s, "
                    f"ratio {medians[-1]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) of {len(ratios)} pairs"
                )
    print(f"smallest median {min(medians):.2f}, goal 0.80")
    return 0 if min(medians) >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
