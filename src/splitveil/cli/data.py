"""`splitveil data`: fetch, verify and convert a data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitveil.cli.progress import is_quiet

if TYPE_CHECKING:
    from splitveil.data.dataset import Dataset
    from splitveil.data.source import Progress


def data(
    name: Annotated[str, typer.Argument(help="A registered data set (splitveil list datasets), or a path to check.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A local archive, folder or .npz; or hub, or hub:OWNER/NAME.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Where to store it (default: SPLITVEIL_DATA, else the user's cache folder)."),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side to bring the pictures of an image folder to (data.image_size).", min=1)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fetch, verify and convert a data set.

    Without --from it comes from its official address. A second call finds it stored and does nothing. The name may also
    be the path of an .npz or of an image folder: it is checked and described, and works as `data.name` in a recipe.

    Example: splitveil data cifar10 --from cifar-10-binary.tar.gz
    """
    from splitveil.core.catalogue import DATASETS
    from splitveil.core.config import names_a_path
    from splitveil.core.errors import UsageError
    from splitveil.core.places import data_root
    from splitveil.data import create

    if from_ is not None and not from_.startswith("hub") and not Path(from_).exists():
        raise UsageError(f"There is no file or folder {from_}.", "Give --from an archive, a folder or an .npz.")
    root = data_root() if root is None else root
    if names_a_path(name):
        if from_ is not None:
            raise UsageError(f"'{name}' is a path already.", "Give either a registered name with --from, or a path.")
        dataset = create(name, root=root, image_size=image_size)
        found = {"state": "usable by its path", "verified": "", "path": name, "twins": dataset.twins()}
        result = _summary(dataset) | found
    else:
        if image_size is not None:
            raise UsageError("--image-size is for image folders.", "Leave it out: stored data sets keep their size.")
        source = DATASETS.load(name)
        with _progress(quiet=is_quiet(json_)) as progress:
            receipt = source.store(root, from_, progress)
        path = None if receipt.path is None else str(receipt.path)
        result = _summary(receipt.dataset) | {"state": receipt.state, "verified": receipt.verified, "path": path}
    print(json.dumps(result, indent=2) if json_ else _sentences(result))


def _summary(dataset: Dataset) -> dict[str, Any]:
    info = dataset.info
    return {
        "name": info.name,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "aux": 0 if dataset.aux is None else len(dataset.aux),
        "image_shape": list(info.image_shape),
        "num_classes": info.num_classes,
        "class_sizes": dict(zip(info.class_names, _sizes(dataset), strict=True)),
        "augmentation": asdict(info.augmentation),
        "licence": info.licence,
        "source": info.source,
        "sha256": {"train": dataset.train.digest(), "test": dataset.test.digest()},
    }


def _sizes(dataset: Dataset) -> list[int]:
    """Training pictures of each class."""
    return dataset.train.labels.bincount(minlength=dataset.info.num_classes).tolist()


def _sentences(result: dict[str, Any]) -> str:
    from splitveil.data import TWINS
    from splitveil.data.protocol import LEAST

    channels, height, width = result["image_shape"]
    aux = f" + {result['aux']:,} auxiliary" if result["aux"] else ""
    lines = [
        f"{result['name']}: {result['state']}" + (f" in {result['path']}" if result["path"] else ""),
        f"  {result['train']:,} training + {result['test']:,} test{aux} pictures, {height} x {width} x {channels}, "
        f"{result['num_classes']} classes",
        f"  training pictures {_balance(result['class_sizes'])}",
        f"  in training they are {_moved(**result['augmentation'])}",
        f"  source: {result['source']}; licence: {result['licence']}",
    ]
    if result["train"] < LEAST:
        lines.append(f"  note: nothing can be trained on them: that takes at least {LEAST} training pictures")
    if result.get("twins"):
        lines.append("  note: " + TWINS % (result["twins"], result["test"]))
    if result["verified"]:
        lines.append(f"  verified: {result['verified']}")
    return "\n".join(lines)


def _balance(sizes: dict[str, int]) -> str:
    least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[least] == sizes[most]:
        return f"of each class: {sizes[most]:,}"
    share = sizes[most] / sum(sizes.values())
    ends = f"{sizes[least]:,} ({least}) to {sizes[most]:,} ({most})"
    return f"by class: {ends}; always naming {most} is right for {share:.1%}"


def _moved(crop: int, flip: bool, rotate: float) -> str:
    """What augmentation does to a picture."""
    ways = [f"shifted by up to {crop} pixels"] * (crop > 0) + ["mirrored half of the time"] * flip
    ways += [f"turned by up to {rotate:g} degrees"] * (rotate > 0)
    return f"{', '.join(ways)} (not with data.augment = false)" if ways else "taken as they are"


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, plain lines otherwise, nothing when quiet; all on standard error."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal or quiet:
        yield _plain_lines(console)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(label: str, done: int, total: int | None) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done, total=total)

        yield show


def _plain_lines(console: Any) -> Progress:
    """One line when a step begins and one for each quarter of it."""
    last: dict[str, int] = {}

    def show(label: str, done: int, total: int | None) -> None:
        quarter = 4 * done // total if total else 0
        if last.get(label) != quarter:
            last[label] = quarter
            share = f": {25 * quarter} %" if total else ""
            console.print(f"{label}{share}", markup=False, highlight=False, soft_wrap=True)

    return show
