"""A surrogate of your own in twenty lines, used in a plain loop. Run it: python examples/own_surrogate.py

The base class checks inputs, keeps statistics in float32, and reduces classes; you say what a class costs. To offer it
under a name to `splitveil train`, declare it in your package: [project.entry-points."splitveil.surrogates"]
"""

import json

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from splitveil.surrogates.base import Batch, Surrogate, SurrogateOptions, Terms


class LaplaceOptions(SurrogateOptions):
    name: str = "laplace"
    floor: float = 0.01  # an option of your own: keywords are checked against these names


class Laplace(Surrogate):
    """L_c = mean_d log(1 + b_cd/b0): the mean absolute deviation b of each class against a floor b0, in nats."""

    Options = LaplaceOptions
    options: LaplaceOptions

    def _terms(self, batch: Batch) -> Terms:
        count = batch.count.clamp(min=1.0)[:, None]
        mean = batch.member @ batch.x / count  # [C, D]
        deviation = batch.member @ (batch.x - mean[batch.y]).abs() / count  # [C, D]
        cost = torch.log1p(deviation / self.options.floor).mean(dim=1)  # [C]
        used = batch.count >= 2  # one sample has no spread
        intra = torch.where(used, batch.share, 0.0) @ deviation.square().mean(dim=1)
        return Terms(per_class_loss=cost, weight=batch.share, used=used, normalise=True, intra_mse=intra)


def train(weight):
    torch.manual_seed(0)
    y = torch.arange(600) % 3
    centre = 0.7 * torch.randn(3, 20)
    x = centre[y] + torch.randn(600, 20)  # three clouds of points
    edge = nn.Sequential(nn.Linear(20, 8), nn.Sigmoid())
    cloud = nn.Linear(8, 3)
    surrogate = Laplace(feature_shape=(8,), num_classes=3, sigma=0.1, options=Laplace.resolve(floor=0.1))
    optimiser = torch.optim.Adam([*edge.parameters(), *cloud.parameters(), *surrogate.parameters()], lr=1e-2)
    for _ in range(150):
        z = edge(x)
        out = surrogate(z, y)
        loss = cross_entropy(cloud(z + 0.1 * torch.randn_like(z)), y) + weight * out.loss + out.fit_loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        z = edge(x)
        accuracy = (cloud(z + 0.1 * torch.randn_like(z)).argmax(dim=1) == y).float().mean().item()
        return accuracy, surrogate(z, y).diagnostics["intra_mse_raw"].item()


plain, defended = train(weight=0.0), train(weight=0.5)
print(json.dumps({"accuracy": round(defended[0], 4), "within_class_ratio": round(defended[1] / plain[1], 4)}))
