"""The command line as someone who may not write wherever he likes: root may, with this power."""

from __future__ import annotations

import ctypes

from crossfade.__main__ import main

_VERSION, _OVERRIDE = 0x20080522, 0b110  # Of Linux's capabilities; to write, and to read.


def give_up_power() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    # Effective, permitted and inheritable, of 64 bits each.
    powers = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, powers) == 0
    for place in range(3):
        powers[place] &= ~_OVERRIDE
    assert libc.capset(header, powers) == 0


if __name__ == "__main__":
    give_up_power()
    main()
