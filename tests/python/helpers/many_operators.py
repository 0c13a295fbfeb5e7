# SPDX-License-Identifier: Apache-2.0
"""Many operators at once, each of which a referee may have to compute an element of."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
import zoo
from torch import nn

import potl

Function = Callable[[torch.Tensor], torch.Tensor]

# Of a tensor of 5 x 6 x 4 x 3 elements.
FUNCTIONS: dict[str, Function] = {
    "cat_mixed": lambda x: torch.cat([x, x.double()], 1).float(),
    "cat_int": lambda x: torch.cat([x, torch.ones(5, 2, 4, 3, dtype=torch.int64)], 1),
    "stack_mixed": lambda x: torch.stack([x.double(), x.double() * 2], -1).float(),
    "copy_mixed": lambda x: torch.zeros(5, 6, 4, 3, dtype=torch.float64).copy_(x).float(),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=1.5),
    "pad_neg": lambda x: F.pad(x, (-1, 2), value=-0.0),
    "pad_replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "softmax_neg": lambda x: x.softmax(-2),
    "softmax_d": lambda x: x.softmax(1, dtype=torch.float64).float(),
    "logsoftmax0": lambda x: x.log_softmax(0),
    "sum_keep": lambda x: x.sum((0, 2), keepdim=True) * x,
    "sum1": lambda x: x[:, :1].sum(1, keepdim=True) * x,
    "sum1n": lambda x: x[:, :1].sum(1),
    "sum_d": lambda x: x.sum((1, 3), dtype=torch.float64).float(),
    "mean_all": lambda x: x.mean() * x,
    "mean_neg": lambda x: x.mean((-1, 0)),
    "mean1": lambda x: x[:1].mean(0),
    "amax": lambda x: x.amax((0, -1), keepdim=True) + x,
    "amin": lambda x: x.amin(2),
    "max_dim": lambda x: x.max(1)[0],
    "min_dim": lambda x: x.min(-1, keepdim=True)[0],
    "norm": lambda x: x.norm(dim=(1, 2)),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, dim=0),
    "norminf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=(0, 1)),
    "normkeep": lambda x: x / torch.linalg.vector_norm(x, 2, dim=1, keepdim=True),
    "norm_all": lambda x: x / x.norm(),
    "normalize": lambda x: F.normalize(x, dim=2),
    "cumsum": lambda x: x.cumsum(1),
    "cumsum_neg": lambda x: x.cumsum(-1),
    "cumsum_d": lambda x: x.cumsum(0, dtype=torch.float64).float(),
    "prod": lambda x: x.detach().prod(2) * x[:, :, 0],
    "var": lambda x: x.var((0, 2)),
    "std": lambda x: x.std(1, keepdim=True) + x,
    "gelu": F.gelu,
    "gelu_t": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "prelu": lambda x: F.prelu(x, torch.full((6,), 0.2)),
    "glu": lambda x: F.glu(x, 1),
    "hardtanh": F.hardtanh,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "celu": F.celu,
    "sig": torch.sigmoid,
    "where": lambda x: torch.where(x > 0, x, torch.zeros(())),
    "wheres": lambda x: torch.where(x > 0, x, x[:1]),
    "mfill": lambda x: x.masked_fill(x > 0, 2.0),
    "mfillt": lambda x: x.masked_fill(x[0] > 0, torch.tensor(3.0)),
    "clampt": lambda x: torch.clamp(x, min=torch.tensor(-0.1), max=x[0] + 1),
    "lerp": lambda x: torch.lerp(x, x[:1], 0.3),
    "lerpt": lambda x: torch.lerp(x, x[:1], x[0]),
    "addcmul": lambda x: torch.addcmul(x, x[0], x[:, :1], value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x[0], x[:, :1].exp(), value=0.3),
    "pow": lambda x: x.abs().pow(1.7),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "powt": lambda x: 2.0**x,
    "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "log1p": lambda x: (x * x).log1p(),
    "expm1": torch.expm1,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "maximum": lambda x: torch.maximum(x, x[:1]),
    "minimum": lambda x: torch.minimum(x, x[0, 0]),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "rollf": lambda x: x.roll(7),
    "flip": lambda x: x.flip((0, 2)),
    "rot90": lambda x: x.rot90(1, (2, 3)),
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "repi": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile((2, 1)),
    "expand": lambda x: x[:, :1].expand(5, 4, 4, 3),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "diag": lambda x: x.diagonal(0, 2, 3),
    "diag1": lambda x: x.diagonal(1, 1, 0),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "select": lambda x: x.select(1, -1),
    "slice": lambda x: x[1:, ::2, :, 1:],
    "narrow": lambda x: x.narrow(1, 1, 3),
    "split": lambda x: x.split(4, 1)[1],
    "chunk": lambda x: x.chunk(4, 1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "index": lambda x: x[torch.tensor([0, 2, 2])],
    "index2": lambda x: x[:, torch.tensor([0, 5]), torch.tensor([1, 1])],
    "gather": lambda x: x.gather(1, torch.zeros(5, 2, 4, 3, dtype=torch.int64)),
    "iselect": lambda x: x.index_select(1, torch.tensor([3, 1])),
    "take": lambda x: x.reshape(-1)[torch.arange(7)],
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "bmm": lambda x: torch.bmm(x[:, 0], x[:, 1].transpose(1, 2)),
    "baddbmm": lambda x: torch.baddbmm(
        x[:1, 0, :, :1], x[:, 0], x[:, 1].transpose(1, 2), beta=0.5, alpha=2
    ),
    "addmm": lambda x: torch.addmm(x[0, 0, 0], x[0, 0], x[0, 1].t() @ x[0, 2], beta=0.3, alpha=0.7),
    "addmm_s": lambda x: torch.addmm(torch.tensor(1.0), x[0, 0], x[0, 1].t()),
    "mv": lambda x: x[0, 0] @ x[0, 1, 0],
    "dot": lambda x: x[0, 0, 0] @ x[0, 0, 1],
    "einsum": lambda x: torch.einsum("abij,acij->bc", x, x),
    "outer": lambda x: torch.outer(x[0, 0, 0], x[0, 1, 0]),
    "addmv": lambda x: torch.addmv(x[0, 0, :, 0], x[0, 0], x[0, 1, 0]),
    "conv_s": lambda x: F.conv2d(
        x, x[:2, :6, :3, :2], stride=(2, 1), padding=(1, 2), dilation=(1, 1)
    ),
    "conv_g": lambda x: F.conv2d(x, x[:3, :2, :2, :2], groups=3, padding=1),
    "conv_dw": lambda x: F.conv2d(
        x, x[0, :, None, :3, :3], groups=6, padding=2, dilation=2, bias=x[0, :, 0, 0]
    ),
    "conv_same": lambda x: F.conv2d(x, x[:2, :, :3, :3], padding="same"),
    "conv1": lambda x: F.conv1d(x[:, :, :, 0], x[:3, :, :2, 1], stride=2, padding=1),
    "conv3": lambda x: F.conv3d(x[:, :2, None], x[:3, :2, None, :2, :2], padding=1, stride=2),
    "convT": lambda x: F.conv_transpose2d(
        x, x[0, :, None, :2, :2].expand(6, 2, 2, 2), stride=2, output_padding=1
    ),
    "convT_g": lambda x: F.conv_transpose2d(
        x, x[0, :, None, :2, :2].expand(6, 2, 2, 2), groups=3, padding=1
    ),
    "bn": lambda x: F.batch_norm(
        x, torch.zeros(6), torch.ones(6), x[0, :, 0, 0], x[0, :, 0, 1], True
    ),
    "bn_n": lambda x: F.batch_norm(x, None, None, None, None, True),
    "bn_eval": lambda x: F.batch_norm(
        x, torch.zeros(6), torch.ones(6), x[0, :, 0, 0], x[0, :, 0, 1], False
    ),
    "bn1d": lambda x: F.batch_norm(x[:, :, 0, 0], torch.zeros(6), torch.ones(6), None, None, True),
    "bn_cl": lambda x: F.batch_norm(
        x.contiguous(memory_format=torch.channels_last),
        torch.zeros(6),
        torch.ones(6),
        x[0, :, 0, 0],
        x[0, :, 0, 1],
        True,
    ),
    "ln": lambda x: F.layer_norm(x, (3,), x[0, 0, 0], x[0, 0, 1]),
    "ln2": lambda x: F.layer_norm(x, (4, 3), x[0, 0], x[0, 1]),
    "ln_n": lambda x: F.layer_norm(x, (3,)),
    "ln_1": lambda x: F.layer_norm(x[:1, 0, 0], (3,), x[0, 0, 0], x[0, 0, 1]),
    "ln_w": lambda x: F.layer_norm(x, (3,), x[0, 0, 0]),
    "ln_11": lambda x: F.layer_norm(x[..., :1], (1,), x[0, 0, 0, :1]),
    "ln_sq": lambda x: F.layer_norm(x[0, 0, :3], (3,), x[0, 0, 0], x[0, 0, 1]),
    "gn": lambda x: F.group_norm(x, 3, x[0, :, 0, 0], x[0, :, 0, 1]),
    "in": lambda x: F.instance_norm(x),
    "rms": lambda x: F.rms_norm(x, (3,), x[0, 0, 0]),
    "maxpool": lambda x: F.max_pool2d(x, 2, 1, 1),
    "maxpool_d": lambda x: F.max_pool2d(x, 2, 1, 0, dilation=2),
    "avgpool": lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False),
    "avgpool3": lambda x: F.avg_pool2d(x[0], 2),
    "aap": lambda x: F.adaptive_avg_pool2d(x, (2, 2)),
    "aap1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "amp": lambda x: F.adaptive_max_pool2d(x, 2),
    "mp1": lambda x: F.max_pool1d(x[:, :, :, 0], 2),
    "ap1": lambda x: F.avg_pool1d(x[:, :, :, 0], 2),
    "lp": lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2),
    "interp": lambda x: F.interpolate(x, scale_factor=2),
    "interpb": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pixsh": lambda x: F.pixel_shuffle(x[:, :4], 2),
    "unshuf": lambda x: F.pixel_unshuffle(x[:, :, :, :2], 2),
    "chshuf": lambda x: F.channel_shuffle(x, 2),
    "imcol": lambda x: F.unfold(x, 2),
    "sdpa": lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3),
    "sdpa_c": lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3, is_causal=True),
    "sdpa_m": lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.ones(4, 4, dtype=torch.bool).tril()
    ),
    "sdpa_v": lambda x: F.scaled_dot_product_attention(x, x, x[..., :2]),
    "emb": lambda x: F.embedding(torch.tensor([[0, 2], [2, 4]]), x[:, :, 0, 0]),
    "embp": lambda x: F.embedding(torch.tensor([[0, 2], [2, 4]]), x[:, :, 0, 0], padding_idx=2),
    "embs": lambda x: F.embedding(
        torch.tensor([[0, 2], [2, 4]]), x[:, :, 0, 0], scale_grad_by_freq=True
    ),
    "embbag": lambda x: F.embedding_bag(torch.tensor([[0, 2], [2, 4]]), x[:, :, 0, 0]),
    "onehot": lambda x: F.one_hot(torch.tensor([0, 1, 2, 3, 4]), 6)[..., None, None] * x,
    "ce2d": lambda x: F.cross_entropy(x, torch.zeros(5, 4, 3, dtype=torch.int64)),
    "ce_w": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.arange(5), weight=torch.arange(6.0)),
    "ce_ig": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.tensor([0, -100, 2, 3, 4])),
    "ce_ls": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.arange(5), label_smoothing=0.1),
    "ce_n": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.arange(5), reduction="none"),
    "ce_p": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.full((5, 6), 1 / 6)),
    "ce1": lambda x: F.cross_entropy(x[0, :, 0, 0], torch.tensor(2)),
    "nll_s": lambda x: F.nll_loss(x[:, :, 0, 0], torch.arange(5), reduction="sum"),
    "mse": lambda x: F.mse_loss(x, torch.zeros(5, 6, 4, 3)),
    "l1": lambda x: F.l1_loss(x, torch.zeros(5, 6, 4, 3)),
    "sl1": lambda x: F.smooth_l1_loss(x, torch.zeros(5, 6, 4, 3)),
    "hub": lambda x: F.huber_loss(x, torch.zeros(5, 6, 4, 3)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(5, 6, 4, 3)),
    "bcep": lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones(5, 6, 4, 3)),
    "kl": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1).detach(), reduction="batchmean"),
    "cos_s": lambda x: F.cosine_similarity(x, x.flip(0), dim=1),
    "trip": lambda x: F.triplet_margin_loss(x[0, 0], x[0, 1], x[0, 2]),
    "tripd": lambda x: F.pairwise_distance(x[0, 0], x[0, 1]),
    "gauss": lambda x: F.gaussian_nll_loss(x, torch.zeros(5, 6, 4, 3), torch.ones(5, 6, 4, 3)),
    "drop": lambda x: F.dropout(x, 0.3),
    "drop2d": lambda x: F.dropout2d(x, 0.3),
    "adrop": lambda x: F.alpha_dropout(x, 0.3),
    "rand": lambda x: x + torch.rand(5, 6, 4, 3),
    "randl": lambda x: x + torch.randn_like(x),
    "perm": lambda x: x * torch.randperm(3),
    "bern": lambda x: x * torch.bernoulli(torch.full((3,), 0.5)),
    "rint": lambda x: x * torch.randint(0, 3, (3,)),
    "norm_": lambda x: x + torch.empty(3).normal_(1, 2),
    "uni_": lambda x: x + torch.empty(3).uniform_(1, 2),
    "exp_": lambda x: x + torch.empty(3).exponential_(),
    "half": lambda x: x.half().float(),
    "bf": lambda x: (x.bfloat16() * 2).float(),
    "viewd": lambda x: x.detach().view(torch.int32).float() * 1e-09 + x,
    "inplace": lambda x: (x * 1).add_(1).mul_(x),
    "bool": lambda x: (x > 0).float() * x,
    "any": lambda x: (x > 0).any(1).float()[:, None] * x,
    "argmax": lambda x: x.argmax(1).float()[:, None] * x,
    "round": lambda x: x.round() + x,
    "floor": lambda x: (x * 5).floor() * x,
    "remainder": lambda x: torch.remainder(x, 0.3),
    "fmod": lambda x: torch.fmod(x, 0.3),
    "sign": lambda x: x.sign() * x,
    "floordiv": lambda x: (x // 0.1).detach() * x,
    "movedim": lambda x: x.movedim(0, 2).contiguous(),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "sq_": lambda x: x[:1, :1].squeeze(),
    "scatter": lambda x: torch.zeros(5, 6, 4, 3).scatter(
        1, torch.zeros(5, 6, 4, 3, dtype=torch.int64), x
    ),
    "scadd": lambda x: torch.zeros(5, 6, 4, 3).scatter_add(
        1, torch.zeros(5, 6, 4, 3, dtype=torch.int64), x
    ),
    "iadd": lambda x: torch.zeros(2, 6, 4, 3).index_add(0, torch.tensor([0, 1, 0, 1, 0]), x),
    "lse": lambda x: x.logsumexp(1),
    "diff": lambda x: x.diff(dim=1),
    "dstd": lambda x: x.std(),
    "trace": lambda x: x[0, 0, :3].trace(),
    "kron": lambda x: torch.kron(x[0, 0], x[0, 1]),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0, 0], x[0, 1, 0], indexing="ij")[0],
}


class All(nn.Module):
    """Every function of the same weights, with its gradient."""

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(5, 6, 4, 3) * 0.3)
        self.functions = functions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = self.weights * (1 + x.mean()) + 0.01
        out = torch.zeros(())
        for function in self.functions.values():
            made = function(base).float()
            scale = torch.linspace(0.5, 1.5, made.numel()).reshape(made.shape)
            out = out + (made * scale).sum()
        return out


def task(functions: dict[str, Function] = FUNCTIONS) -> potl.Task:
    net = All(functions)
    return potl.Task(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=1e-3),
        dataset=zoo.digits(),
        loss=lambda out, _: out,
        batch_size=5,
        epochs=1,
        max_steps=4,
    )
