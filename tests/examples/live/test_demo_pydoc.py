"""Where there is no apt, the demo's site is pydoc's: hundreds of pages, written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import website


def test_without_apt_the_pages_of_pydoc_are_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(website.shutil, "which", lambda name: None)
    told: list[str] = []
    folder = website.find_site(None, cache=tmp_path, say=told.append)
    assert any("no apt-get" in line for line in told)
    assert (folder / "index.html").is_file()
    assert (folder / "json.html").is_file()
