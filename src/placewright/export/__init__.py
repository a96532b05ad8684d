"""A placement in other tools' own languages: one file per format, found by name in :data:`FORMATS`."""

from __future__ import annotations

from placewright.export.base import Exported
from placewright.export.registry import FORMATS, export_placement

__all__ = ["FORMATS", "Exported", "export_placement"]
