"""torch_geometric's loaders, all that run without its compiled extensions, which PyPI does not have.

NeighborLoader, LinkNeighborLoader and HGTLoader are NodeLoader and LinkLoader with a sampler of those extensions, in
whose place there is one of a few lines here; so is the graph of GraphSAINT's samplers.
"""

import types
import unittest.mock

import packages
from packages import TorchLoader, over

pyg = packages.need("torch_geometric")
import torch  # noqa: E402
from torch_geometric import loader as theirs  # noqa: E402
from torch_geometric.data import Data, HeteroData, TemporalData  # noqa: E402
from torch_geometric.loader import graph_saint  # noqa: E402
from torch_geometric.sampler import BaseSampler, SamplerOutput  # noqa: E402
from dloaderd import adopt  # noqa: E402

NODES = 24


def molecules(count=11):
    """Graphs of different sizes."""
    generator = torch.Generator().manual_seed(1)
    return [Data(x=torch.rand(n, 3, generator=generator), y=torch.tensor([float(n)]), name=f"graph {n}",
                 edge_index=torch.randint(0, n, (2, 2 * n), generator=generator)) for n in range(2, 2 + count)]


def graph():
    generator = torch.Generator().manual_seed(2)
    return Data(x=torch.rand(NODES, 3, generator=generator), y=torch.arange(NODES), edge_attr=torch.arange(5 * NODES),
                edge_index=torch.randint(0, NODES, (2, 5 * NODES), generator=generator))


def mixed_graph():
    data = HeteroData()
    data["paper"].x = torch.rand(NODES, 2, generator=torch.Generator().manual_seed(3))
    data["author"].x = torch.arange(10.0)[:, None]
    data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(40) % 10, torch.arange(40) % NODES])
    return data


def plain(batch):
    """What can be compared of it."""
    if isinstance(batch, (list, tuple)):
        return [(type(part), plain(part)) for part in batch]
    if isinstance(batch, TemporalData):
        return dict(batch.to_dict())
    found = batch.to_dict()
    if "_slice_dict" in vars(batch):
        found["slices"], found["increments"], found["graphs"] = batch._slice_dict, batch._inc_dict, batch.num_graphs
        found["examples"] = [one.to_dict() for one in batch.to_data_list()]
    return found


class Neighbours(BaseSampler):
    """Two neighbours of each node, drawn by the worker's generator."""

    def __init__(self, data):
        self.edges = data.edge_index

    def subgraph(self, seeds):
        drawn = torch.randint(0, self.edges.shape[1], (2 * len(seeds),))
        edges = torch.unique(torch.cat([torch.isin(self.edges[1], seeds).nonzero()[:, 0], drawn]))
        node, local = torch.unique(torch.cat([seeds, *self.edges[:, edges]]), return_inverse=True)
        row, col = local[len(seeds):].view(2, -1)
        return node, row, col, edges

    def sample_from_nodes(self, index):
        node, row, col, edges = self.subgraph(index.node)
        return SamplerOutput(node=node, row=row, col=col, edge=edges, batch=None, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index, neg_sampling=None):
        node, row, col, edges = self.subgraph(torch.cat([index.row, index.col]))
        ends = torch.stack([torch.searchsorted(node, index.row), torch.searchsorted(node, index.col)])
        return SamplerOutput(node=node, row=row, col=col, edge=edges, batch=None,
                             metadata=(index.input_id, ends, index.label, index.time))


class Matrix:
    """What GraphSAINT's samplers want of torch_sparse's SparseTensor."""

    def __init__(self, row, col, value, sparse_sizes):
        self.edges, self.sizes = (row, col, value), sparse_sizes
        self.storage = types.SimpleNamespace(row=Matrix.Given(row), value=Matrix.Given(value),
                                             colcount=Matrix.Given(torch.bincount(col, minlength=sparse_sizes[1])),
                                             rowcount=Matrix.Given(torch.bincount(row, minlength=sparse_sizes[0])))

    class Given:
        def __init__(self, value):
            self.value = value

        def __call__(self):
            return self.value

    def coo(self):
        return self.edges

    def saint_subgraph(self, nodes):
        row, col, value = self.edges
        kept = torch.isin(row, nodes) & torch.isin(col, nodes)
        return Matrix(torch.searchsorted(nodes, row[kept]), torch.searchsorted(nodes, col[kept]), value[kept],
                      (len(nodes), len(nodes))), value[kept]

    def random_walk(self, start, length):
        row, col, _ = self.edges
        walk = [start]
        for _ in range(length):
            drawn = torch.randint(0, len(row), start.shape)
            walk.append(torch.where(row[drawn] == walk[-1], col[drawn], walk[-1]))
        return torch.stack(walk, dim=1)


class Parts(theirs.ClusterData):
    """Without METIS."""

    def _metis(self, edge_index, num_nodes):
        return torch.arange(num_nodes) % self.num_parts


