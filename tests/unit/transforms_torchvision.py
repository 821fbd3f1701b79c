"""Compares transforms with torchvision's own: the same pictures, the same random numbers, equal bytes.

Usage: transforms_torchvision.py CHECK_TRANSFORMS [CASE]. Exit status 77: no interpreter here has
torchvision and PIL; those of DLOADER_TORCH_PYTHONS are tried.

torchvision draws from torch; what it draws is recorded, call by call with its arguments, and given to
check_transforms, which refuses any other call. So the order and the arguments of draws are compared,
too. $TRANSFORMS_SEED chooses other pictures and arguments; with $DLOADER_TEST_TURN, 0 to 3, each list of
transforms has a quarter of its pictures, and the other turns have the others.
"""

import functools
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

# Before torch is imported: threads of its own spin while they wait for each other, and pictures are small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import numpy as np
    import torch
    import torchvision
    from PIL import Image
    from torchvision.transforms import v2
except ImportError as error:
    others = [p for p in os.environ.pop("DLOADER_TORCH_PYTHONS", "").split(":") if p]
    for other in others:
        if subprocess.run([other, "-c", "import torchvision, PIL"], capture_output=True).returncode == 0:
            sys.exit(subprocess.run([other, *sys.argv]).returncode)
    print(f"skipped: torchvision or PIL cannot be imported: {error}")
    sys.exit(77)

TOOL = ""
SEED = int(os.environ.get("TRANSFORMS_SEED", "1"))
TURN = os.environ.get("DLOADER_TEST_TURN")


class Recorder:
    """torch's draws as torchvision makes them, recorded as check_transforms reads them."""

    def __init__(self):
        self.words = []
        self.kept = {}

    def __enter__(self):
        uniform, normal = torch.Tensor.uniform_, torch.Tensor.normal_
        rand, randint, randperm = torch.rand, torch.randint, torch.randperm
        multinomial, dirichlet = torch.multinomial, torch._sample_dirichlet

        def note(*words):
            self.words.append(" ".join(f"{w:.9g}" if isinstance(w, float) else str(w) for w in words))

        def record_uniform(tensor, low=0, high=1):
            result = uniform(tensor, low, high)
            note("u", float(low), float(high), result.item())
            return result

        def record_rand(*size, **more):
            result = rand(*size, **more)
            note("u", 0, 1, result.item())
            return result

        def record_randint(*limits, size=None, **more):
            numbers = [n for n in limits if not isinstance(n, tuple)]
            size = size if size is not None else limits[-1]
            low, high = numbers if len(numbers) == 2 else (0, numbers[0])
            result = randint(low, high, size, **more)
            note("i", low, high, result.item())
            return result

        def record_randperm(n):
            result = randperm(n)
            note("p", n, *result.tolist())
            return result

        def record_normal(tensor):
            result = normal(tensor)
            note("n", result.numel(), *map(float, result.flatten().tolist()))
            return result

        def record_multinomial(weights, n):
            result = multinomial(weights, n)
            note("c", weights.numel(), int(result))
            return result

        def record_dirichlet(alphas):
            result = dirichlet(alphas)
            note("d", alphas.numel(), alphas.flatten()[0].item(), *result.flatten().tolist())
            return result

        self.kept = {(torch.Tensor, "uniform_"): uniform, (torch.Tensor, "normal_"): normal,
                     (torch, "rand"): rand, (torch, "randint"): randint, (torch, "randperm"): randperm,
                     (torch, "multinomial"): multinomial, (torch, "_sample_dirichlet"): dirichlet}
        torch.Tensor.uniform_, torch.Tensor.normal_ = record_uniform, record_normal
        torch.rand, torch.randint, torch.randperm = record_rand, record_randint, record_randperm
        torch.multinomial, torch._sample_dirichlet = record_multinomial, record_dirichlet
        return self

    def __exit__(self, *_):
        for (owner, name), function in self.kept.items():
            setattr(owner, name, function)


