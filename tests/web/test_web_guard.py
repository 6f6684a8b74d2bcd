"""Who is answered: this machine's own page, and nobody else."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import OURS, write_run

from splitveil.core.errors import UsageError
from splitveil.core.listening import is_loopback
from splitveil.web.app import create_app
from splitveil.web.server import serve


@pytest.fixture
def app(client, tmp_path):
    write_run(tmp_path / "runs" / "a")
    return client(tmp_path / "runs")


@pytest.mark.parametrize("host", ["127.0.0.1:8747", "localhost:8747", "localhost", "[::1]:8747", "LOCALHOST:1"])
def test_loopback_names_are_answered(app, host):
    assert app.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8747", "localhost.evil:80", "", "[", "10.0.0.1"]
)
def test_other_names_are_refused(app, host):
    """DNS rebinding: the name in the address bar is the attacker's, whatever it resolves to."""
    answer = app.get("/api/runs", headers={"host": host})
    assert answer.status_code == 403
    assert "does not answer to the name" in answer.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8747"},
        {**OURS, "origin": "http://evil.example"},
        {**OURS, "origin": "null"},
        {**OURS, "origin": "http://127.0.0.1:1"},
        {**OURS, "sec-fetch-site": "cross-site"},
    ],
)
def test_requests_of_other_sites_change_nothing(app, headers):
    answer = app.post("/api/report", json={"ids": ["a"]}, headers=headers)
    assert answer.status_code == 403
    assert not (app.app.state.services.root / "reports").exists()


def test_own_page_may_change_things(app):
    headers = {**OURS, "origin": "http://127.0.0.1:8747", "sec-fetch-site": "same-origin"}
    assert app.post("/api/report", json={"ids": ["a"]}, headers=headers).status_code == 200


def test_nobody_is_granted_access_from_elsewhere(app):
    answer = app.options(
        "/api/start", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_other_sites_may_not_read_pictures_either(app):
    assert app.get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert app.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200, "a link to the page is fine"


@pytest.mark.parametrize("path", ["/", "/api/runs", "/assets/app.js", "/nowhere"])
def test_policy_on_every_answer(app, path):
    headers = app.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/..%2fapp.py",
        "/assets/%2e%2e/%2e%2e/app.py",
        "/report/..%2f..%2fsecret",
        "/static/app.js",
    ],
)
def test_files_outside_are_not_served(app, path):
    assert app.get(path).status_code == 404


class TestToken:
    @pytest.fixture
    def locked(self, client, tmp_path):
        write_run(tmp_path / "runs" / "a")
        return client(tmp_path / "runs", token="correct horse", hosts=None)

    def test_without_it_nothing_is_told(self, locked):
        for path in ("/", "/api/runs", "/assets/app.js", "/?token=wrong"):
            answer = locked.get(path)
            assert answer.status_code == 401
            assert "token" in answer.json()["error"]

    def test_it_comes_in_the_address_once_and_then_in_a_cookie(self, locked):
        answer = locked.get("/?token=correct+horse", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert locked.get("/api/runs").status_code == 200

    def test_programs_send_it_as_a_header(self, locked):
        headers = {"authorization": "Bearer correct horse"}
        assert locked.get("/api/runs", headers=headers).status_code == 200
        assert locked.get("/api/runs", headers={"authorization": "Bearer correct hors"}).status_code == 401

    def test_it_does_not_open_posts_of_other_sites(self, locked):
        headers = {"authorization": "Bearer correct horse", "origin": "http://evil.example"}
        assert locked.post("/api/stop", json={"id": "a"}, headers=headers).status_code == 403

    def test_redirect_stays_here(self, locked):
        answer = locked.get("http://127.0.0.1:8747//evil.example/?token=correct+horse", follow_redirects=False)
        assert answer.headers.get("location", "/") == "/"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "my-machine"])
def test_addresses_that_others_can_reach_need_a_token(tmp_path, host):
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="needs a token"):
        serve(tmp_path, host=host, port=0, token=None, browser=False)


def test_a_short_token_is_no_token(tmp_path):
    with pytest.raises(UsageError, match="too short"):
        serve(tmp_path, host="0.0.0.0", port=0, token="1234", browser=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_addresses(host):
    assert is_loopback(host)


@pytest.mark.parametrize("token", ["correct horse", "g\u00e4nsef\u00fcsschen", "semi;colon", "12345678\n", "a/b/c/d/e"])
def test_token_that_no_address_carries_is_refused(tmp_path, token):
    with pytest.raises(UsageError, match="addresses cannot carry"):
        serve(tmp_path, host="127.0.0.1", port=0, token=token, browser=False)


def test_large_requests_are_refused(app):
    tree = {"tree": {"data": {"name": "x" * 2**20}}}
    answer = app.post("/api/check", json=tree, headers=OURS)
    assert answer.status_code == 413
    assert "more than 1 MB" in answer.json()["error"]
    assert answer.headers["x-frame-options"] == "DENY"

    def pieces():  # without an announced length
        yield b'{"tree": "'
        for _ in range(5):
            yield b"x" * 2**18
        yield b'"}'

    answer = app.post("/api/check", content=pieces(), headers={**OURS, "content-type": "application/json"})
    assert answer.status_code == 413
    answer = app.post("/api/check", json={"tree": {"data": {"name": "x" * 2**19}}}, headers=OURS)
    assert [error["key"] for error in answer.json()["errors"]] == ["data.name"]


def test_unforeseen_error_is_in_the_log_with_its_place(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("splitveil.web.form.recipes", lambda: 1 // 0)
    with TestClient(create_app(tmp_path), "http://127.0.0.1:8747", raise_server_exceptions=False) as app:
        answer = app.get("/api/recipes")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"]
    record = next(record for record in caplog.records if record.message == "a request failed")
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