# The classes that load by themselves, each with arguments; what is not the same object for both is made anew.
def saint(name, *args):
    def make(kind, options):
        return kind(graph(), 4, *args, num_steps=5, sample_coverage=2, log=False, **options)
    return name, make


LOADERS = [
    ("DataLoader", lambda kind, options: kind(molecules(), 3, shuffle=True, follow_batch=["x"], exclude_keys=["name"],
                                              **options)),
    ("DataListLoader", lambda kind, options: kind(molecules(), 3, shuffle=True, **options)),
    ("DenseDataLoader", lambda kind, options: kind([Data(x=torch.full((2, 2), float(n)), y=n) for n in range(9)], 2,
                                                   shuffle=True, **options)),
    ("TemporalDataLoader", lambda kind, options: kind(
        TemporalData(src=torch.arange(20), dst=torch.arange(20, 40), t=torch.arange(20)), 6, neg_sampling_ratio=1.0,
        **options)),
    ("RandomNodeLoader", lambda kind, options: kind(graph(), 4, shuffle=True, **options)),
    ("RandomNodeLoader", lambda kind, options: kind(mixed_graph(), 4, shuffle=True, **options)),
    ("ClusterLoader", lambda kind, options: kind(Parts(graph(), 6, log=False), batch_size=2, shuffle=True, **options)),
    ("NodeLoader", lambda kind, options: kind(graph(), Neighbours(graph()), batch_size=5, shuffle=True, **options)),
    ("NodeLoader", lambda kind, options: kind(graph(), Neighbours(graph()), torch.arange(0, NODES, 2), batch_size=5,
                                              filter_per_worker=True, shuffle=True, **options)),
    ("LinkLoader", lambda kind, options: kind(graph(), Neighbours(graph()), graph().edge_index[:, :30],
                                              torch.arange(30), batch_size=7, shuffle=True, **options)),
    saint("GraphSAINTNodeSampler"), saint("GraphSAINTEdgeSampler"), saint("GraphSAINTRandomWalkSampler", 3),
]


class TestGraphs(packages.Case):
    def setUp(self):
        super().setUp()
        patched = unittest.mock.patch.object(graph_saint, "SparseTensor", Matrix)
        patched.start()
        self.addCleanup(patched.stop)

    def test_their_loaders(self):
        for name, make in LOADERS:
            with self.subTest(name):
                kind = getattr(theirs, name)
                self.played(lambda cls, options: make(over(cls, kind), options), plain)

    def test_zipped(self):
        def make(cls, options):
            loaders = [over(cls, theirs.NodeLoader)(graph(), Neighbours(graph()), batch_size=5) for _ in range(2)]
            return over(cls, theirs.ZipLoader)(loaders, batch_size=4, shuffle=True, **options)
        self.played(make, plain)

    def test_around_a_loader(self):
        for wrap in (theirs.PrefetchLoader, theirs.CachedLoader):
            with self.subTest(wrap.__name__):
                self.played(lambda cls, options: wrap(over(cls, theirs.DataLoader)(molecules(), 3, shuffle=True,
                                                                                   **options)), plain)

    def test_samplers(self):
        balanced = [Data(x=torch.ones(1, 1) * n, y=torch.tensor([int(n % 4 == 0)])) for n in range(12)]

        def imbalanced(cls, options):
            return over(cls, theirs.DataLoader)(balanced, batch_size=4, sampler=theirs.ImbalancedSampler(
                torch.cat([one.y for one in balanced])), **options)

        def dynamic(cls, options):
            return over(cls, theirs.DataLoader)(molecules(), batch_sampler=theirs.DynamicBatchSampler(
                molecules(), max_num=15, shuffle=True), **options)
        for make in (imbalanced, dynamic):
            self.played(make, plain)

    def test_the_changed_import(self):
        """Their collate function in a loader of ours, and a loader that something else made, adopted."""
        def made(cls, options):
            return cls(molecules(), 3, True, collate_fn=theirs.dataloader.Collater(molecules()), **options)

        def adopted(cls, options):
            loader = theirs.DataLoader(molecules(), 3, shuffle=True, **options)
            return loader if cls is TorchLoader else adopt(loader)
        for make in (made, adopted):
            self.played(make, plain)

    def test_a_sampler_as_a_function(self):
        """A loader is called with nodes, without an iterator."""
        self.compare(lambda cls: plain(over(cls, theirs.NodeLoader)(graph(), Neighbours(graph()), batch_size=5)(
            torch.tensor([3, 4]))))

    def test_their_worker_options(self):
        """A context manager of theirs changes worker_init_fn of the loader that is there."""
        def pinned(cls):
            loader = over(cls, theirs.NodeLoader)(graph(), Neighbours(graph()), batch_size=5, num_workers=1)
            with loader.enable_cpu_affinity([0]):
                return packages.told(loader, plain, [None])
        self.compare(pinned)


if __name__ == "__main__":
    packages.black_box.unittest.main()
