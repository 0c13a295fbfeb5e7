# SPDX-License-Identifier: Apache-2.0
"""potl's counter-based randomness under torch: what a random operator draws is a function of the
job.

torch's own random operators differ in bits between instruction sets and library versions. Inside a
`scope` they are replaced, on the CPU, by fills from Philox (`potl._core.fill_*`). Every operator
draws a 126-bit subkey from the torch generator that it was given, by torch's stock integer
operator, so the position in the sequence stays in torch's own generator state:
`torch.utils.checkpoint`, which saves and restores that state, works. The sequence itself is set by
`seed_all` and `seed_torch` from a key (`potl._core.derive_key`).

Outside a scope, and in other threads, the stock operators run. A scope saves the user's
generators (torch, CUDA, `random`, NumPy) and restores them at its end. Deterministic, but only on
the same machine: `torch.log_normal_` (goes through exp), and CUDA's operators, which are seeded but
not replaced.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.random  # NumPy loads it late, and then seeds it itself
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from .. import _core
from .._base._errors import UnsupportedError, UsageError
from . import _numpy_random, _truncated

Generator = torch.Generator | None

# The state of torch's CPU generator as 64-bit words: seed, left and seeded, next, 624 words of
# Mersenne Twister (32 bits each), and what normal_ keeps. The layout is that of torch's own
# checkpoints; `install` refuses another.
_STATE_WORDS = 632
# Seeded, and one draw left before the next twist.
_FRESH = 1 << 32 | 1


class _Saved(NamedTuple):
    """Generators that are set aside."""

    torch: torch.Tensor
    random: tuple[Any, ...]
    numpy: _numpy_random.Kept
    cuda: list[torch.Tensor] | None
    """None where CUDA is not in use."""


class _Randomness:
    """What is installed in this process. torch's dispatcher is global, so this is too."""

    def __init__(self) -> None:
        self.library: torch.library.Library | None = None
        self.put_back: Callable[[], None]  # torch's trunc_normal_, while there is a library
        self.users = 0
        self.thread: int | None = None
        self.saved: _Saved  # while a scope is open
        self.draws = 0
        self.lock = threading.Lock()


_it = _Randomness()
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


# ---------------------------------------------------------------------- scopes


def out_of_inference_mode() -> contextlib.AbstractContextManager[None]:
    """Leaves `torch.inference_mode`: what is built, read or restored in it could not be trained.

    Does nothing outside of it, because at its end it puts back the dispatch modes of its start.
    """
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return contextlib.nullcontext()


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Makes this thread draw from potl's randomness, and leaves `torch.inference_mode`; at the end
    both are as they were.

    Nests. Only one thread at a time can be in a scope.

    Raises:
        UsageError: Another thread is in a scope.
    """
    me = threading.get_ident()
    with _it.lock:
        if _it.thread not in (None, me):
            raise UsageError(
                "another thread of this process is training or replaying with potl",
                "threads share torch's random number generators: use processes",
            )
        nested = _it.thread == me
        _it.thread = me
    if nested:
        yield
        return
    try:
        install()
        try:
            _it.saved = _save()
            own = _numpy_random.put_own()
            try:
                with out_of_inference_mode():
                    yield
            finally:
                _restore(_it.saved)
                _numpy_random.put_away(own)
        finally:
            uninstall()
    finally:
        _it.thread = None


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Inside a scope: gives a block of the user's code the user's generators and torch's own
    operators back.

    The scope's place in its sequences is not kept: seed before anything draws.
    """
    if _it.thread != threading.get_ident():
        yield
        return
    own = get_bit_generator()
    _restore(_it.saved)
    _it.thread = None
    try:
        yield
    finally:
        _it.thread = threading.get_ident()
        _it.saved = _save(_it.saved)
        set_bit_generator(own)


def install() -> None:
    """Keeps potl's operators registered until as many calls of `uninstall`. They act only inside a
    scope.
    """
    with _it.lock:
        _it.users += 1
        if _it.library is None:
            _it.library = _register()
            _it.put_back = _truncated.put(_inside)


def uninstall() -> None:
    """Undoes one `install`."""
    with _it.lock:
        _it.users -= 1
        if _it.users == 0 and _it.library is not None:
            _it.put_back()
            _it.library._destroy()  # type: ignore[no-untyped-call]
            _it.library = None


def _inside() -> bool:
    return _it.thread is not None and _it.thread == threading.get_ident()


def draws() -> int:
    """How many random operators have drawn inside scopes so far."""
    return _it.draws


def count(drawn: int) -> None:
    """Counts what another process drew for this one's step."""
    _it.draws += drawn


