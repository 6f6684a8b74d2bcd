"""Where the numbers came from, and the commands that make them again."""

from __future__ import annotations

import shlex
from pathlib import Path

from splitveil.core.catalogue import MEASURES
from splitveil.core.errors import ConfigError
from splitveil.core.shell import shown_path
from splitveil.core.toml import dump_toml
from splitveil.experiments.compare.sweep_index import Sweep
from splitveil.experiments.loose import table, text
from splitveil.report import numbers
from splitveil.report.flat_config import flatten
from splitveil.report.markup import Content, Html, data_table, details, join, phrase, say, section, show
from splitveil.report.method import Method
from splitveil.report.run import Run
from splitveil.report.sections.badge import code, named
from splitveil.report.texts import LANGUAGES


def provenance(methods: list[Method], sweeps: list[Sweep], command: str) -> Html:
    blocks = [_run(method, run) for method in methods for run in method.runs]
    body = [say("provenance.page"), _command(command), *map(_sweep, sweeps), *blocks]
    return section("provenance", say("provenance.title"), say("provenance.lead"), join(body))


def report_command(paths: list[Path], out: Path, *, title: str | None, lang: str) -> str:
    """The command that makes the page again."""
    words = ["splitveil", "report", *map(shown_path, paths), "--out", out.name]
    words += ["--title", title] if title else []
    words += ["--lang", lang] if lang != LANGUAGES[0] else []
    return shlex.join(words)


def _sweep(sweep: Sweep) -> Html:
    """The sweep as a whole; finished cells are not run twice."""
    if not sweep.calls:
        return Html("")
    lines = join([_command(line) for line in sweep.commands(shown_path(sweep.path))])
    return Html(f"<p>{say('provenance.sweep')}</p>{lines}")


def _command(line: str) -> Html:
    return Html(
        f'<div class="command"><pre tabindex="0"><code>{show(line)}</code></pre>'
        f'<button type="button" class="copy" hidden>{say("provenance.copy")}</button></div>'
    )


def _run(method: Method, run: Run) -> Html:
    manifest = run.manifest
    data = table(manifest.get("data"))
    stated = _stated(run)
    facts: list[tuple[Content, str | None]] = [
        (say("provenance.signature"), text(run.result.get("signature", run.about.get("signature")))),
        (say("provenance.audit_signature"), run.audit.signature),
        (say("provenance.audited"), run.audit.ended),
        (say("provenance.status"), text(manifest.get("status"))),
        (say("provenance.started"), text(manifest.get("started"))),
        (say("provenance.ended"), text(manifest.get("ended"))),
        (say("word.seed"), run.seed),
        (say("provenance.data"), " ".join(filter(None, (text(data.get("name")), text(data.get("checksum"))))) or None),
        *stated,
        (say("provenance.revision"), text(manifest.get("revision"))),
        (say("provenance.versions"), _line(manifest.get("versions"))),
        (say("provenance.hardware"), _line(manifest.get("hardware"))),
    ]
    rows: list[list[Content]] = [[name, code(value) if value else numbers.DASH] for name, value in facts]
    parts = [
        data_table(phrase("provenance.title"), [say("provenance.fact"), say("provenance.value")], rows, css="facts")
    ]
    folder = shown_path(run.path)
    asked = _asked(run)
    if run.about.get("kind") == "artefact":
        line = shlex.join(["splitveil", "audit", "ARTEFACT", "--out", f"{folder}-again", *asked])
        parts += [Html(f"<p>{say('provenance.again')}</p>"), _command(line), _unsaid(run)]
    elif run.about.get("kind") == "run":
        line = shlex.join(["splitveil", "audit", "RUN", "--data", "DATA", "--out", f"{folder}-again", *asked])
        parts += [Html(f"<p>{say('provenance.again')}</p>"), _command(line), _unsaid(run)]
    elif run.config and not run.about:
        again = f"{folder}-again"
        lines = [shlex.join(["splitveil", "train", f"{folder}/config.toml", "--out", again])]
        if run.audit.attacks:
            lines.append(shlex.join(["splitveil", "audit", again, *asked]))
        parts += [Html(f"<p>{say('provenance.again')}</p>"), _command("\n".join(lines)), _unsaid(run)]
    if run.config:
        parts.append(details(say("provenance.config"), Html(f'<pre tabindex="0">{show(_toml(run))}</pre>')))
    signature = run.audit.signature or text(run.result.get("signature"))
    pinned = f'<span class="signature">{code(signature)}</span>' if signature else ""
    return details(
        Html(f'{named(method)} <span class="folder">{show(run.name)}</span>{pinned}'), join(parts), css="run"
    )


def _asked(run: Run) -> list[str]:
    """The options of `splitveil audit` that make an audit again; those of earlier versions tell their tier alone."""
    audit = run.audit
    words = ["--tier", audit.tier] if audit.tier else []
    if not audit.plan:
        return words
    recipe = table(run.config.get("audit"))
    words += ["--mode", audit.mode] if recipe and audit.mode not in (None, recipe.get("mode")) else []
    words += [word for name in audit.plan for word in ("--attack", name)]
    words += [] if audit.epochs is None else ["--epochs", str(audit.epochs)]
    words += [] if audit.num_images is None else ["--num-images", str(audit.num_images)]
    words += [] if audit.seed in (None, run.seed) else ["--seed", str(audit.seed)]
    words += [word for name in audit.measures if name in MEASURES.names() for word in ("--measure", name)]
    if audit.sane is None and audit.attacks:
        return [*words, "--no-sanity"]
    return [*words, "--sanity"] if recipe.get("sanity") is False else words


def _unsaid(run: Run) -> Html:
    """What made the audit and no command says: options of attacks that neither the recipe nor --epochs gives, and
    functions as measures."""
    audit, recipe = run.audit, table(table(run.config.get("audit")).get("attacks"))
    found = [
        f"{name}.{key} = {value}"
        for name, options in audit.own_options.items()
        for key, value in options.items()
        if table(recipe.get(name)).get(key) != value and (key, value) != ("epochs", audit.epochs)
    ]
    found += [name for name in audit.measures if name not in MEASURES.names()]
    return Html(f"<p>{say('provenance.unsaid', what=', '.join(found))}</p>") if found else Html("")


def _stated(run: Run) -> list[tuple[Content, str | None]]:
    """What an artefact states of itself, where only its audit is here; a run folder has all of it in its settings."""
    about = run.about
    if not about:
        return []
    model, cut = text(about.get("model")), text(about.get("cut"))
    facts: list[tuple[Content, str | None]] = []
    if about.get("kind") != "run":
        facts += [
            (say("provenance.artefact"), text(about.get("artefact"))),
            (say("provenance.model"), f"{model}, cut {cut}" if model and cut else model),
        ]
    if run.config or run.states_defences:
        facts += [
            (say("provenance.surrogate"), run.surrogate or "none"),
            (say("provenance.defences"), ", ".join(run.defences) or "none"),
        ]
    return facts


def _line(value: object) -> str | None:
    return ", ".join(f"{key} {item}" for key, item in flatten(value).items() if item != "null") or None


def _toml(run: Run) -> str:
    try:
        return dump_toml(run.config)
    except ConfigError:  # a foreign file may hold dates and other values that our small writer does not know
        return "\n".join(f"{key} = {value}" for key, value in flatten(run.config).items())
