"""`splitveil audit`: attack a run, an artefact, a foreign model or an endpoint, and say how much leaked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from splitveil.audit.report import AuditReport
    from splitveil.audit.subjects import Mode

PATIENCE_SECONDS = 60.0  # for the answer of an endpoint


def audit(
    run: Annotated[
        Path | None,
        typer.Argument(
            show_default=False,
            help="A run folder made by splitveil train; an artefact of splitveil export; or a model of your own, as "
            "FILE.py:NAME or package.module:NAME.",
        ),
    ] = None,
    tier: Annotated[str | None, typer.Option(help="smoke, standard or deep (default: the recipe's).")] = None,
    mode: Annotated[str | None, typer.Option(help="training_time or inference_time (default: the recipe's).")] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Run this attack only (repeatable; see splitveil list attacks)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each trained attack, instead of the tier's.", min=1)
    ] = None,
    num_images: Annotated[
        int | None, typer.Option(help="Test pictures to attack, instead of the tier's number.", min=1)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed of the attacks (default: the run's).")] = None,
    sanity: Annotated[
        bool | None,
        typer.Option("--sanity/--no-sanity", help="First prove the attacks themselves (default: the recipe's)."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", help="Also compute this measure, by name, such as lpips (repeatable)."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help='Limits of the worst case, e.g. "ssim<=0.5"; exit code 3 if missed.')
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Pictures to attack, where they are not the recipe's or there is none: a data set, an .npz or an "
            "image folder."
        ),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side to bring the pictures of an image folder to.", min=1)
    ] = None,
    at: Annotated[str | None, typer.Option(help="Cut a model of your own after this layer.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="State dict for a model of your own: .safetensors, or .pt of torch.save.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the audit of anything but a run on its own pictures (default: runs/audit-NAME, of a run "
            "on other pictures runs/audit-NAME-DATA)."
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="Address of an edge half that gives its features (splitveil edge --serve)."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the endpoint's token (or in SPLITVEIL_TOKEN).")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="Certificates to trust for the endpoint (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the endpoint's token without TLS, all the same.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Attack again even where this very audit is finished.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print audit.json instead of a table, with the judgement on --budget.")
    ] = False,
) -> None:
    """Attack a finished run, an exported artefact, or a model of your own, and say how much leaked.

    The result is written to RUN/audit, or to RUN/audit-MODE with another --mode than the recipe's. An audit that was
    interrupted goes on after the last attack it finished, and inside a long one after the last network it had trained.
    A finished audit with other settings is kept: it moves to RUN/audit/earlier/1, the next one to earlier/2, and so on.
    Where the same audit of the same weights is finished already, it is read, and --budget is judged on it.

    With --data a run is attacked on other pictures, of the same shape and classes; the attacker gets a quarter of their
    training part, and the result is written to OUT/audit.

    Of an artefact, what edge.onnx sends is attacked, after a check that the graphs are those of its weights. The
    pictures are the recipe's, or --data; the result is written to OUT/audit.

    A model that Splitveil did not train is named by its code, which is executed: a module, a pair (edge, cloud), or a
    function without arguments that returns one of them. The attacker gets a quarter of the training pictures in --data.
    The result is written to OUT/audit, and a second call attacks again.

    Behind --endpoint nobody but its owner knows code and weights: attacks that need them are left out, and the rest
    asks for what is sent, over the wire. The result is written to OUT/audit, and a second call attacks again.

    Example: splitveil audit runs/mine --tier smoke --budget "ssim<=0.5"

    Example: splitveil audit runs/mine --data photos/ --image-size 28 --out runs/mine-on-photos

    Example: splitveil audit artefacts/mine --out runs/audit-mine

    Example: splitveil audit net.py:Net --weights net.pt --at layer1 --data fashion-mini

    Example: splitveil audit --endpoint http://127.0.0.1:8751 --data fashion-mini
    """
    from splitveil.audit.budget import check_budget, judged, parse_budget
    from splitveil.core.errors import UsageError

    terms = [] if budget is None else parse_budget(budget)
    chosen_mode = _mode(mode)
    attack_it: Callable[..., AuditReport]
    if endpoint is not None:
        if (needless := _given({"RUN": run, "--at": at, "--weights": weights})) is not None:
            raise UsageError(f"An endpoint is attacked as it is, without {needless}.", "Leave it out.")
        attack_it = _behind(endpoint, data, image_size, out, token_file, ca, insecure)
    elif (needless := _given({"--token-file": token_file, "--ca": ca, "--insecure": insecure or None})) is not None:
        raise UsageError(f"{needless} is for an endpoint.", f"Add --endpoint URL, or leave out {needless}.")
    elif run is None:
        raise UsageError("There is nothing to attack.", "Name a run, an artefact or FILE.py:NAME; or give --endpoint.")
    else:
        attack_it = _at_hand(run, data, image_size, at, weights, out, again)

    from splitveil.cli.progress import progress
    from splitveil.core.shell import command

    with progress("attacking", quiet=json_) as advance:
        report = attack_it(
            tier=tier,
            mode=chosen_mode,
            attacks=attack or None,
            epochs=epochs,
            num_images=num_images,
            seed=seed,
            sanity=sanity,
            verdict=bool(terms),
            measures=measure or None,
            device=device,
            progress=advance,
        )
    if json_:
        gate = {} if budget is None else {"budget": judged(terms, report.tree)}
        print(json.dumps(report.tree | gate, indent=2))
    else:
        print(report)
        if report.folder is not None:
            print(f"The audit is in {report.folder}; show it with: {command('report', report.folder.parent)}")
    for sentence in check_budget(terms, report.tree):
        print(sentence, file=sys.stderr)


def _at_hand(
    run: Path,
    data: str | None,
    image_size: int | None,
    at: str | None,
    weights: Path | None,
    out: Path | None,
    again: bool,
) -> Callable[..., AuditReport]:
    """What attacks a run, an artefact, or a model of the user's own."""
    from splitveil.core.errors import NotARunError, UsageError
    from splitveil.core.nearest_folder import folder_hint
    from splitveil.core.run_folder import RunFolder
    from splitveil.core.shell import command
    from splitveil.serving.artefact import is_artefact

    if run.as_posix().startswith(("http:/", "https:/")):
        address = run.as_posix().replace(":/", "://", 1)  # a path has one stroke where an address has two
        raise UsageError(
            "What lies behind an address is attacked with --endpoint.",
            f"Try: {command('audit', '--endpoint', address, '--data', 'NAME')}",
        )
    place, _, name = str(run).rpartition(":")
    if place and name.isidentifier() and not run.exists():
        if data is None:
            raise UsageError(
                "A model of your own needs pictures.", "Add --data with a data set, an .npz or an image folder."
            )
        from splitveil.audit.foreign import audit_own

        return partial(audit_own, str(run), data=data, image_size=image_size, at=at, weights=weights, out=out)
    if not run.exists():
        otherwise = "Make one with splitveil train or splitveil export; name a model of your own as FILE.py:NAME."
        raise NotARunError(f"There is no run folder or artefact {run}.", folder_hint(run, otherwise))
    if run.is_file():
        raise NotARunError(f"{run} is a file, but a run or an artefact is a folder.", _meant_by(run))
    if (needless := _given({"--at": at, "--weights": weights})) is not None:
        raise UsageError(
            f"{needless} is for models of your own, but {run} names no code.",
            "A run brings its own; name a model as FILE.py:NAME.",
        )
    if is_artefact(run):
        from splitveil.audit.served import audit_artefact

        return partial(audit_artefact, str(run), data=data, image_size=image_size, out=out, again=again)
    RunFolder.open(run).weights()  # a run that cannot be attacked is refused before torch is loaded
    if data is not None:
        from splitveil.audit.other_pictures import audit_run_on

        return partial(audit_run_on, str(run), data=data, image_size=image_size, out=out, again=again)
    if (needless := _given({"--image-size": image_size, "--out": out})) is not None:
        raise UsageError(
            f"{needless} of a run goes with --data: on its own pictures a run is audited in {run / 'audit'}.",
            f"Leave out {needless}, or name other pictures with --data; to leave the run as it is, audit a copy.",
        )
    from splitveil.audit.run import audit_run

    return partial(audit_run, str(run), again=again)


