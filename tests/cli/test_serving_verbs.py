"""`splitveil cloud` and `splitveil edge` as a user meets them, without a network."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import signal
import socket
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from tests.worlds.app_transport import AppTransport, opened
from tests.worlds.small_artefact import write_small_artefact

from splitveil.__main__ import main as command
from splitveil.cli import _interruptible, app, main
from splitveil.cli.audit import _at_hand
from splitveil.core.errors import ServingError, UsageError
from splitveil.serving.artefact import read
from splitveil.serving.client import EdgeClient
from splitveil.serving.cloud import build_app


@pytest.fixture
def artefact(tmp_path):
    write_small_artefact(tmp_path / "artefact")
    return tmp_path / "artefact"


@pytest.fixture
def photos(tmp_path):
    """A grey picture of the model's size, a large one in colour, and a file that is no picture."""
    folder = tmp_path / "photos"
    folder.mkdir()
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (4, 4), np.uint8)).save(folder / "a.png")
    Image.fromarray(random.integers(0, 256, (30, 20, 3), np.uint8)).save(folder / "b.JPG", "JPEG")
    (folder / "notes.txt").write_text("not looked at")
    return folder


def failing(capsys, *words) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return caught.value.code, message


@pytest.mark.parametrize(("verb", "example"), [("cloud", "cloud artefact --port"), ("edge", "edge artefact photos/")])
def test_help_shows_an_example(verb, example):
    done = CliRunner().invoke(app, [verb, "--help"])
    assert done.exit_code == 0
    assert f"Example: splitveil {example}" in done.output


@pytest.mark.parametrize("words", [["cloud"], ["edge", "--serve", "127.0.0.1:0"], ["edge", "x.png"]])
def test_missing_extra_is_one_sentence(artefact, capsys, monkeypatch, words):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else real(name, *rest)
    )
    code, message = failing(capsys, words[0], artefact, *words[1:])
    assert code == 1
    assert "pip install -e '.[serve]'" in message


def test_edge_without_a_server_answers_and_says_so(artefact, photos, capsys):
    main_ok(["edge", str(artefact), str(photos)])
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 7
    assert out[0].startswith(str(photos / "a.png"))
    assert out[1].startswith(str(photos / "b.JPG"))
    assert any(name in out[0] for name in ("bag", "boot", "coat"))
    assert out[0].endswith("%")
    assert out[2] == "note: 1 picture was brought to 4 x 4, edges cut to that form"
    assert out[3] == "note: 1 picture was converted to grey"
    assert out[4] == "note: 1 file was left out: not named .png, .jpg or .jpeg"
    assert out[5].startswith("to a server this would send ")
    assert "have 32 at the model's size" in out[5]
    assert out[6].startswith("answered in this process")


def main_ok(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0


def test_json(artefact, photos, capsys):
    main_ok(["edge", str(artefact), str(photos), "--json", "--bits", "8"])
    tree = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in tree["pictures"]] == [str(photos / "a.png"), str(photos / "b.JPG")]
    assert all(0 <= row["probability"] <= 1 for row in tree["pictures"])
    assert tree["bits"] == 8
    assert tree["picture_bytes"] == 32
    assert tree["messages"] == 1


def test_a_file_that_is_no_picture_does_not_stop_the_others(artefact, photos, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["edge", str(artefact), str(photos / "notes.txt"), str(photos / "a.png"), "--json"])
    assert caught.value.code == 1
    bad, good = json.loads(capsys.readouterr().out)["pictures"]
    assert "not a readable picture" in bad["error"]
    assert "label" in good


