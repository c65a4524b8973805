import numpy as np
import pytest
import torch

from asterism.data import Split
from asterism.data.augment import Augment, Batches, draws

CPU = torch.device("cpu")


def images(n=40, size=6, channels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Split(
        torch.randint(0, 256, (n, size, size, channels), dtype=torch.uint8, generator=generator), torch.arange(n) % 4
    )


def batches(split, seed=0, epoch=0, **augment):
    made = Batches(split, [0.0] * 3, [1 / 255] * 3, CPU, Augment(**augment), seed)  # values stay 0..255
    made.start(epoch)
    return made


def test_draws_depend_on_seed_epoch_sample_and_column_alone():
    u = draws(3, 5, np.arange(1000))
    assert np.array_equal(u[[7, 70]], draws(3, 5, np.array([7, 70])))
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(u.T) - np.eye(u.shape[1])).max() < 0.12
    for other in (draws(4, 5, np.arange(1000)), draws(3, 6, np.arange(1000))):
        assert abs(np.corrcoef(u[:, 0], other[:, 0])[0, 1]) < 0.1


def test_an_epoch_sees_every_sample_once_in_an_order_of_its_own():
    made = batches(images())
    seen = torch.cat([made(step, 8).inputs for step in range(5)])
    expected = images().inputs.permute(0, 3, 1, 2).float()
    assert sorted(x.sum().item() for x in seen) == pytest.approx(sorted(x.sum().item() for x in expected), rel=1e-5)
    first = made(0, 8).labels
    made.start(1)
    assert not torch.equal(first, made(0, 8).labels)


@pytest.mark.parametrize(
    "augment",
    [
        {"crop": 2, "flip": True},
        {"erasing": 0.7},
        {"mixup": 0.4},
        {"cutmix": 1.0},
        {"crop": 1, "flip": True, "erasing": 0.5, "mixup": 1.0, "cutmix": 0.3},
    ],
)
def test_what_happens_to_a_sample_depends_neither_on_its_batch_nor_on_the_number_of_processes(augment):
    made = batches(images(), **augment)
    whole = made(0, 40)
    parts = [made(step, 10, rank, 2) for step in range(4) for rank in range(2)]
    place = np.concatenate([np.arange(40)[s * 10 : (s + 1) * 10][r::2] for s in range(4) for r in range(2)])
    assert torch.equal(torch.cat([p.inputs for p in parts]), whole.inputs[place])
    assert torch.equal(torch.cat([p.labels for p in parts]), whole.labels[place])
    if whole.share is not None:
        assert torch.equal(torch.cat([p.share for p in parts]), whole.share[place])


def test_crops_are_windows_of_the_padded_image_and_flips_mirror_them():
    split = images()
    made = batches(split, crop=2, flip=True)
    batch = made(0, 40).inputs
    corners, mirrored = set(), 0
    for i, sample in enumerate(made.order):
        padded = torch.nn.functional.pad(split.inputs[sample].permute(2, 0, 1), (2, 2, 2, 2)).float()
        windows = {
            (t, x, f): (padded[:, t : t + 6, x : x + 6].flip(2) if f else padded[:, t : t + 6, x : x + 6])
            for t in range(5)
            for x in range(5)
            for f in (False, True)
        }
        found = [key for key, window in windows.items() if torch.allclose(window, batch[i], atol=1e-3)]
        assert found
        corners.add(found[0][:2])
        mirrored += found[0][2]
    assert len(corners) > 10
    assert 8 < mirrored < 32


def test_mixup_blends_inputs_and_weights_alike():
    split = images()
    made = batches(split, mixup=0.5)
    batch = made(0, 40)
    originals = split.inputs.permute(0, 3, 1, 2).float()
    assert ((batch.share >= 0) & (batch.share <= 1)).all()
    partner = (made.random[made.order, 4] * 40).astype(int)
    expected = (
        batch.share.view(-1, 1, 1, 1) * originals[made.order] + (1 - batch.share.view(-1, 1, 1, 1)) * originals[partner]
    )
    assert torch.allclose(batch.inputs, expected, atol=1e-2)
    assert torch.equal(batch.other, split.labels[partner])


def test_cutmix_weights_are_the_areas():
    split = Split(
        (torch.arange(40, dtype=torch.uint8) + 1)[:, None, None, None].expand(40, 6, 6, 3).contiguous(),
        torch.arange(40) % 4,
    )
    made = batches(split, cutmix=1.0)
    batch = made(0, 40)
    partner = (made.random[made.order, 4] * 40).astype(int)
    own = (batch.inputs[:, 0].round() == torch.from_numpy(made.order + 1)[:, None, None]).float().mean((1, 2))
    mixed = partner != made.order
    assert torch.allclose(own[mixed], batch.share[mixed], atol=1e-6)
    assert 0.2 < batch.share.mean() < 0.8


def test_erasing_leaves_the_share_it_should():
    made = batches(images(400, 10), erasing=0.5)
    gone = (made(0, 400).inputs == 0).all(dim=1).float().mean((1, 2))
    assert 0.4 < (gone > 0.01).float().mean() < 0.6
    assert gone.max() < 0.4


def test_normalising_and_channels_last():
    split = images()
    made = Batches(split, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], CPU, Augment(crop=1), 0)
    x = made.plain(slice(0, 5)).inputs
    expected = (split.inputs[:5].float() / 255 - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([0.5, 0.6, 0.7])
    assert torch.allclose(x, expected.permute(0, 3, 1, 2), atol=1e-6)
    assert x.is_contiguous(memory_format=torch.channels_last)
