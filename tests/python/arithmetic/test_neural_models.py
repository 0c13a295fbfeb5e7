# SPDX-License-Identifier: Apache-2.0
"""Models in a mode, with stock modules, optimizers, checkpointing and autocast."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

pytest.importorskip("potl._torch")

import potl

MODES = ("ord32", "log64", "cr32", "xint24", "xint16")


class Decoder(nn.Module):
    """A layer of a GPT, with a convolution beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 16))
        self.convolution = nn.Conv1d(16, 16, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(16, momentum=None)
        self.checkpointing = False

    def block(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.last(x))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = self.batch_norm(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        x = checkpoint(self.block, x, use_reentrant=False) if self.checkpointing else self.block(x)
        return F.linear(x, self.embedding.weight)


def _trained(
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    *,
    mode: str = "ord32",
    checkpointing: bool = False,
    autocast: bool = False,
    **options: object,
) -> list[Tensor]:
    """The state of a model after three steps."""
    with potl.deterministic(mode):
        torch.manual_seed(3)
        model = Decoder()
        model.checkpointing = checkpointing
        chosen = optimizer(model.parameters(), **options)  # type: ignore[call-arg]
        tokens = torch.randint(11, (3, 4, 9))
        for batch in tokens:
            chosen.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                out = model(batch[:, :-1])
            F.cross_entropy(out.float().flatten(0, 1), batch[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            chosen.step()
        return [value.clone() for value in model.state_dict().values()]


def _same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"lr": 1e-2}),
        (torch.optim.AdamW, {"lr": 1e-2, "amsgrad": True}),
    ],
)
def test_all_forms_of_an_optimizer_give_the_same_bits(
    optimizer: type[torch.optim.Optimizer], options: dict[str, object]
) -> None:
    plain = _trained(optimizer, foreach=False, **options)
    assert _same(_trained(optimizer, foreach=True, **options), plain)
    assert _same(_trained(optimizer, fused=True, **options), plain)


def test_activation_checkpointing_changes_no_bit() -> None:
    assert _same(_trained(checkpointing=True), _trained())


@pytest.mark.parametrize("mode", MODES)
def test_a_model_trains_in_every_mode(mode: str) -> None:
    state = _trained(torch.optim.SGD, mode=mode, lr=0.1)
    assert all(value.isfinite().all() for value in state)
    assert _same(_trained(torch.optim.SGD, mode=mode, lr=0.1), state)
    near = _trained(torch.optim.SGD, lr=0.1)
    worst = max(float((a - b).abs().max()) for a, b in zip(state, near, strict=True))
    assert worst < (0.02 if mode == "xint16" else 1e-4)
    assert mode == "ord32" or not _same(state, near)


def test_autocast_computes_products_in_xint16() -> None:
    assert all(value.isfinite().all() for value in _trained(autocast=True))
    x, w = torch.randn(9, 40), torch.randn(7, 40)
    results = []
    for mode in MODES:
        with potl.deterministic(mode), torch.autocast("cpu", torch.bfloat16):
            results.append(F.linear(x, w))
    assert all(torch.equal(one, results[0]) for one in results)
    with potl.deterministic("xint16"):
        wide = F.linear(x.bfloat16().float(), w.bfloat16().float())
    assert torch.equal(results[0], wide.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("used", ["output", "h", "c", "all"])
def test_an_lstm_does_not_depend_on_onednn(dtype: torch.dtype, used: str) -> None:
    results = []
    for enabled in (True, False):
        with potl.deterministic("ord32"), torch.backends.mkldnn.flags(enabled=enabled):
            torch.manual_seed(1)
            lstm = nn.LSTM(5, 18, num_layers=2, bidirectional=True, dtype=dtype)
            x = torch.randn(7, 3, 5, dtype=dtype, requires_grad=True)
            out, (h, c) = lstm(x)
            ends = {"output": out, "h": h, "c": c}
            sum(ends[n].square().sum() for n in ends if used in (n, "all")).backward()
            results.append([out, h, c, x.grad, *(p.grad for p in lstm.parameters())])
    assert _same(*results)


def test_an_lstm_under_autocast_without_onednn_is_refused_by_name() -> None:
    lstm, x = nn.LSTM(5, 6), torch.randn(7, 3, 5)
    with potl.deterministic(), torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            with pytest.raises(potl.NotReproducible, match=r"LSTM.*mkldnn\.enabled = True"):
                lstm(x)
            lengths = torch.tensor([7, 4, 2])
            lstm(nn.utils.rnn.pack_padded_sequence(x, lengths))  # cells, wherever they run
        lstm(x)
    with potl.deterministic(), torch.autocast("cpu", torch.bfloat16):
        lstm(x)
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        lstm(x)


def test_layouts_change_no_bit() -> None:
    x = torch.randn(4, 6, 5, 5)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        with potl.deterministic("ord32"):
            torch.manual_seed(1)
            model = nn.Sequential(
                nn.Conv2d(6, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.GELU(),
                nn.AvgPool2d(2),
                nn.GroupNorm(2, 8),
                nn.Upsample(scale_factor=2, mode="bilinear"),
                nn.Softmax(1),
            )
            given = x.clone(memory_format=layout).requires_grad_()
            out = model.to(memory_format=layout)(given)
            out.square().sum().backward()
            results.append([out.detach(), *(p.grad for p in model.parameters()), given.grad])
    assert _same(*results)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_infers_with_a_padding_mask(norm_first: bool) -> None:
    with potl.deterministic("ord32"):
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        trained = encoder(x, src_key_padding_mask=padding)
        with torch.inference_mode():
            inferred = encoder.eval()(x, src_key_padding_mask=padding)
    torch.testing.assert_close(inferred[~padding], trained[~padding], rtol=1e-5, atol=1e-5)


def test_an_operator_without_a_form_is_refused_by_name() -> None:
    with (
        potl.deterministic("ord32"),
        pytest.raises(potl.NotReproducible, match="fractional_max_pool2d"),
    ):
        F.fractional_max_pool2d(torch.randn(1, 1, 4, 4), 2, 2)