def _save(known: _Saved | None = None) -> _Saved:
    """The user's generators, or the scope's; `known` is what they were restored from last."""
    return _Saved(
        torch=torch.default_generator.get_state(),
        random=random.getstate(),
        numpy=_numpy_random.take(None if known is None else known.numpy),
        cuda=torch.cuda.get_rng_state_all()
        if torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        else None,
    )


def _restore(saved: _Saved) -> None:
    torch.default_generator.set_state(saved.torch)
    random.setstate(saved.random)
    _numpy_random.put(saved.numpy)
    if saved.cuda is not None:
        torch.cuda.set_rng_state_all(saved.cuda)


# ---------------------------------------------------------------------- seeding


def seed_torch(key: bytes) -> None:
    """Sets torch's CPU generator (all 19,968 bits of it) and, when CUDA is in use, CUDA's, from a
    derived key.
    """
    words = np.empty(312, dtype=np.int64)
    _core.fill_integers(words, key, 0, -(2**63), 2**63 - 1)
    state = np.zeros(_STATE_WORDS, dtype=np.int64)
    state[1] = _FRESH
    state[3 : 3 + 624] = words.view(np.uint32)
    torch.default_generator.set_state(torch.from_numpy(state).view(torch.uint8))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(int.from_bytes(key[:8], "little") >> 1)


def seed_all(key: bytes) -> None:
    """`seed_torch`, and Python's and NumPy's global generators."""
    seed_torch(key)
    random.seed(int.from_bytes(key, "little"))
    np.random.seed(int.from_bytes(key[-4:], "little"))


# ---------------------------------------------------------------------- operators


def _register() -> torch.library.Library:
    if torch.default_generator.get_state().numel() != 8 * _STATE_WORDS:
        raise UnsupportedError(
            f"torch {torch.__version__} keeps its generator in a form that potl does not know",
            "use a torch version that this potl supports",
        )
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overriding is what we want
        for name, function in _OPERATORS.items():
            stock = torch.library.get_kernel("aten::" + name, "CPU")
            library.impl(name, _switch(stock, function), "CPU", allow_override=True)  # type: ignore[no-untyped-call]
    return library


def _switch(stock: Any, function: Callable[..., torch.Tensor | None]) -> Callable[..., Any]:
    """`function` in the thread that is in a scope; elsewhere, and if it gives None, torch's own
    kernel.
    """

    def kernel(*arguments: Any, **named: Any) -> Any:
        if not _inside():
            return stock.call_boxed(_CPU_KEYS, *arguments, **named)
        drawn = function(*arguments, **named)
        if drawn is None:
            return stock.call_boxed(_CPU_KEYS, *arguments, **named)
        return drawn

    return kernel


def _subkey(generator: Generator) -> bytes:
    _it.draws += 1
    drawn = torch.empty(2, dtype=torch.int64)
    return drawn.random_(generator=generator).numpy().tobytes()


def _fill(target: torch.Tensor, fill: Callable[[Any], None]) -> torch.Tensor:
    """Has `fill` write a float array in row-major order, then rounds and copies if `target` is not
    one.
    """
    dtype = target.dtype
    if dtype in (torch.float32, torch.float64) and target.is_contiguous():
        fill(target.detach().numpy())
        return target
    wide = torch.float64 if dtype in (torch.float64, torch.int64, torch.int32) else torch.float32
    buffer = torch.empty(target.shape, dtype=wide)
    fill(buffer.numpy())
    return target.copy_(buffer)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)  # as torch does


def _uniform_(
    self: torch.Tensor, low: float = 0.0, high: float = 1.0, generator: Generator = None
) -> torch.Tensor:
    _require(
        low <= high,
        f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}",
    )
    if self.numel() == 0:
        return self
    key = _subkey(generator)
    if self.is_complex():
        torch.view_as_real(self).copy_(
            _filled((*self.shape, 2), key, _core.fill_uniform, low, high)
        )
        return self
    return _fill(self, lambda out: _core.fill_uniform(out, key, 0, low, high))


def _normal_(
    self: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator = None
) -> torch.Tensor:
    _require(std >= 0.0, f"normal_ expects std >= 0.0, but found std {std}")
    if self.numel() == 0:
        return self
    key = _subkey(generator)
    if self.is_complex():
        parts = _filled((*self.shape, 2), key, _core.fill_normal, 0.0, std / math.sqrt(2.0))
        torch.view_as_real(self).copy_(parts)
        return self.add_(mean)
    return _fill(self, lambda out: _core.fill_normal(out, key, 0, mean, std))


