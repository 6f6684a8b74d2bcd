"""The catalogue: every plug-in of Splitveil, one line each. Targets are imported only when asked for."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from splitveil.core.registry import Registry


def _of_options(surrogate: Any) -> Any:
    field = surrogate.Options.model_fields["name"]
    return None if field.is_required() else field.default


SURROGATES = Registry(
    "surrogates",
    {
        "enhanced": ("splitveil.surrogates.enhanced:Enhanced", "Serial attention, then a mixture per class (SPEC 5)."),
        "gated": ("splitveil.surrogates.gated:Gated", "Gated attention pooling, one Gaussian per class (SPEC 3)."),
        "gmm": ("splitveil.surrogates.gmm:Gmm", "Gaussian mixture per class, fitted once per epoch (SPEC 1)."),
        "rate": ("splitveil.surrogates.rate:Rate", "Rate of one Gaussian with the pooled within-class covariance."),
        "slot_cross": (
            "splitveil.surrogates.slot_cross:SlotCross",
            "Slots of feature maps as cluster centres, with an own classifier (SPEC 2).",
        ),
        "slot_gated": (
            "splitveil.surrogates.slot_gated:SlotGated",
            "Soft mixture of slots per class with gated cross attention (SPEC 4).",
        ),
    },
    needs=("Options", "resolve"),
    own_name=_of_options,
)

DEFENCES = Registry(
    "defences",
    {
        "adversarial": (
            "splitveil.defences.adversarial:Adversarial",
            "The encoder resists a decoder that trains beside it (ARL, ResSFL).",
        ),
        "bido": ("splitveil.defences.bido:Bido", "Less dependence on the picture, more on the label (HSIC or COCO)."),
        "bottleneck": ("splitveil.defences.bottleneck:Bottleneck", "Narrow convolution on both sides of the cut."),
        "cloak": (
            "splitveil.defences.cloak:Cloak",
            "Noise whose scale per element is learned to be as large as the task allows.",
        ),
        "disco": ("splitveil.defences.disco:Disco", "A learned filter removes channels that help a decoder."),
        "dropout": ("splitveil.defences.dropout:Dropout", "Each value is left out with a probability, always."),
        "fisher": ("splitveil.defences.fisher:Fisher", "Noise solved for a target Fisher information leakage (dFIL)."),
        "infoscissors": (
            "splitveil.defences.infoscissors:InfoScissors",
            "Penalty on a CLUB bound of the information about the picture.",
        ),
        "label_smoothing": (
            "splitveil.defences.label_smoothing:LabelSmoothing",
            "Smoothed targets, positive or negative.",
        ),
        "noise": ("splitveil.defences.noise:Noise", "Fresh noise added to every transmitted feature."),
        "nopeek": ("splitveil.defences.nopeek:NoPeek", "Penalty on the distance correlation of picture and feature."),
        "patrol": (
            "splitveil.defences.patrol:Patrol",
            "Adversarial training, structured pruning and a Lipschitz penalty on a deeper edge.",
        ),
        "sca": ("splitveil.defences.sca:Sca", "Sparse coding layer before the output of the edge (SPEC 7.3)."),
        "shredder": (
            "splitveil.defences.shredder:Shredder",
            "A learned set of noise tensors; one of them is drawn for every transmission.",
        ),
        "topk": ("splitveil.defences.topk:TopK", "Each picture sends only its largest values."),
        "vib": (
            "splitveil.defences.vib:Vib",
            "Noise that depends on the feature, and a penalty towards a normal prior (MID).",
        ),
    },
    needs=("Options", "transmit"),
)

ATTACKS = Registry(
    "attacks",
    {
        "attribute": (
            "splitveil.attacks.attribute:AttributeAttack",
            "Infers attributes from what was sent and from its reconstruction.",
        ),
        "average": (
            "splitveil.attacks.average:AverageAttack",
            "Averages repeated transmissions of one picture, then decodes.",
        ),
        "decoder": (
            "splitveil.attacks.decoder:DecoderAttack",
            "Residual decoder trained on auxiliary pictures (SPEC 8.1).",
        ),
        "decoder_strong": (
            "splitveil.attacks.decoder_strong:StrongDecoderAttack",
            "Several kinds of decoders, grown until the error stops falling, as an ensemble.",
        ),
        "gan": ("splitveil.attacks.gan:GanAttack", "A decoder regularised by a critic that knows real pictures."),
        "linear": ("splitveil.attacks.linear:LinearAttack", "Least squares from what was sent to the picture."),
        "membership": (
            "splitveil.attacks.membership:MembershipAttack",
            "Tells which pictures the model was trained on (loss and likelihood-ratio tests).",
        ),
        "optimize": (
            "splitveil.attacks.optimize:OptimizeAttack",
            "White box: searches the picture whose feature matches, with a smoothness prior.",
        ),
        "prior": (
            "splitveil.attacks.prior:PriorAttack",
            "White-box search inside a small flow model of pictures, trained on the own ones.",
        ),
        "refine": ("splitveil.attacks.refine:RefineAttack", "White-box search that starts at a decoder's answer."),
        "retrieval": (
            "splitveil.attacks.retrieval:RetrievalAttack",
            "Answers with the own pictures whose transmissions are nearest.",
        ),
        "substitute": (
            "splitveil.attacks.substitute:SubstituteAttack",
            "The edge half is secret: imitates it with the cloud half and own pictures, then decodes.",
        ),
    },
    needs=("Options", "name", "threat_model", "run"),
    own_name=attrgetter("name"),
)

DATASETS = Registry(
    "datasets",
    {
        "cifar10": ("splitveil.data.sources:CIFAR10", "60,000 colour pictures, 32 x 32, 10 classes."),
        "cifar100": ("splitveil.data.sources:CIFAR100", "60,000 colour pictures, 32 x 32, 100 classes."),
        "faces": ("splitveil.data.sources:FACES", "Your own faces as .npz, with an aux part of other people."),
        "fashion-mini": (
            "splitveil.data.fashion_mini:FASHION_MINI",
            "Embedded part of Fashion-MNIST: 10,000 + 2,000 grey pictures, 28 x 28, 10 classes.",
        ),
        "fashion-mnist": ("splitveil.data.sources:FASHION_MNIST", "70,000 grey pictures, 28 x 28, 10 classes."),
        "tinyimagenet": ("splitveil.data.sources:TINYIMAGENET", "110,000 colour pictures, 64 x 64, 200 classes."),
    },
    needs=("name", "open", "store"),
    own_name=attrgetter("name"),
    instances=True,
)

MODELS = Registry(
    "models",
    {
        "resnet20": ("splitveil.models.resnet20:ResNet20", "Residual network with 20 layers (SPEC 7.2)."),
        "resnet32": ("splitveil.models.resnet20:ResNet32", "The same with five blocks per stage (SPEC 7.2)."),
        "tiny": ("splitveil.models.tiny:Tiny", "Three convolutions that a CPU trains in a minute."),
        "vgg11": ("splitveil.models.vgg11:Vgg11", "VGG-11 with batch normalisation, cut anywhere (SPEC 7.1)."),
    },
    needs=("name", "default_cut", "layers", "classifier", "initialise_edge"),
    own_name=attrgetter("name"),
)

MEASURES = Registry(  # each a function without arguments that makes the measure
    "measures",
    {"lpips": ("splitveil.audit.extra:lpips", "LPIPS, where you have installed the package of that name.")},
    needs=("__call__",),
    instances=True,
)

FAMILIES = {
    "surrogates": SURROGATES,
    "defences": DEFENCES,
    "attacks": ATTACKS,
    "datasets": DATASETS,
    "models": MODELS,
    "measures": MEASURES,
}
