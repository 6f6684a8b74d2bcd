"""The Lightning callback: gradients are those of task + weight·rob + fit, under accumulation and mixed precision."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from integration_world import BATCH, WEIGHT, assert_same, by_hand, gradients, network, pictures, surrogate
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from splitveil.core.errors import ConfigError, InputError, MissingExtraError, UsageError
from splitveil.surrogates.base import Surrogate

pl = pytest.importorskip("lightning.pytorch")
from splitveil.training.integrations.lightning import SplitveilCallback  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*GPU available but not used.*"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
]


class Task(pl.LightningModule):
    """What a user has: nothing in it knows Splitveil."""

    def __init__(self, answer: str = "tensor", own: bool = False) -> None:
        super().__init__()
        self.net = network()
        self.answer, self.own = answer, own

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        return {"tensor": loss, "dict": {"loss": loss, "more": 1}, "none": None}[self.answer]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters() if self.own else self.parameters(), lr=0.1)


class Watch(pl.Callback):
    """Keeps the gradients of every optimiser step, and the networks as they were before the first batch of each."""

    def __init__(self, loss: Surrogate) -> None:
        self.loss = loss
        self.before: list[tuple[Any, Surrogate]] = []
        self.found: list[dict[str, Tensor]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.before.append((copy.deepcopy(pl_module.net), copy.deepcopy(self.loss)))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.found.append(gradients(pl_module.net, self.loss))


def fit(module: Any, folder: Path, *callbacks: Any, ckpt_path: Path | None = None, **options: Any) -> Any:
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **({"max_epochs": 1, "enable_checkpointing": False} | options),
    )
    trainer.fit(module, DataLoader(TensorDataset(*pictures(2 * BATCH)), batch_size=BATCH), ckpt_path=ckpt_path)
    return trainer


def batches() -> list[tuple[Tensor, Tensor]]:
    x, y = pictures(2 * BATCH)
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


@pytest.mark.parametrize("name", ["rate", "gated", "slot_gated"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_the_sum(name: str, accumulate: int, tmp_path: Path) -> None:
    loss = surrogate(name)
    watch = Watch(loss)
    callback = SplitveilCallback(loss, features="net.0", weight=WEIGHT, warmup_epochs=0)
    fit(Task(), tmp_path, watch, callback, accumulate_grad_batches=accumulate)
    assert len(watch.found) == 2 // accumulate
    for step, found in enumerate(watch.found):
        now = batches()[step * accumulate : (step + 1) * accumulate]
        assert_same(found, by_hand(*watch.before[step], now, WEIGHT))
        assert any(key.startswith("surrogate.") for key in found) == (name != "rate")


def test_mixed_precision_sees_the_same_sum(tmp_path: Path) -> None:
    loss = surrogate("rate")
    watch = Watch(loss)
    fit(Task(), tmp_path, watch, SplitveilCallback(loss, "net.0", WEIGHT, warmup_epochs=0), precision="bf16-mixed")
    wanted = by_hand(*watch.before[0], batches()[:1], WEIGHT, torch.bfloat16)
    assert_same(watch.found[0], wanted, tolerance=1e-2)  # bfloat16 keeps 8 bits


def test_a_dictionary_may_be_returned(tmp_path: Path) -> None:
    loss = surrogate("rate")
    watch = Watch(loss)
    fit(Task("dict"), tmp_path, watch, SplitveilCallback(loss, "net.0", WEIGHT, warmup_epochs=0))
    assert_same(watch.found[0], by_hand(*watch.before[0], batches()[:1], WEIGHT))


def test_warm_up_leaves_the_task_alone_and_statistics_are_refreshed(tmp_path: Path) -> None:
    loss = surrogate("gmm")
    watch = Watch(loss)
    module = Task()
    trainer = fit(module, tmp_path, watch, SplitveilCallback(loss, "net.0", WEIGHT), max_epochs=2)
    now = [batches()[0], batches()[1], batches()[0], batches()[1]]
    for step, weight in enumerate([0.0, 0.0, WEIGHT, WEIGHT]):
        assert_same(watch.found[step], by_hand(*watch.before[step], now[step : step + 1], weight))
    assert not watch.before[1][1].bank.fitted.any()
    # the bank of epoch 2 is that of the clean features after epoch 1, the edge in eval mode
    alone = surrogate("gmm")
    net = watch.before[2][0].eval()
    alone.refresh((net[0](x).detach(), y) for x, y in batches())
    assert torch.allclose(watch.before[2][1].bank.mean, alone.bank.mean, atol=1e-6)
    assert module.net.training
    assert trainer.callback_metrics["splitveil/rob_loss"] > 0


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The surrogate's parameters and statistics travel in Lightning's own checkpoint."""

    def run(epochs: int, start: Path | None = None) -> tuple[Any, Path]:
        module, path = Task(), tmp_path / f"{epochs}.ckpt"
        callback = SplitveilCallback(surrogate("gated"), "net.0", WEIGHT)
        fit(module, tmp_path, callback, max_epochs=epochs, ckpt_path=start).save_checkpoint(path)
        return module.state_dict(), path

    whole, _ = run(3)
    torn, _ = run(3, start=run(2)[1])
    assert whole.keys() == torn.keys()
    assert any("splitveil_surrogate" in name for name in whole)
    for name, value in whole.items():
        assert torch.equal(value, torn[name]), name


def test_the_module_gets_its_own_step_back(tmp_path: Path) -> None:
    module = Task()
    before = module.training_step
    fit(module, tmp_path, SplitveilCallback(surrogate("rate"), "net.0", WEIGHT))
    assert module.training_step == before
    assert not module.net[0]._forward_hooks


def test_parameters_that_nobody_trains_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"self\.parameters\(\)"):
        fit(Task(own=True), tmp_path, SplitveilCallback(surrogate("gated"), "net.0", WEIGHT))


def test_bad_settings_say_what_to_do(tmp_path: Path) -> None:
    loss = surrogate("gmm")
    with pytest.raises(InputError, match="Did you mean 'net"):
        fit(Task(), tmp_path, SplitveilCallback(loss, "net.O", WEIGHT))
    with pytest.raises(ConfigError, match="warmup_epochs >= 1"):
        SplitveilCallback(loss, "net.0", WEIGHT, warmup_epochs=0)
    with pytest.raises(ConfigError, match="finite number"):
        SplitveilCallback(loss, "net.0", float("nan"))
    manual = Task()
    manual.automatic_optimization = False
    with pytest.raises(UsageError, match="manual"):
        fit(manual, tmp_path, SplitveilCallback(loss, "net.0", WEIGHT))
    with pytest.raises(UsageError, match="bf16-mixed"):
        fit(Task(), tmp_path, SplitveilCallback(loss, "net.0", WEIGHT), precision="bf16-true")


def test_without_lightning_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "splitveil.training.integrations.lightning")
    with pytest.raises(MissingExtraError, match=r"\.\[lightning\]"):
        __import__("splitveil.training.integrations.lightning")
