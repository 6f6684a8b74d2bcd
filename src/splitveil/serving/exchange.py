"""What both ends of a conversation check: that a message is of the expected kind, artefact and shape."""

from __future__ import annotations

from splitveil.serving.artefact import Artefact
from splitveil.serving.wire import ID_BYTES, Kind, Message, WireError, decode

INFER, FEATURES, MANIFEST, HEALTH, METRICS = "/v1/infer", "/v1/features", "/v1/manifest", "/healthz", "/metrics"


class OtherArtefactError(WireError):
    """The other end holds another artefact: its numbers would mean something else."""


def artefact_id(artefact: Artefact) -> bytes:
    """How messages name an artefact: the first bytes of its digest, which pins every file of it."""
    return artefact.digest[:ID_BYTES]


def received(data: bytes, kind: Kind, artefact: bytes, shape: tuple[int, ...]) -> Message:
    """The message in `data`, which must be of `kind` and `artefact`, with values [B, *shape]."""
    message = decode(data)
    if message.kind is not kind:
        raise WireError(f"The message carries {message.kind.name.lower()} where {kind.name.lower()} are expected.")
    if message.artefact != artefact:
        raise OtherArtefactError(
            f"The message is of the artefact {message.artefact.hex()}, but here is {artefact.hex()}.",
            "Both ends need copies of one artefact.",
        )
    if message.values.shape[1:] != shape:
        raise WireError(
            f"The message has values of shape {list(message.values.shape)} where [B, {', '.join(map(str, shape))}] "
            "are expected."
        )
    return message
