"""What trainers make of a loader: of ours one of ours, of PyTorch's one of PyTorch's, whichever package is imported
first. Each order is a process of its own.
"""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from black_box import PATIENCE, Case

OURS = "from dloaderd import DataLoader"
LOADERS = """
import torch
def loaders():
    for cls in (DataLoader, torch.utils.data.DataLoader):
        yield cls(range(11), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
pairs = [[*loaders()] for _ in range(10)]
"""
TOLD = """
import json, warnings
warnings.simplefilter("ignore")
def inside(loader):
    for name in ("base_dataloader", "_dataloader"):
        if getattr(loader, name, None) is not None:
            return getattr(loader, name)
    return loader
def told(loader):
    return [type(inside(loader)).__module__.split(".")[0], [batch.tolist() for _ in range(2) for batch in loader]]
for package, make in MAKES:
    print(json.dumps([package, *(told(make(loader)) for loader in pairs.pop())]))
"""
# By package: how it is imported, and what makes loaders of loaders.
PACKAGES = {
    "accelerate": ("from accelerate import Accelerator, skip_first_batches",
                   "Accelerator(cpu=True).prepare", "lambda loader: skip_first_batches(loader, 1)",
                   "lambda loader: skip_first_batches(Accelerator(cpu=True).prepare(loader), 1)"),
    "transformers": ("from transformers.trainer import Trainer, TrainingArguments, skip_first_batches as skip",
                     "Trainer(torch.nn.Linear(1, 1), TrainingArguments('.', report_to=[], use_cpu=True))"
                     ".accelerator.prepare", "lambda loader: skip(dataloader=loader, num_batches=2)"),
    "lightning": ("from lightning.fabric import Fabric", "Fabric(accelerator='cpu', devices=1).setup_dataloaders"),
    "ray": ("from ray.train.torch import prepare_data_loader as of_ray", "of_ray",
            "lambda loader: of_ray(data_loader=loader, move_to_device=False)"),
}
GET_OURS = ("lightning", "ray")  # of one process these make another loader of its class, or leave it what it is
HERE = {name: ways for name, ways in PACKAGES.items() if importlib.util.find_spec(name) is not None}
THEIRS = "\n".join(imports for imports, *_ in HERE.values())
MAKES = "".join(f"({name!r}, {make})," for name, (_, *makes) in HERE.items() for make in makes)
ORDERS = {"ours first": (OURS, THEIRS, LOADERS), "ours last": (THEIRS, OURS, LOADERS),
          "loaders first": (OURS, LOADERS, THEIRS)}


@unittest.skipUnless(HERE, f"none of {', '.join(PACKAGES)} is there")
class TestOrders(Case):
    def check(self, order, kinds, **variables):
        """kinds: by package, whose what it makes of ours is; by default ours."""
        program = "\n".join(ORDERS[order]) + TOLD.replace("MAKES", f"({MAKES})")
        ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, timeout=4 * PATIENCE, env={**os.environ, **variables})
        self.assertEqual(ended.returncode, 0, f"{order}:\n{ended.stderr}")
        told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('["')]
        self.assertEqual({name for name, *_ in told}, set(HERE))
        for name, ours, theirs in told:
            self.assertEqual([ours[0], theirs[0]], [kinds.get(name, "dloaderd"), "torch"], f"{name}, {order}")
            self.assertEqual(ours[1], theirs[1])

    def test_whichever_is_first(self):
        for order in ORDERS:
            self.check(order, {})

    def test_switched_off(self):
        self.check("ours last", {name: "torch" for name in HERE if name not in GET_OURS}, DLOADER_ADOPT="0")
