"""The feature that accuracy is scored on is float32 even where training steps compute in bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel
from splitveil.training.evaluate import accuracy


class Half(nn.Module):
    """Notes under which precision it runs; its logits are two fixed columns."""

    def __init__(self, logits: bool = False) -> None:
        super().__init__()
        self.logits, self.seen = logits, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(torch.is_autocast_enabled("cpu"))
        return torch.tensor([0.0, 1.0]).expand(len(x), 2) if self.logits else x


def test_only_the_cloud_half_computes_in_the_precision_of_training() -> None:
    edge, cloud = Half(), Half(logits=True)
    model = SplitModel(edge, cloud, num_classes=2)
    pictures = ImageSet(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([1, 1, 1, 0]))
    assert float(accuracy(model, pictures, None, precision=torch.bfloat16)) == 0.75
    assert edge.seen == [False]
    assert cloud.seen == [True]
