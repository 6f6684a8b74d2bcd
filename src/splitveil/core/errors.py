"""Every error a user can meet.

    SplitveilError                 exit 1   something failed
    |-- UsageError                 exit 2   the call, the recipe or a name is wrong
    |   |-- ConfigError                     a recipe or option has a wrong key or value
    |   |-- UnknownNameError                no such surrogate, defence, data set, ...
    |   `-- NoPicturesError (both)          `data.name` is neither a data set nor a path that is there
    |-- InputError (ValueError)    exit 2   tensors or modules that do not fit together
    |-- DataError                  exit 1   a data file is missing, corrupt or not what it should be
    |-- RunFolderError             exit 1   a run folder is incomplete, damaged or foreign
    |   `-- NotARunError           exit 2   the path that was given is no run folder at all
    |-- ArtefactError              exit 1   an exported artefact is damaged, of another version, or cannot be made
    |   `-- NotAnArtefactError     exit 2   the path that was given is no artefact at all
    |-- ServingError               exit 1   the other half cannot be reached, refuses, or may not be sent to
    |-- TrainingError              exit 1   training cannot go on (collapse, non-finite, out of memory)
    |-- MissingExtraError          exit 1   an optional dependency is not installed
    |-- PlugInError                exit 1   another package's plug-in cannot be imported, or fails
    |-- ThreatModelError           exit 1   an attack reached for what its adversary may not see
    `-- QualityGateError           exit 3   a stated budget was not met

A message is one sentence that says what is wrong and where; `hint` is one sentence that says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SplitveilError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UsageError(SplitveilError):
    """The call itself is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A recipe or an option has a wrong key or value."""


class UnknownNameError(UsageError):
    """No such name in a registry."""


class NoPicturesError(ConfigError, UnknownNameError):
    """`data.name` is neither a data set nor a path that is there."""


class InputError(SplitveilError, ValueError):
    """Tensors or modules that do not fit together."""

    exit_code = 2


class DataError(SplitveilError):
    """A data file is missing, corrupt, or not what it should be."""


class RunFolderError(SplitveilError):
    """A run folder is incomplete, damaged or foreign."""


class NotARunError(RunFolderError):
    """The path that was given is no run folder: the call is wrong, not the run."""

    exit_code = 2


class ArtefactError(SplitveilError):
    """An exported artefact is damaged or of another version, or cannot be made."""


class NotAnArtefactError(ArtefactError):
    """The path that was given is no artefact: the call is wrong, not the artefact."""

    exit_code = 2


class ServingError(SplitveilError):
    """The other half cannot be reached, refuses, or may not be sent to."""


class TrainingError(SplitveilError):
    """Training cannot go on."""


class MissingExtraError(SplitveilError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package}.",
            f"Install the extra `{extra}`; in the clone: pip install -e '.[{extra}]'",
        )


class PlugInError(SplitveilError):
    """A plug-in of another package cannot be imported, is not what its family needs, or fails."""


class ThreatModelError(SplitveilError):
    """An attack reached for what its adversary may not see."""


class QualityGateError(SplitveilError):
    """A stated budget was not met."""

    exit_code = 3


def sentence(error: Exception) -> str:
    """What to tell a user about any error: our own as they are, others with their class.

    >>> sentence(ConfigError("The key is wrong.", "Correct it.")), sentence(ValueError("too small"))
    ('The key is wrong. Correct it.', 'ValueError: too small')
    """
    if isinstance(error, OSError) and error.strerror and error.filename:  # a full disk, say: no numbers of the system
        return f"{error.strerror}: {error.filename}"
    return str(error) if isinstance(error, SplitveilError) else f"{type(error).__name__}: {error}"


def reason(error: BaseException, otherwise: str = "no reason given") -> str:
    """The first line of an error's message, for a log or a sentence of our own.

    >>> reason(ValueError("too small\\nsee the manual")), reason(ValueError(), "ValueError")
    ('too small', 'ValueError')
    """
    return (str(error).strip() or otherwise).splitlines()[0]


# symbols of the specification and names of the design notes, and what they are called here (docs/glossary.md)
OTHER_WORDS = {
    "AT_regularization": "defence",
    "H": "num_heads",
    "K": "num_clusters",
    "S": "num_slots",
    "T": "num_iterations",
    "T_a": "assign_temp",
    "attention_loss_scale": "loss_scale",
    "attention_warmup_epochs": "warmup_epochs",
    "cutlayer": "cut",
    "lambd": "privacy_weight",
    "log_entropy": "form",
    "num_iterations": "max_steps",
    "num_slots": "num_clusters",
    "regularization_strength": "sigma",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the closest known name, or all of them when nothing is close.

    >>> nearest("gatd", ["gated", "gmm"])
    "Did you mean 'gated'?"
    >>> nearest("K", ["num_clusters", "kappa"])
    "Did you mean 'num_clusters'?"
    """
    choices = sorted(known)
    if OTHER_WORDS.get(str(name)) in choices:
        return f"Did you mean '{OTHER_WORDS[str(name)]}'?"
    close = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    if close:
        return f"Did you mean '{close[0]}'?"
    listed = "; " if any("," in choice for choice in choices) else ", "
    return f"Known: {listed.join(choices)}." if choices else ""
