"""An emulated second device: tensors that torch holds to lie elsewhere, while their values are
computed on the processor.

The device is torch's own `privateuseone`, under the name `second`. A `Resident` is a tensor of that
device that wraps one of the processor; each operation on residents runs on what they wrap. So
results are the processor's bit for bit, while torch and this module see what a GPU would refuse or
pay for:

- an operation on tensors of two devices fails, as on cuda: single values and indices of the
  processor are let through;
- a value that is read back to the host counts as a read, by file and line of the package.

Kernels for recurrent layers, streams and pinned memory are beyond it.
"""

import collections
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import brinell

NAME = "second"
PACKAGE = str(Path(brinell.__file__).parent)
ATEN = torch.ops.aten
READS = {
    ATEN._local_scalar_dense.default,
    ATEN.nonzero.default,
    ATEN._unique2.default,
    ATEN.masked_select.default,
    ATEN.equal.default,
    ATEN.bincount.default,
    ATEN.unique_dim.default,
    ATEN.repeat_interleave.Tensor,
}
"""Operations whose result the host must know before it goes on."""
INDEXED = {
    ATEN.index.Tensor,
    ATEN.index_put.default,
    ATEN.index_put_.default,
    ATEN._index_put_impl_.default,
}
COPIES = {ATEN._to_copy.default, ATEN.copy_.default, ATEN._copy_from.default}
HOST_ENTRIES = ("empty_strided", "empty.memory_format", "copy_", "_copy_from", "_to_copy")
"""Operations by which torch makes tensors of the device from values of the host, beneath the
mode."""

reads: collections.Counter[str] = collections.Counter()
"""Reads by the host, by place."""


def place() -> str:
    """File and line of the package that called torch."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return f"{name[len(PACKAGE) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "outside the package"


class Resident(torch.Tensor):
    """A tensor of the second device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "Resident":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
            storage_size=values.untyped_storage().nbytes(),
        )

    def __init__(self, values: torch.Tensor) -> None:
        self.values_on_host = values

    def tolist(self) -> Any:
        reads[place()] += 1
        return self.values_on_host.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            reads[place()] += 1
            return self.values_on_host.detach().numpy()
        raise TypeError(
            f"can't convert a tensor of {NAME}:0 to numpy: copy it to the host first ({place()})"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Resident({self.values_on_host!r})"

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(operation, args, kwargs or {})


class Generator(torch.Generator):
    """A generator of the processor that draws for the second device where it was made for it."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        generator = super().__new__(cls, device="cpu" if is_second(device) else device)
        generator.draws_on_second = is_second(device)
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, 0) if self.draws_on_second else super().device


class Emulation(TorchDispatchMode):
    """Sees the operations that make tensors on the device, too."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(operation, args, kwargs or {})


def is_second(device: Any) -> bool:
    """True for the emulated device."""
    return device is not None and torch.device(device).type == NAME


def dispatch(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the processor; its tensors go to the device where its arguments lie
    there, or where it is told to.
    """
    tensors = [
        value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)
    ]
    residents = [tensor for tensor in tensors if isinstance(tensor, Resident)]
    host_args, host_kwargs = tree_map(
        lambda value: value.values_on_host if isinstance(value, Resident) else value, (args, kwargs)
    )
    if residents and torch._C._dispatch_has_kernel_for_dispatch_key(
        operation.name(), "CompositeImplicitAutograd"
    ):
        return operation.decompose(*args, **kwargs)
    goes = is_second(kwargs.get("device"))
    if goes:
        host_kwargs["device"] = torch.device("cpu")
    if operation in COPIES:
        stays = kwargs.get("device") is None and isinstance(args[0], Resident)
        if residents and not (goes or stays):
            reads[place()] += 1
        result = operation(*host_args, **host_kwargs)
        if operation is not ATEN._to_copy.default:
            return args[1] if operation is ATEN._copy_from.default else args[0]
        return Resident(result) if goes or stays else result
    if not residents and not goes:
        return operation(*args, **kwargs)
    if any(
        isinstance(value, torch.Generator) and not getattr(value, "draws_on_second", False)
        for value in kwargs.values()
    ):
        raise RuntimeError(
            f"{operation} on the device with a generator of the processor, at {place()}"
        )
    strangers = [
        tuple(tensor.shape)
        for tensor in tensors
        if not isinstance(tensor, Resident) and tensor.ndim
    ]
    if strangers and operation not in INDEXED:
        raise RuntimeError(
            f"{operation} on tensors of two devices, those of the processor of "
            f"shape {strangers}, at {place()}"
        )
    if operation in INDEXED and not isinstance(args[0], Resident):
        raise RuntimeError(
            f"{operation}: a tensor of the processor is indexed by or set from "
            f"one of the device, at {place()}"
        )
    masks = operation in INDEXED and any(
        index is not None and index.dtype == torch.bool for index in args[1]
    )
    if masks or operation in READS:
        reads[place()] += 1
    result = operation(*host_args, **host_kwargs)
    for resident in residents:
        if resident.shape != resident.values_on_host.shape:  # changed in place, as by squeeze_
            with torch._C._DisableTorchDispatch():
                resident.data = Resident(resident.values_on_host)
    owners = {id(resident.values_on_host): resident for resident in residents}

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        owner = owners.get(id(value))
        return Resident(value) if owner is None else owner

    return tree_map(move, result)


class Backend(backend_registration._DummyBackendModule):
    """What torch asks of the device as a module."""

    active = False

    def is_available(self) -> bool:
        """Only within `second_device`: data parallelism elsewhere takes no notice of it."""
        return Backend.active

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Nothing: generators of the device are made for it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


@functools.cache
def _register() -> tuple[Any, Any]:
    """Tell torch of the device, once in a process.

    The first backward pass of a process starts a thread for each device. One without the device
    comes before, since a process with such threads cannot fork; on the device, passes run in the
    thread that asks for them.
    """
    torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    # Without methods such as `Tensor.second`, which torch would make: modules of other tests have
    # attributes of that name.
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, Backend())
    torch._C._acc.register_python_privateuseone_hook(backend_registration._DummyPrivateUse1Hook())
    torch._C._acc.register_python_privateuseone_device_guard(
        backend_registration._DummyDeviceGuard()
    )
    everything, host = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")

    def fall_back(operation: Any, *args: Any, **kwargs: Any) -> Any:
        return dispatch(operation, args, kwargs)

    def entry(operation: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: dispatch(operation, args, kwargs)

    everything.fallback(fall_back, "PrivateUse1")
    for name in HOST_ENTRIES:
        packet, _, overload = name.partition(".")
        host.impl(name, entry(getattr(getattr(ATEN, packet), overload or "default")), "PrivateUse1")
    return everything, host


def in_one_thread(inference_mode: Any) -> Any:
    """The context of torch, which would let passes run in threads again."""

    @contextmanager
    def context(mode: bool = True) -> Iterator[None]:
        with inference_mode(mode), torch.autograd.set_multithreading_enabled(False):
            yield

    return context


@contextmanager
def second_device() -> Iterator[collections.Counter[str]]:
    """The device while the context lasts: `--device second` names it. Gives the reads, by place."""
    _register()
    reads.clear()
    with (
        pytest.MonkeyPatch.context() as patch,
        torch.autograd.set_multithreading_enabled(False),
        Emulation(),
    ):
        patch.setattr("brinell.engine.request.DEVICES", ("auto", "cpu", NAME))
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(Backend, "active", True)
        patch.setattr(torch, "inference_mode", in_one_thread(torch.inference_mode))
        yield reads
