"""Where compiled kernels are kept: in a folder that can be written, so that a read-only installation works."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def choose_folder() -> None:
    """Tell the compiler, before it is imported, where it may write; it fails where it finds no place.

    The folder that the user names comes first, then the package's own, the user's cache and one for temporary files.
    Where not even that can be written nothing is kept, and every process compiles anew.
    """
    if os.environ.get(VARIABLE) or os.environ.get("NUMBA_DISABLE_JIT") == "1" or _can_write(Path(__file__).parent):
        return
    folder = _first_that_can_be_written()
    if folder is None:
        _keep_nothing()
        return
    os.environ[VARIABLE] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _first_that_can_be_written() -> Path | None:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placewright" / "kernels"
        cache.mkdir(parents=True, exist_ok=True)
        if _can_write(cache):
            return cache
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        pass
    try:
        return _own_temporary_folder()
    except OSError:
        return None


def _own_temporary_folder() -> Path:
    """One folder per user, so that kernels are compiled once; never one that somebody else could have filled."""
    if not hasattr(os, "getuid"):
        return Path(tempfile.mkdtemp(prefix="placewright-kernels-"))
    folder = Path(tempfile.gettempdir()) / f"placewright-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours and _can_write(folder) else Path(tempfile.mkdtemp(prefix="placewright-kernels-"))


def _keep_nothing() -> None:
    from numba.core.dispatcher import Dispatcher

    Dispatcher.enable_caching = lambda self: None  # type: ignore[method-assign]