def paint(height, width, seed):
    """Something like a photograph: large shapes, edges, grain, and some colours that are pure."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for c in range(3):
        p = 128 + 70 * np.sin(x / (17 + 9 * c) + seed) * np.cos(y / (23 - 4 * c))
        p += 60 * ((x // 37 + y // 29) % 2) - 30
        planes.append(p + rng.normal(0, 6 + 30 * (seed % 3), (height, width)))
    pixels = np.clip(np.stack(planes, 2), 0, 255).astype(np.uint8)
    pixels[:height // 4, :width // 4] = rng.integers(0, 256, (height // 4, width // 4, 3))
    pixels[-(height // 5):, :width // 3] //= 64
    return pixels


class Pictures:
    """Files of all kinds, and what PIL makes of each."""

    def __init__(self, folder):
        sizes = [(375, 500), (500, 333), (64, 64), (33, 47), (240, 320), (7, 5), (1, 1), (300, 17)]
        jpegs = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"progressive": True},
                 {"quality": 30}, {"mode": "L"}, {"mode": "CMYK"}]
        pngs = ["RGB", "L", "P", "RGBA", "LA", "1"]
        tiffs = [("RGB", "tiff_lzw"), ("CMYK", None), ("P", "packbits"), ("RGB", "jpeg")]
        webps = [("RGB", {"quality": 80}), ("RGBA", {"quality": 50, "method": 1})]
        self.paths = []
        for i, size in enumerate(sizes):
            image = Image.fromarray(paint(*size, seed=SEED * 100 + i))
            for j, options in enumerate(jpegs if i < 4 else jpegs[2:3]):
                options = dict(options)
                path = os.path.join(folder, f"{i}-{j}.jpg")
                image.convert(options.pop("mode", "RGB")).save(path, "JPEG", **{"quality": 90, **options})
                self.paths.append(path)
            for mode in pngs if i < 4 else pngs[:1]:
                path = os.path.join(folder, f"{i}-{mode}.png")
                image.convert(mode).save(path, "PNG")
                self.paths.append(path)
            for j, (mode, how) in enumerate(tiffs if i == 1 else []):
                path = os.path.join(folder, f"{i}-{j}.tif")
                image.convert(mode).save(path, "TIFF", compression=how)
                self.paths.append(path)
            for j, (mode, options) in enumerate(webps if i in (0, 3) else []):
                path = os.path.join(folder, f"{i}-{j}.webp")
                image.convert(mode).save(path, "WEBP", **options)
                self.paths.append(path)
        deep = (paint(50, 60, SEED)[:, :, 0].astype(np.uint16) * 3) << 2
        self.paths.append(os.path.join(folder, "deep.png"))
        Image.fromarray(deep).save(self.paths[-1])
        self.paths.append(os.path.join(folder, "deep.tif"))
        Image.fromarray(deep).save(self.paths[-1], compression="tiff_lzw")


@functools.cache
def painted():
    """The paths of all pictures: painting them takes longer than most cases, so that it is done once."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    return Pictures(folder.name).paths


def build(item):
    """The torchvision transform that an item of a list stands for."""
    if isinstance(item, str):
        item = {"kind": item}
    arguments = {key: value for key, value in item.items() if key != "kind"}
    for key in ("transforms",):
        if key in arguments:
            arguments[key] = [build(inner) for inner in arguments[key]]
    if "dtype" in arguments:
        arguments["dtype"] = getattr(torch, arguments["dtype"])
    if "policy" in arguments:
        arguments["policy"] = v2.AutoAugmentPolicy(arguments["policy"])
    return AugMix(**arguments) if item["kind"] == "AugMix" else getattr(v2, item["kind"])(**arguments)


class AugMix(v2.AugMix):
    """As it is on PIL pictures' operations, which torchvision has it do on tensors."""

    def _apply_image_or_video_transform(self, image, *arguments, fill, **more):
        if arguments == ("Posterize", 0):  # which Pillow refuses
            return torch.zeros_like(image)
        picture = v2.functional.to_pil_image(image[0])
        done = super()._apply_image_or_video_transform(picture, *arguments, fill={type(picture): None, **fill}, **more)
        return v2.functional.pil_to_tensor(done)[None]


