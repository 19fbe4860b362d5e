"""What the operating system says about a disk, told in the reader's words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crossfade.errors import BadInput
from crossfade.files import replacing


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(tmp_path, number):
    target = tmp_path / "x.npy"
    with (
        pytest.raises(BadInput, match=r"x.npy: the disk is full, nothing was written → free some"),
        replacing(target) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(number, "as the kernel says it")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_met_by_a_library_that_gives_only_text(tmp_path):
    with (
        pytest.raises(BadInput, match="the disk is full"),
        replacing(tmp_path / "x.lance") as temporary,
    ):
        temporary.mkdir()
        (temporary / "data").write_text("half")
        raise OSError("LanceError(IO): No space left on device (os error 28)")
    assert list(tmp_path.iterdir()) == []


def test_a_real_full_device_is_named(tmp_path):
    with (
        pytest.raises(BadInput, match="the disk is full"),
        replacing(tmp_path / "x.npy"),
        Path("/dev/full").open("wb", buffering=0) as device,
    ):
        device.write(b"x")


def test_a_link_goes_on_pointing_where_it_did(tmp_path):
    (tmp_path / "real.npy").write_text("before")
    (tmp_path / "link.npy").symlink_to("real.npy")
    with replacing(tmp_path / "link.npy", overwrite=True) as temporary:
        temporary.write_text("after")
    assert (tmp_path / "link.npy").is_symlink()
    assert (tmp_path / "real.npy").read_text() == "after"


def test_a_folder_replaces_a_folder(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    with replacing(tmp_path / "x", overwrite=True) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [entry.name for entry in tmp_path.rglob("*")] == ["x", "new"]


def test_a_pipe_or_a_device_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="is no plain file"), replacing(pipe, overwrite=True):
        raise AssertionError("nothing is written")
    assert pipe.is_fifo()
