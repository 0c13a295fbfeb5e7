# SPDX-License-Identifier: Apache-2.0
"""What happens in Python around the operators of a `deterministic` block.

- Optimizers raise numbers to powers (`0.999 ** step`), which Python leaves to the platform's libm:
  inside blocks such numbers are `Number`, whose powers are potl's. The cosine of learning rate
  schedules is potl's too. Adafactor is written again.
- Optimizers and averages of weights that were not told to take their `foreach` form take the plain
  one on every device: some of them write the two as different operations.
- Data loaders run outside the block.
- Threads that are started inside do not compute as stock silently: what is not exact is refused.
- Compiled callables run as eager code.
- Options of `linear_cross_entropy` are refused: with them its sums depend on device and version.
- TorchScript is refused: its later calls have other derivatives, of other operators, than its first
  one in a process.
- CUDA graphs are refused: operators that one repeats are not looked up again, and numbers that it
  drew would be drawn again.
- Einstein sums of three and more operands are contracted from left to right, whether there is a
  package for the order or not.
- Attention is composed on a GPU as it is on the CPU, and so are interpolations and borders if
  torch is to use deterministic algorithms: of a GPU it would make them of other operators.
- A backward pass runs on the side of the block where its graph was computed.

All but the last are attributes of torch's modules that are replaced while any thread is in a block
and put back after the last one; every replacement does what it stands for in threads that are not.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.utils.data import dataloader

from .._base._errors import NotReproducible
from ._adafactor import adafactor
from ._exact_number import Number
from ._library import module

# Modules that read an optimizer's step count by this name.
_OPTIMIZERS = ("adagrad", "adam", "adamax", "asgd", "nadam", "radam")


def _is_on() -> bool:
    return bool(module().is_on())


class Patches:
    """A context manager: the replacements are in place while at least one `with` is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        # A block for every step enters thousands of times: what was made is used again.
        self._made: dict[tuple[int, str], tuple[Any, Any]] = {}

    def __enter__(self) -> None:
        with self._lock:
            self._open += 1
            if self._open > 1:
                return
            _watch_backward()
            self._optimizers()
            self.put(lr_scheduler, "math", _Math)
            self.put(dataloader.DataLoader, "__iter__", _outside)
            self.put(dataloader._BaseDataLoaderIter, "__next__", _outside)
            self.put(torch.backends, "opt_einsum", _LeftToRight)
            self.put(torch.nn.functional, "scaled_dot_product_attention", _attention)
            options = getattr(torch.nn, "LinearCrossEntropyOptions", None)  # not in torch 2.11
            if hasattr(options, "_adjust"):
                self.put(options, "_adjust", _refuse_chunks)
            self.put(torch, "are_deterministic_algorithms_enabled", _outside_alone)
            self.put(threading.Thread, "start", _start)
            self.put(_thread, "start_new_thread", _start_function)
            self.put(concurrent.futures.ThreadPoolExecutor, "submit", _submit)
            self.put(torch, "compile", _compile)
            self.put(torch.cuda.CUDAGraph, "capture_begin", _refuse_graph)
            self.put(torch.cuda.CUDAGraph, "replay", _refuse_graph)
            self.put(torch._C.ScriptFunction, "__call__", _refuse_script)
            self.put(torch._C.ScriptMethod, "__call__", _refuse_script)
            self.compiled()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open:
                return
            for owner, name, before, ours in reversed(self._replaced):
                # Somebody else's replacement, made meanwhile, calls ours, which does nothing now.
                if owner.__dict__[name] is ours:
                    setattr(owner, name, before)
            self._replaced.clear()

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces an attribute by make(attribute)."""
        before = owner.__dict__[name]
        made = self._made.get((id(owner), name))
        if made is None or made[0] is not before:
            made = before, make(before)
            self._made[id(owner), name] = made
        ours = made[1]
        setattr(owner, name, ours)
        self._replaced.append((owner, name, before, ours))

    def compiled(self) -> None:
        """Compiled callables exist when the compiler is imported."""
        frame: Any = sys.modules.get("torch._dynamo.eval_frame")
        name = "_callback_from_stance"
        if frame is None or any(row[0] is frame for row in self._replaced):
            return
        if not hasattr(frame, name):
            raise NotReproducible(
                f"torch {torch.__version__} has another compiler than potl knows",
                "do not import torch.compile's modules in this process",
            )
        self.put(frame, name, _eager)
        counter = "set_fullgraph_compiled_frame_count"
        if hasattr(frame, counter):
            self.put(frame, counter, _uncounted)

    def _optimizers(self) -> None:
        for name in _OPTIMIZERS:
            self.put(sys.modules[f"torch.optim.{name}"], "_get_value", _number)
        for name in ("optimizer", "swa_utils"):
            chooser = sys.modules[f"torch.optim.{name}"]
            self.put(chooser, "_get_foreach_kernels_supported_devices", _no_devices)
        self.put(sys.modules["torch.optim._adafactor"], "adafactor", adafactor)
        self.put(torch.optim.SparseAdam, "step", _refuse_sparse)


patches = Patches()


class _Math:
    """The module `math` as learning rate schedules use it, with potl's cosine inside blocks."""

    def __init__(self, math: Any) -> None:
        self._math = math

    def __getattr__(self, name: str) -> Any:
        return getattr(self._math, name)

    def cos(self, x: float) -> float:
        return float(module().exact_cos(x) if _is_on() else self._math.cos(x))