class WithTool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pictures = painted()
        # Of which some corner moves in a perspective: warp.h says why the others are not equal.
        cls.large = [path for path in cls.pictures if os.path.basename(path)[0] in "0124"]
        cls.out = os.path.join(cls.folder.name, "out")
        cls.child = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.child.stdin.close()
        status = cls.child.wait()
        cls.child.stdout.close()
        cls.folder.cleanup()
        assert status == 0, f"check_transforms ended with status {status}"

    def ask(self, transforms, path, draws, layout="hwc"):
        self.child.stdin.write("\t".join((self.out, path, layout, draws, json.dumps(transforms))) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().rstrip("\n")
        self.assertTrue(answer, "check_transforms is gone")
        if answer.startswith("error"):
            return answer
        dtype, *shape = answer.split()
        flat = np.fromfile(self.out, dtype.replace("bfloat16", "uint16"))
        return flat.reshape([int(n) for n in shape] or -1)

    def compare(self, transforms, path, seed, most=0):
        """Equal bytes, and the same draws. Most: how many pixels may be one step apart, of a million."""
        pipeline = v2.Compose([build(item) for item in transforms]) if transforms else lambda image: image
        torch.manual_seed(seed)
        with open(path, "rb") as file, Recorder() as recorder:
            image = Image.open(file).convert("RGB")
            try:
                want = pipeline(image)
            except Exception as error:
                want = error
        if isinstance(want, tuple):
            want = torch.stack([one if isinstance(one, torch.Tensor) else v2.functional.pil_to_tensor(one)
                                for one in want])
        if not isinstance(want, (torch.Tensor, Exception)):
            want = v2.functional.pil_to_tensor(want)
        have = self.ask(transforms, path, " ".join(recorder.words), "chw")
        what = f"{json.dumps(transforms)} of {os.path.basename(path)}, seed {seed}"
        if isinstance(want, Exception):
            self.assertIsInstance(have, str, f"{what}: torchvision: {want}")
            return
        self.assertNotIsInstance(have, str, f"{what}: {have}")
        if want.dtype is torch.bfloat16:  # which NumPy has not: its bits
            want = want.view(torch.uint16)
        want = np.ascontiguousarray(want.numpy())
        self.assertEqual((have.dtype, have.shape), (want.dtype, want.shape), what)
        if most and have.dtype == np.uint8:
            apart = np.abs(have.astype(int) - want.astype(int))
            self.assertLessEqual(apart.max(), 1, what)
            self.assertLessEqual((apart > 0).sum(), max(4, most * apart.size // 10**6), what)
            return
        if not np.array_equal(have.view(np.uint8), want.view(np.uint8)):
            apart = have != want
            place = tuple(int(n[0]) for n in np.nonzero(apart))
            self.fail(f"{what}: {apart.sum()} of {apart.size} differ, first at {place}: "
                      f"{have[place]} instead of {want[place]}; draws {' '.join(recorder.words)[:300]}")

    def sweep(self, *lists, times=2, pictures=None, **options):
        """Each list of transforms on some of the pictures, with several seeds."""
        rng = random.Random(f"{SEED} {self.id()}")
        for transforms in lists:
            for number, path in enumerate(rng.sample(pictures or self.pictures, 12)):
                seeds = [rng.randrange(2**31) for _ in range(times)]
                if TURN and number % 4 != int(TURN):
                    continue
                for seed in seeds:
                    with self.subTest(transforms=transforms, picture=os.path.basename(path)):
                        self.compare(transforms, path, seed, **options)


NORMAL = {"kind": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
FILTERS = ["nearest", "nearest-exact", "box", "bilinear", "hamming", "bicubic", "lanczos"]
WARPS = ["nearest", "bilinear", "bicubic"]


class Decoding(WithTool):
    def test_every_picture_whole(self):
        for path in self.pictures:
            with self.subTest(picture=os.path.basename(path)):
                self.compare([], path, 1)

    def test_windows_of_every_picture(self):
        for path in self.pictures:
            for seed in range(4):
                with self.subTest(picture=os.path.basename(path)):
                    self.compare([{"kind": "RandomResizedCrop", "size": [20, 30], "scale": [0.01, 0.5],
                                   "interpolation": "nearest"}], path, seed)


class Sizes(WithTool):
    def test_resize(self):
        for name in FILTERS:
            self.sweep([{"kind": "Resize", "size": 24, "interpolation": name}],
                       [{"kind": "Resize", "size": [70, 90], "interpolation": name}], times=1)
        self.sweep([{"kind": "Resize", "size": 40, "max_size": 50}],
                   [{"kind": "Resize", "size": None, "max_size": 60}],
                   [{"kind": "Resize", "size": [37]}], times=1)

    def test_random_resized_crop(self):
        self.sweep([{"kind": "RandomResizedCrop", "size": 56}],
                   [{"kind": "RandomResizedCrop", "size": [30, 80], "scale": [0.4, 0.5], "ratio": [2, 3]}],
                   [{"kind": "RandomResizedCrop", "size": 48, "interpolation": "bicubic"}],
                   [{"kind": "RandomResizedCrop", "size": 48, "ratio": [0.05, 0.06], "scale": [0.9, 1]}])

    def test_crops(self):
        self.sweep([{"kind": "CenterCrop", "size": 32}], [{"kind": "CenterCrop", "size": [401, 20]}],
                   [{"kind": "RandomCrop", "size": 30}],
                   [{"kind": "RandomCrop", "size": 32, "padding": 4}],
                   [{"kind": "RandomCrop", "size": [40, 300], "pad_if_needed": True, "fill": [1, 2, 3]}],
                   [{"kind": "RandomCrop", "size": 64, "pad_if_needed": True, "padding": [1, 2, 3, 4],
                     "padding_mode": "reflect"}])

    def test_pad(self):
        self.sweep(*([{"kind": "Pad", "padding": padding, "padding_mode": mode}]
                     for padding in (3, [2, 5], [1, 2, 3, 4])
                     for mode in ("constant", "edge", "reflect", "symmetric")),
                   [{"kind": "Pad", "padding": 9, "fill": 77}], times=1)

    def test_stacks(self):
        # Of several plain tensors, as ToTensor makes them, torchvision transforms only the first.
        scaled = {"kind": "ToDtype", "dtype": "bfloat16", "scale": True}
        single = {"kind": "ToDtype", "dtype": "float32", "scale": True}
        self.sweep([{"kind": "FiveCrop", "size": 16}], [{"kind": "TenCrop", "size": [20, 13], "vertical_flip": True}],
                   [{"kind": "Resize", "size": 40}, {"kind": "TenCrop", "size": [33, 40]}, "ToImage", single, NORMAL],
                   ["Grayscale", {"kind": "FiveCrop", "size": [9, 31]}, "PILToTensor"],
                   [{"kind": "FiveCrop", "size": 12}, "Grayscale",
                    {"kind": "Compose", "transforms": ["ToImage", scaled]}], times=1)

    def test_flips(self):
        self.sweep(["RandomHorizontalFlip", "RandomVerticalFlip"],
                   [{"kind": "RandomHorizontalFlip", "p": 1}, {"kind": "RandomVerticalFlip", "p": 0.3}])


class Colours(WithTool):
    def test_jitter(self):
        self.sweep([{"kind": "ColorJitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}],
                   [{"kind": "ColorJitter", "hue": 0.5}], [{"kind": "ColorJitter", "hue": [-0.3, -0.1]}],
                   [{"kind": "ColorJitter", "brightness": 2}], [{"kind": "ColorJitter", "contrast": [0.1, 3]}],
                   [{"kind": "ColorJitter", "saturation": [0, 9]}], ["ColorJitter"])

    def test_grey(self):
        self.sweep(["Grayscale"], [{"kind": "Grayscale", "num_output_channels": 3}],
                   [{"kind": "RandomGrayscale", "p": 0.5}],
                   ["Grayscale", {"kind": "ColorJitter", "brightness": 0.4, "contrast": 0.4,
                                  "saturation": 0.4, "hue": 0.1}, {"kind": "Resize", "size": 31}],
                   ["Grayscale", {"kind": "RandomRotation", "degrees": 30, "fill": 9}], times=1)

    def test_tables(self):
        self.sweep(*([{"kind": kind, **arguments}] for kind, arguments in (
            ("RandomInvert", {}), ("RandomEqualize", {}), ("RandomAutocontrast", {}),
            ("RandomPosterize", {"bits": 3}), ("RandomPosterize", {"bits": 8, "p": 1}),
            ("RandomSolarize", {"threshold": 127.5, "p": 1}), ("RandomSolarize", {"threshold": 256, "p": 1}))))

    def test_sharpness(self):
        self.sweep(*([{"kind": "RandomAdjustSharpness", "sharpness_factor": factor, "p": 0.9}]
                     for factor in (0, 0.5, 1, 2, 7.3)))

    def test_distortion(self):
        self.sweep(["RandomPhotometricDistort", "RandomChannelPermutation"], times=4)

    def test_blur(self):
        self.sweep([{"kind": "GaussianBlur", "kernel_size": 3}],
                   [{"kind": "GaussianBlur", "kernel_size": [5, 9], "sigma": [0.1, 5]}],
                   [{"kind": "GaussianBlur", "kernel_size": 23, "sigma": 1.5}], times=1, most=100)


class Warps(WithTool):
    def test_rotation(self):
        self.sweep(*([{"kind": "RandomRotation", "degrees": degrees, "interpolation": name, **more}]
                     for name in WARPS
                     for degrees, more in ((180, {"fill": [9, 8, 7]}), ([90, 90], {"expand": True}),
                                           ([89, 91], {"expand": True}), ([30, 40], {"center": [3, 5]}),
                                           ([180, 180], {}), ([270, 270], {}))), times=1)

    def test_affine(self):
        self.sweep(*([{"kind": "RandomAffine", "interpolation": name, **arguments}]
                     for name in WARPS
                     for arguments in ({"degrees": 45}, {"degrees": 0, "translate": [0.2, 0.3]},
                                       {"degrees": 5, "scale": [0.5, 2], "shear": 10, "fill": 100},
                                       {"degrees": 0, "shear": [-5, 5, -9, 9], "center": [10, 0]},
                                       {"degrees": [0, 0], "scale": [3, 4]})), times=1)

    def test_perspective(self):
        self.sweep(*([{"kind": "RandomPerspective", "distortion_scale": scale, "p": 0.9,
                       "interpolation": name, "fill": 3}] for name in WARPS for scale in (0.1, 0.4, 1)),
                   pictures=self.large, times=1)


class Autos(WithTool):
    def test_rand_augment(self):
        self.sweep(["RandAugment"], [{"kind": "RandAugment", "num_ops": 4, "magnitude": 30}],
                   [{"kind": "RandAugment", "num_magnitude_bins": 10, "interpolation": "bilinear", "fill": 7}],
                   times=12)

    def test_trivial(self):
        self.sweep(["TrivialAugmentWide"], [{"kind": "TrivialAugmentWide", "num_magnitude_bins": 7}], times=12)

    def test_auto(self):
        self.sweep(*([{"kind": "AutoAugment", "policy": policy}] for policy in ("imagenet", "cifar10", "svhn")),
                   times=10)

    def test_mix(self):
        self.sweep(["AugMix"], [{"kind": "AugMix", "severity": 10, "mixture_width": 1, "chain_depth": 4}],
                   [{"kind": "AugMix", "severity": 7, "all_ops": False, "alpha": 0.3, "fill": 200}],
                   [{"kind": "AugMix", "mixture_width": 5, "interpolation": "nearest"}],
                   ["Grayscale", {"kind": "AugMix", "severity": 10, "interpolation": "bicubic"}, "ToTensor"], times=2)

    def test_magnitudes_of_every_bin(self):
        for bins in (2, 3, 10, 31, 100):
            for magnitude in range(0, bins, max(1, bins // 10)):
                self.sweep([{"kind": "RandAugment", "num_ops": 3, "magnitude": magnitude,
                             "num_magnitude_bins": bins}], times=1)


class Tensors(WithTool):
    def test_conversions(self):
        self.sweep(["ToTensor"], ["PILToTensor"], ["ToImage"], ["ToImage", "ToPureTensor"],
                   ["ToImage", {"kind": "ToDtype", "dtype": "float32", "scale": True}],
                   ["ToImage", {"kind": "ToDtype", "dtype": "float32"}],
                   ["ToImage", {"kind": "ToDtype", "dtype": "uint8", "scale": True}],
                   ["PILToTensor", "ConvertImageDtype"], times=1)

    def test_normalize(self):
        self.sweep(["ToTensor", NORMAL], ["Grayscale", "ToTensor", {"kind": "Normalize", "mean": [0.5], "std": [0.3]}],
                   ["PILToTensor", "ConvertImageDtype", NORMAL, NORMAL], times=1)

    def test_erasing(self):
        self.sweep(["ToTensor", {"kind": "RandomErasing", "p": 0.9}, NORMAL],
                   ["ToTensor", NORMAL, {"kind": "RandomErasing", "p": 1, "value": [1, 2, 3]}],
                   ["ToTensor", {"kind": "RandomErasing", "p": 1, "value": 0.25, "ratio": [1, 1]}])
        self.sweep([{"kind": "Resize", "size": [16, 20]}, "ToTensor",
                    {"kind": "RandomErasing", "p": 1, "value": "random"}])


class Narrow(WithTool):
    """float16 and bfloat16: of pictures with all 256 levels, and of the numbers that are made of them."""

    def lists(self, dtype):
        narrow, scaled = {"kind": "ToDtype", "dtype": dtype}, {"kind": "ToDtype", "dtype": dtype, "scale": True}
        wide = {"kind": "ToDtype", "dtype": "float32", "scale": True}
        erasing = {"kind": "RandomErasing", "p": 0.9, "value": [0.1, 200, -3.3]}
        odd = {"kind": "Normalize", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
        return [["ToImage", narrow], ["ToImage", scaled], ["ToImage", scaled, NORMAL], ["ToTensor", scaled],
                ["ToTensor", NORMAL, narrow, wide, NORMAL], ["ToImage", narrow, odd, NORMAL, erasing, NORMAL],
                ["ToImage", {"kind": "ConvertImageDtype", "dtype": dtype}, erasing, wide],
                ["ToImage", narrow, {"kind": "Normalize", "mean": [0.1], "std": [1e-3]}, erasing, narrow],
                ["Grayscale", "ToImage", scaled, {"kind": "Normalize", "mean": [0.3], "std": [7]}]]

    def test_float16(self):
        self.sweep(*self.lists("float16"), ["ToImage", {"kind": "ToDtype", "dtype": "bfloat16", "scale": True},
                                            {"kind": "ToDtype", "dtype": "float16"}], times=1)

    def test_bfloat16(self):
        self.sweep(*self.lists("bfloat16"), ["ToTensor", {"kind": "ToDtype", "dtype": "float16"}, NORMAL,
                                             {"kind": "ToDtype", "dtype": "bfloat16"}], times=1)

    def test_noise(self):
        for dtype in ("float16", "bfloat16"):
            self.sweep([{"kind": "Resize", "size": [16, 20]}, "ToTensor", {"kind": "ToDtype", "dtype": dtype},
                        {"kind": "RandomErasing", "p": 1, "value": "random"}], times=1)


class Batches(WithTool):
    """MixUp and CutMix of batches, and RandomChoice of both."""

    def mix(self, transform, options, shape, seed):
        torch.manual_seed(seed)
        images, labels = torch.randn(shape), torch.randint(options["classes"], shape[:1])
        with Recorder() as recorder:
            want = transform(images, labels)
        path = os.path.join(self.folder.name, "batch")
        with open(path, "wb") as file:
            file.write(images.numpy().tobytes() + labels.numpy().tobytes())
        told = self.ask({**options, "shape": shape}, path, " ".join(recorder.words), "mix")
        what = f"{options}, {shape}, seed {seed}: {told}"
        self.assertNotIsInstance(told, str, what)
        flat = np.concatenate([one.numpy().ravel() for one in want])
        self.assertTrue(np.array_equal(told.view(np.uint32), flat.view(np.uint32)), what)

    def test_both(self):
        draw = random.Random(SEED)
        for seed in range(60):
            classes, alphas = draw.randrange(1, 12), [draw.choice([0.01, 0.2, 1.0, 8.0]) for _ in range(2)]
            one, two = (kind(alpha=alpha, num_classes=classes)
                        for kind, alpha in zip((v2.MixUp, v2.CutMix), alphas, strict=True))
            shape = [draw.randrange(1, 9), draw.choice([1, 3]), draw.randrange(1, 40), draw.randrange(1, 40)]
            for transform, mixup, cutmix in ((one, alphas[0], 0), (two, 0, alphas[1]),
                                             (v2.RandomChoice([one, two]), *alphas)):
                with self.subTest(seed=seed):
                    self.mix(transform, {"mixup": mixup, "cutmix": cutmix, "classes": classes}, shape, seed)

    def test_labels_that_are_none(self):
        path = os.path.join(self.folder.name, "batch")
        for label in (-1, 5, 2**40):
            with open(path, "wb") as file:
                file.write(np.zeros(12, np.float32).tobytes() + np.array([4, label], np.int64).tobytes())
            told = self.ask({"mixup": 1, "cutmix": 0, "classes": 5, "shape": [2, 1, 2, 3]}, path, "", "mix")
            self.assertIn("collate.classes: a label is not one of 5 classes, 0 to 4", told)


class Lists(WithTool):
    def test_apply_choice_order(self):
        jitter = {"kind": "ColorJitter", "brightness": 0.4, "hue": 0.2}
        flip = {"kind": "RandomVerticalFlip", "p": 0.7}
        crop = {"kind": "RandomResizedCrop", "size": 20}
        self.sweep([{"kind": "RandomApply", "transforms": [jitter, crop], "p": 0.6}],
                   [{"kind": "RandomChoice", "transforms": [jitter, flip, crop], "p": [1, 0, 3]}],
                   [{"kind": "RandomChoice", "transforms": [jitter, flip]}],
                   [{"kind": "RandomOrder", "transforms": [jitter, flip, crop]}],
                   [{"kind": "Compose", "transforms": [crop, {"kind": "RandomApply", "transforms": [jitter]}]}],
                   times=4)

    def test_recipes(self):
        self.sweep([{"kind": "RandomResizedCrop", "size": 64}, "RandomHorizontalFlip", "ToTensor", NORMAL],
                   [{"kind": "Resize", "size": 72}, {"kind": "CenterCrop", "size": 64}, "ToTensor", NORMAL],
                   [{"kind": "RandomResizedCrop", "size": 64, "interpolation": "bicubic"}, "RandomHorizontalFlip",
                    "RandAugment", {"kind": "ColorJitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4,
                                    "hue": 0.1}, "ToTensor", {"kind": "RandomErasing", "p": 0.25}, NORMAL],
                   times=6)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TOOL = sys.argv[1]
    print(f"torchvision {torchvision.__version__}, PIL {Image.__version__}, torch {torch.__version__}")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
