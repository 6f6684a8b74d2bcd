"""Splitveil and Hugging Face's Trainer: one line. Needs: pip install 'splitveil[huggingface]'

Any model that the Trainer takes will do, those of transformers too. Run it: python examples/huggingface_trainer.py
"""

import json
import tempfile

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

import splitveil as sv
from splitveil.training.integrations.huggingface import with_surrogate

torch.set_num_threads(1)
SIGMA = 0.1


class Pictures(Dataset):
    def __init__(self, part, count):
        self.images, self.labels = part.images[:count] / 255, part.labels[:count]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    """Nothing in here knows Splitveil, except that noise is part of the network."""

    def __init__(self):
        super().__init__()
        self.edge = nn.Sequential(nn.Conv2d(1, 8, 4, stride=4), nn.Sigmoid())
        self.cloud = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10))

    def forward(self, pixel_values, labels):
        z = self.edge(pixel_values)
        logits = self.cloud(z + SIGMA * torch.randn_like(z))
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def train(weight):
    torch.manual_seed(0)
    model = Classifier()
    surrogate = sv.surrogates.create("gmm", feature_shape=(8, 7, 7), num_classes=10, sigma=SIGMA)
    settings = {"num_train_epochs": 4, "per_device_train_batch_size": 64, "learning_rate": 2e-3}
    quiet = {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as folder:
        trainer_class = with_surrogate(Trainer, surrogate, features="edge", weight=weight)  # the line
        arguments = TrainingArguments(folder, **settings, **quiet)
        trainer_class(model=model, args=arguments, train_dataset=Pictures(data.train, 4000)).train()
    model.eval()
    with torch.no_grad():
        z = model.edge(test.images)
        accuracy = (model(test.images, test.labels)["logits"].argmax(dim=1) == test.labels).float().mean().item()
        return accuracy, sum(z[test.labels == label].var(dim=0).mean().item() for label in range(10)) / 10


data = sv.data.create("fashion-mini")
test = Pictures(data.test, 1000)
plain, defended = train(weight=0.0), train(weight=3.0)
print(json.dumps({"accuracy": round(defended[0], 4), "within_class_ratio": round(defended[1] / plain[1], 4)}))
