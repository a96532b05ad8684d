"""A model as parts that run one after another, and as the stages of a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from placewright.execute.dataflow import order_by_start
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
    """Number the segments of ops given in the order in which they are to run, as (name, producers, readers).

    A segment is a run of one device's ops that takes in all that comes from elsewhere at its beginning and gives away
    what others read at its end: so no device ever waits for work that it does not need, whatever else is in between.
    Numbers are an order in which segments can run. Producers and readers that are not placed do not count.
    """
    segment_of: dict[str, int] = {}
    n_segments = 0
    is_open: dict[str, bool] = {}
    current: dict[str, int] = {}
    received: dict[str, set[str]] = {}  # by device: what came from elsewhere, by its producer
    for name, producers, readers in ops:
        device = placed[name]
        foreign = {p for p in producers if p in segment_of and placed[p] != device}
        here = received.setdefault(device, set())
        if not is_open.get(device, False) or not foreign <= here:
            current[device] = n_segments
            n_segments += 1
        segment_of[name] = current[device]
        here |= foreign
        is_open[device] = not any(placed[r] != device for r in readers if r in placed)
    return segment_of


def in_planned_order(producers_of: Mapping[str, Iterable[str]], start_order: Mapping[str, float] | None) -> list[str]:
    """Names given in a possible order, sorted by planned starts as far as producers allow it.

    An op without a planned start comes right after what it reads.

    >>> in_planned_order({"a": [], "b": [], "c": ["a"]}, {"a": 3.0, "b": 1.0, "c": 0.0})
    ['b', 'a', 'c']
    """
    names = list(producers_of)
    if start_order is None:
        return names
    number = {name: i for i, name in enumerate(names)}
    after = [frozenset(number[p] for p in producers_of[name] if p in number) for name in names]
    start: list[float] = []
    for i, name in enumerate(names):
        start.append(start_order.get(name, max((start[b] for b in after[i]), default=0.0)))
    return [names[i] for i in order_by_start(after, start)]


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
