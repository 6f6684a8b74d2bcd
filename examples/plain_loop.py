"""Splitveil in a plain PyTorch loop: cut any model in two, then three lines. Run it: python examples/plain_loop.py

The same network is trained twice, without and with the surrogate. `within_class` is how far the features of a class
spread around their mean: what an attacker could tell two pictures of a class apart by.
"""

import json

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import splitveil as sv

SIGMA, EPOCHS, BATCH = 0.1, 4, 128
torch.set_num_threads(1)
data = sv.data.create("fashion-mini")  # embedded: no download
x, y = data.train.images[:4000].float() / 255, data.train.labels[:4000]
test_x, test_y = data.test.images[:1000].float() / 255, data.test.labels[:1000]


def transmit(z):
    return z + SIGMA * torch.randn_like(z)  # fresh noise on everything that leaves the device, always


def train(weight):
    torch.manual_seed(0)
    block = [nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    narrow = [nn.Conv2d(8, 4, 3, stride=2, padding=1), nn.Sigmoid()]
    cloud = [nn.Conv2d(4, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10)]
    network = nn.Sequential(*block, *narrow, *cloud)
    model = sv.split(network, at="4", example=x[:2])  # model.edge stays on the device, model.cloud on the server
    # line 1 of 3: create
    surrogate = sv.surrogates.create("gmm", feature_shape=model.feature_shape, num_classes=10, sigma=SIGMA)
    optimiser = torch.optim.Adam([*network.parameters(), *surrogate.parameters()], lr=2e-3)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch in torch.randperm(len(x)).split(BATCH):
            z = model.edge(x[batch])
            loss = cross_entropy(model.cloud(transmit(z)), y[batch])
            if epoch > 1:  # from then on the mixture is known
                out = surrogate(z, y[batch], epoch=epoch)  # line 2: call, on the clean feature
                loss = loss + weight * out.loss + out.fit_loss  # line 3: add
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():  # surrogates with epoch statistics fit them here; for the others this does nothing
            surrogate.refresh([(model.edge(x), y)])
    with torch.no_grad():
        z = model.edge(test_x)
        accuracy = (model.cloud(transmit(z)).argmax(dim=1) == test_y).float().mean().item()
        return accuracy, surrogate(z, test_y).diagnostics["intra_mse_raw"].item()


plain, defended = train(weight=0.0), train(weight=1.0)
result = {"accuracy_plain": plain[0], "accuracy": defended[0], "within_class_ratio": defended[1] / plain[1]}
print(json.dumps({name: round(value, 4) for name, value in result.items()}))
