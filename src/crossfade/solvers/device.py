"""Where to compute, and how to make it repeatable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from crossfade.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    import torch


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; anything else is taken at its word.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(
            f"device={name!r} is not known", step="use auto, cpu, cuda or cuda:N"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"device={name!r}, but torch sees no CUDA device", step="use device cpu")
    return device


def name_device(name: str) -> str:
    """The device that `auto` stands for; without torch that is the CPU, which needs none.

    >>> name_device("cpu")
    'cpu'
    """
    if name == "cpu":
        return name
    if find_spec("torch") is None:
        if name == "auto":
            return "cpu"
        raise MissingExtra("torch", extra="train", need=f"the device {name!r}")
    return str(pick_device(name))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's random numbers start at `seed` inside, and are as they were outside."""
    import torch

    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
