"""Programs of other libraries that do the work of pictures.py's rows `crop`, `v2`, `large` and `resize`: photographs
of a folder, shuffled, decoded, RandomResizedCrop(224) and flip, or Resize(256) and CenterCrop(224), float32 and
normalised, as batches [64, 3, 224, 224] and labels for PyTorch; two threads.

DALI decodes a random crop alone and works on batches in C. SPDL decodes and crops by FFmpeg, which no other process
takes part in; torch normalises. Neither gives Pillow's bytes; both draw of their own.

From PyPI: nvidia-dali-cuda120, which needs optree, makefun, astunparse and gast, and nvidia-nvimgcodec-cu12, whose
library $LD_LIBRARY_PATH has to name; spdl with spdl_core and spdl_io, which need FFmpeg's libraries (Debian 12:
libavdevice59, libavfilter8).
"""

SPDL = """
import math, os, random, time, torch
import spdl.io
from spdl.pipeline import PipelineBuilder
folders = sorted(os.listdir("photos"))
files = [(os.path.join("photos", f, name), label) for label, f in enumerate(folders)
         for name in sorted(os.listdir(os.path.join("photos", f)))]
mean = torch.tensor((0.485, 0.456, 0.406)).view(3, 1, 1) * 255
std = torch.tensor((0.229, 0.224, 0.225)).view(3, 1, 1) * 255

def box(width, height):
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    return width, height, 0, 0

def cropped(width, height):
    w, h, x, y = box(width, height)
    flip = "hflip," if random.random() < 0.5 else ""
    return f"crop={w}:{h}:{x}:{y}:exact=1,scale=224:224:flags=bilinear,{flip}format=pix_fmts=rgb24"

def resized(width, height):
    w, h = (256, 256 * height // width) if width <= height else (256 * width // height, 256)
    return f"scale={w}:{h}:flags=bilinear,crop=224:224,format=pix_fmts=rgb24"

def decode(item):
    packets = spdl.io.demux_image(item[0])
    filters = FILTERS(packets.width, packets.height)
    return spdl.io.decode_packets(packets, filter_desc=filters), item[1]

def collate(items):
    pixels = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in items]))
    return (pixels.permute(0, 3, 1, 2).float() - mean) / std, torch.tensor([label for _, label in items])

class Loader:
    def __iter__(self):
        order = random.sample(files, k=len(files))
        builder = PipelineBuilder().add_source(order).pipe(decode, concurrency=WORKERS)
        pipeline = builder.aggregate(BATCH, drop_last=True).pipe(collate).add_sink(2).build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

loader = Loader()
"""

DALI = """
import time, torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

@pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, seed=1)
def pipeline():
    files, labels = fn.readers.file(file_root="photos", random_shuffle=True, name="files")
    pictures = PICTURES
    pictures = fn.crop_mirror_normalize(pictures, MORE, dtype=types.FLOAT, output_layout="CHW",
                                        mean=[m * 255 for m in (0.485, 0.456, 0.406)],
                                        std=[s * 255 for s in (0.229, 0.224, 0.225)])
    return pictures, labels

loader = DALIGenericIterator(pipeline(), ["image", "label"], reader_name="files", auto_reset=True,
                             last_batch_policy=LastBatchPolicy.DROP)
"""

OTHERS = {"DALI": DALI, "SPDL": SPDL}
_CROP = {
    "PICTURES": """fn.decoders.image_random_crop(files, device="cpu", random_area=(0.08, 1),
                                             random_aspect_ratio=(3 / 4, 4 / 3))
    pictures = fn.resize(pictures, size=(224, 224), interp_type=types.INTERP_TRIANGULAR)""",
    "MORE": "mirror=fn.random.coin_flip()", "FILTERS": "cropped"}
_RESIZE = {
    "PICTURES": """fn.decoders.image(files, device="cpu")
    pictures = fn.resize(pictures, resize_shorter=256, interp_type=types.INTERP_TRIANGULAR)""",
    "MORE": "crop=(224, 224)", "FILTERS": "resized"}
# Whose work it is: what stands in the programs of a row.
ROWS = {"crop": _CROP, "v2": _CROP, "large": _CROP, "resize": _RESIZE}
