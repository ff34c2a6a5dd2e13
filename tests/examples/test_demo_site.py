"""Finding a site, and serving it."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import serve
import website


def get(address: str, path: str, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        return response
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/a/", 200),
        ("/a", 301),
        ("/name%20with%20blank.html", 200),
        ("/missing.html", 404),
        ("/../secret.html", 404),
        ("/%2e%2e/secret.html", 404),
        ("/a/leak.html", 404),
        ("/%00", 404),
        ("/a/deep/", 404),
        ("/" + "x" * 400, 404),
    ],
)
def test_the_server_answers_for_what_is_inside_the_folder_only(address: str, path: str, status: int) -> None:
    response = get(address, path)
    assert response.status == status
    assert b"secret" not in response.body  # type: ignore[attr-defined]


def test_a_redirect_stays_on_the_site(address: str) -> None:
    assert get(address, "//a").getheader("Location") == "/a/"


def test_a_site_cannot_be_written_to(address: str) -> None:
    assert get(address, "/index.html", "DELETE").status == 405


@pytest.mark.parametrize(
    ("name", "kind"), [("a.HTML", "text/html"), ("a.htm", "text/html"), ("a.html.gz", "application"), ("a.png", "image/png")]
)
def test_what_is_html_is_said_by_the_name_alone(name: str, kind: str) -> None:
    assert serve.content_type(name).startswith(kind)


def test_a_named_folder_is_used_or_refused_but_never_replaced(site: Path, tmp_path: Path) -> None:
    assert website.find_site(str(site), cache=tmp_path / "cache") == site
    with pytest.raises(website.NoSite, match=r"no index\.html"):
        website.find_site(str(tmp_path / "nothing"), cache=tmp_path / "cache")


def test_a_site_that_was_unpacked_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = tmp_path / "some-doc" / "usr" / "html"
    unpacked.mkdir(parents=True)
    (unpacked / "index.html").write_text("<title>x</title>")
    monkeypatch.setattr(website, "run", lambda *_, **__: pytest.fail("nothing needs to be run"))
    assert website.find_site(None, package="some-doc", cache=tmp_path) == unpacked


def test_an_interrupted_download_leaves_no_half_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(command: list[str], folder: Path, *, may_fail: bool = False) -> bool:
        (folder / "half.deb").write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(website.shutil, "which", lambda name: name)
    monkeypatch.setattr(website, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        website.from_debian("some-doc", tmp_path / "some-doc")
    assert list(tmp_path.iterdir()) == []
