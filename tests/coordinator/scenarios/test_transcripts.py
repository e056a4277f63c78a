"""The runner of transcripts: what is played is compared, and rewritten when that is asked for."""

from pathlib import Path

import pytest

from tests.support.transcripts.collector import PLAYERS, new_player
from tests.support.transcripts.story_file import NotATranscript, StoryFile, read_story_file
from tests.support.transcripts.words import UnknownWord, bytes_text, read_bytes, read_command

FILES = sorted(Path(__file__).parents[2].glob("**/scenarios/*.txt"))
TEXT = """\
# What it is about.

coordinator

== first ==
# Said at the head.

# Before the command.
join client=a
----
#1 JoinGroup NONE

== second ==

given
join client=a
----
"""


@pytest.fixture
def told(tmp_path: Path) -> StoryFile:
    """Return a file of two stories, the first of which goes otherwise."""
    path = tmp_path / "told.txt"
    path.write_text(TEXT, encoding="utf-8")
    return read_story_file(path)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_file_is_written_as_it_is_read(path: Path) -> None:
    """A rewrite changes nothing but what came of commands."""
    told = read_story_file(path)
    assert told.text() == path.read_text(encoding="utf-8")
    assert told.scene[0].split()[0] in PLAYERS


def test_story_that_goes_otherwise_is_not_the_one_that_is_written(told: StoryFile) -> None:
    """And its rewritten text is: comments and the other story stay."""
    first, second = told.stories
    player = new_player(told)
    player.play(told.scene)
    played = first.played(player.play)
    assert played != first
    assert played.steps[0].output[0] == "#1 JoinGroup MEMBER_ID_REQUIRED member_id=a-1"
    rewritten = told.with_story(played)
    assert rewritten.stories == (played, second)
    before, after = (text.splitlines() for text in (TEXT, rewritten.text()))
    assert [line for line in before if line not in after] == ["#1 JoinGroup NONE"]


def test_given_step_prints_the_state_alone(told: StoryFile) -> None:
    """How it came about is shown elsewhere."""
    _, second = told.stories
    player = new_player(told)
    (step,) = second.played(player.play).steps
    assert [line.split()[0] for line in step.output] == ["group", "timers:"]


def test_two_stories_of_one_name_are_refused(tmp_path: Path) -> None:
    """A rewrite would not know which."""
    path = tmp_path / "told.txt"
    path.write_text(TEXT.replace("second", "first"), encoding="utf-8")
    with pytest.raises(NotATranscript, match="two stories are called 'first'"):
        read_story_file(path)


@pytest.mark.parametrize(
    "line", ["jion", "join sesion=5", "coordinator group.max.sise=4", "hold on"]
)
def test_word_that_nobody_knows_is_refused(told: StoryFile, line: str) -> None:
    """A slip of the pen would otherwise play another story."""
    with pytest.raises(UnknownWord):
        new_player(told).play((line,))


@pytest.mark.parametrize("data", [b"", b"one", b"\x00\x01'\\", b"\xff a=b,c"])
def test_bytes_are_read_as_they_are_written(data: bytes) -> None:
    """They stand in one word of a command, whatever they are."""
    word = bytes_text(data)
    assert read_bytes(word) == data
    (read,) = read_command(f"sync {word}").words
    assert read_bytes(read or "''") == data


def test_subscription_is_written_as_its_topics() -> None:
    """A reader sees what the member wants, not how it is encoded."""
    assert bytes_text(read_bytes("bar+foo")) == "bar+foo"
