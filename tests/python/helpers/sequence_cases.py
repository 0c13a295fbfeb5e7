# SPDX-License-Identifier: Apache-2.0
"""Calls of attention, recurrent layers and encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from neural_case import Case, floats, integers
from torch import Tensor


def _attention() -> Iterator[Case]:
    q, k, v = floats(2, 3, 9, 8), floats(2, 3, 7, 8), floats(2, 3, 7, 8)
    attend = F.scaled_dot_product_attention
    yield Case("attention", attend, (q, k, v))
    yield Case("attention/causal", lambda q: attend(q, q, q, is_causal=True), (q,))
    yield Case(
        "attention/causal/longer", lambda q, k, v: attend(q, k, v, is_causal=True), (q, k, v)
    )
    yield Case("attention/scale", lambda q, k, v: attend(q, k, v, scale=0.7), (q, k, v))
    yield Case(
        "attention/bool mask",
        lambda q, k, v, m: attend(q, k, v, (m > 0) & (torch.arange(9)[:, None] > 1)),
        (q, k, v, integers(4, 2, 1, 9, 7)),
    )
    yield Case(
        "attention/float mask",
        lambda q, k, v, m: attend(q, k, v, (m * 0.5).to(q.dtype)),
        (q, k, v, integers(4, 9, 7)),
    )
    yield Case("attention/learnt mask", attend, (q, k, v, floats(2, 3, 9, 7)))
    yield Case(
        "attention/transposed",
        lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
        (floats(2, 9, 3, 8), floats(2, 7, 3, 8), floats(2, 7, 3, 8)),
    )
    yield Case(
        "attention/groups",
        lambda q, k, v: attend(q, k, v, enable_gqa=True),
        (floats(2, 6, 5, 4), floats(2, 2, 7, 4), floats(2, 2, 7, 4)),
    )
    # By its full name: torch 2.14 fuses it otherwise.
    yield Case("attention/3d", lambda q: F.scaled_dot_product_attention(q[0], q[0], q[0]), (q,))


def _recurrent() -> Iterator[Case]:
    """Layers of torch.nn, called by the functions that its modules call."""
    x, ragged, lengths = floats(6, 3, 5), floats(13, 5), torch.tensor([3, 3, 3, 2, 1, 1])

    def weights(gates: int, layers: int, directions: int, projected: int = 0) -> list[Tensor]:
        width = 4
        out: list[Tensor] = []
        for layer in range(layers):
            fed = 5 if layer == 0 else directions * (projected or width)
            for _ in range(directions):
                out += [floats(gates * width, fed, scale=0.5)]
                out += [floats(gates * width, projected or width, scale=0.5)]
                out += [floats(gates * width, scale=0.5), floats(gates * width, scale=0.5)]
                if projected:
                    out.append(floats(projected, width))
        return out

    for layers, directions in ((1, 1), (2, 2)):
        state = floats(layers * directions, 3, 4)
        form = f"{layers}x{directions}"
        both = directions == 2
        yield Case(
            f"lstm/{form}",
            lambda x, h, c, *w, n=layers, both=both: torch._VF.lstm(
                x, (h, c), w, True, n, 0.0, True, both, False
            ),
            (x, state, floats(*state.shape), *weights(4, layers, directions)),
        )
        yield Case(
            f"lstm/batch first/{form}",
            lambda x, h, c, *w, n=layers, both=both: torch._VF.lstm(
                x.transpose(0, 1), (h, c), w, True, n, 0.0, True, both, True
            ),
            (x, state, floats(*state.shape), *weights(4, layers, directions)),
        )
        yield Case(
            f"lstm/packed/{form}",
            lambda x, i, h, c, *w, n=layers, both=both: torch._VF.lstm(
                x, i, (h, c), w, True, n, 0.0, True, both
            ),
            (ragged, lengths, state, floats(*state.shape), *weights(4, layers, directions)),
        )
        for name, gates in (("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
            yield Case(
                f"{name}/{form}",
                lambda x, h, *w, n=layers, both=both, f=name: getattr(torch._VF, f)(
                    x, h, w, True, n, 0.0, True, both, False
                ),
                (x, state, *weights(gates, layers, directions)),
            )
            yield Case(
                f"{name}/packed/{form}",
                lambda x, i, h, *w, n=layers, both=both, f=name: getattr(torch._VF, f)(
                    x, i, h, w, True, n, 0.0, True, both
                ),
                (ragged, lengths, state, *weights(gates, layers, directions)),
            )
    yield Case(
        "lstm/no bias",
        lambda x, h, c, a, b: torch._VF.lstm(x, (h, c), (a, b), False, 1, 0.0, True, False, False),
        (x, floats(1, 3, 4), floats(1, 3, 4), floats(16, 5), floats(16, 4)),
    )
    yield Case(
        "lstm/projected",
        lambda x, h, c, *w: torch._VF.lstm(x, (h, c), w, True, 1, 0.0, True, False, False),
        (x, floats(1, 3, 2), floats(1, 3, 4), *weights(4, 1, 1, projected=2)),
    )
    h, c = floats(3, 4), floats(3, 4)
    yield Case(
        "lstm_cell",
        lambda x, h, c, *w: torch._VF.lstm_cell(x[0], (h, c), *w),
        (x, h, c, *weights(4, 1, 1)),
    )
    for name, gates in (("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1)):
        yield Case(
            name,
            lambda x, h, *w, f=name: getattr(torch._VF, f)(x[0], h, *w),
            (x, h, *weights(gates, 1, 1)),
        )


def _modules() -> Iterator[Case]:
    """Modules whose operators differ between training and inference."""

    def called(
        module: torch.nn.Module, training: bool, **options: object
    ) -> Callable[..., Tensor | tuple[Tensor, ...]]:
        module.train(training)
        names = [name for name, _ in module.named_parameters()]

        def call(x: Tensor, *parameters: Tensor) -> Tensor | tuple[Tensor, ...]:
            with torch.set_grad_enabled(training):
                given = dict(zip(names, parameters, strict=True))
                extra = {
                    k: v.to(x.dtype) if isinstance(v, Tensor) and v.is_floating_point() else v
                    for k, v in options.items()
                }
                own = (x, x, x) if isinstance(module, torch.nn.MultiheadAttention) else (x,)
                out = torch.func.functional_call(module, given, own, extra)
            return tuple(o for o in out if o is not None) if isinstance(out, tuple) else out

        return call

    x = floats(3, 6, 8)
    empty = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]]).bool()
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer
    plain = layer(8, 2, 16, dropout=0.0, batch_first=True)
    first = layer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
    encoder = torch.nn.TransformerEncoder(plain, 2, enable_nested_tensor=False)
    for training in (True, False):
        for name, module, options in (
            ("multi-head attention", attention, {}),
            ("multi-head attention/mask", attention, {"key_padding_mask": empty}),
            ("multi-head attention/no weights", attention, {"need_weights": False}),
            ("multi-head attention/each", attention, {"average_attn_weights": False}),
            ("encoder layer", plain, {}),
            ("encoder layer/norm first", first, {}),
            ("encoder layer/causal", plain, {"src_mask": causal}),
            ("encoder layer/padding", plain, {"src_key_padding_mask": empty}),
            (
                "encoder layer/both",
                plain,
                {"src_mask": causal.isinf(), "src_key_padding_mask": empty},
            ),
            ("encoder", encoder, {"mask": causal, "is_causal": True}),
        ):
            parameters = [floats(*p.shape, scale=0.4) for p in module.parameters()]
            yield Case(
                f"{name}/{'train' if training else 'infer'}",
                called(module, training, **options),
                (x, *parameters),
                1e-4,
            )


def cases() -> list[Case]:
    return [*_attention(), *_recurrent(), *_modules()]