def test_a_huge_picture_is_refused_before_it_is_decoded(artefact, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("splitveil.serving.files.LARGEST", 100)
    Image.new("L", (20, 20)).save(tmp_path / "huge.png")
    with pytest.raises(SystemExit) as caught:
        main(["edge", str(artefact), str(tmp_path / "huge.png"), "--json"])
    assert caught.value.code == 1
    assert "million pixels" in json.loads(capsys.readouterr().out)["pictures"][0]["error"]


def test_only_png_and_jpeg_are_read_whatever_the_name(artefact, photos, tmp_path, capsys):
    Image.new("L", (4, 4)).save(tmp_path / "a.gif")
    Image.new("L", (4, 4)).save(tmp_path / "b.png", "GIF")
    (photos / "c.GIF").write_bytes((tmp_path / "a.gif").read_bytes())
    (photos / ".hidden").write_text("")
    with pytest.raises(SystemExit) as caught:
        main(["edge", str(artefact), str(tmp_path / "a.gif"), str(tmp_path / "b.png"), str(photos), "--json"])
    assert caught.value.code == 1
    tree = json.loads(capsys.readouterr().out)
    first, second, *rest = tree["pictures"]
    assert first["error"] == second["error"] == "the file is not a readable picture (PNG or JPEG)."
    assert [Path(row["file"]).name for row in rest] == ["a.png", "b.JPG"]
    assert tree["ignored"] == 2  # notes.txt and c.GIF


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_dropped_with_a_note(artefact, tmp_path, capsys, mode):
    options = {"transparency": 0} if mode == "P" else {}
    Image.new(mode, (4, 4)).save(tmp_path / "clear.png", **options)
    Image.new("L", (4, 4)).save(tmp_path / "whole.png")
    main_ok(["edge", str(artefact), str(tmp_path / "clear.png"), str(tmp_path / "whole.png")])
    assert "note: 1 picture was transparent in part: the colours below count" in capsys.readouterr().out


def test_reasons_do_not_repeat_the_file_nor_their_dots(artefact, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    Image.new("L", (20, 20)).save(tmp_path / "bomb.png")
    with pytest.raises(SystemExit):
        main(["edge", str(artefact), str(photos / "notes.txt"), str(tmp_path / "bomb.png")])
    text, bomb, cost, *_ = capsys.readouterr().out.splitlines()
    assert text.count("notes.txt") == 1
    assert bomb.count("bomb.png") == 1
    assert bomb.endswith("attack.")
    assert ".." not in bomb
    assert cost == "nothing would be sent"


def test_one_picture_is_no_pictures(artefact, photos, capsys):
    main_ok(["edge", str(artefact), str(photos / "a.png")])
    cost = capsys.readouterr().out.splitlines()[1]
    assert "for 1 picture (32 bits a value); the picture itself has 16 at the model's size, its file " in cost


def test_without_a_server_nothing_is_sent_and_nothing_counted(artefact, photos, tmp_path, capsys, caplog):
    main_ok(["edge", str(artefact), *[str(photos / "a.png")] * 20])
    assert "times" not in caplog.text
    for option, value in (("--repeat-limit", "1"), ("--repeat-file", str(tmp_path / "counts"))):
        code, message = failing(capsys, "edge", artefact, photos, option, value)
        assert code == 2
        assert f"{option} counts what is sent" in message
    assert not (tmp_path / "counts").exists()


def test_repeated_pictures(artefact, photos, tmp_path, capsys, monkeypatch):
    words = ["edge", str(artefact), str(photos / "a.png"), str(photos / "a.png"), "--json", "--repeat-limit", "1"]
    words += ["--repeat-file", str(tmp_path / "counts"), "--url", "http://127.0.0.1:8750"]

    def call() -> list[dict[str, object]]:
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 1
        return json.loads(capsys.readouterr().out)["pictures"]

    with opened(build_app(read(artefact))) as app:
        monkeypatch.setattr("splitveil.serving.transport.HttpTransport", lambda url, **options: AppTransport(app))
        first, second = call()
        assert "label" in first
        assert second["error"] == "not sent: the limit of 1 was reached"
        assert all("error" in row for row in call()), "the counts were kept"


def test_where_the_server_goes_away_answers_are_kept_and_what_never_left_is_not_counted(
    artefact, tmp_path, capsys, monkeypatch
):
    """Seven pictures, two in a message; the third message finds no server. The same call again goes on."""
    folder, random = tmp_path / "many", np.random.default_rng(0)
    folder.mkdir()
    for number in range(7):
        Image.fromarray(random.integers(0, 256, (4, 4), np.uint8)).save(folder / f"{number}.png")
    monkeypatch.setattr("splitveil.serving.client.PER_MESSAGE", 2)
    words = ["edge", str(artefact), str(folder), "--json", "--repeat-limit", "1"]
    words += ["--repeat-file", str(tmp_path / "counts"), "--url", "http://127.0.0.1:8750"]

    class Ending(AppTransport):
        def request(self, method, path, body=b"", token=None):
            if len(self.bodies) == 2:
                raise ServingError("The server is gone.")
            return super().request(method, path, body, token)

    def call(transport):
        with opened(build_app(read(artefact))) as app:
            monkeypatch.setattr("splitveil.serving.transport.HttpTransport", lambda url, **options: transport(app))
            with pytest.raises(SystemExit) as ended:
                main(words)
        out, err = capsys.readouterr()
        assert ended.value.code == 1
        return json.loads(out), err

    first, said = call(Ending)
    assert ["label" in row for row in first["pictures"]] == [True] * 4
    assert (first["messages"], first["unanswered"]) == (2, 2)
    assert "interrupted: 4 of 7 pictures were dealt with" in said
    assert "2 pictures got no answer, but the server may have them, so --repeat-file counts them as sent" in said
    again, said = call(AppTransport)
    assert ["label" in row for row in again["pictures"]] == [False] * 6 + [True]
    assert again["unanswered"] == 0
    assert "no answer" not in said


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (ServingError("The server is gone."), 1, "The server is gone."),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
    ],
)
@pytest.mark.parametrize("json_", [False, True])
def test_answers_are_told_where_the_rest_was_interrupted(
    artefact, photos, capsys, monkeypatch, error, code, said, json_
):
    right = EdgeClient.classify
    answers = iter([right])

    def once(client, pictures):
        if (answer := next(answers, None)) is None:
            raise error
        return answer(client, pictures)

    monkeypatch.setattr(EdgeClient, "classify", once)
    monkeypatch.setattr("splitveil.serving.client.PER_MESSAGE", 1)
    with pytest.raises(SystemExit) as ended:
        main(["edge", str(artefact), str(photos), *(["--json"] if json_ else [])])
    out, err = capsys.readouterr()
    assert ended.value.code == code
    assert "interrupted: 1 of 2 pictures were dealt with" in err
    assert said in err
    assert ("error: " in err) == (code == 1)
    assert str(photos / "a.png") in out
    assert str(photos / "b.JPG") not in out
    if json_:
        assert "label" in json.loads(out)["pictures"][0]
    with pytest.raises(SystemExit) as ended:
        main(["edge", str(artefact), str(photos)])  # nothing is sent at all
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (code, "")
    assert "dealt with" not in err


