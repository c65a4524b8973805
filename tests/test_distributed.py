"""Two real processes over gloo against one: the same means, the same map, and no head buffer on DDP's wire."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from asterism import ClassMeans, PrototypeHead, make_prototypes, reassign
from asterism.sphere import unit


def run(function, world, *arguments):
    mp.start_processes(_start, (function, world, *arguments), nprocs=world, start_method="spawn")


def _start(rank, function, world, folder, *arguments):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), world)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=store)
    function(rank, world, folder, *arguments)
    store.set(f"done-{rank}", "yes")
    store.wait([f"done-{r}" for r in range(world)])
    os._exit(0)  # at once: gloo's threads abort, now and then, when the other process closes its connections first


def batches():
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(8, 6, generator=generator), torch.randint(0, 9, (8,), generator=generator)) for _ in range(6)]


def means_and_map(rank, world, folder):
    """Each rank sees its share of every batch; the state is saved and loaded in the middle of an interval."""
    head, means = PrototypeHead(make_prototypes(11, 6), num_classes=9), ClassMeans(9, 6)
    answers = []
    for i, (features, labels) in enumerate(batches()):
        means.update(features[rank::world], labels[rank::world])
        if i in (1, 3, 5):
            answers.append(reassign(head, means))
        if i == 2:
            state = means.state_dict()
            means = ClassMeans(9, 6)
            means.load_state_dict(state)
    result = {
        "order": head.assignment,
        "means": means.compute(),
        "moved": answers[0].moved,
        "score": torch.tensor(answers[-1].score),
    }
    torch.save(result, os.path.join(folder, f"{world}-{rank}.pt"))


def test_two_processes_give_the_means_and_the_map_of_one(tmp_path):
    for world in (1, 2):
        (tmp_path / str(world)).mkdir()
        run(means_and_map, world, str(tmp_path / str(world)))
    one = torch.load(tmp_path / "1" / "1-0.pt")
    for rank in range(2):
        two = torch.load(tmp_path / "2" / f"2-{rank}.pt")
        assert torch.equal(two["order"], one["order"])
        assert torch.equal(two["moved"], one["moved"])
        assert torch.allclose(two["means"], one["means"], atol=1e-6)
        assert two["score"].item() == pytest.approx(one["score"].item(), abs=1e-5)
    ranks = [torch.load(tmp_path / "2" / f"2-{rank}.pt") for rank in range(2)]
    assert torch.equal(ranks[0]["means"], ranks[1]["means"])


class Network(nn.Module):
    def __init__(self, big):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        self.head = PrototypeHead(unit(torch.randn(big, 6)), num_classes=9)

    def forward(self, x):
        return self.head(self.backbone(x))


def count_bytes(rank, world, folder, big, excluded):
    """The wire is watched where DDP sends module states: its constructor and its broadcast of buffers."""
    sent = []
    real = dist._broadcast_coalesced

    def spy(group, tensors, *arguments):
        sent.extend(t.numel() * t.element_size() for t in tensors)
        return real(group, tensors, *arguments)

    dist._broadcast_coalesced = spy
    network = Network(big)
    if excluded:
        PrototypeHead.exclude_from_ddp(network)
    model = nn.parallel.DistributedDataParallel(network)
    for _ in range(2):
        model(torch.randn(4, 6)).sum().backward()
    torch.save(torch.tensor(sum(sent)), os.path.join(folder, f"{rank}.pt"))
    mine = torch.tensor([sum(sent)])
    assert dist.get_world_size() == world
    assert mine.item() > 0  # parameters and the buffers of BatchNorm do travel
    names = set(model.parameters_to_ignore)
    assert names == ({"head.stars", "head.assignment", "head.scale", "head.frame"} if excluded else set())


def test_no_head_buffer_is_sent_by_ddp(tmp_path):
    sent = {}
    for big, excluded in ((12, True), (600, True), (600, False)):
        folder = tmp_path / f"{big}-{excluded}"
        folder.mkdir()
        run(count_bytes, 2, str(folder), big, excluded)
        sent[big, excluded] = torch.load(folder / "0.pt").item()
    assert sent[12, True] == sent[600, True]  # the size of the constellation does not reach the wire
    assert sent[600, False] > sent[600, True] + 600 * 6 * 4


def failing(rank, world, folder):
    head, means = PrototypeHead(num_classes=9, dim=8), ClassMeans(9, 8)
    before = head.assignment.clone()
    with pytest.raises((ValueError, RuntimeError), match="keep names labels" if rank == 0 else "rank 0"):
        reassign(head, means, keep=torch.tensor([9]))
    assert torch.equal(head.assignment, before)


def test_an_error_on_rank_0_reaches_all_ranks(tmp_path):
    run(failing, 2, str(tmp_path))
