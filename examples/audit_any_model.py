"""Audit a model that Splitveil has never seen: all it takes are its two halves and some pictures.

The network below stands for somebody else's. What is sent is attacked twice: as it is, and with noise on it.
Run it: python examples/audit_any_model.py
"""

import json

import torch
from torch import nn

import splitveil as sv

torch.set_num_threads(1)


class SomebodysNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 4, stride=4), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16 * 49, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).flatten(1))


torch.manual_seed(0)
net = SomebodysNet()
data = sv.data.load(sv.load_config(overrides=["data.limit=1200"]).data, seed=0)  # parts for defender, attacker, test
x, y = data.train.images.float() / 255, data.train.labels
optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(6):
    for batch in torch.randperm(len(x)).split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimiser.step()

edge, cloud = net.stem, nn.Sequential(net.body, nn.Flatten(), net.head)
result = {}
for name, sigma in (("bare", 0.0), ("noisy", 1.0)):
    model = sv.SplitModel(edge, cloud, image_shape=(1, 28, 28), num_classes=10)
    model.defences["noise"] = sv.defences.create("noise", sigma=sigma)
    report = sv.audit(model, data, tier="smoke", num_images=100, check_sanity=sigma == 0)
    worst, floor = report.worst_case, report.floors["mean_image"]
    print(
        f"{name}: worst-case MSE {worst['mse']:.4f}, SSIM {worst['ssim']:.3f}; the mean image gives {floor['mse']:.4f}"
    )
    result[f"mse_{name}"] = round(worst["mse"], 4)
print(json.dumps({**result, "mse_mean_image": round(floor["mse"], 4)}))
