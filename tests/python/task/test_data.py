# SPDX-License-Identifier: Apache-2.0
"""The data root covers everything, and batches are a function of the job."""

import dataclasses
import io
import itertools
import random
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from potl import _core
from potl._base._errors import NotReplayable
from potl._task._data import Reader, batches, check_reads, scan
from potl._task._order import OwnOrder
from potl._task._sample_bytes import first_difference, sample_bytes


class Listed(Dataset):
    """Whatever it is given."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Augmented(Dataset):
    """Augments while reading, with all three global generators."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.full((3,), float(index)) + torch.rand(3) + random.random() + np.random.rand()


class Batched(Listed):
    def __getitems__(self, indices):
        return [self.items[i] for i in indices]


def tensors(count=20):
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 4, generator=generator), torch.arange(count))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))


# ---------------------------------------------------------------------- canonical bytes

SAMPLES = [
    None, True, False, 1, 0, -1, 1.0, -0.0, 0.0, float("nan"), "", "1", b"", b"1",
    (), [], {}, (1,), [1], ((1,),),
    (1, 2), ((1, 2),), {"a": 1}, {"a": 2}, {"b": 1}, {1: "a"}, 10**30,
    torch.zeros(2), torch.zeros(2, dtype=torch.float64), torch.zeros(1, 2), torch.zeros(2, 1),
    torch.zeros(0), torch.zeros(0, 3), torch.zeros(2, dtype=torch.int32), torch.tensor(0.0),
    torch.tensor([1.0, 0.0]),
    torch.zeros(2, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bool),
    np.zeros(2), np.zeros(2, dtype=np.float32), np.float32(0), np.zeros((2, 1)),
]  # fmt: skip


def test_different_samples_have_different_bytes():
    seen = {}
    for sample in SAMPLES:
        data = sample_bytes(sample)
        assert data not in seen, (sample, seen.get(data))
        seen[data] = sample


def test_bytes_follow_the_logical_order_of_elements():
    matrix = torch.arange(6.0).view(2, 3)
    assert sample_bytes(matrix.t()) == sample_bytes(matrix.t().contiguous())
    assert sample_bytes(np.asfortranarray(matrix.numpy())) == sample_bytes(matrix.numpy())
    assert sample_bytes(matrix.numpy().astype(">f4")) == sample_bytes(matrix.numpy())


def test_the_order_of_insertion_into_a_dict_does_not_matter():
    assert sample_bytes({"a": 1, "b": 2}) == sample_bytes({"b": 2, "a": 1})


def test_images_are_hashed_by_mode_size_and_pixels():
    one = Image.new("L", (2, 3), 7)
    assert sample_bytes(one) == sample_bytes(Image.new("L", (2, 3), 7))
    for other in (Image.new("L", (3, 2), 7), Image.new("L", (2, 3), 8), Image.new("P", (2, 3), 7)):
        assert sample_bytes(one) != sample_bytes(other)


@pytest.mark.parametrize("sample", [object(), {1, 2}, (1, object()), np.array([object()]), 1j])
def test_a_sample_without_canonical_bytes_is_refused_with_its_type(sample):
    with pytest.raises(NotReplayable, match="has no canonical bytes"):
        sample_bytes(sample)


# ---------------------------------------------------------------------- data root


def test_the_root_changes_with_every_element_label_and_order():
    roots = {scan(tensors()).root}
    for change in (
        lambda d: d.tensors[0][3, 2].add_(1e-6),
        lambda d: d.tensors[1][19].add_(1),
        lambda d: d.tensors[0].copy_(d.tensors[0].flip(0)),
    ):
        dataset = tensors()
        change(dataset)
        roots.add(scan(dataset).root)
    roots.add(scan(tensors(19)).root)
    assert len(roots) == 5


def test_the_root_of_plain_tensors_is_the_root_of_their_samples():
    dataset = tensors()
    assert scan(dataset) == scan(Listed([dataset[i] for i in range(20)]))
    tree = _core.MerkleTree()
    for i in range(20):
        tree.append(_core.leaf_hash(sample_bytes(dataset[i])))
    assert scan(dataset).root == tree.root()


def test_reads_that_draw_random_numbers_are_noticed_and_hashed_under_a_fixed_randomness():
    facts = scan(Augmented())
    torch.manual_seed(99)
    assert facts.seeded_reads and facts == scan(Augmented())
    assert not scan(tensors()).seeded_reads


def test_scanning_leaves_the_users_generators_alone():
    torch.manual_seed(3)
    scan(Augmented())
    after = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(2))


def test_two_different_reads_of_one_sample_are_refused():
    class Private(Listed):
        generator = np.random.default_rng(0)

        def __getitem__(self, index):
            return float(self.generator.random())

    with pytest.raises(NotReplayable, match=r"differs between two reads .*sample: float, of other"):
        scan(Private(range(5)))


