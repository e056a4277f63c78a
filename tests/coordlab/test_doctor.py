"""The doctor says what is missing and how to get it."""

from pathlib import Path

import pytest

from coordlab.doctor import CHECKS, check_java, check_open_files


def test_doctor_without_java_says_what_to_install_and_what_works_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A first user without Java can still run, and must learn that."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    check = check_java()
    assert not check.ok
    assert "openjdk-17" in check.advice
    assert "a run itself works without" in check.needed_for


def test_doctor_with_a_low_limit_of_open_files_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray fails in odd ways when it runs out of file descriptors."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
    check = check_open_files()
    assert not check.ok
    assert check.advice == "ulimit -n 4096"


def test_every_check_of_this_machine_answers() -> None:
    """A doctor that crashes is no doctor."""
    for name, look in CHECKS.items():
        check = look()
        assert check.found, name
        assert check.ok or check.advice, name
