"""Loaders for DLIO's reader.data_loader_classname, which dlio.py has beside DLIO's own: dlio_loader.Dloaderd, and
.Idle, which has every batch at once.
"""

import os

import dloaderd
from dlio_benchmark.common.enumerations import DataLoaderType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

# Of each of DLIO's formats: what reads it, and the fields that its generator wrote data in. Parquet goes by the name
# of synthetic, as DLIO's enumeration does not have it (dlio_parquet.py).
KINDS = {
    "npz": {"kind": "files", "fields": ["x"]},
    "hdf5": {"kind": "files", "fields": ["records"]},
    "jpeg": {"kind": "files", "grey": True},
    "tfrecord": {"kind": "tfrecord", "fields": ["image"], "raw": "uint8"},
    "synthetic": {"kind": "parquet", "cache": 4096},  # as if there were more than a worker keeps
}


class Dloaderd(BaseDataLoader):
    """All ranks read from one daemon, of $DLOADER_SOCKET, and share its workers."""

    def __init__(self, format_type, dataset_type, epoch_number):
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self):
        args, format_ = self._args, str(self.format_type)
        in_order = format_ == "synthetic"  # as the workload has it
        folder = os.path.abspath(os.path.join(args.data_folder, str(self.dataset_type)))
        self.loader = dloaderd.Loader({
            "dataset": {**KINDS[format_], "paths": f"{folder}/*.{format_}"},
            "sampler": {"kind": "sequential" if in_order else "random"}, "seed": args.seed,
            "batch": {"size": self.batch_size, "drop_last": True},
            "collate": {"kind": "none" if args.record_length_stdev else "default"},
            "shard": {"mode": "batch" if in_order else "strided"},
            "workers": {"count": args.read_threads, "prefetch": max(args.prefetch_size // args.read_threads, 1)},
            "memory": {"limit": "12GiB"},
        }, rank=args.my_rank, world_size=args.comm_size, as_="torch")

    def next(self):
        yield from self.loader

    def finalize(self):
        pass


class Idle(BaseDataLoader):
    def __init__(self, format_type, dataset_type, epoch_number):
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self):
        pass

    def next(self):
        for _ in range(self.num_samples // self.batch_size // self._args.comm_size):
            yield self._args.resized_image

    def finalize(self):
        pass