class Cached(Augmented):
    """Keeps samples as they are before or after they are augmented."""

    def __init__(self, augmented):
        self.augmented, self.kept = augmented, {}

    def __getitem__(self, index):
        if self.augmented:
            if index not in self.kept:
                self.kept[index] = super().__getitem__(index)
            return self.kept[index].clone()
        return self.kept.setdefault(index, torch.full((3,), float(index))) + torch.rand(3)


@pytest.mark.parametrize("augmented", [False, True])
def test_a_cache_of_augmented_samples_is_refused_and_one_of_read_samples_is_not(augmented):
    problems = check_reads(Cached(augmented))
    assert len(problems) == augmented
    transform = Cached(augmented).__getitem__
    problems += check_reads(Listed(range(20)), transform)
    assert [one.where for one in problems] == ["dataset", "transform"][: 2 * augmented]
    assert all("before it is augmented" in one.remedy for one in problems)


def test_a_scan_finds_a_cache_of_augmented_samples():
    class Longer(Cached):
        def __len__(self):
            return 100

    with pytest.raises(NotReplayable, match=r"Longer\[64\] draws"):
        scan(Longer(True))


def test_a_batch_reader_that_disagrees_with_the_sample_reader_is_refused():
    class Twisted(Batched):
        def __getitems__(self, indices):
            return [self.items[i] + 1 for i in indices]

    with pytest.raises(NotReplayable, match=r"__getitems__.*\(sample: int, of other content\)"):
        scan(Twisted(list(range(5))))


def test_a_batch_reader_is_compared_where_both_readers_fill_the_same_memory():
    class Filled(Batched):
        memory = torch.zeros(3)

        def __getitem__(self, index):
            return self.memory.fill_(index)

        def __getitems__(self, indices):
            return [self.memory.fill_(index + 1) for index in indices]

    with pytest.raises(NotReplayable, match="__getitems__"):
        scan(Filled(list(range(5))))


@dataclasses.dataclass
class Cut:
    x: float
    shape: int


class Lazy(dict):
    def __getitem__(self, key):
        raise RuntimeError("it is read as a whole")