@pytest.mark.parametrize(
    "moment", ["splitveil.serving.client.EdgeClient.close", "splitveil.serving.files.Classified.tree"]
)
def test_answers_are_told_where_ctrl_c_comes_after_the_last(artefact, photos, capsys, monkeypatch, moment):
    """While the connection is closed, or while they are printed."""
    place, _, name = moment.rpartition(".")
    done = getattr(pkgutil.resolve_name(place), name)

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return done(*args)

    monkeypatch.setattr(moment, interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["edge", str(artefact), str(photos), "--json"])
    assert ended.value.code == 130
    assert ["label" in row for row in json.loads(capsys.readouterr().out)["pictures"]] == [True, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no pictures to classify"),
        (["nowhere.png"], "no file or folder nowhere.png"),
        (["{photos}", "--bits", "7"], "7 bits"),
        (["{photos}", "--url", "127.0.0.1:8750"], "is no address"),
        (["{photos}", "--url", "ftp://x"], "is no address"),
        (["{photos}", "--url", "http://x:99999"], "is no address"),
        (["{photos}", "--url", "http://name:word@127.0.0.1:1"], "is no address"),
        (["{photos}", "--url", "http://127.0.0.1:1", "--ca", "x"], "--ca is for addresses"),
        (["{photos}", "--url", "https://127.0.0.1:1", "--ca", "x"], "There is no file x"),
        (["{photos}", "--ca", "x"], "--ca is for a server"),
        (["{photos}", "--serve", "127.0.0.1:0"], "classifies nothing"),
        (["--serve", "8751"], "no place to listen"),
        (["--serve", "127.0.0.1:x"], "no place to listen"),
        (["--serve", "0.0.0.0:0"], "needs a token"),
        (["--serve", "127.0.0.1:0", "--tls-cert", "x"], "both --tls-cert and --tls-key"),
        (["{photos}", "--token-file", "nowhere"], "token cannot be read"),
        (["{empty}"], "has no PNG or JPEG files"),
        (["{photos}", "--repeat-file", "{photos}", "--url", "http://127.0.0.1:1"], "is a folder"),
    ],
)
def test_wrong_calls_of_edge(artefact, photos, tmp_path, capsys, monkeypatch, words, says):
    monkeypatch.delenv("SPLITVEIL_TOKEN", raising=False)
    (tmp_path / "empty").mkdir()
    given = [word.format(photos=photos, empty=tmp_path / "empty") for word in words]
    code, message = failing(capsys, "edge", artefact, *given)
    assert code == 2
    assert says in message
    assert message.count("\n") <= 2


