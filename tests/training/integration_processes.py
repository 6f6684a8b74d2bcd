"""Started by two_processes.py from test_integration_processes.py: two steps, the second active, on each.

Each process makes its surrogate with another seed; gradients of the active step must be those of one process on the
global batch, and the processes must end with equal weights.
"""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from integration_world import BATCH, CLASSES, PIXELS, WEIGHT, WIDTH, assert_same, by_hand, gradients, pictures
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

import splitveil as sv

X, Y = pictures(2 * BATCH)  # one global batch per epoch


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.Sigmoid()), nn.Linear(WIDTH, CLASSES))


def surrogate() -> Any:
    torch.manual_seed(int(os.environ["RANK"]))
    return sv.surrogates.create("gated", feature_shape=(WIDTH,), num_classes=CLASSES, sigma=0.05)


class Record:
    """Networks before a step and gradients after it."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.found: list[dict[str, Tensor]] = []


def lightning(loss: Any, record: Record) -> nn.Module:
    import lightning.pytorch as pl

    from splitveil.training.integrations.lightning import SplitveilCallback

    class Task(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            record.before.append(copy.deepcopy((module.net, loss)))

        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            record.found.append(gradients(module.net, loss))

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        enable_checkpointing=False,
        callbacks=[Watch(), SplitveilCallback(loss, "net.0", WEIGHT)],
        **quiet,
    )
    task = Task()
    trainer.fit(task, DataLoader(TensorDataset(X, Y), batch_size=BATCH))
    return task.net


def huggingface(loss: Any, record: Record) -> nn.Module:
    import transformers

    from splitveil.training.integrations.huggingface import with_surrogate

    class Task(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": F.cross_entropy(self.net(x), labels)}

    class Watch(transformers.TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            record.before.append(copy.deepcopy((task.net, loss)))

        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            record.found.append(gradients(task.net, loss))

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(self.train_dataset)

    task = Task()
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
    arguments = transformers.TrainingArguments(
        sys.argv[2],
        num_train_epochs=2,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        ddp_backend="gloo",
        max_grad_norm=0.0,
        optim="sgd",
        **quiet,
    )
    data = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    derived = with_surrogate(InOrder, loss, "net.0", WEIGHT)
    derived(model=task, args=arguments, train_dataset=data, callbacks=[Watch()]).train()
    return task.net


if __name__ == "__main__":
    torch.set_num_threads(1)
    loss, record = surrogate(), Record()
    trained = {"lightning": lightning, "huggingface": huggingface}[sys.argv[1]](loss, record)
    assert_same(record.found[0], by_hand(*record.before[0], [(X, Y)], 0.0), 1e-4)
    wanted = by_hand(*record.before[1], [(X, Y)], WEIGHT)
    tiny = {name for name, value in wanted.items() if value.abs().max() < 1e-6}  # zero but for rounding
    assert tiny == {"surrogate.pooling.score.bias"}, tiny
    assert_same(
        {name: value for name, value in record.found[1].items() if name not in tiny},
        {name: value for name, value in wanted.items() if name not in tiny},
        1e-4,
    )
    weights = torch.cat([p.detach().flatten() for p in [*trained.parameters(), *loss.parameters()]])
    everyone = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(everyone, weights)
    assert torch.equal(everyone[0], everyone[1])
    dist.barrier()  # a process that leaves while another still speaks to it may abort
    dist.destroy_process_group()
