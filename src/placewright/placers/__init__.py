"""Placers: given a problem, a budget and a seed, return a checked placement."""

from placewright.placers.base import Found, Placer
from placewright.placers.registry import get_placer, get_placer_class, placer_names

__all__ = ["Found", "Placer", "get_placer", "get_placer_class", "placer_names"]