def test_a_token_does_not_travel_in_the_clear(artefact, photos, tmp_path, capsys):
    (tmp_path / "token").write_text("a-long-enough-token\n")
    words = ("edge", artefact, photos, "--url", "http://192.0.2.1:8750", "--token-file", tmp_path / "token")
    code, message = failing(capsys, *words)
    assert code == 2
    assert "could read the token" in message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "0.0.0.0"], "needs a token"),
        (["--host", "no such host", "--insecure"], "no address"),
        (["--tls-key", "x"], "both --tls-cert and --tls-key"),
        (["--tls-cert", "x", "--tls-key", "y"], "There is no file x"),
        (["--tls-cert", "{text}", "--tls-key", "{text}"], "cannot be used for TLS"),
        (["--token-file", "{empty}"], "holds no token"),
        (["--token-file", "{short}"], "too short"),
    ],
)
def test_wrong_calls_of_cloud(artefact, tmp_path, capsys, monkeypatch, words, says):
    monkeypatch.delenv("SPLITVEIL_TOKEN", raising=False)
    for name, content in {"text": "hello, world", "empty": "\n", "short": "abc"}.items():
        (tmp_path / name).write_text(content)
    given = [word.format(**{name: tmp_path / name for name in ("text", "empty", "short")}) for word in words]
    code, message = failing(capsys, "cloud", artefact, *given)
    assert code == 2
    assert says in message
    assert message.count("\n") <= 2


def test_port_that_is_taken(artefact, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, message = failing(capsys, "cloud", artefact, "--port", other.getsockname()[1])
        edge_code, edge_message = failing(capsys, "edge", artefact, "--serve", f"127.0.0.1:{other.getsockname()[1]}")
    assert code == edge_code == 2
    assert "The server cannot listen" in message
    assert "Choose another --port." in message
    assert "Choose another port in --serve." in edge_message


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        ("export", "interrupted: nothing was written"),
        ("cloud", "interrupted"),
        ("advise", "interrupted: run the same command again to go on from what was saved, if anything was"),
        ("audit", "interrupted: run the same command again to go on from what was saved, if anything was"),
        (
            "train",
            "interrupted: run the same command again, with --resume, to go on from what was saved, if anything was",
        ),
    ],
)
def test_ctrl_c_promises_no_more_than_was_saved(capsys, verb, says):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as caught:
        _interruptible(verb, interrupt)()
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err == f"{says}\n"


