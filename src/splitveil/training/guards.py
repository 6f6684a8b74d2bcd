"""Guards (SPEC 6.5): what stops or warns when training goes wrong, and says what to change.

Each guard looks at the numbers of one epoch. They never touch the weights. The ways out are those of SPEC 6.8.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

from splitveil.core.errors import TrainingError
from splitveil.core.sections import Train

log = logging.getLogger("splitveil.training")

SHUT_SHARE = 0.5  # SPEC 6.8: from this share of shut steps on, the regulariser counts as off
CHANCE_FACTOR = 1.5  # accuracy below 1.5/C counts as chance; so does that of always naming the most frequent class,
ROUNDING = 1e-6  # which is a float32 in one place and a float64 in the other
CONSTANT_SPREAD = 1e-2  # features whose spread is below 1 % of the noise carry nothing,
SHRUNK_SPREAD = 0.1  # nor do, at chance, those whose spread has fallen below a tenth of what it was at first
NEVER_ACTED = "runs in which the surrogate acted in no epoch"
ALL_UNDER = "epochs in which every class lay under its threshold"
BAD_TERM = "nonfinite_term_"  # and a defence's name: steps in which its term was not finite
BAD_SENT = "nonfinite_sent_"  # and a defence's name: steps in which it made what is sent not finite
WAYS_OUT = (
    "Check the inputs, lower train.lr or train.privacy_weight, or raise surrogate.margin_m or the floor "
    "surrogate.eps_var where the surrogate has them."
)
SILENT_ROB = 1e-2  # the surrogate is "near zero" below 1 % of its first active value


@dataclass
class Guards:
    """Counts events over a run; both checks are called once per epoch with that epoch's numbers."""

    train: Train
    num_classes: int
    sigma: float
    guess: float = 0.0  # accuracy of always naming the most frequent class of the validation pictures
    counts: dict[str, int] = field(default_factory=dict)
    first_rob: float | None = None
    first_spread: float | None = None
    collapsed: int = 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "guards": self.counts,
            "first_rob": self.first_rob,
            "first_spread": self.first_spread,
            "collapsed": self.collapsed,
        }

    def restore(self, facts: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        self.counts = dict(facts.get("guards", {}))
        self.first_rob = facts.get("first_rob")
        self.first_spread = facts.get("first_spread")
        self.collapsed = int(facts.get("collapsed", 0))

    def check(self, row: dict[str, Any]) -> None:
        """Look at the whole epoch, its evaluation included: warn or raise TrainingError."""
        self._silent(row)
        self._collapse(row)

    def count(self, event: str, times: int) -> None:
        """Add events; logged at the first and then once per thousand (SPEC 6.5)."""
        before = self.counts.get(event, 0)
        self.counts[event] = before + times
        if times and (before == 0 or before // 1000 != (before + times) // 1000):
            log.warning("%s: %d so far", event, before + times)

    def check_steps(self, row: dict[str, Any]) -> None:
        """Look for what was not finite in the steps, before the evaluation, which would know less about it."""
        skipped = int(row.get("skipped", 0))
        self.count("steps skipped for a non-finite loss or gradient", skipped)
        self.count("batches with non-finite features", int(row.get("nonfinite_feature_steps", 0)))
        self.count("non-finite surrogate values set to zero", int(row.get("nonfinite_rob", 0)))
        lost = int(row.get("nonfinite_lost", 0))
        self.count("steps without the surrogate, whose loss was not finite", lost)
        unfitted = int(row.get("nonfinite_fit", 0))
        self.count("steps whose fit_loss was not finite and set to zero", unfitted)
        bad = [name.removeprefix(BAD_TERM) for name, steps in row.items() if name.startswith(BAD_TERM) and steps]
        for name, steps in row.items():
            if name.startswith(BAD_SENT) and steps:
                self._sent(name.removeprefix(BAD_SENT), int(steps), row)
        if self._too_many(skipped, row.get("steps")):
            blame = f" The term of {_named(bad)} was not finite." if bad else ""
            blame += " The surrogate's fit_loss was not finite." if unfitted else ""
            raise TrainingError(
                f"{skipped} steps of epoch {row['epoch']} had a non-finite loss or gradient and were skipped.{blame}",
                WAYS_OUT,
            )
        if self._too_many(lost, row.get("surrogate_steps")):
            raise TrainingError(
                f"In {lost} of {row['surrogate_steps']} steps of epoch {row['epoch']} the surrogate's loss was not "
                "finite for half of the classes or more: this run would be mostly undefended.",
                WAYS_OUT,
            )
        if self._too_many(unfitted, row.get("fit_steps")):
            raise TrainingError(
                f"In {unfitted} of {row['fit_steps']} steps of epoch {row['epoch']} the surrogate's fit_loss was not "
                "finite: its own parameters were not fitted.",
                WAYS_OUT,
            )

    def _sent(self, defence: str, steps: int, row: dict[str, Any]) -> None:
        self.count(f"steps in which the defence '{defence}' sent values that are not finite", steps)
        if self._too_many(steps, row.get("steps")):
            raise TrainingError(
                f"In {steps} of {row['steps']} steps of epoch {row['epoch']} the defence '{defence}' sent values that "
                "are not finite.",
                "Check its options and its transmit; where it learns what it sends, lower train.lr.",
            )

    def _too_many(self, steps: int, of: int | None) -> bool:
        """An epoch of few steps is lost when all of them are."""
        return steps >= min(self.train.max_nonfinite, self.train.max_nonfinite if of is None else of)

    def _silent(self, row: dict[str, Any]) -> None:
        """The surrogate did nothing for most of an epoch: the notes' slot run was shut off in every logged line."""
        if row.get("rob_loss") is None:
            return
        epoch, shut, classes = row["epoch"], row.get("shut", 0.0), row.get("classes", 1.0)
        if shut >= SHUT_SHARE:
            self.count("epochs in which the surrogate was mostly shut off", 1)
            log.warning(
                "epoch %d: the regulariser was shut off in %.0f %% of the steps, so this run is mostly undefended; set "
                "surrogate.early_shut to 'steps_only' or 'off', with few classes per batch also lower "
                "surrogate.class_gate_a; the [CEM-GATE] lines show the gates",
                epoch,
                100 * shut,
            )
        elif row.get("no_bank", 0.0) >= SHUT_SHARE:
            self.count("epochs without a fitted bank", 1)
            log.warning("epoch %d: the surrogate had no bank and did nothing; were all features non-finite?", epoch)
        elif classes < SHUT_SHARE:  # the mean over steps: less than 0.5 means that most steps had no class at all
            self.count("epochs in which hardly any class had enough samples", 1)
            log.warning(
                "epoch %d: hardly any class had enough samples in a batch, so this run is mostly undefended; use a "
                "larger train.batch_size, train.balanced_batches or surrogate.memory",
                epoch,
            )
        elif row["rob_loss"] == 0:
            if not self.counts.get(ALL_UNDER):
                log.warning(
                    "epoch %d: the penalty is 0, every class lies under its threshold; for more protection lower "
                    "surrogate.var_threshold, together with surrogate.margin_m where there is one",
                    epoch,
                )
            self.count(ALL_UNDER, 1)

    def _collapse(self, row: dict[str, Any]) -> None:
        """Accuracy at chance while features are constant or the surrogate is near zero: the 10 % runs of the notes.

        Those runs had a penalty without a lower bound: it is nowhere near zero when the features have collapsed, and
        what is left of their spread (a few per cent of the noise) only looks small beside what it was at first.
        """
        spread = row.get("feature_spread")
        if self.first_spread is None and spread is not None and math.isfinite(spread):
            self.first_spread = spread
        if row.get("rob_loss") is None or row.get("accuracy") is None:
            return
        if not self.first_rob:  # a surrogate that is still shut off gives 0, which nothing can be compared with
            self.first_rob = abs(row["rob_loss"])
        chance = row["accuracy"] < max(CHANCE_FACTOR / self.num_classes, self.guess + ROUNDING)
        small = max(CONSTANT_SPREAD * max(self.sigma, 1e-3), SHRUNK_SPREAD * (self.first_spread or 0.0))
        constant = spread is not None and spread < small
        acted = row.get("shut", 0.0) < SHUT_SHARE and row.get("no_bank", 0.0) < SHUT_SHARE
        near_zero = acted and abs(row["rob_loss"]) <= SILENT_ROB * self.first_rob
        self.collapsed = self.collapsed + 1 if chance and (constant or near_zero) else 0
        if self.collapsed >= self.train.collapse_patience:
            raise TrainingError(
                f"The features have collapsed: for {self.collapsed} epochs accuracy was {row['accuracy']:.1%}, that of "
                f"guessing, with rob_loss {row['rob_loss']:.4g} and feature spread {spread or 0:.2g}.",
                "Lower train.privacy_weight or surrogate.loss_scale, raise surrogate.var_threshold, set train.wlr to "
                "'capped', or lengthen train.warmup_epochs.",
            )


def _named(defences: list[str]) -> str:
    return f"the defence{'s' * (len(defences) > 1)} {' and '.join(map(repr, defences))}"
