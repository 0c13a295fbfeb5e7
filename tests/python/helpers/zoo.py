# SPDX-License-Identifier: Apache-2.0
"""Whole trainings under a reproducible arithmetic, as a program: prints the digest of the complete
state after some steps.

    python zoo.py NAME [--steps 20] [--arithmetic ord32] [--threads 1] [--checkpointing]
                  [--resume-at 10] [--optimizer adamw]

Weights are drawn by potl, so that the digest is the same on every machine.
"""

import argparse
import functools
import importlib.util
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from places import ROOT
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

import potl

SHARED = Path(os.environ.get("POTL_SHARED", ROOT.parent / "shared")) / "data"
FULL = bool(os.environ.get("POTL_FULL"))
CHECKPOINTING = False

# ---------------------------------------------------------------------- data


@functools.cache
def images(count: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    """CIFAR-10 where it is at hand, else digits, as float32 of [count, 3, 32, 32]."""
    path = SHARED / "cifar10-train.npz"
    if path.exists():
        from PIL import Image

        with np.load(path) as file:
            data, offsets, labels = file["jpeg"], file["offsets"], file["labels"]
            decoded = [
                np.asarray(Image.open(io.BytesIO(bytes(data[offsets[i] : offsets[i + 1]]))))
                for i in range(count)
            ]
            x = torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).contiguous()
            return (x.float() - 120.0) / 64.0, torch.from_numpy(labels[:count].astype(np.int64))
    pixels, labels = raw_digits()
    x = pixels[:count, None] / 8 - 1
    x = x.repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, 3, -1, -1).contiguous()
    return x, labels[:count].clone()


@functools.cache
def characters(length: int, count: int = 256) -> torch.Tensor:
    """Windows of text as int64 [count, length + 1], codes below 96."""
    path = SHARED / "tinyshakespeare.txt"
    if not path.exists():
        path = ROOT / "LICENSE"
    codes = [min(max(ord(c) - 32, 0), 95) for c in path.read_text()[: count * 37 + length + 1]]
    return torch.tensor([codes[37 * i : 37 * i + length + 1] for i in range(count)])


# ---------------------------------------------------------------------- models


def maybe_checkpointed(part: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if CHECKPOINTING and torch.is_grad_enabled():
        out: torch.Tensor = checkpoint(part, x, use_reentrant=False)
        return out
    result: torch.Tensor = part(x)
    return result


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, bottleneck: bool = False) -> None:
        super().__init__()
        inner = outputs // 4 if bottleneck else outputs
        kernels = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        if not bottleneck:
            kernels = [(inputs, outputs, 3, stride), (outputs, outputs, 3, 1)]
        layers: list[nn.Module] = []
        for a, b, size, step in kernels:
            layers += [nn.Conv2d(a, b, size, step, size // 2, bias=False), nn.BatchNorm2d(b)]
            layers += [nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Images(nn.Module):
    """A residual network: stages of (blocks, width)."""

    def __init__(self, stages: list[tuple[int, int]], width: int, bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        for number, (count, outputs) in enumerate(stages):
            for index in range(count):
                stride = 2 if number and not index else 1
                blocks.append(Residual(width, outputs, stride, bottleneck))
                width = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            # Batch norm counts its calls: a recomputed block would count twice.
            x = block(x)
        out: torch.Tensor = self.head(x)
        return out


def small() -> nn.Module:
    """For the digest in README.md: needs no data but scikit-learn's."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(128, 10),
    )


@functools.cache
def raw_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels from 0 to 16, and labels, of scikit-learn's digits. Read once, because tasks are built
    again and again, and from its file, because to import the package takes a second.
    """
    found = importlib.util.find_spec("sklearn")
    assert found is not None and found.submodule_search_locations is not None
    file = Path(found.submodule_search_locations[0]) / "datasets/data/digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].long()


def digits() -> TensorDataset:
    pixels, labels = raw_digits()
    return TensorDataset(pixels[:, None] / 16, labels.clone())


class TextConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 24)
        self.convolutions = nn.ModuleList(nn.Conv1d(24, 16, size) for size in (3, 4, 5))
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(48, 10))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).transpose(1, 2)
        pooled = [F.relu(layer(x)).amax(2) for layer in self.convolutions]
        out: torch.Tensor = self.head(torch.cat(pooled, 1))
        return out


class Recurrent(nn.Module):
    """A bidirectional LSTM whose outputs are weighted by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 16)
        self.lstm = nn.LSTM(16, 12, bidirectional=True, batch_first=True)
        self.score = nn.Linear(24, 1)
        self.head = nn.Linear(24, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.embedding(tokens))
        weights = F.softmax(torch.tanh(self.score(x)), 1)
        out: torch.Tensor = self.head((weights * x).sum(1))
        return out


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, 12, 3, 2, 1), nn.GELU(), nn.Conv2d(12, 8, 3, 2, 1), nn.SiLU()
        )
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(8, 12, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(12, 3, 4, 2, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.decode(self.encode(x))
        return out


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """A decoder on characters."""

    def __init__(self, layers: int = 2, width: int = 64, length: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(96, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 96, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = maybe_checkpointed(layer, x)
        out: torch.Tensor = self.head(self.norm(x))
        return out


class Logits(nn.Module):
    """A model of `transformers`, reduced to its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(x).logits
        return out


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=96, n_positions=32)
    config.use_cache = False
    return Logits(GPT2LMHeadModel(config))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    return Logits(ViTForImageClassification(config))


