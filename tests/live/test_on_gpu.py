"""The same promises on a real GPU; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_models import make_model, random_placement, tokens, torch

import placewright.torch as live
from placewright.live.dispatch import places_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FAMILIES = ("mixtral", "llama", "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
def test_splits_give_the_logits_and_tokens_of_the_whole_model(family: str) -> None:
    model, ids = make_model(family), tokens()
    with torch.inference_mode():
        expected = model(ids).logits
        written = model.generate(ids, max_new_tokens=12, do_sample=False)
    fitted = live.fit(model, {"input_ids": ids}, devices=["cuda:0", "cpu"], phase="decode", finalists=2)
    before = {name: id(module.forward.__func__) for name, module in model.named_modules()}
    for placement in [fitted, *(random_placement(fitted.problem, seed) for seed in range(6))]:
        live.dispatch(model, placement)
        used = set(places_of(placement).values())
        assert {t.device.type for t in model.parameters()} == {name.split(":")[0] for name in used}
        with torch.inference_mode():
            found = model(ids)
            again = model.generate(ids, max_new_tokens=12, do_sample=False)
        assert found.logits.device.type == "cpu"
        torch.testing.assert_close(found.logits, expected, rtol=1e-3, atol=1e-3)
        assert again.tolist() == written.tolist()
        live.undispatch(model)
        assert {t.device.type for t in model.parameters()} == {"cpu"}
        assert before == {name: id(module.forward.__func__) for name, module in model.named_modules()}


def test_a_checkpoint_is_loaded_straight_to_both_devices(tmp_path: Path) -> None:
    model, ids = make_model("llama"), tokens()
    with torch.inference_mode():
        expected = model(ids).logits
    fitted = live.fit(model, {"input_ids": ids}, devices=["cuda:0", "cpu"], finalists=0)
    model.save_pretrained(tmp_path)
    loaded = live.load(tmp_path, random_placement(fitted.problem, 1))
    assert {t.device.type for t in loaded.parameters()} == {"cuda", "cpu"}
    with torch.inference_mode():
        torch.testing.assert_close(loaded(ids).logits, expected, rtol=1e-3, atol=1e-3)


def test_a_training_step_over_both_devices() -> None:
    model, ids = make_model("llama"), tokens()
    model.train()
    model(ids, labels=ids).loss.backward()
    expected = {name: t.grad.clone() for name, t in model.named_parameters()}
    model.zero_grad()
    fitted = live.fit(model, {"input_ids": ids}, devices=["cuda:0", "cpu"], finalists=0)
    live.dispatch(model, random_placement(fitted.problem, 2))
    model(ids, labels=ids).loss.backward()
    for name, t in model.named_parameters():
        assert t.grad is not None
        torch.testing.assert_close(t.grad.cpu(), expected[name], rtol=1e-3, atol=1e-3)
