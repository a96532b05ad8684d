"""Live PyTorch models: ``fit`` decides which block goes where, ``dispatch`` runs the model so, ``undispatch`` undoes.

placement = placewright.torch.fit(model, inputs, memory={"cuda:0": "8GiB"}, phase="decode")
placewright.torch.dispatch(model, placement)
model.generate(...)
"""

from __future__ import annotations

from placewright.errors import MissingExtraError

try:
    from placewright.live.dispatch import dispatch, undispatch
    from placewright.live.fit import fit
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("torch", "torch") from None

__all__ = ["dispatch", "fit", "undispatch"]