def test_ctrl_c_while_the_command_loads():
    """Before the command itself can catch it."""
    code = (
        "import sys, builtins\nreal = builtins.__import__\n"
        "def load(name, *rest):\n    if name == 'splitveil.cli':\n        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = load\nfrom splitveil.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_in_the_commands_last_moment(monkeypatch):
    """When it has done its work, and no longer catches it."""

    def ended() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("splitveil.cli.main", ended)
    with pytest.raises(SystemExit) as caught:
        command()
    assert caught.value.code == 130


def test_the_doctor_knows_what_a_server_needs(capsys):
    main_ok(["doctor", "--json"])
    rows = {row["check"]: row["detail"] for row in json.loads(capsys.readouterr().out)}
    assert "extra serve" in rows["onnxruntime"]
    for package in ("fastapi", "uvicorn"):
        assert "extra serve" in rows[package]
        assert "splitveil cloud" in rows[package]


def test_what_is_no_pem_is_said_in_words(artefact, tmp_path, capsys):
    (tmp_path / "text").write_text("hello, world")
    _, message = failing(capsys, "cloud", artefact, "--tls-cert", tmp_path / "text", "--tls-key", tmp_path / "text")
    assert "cannot be used for TLS: not PEM." in message
    assert "ssl.c" not in message


def test_address_of_another_machine(artefact, capsys):
    _, message = failing(capsys, "edge", artefact, "--serve", "192.0.2.1:0", "--insecure")
    assert "Correct --serve, or use 0.0.0.0" in message


def test_a_copy_for_devices_needs_a_server(artefact, photos, capsys):
    for name in ("cloud.onnx", "model.safetensors", "config.toml"):
        (artefact / name).unlink()
    code, message = failing(capsys, "edge", artefact, photos)
    assert code == 2
    assert "has no cloud.onnx" in message
    assert "Add --url" in message


def test_an_audit_is_given_a_folder_code_or_an_endpoint(artefact, tmp_path, capsys):
    """People name the file that they were sent, or an address where a folder is meant."""
    for name in ("net.py", "net.pt"):
        (tmp_path / name).touch()
    for file, hint in (
        (artefact / "edge.onnx", f"Try its folder: {artefact}\n"),
        (tmp_path / "net.py", f"splitveil audit {tmp_path}/net.py:NAME --data NAME\n"),
        (tmp_path / "net.pt", f"splitveil audit FILE.py:NAME --weights {tmp_path}/net.pt\n"),
    ):
        code, message = failing(capsys, "audit", file)
        assert code == 2
        assert f"{file} is a file, but a run or an artefact is a folder." in message
        assert hint in message
    code, message = failing(capsys, "audit", "http://127.0.0.1:8751")
    assert code == 2
    assert "Try: splitveil audit --endpoint http://127.0.0.1:8751 --data NAME" in message
    with pytest.raises(UsageError, match="attacked with --endpoint"):  # its strokes lean the other way on Windows
        _at_hand(PureWindowsPath("http://127.0.0.1:8751"), None, None, None, None, None, False)


def test_the_artefact_is_looked_at_before_the_pictures(artefact, photos, capsys):
    """Whoever swaps them is told which is wrong."""
    code, message = failing(capsys, "edge", photos, artefact)
    assert code == 2
    assert "photos is not an artefact" in message


def test_what_is_no_artefact(tmp_path, capsys):
    for words in (("cloud", tmp_path), ("edge", tmp_path, "--serve", "127.0.0.1:0")):
        code, message = failing(capsys, *words)
        assert code == 2
        assert "is not an artefact" in message


def test_nobody_listens(artefact, photos, capsys, monkeypatch):
    monkeypatch.setattr("splitveil.serving.asking.time.sleep", lambda seconds: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    code, message = failing(capsys, "edge", artefact, photos, "--url", address)
    assert code == 1
    assert f"Nobody listens at {address}." in message
    assert "splitveil cloud ARTEFACT" in message


def test_the_device_does_not_load_torch(artefact, photos):
    code = (
        "import sys\nfrom splitveil.cli import main\n"
        f"try:\n    main(['edge', {str(artefact)!r}, {str(photos)!r}, '--json'])\n"
        "finally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "False"


@pytest.mark.parametrize(
    ("verb", "what"),
    [("export", "run folder"), ("cloud", "artefact"), ("edge", "artefact"), ("audit", "run folder or artefact")],
)
def test_a_path_that_is_not_there_names_the_one_that_is(verb, what, artefact, photos, capsys):
    wrong = artefact.with_name("artefcat")
    with pytest.raises(SystemExit) as stop:
        main([verb, str(wrong), *([str(photos)] if verb == "edge" else [])])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said == f"error: There is no {what} {wrong}.\n  Did you mean {artefact}?\n"


@pytest.mark.parametrize("verb", ["export", "edge", "list"])
def test_a_command_cannot_be_shown_but_has_help(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["show", verb])
    assert stop.value.code == 2
    assert f"error: {verb} is a command.\n  See: splitveil {verb} --help\n" in capsys.readouterr().err
