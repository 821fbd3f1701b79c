"""A notebook's cells, run by a real kernel of Jupyter's: what is defined in a cell has no file, may be
defined anew, and an iterator is left behind by a cell that was interrupted.
"""

import queue
import time

import trainers
from black_box import PATIENCE, Case

client, _ = trainers.need("jupyter_client", "ipykernel")

DEFINE = """
import torch
from CLASS import DataLoader, Dataset

FACTOR = 1

class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return scaled(index)

def scaled(index):
    return index * FACTOR

loader = DataLoader(Numbers(), batch_size=4, num_workers=2, collate_fn=lambda batch: batch)
print(list(loader))
"""
CELLS = (
    DEFINE,
    "FACTOR = 10\nprint(list(loader))",
    "def scaled(index):\n    return [index, FACTOR]\nprint(list(loader))",
    "class Numbers(Dataset):\n"
    "    def __len__(self):\n        return 4\n"
    "    def __getitem__(self, index):\n        return torch.tensor([index])\n"
    "print([b.tolist() for b in DataLoader(Numbers(), batch_size=2, num_workers=1)])",
    "for batch in loader:\n    break\nprint(batch)",
    "batches = iter(loader)\nprint(next(batches))",
    "print(next(batches), next(batches, 'end'))",
)

# What a cell shows, beside or instead of what it prints.
SHOWN = (
    ("import numpy, dloaderd\ndloaderd.show({'image': numpy.zeros((2, 9, 9, 3), 'u1'), 'label': [0, 1]})",
     'src="data:image/png;base64,'),
    ("from dloaderd import DataLoader\nloader = DataLoader(list(range(8)), batch_size=4)\nloader",
     "<caption>DataLoader"),
    ("dloaderd.explain(loader)\nprint('behind')", '<th scope="col">stage</th>'),
    ("loader = dloaderd.Loader({'dataset': {'kind': 'range', 'length': 10}, 'workers': {'count': 0}}, as_='numpy')\n"
     "loader", "<caption>dloaderd.Loader</caption>"),
)


class Kernel:
    """One kernel, for as long as the context lasts."""

    def __init__(self):
        self.manager = client.KernelManager(kernel_name="python3")

    def __enter__(self):
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, on_output=None):
        """What the cell printed, on either stream, and how its error is called, if there is one; `shown`
        is then the HTML that it displayed."""
        asked, said = self.client.execute(code), ""
        self.shown = []
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != asked:
                continue
            if kind == "stream":
                said += content["text"]
                if on_output:
                    on_output()
            elif kind in ("display_data", "execute_result"):
                self.shown.append(content["data"].get("text/html", ""))
            elif kind == "error":
                said += content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return said
        raise AssertionError(f"the cell did not end; it has said {said!r}")


class TestNotebook(Case):
    def test_cells(self):
        told = {}
        for module in ("torch.utils.data", "dloaderd"):
            with Kernel() as kernel:
                told[module] = [kernel.run(cell.replace("CLASS", module)) for cell in CELLS]
        self.assertEqual(told["dloaderd"], told["torch.utils.data"])
        self.assertEqual(told["dloaderd"][1], "[[0, 10, 20, 30], [40, 50, 60, 70]]\n")

    def test_interrupted(self):
        """The stop button, in the middle of an epoch: the next cell starts another one."""
        with Kernel() as kernel:
            kernel.run(DEFINE.replace("CLASS", "dloaderd"))
            said = kernel.run("import time\nfor batch in loader:\n    print(batch, flush=True)\n"
                              f"    time.sleep({PATIENCE})", self.stop_once(kernel))
            self.assertEqual(said, "[0, 1, 2, 3]\nKeyboardInterrupt")
            self.assertEqual(kernel.run("print(list(loader))"), "[[0, 1, 2, 3], [4, 5, 6, 7]]\n")

    def test_shown(self):
        """Batches, loaders and explain() as HTML, once each; nothing of it is printed besides."""
        with Kernel() as kernel:
            for cell, has in SHOWN:
                with self.subTest(cell=cell):
                    said = kernel.run(cell)
                    self.assertEqual(len(kernel.shown), 1, said)
                    self.assertIn(has, kernel.shown[0])
                    self.assertEqual(said, "behind\n" if "behind" in cell else "")

    @staticmethod
    def stop_once(kernel):
        stops = [kernel.manager.interrupt_kernel]
        return lambda: stops.pop()() if stops else None
