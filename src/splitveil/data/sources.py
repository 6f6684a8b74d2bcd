"""The published data sets: addresses, checksums and readers. One line for each in `core/catalogue.py`."""

from __future__ import annotations

from splitveil.data import class_names
from splitveil.data.augment import Augmentation
from splitveil.data.cifar import read_cifar10, read_cifar100
from splitveil.data.download import OfficialFile
from splitveil.data.hub import HubRepository
from splitveil.data.idx import read_fashion_mnist
from splitveil.data.published import PublishedSource
from splitveil.data.tinyimagenet import read_tinyimagenet

_ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_TORONTO = "https://www.cs.toronto.edu/~kriz"

FASHION_MNIST = PublishedSource(
    name="fashion-mnist",
    augmentation=Augmentation(crop=2, flip=True),
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT, Copyright (c) 2017 Zalando SE",
    class_names=class_names.FASHION,
    image_shape=(1, 28, 28),
    counts=(60_000, 10_000),
    read=read_fashion_mnist,
    files=(
        OfficialFile(f"{_ZALANDO}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        OfficialFile(f"{_ZALANDO}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        OfficialFile(f"{_ZALANDO}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        OfficialFile(f"{_ZALANDO}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    content_sha256="5cfc4542078dd2e23208fb59693d741826380f3b282661fa5e3ff9d8d4fe2c33",
    hub=HubRepository("zalando-datasets/fashion_mnist", image="image", label="label"),
    local_hint="On Debian: apt install dataset-fashion-mnist, then --from /usr/share/datasets/fashion-mnist",
)

CIFAR10 = PublishedSource(
    name="cifar10",
    augmentation=Augmentation(crop=4, flip=True, rotate=15),
    homepage=f"{_TORONTO}/cifar.html",
    class_names=class_names.CIFAR10,
    image_shape=(3, 32, 32),
    counts=(50_000, 10_000),
    read=read_cifar10,
    files=(OfficialFile(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    other_md5=("c58f30108f718f92721af3b95e74349a",),
    content_sha256="d5ec86428623acd3262a9bbc3c9fd736831de4fec28fc7a1e9affcfed15bb473",
    hub=HubRepository("uoft-cs/cifar10", image="img", label="label"),
)

CIFAR100 = PublishedSource(
    name="cifar100",
    augmentation=Augmentation(crop=4, flip=True, rotate=15),
    homepage=f"{_TORONTO}/cifar.html",
    class_names=class_names.CIFAR100,
    image_shape=(3, 32, 32),
    counts=(50_000, 10_000),
    read=read_cifar100,
    files=(OfficialFile(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    other_md5=("eb9058c3a382ffc7106e4002c42a8d85",),
    labels_sha256="909ea1aa2cb4bc2f128ff9a16574336db833fba3b0170624c28a0d2ba4041d3d",
    hub=HubRepository("uoft-cs/cifar100", image="img", label="fine_label"),
)

TINYIMAGENET = PublishedSource(
    name="tinyimagenet",
    augmentation=Augmentation(crop=4, flip=True, rotate=15),
    homepage="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    licence="none stated (the terms of ImageNet: research only)",
    image_shape=(3, 64, 64),
    counts=(100_000, 10_000),
    read=read_tinyimagenet,
    files=(OfficialFile("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
)

FACES = PublishedSource(
    name="faces",
    augmentation=Augmentation(flip=True, rotate=15),
    homepage="a file of your own (cropped faces such as those of Labeled Faces in the Wild)",
)
