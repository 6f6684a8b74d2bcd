"""Splitveil and Lightning: one callback. Needs: pip install 'splitveil[lightning]'

Run it: python examples/lightning_module.py
"""

import json
import logging

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import splitveil as sv
from splitveil.training.integrations.lightning import SplitveilCallback

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
SIGMA = 0.1


class Classifier(pl.LightningModule):
    """Nothing in here knows Splitveil, except that noise is part of the network."""

    def __init__(self):
        super().__init__()
        self.edge = nn.Sequential(nn.Conv2d(1, 8, 4, stride=4), nn.Sigmoid())
        self.cloud = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10))

    def forward(self, x):
        z = self.edge(x)
        return self.cloud(z + SIGMA * torch.randn_like(z))

    def training_step(self, batch, batch_idx):
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def train(weight):
    pl.seed_everything(0, verbose=False)
    module = Classifier()
    surrogate = sv.surrogates.create("gmm", feature_shape=(8, 7, 7), num_classes=10, sigma=SIGMA)
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        callbacks=[SplitveilCallback(surrogate, features="edge", weight=weight)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    with torch.no_grad():
        accuracy = (module(test_x).argmax(dim=1) == test_y).float().mean().item()
        z = module.edge(test_x)
        return accuracy, sum(z[test_y == label].var(dim=0).mean().item() for label in range(10)) / 10


data = sv.data.create("fashion-mini")
loader = DataLoader(TensorDataset(data.train.images[:4000] / 255, data.train.labels[:4000]), 64, shuffle=True)
test_x, test_y = data.test.images[:1000] / 255, data.test.labels[:1000]
plain, defended = train(weight=0.0), train(weight=3.0)
print(json.dumps({"accuracy": round(defended[0], 4), "within_class_ratio": round(defended[1] / plain[1], 4)}))