class _LeftToRight:
    """torch's settings for Einstein sums: no package chooses the order inside blocks."""

    def __init__(self, settings: Any) -> None:
        object.__setattr__(self, "_settings", settings)

    def __getattr__(self, name: str) -> Any:
        if name == "enabled" and _is_on():
            return False
        return getattr(self._settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._settings, name, value)


def _attention(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Which composition torch chooses depends on the device and the version, and with it the bits:
    operands of three dimensions are fused from torch 2.14 on.
    """

    @functools.wraps(stock)
    def composed(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        device = query.device.type
        options = {"scale": scale, "enable_gqa": enable_gqa}
        is_fused = query.dim() != 3
        if not _is_on() or (is_fused if device == "cpu" else not module().knows_device(device)):
            return stock(
                query,
                key,
                value,
                attn_mask=attn_mask,
                dropout_p=dropout_p,
                is_causal=is_causal,
                **options,
            )
        operators: Any = torch.ops.aten
        if is_fused:
            # Tensors of the CPU of these shapes, which nobody fills.
            alike = [
                torch.empty_strided(
                    x.size(),
                    x.stride(),
                    dtype=x.dtype,
                    device="cpu",
                    requires_grad=x.requires_grad,
                )
                for x in (query, key, value)
            ]
            mask = None if attn_mask is None else torch.empty_like(attn_mask, device="cpu")
            choice = operators._fused_sdp_choice(*alike, mask, dropout_p, is_causal, **options)
            is_fused = choice == 1
        if is_fused:
            if attn_mask is not None and attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(
                    attn_mask.logical_not(), float("-inf")
                )
            return operators._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
            )[0]
        return operators._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, **options
        )[0]

    return composed


def _outside_alone(is_enabled: Callable[[], bool]) -> Callable[[], bool]:
    @functools.wraps(is_enabled)
    def enabled() -> bool:
        return not _is_on() and is_enabled()

    return enabled


def _number(get_value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        value = get_value(x)
        return Number(value) if isinstance(value, (int, float)) and _is_on() else value

    return exact


def _no_devices(supported: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Devices on which torch takes `foreach` forms unasked."""

    @functools.wraps(supported)
    def unasked() -> list[str]:
        return [] if _is_on() else supported()

    return unasked


def _refuse_sparse(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _is_on() and not module().lets_through():
            raise NotReproducible(
                "torch.optim.SparseAdam raises numbers to powers with the platform's libm",
                "use another optimizer of torch.optim, and dense gradients",
            )
        return step(*args, **kwargs)

    return refuse


def _refuse_chunks(adjust: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(adjust)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _is_on() and not module().lets_through():
            raise NotReproducible(
                "linear_cross_entropy with options adds up in parts that depend on the device and "
                "on the version of torch",
                "call linear_cross_entropy without options",
            )
        return adjust(*args, **kwargs)

    return refuse


def _refuse_graph(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _is_on():
            raise NotReproducible(
                "a CUDA graph repeats what was captured, whatever the arithmetic is now",
                "train without torch.cuda.graph and make_graphed_callables, or in stock arithmetic",
            )
        return method(*args, **kwargs)

    return refuse


def _refuse_script(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def refuse(script: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_on() and not module().lets_through():
            raise NotReproducible(
                f"TorchScript computes {script.name} by other operators once it was called",
                "call the Python function or module itself, without torch.jit.script and "
                "torch.jit.trace",
            )
        return call(script, *args, **kwargs)

    return refuse


def _outside(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(_within("StockBlock", function))


def _foreign(function: Callable[..., Any]) -> Callable[..., Any]:
    return _within("ForeignBlock", function)


def _within(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        block = getattr(module(), kind)()
        try:
            return function(*args, **kwargs)
        finally:
            block.leave()

    return run


def _start(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def started(thread: threading.Thread) -> None:
        if _is_on():
            thread.run = _foreign(thread.run)  # type: ignore[method-assign]
        start(thread)

    return started


def _start_function(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def started(function: Callable[..., Any], *arguments: Any) -> Any:
        return start(_foreign(function) if _is_on() else function, *arguments)

    return started


def _submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(submit)
    def submitted(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if not _is_on():
            return submit(self, function, *args, **kwargs)
        # The pool's threads outlive the block: this one call is on guard, not they.
        return _outside(submit)(self, _foreign(function), *args, **kwargs)

    return submitted


def _compile(compiler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compiler)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        made = compiler(*args, **kwargs)
        patches.compiled()
        return made

    return compiled


def _eager(callback_from_stance: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(callback_from_stance)
    def chosen(callback: Any) -> Any:
        if not _is_on():
            return callback_from_stance(callback)
        if callback not in (None, False):
            _tell_eager()
        return None

    return chosen


# Once in a process: torch changes the filters of warnings in each step, and Python then forgets
# which ones it has shown.
@functools.cache
def _tell_eager() -> None:
    warnings.warn(
        "a compiled callable runs as eager code inside potl.deterministic: what a compiler makes "
        "of it depends on the machine",
        RuntimeWarning,
        stacklevel=4,
    )


def _uncounted(set_count: Callable[[int], int]) -> Callable[[int], int]:
    """With fullgraph=True the compiler counts what it has compiled, and nothing is an error."""

    def left_alone(count: int) -> int:
        return 0 if _is_on() else set_count(count)

    return left_alone


def _numbers(nodes: list[Any]) -> list[int]:
    """The numbers that torch gave to the nodes below these; leaves have none."""
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [below for below, _ in node.next_functions]
    numbers = (node._sequence_nr() for node in seen)
    return [number for number in numbers if number < 1 << 63]


@functools.cache
def _watch_backward() -> None:
    """For good: a graph can outlive all blocks."""
    engine: Any = torch.autograd
    run = engine._engine_run_backward

    @functools.wraps(run)
    def watched(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        tensors = [one for one in outputs if isinstance(one, torch.Tensor)]
        edges = [one.node for one in outputs if not isinstance(one, torch.Tensor)]
        inside, outside = module().places_of(tensors, _numbers(edges) if edges else [])
        on = _is_on()
        if inside and not on:
            raise NotReproducible(
                "this backward pass runs outside the block that its graph was computed in",
                "call backward() before the block ends; detach() what leaves it",
            )
        if outside and on:
            raise NotReproducible(
                "this backward pass runs over a graph that was computed outside the block",
                "compute the forward pass inside the block too, or detach() what comes in",
            )
        return run(outputs, *args, **kwargs)

    engine._engine_run_backward = watched
