"""`make near` plays the tests nearest to a module, as many as its time has room for, and tells what it leaves out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import near
from tests.kit.profile import Cost, read
from tests.kit.profile import main as table
from tests.near import BUDGET_S, PROFILE, ROOT, chosen, differing, distances, first, is_pure_test, main, noticing, seconds_of

FETCHER = ROOT / "gkafka" / "core" / "fetcher.py"


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these rooms are looked through: all of them hold 8 MB of Python."""
    rooms = [ROOT / room for room in ("gkafka/core", "tests/core", "tests/gevent")]
    monkeypatch.setattr(near, "sources", lambda: [file for room in rooms for file in sorted(room.rglob("*.py"))])


def test_all_that_is_ours_is_looked_through() -> None:
    found = {file.relative_to(ROOT).parts[0] for file in near.sources()}
    assert found == {"gkafka", "tests"}
    assert {FETCHER, Path(__file__).resolve()} <= set(near.sources())


@pytest.mark.usefixtures("some")
def test_files_that_import_the_module_are_nearest_and_none_starts_kafka() -> None:
    found = distances([FETCHER])
    assert found[ROOT / "tests" / "core" / "test_fetcher.py"] == 0, "its name comes first"
    assert found[ROOT / "tests" / "core" / "test_lies.py"] == 1
    assert not [file for file in found if "live" in file.parts]


@pytest.mark.usefixtures("some")
def test_a_changed_test_is_nearest_to_itself_and_a_mutants_test_to_its_place() -> None:
    itself = ROOT / "tests" / "core" / "test_fetcher.py"
    assert distances([itself])[itself] == 0
    assert distances([ROOT / "gkafka" / "records" / "_pure_cursors.py"])[ROOT / "tests" / "public" / "test_bounds.py"] == 0


