"""dloaderd for DLIO's reader.data_loader_classname: dlio_loader.Dloaderd; dlio.py has it beside DLIO's own loaders."""

import os
import tempfile

import dloaderd
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

# Of each of DLIO's formats: what reads it, and the fields that its generator wrote data in.
DATASETS = {
    "npz": {"kind": "files", "fields": ["x"]},
    "hdf5": {"kind": "files", "fields": ["records"]},
    "jpeg": {"kind": "files", "grey": True},
    "tfrecord": {"kind": "tfrecord", "fields": ["image"], "raw": "uint8"},
}


class Dloaderd(BaseDataLoader):
    def __init__(self, format_type, dataset_type, epoch_number):
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self):
        args = self._args
        train = self.dataset_type is DatasetType.TRAIN
        dataset = dict(DATASETS[str(self.format_type)])
        self.paths = tempfile.NamedTemporaryFile("w", suffix=".list")
        for path in args.file_list_train if train else args.file_list_eval:
            print(os.path.abspath(path), file=self.paths, flush=True)
        if dataset["kind"] == "files":
            dataset |= {"paths": self.paths.name, "listed": True}
        else:
            dataset["paths"] = sorted({os.path.dirname(os.path.abspath(path)) + "/*.tfrecord"
                                       for path in args.file_list_train})
        self.loader = dloaderd.Loader({
            "dataset": dataset, "sampler": {"kind": "random"}, "seed": args.seed,
            "batch": {"size": self.batch_size, "drop_last": True},
            "collate": {"kind": "none" if args.record_length_stdev else "default"},
            "workers": {"count": args.read_threads, "prefetch": max(args.prefetch_size, 2)},
            "memory": {"limit": "2GiB"},
        }, rank=args.my_rank, world_size=args.comm_size, as_="torch")

    def next(self):
        yield from self.loader

    def finalize(self):
        pass
