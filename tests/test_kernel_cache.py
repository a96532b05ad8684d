"""Kernels find a folder to be kept in, or are not kept, but never fail for want of one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from placewright import kernel_cache

KERNEL = """
import placewright, os
from numba import njit

@njit(cache=True)
def double(x):
    return 2 * x

print(double(21))
"""


@pytest.fixture
def read_only_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(kernel_cache.__file__).parent
    monkeypatch.setattr(kernel_cache, "_can_write", lambda folder: folder != package and os.access(folder, os.W_OK))
    monkeypatch.setenv(kernel_cache.VARIABLE, "")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")


def chosen(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kernel_cache.sys, "modules", {})  # the compiler is not imported yet
    kernel_cache.choose_folder()
    return os.environ[kernel_cache.VARIABLE]


@pytest.mark.usefixtures("read_only_package")
def test_the_users_cache_is_used_where_the_package_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert chosen(monkeypatch) == str(tmp_path / "placewright" / "kernels")


@pytest.mark.usefixtures("read_only_package")
def test_without_a_home_a_temporary_folder_of_ones_own_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(chosen(monkeypatch))
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setenv(kernel_cache.VARIABLE, "")
    assert chosen(monkeypatch) == str(folder)  # the next process finds what this one compiled


@pytest.mark.usefixtures("read_only_package")
def test_a_folder_that_others_can_write_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    laid_out = tmp_path / f"placewright-kernels-{os.getuid()}"
    laid_out.mkdir()
    laid_out.chmod(0o777)
    assert Path(chosen(monkeypatch)) != laid_out


def test_where_nothing_can_be_written_kernels_still_run(tmp_path: Path) -> None:
    code = "from placewright import kernel_cache\nkernel_cache._keep_nothing()\n" + KERNEL
    script = tmp_path / "kernel.py"
    script.write_text(code)
    nowhere = {**os.environ, kernel_cache.VARIABLE: "/dev/null/nowhere", "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, script], env=nowhere, capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr
