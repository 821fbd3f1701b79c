"""Parquet for DLIO of PyPI, which has none: files as MLPerf Storage's flux has them, and a reader for DLIO's
loaders.

A sample is a row of columns of float32. A file is one row group, as DLIO's later versions write it; the reader keeps
the last one, as they do, so that each is read once where samples come in order.
"""

import numpy
import pyarrow
import pyarrow.parquet
from dlio_benchmark.reader.reader_handler import FormatReader


def write(path, rows, columns, seed):
    """columns: of each name how many numbers a row has."""
    draw = numpy.random.default_rng(seed)
    arrays = {name: pyarrow.FixedSizeListArray.from_arrays(
        pyarrow.array(draw.random(rows * size, numpy.float32)), size) for name, size in columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(arrays), path, row_group_size=1024, compression="none")


class Reader(FormatReader):
    def __init__(self, dataset_type, thread_index, epoch):
        super().__init__(dataset_type, thread_index)
        self.kept = None, None

    def open(self, filename):
        if self.kept[0] != filename:
            table = pyarrow.parquet.ParquetFile(filename).read_row_group(0, use_threads=False)
            self.kept = filename, {name: table.column(name).combine_chunks() for name in table.column_names}
        return self.kept[1]

    def close(self, filename):
        pass

    def get_sample(self, filename, sample_index):
        return {name: column[sample_index] for name, column in self.open_file_map[filename].items()}

    def next(self):
        yield from super().next()

    def read_index(self, image_idx, step):
        return super().read_index(image_idx, step)

    def finalize(self):
        pass

    def is_index_based(self):
        return True

    def is_iterator_based(self):
        return True