def _exponential_(
    self: torch.Tensor, rate: float = 1.0, generator: Generator = None
) -> torch.Tensor:
    _require(rate > 0.0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    if self.numel() == 0:
        return self
    key = _subkey(generator)
    if rate == math.inf:
        return self.zero_()
    return _fill(self, lambda out: _core.fill_exponential(out, key, 0, rate))


def _cauchy_(
    self: torch.Tensor, median: float = 0.0, sigma: float = 1.0, generator: Generator = None
) -> torch.Tensor:
    _require(sigma > 0.0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    if self.numel() == 0:
        return self
    # The ratio of two normals: no tangent, so the same bits everywhere.
    over, under = _filled((2, *self.shape), _subkey(generator), _core.fill_normal, 0.0, 1.0)
    return self.copy_(over.div_(under).mul_(sigma).add_(median))


def _log_normal_(
    self: torch.Tensor, mean: float = 1.0, std: float = 2.0, generator: Generator = None
) -> torch.Tensor:
    _require(std > 0.0, f"log_normal_ expects std > 0.0, but found std={std}")
    if self.numel() == 0:
        return self
    return self.copy_(_filled(self.shape, _subkey(generator), _core.fill_normal, mean, std).exp_())


def _geometric_(self: torch.Tensor, p: float, generator: Generator = None) -> torch.Tensor:
    _require(0.0 < p < 1.0, f"geometric_ expects p to be in (0, 1), but got p={p}")
    if self.numel() == 0:
        return self
    rate = -math.log1p(-p)
    values = _filled(self.shape, _subkey(generator), _core.fill_exponential, rate)
    return self.copy_(values.ceil_().clamp_(min=1.0))


def _bernoulli_float(
    self: torch.Tensor, p: float = 0.5, generator: Generator = None
) -> torch.Tensor:
    _require(0.0 <= p <= 1.0, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    if self.numel() == 0:
        return self
    key = _subkey(generator)
    if self.dtype in (torch.bool, torch.uint8) and self.is_contiguous():
        _core.fill_bernoulli(self.detach().numpy(), key, 0, p)
        return self
    return _fill(self, lambda out: _core.fill_bernoulli(out, key, 0, p))


def _bernoulli_tensor(
    self: torch.Tensor, p: torch.Tensor, generator: Generator = None
) -> torch.Tensor:
    if self.numel() == 0:
        return self
    wide = p.detach().to(torch.float64)
    _require(bool(((wide >= 0) & (wide <= 1)).all()), "Expected p_in >= 0 && p_in <= 1 to be true")
    values = _filled(self.shape, _subkey(generator), _core.fill_uniform, 0.0, 1.0)
    return self.copy_(values < wide)


def _bernoulli_out(
    self: torch.Tensor, generator: Generator = None, *, out: torch.Tensor
) -> torch.Tensor:
    out.resize_(self.shape)
    return _bernoulli_tensor(out, self, generator)


def _normal_of(
    mean: torch.Tensor | float, std: torch.Tensor | float = 1.0, generator: Generator = None
) -> torch.Tensor:
    like = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
    if isinstance(std, torch.Tensor):
        _require(bool((std >= 0).all()), "normal expects all elements of std >= 0.0")
    else:
        _require(std >= 0.0, f"normal expects std >= 0.0, but found std {std}")
    shape = torch.broadcast_shapes(*(value.shape for value in like))  # type: ignore[no-untyped-call]
    out = torch.empty(shape, dtype=like[0].dtype)
    return _normal_(out, 0.0, 1.0, generator).mul_(std).add_(mean)


def _normal_of_out(
    mean: torch.Tensor | float,
    std: torch.Tensor | float = 1.0,
    generator: Generator = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    values = _normal_of(mean, std, generator)
    return out.resize_(values.shape).copy_(values)


def _randperm_out(n: int, *, generator: Generator = None, out: torch.Tensor) -> torch.Tensor:
    _require(n >= 0, f"n must be non-negative, got {n}")
    out.resize_(n)
    if n == 0:
        return out
    values = torch.empty(n, dtype=torch.int64)
    _core.fill_permutation(values.numpy(), _subkey(generator))
    return out.copy_(values)


def _erfinv_(self: torch.Tensor) -> torch.Tensor:
    """trunc_normal_ of torch 2.11 takes it of uniforms, where `_truncated` leaves it to torch."""
    values = self.detach().to(torch.float64).contiguous()
    if values is self or values.data_ptr() == self.data_ptr():
        values = values.clone()
    _core.fill_erfinv(values.numpy())
    return self.copy_(values)


def _standard_gamma(self: torch.Tensor, generator: Generator = None) -> torch.Tensor:
    shapes = _shapes("_standard_gamma", self)
    return _sampled(self.shape, self.dtype, generator, _core.fill_gamma, shapes)


def _sample_dirichlet(self: torch.Tensor, generator: Generator = None) -> torch.Tensor:
    shapes, columns = _shapes("_sample_dirichlet", self), self.shape[-1] if self.dim() else 1
    return _sampled(self.shape, self.dtype, generator, _core.fill_dirichlet, shapes, columns)


def _poisson(self: torch.Tensor, generator: Generator = None) -> torch.Tensor:
    rates = _parameters("poisson", self)
    return _sampled(self.shape, torch.float64, generator, _core.fill_poisson, rates).to(self.dtype)


def _binomial(count: torch.Tensor, prob: torch.Tensor, generator: Generator = None) -> torch.Tensor:
    trials, chances = torch.broadcast_tensors(count, prob)  # type: ignore[no-untyped-call]
    trials, chances = _parameters("binomial", trials), _parameters("binomial", chances)
    fill = _core.fill_binomial
    values = _sampled(trials.shape, torch.float64, generator, fill, trials, chances)
    return values.to(count.dtype)


def _multinomial(
    self: torch.Tensor, count: int, replacement: bool = False, generator: Generator = None
) -> torch.Tensor | None:
    if not replacement or count <= 1 or self.dim() not in (1, 2):
        return None  # torch's own, of exponential_, or its error
    weights = _parameters("multinomial", self)
    drawn = torch.empty((*self.shape[:-1], count), dtype=torch.int64)
    if drawn.numel():
        key = _subkey(generator)
        rows = zip(drawn.view(-1, count), weights.view(-1, self.shape[-1]), strict=True)
        for row, (out, of) in enumerate(rows):
            _fill_of(_core.fill_categories, out, key, row * count, of)
    return drawn


def _multinomial_out(
    self: torch.Tensor,
    count: int,
    replacement: bool = False,
    generator: Generator = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor | None:
    drawn = _multinomial(self, count, replacement, generator)
    return None if drawn is None else out.resize_(drawn.shape).copy_(drawn)


def _parameters(name: str, values: torch.Tensor) -> torch.Tensor:
    _require(
        values.is_floating_point(),
        f"{name}: expected floating-point numbers, got {values.dtype}",
    )
    return values.detach().to(torch.float64).contiguous()


def _shapes(name: str, values: torch.Tensor) -> torch.Tensor:
    _require(
        values.dtype in (torch.float32, torch.float64),
        f"{name}: expected float32 or float64, got {values.dtype}",
    )
    return _parameters(name, values)


def _sampled(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    generator: Generator,
    fill: Callable[..., None],
    *parameters: torch.Tensor | int,
) -> torch.Tensor:
    """Samples whose parameters are tensors, in row-major order."""
    values = torch.empty(shape, dtype=dtype)
    if values.numel():
        _fill_of(fill, values, _subkey(generator), 0, *parameters)
    return values


def _fill_of(
    fill: Callable[..., None],
    out: torch.Tensor,
    key: bytes,
    start: int,
    *parameters: torch.Tensor | int,
) -> None:
    """`fill`, which refuses wrong parameters, as torch does."""
    arrays = [value.numpy() if isinstance(value, torch.Tensor) else value for value in parameters]
    try:
        fill(out.numpy(), key, start, *arrays)
    except UsageError as error:
        raise RuntimeError(str(error)) from None


def _filled(
    shape: tuple[int, ...], key: bytes, fill: Callable[..., None], *parameters: Any
) -> torch.Tensor:
    values = torch.empty(shape, dtype=torch.float64)
    if values.numel():
        fill(values.numpy(), key, 0, *parameters)
    return values


_OPERATORS: dict[str, Callable[..., torch.Tensor | None]] = {
    "_sample_dirichlet": _sample_dirichlet,
    "_standard_gamma": _standard_gamma,
    "bernoulli_.Tensor": _bernoulli_tensor,
    "bernoulli_.float": _bernoulli_float,
    "bernoulli.out": _bernoulli_out,
    "binomial": _binomial,
    "cauchy_": _cauchy_,
    "erfinv_": _erfinv_,
    "exponential_": _exponential_,
    "geometric_": _geometric_,
    "log_normal_": _log_normal_,
    "multinomial": _multinomial,
    "multinomial.out": _multinomial_out,
    "normal_": _normal_,
    "normal.Tensor_Tensor": _normal_of,
    "normal.Tensor_Tensor_out": _normal_of_out,
    "normal.Tensor_float": _normal_of,
    "normal.Tensor_float_out": _normal_of_out,
    "normal.float_Tensor": _normal_of,
    "normal.float_Tensor_out": _normal_of_out,
    "poisson": _poisson,
    "randperm.generator_out": _randperm_out,
    "uniform_": _uniform_,
}
