"""Words that the shell may complete: placers, clusters, zoo models, formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def completer(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion of ``words``, which are asked for only when somebody presses the key."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return complete


def placers() -> list[str]:
    """All placers."""
    from placewright.placers.registry import placer_names

    return placer_names()


def clusters() -> list[str]:
    """Presets and this machine's cores; files are completed by the shell."""
    from placewright.cluster_file import preset_names

    return [*preset_names(), "cores:1", "cores:2", "cores:f32+bf16"]


def models() -> list[str]:
    """Zoo models; files are completed by the shell."""
    from placewright.zoo import MODELS

    return [f"zoo:{name}" for name in MODELS]


def formats() -> list[str]:
    """Formats of exports."""
    from placewright.export import FORMATS

    return list(FORMATS)


def objectives() -> list[str]:
    """Objectives."""
    from placewright.problems import OBJECTIVES

    return list(OBJECTIVES)


def executions() -> list[str]:
    """Execution models."""
    from placewright.problems import EXECUTIONS

    return list(EXECUTIONS)


def runtimes() -> list[str]:
    """Runtimes."""
    from placewright.execute.live import RUNTIMES

    return list(RUNTIMES)
