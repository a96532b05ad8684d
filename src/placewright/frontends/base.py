"""What every model frontend is: one class that turns a file or a live model into an :class:`OpGraph`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from placewright.errors import InputError
from placewright.extras import require
from placewright.frontends.training import mirror_training
from placewright.graph import OpGraph
from placewright.text import shown

Shapes = Mapping[str, tuple[int, ...]]
_LONG = 1000  # characters of a message that nobody reads


class Frontend(ABC):
    """Reads models of one framework. It never runs a model nor executes code found in a file.

    A subclass sets ``name``, ``suffixes``, ``requires`` and ``extra`` and writes :meth:`read` and :meth:`accepts`;
    third parties register it by the entry point group ``placewright.frontends`` and hold it to
    ``placewright.testing.FrontendContract``.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()  # packages, and the extra that installs them
    extra: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def accepts(cls, source: Any) -> bool:
        """True if ``source`` is a live model of this framework. Must not import the framework."""

    @abstractmethod
    def read(self, source: Any, shapes: Shapes) -> OpGraph:
        """Read a file (a ``Path``) or a live model; ``shapes`` fixes the shapes of inputs by name.

        Raises :class:`InputError` with one line for anything that is wrong with the file or the shapes.
        """

    def read_training(self, source: Any, shapes: Shapes, optimizer: str) -> OpGraph:
        """Read the graph of one training step: backward ops share the colocation class of their forward op.

        Unless the framework has such a graph of its own, the inference graph is mirrored.
        """
        return mirror_training(self.read(source, shapes), optimizer)

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingExtraError` if a package is missing."""
        for package in cls.requires:
            require(package, cls.extra)


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Parse ``NAME=D1,D2,…`` as given on the command line.

    >>> parse_shapes(["input_ids=1,128", "scale="])
    {'input_ids': (1, 128), 'scale': ()}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, dimensions = text.rpartition("=")
        try:
            shape = tuple(int(d) for d in dimensions.split(",")) if dimensions.strip() else ()
        except ValueError:
            shape = (-1,)
        if not equals or not name or any(not 0 <= d < 2**31 for d in shape):
            raise InputError(f"--shape '{shown(text)}': expected NAME=D1,D2,…, for example 'input_ids=1,128'")
        if name in shapes:
            raise InputError(f"--shape: input '{shown(name)}' is given twice")
        shapes[name] = shape
    return shapes


def check_shape_names(shapes: Shapes, inputs: list[str], where: str) -> None:
    """Refuse shapes for inputs that the model does not have."""
    for name in shapes:
        if name not in inputs:
            known = ", ".join(f"'{shown(n)}'" for n in inputs[:8]) or "none"
            raise InputError(f"{where}: --shape names input '{shown(name)}', but the model's inputs are: {known}")


def dynamic_shape_error(where: str, name: str, dimensions: list[int | None]) -> InputError:
    """The error for an input of unknown size: says what to pass, with likely sizes filled in.

    >>> print(dynamic_shape_error("m.onnx", "ids", [None, 128]))
    m.onnx: input 'ids' has no fixed shape (?,128); pass it, for example --shape 'ids=1,128'
    """
    pattern = ",".join("?" if d is None else str(d) for d in dimensions)
    example = ",".join(str(_likely(i, d)) for i, d in enumerate(dimensions))
    return InputError(
        f"{where}: input '{shown(name)}' has no fixed shape ({pattern}); pass it, for example "
        f"--shape '{shown(name)}={example}'"
    )


def _likely(position: int, dimension: int | None) -> int:
    if dimension is not None:
        return dimension
    return 1 if position == 0 else 128 if position == 1 else 224


def described(source: Any) -> str:
    """A file's name, or the type of a live model, for messages."""
    if isinstance(source, (str, Path)):
        return shown(str(source), 200)
    if isinstance(source, tuple) and source:
        source = source[0]
    return f"{type(source).__module__}.{type(source).__qualname__}"


def model_name(source: Any, default: str) -> str:
    """The name of a graph: the file's stem, or what the model calls itself."""
    return Path(source).stem if isinstance(source, (str, Path)) else default


def check_file(path: Path) -> None:
    """Refuse what is not a readable regular file, in the words of the other readers."""
    where = shown(str(path), 200)
    try:
        if path.is_dir():
            raise InputError(f"{where}: is a directory, expected a file")
        if path.exists() and not path.is_file():
            raise InputError(f"{where}: is not a regular file")
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: cannot be read: {shown(reason)}") from error


# What libraries put before, between and after what they have to say.
_NOISE = re.compile(
    r"^(Exception from \S+:\d+:?|Check '.*' failed at \S+:\d+:?|\[ONNXRuntimeError\] : \d+ : \w+ :|"
    r"(Fatal|Load model|Exception during initialization|FAIL)[^:]*: (?=\S))\s*"
)
_EMPTY = ("Summary:", "Loading input model", "FrontEnd API failed with OpConversionFailure:")


def one_line(error: BaseException, limit: int = 160) -> str:
    """What a library's error says, as one line: its last line that tells something, without places in its sources.

    Of an error that wraps others, such as a page that quotes a whole graph, the innermost speaks.

    >>> one_line(RuntimeError("Exception from core.cpp:84:\\nCheck 'false' failed at f.cpp:47:\\nUnsupported type\\n"))
    'Unsupported type'
    """
    while len(str(error)) > _LONG and error.__cause__ is not None:
        error = error.__cause__
    lines = []
    for line in str(error).splitlines():
        text = line.strip()
        while (told := _NOISE.sub("", text, count=1)) != text:
            text = told
        if text.strip(" -") and text not in _EMPTY:
            lines.append(text.removeprefix("-- "))
    what = lines[-1] if lines else str(error).strip() or type(error).__name__
    if isinstance(error, (KeyError, IndexError, AttributeError, TypeError)):  # says little without its kind
        what = f"{type(error).__name__} {what}"
    return shown(what, limit)
