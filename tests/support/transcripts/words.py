r"""Read and write the words of which the commands in a transcript consist.

A transcript is a text file that is a test: it has commands, and below them their results. A command
begins with its name. Words and settings follow in any order. In this command, `commit` is the name,
`m-1` and `2` are words, and the rest are settings:

    commit m-1 2 foo-0=97 group=g

Some words stand for bytes. `foo+bar` means the encoded subscription of a consumer to the topics foo
and bar. All other bytes are written in quotes, such as `'one'` and `'\x00'`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.ids import TopicPartition
from protocol.wire.consumer_protocol import (
    ConsumerProtocolError,
    ConsumerProtocolSubscription,
    decode_subscribed_topics,
    encode_subscription,
)

EMPTY = "''"
"""The word that stands for an empty text."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"(?:[^\s']|'[^']*')+")
"""Matches a word. A word ends at the next blank, but it may have blanks within quotes."""
_PART = re.compile(r"(?:[^,']|'[^']*')+")
"""Matches a part of a list such as `a,b`. It ends at the next comma that is not within quotes."""
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
"""Topics with only these characters can be printed without quotes."""


class UnknownWord(Exception):
    """Raised for a command, word or setting that does not exist."""


@dataclass(slots=True)
class Command:
    """A command: its name, its words and its settings.

    The code that carries out a command takes the settings of the command by the methods below. Each
    method removes the setting that it returns. At the end, `check_all_taken` finds the settings
    that are left, because no code knows them.
    """

    name: str
    words: list[str]
    settings: dict[str, str] = field(default_factory=dict)

    def text(self, key: str, default: str) -> str:
        """Take a setting that is a text."""
        return self.settings.pop(key, default)

    def optional(self, key: str, default: str | None = None) -> str | None:
        """Take a setting that may be None, for which a transcript writes `-`."""
        value = self.settings.pop(key, default)
        return None if value == "-" else value

    def number(self, key: str, default: int) -> int:
        """Take a setting that is a number."""
        return int(self.settings.pop(key, default))

    def parts(self, key: str) -> list[str]:
        """Take a setting that is a list: `a,b` -> ["a", "b"]. The default is an empty list."""
        return _PART.findall(self.settings.pop(key, ""))

    def check_all_taken(self) -> None:
        """Check that every setting was taken. Raises: UnknownWord."""
        if self.settings:
            raise UnknownWord(f"{self.name} has no setting {', '.join(self.settings)}")


def read_command(line: str) -> Command:
    """Return the command of a line.

    The first word is the name of the command. Words of the form `key=value` are settings.
    """
    name, *rest = _WORD.findall(line)
    command = Command(name, [])
    for word in rest:
        key, equals, value = word.partition("=")
        # After a quote, the `=` is a part of quoted bytes, and does not make this word a setting.
        if equals and "'" not in key:
            # A quoted text keeps its quotes, because `read_bytes` needs them. Only `''` becomes "".
            command.settings[key] = "" if value == EMPTY else value
        else:
            command.words.append("" if word == EMPTY else word)
    return command


def read_bytes(text: str) -> bytes:
    """Return the bytes that a word stands for: quoted bytes, or the topics of a subscription."""
    if text.startswith("'"):
        # Replace escapes such as `\x00`. The codec `unicode_escape` returns a text, whose
        # characters have the numbers 0 to 255. latin-1 turns a character into the byte with the
        # same number.
        return text[1:-1].encode().decode("unicode_escape").encode("latin-1")
    return encode_subscription(ConsumerProtocolSubscription(topics=tuple(text.split("+"))))


def bytes_text(data: bytes) -> str:
    """Return the word that stands for some bytes; the reverse of `read_bytes`.

    A subscription to the topics foo and bar -> `bar+foo`. The bytes b"x1" -> `'x1'`.
    """
    try:
        topics = tuple(sorted(decode_subscribed_topics(data)))
    except ConsumerProtocolError:
        topics = ()
    # A subscription may have more than topics, such as owned partitions. A word such as `foo+bar`
    # would lose these. So use such a word only for bytes that encode the topics and nothing else.
    if topics and data == encode_subscription(ConsumerProtocolSubscription(topics=topics)):
        word = "+".join(topics)
        if _PLAIN.fullmatch(word):
            return word
    # `repr` returns "b'...'", and the slice takes what is between the quotes. A quote inside these
    # bytes would end the word too early, so it becomes an escape.
    escaped = repr(data)[2:-1].replace("'", "\\x27")
    return f"'{escaped}'"


def read_partition(text: str) -> TopicPartition:
    """Return the partition that a word such as `foo-0` names."""
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def read_offsets(command: Command) -> Iterator[tuple[tuple[str, int], int]]:
    """Take the settings that are offsets: `foo-0=97` -> (("foo", 0), 97).

    This is a generator: a setting is taken only when the caller asks for the next offset.
    """
    for key in list(command.settings):
        if re.fullmatch(r".+-\d+", key):
            partition = read_partition(key)
            yield (partition.topic, partition.partition), int(command.settings.pop(key))


def number_uuids(text: str, numbers: dict[str, int]) -> str:
    """Replace each uuid in a text by a number, because uuids differ from run to run.

    `numbers` maps the uuids that occurred before to their numbers. New uuids are added to it. So a
    uuid has the same number in all texts of a story.
    """

    def number_of(uuid: re.Match[str]) -> str:
        next_number = len(numbers) + 1
        return str(numbers.setdefault(uuid[0], next_number))

    return _UUID.sub(number_of, text)
