"""Medians and how far to trust them."""

from __future__ import annotations

import math

import numpy as np

from placewright.graph import FloatArray

_NORMAL_95 = 1.96
_SIGMA_PER_MAD = 1.4826  # of a normal distribution: robust against the few runs that something else disturbed
_MEDIAN_LOSS = math.sqrt(math.pi / 2)  # the median of n values scatters that much more than their mean


def median_and_spread(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the median over the first axis and the half width of its 95% interval, NaN for fewer than 3 samples.

    >>> median, spread = median_and_spread(np.array([[1.0], [2.0], [3.0]]))
    >>> float(median[0]), round(float(spread[0]), 2)
    (2.0, 2.1)
    """
    median = np.median(samples, axis=0)
    if len(samples) < 3:
        return median, np.full(median.shape, np.nan)
    sigma = _SIGMA_PER_MAD * np.median(np.abs(samples - median), axis=0)
    return median, _NORMAL_95 * _MEDIAN_LOSS * sigma / math.sqrt(len(samples))
