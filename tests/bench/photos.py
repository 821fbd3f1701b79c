"""Photographs for the benchmark: pieces of what Debian's plasma-workspace-wallpapers holds, scaled to
the sizes that pictures on the web have, in a few class folders. Needs PIL."""

import glob
import os
import random
from contextlib import suppress

with suppress(ImportError):
    from PIL import Image

SOURCES = ('/usr/share/wallpapers/*/contents/images/*.jpg',)
SIZES = ((500, 375), (375, 500), (500, 333), (333, 500), (500, 500), (640, 480), (400, 300))
CLASSES = 5


DONE = 'done'  # a file: all are there


def can_make():
    return 'Image' in globals()


def sources():
    """One file of each wallpaper, the largest."""
    best = {}
    for path in sorted(p for pattern in SOURCES for p in glob.glob(pattern)):
        folder = os.path.dirname(os.path.realpath(path))
        if os.path.getsize(path) >= os.path.getsize(best.get(folder, os.devnull)):
            best[folder] = path
    return sorted(best.values())


def painted(size, rng):
    """Where there are no photographs: enough to run with, nothing to measure with."""
    small = Image.frombytes('RGB', (40, 40), rng.randbytes(40 * 40 * 3))
    return small.resize(size, Image.BICUBIC)


def piece(image, size, rng):
    """A part of it, of about a third to all of its height."""
    scale = min(image.width / size[0], image.height / size[1])
    share = rng.uniform(0.35, 1)
    w, h = int(size[0] * scale * share), int(size[1] * scale * share)
    left, top = rng.randint(0, image.width - w), rng.randint(0, image.height - h)
    return image.crop((left, top, left + w, top + h)).resize(size, Image.LANCZOS)


def make(folder, count, seed=42):
    """Writes `count` of them below `folder`, and then DONE."""
    rng = random.Random(seed)
    paths = sources()
    opened, last = None, None
    for i in range(count):
        size = SIZES[rng.randrange(len(SIZES))]
        path = os.path.join(folder, f'class{i % CLASSES}', f'{i:05}.jpg')
        source = paths[i * len(paths) // count] if paths else None
        if source != last:
            opened, last = Image.open(source).convert('RGB'), source
        image = piece(opened, size, rng) if paths else painted(size, rng)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        image.save(path, 'JPEG', quality=rng.choice((85, 90, 95)), subsampling=2)
    with open(os.path.join(folder, DONE), 'w', encoding='ascii'):
        pass