class Few(Listed):
    """Has nothing more after the reads that find the difference."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return self.items.pop()


@pytest.mark.parametrize("made", [lambda x: Cut(x, 3), lambda x: Lazy(x=x)])
def test_what_cannot_be_described_is_refused_all_the_same(made):
    class Private(Listed):
        numbers = itertools.count()

        def __getitem__(self, index):
            return made(float(next(self.numbers)))

    with pytest.raises(NotReplayable, match="differs between two reads"):
        scan(Private(range(5)))


def test_a_difference_that_is_not_read_again_is_refused_all_the_same():
    few = Few(list(range(7)))
    with pytest.raises(NotReplayable, match="differs between two reads"):
        scan(few)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((torch.zeros(2), 1), (torch.zeros(2), torch.tensor(1)), "[1]: int, and Tensor torch.i"),
        ((torch.zeros(2),), (torch.zeros(3),), "[0]: Tensor torch.float32 [2], and Tensor torch.f"),
        ({"x": [1, 2]}, {"x": [1, 3]}, "['x'][1]: int, of other content"),
        ({"x": [1, 2]}, {"x": [1]}, "['x']: list of 2, and list of 1"),
        ({"x": 1}, {"y": 1}, ": dict, of other content"),
        ((1, 2), [1, 2], ": tuple of 2, and list of 2"),
        (np.float32(1), 1.0, ": float32 float32 [], and float"),
    ],
)
def test_a_difference_between_samples_is_where_it_says(one, other, said):
    assert f"sample{said}" in (first_difference(one, other) or "")
    assert first_difference(one, one) is None


def test_an_iterable_dataset_is_refused_by_name():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(NotReplayable, match="Stream is an IterableDataset") as refusal:
        scan(Stream())
    remedy = refusal.value.problems[0].remedy
    assert "map-style" in remedy and "[*data]" in remedy
    with pytest.raises(NotReplayable, match=r"NoneType has no __getitem__.*takes range\(n\)"):
        scan(None)


def test_an_empty_dataset_is_refused():
    with pytest.raises(NotReplayable, match="empty"):
        scan(Listed([]))


# ---------------------------------------------------------------------- batches


def read(dataset, step=3, epoch=1, ids=(4, 2, 9), **options):
    return Reader(dataset, seed=7, **options)(step, epoch, list(ids))


def test_the_fast_path_of_plain_tensors_equals_the_general_one():
    dataset = tensors()
    plain = Listed([dataset[i] for i in range(20)])
    assert same(read(dataset), read(plain, seeded_reads=False))
    assert same(read(dataset), default_collate([dataset[i] for i in (4, 2, 9)]))


def test_a_sample_is_augmented_by_seed_epoch_and_index_alone():
    base = read(Augmented())
    assert same(base, read(Augmented(), step=77))
    assert same(base.flip(0).contiguous(), read(Augmented(), ids=(9, 2, 4)))
    assert not same(base, read(Augmented(), epoch=2))
    assert not same(base, Reader(Augmented(), seed=8)(3, 1, [4, 2, 9]))


def test_a_transform_is_random_by_epoch_and_index():
    def transform(sample):
        return sample[0] + torch.rand(4), sample[1]

    base = read(tensors(), transform=transform)
    assert same(base, read(tensors(), transform=transform, step=5))
    assert not same(base, read(tensors(), transform=transform, epoch=2))
    assert not same(base, read(tensors()))


def mixup(samples):
    x, y = default_collate(samples)
    share = float(np.random.beta(0.4, 0.4))
    other = torch.randperm(len(y))
    return [share * x + (1 - share) * x[other], y]


def test_a_collate_function_is_random_by_step():
    base = read(tensors(), collate_fn=mixup)
    assert same(base, read(tensors(), collate_fn=mixup, epoch=2))
    assert not same(base, read(tensors(), collate_fn=mixup, step=4))


def test_batch_reads_give_what_sample_reads_give():
    items = [(torch.full((2,), float(i)), i) for i in range(20)]
    assert same(read(Batched(items), seeded_reads=False), read(Listed(items)))
    assert same(read(Subset(Listed(items), range(20)), seeded_reads=False), read(Listed(items)))
    assert same(read(Subset(Augmented(), range(20))), read(Augmented()))


def augment(sample):
    return sample + torch.rand(3)


PLAN = [(step, step // 3, [(step * 5 + k) % 20 for k in range(4)]) for step in range(1, 8)]


@pytest.mark.parametrize("workers", [2, 4])
def test_batches_do_not_depend_on_the_number_of_workers(workers):
    reader = Reader(
        ConcatDataset([Augmented(), Augmented()]),
        seed=7,
        transform=augment,
        collate_fn=lambda s: mixup([(x, torch.tensor(i)) for i, x in enumerate(s)]),
    )
    alone = list(batches(reader, lambda: iter(PLAN), num_workers=0))
    helped = list(batches(reader, lambda: iter(PLAN), num_workers=workers))
    assert [one for one, _ in alone] == [one for one, _ in helped] == PLAN
    assert all(same(a, b) for (_, a), (_, b) in zip(alone, helped, strict=True))


class InOneFile(Dataset):
    """Seeks and reads in a file that it opens once: when it is made, or with its first sample."""

    def __init__(self, path, opened):
        self.path, self.file = path, io.FileIO(path) if opened else None

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.file = self.file or io.FileIO(self.path)
        self.file.seek(index)
        time.sleep(0.001)  # others read meanwhile
        return int(self.file.read(1)[0])


@pytest.mark.parametrize("opened", [True, False])
def test_workers_do_not_move_each_others_positions_in_a_file(opened, tmp_path):
    (tmp_path / "samples").write_bytes(bytes(range(20)))
    dataset = InOneFile(tmp_path / "samples", opened)
    scan(dataset)  # reads in this process, before there are workers
    read = list(batches(Reader(dataset, seed=7), lambda: iter(PLAN * 4), num_workers=4))
    dataset.file.close()
    assert [batch.tolist() for _, batch in read] == [ids for _, _, ids in PLAN * 4]


class CountsThreads:
    """Data code of every kind, which notes how many threads it may use."""

    def __init__(self):
        self.seen = set()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.note()
        return torch.tensor(index)

    def note(self, value=None):
        self.seen.add(torch.get_num_threads())
        return value

    def fail(self, samples):
        raise RuntimeError("of the collate function")

    def __iter__(self):
        self.note()
        return iter(range(8))


@pytest.fixture
def three_threads(set_threads):
    set_threads(3)


def test_data_code_has_one_thread_wherever_it_is_called(three_threads):
    data = CountsThreads()
    scan(data)
    check_reads(data, data.note)
    for options in ({}, {"transform": data.note}, {"collate_fn": data.note}):
        Reader(data, seed=7, **options)(1, 0, [0, 1])
    OwnOrder(data, seed=7, count=8).of(0)
    assert data.seen == {1} and torch.get_num_threads() == 3


def test_the_threads_come_back_where_data_code_fails(three_threads):
    data = CountsThreads()
    with pytest.raises(RuntimeError, match="of the collate function"):
        Reader(data, seed=7, collate_fn=data.fail)(1, 0, [0, 1])
    assert torch.get_num_threads() == 3


def test_an_error_in_a_worker_reaches_the_caller():
    with pytest.raises(IndexError):
        list(batches(Reader(Listed([1]), seed=7), lambda: iter(PLAN), num_workers=1))


def test_a_loader_is_refused_with_where_its_parts_go():
    with pytest.raises(NotReplayable, match="DataLoader makes batches") as refusal:
        scan(DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=2))
    remedy = refusal.value.problems[0].remedy
    assert "loader.dataset" in remedy and "collate_fn=" in remedy and "sampler=" in remedy
