# SPDX-License-Identifier: Apache-2.0
"""Nets that other people wrote, at small width, with their usual recipes: what false_alarms.py
trains beside its own. `pip install --no-deps timm torchvision transformers`; what is missing is
left out.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import potl

STEPS, BATCH, SAMPLES = 24, 16, 128

# torchvision's wheels bring operators for CUDA builds of torch alone. No net here calls them, but
# importing torchvision fails where they are not even declared.
_DECLARED = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        _DECLARED.define(f"{_name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")


def _task(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any, loss: Any) -> Any:
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    return potl.Task(
        model=model,
        optimizer=optimizer,
        dataset=torch.utils.data.TensorDataset(x, y),
        loss=loss,
        batch_size=BATCH,
        epochs=STEPS * BATCH // SAMPLES,
        scheduler=steps,
    )


def _momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)


def _vision(make: Callable[[], nn.Module], optimizer: Any, seed: int) -> potl.Task:
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 3, 32, 32, generator=made)
    y = torch.randint(10, (SAMPLES,), generator=made)
    model = make()
    loss = functools.partial(functional.cross_entropy, label_smoothing=0.1)
    return _task(model, optimizer(model), x, y, loss)


class _Logits(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.net(words).logits.transpose(1, 2)


def _language(make: Callable[[], nn.Module], seed: int) -> potl.Task:
    made = torch.Generator().manual_seed(seed)
    words = torch.randint(100, (SAMPLES, 17), generator=made)
    model = _Logits(make())
    return _task(model, _adamw(model), words[:, :-1], words[:, 1:], functional.cross_entropy)


def _resnet(block: str, layers: list[int]) -> nn.Module:
    from timm.models import resnet

    kind = getattr(resnet, block)
    return resnet.ResNet(kind, layers, num_classes=10, channels=(16, 32, 64, 128), stem_width=16)


def _vit() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=32, patch_size=8, num_classes=10, embed_dim=48, depth=4, num_heads=3
    )


def _convnext() -> nn.Module:
    from timm.models.convnext import ConvNeXt

    return ConvNeXt(num_classes=10, depths=(1, 1, 2, 1), dims=(16, 32, 64, 96), patch_size=2)


def _mobilenet() -> nn.Module:
    from torchvision.models import mobilenet_v2

    return mobilenet_v2(num_classes=10, width_mult=0.25)


def _efficientnet() -> nn.Module:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    rows = [(1, 3, 1, 16, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 1, 40, 80, 1)]
    stages = [MBConvConfig(*row) for row in rows]
    return EfficientNet(stages, dropout=0.2, num_classes=10, last_channel=160)


def _densenet() -> nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 3, 4, 2), 16, num_classes=10)


def _transformer(kind: str) -> nn.Module:
    import transformers as t

    if kind == "bert":
        shape = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
        return t.BertForMaskedLM(t.BertConfig(vocab_size=100, intermediate_size=96, **shape))
    if kind == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=100, n_embd=48, n_layer=3, n_head=4))
    shape = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=100, intermediate_size=96, **shape))


def _nets() -> dict[str, Callable[[int], potl.Task]]:
    part = functools.partial
    of: dict[str, dict[str, Callable[[int], potl.Task]]] = {
        "timm": {
            "resnet18": part(_vision, part(_resnet, "BasicBlock", [2, 2, 2, 2]), _momentum),
            "resnet50": part(_vision, part(_resnet, "Bottleneck", [3, 4, 6, 3]), _momentum),
            "vit": part(_vision, _vit, _adamw),
            "convnext": part(_vision, _convnext, _adamw),
        },
        "torchvision": {
            "mobilenet": part(_vision, _mobilenet, _momentum),
            "efficientnet": part(_vision, _efficientnet, _adamw),
            "densenet": part(_vision, _densenet, _momentum),
        },
        "transformers": {
            kind: part(_language, part(_transformer, kind)) for kind in ("bert", "gpt2", "llama")
        },
    }
    nets: dict[str, Callable[[int], potl.Task]] = {}
    for library, those in of.items():
        try:
            importlib.import_module(library)
        except (ImportError, RuntimeError):  # or does not fit the torch that is installed
            continue
        nets |= those
    return nets


NETS = _nets()
