"""A model as parts that run one after another, and as the stages of a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from placewright.execute.pipeline import Stage

Bag = dict["Source", Any]  # what of a sample is still needed


class Source(NamedTuple):
    """Where a value comes from: input ``number`` of the model, or output ``number`` of a part."""

    part: int  # -1: the model's own input
    number: int


class Part(NamedTuple):
    """A piece of a model on one device: ``make()`` compiles it and returns what turns inputs into outputs."""

    device: str
    make: Callable[[], Callable[[list[Any]], list[Any]]]
    sources: tuple[Source, ...]
    op_names: tuple[str, ...] = ()  # of what it holds, where known


class StagedModel(NamedTuple):
    """Parts in the order of the pipeline, and where the results come out."""

    parts: tuple[Part, ...]
    results: tuple[Source, ...]

    def compiled(self) -> StagedModel:
        """The same model with every part compiled now, in this process, however often it is run."""
        return self._replace(parts=tuple(p._replace(make=functools.partial(_itself, p.make())) for p in self.parts))

    def stages(self) -> list[Stage]:
        """Workers for :func:`run_pipeline`; feed them with :meth:`bag`, read what comes out with :meth:`outputs`."""
        needed: set[Source] = set(self.results)
        stages: list[Stage] = []
        for p in range(len(self.parts) - 1, -1, -1):
            make = functools.partial(_worker, self.parts[p], p, frozenset(needed))
            stages.append(Stage(f"stage {p} on {self.parts[p].device}", make))
            needed |= set(self.parts[p].sources)
        return stages[::-1]

    @staticmethod
    def bag(inputs: Sequence[Any]) -> Bag:
        """One sample as the first stage takes it."""
        return {Source(-1, i): value for i, value in enumerate(inputs)}

    def outputs(self, bag: Bag) -> list[Any]:
        """The model's results."""
        return [bag[source] for source in self.results]


def find_segments(ops: Iterable[tuple[str, Iterable[str], Iterable[str]]], placed: Mapping[str, str]) -> dict[str, int]:
    """Number the segments of ops given in a possible order as (name, producers, readers); numbers are one, too.

    An op joins the segment of its producers if all of them are in one segment on its device and nothing in that
    segment is read on another device: so no other device ever waits for work that it does not need. Producers and
    readers that are no ops of the sequence or not placed do not count.
    """
    segment_of: dict[str, int] = {}
    is_read_elsewhere: list[bool] = []
    devices: list[str] = []
    for name, producers, readers in ops:
        homes = {segment_of[p] for p in producers if p in segment_of}
        home = next(iter(homes)) if len(homes) == 1 else -1
        if home < 0 or devices[home] != placed[name] or is_read_elsewhere[home]:
            home = len(devices)
            devices.append(placed[name])
            is_read_elsewhere.append(False)
        segment_of[name] = home
        is_read_elsewhere[home] |= any(placed[r] != placed[name] for r in readers if r in placed)
    return segment_of


def _itself(run: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    return run


def _worker(part: Part, number: int, needed: frozenset[Source]) -> Callable[[Bag], Bag]:
    run = part.make()

    def work(bag: Bag) -> Bag:
        made = run([bag[source] for source in part.sources])
        kept = {source: value for source, value in bag.items() if source in needed}
        kept.update((Source(number, i), v) for i, v in enumerate(made) if Source(number, i) in needed)
        return kept

    return work
