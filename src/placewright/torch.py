"""Live PyTorch models: ``fit`` decides which block goes where, ``dispatch`` runs it so, ``undispatch`` undoes that.

placement = placewright.torch.fit(model, inputs, memory={"cuda:0": "8GiB"}, phase="decode")
placewright.torch.dispatch(model, placement)
model.generate(...)
"""

from __future__ import annotations

from placewright.errors import MissingExtraError

try:
    from placewright.live.device_map import device_map, rules
    from placewright.live.dispatch import dispatch, undispatch
    from placewright.live.explain import explain
    from placewright.live.fit import fit
    from placewright.live.hf import empty_model
    from placewright.live.loading import load
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("torch", "torch") from None

__all__ = ["device_map", "dispatch", "empty_model", "explain", "fit", "load", "rules", "undispatch"]