# ---------------------------------------------------------------------- tasks

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
}


def classify(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, target)


def next_character(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def image_data(size: int = 32) -> TensorDataset:
    x, y = images()
    if size != x.shape[2]:
        x = x.repeat_interleave(size // x.shape[2], 2).repeat_interleave(size // x.shape[3], 3)
    return TensorDataset(x, y)


def class_data(length: int) -> TensorDataset:
    windows = characters(length)
    return TensorDataset(windows[:, :-1], windows[:, -1] % 10)


def next_data(length: int) -> TensorDataset:
    windows = characters(length)
    return TensorDataset(windows[:, :-1], windows[:, 1:])


def own_images() -> TensorDataset:
    x, _ = images()
    return TensorDataset(x, x)


# name -> (model, data, loss, batch size, optimizer, steps)
Row = tuple[Callable[[], nn.Module], Callable[[], TensorDataset], Any, int, str, int]
ZOO: dict[str, Row] = {
    "digits": (small, digits, classify, 32, "adamw", 20),
    "resnet20": (
        lambda: Images([(3, 16), (3, 32), (3, 64)], 16, False),
        image_data,
        classify,
        32 if FULL else 4,
        "sgd",
        20,
    ),
    "resnet50": (
        lambda: Images([(3, 256), (4, 512), (6, 1024), (3, 2048)], 64, True),
        lambda: image_data(64),
        classify,
        2,
        "sgd",
        2,
    ),
    "text_cnn": (TextConvolution, lambda: class_data(24), classify, 16, "adam", 20),
    "bilstm": (Recurrent, lambda: class_data(20), classify, 16, "adam", 20),
    "autoencoder": (Autoencoder, own_images, F.mse_loss, 8, "adamw", 20),
    "gpt": (GPT, lambda: next_data(32), next_character, 8, "adamw", 20),
    "gpt2": (gpt2, lambda: next_data(32), next_character, 4, "adamw", 20),
    "vit": (vit, image_data, classify, 8, "adamw", 20),
}


def build(name: str, optimizer: str | None = None) -> potl.Task:
    model, data, loss, batch, chosen, _ = ZOO[name]
    net = model()
    return potl.Task(
        model=net,
        optimizer=OPTIMIZERS[optimizer or chosen](net.parameters()),
        dataset=data(),
        loss=loss,
        batch_size=batch,
        epochs=4,
        grad_clip=1.0,
    )


def digest(
    name: str,
    *,
    steps: int | None = None,
    arithmetic: str = "ord32",
    optimizer: str | None = None,
    resume_at: int | None = None,
) -> str:
    """The digest of the state after a training, in hexadecimal."""
    from potl import Session

    make = functools.partial(build, name, optimizer)
    last = ZOO[name][5] if steps is None else steps
    with Session.open(make, seed=11, arithmetic=arithmetic) as session, session.active():
        for step, _, batch in session.batches(1, resume_at or last):
            session.run_step(step, batch)
        state = session.capture()
    if resume_at is None:
        return state.digest().hex()
    with Session.open(make, seed=11, arithmetic=arithmetic) as session, session.active():
        session.restore(state)
        for step, _, batch in session.batches(resume_at + 1, last):
            session.run_step(step, batch)
        return session.capture().digest().hex()


def main() -> None:
    global CHECKPOINTING
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--arithmetic", default="ord32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--optimizer")
    parser.add_argument("--resume-at", type=int)
    parser.add_argument("--checkpointing", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    CHECKPOINTING = chosen.checkpointing
    for name in chosen.names:
        found = digest(
            name,
            steps=chosen.steps,
            arithmetic=chosen.arithmetic,
            optimizer=chosen.optimizer,
            resume_at=chosen.resume_at,
        )
        print(name, found, flush=True)


if __name__ == "__main__":
    main()
