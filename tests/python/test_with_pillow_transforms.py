"""Transforms of all kinds on pictures that a dataset's own code opens, drawn at random: torchvision's lists and
functions, timm's create_transform() and its parts. Once by Pillow alone, and once as in a worker of ours: the same
values, errors and states of all generators. $PILLOW_SEED draws others, $TRANSFORMS_CASES more.
"""

import io
import os
import pathlib
import random
import re
import sys
import unittest
import warnings

import numpy
import torch

import test_with_torchvision as torchvisions
from black_box import QUICK
from pillow_files import described, files, is_damaged
from PIL import Image, ImageOps
from test_with_pillow_workers import installed, strides
from torchvision.transforms import functional as f1
from torchvision.transforms import v2

from dloaderd import _lazy

SEED = int(os.environ.get("PILLOW_SEED", 1))
CASES = int(os.environ.get("TRANSFORMS_CASES", 200 if QUICK else 1200))
TOGETHER = 50  # programs between two changes of Pillow

sys.path.append(str(pathlib.Path(sys.prefix).with_name(pathlib.Path(sys.prefix).name + "-packages")))
try:
    import timm.data
    from timm.data import auto_augment
    from timm.data import transforms as timms
except ImportError:
    timm = None


# ---- what is called ------------------------------------------------------------------------------

def of_lists(draw):
    return torchvisions.pipeline(draw, draw.choice([torchvisions.v1, v2]))


def of_functions(draw):
    """Several, of either generation."""
    f = draw.choice([f1, v2.functional])
    size, edge, p = [draw.randint(1, 60), draw.randint(1, 60)], draw.randint(1, 50), draw.random()
    filter = torchvisions.filters(draw)
    fill = draw.randrange(256)
    known = [lambda x: f.resize(x, size, filter), lambda x: f.resize(x, [edge], max_size=70),
             lambda x: f.crop(x, -2 if p < 0.2 else 1, 2, *size), lambda x: f.center_crop(x, size), f.hflip, f.vflip,
             lambda x: f.resized_crop(x, 1, 2, 20, 30, size, filter), lambda x: f.pad(x, [1, 2, 3], fill),
             lambda x: f.rotate(x, 360 * p, expand=p < 0.5), lambda x: f.adjust_brightness(x, 2 * p),
             lambda x: f.adjust_contrast(x, 2 * p), lambda x: f.adjust_saturation(x, 2 * p),
             lambda x: f.adjust_hue(x, p - 0.5), lambda x: f.adjust_gamma(x, 2 * p), lambda x: f.rgb_to_grayscale(x, 3),
             lambda x: f.affine(x, 9, [1, 2], 1.1, [3.0, 0.0]), lambda x: f.five_crop(x, size)[2], f.equalize,
             lambda x: f.perspective(x, [[0, 0], [30, 0], [30, 30], [0, 30]], [[1, 2], [28, 0], [29, 33], [2, 28]]),
             lambda x: f.gaussian_blur(x, 3), lambda x: f.posterize(x, 3), lambda x: f.solarize(x, 99), f.invert,
             lambda x: f.adjust_sharpness(x, 2 * p), f.autocontrast, lambda x: f.erase(x, 1, 2, 3, 4, 0)]
    ends = [lambda x: x, f.pil_to_tensor, f.to_tensor, lambda x: f.normalize(f.to_tensor(x), [0.4] * 3, [0.2] * 3),
            lambda x: f.convert_image_dtype(f.pil_to_tensor(x), torch.float32),
            lambda x: f.get_image_size(x) if f is f1 else f.get_size(x)]
    if f is v2.functional:
        ends += [f.to_image, lambda x: f.to_dtype(f.to_image(x), torch.float32, scale=True)]
    steps = [*(draw.choice(known) for _ in range(draw.randint(0, 4))), draw.choice(ends)]

    def call(picture):
        for step in steps:
            picture = step(picture)
        return picture
    return call


