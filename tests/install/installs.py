"""Installs of the wheel as users have them: an environment for each set of extras, and one that nobody may write to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
CONSTRAINTS = ROOT / "constraints.txt"
WITH_TORCH = {"torch", "hf", "learn", "all"}
NOBODY = 65534

# All file systems but the working folder are read-only, and the user owns nothing. The one right that is left is to
# read what only root may, since the interpreter may lie in root's home.
_READ_ONLY = """
mount --bind "$1" "$1"
for point in / /tmp /var/tmp /run /home; do
    if mountpoint -q "$point"; then mount -o remount,bind,ro "$point"; fi
done
cd "$PWD"  # into the new mount
shift
exec setpriv --reuid={uid} --regid={uid} --clear-groups --inh-caps=-all,+dac_read_search \\
    --ambient-caps=-all,+dac_read_search -- "$@"
"""


def build_wheel() -> Path:
    """Build the source package, and the wheel from it; a deprecation is an error, and so is a stray file."""
    out = BUILD / "dist"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode or "eprecat" in said.stderr + said.stdout:
        raise SystemExit(f"building the wheel:\n{said.stdout}\n{said.stderr}")
    wheel = built_wheel()
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    if len(folders) != 2 or "placewright" not in folders:
        raise SystemExit(f"the wheel holds more than the package: {', '.join(sorted(folders))}")
    cores = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("placewright/_core.")]
    is_stable, says_stable = any(".abi3." in name for name in cores), "-abi3-" in wheel.name
    if len(cores) != 1 or is_stable != says_stable or is_stable != (sys.version_info >= (3, 12)):
        found = ", ".join(cores) or "no core"
        raise SystemExit(f"{wheel.name} holds {found}; from Python 3.12 on it is one for the stable ABI")
    return wheel


def built_wheel() -> Path:
    """The wheel that :func:`build_wheel` made last."""
    wheels = list((BUILD / "dist").glob("*.whl"))
    if len(wheels) != 1:
        raise SystemExit("there is no wheel yet: python tests/install/flavours.py --wheel")
    return wheels[0]


def fingerprint(wheel: Path, *names_end: str) -> str:
    """What the wheel contains, whenever it was built; only the files whose names end so, if any are given."""
    archive = zipfile.ZipFile(wheel)
    parts = [f"{i.filename} {i.CRC}" for i in archive.infolist() if not names_end or i.filename.endswith(names_end)]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]


class Install:
    """An environment that holds the wheel with some extras, and what they bring: nothing else."""

    def __init__(self, extras: str, python: str) -> None:
        self.extras = extras
        self.version = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        self.folder = BUILD / "installs" / f"{extras.replace(',', '-') or 'plain'}-{self.version}"
        self.python = str(self.folder / "bin" / "python")
        self._base = python

    def make(self, wheel: Path) -> None:
        """Install, or bring up to date: all anew if what is required changed, else only the package itself."""
        required = fingerprint(wheel, "/METADATA") + hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()[:16]
        stamp = self.folder / "installed"
        wanted = f"{required} {fingerprint(wheel)}"
        have = stamp.read_text() if stamp.exists() else ""
        if have == wanted:
            return
        if not have.startswith(required):
            self.remove()
            subprocess.run([self._base, "-m", "venv", str(self.folder)], check=True)
            if WITH_TORCH.intersection(
                self.extras.split(",")
            ):  # first, with its version: where the index has a build without CUDA
                self._pip("-c", str(CONSTRAINTS), f"torch=={_pinned('torch')}")
            self._pip("-c", str(CONSTRAINTS), f"{wheel}[{self.extras}]" if self.extras else str(wheel))
        else:
            stamp.unlink()
            self._pip("--no-deps", "--force-reinstall", str(wheel))
        subprocess.run([self.python, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
        stamp.write_text(wanted)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pip(self, *arguments: str) -> None:
        command = [self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode:
            raise SystemExit(f"{' '.join(command)}:\n{said.stdout}\n{said.stderr}")


def _pinned(package: str) -> str:
    lines = CONSTRAINTS.read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))


@contextlib.contextmanager
def nothing_to_write(install: Install, work: Path) -> Iterator[list[str]]:
    """Yield what to put before a command so that it may write to ``work`` alone, as a user without a home.

    By root: on read-only file systems, as another user. By anybody else: the install's own files lose their write bits.
    """
    if os.getuid() == 0:
        for path in [work, *work.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        script = "set -e\n" + _READ_ONLY.format(uid=NOBODY)
        yield ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", str(work)]
        return
    paths = [install.folder, *install.folder.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield []
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
