"""Files that a user names: pipes and devices are refused at once, whatever they would have given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dkge_dist.files import open_regular, read_regular


def test_regular_files_and_links_to_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert read_regular(tmp_path / name) == read_regular(tmp_path / name, 7) == b"content"
    with pytest.raises(OSError, match="has 7 bytes, more than 6"):
        read_regular(tmp_path / "file", 6)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_regular(tmp_path / "link", follow_links=False)


def test_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for."""
    os.mkfifo(tmp_path / "pipe")
    open_files = len(os.listdir("/proc/self/fd"))
    for path, problem in (
        (tmp_path / "pipe", "a pipe cannot be read"),
        (Path("/dev/zero"), "a device cannot be read"),
        (tmp_path, "Is a directory"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(OSError, match=f"{problem}.*{path}"):
            open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == open_files