def of_timm(draw):
    """create_transform(), for training and without."""
    options = {"input_size": draw.choice([32, (24, 40), (3, 20, 20)]),
               "interpolation": draw.choice(["bilinear", "bicubic", "lanczos", "nearest", "random", "box"])}
    is_training = draw.random() < 0.6
    if is_training:
        options.update(is_training=True, no_aug=draw.random() < 0.1, hflip=draw.choice([0, 0.5, 1]),
                       vflip=draw.choice([0, 0.5]), re_prob=draw.choice([0, 0.7]),
                       re_mode=draw.choice(["const", "rand", "pixel"]), grayscale_prob=draw.choice([0, 0.5]),
                       gaussian_blur_prob=draw.choice([0, 0.3]), color_jitter=draw.choice([0.4, None, (0.1, 0.2, 0.3)]),
                       color_jitter_prob=draw.choice([None, 0.5]), scale=draw.choice([None, (0.3, 0.9)]),
                       train_crop_mode=draw.choice([None, "rrc", "rkrc", "rkrr"]),
                       auto_augment=draw.choice([None, "rand-m5", "rand-m9-mstd0.5-inc1", "original", "v0", "3a",
                                                 "augmix-m3-w2", "rand-m7-n1-p0.7"]))
    else:
        options.update(crop_mode=draw.choice([None, "center", "squash", "border"]),
                       crop_pct=draw.choice([None, 0.5, 1.0]), crop_border_pixels=draw.choice([None, 2]))
        options["interpolation"] = options["interpolation"].replace("random", "hamming")
    options.update(normalize=draw.random() < 0.8, use_prefetcher=draw.random() < 0.3)
    return timm.data.create_transform(**options)


def of_timms_parts(draw):
    size = draw.choice([20, (30, 12)])
    parts = [lambda: timms.RandomResizedCropAndInterpolation(size, interpolation=draw.choice(["random", "bicubic"])),
             lambda: timms.ResizeKeepRatio(size, random_scale_prob=0.5, random_aspect_prob=0.5),
             lambda: timms.CenterCropOrPad(size), lambda: timms.RandomCropOrPad(size), lambda: timms.TrimBorder(2),
             lambda: timms.RandomPad(60), lambda: auto_augment.rand_augment_transform("rand-m9-n3-mstd1", {}),
             lambda: auto_augment.auto_augment_transform("v0r", {})]
    ends = [timms.ToNumpy(), timms.ToTensor(), timms.MaybeToTensor(), timms.MaybePILToTensor(), lambda x: x]
    steps = [*(draw.choice(parts)() for _ in range(draw.randint(0, 3))), draw.choice(ends)]
    return torchvisions.v1.Compose(steps)


MAKERS = [of_lists, of_lists, of_functions] + ([] if timm is None else [of_timm, of_timms_parts])
BEFORE = [lambda p: p.convert("RGB"), lambda p: p.convert("RGB"), lambda p: p, lambda p: p.convert("L"),
          lambda p: ImageOps.exif_transpose(p).convert("RGB"), lambda p: p.convert("RGB").crop((0, 0, 30, 25)),
          lambda p: p.convert("RGB").copy().resize((44, 50))]


# ---- programs ------------------------------------------------------------------------------------

class Program:
    """A picture of a file, and what is called on it, once or for two views."""

    def __init__(self, case):
        draw = random.Random(f"{SEED} {case}")
        self.case, self.name = case, draw.choice(sorted(files()))
        self.maker, self.before = draw.choice(MAKERS), draw.choice(BEFORE)
        self.views = draw.choice([1, 1, 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.call = self.maker(draw)

    def run(self):
        torch.manual_seed(self.case)
        random.seed(self.case)
        numpy.random.seed(self.case)
        warned = []
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                picture = self.before(Image.open(io.BytesIO(files()[self.name])))
                made = [self.call(picture) for _ in range(self.views)]
                found = [(described(one), strides(one)) for one in made]
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        return (re.sub(r"0x[0-9a-fA-F]+", "0x", repr(found)), torch.get_rng_state().tolist(), random.getstate(),
                numpy.random.get_state()[1].tolist(), [str(one.message) for one in warned])


class TestPrograms(unittest.TestCase):
    def test_programs(self):
        done, raised = _lazy.opened[""], 0
        for first in range(0, CASES, TOGETHER):
            programs = [Program(case) for case in range(first, min(first + TOGETHER, CASES))]
            wanted = [one.run() for one in programs]
            with installed():
                for one, theirs in zip(programs, wanted, strict=True):
                    ours = one.run()
                    raised += not ours[0].startswith("[")
                    if ours != theirs:
                        self.fail(f"case {one.case}, {one.name}, {one.maker.__name__}, {one.call}: {ours[0][:400]} "
                                  f"instead of {theirs[0][:400]}; {[a == b for a, b in zip(ours, theirs, strict=True)]}"
                                  f" {ours[4]} {theirs[4]}")
        whole = sum("PNG" not in name and not is_damaged(name) for name in files()) / len(files())
        self.assertGreater(_lazy.opened[""] - done, CASES * whole / 2)
        self.assertLess(raised, CASES / 2)