def _given(options: dict[str, object]) -> str | None:
    """The first of these options that has a value."""
    return next((name for name, value in options.items() if value is not None), None)


def _meant_by(file: Path) -> str:
    """What somebody may have meant who names a file."""
    from splitveil.core.shell import command

    if file.suffix == ".py":
        return f"Name the model in it: {command('audit', f'{file}:NAME', '--data', 'NAME')}"
    if file.suffix in (".pt", ".pth", ".safetensors"):
        return f"Weights go with the code of their model: {command('audit', 'FILE.py:NAME', '--weights', file)}"
    return f"Try its folder: {file.parent}"


def _behind(
    endpoint: str,
    data: str | None,
    image_size: int | None,
    out: Path | None,
    token_file: Path | None,
    ca: Path | None,
    insecure: bool,
) -> Callable[..., AuditReport]:
    """What attacks an edge half behind an address."""
    from splitveil.core.errors import UsageError
    from splitveil.core.listening import read_token
    from splitveil.serving.transport import HttpTransport

    if data is None:
        raise UsageError("An endpoint needs pictures.", "Add --data with a data set, an .npz or an image folder.")
    token = read_token(token_file)
    transport = HttpTransport(endpoint, timeout=PATIENCE_SECONDS, ca=ca, insecure=insecure)

    from splitveil.audit.endpoint import audit_endpoint

    return partial(audit_endpoint, transport, data=data, token=token, image_size=image_size, out=out)


def _mode(name: str | None) -> Mode | None:
    from splitveil.core.errors import UnknownNameError, nearest

    modes: dict[str, Mode] = {"training_time": "training_time", "inference_time": "inference_time"}
    if name is not None and name not in modes:
        raise UnknownNameError(f"There is no mode called '{name}'.", nearest(name, modes))
    return None if name is None else modes[name]
