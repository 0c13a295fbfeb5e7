# SPDX-License-Identifier: Apache-2.0
"""Small networks whose layers, weights or losses are Fourier transforms or complex numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SpectralConvolution(nn.Module):
    """The layer of a Fourier neural operator: complex weights times the lowest modes."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        shape = (2, channels, channels, modes, modes)
        self.weight = nn.Parameter(torch.rand(shape, dtype=torch.cfloat) / channels)
        self.modes = modes

    def forward(self, x: Tensor) -> Tensor:
        modes, spectrum = self.modes, torch.fft.rfft2(x)
        kept = torch.zeros_like(spectrum)
        low, high = spectrum[:, :, :modes, :modes], spectrum[:, :, -modes:, :modes]
        kept[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", low, self.weight[0])
        kept[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", high, self.weight[1])
        return torch.fft.irfft2(kept, s=x.shape[-2:])


class FourierOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift, self.drop = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 1, 1)
        self.spectral, self.local = SpectralConvolution(4, 2), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x.view(-1, 1, 8, 6))
        return self.drop(F.gelu(self.spectral(x) + self.local(x))).flatten(1)


class Mixing(nn.Module):
    """A block of FNet, then one of Autoformer: delays by autocorrelation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.last = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 8, 6)
        x = self.norm(x + torch.fft.fftn(x, dim=(-2, -1)).real)
        key, query = (torch.fft.rfft(one, dim=1) for one in (x, self.linear(x)))
        likeness = torch.fft.irfft(query * key.conj(), n=8, dim=1)
        weights, delays = likeness.mean(2).topk(2, dim=1)
        rolled = [
            x.gather(1, ((torch.arange(8) + delay[:, None]) % 8)[..., None].expand_as(x)) * weight
            for delay, weight in zip(delays.T, weights.softmax(1).T[..., None, None], strict=True)
        ]
        return self.last(sum(rolled)).flatten(1)  # type: ignore[arg-type]


class Filter(nn.Module):
    """Masks the spectrogram of a sound by complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.Linear(9, 18)

    def forward(self, x: Tensor) -> Tensor:
        window = torch.hann_window(16)
        spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
        sizes, angles = self.mask((spectrum.abs() + 1e-3).log().mT).chunk(2, -1)
        masked = spectrum * torch.polar(sizes.exp(), angles).mT
        return torch.istft(masked, 16, 4, window=window, length=x.size(-1))


def spectral_loss(y: Tensor, target: Tensor) -> Tensor:
    """Of magnitudes, of their logarithms, and of the complex numbers."""
    window = torch.hann_window(16)
    one, other = (torch.stft(x, 16, 8, window=window, return_complex=True) for x in (y, target))
    sizes, wanted = one.abs(), other.abs()
    logarithms = F.l1_loss((sizes + 1e-3).log(), (wanted + 1e-3).log())
    return (one - other).abs().mean() + logarithms + (sizes - wanted).norm() / wanted.norm()


NETS = {"fourier operator": FourierOperator, "mixing": Mixing, "filter": Filter}
LOSSES = {"fourier operator": F.mse_loss, "mixing": F.mse_loss, "filter": spectral_loss}
