"""What a reader should know besides the numbers: the verdict, and what speaks against trusting it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from splitveil.attacks.queries import PROBES, repeatable
from splitveil.audit.metrics import PictureScores
from splitveil.data.augment import to_float
from splitveil.functional.guessing import beats_guessing
from splitveil.models.split import SplitModel

NO_PICTURES = "No attack of this audit made pictures: there is no worst case, and no verdict on pictures."


def verdict(
    worst: PictureScores,
    floor: PictureScores,
    failures: dict[str, str],
    sanity: dict[str, Any] | None,
    doubts: list[str],
) -> dict[str, Any] | None:
    """How far the attacks came from guessing (0) to the picture (1); None where that is not to be trusted."""
    if sanity is None or not sanity["passed"] or failures or doubts:
        return None
    guess, leaked = float(floor.mse.mean()), float(worst.mse.mean())
    return {"leak": 1 - leaked / guess if guess > 0 else 0.0, "measure": "1 - worst-case MSE / MSE of the mean picture"}


def no_verdict(sanity: dict[str, Any] | None, failures: dict[str, str], doubts: list[str]) -> list[str]:
    """Why an audit that was to have a verdict has none; nothing where the caller left the check out."""
    reasons = list(doubts)
    if sanity is not None and not sanity["undefended"]["passed"]:
        reasons.append("no attack, in its short form, could break a model that sends the picture itself")
    if sanity is not None and not sanity["constant"]["passed"]:
        reasons.append("on a model that sends nothing the attacks gave no answer, or a better one than guessing")
    if failures:
        reasons.append(f"{' and '.join(failures)} broke down")
    return [f"There is no verdict: {'; '.join(reasons)}."] if reasons else []


def less_than_the_answer(worst: PictureScores, answered: PictureScores | None, accuracy_of: str = "model") -> list[str]:
    """Whoever hears the model's answer has the mean picture of that class: attacks that reach a tenth less have failed.

    Less than a tenth is no failure: where the class is all that is sent, decoders come close to its mean, not below it.
    Of an endpoint nobody hears the answer; there it is that of the auditor's classifier, which has the feature alone.
    """
    if answered is None or len(worst) < 2:
        return []
    by_answer = answered.mse[: len(worst)]
    more = worst.mse - 1.1 * by_answer
    if float(more.mean()) <= 2 * float(more.std()) / len(more) ** 0.5:  # two standard errors
        return []
    who, reader = ("the model itself", "the model")
    if accuracy_of == "auditor":
        who, reader = ("the auditor's own classifier", "that classifier")
    return [
        f"the mean picture of the class that {who} names scores MSE {float(by_answer.mean()):.4f}, and all attacks "
        f"together {float(worst.mse.mean()):.4f}, so they read less from the feature than {reader} does"
    ]


def single_pictures(worst: PictureScores, guess: PictureScores) -> list[str]:
    """A good average may hide that some pictures are sent as they are."""
    if len(worst) == 0 or float(worst.mse.mean()) < 0.5 * float(guess.mse.mean()):  # then all of them leak
        return []
    bare = (worst.mse <= 0.1 * guess.mse) & (guess.mse > 1e-6)
    count = int(bare.sum())
    if count == 0:
        return []
    left = float(worst.mse.mean() / guess.mse.mean())
    return [
        f"{count} of {len(worst)} pictures came back with a tenth of the error of guessing or less, although on "
        f"average {left:.0%} of it is left: the average does not speak for them."
    ]


def warnings(entries: dict[str, Any], floor: PictureScores, num_images: int) -> list[str]:
    found = []
    if num_images < 30:
        attacked = "1 picture was" if num_images == 1 else f"{num_images} pictures were"
        found.append(f"Only {attacked} attacked: the intervals mean little.")
    if float(floor.mse.mean()) < 1e-6:
        found.append("The pictures hardly differ from their mean: no attack can show anything on them.")
    single = [name for name, entry in entries.items() if len(entry["curve"]) == 1]
    growing = [name for name, entry in entries.items() if entry.get("still_growing")]
    improving = [
        name for name, entry in entries.items() if "still_growing" not in entry and _still_improving(entry["curve"])
    ]
    if single:
        found.append(f"Made a single pass, so whether a longer one would leak more is not known: {', '.join(single)}.")
    if growing:
        found.append(
            f"Gained from every growth that was allowed, so a larger one would leak more: {', '.join(growing)}."
        )
    if improving:
        found.append(f"Still improving at the end, so a longer attack would leak more: {', '.join(improving)}.")
    return found + behind_least_squares(entries)


def behind_least_squares(entries: dict[str, Any]) -> list[str]:
    """A network can do what a matrix does: where the best one does worse, it was kept from learning, and proves
    nothing."""
    intervals = {name: entry.get("mse_ci95") for name, entry in entries.items()}  # None for a single picture
    networks = [(intervals[name], name) for name in ("decoder", "decoder_strong") if intervals.get(name)]
    matrix = intervals.get("linear")
    if not networks or not matrix:
        return []
    network, name = min(networks)
    if matrix[1] >= network[0]:
        return []
    return [
        f"The attack '{name}' stays behind least squares ('linear'): it learned too little of these features, "
        "so that what a better decoder would make of them is not known."
    ]


def no_better_than_guessing(
    entries: dict[str, Any], worst: PictureScores, floor_scores: dict[str, PictureScores]
) -> list[str]:
    """Attacks that a guess beats show nothing; and where the mean of the right class beats all of them, the class may
    be all that leaked. Costly attacks, and with them `worst`, are about the first pictures of `floor_scores` only."""
    guess = floor_scores["mean_image"].mse
    failed = []
    for name, entry in entries.items():
        interval = entry["mse_ci95"]  # None for a single picture
        # beyond the interval: on a model that tells nothing, an attack is about as good as the guess
        if interval is not None and interval[0] > float(guess[: entry["num_images"]].mean()):
            failed.append(name)
    found = []
    if failed:
        found.append(
            f"Worse than guessing the mean picture, so no evidence for the defence: {', '.join(failed)}. "
            "A longer attack may do better."
        )
    if len(worst) and "class_mean" in floor_scores:
        reached = float(worst.mse.mean())
        by_class = float(floor_scores["class_mean"].mse[: len(worst)].mean())
        if reached >= by_class:
            found.append(
                f"Guessing the mean picture of the right class scores MSE {by_class:.4f}, and the worst case is "
                f"{reached:.4f}: the attacks may have found the class and nothing else."
            )
    return found


def no_use(accuracy: float, labels: Tensor, accuracy_of: str = "model") -> list[str]:
    """A network that was never trained, or has collapsed, may well leak little."""
    who = "The auditor's own classifier" if accuracy_of == "auditor" else "The model"
    if beats_guessing(accuracy, labels):
        return []
    return [
        f"{who} names the class of {accuracy:.1%} of the pictures, no better than always naming the most frequent "
        "one: what such a model leaks says nothing about one that works."
    ]


def fewer_pictures(entries: dict[str, Any], shared: int) -> list[str]:
    """Costly attacks look at the first pictures only; the worst case is about those."""
    if all(entry["num_images"] == shared for entry in entries.values()):
        return []
    first = "first picture" if shared == 1 else f"first {shared} pictures"
    return [f"The worst case is over the {first}, which every attack looked at."]


def _still_improving(curve: list[list[float]]) -> bool:
    """Whether the error fell by more than 3 % over the last quarter of a curve of (effort, error).

    Two epochs are enough to tell. Where the effort is the size of a network, a short curve says nothing about training.
    """
    errors = [error for _, error in curve]
    counts_epochs = [effort for effort, _ in curve] == list(range(1, len(curve) + 1))
    if len(errors) < (2 if counts_epochs else 4):
        return False
    return errors[-1] < 0.97 * errors[len(errors) * 3 // 4 - 1]


def random_edge(model: SplitModel, pictures: Tensor) -> list[str]:
    """An edge half that draws random numbers itself is attacked as it is, but no seed fixes what it draws."""
    if repeatable(model.channel()[0], pictures):
        return []
    return ["The edge half gives other features each time: no seed fixes them, and another run gives other numbers."]


@torch.no_grad()
def missing_noise(model: SplitModel, pictures: Tensor) -> list[str]:
    """A model may name noise that it does not add, or that is nothing beside its features: nobody sees it by a name."""
    stated = model.stated_noise()
    if not stated:
        return []
    few = to_float(pictures[:PROBES])
    first, second = (model.send(few, torch.Generator(few.device).manual_seed(seed)) for seed in (0, 1))
    between_pictures = (first - first.mean(dim=0)).square().mean().sqrt()
    if (first - second).square().mean().sqrt() > 1e-3 * between_pictures:
        return []
    return [
        f"The model states noise ({', '.join(stated)}), but two transmissions of a picture differ by less than a "
        "thousandth of what pictures differ by: such noise hides nothing."
    ]


def hidden_weights(model: SplitModel) -> list[str]:
    """What an audit of an endpoint, or of graphs alone, cannot say."""
    if not model.hidden:
        return []
    known = f"{model.why_hidden}: an attacker who has the device may do more, and no bound is known."
    return [f"{known} {model.caveat}".rstrip()]


def missing_counter_attacks(model: SplitModel, run: set[str]) -> list[str]:
    """A defence names the attacks that a knowing adversary would use; say which of them this tier left out."""
    found = []
    for name, defence in model.defences.items():
        if getattr(defence, "idle", False):
            continue
        missing = [attack for attack in getattr(defence, "counter_attacks", ()) if attack not in run]
        if missing:
            found.append(f"Against the defence '{name}' a knowing attacker would also use {', '.join(missing)}.")
    return found
