"""The Hugging Face Trainer with a surrogate: gradients are those of task + weight·rob + fit, however it accumulates."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from integration_world import BATCH, WEIGHT, assert_same, by_hand, gradients, network, pictures, surrogate
from torch import Tensor, nn

from splitveil.core.errors import InputError, MissingExtraError, UsageError
from splitveil.surrogates.base import Surrogate

transformers = pytest.importorskip("transformers")
state = pytest.importorskip("accelerate.state")
from splitveil.training.integrations.huggingface import with_surrogate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")


@pytest.fixture(autouse=True)
def _fresh_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate keeps settings such as mixed precision for the life of a process, also in its environment."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    state.AcceleratorState._reset_state(reset_partial_state=True)


class Task(nn.Module):
    """What a user has. The task loss is a mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class TaskThatCounts(Task):
    """Like the models of transformers: told the number of items of all accumulated batches, it divides by that."""

    def forward(self, x: Tensor, labels: Tensor, **kwargs: Any) -> dict[str, Tensor]:
        logits = self.net(x)
        items = kwargs.get("num_items_in_batch", len(labels))
        return {"loss": F.cross_entropy(logits, labels, reduction="sum") / items, "logits": logits}


class Watch(transformers.TrainerCallback):
    """Keeps gradients before each optimiser step, and the networks as they were before the first batch of each."""

    def __init__(self, loss: Surrogate) -> None:
        self.loss = loss
        self.before: list[tuple[Any, Surrogate]] = []
        self.found: list[dict[str, Tensor]] = []

    def on_step_begin(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.before.append((copy.deepcopy(model.net), copy.deepcopy(self.loss)))

    def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.found.append(gradients(model.net, self.loss))


class InOrder(transformers.Trainer):
    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def train(module: Any, folder: Path, loss: Surrogate, warmup_epochs: int = 0, **options: Any) -> tuple[Any, Watch]:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        max_grad_norm=0.0,
        optim="sgd",
        learning_rate=0.1,
        **({"num_train_epochs": 1, "save_strategy": "no"} | options),
    )
    x, y = pictures(2 * BATCH)
    data = [{"x": picture, "labels": label} for picture, label in zip(x, y, strict=True)]
    derived = with_surrogate(InOrder, loss, features="net.0", weight=WEIGHT, warmup_epochs=warmup_epochs)
    watch = Watch(loss)
    given = {"model_init": module} if isinstance(module, type) else {"model": module}
    trainer = derived(**given, args=arguments, train_dataset=data, eval_dataset=data, callbacks=[watch])
    return trainer, watch


def batches() -> list[tuple[Tensor, Tensor]]:
    x, y = pictures(2 * BATCH)
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


@pytest.mark.parametrize("task", [Task, TaskThatCounts])
@pytest.mark.parametrize("name", ["rate", "gated"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_the_sum(task: type[Task], name: str, accumulate: int, tmp_path: Path) -> None:
    trainer, watch = train(task(), tmp_path, surrogate(name), gradient_accumulation_steps=accumulate)
    trainer.train()
    assert len(watch.found) == 2 // accumulate
    for step, found in enumerate(watch.found):
        now = batches()[step * accumulate : (step + 1) * accumulate]
        assert_same(found, by_hand(*watch.before[step], now, WEIGHT))
        assert any(key.startswith("surrogate.") for key in found) == (name == "gated")


def test_mixed_precision_sees_the_same_sum(tmp_path: Path) -> None:
    trainer, watch = train(Task(), tmp_path, surrogate("rate"), bf16=True)
    trainer.train()
    wanted = by_hand(*watch.before[0], batches()[:1], WEIGHT, torch.bfloat16)
    assert_same(watch.found[0], wanted, tolerance=1e-2)  # bfloat16 keeps 8 bits


def test_warm_up_leaves_the_task_alone_and_statistics_are_refreshed(tmp_path: Path) -> None:
    trainer, watch = train(Task(), tmp_path, surrogate("gmm"), warmup_epochs=1, num_train_epochs=2)
    trainer.train()
    now = batches() + batches()
    for step, weight in enumerate([0.0, 0.0, WEIGHT, WEIGHT]):
        assert_same(watch.found[step], by_hand(*watch.before[step], now[step : step + 1], weight))
    # the bank of epoch 2 is that of the clean features after epoch 1, the edge in eval mode
    alone = surrogate("gmm")
    net = watch.before[2][0].eval()
    alone.refresh((net[0](x).detach(), y) for x, y in batches())
    assert torch.allclose(watch.before[2][1].bank.mean, alone.bank.mean, atol=1e-6)


def test_evaluation_is_the_task_alone(tmp_path: Path) -> None:
    module = Task()
    trainer, _ = train(module, tmp_path, surrogate("rate"), per_device_eval_batch_size=2 * BATCH)
    x, y = pictures(2 * BATCH)
    found = trainer.evaluate()["eval_loss"]
    assert found == pytest.approx(module.eval()(x, y)["loss"].item(), rel=1e-5)


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The surrogate's parameters and statistics travel in the trainer's own checkpoint."""
    options = {"num_train_epochs": 3, "save_strategy": "epoch"}
    whole, torn = Task(), Task()
    train(whole, tmp_path, surrogate("gated"), warmup_epochs=1, **options)[0].train()
    checkpoint = tmp_path / "checkpoint-4"  # two epochs of two steps
    train(torn, tmp_path, surrogate("gated"), warmup_epochs=1, **options)[0].train(resume_from_checkpoint=checkpoint)
    assert any("splitveil_surrogate" in name for name in whole.state_dict())
    for name, value in whole.state_dict().items():
        assert torch.equal(value, torn.state_dict()[name]), name


def test_a_model_made_by_the_trainer_has_the_surrogate_too(tmp_path: Path) -> None:
    trainer, watch = train(Task, tmp_path, surrogate("gated"))
    trainer.train()
    assert_same(watch.found[0], by_hand(*watch.before[0], batches()[:1], WEIGHT))


def test_bad_settings_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = train(Task(), tmp_path, surrogate("gated"))
    trainer.optimizer = torch.optim.SGD(trainer.model.net.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="own parameters"):
        trainer.train()
    trainer, _ = train(Task(), tmp_path, surrogate("rate"))
    trainer.model.train()
    with pytest.raises(InputError, match="no entry 'labels'"):
        trainer.compute_loss(trainer.model, {"x": torch.zeros(2, 6)})
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", 2)
    with pytest.raises(UsageError, match="torchrun"):
        train(Task(), tmp_path, surrogate("rate"))


def test_without_transformers_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "splitveil.training.integrations.huggingface")
    with pytest.raises(MissingExtraError, match=r"\.\[huggingface\]"):
        __import__("splitveil.training.integrations.huggingface")