def test_no_mutant_is_missed_by_the_tests_near_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes first has room, so what imports the file does not matter."""
    monkeypatch.setattr(near, "sources", list)
    seconds = seconds_of(PROFILE.read_text())
    missed = {}
    for file in noticing():
        played, _ = chosen(distances([file]), seconds)
        wanted = {test for test in first([file]) if test in noticing()[file] or is_pure_test(test)}
        if left := {test.relative_to(ROOT).as_posix() for test in wanted}.difference(played):
            missed[file.relative_to(ROOT).as_posix()] = left
    assert len(noticing()) > 50
    assert not missed, "tests that start Kafka hold a mutant, or BUDGET_S is too small"


def test_a_file_that_git_does_not_know_counts(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True)

    names = [".gitignore", "committed.py", "changed.py"]
    for name in names:
        (tmp_path / name).write_text("*.so\n")
    git("init")
    git("add", *names)
    git("commit", "-m", "all")
    for name in ("changed.py", "new.py", "built.so"):
        (tmp_path / name).write_text("1\n")
    assert differing(tmp_path) == ["changed.py", "new.py"]


def test_what_has_no_room_is_left_the_farthest_first() -> None:
    files = [ROOT / "tests" / f"test_{name}.py" for name in ("turns", "stages", "limits")]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    profile = "".join(f"| {name} | 3 | {0.4 * BUDGET_S:.1f} | 1.0 |\n" for name in names)
    played, left = chosen(dict(zip(files, (1, 3, 2), strict=True)), seconds_of(profile))
    assert (played, left) == ([names[0], names[2]], [names[1]])


def test_a_file_that_is_longer_than_all_the_room_is_played_alone() -> None:
    file = ROOT / "tests" / "test_turns.py"
    assert chosen({file: 1}, {"tests/test_turns.py": 2 * BUDGET_S}) == (["tests/test_turns.py"], [])


def test_a_name_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gkafka/core/fetch.py"]) == 2
    assert "there is no gkafka/core/fetch.py below" in capsys.readouterr().err


def test_a_file_of_another_clone_is_refused_and_one_of_this_is_taken_by_its_whole_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fetcher.py").touch()
    assert main([str(tmp_path / "fetcher.py")]) == 2
    assert f"{tmp_path}/fetcher.py is not below {ROOT}: name files of this clone" in capsys.readouterr().err
    asked: list[Path] = []

    def nothing(file: Path) -> dict[Path, int]:
        asked.append(file)
        return {}

    monkeypatch.setattr(near, "near_to", nothing)
    assert main([str(FETCHER)]) == 1
    assert asked == [FETCHER]
    assert "no test without Kafka reaches gkafka/core/fetcher.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("held", "told"),
    [(b"x = 1\n\ny = (\n", ":3: '(' was never closed: "), (b"# one\n# \xe9\n", ":2: not in UTF-8: "), (b"\0", ":1: ")],
    ids=["syntax", "encoding", "zero"],
)
def test_a_file_that_is_no_python_is_told_by_name_and_line(
    held: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_bytes(held)
    monkeypatch.setattr(near, "ROOT", tmp_path)
    monkeypatch.setattr(near, "sources", lambda: [tmp_path / "broken.py"])
    assert main(["broken.py"]) == 2
    assert f"broken.py{told}" in capsys.readouterr().err


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("README.md", "make check"),
        ("pyproject.toml", "make test"),
        (".ci/run", ".ci/run"),
        ("tests/conftest.py", "make test"),
        ("tests/cli/conftest.py", ".venv/bin/python -m pytest tests/cli/"),
        ("tests/mutants/acks_0_told_before_it_is_sent.mutant", "make mutants"),
        ("benchmarks/stub_broker.c", "make test"),
    ],
)
def test_what_no_test_reaches_is_no_success_and_what_plays_its_tests_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    monkeypatch.setattr(near, "play", lambda *_: pytest.fail("nothing is to be played"))
    assert main([name]) == 1
    assert f"no test without Kafka reaches {name}: {command}\n" in capsys.readouterr().out


def test_where_nothing_was_changed_nothing_was_tried(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "differing", lambda _: [])
    assert main([]) == 1
    assert "name a file" in capsys.readouterr().out


@pytest.mark.usefixtures("some")
def test_what_is_played_is_what_counts_and_the_rest_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "play", lambda *_: True)
    assert main(["tests/core/test_fetcher.py", "pyproject.toml"]) == 0
    assert "no test without Kafka reaches pyproject.toml: make test\n" in capsys.readouterr().out


@pytest.mark.usefixtures("some")
def test_a_module_that_was_deleted_has_the_tests_that_still_import_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "gkafka/core/deleted.py"
    importing = ROOT / "tests" / "core" / "test_of_what_was_deleted.py"
    monkeypatch.setattr(near, "sources", lambda: [importing])
    monkeypatch.setattr(near, "imports", lambda file: frozenset({"gkafka.core.deleted"}))
    monkeypatch.setattr(near, "differing", lambda _: [gone, "tests/core/test_deleted.py"])
    monkeypatch.setattr(near, "play", lambda *_: True)
    assert distances([ROOT / gone]) == {}, "what imports it was deleted with it"
    assert main([]) == 1
    assert main([gone]) == 1
    assert f"no test without Kafka reaches {gone}: make test\n" in capsys.readouterr().out
    monkeypatch.setattr(near, "sources", lambda: [ROOT / "tests" / "core" / "test_fetcher.py"])
    assert main([]) == 0
    assert "1 files: tests/core/test_fetcher.py" in capsys.readouterr().out


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    "name", ["handlers/_syscalls.pyx", "handlers/_locks.pyx", "records/_speed.pyx", "records/_speed_lz4.pxi", "records/_crc.h"]
)
def test_a_compiled_part_begins_with_the_tests_of_its_room(name: str) -> None:
    file = ROOT / "gkafka" / name
    assert file.exists()
    found = near.near_to(file)
    room = ROOT / "tests" / file.parent.name
    nearest = {test for test, far in found.items() if far == 0}
    assert set(room.glob("test_*.py")) <= nearest
    assert not [test for test in nearest - noticing()[file] if test.parent != room and file.stem.strip("_") not in test.stem]
    played, _ = chosen(found, seconds_of(PROFILE.read_text()))
    assert {test.relative_to(ROOT).as_posix() for test in room.glob("test_*.py")} <= set(played)


def test_the_profile_adds_up_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.jsonl").write_text('["tests/a.py::b", 2.0, 0.5, 0.25, 1.0]\n["tests/a.py::c", 1.0, 0.5, 0.0, 0.0]\n')
    (tmp_path / "2.jsonl").write_text('["tests/a.py::b", 1.0, 0.0, 0.0, 0.0]\n["tests/d.py::e", 9.0, 1.0, 0.0, 0.0]\n')
    assert read(tmp_path)["tests/a.py::b"] == Cost(3.0, 0.5, 0.25, 1.0)
    table([str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| tests/d.py | 1 | 9.0 | 1.0 | 0.0 | 0.0 | 8.0 |",
        "| tests/a.py | 2 | 4.0 | 1.0 | 0.2 | 1.0 | 2.0 |",
    ]
