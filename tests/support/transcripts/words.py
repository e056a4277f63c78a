r"""Reads and writes the words of a transcript's commands, such as `name word key=value`.

A transcript is a text file with commands to a test and their results. It has stories: sequences of
commands that belong together. The words of a command are separated by spaces outside of quotes.

Some commands need bytes, which a transcript writes in two forms. `foo+bar` stands for a
subscription to the topics foo and bar (a list of topics in the encoding of Kafka's consumers). All
other bytes are in quotes (`'one'`, `'\x00'`).
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
"""Word that stands for an empty text."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"(?:[^\s']|'[^']*')+")
"""A word: one or more pieces, and a piece is a quoted text or one other character but a blank.

So a word has blanks only within quotes."""
_PART = re.compile(r"(?:[^,']|'[^']*')+")
"""A part of a list. It is like a _WORD, but commas separate the parts, and not blanks."""
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
"""Topics that can be printed without quotes."""


class UnknownWord(Exception):
    """An unknown command, word or setting."""


@dataclass(slots=True)
class Command:
    """The name, words and settings of a command.

    The code that carries out a command takes its settings: it reads each one and removes it from
    `settings`. Then it calls `check_all_taken`, because no code understands a setting that remains.
    """

    name: str
    words: list[str]
    settings: dict[str, str] = field(default_factory=dict)

    def text(self, key: str, default: str) -> str:
        """Take a setting that is a text."""
        return self.settings.pop(key, default)

    def optional(self, key: str, default: str | None = None) -> str | None:
        """Take a setting; `-` stands for None."""
        value = self.settings.pop(key, default)
        return None if value == "-" else value

    def number(self, key: str, default: int) -> int:
        """Take a setting that is a number."""
        return int(self.settings.pop(key, default))

    def parts(self, key: str) -> list[str]:
        """Take a setting that has parts, separated by commas."""
        return _PART.findall(self.settings.pop(key, ""))

    def check_all_taken(self) -> None:
        """Check that every setting was taken.

        Raises: UnknownWord.
        """
        if self.settings:
            raise UnknownWord(f"{self.name} has no setting {', '.join(self.settings)}")


def read_command(line: str) -> Command:
    """Return the command that a line has.

    The first word is the command's name. Of the others, `key=value` is a setting; the rest are the
    command's `words`. A word has spaces only within quotes.
    """
    name, *rest = _WORD.findall(line)
    command = Command(name, [])
    for word in rest:
        key, equals, value = word.partition("=")
        # If there is a quote before the `=`, the `=` is a part of quoted bytes: this is no setting.
        if equals and "'" not in key:
            # Only the empty text loses its quotes. Others keep them, for `read_bytes`.
            command.settings[key] = "" if value == EMPTY else value
        else:
            command.words.append("" if word == EMPTY else word)
    return command


def read_bytes(text: str) -> bytes:
    """Return the bytes of a word.

    Text outside of quotes is the topics of a subscription, separated by `+`.
    """
    if text.startswith("'"):
        # Escapes such as `\x00` become the bytes that they stand for. The codec for escapes takes
        # bytes and gives characters with the numbers 0 to 255; latin-1 maps these to bytes.
        return text[1:-1].encode().decode("unicode_escape").encode("latin-1")
    return encode_subscription(ConsumerProtocolSubscription(topics=tuple(text.split("+"))))


def bytes_text(data: bytes) -> str:
    """Return the word for bytes: topics such as `foo+bar` if `data` is their subscription.

    All other bytes are quoted.
    """
    try:
        topics = tuple(sorted(decode_subscribed_topics(data)))
    except ConsumerProtocolError:
        topics = ()
    # A subscription can have more than topics, for example owned partitions. Then the bytes of its
    # topics alone differ from `data`.
    if topics and data == encode_subscription(ConsumerProtocolSubscription(topics=topics)):
        word = "+".join(topics)
        if _PLAIN.fullmatch(word):
            return word
    # `repr` gives b'...'; the slice takes what is between the quotes. A quote in the text would end
    # the word, so it is written as an escape.
    escaped = repr(data)[2:-1].replace("'", "\\x27")
    return f"'{escaped}'"


def read_partition(text: str) -> TopicPartition:
    """Return the partition that `foo-0` names."""
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def read_offsets(command: Command) -> Iterator[tuple[tuple[str, int], int]]:
    """Take the settings that are offsets of partitions, `foo-0=97`.

    A setting is taken when the iteration reaches it, so the caller must iterate to the end.
    """
    for key in list(command.settings):
        if re.fullmatch(r".+-\d+", key):
            partition = read_partition(key)
            yield (partition.topic, partition.partition), int(command.settings.pop(key))


def number_uuids(text: str, numbers: dict[str, int]) -> str:
    """Return a text with a number for each uuid, in the order of their first occurrence.

    `numbers` has the numbers of earlier texts and gets the new ones, so that a uuid has the same
    number in a whole story.
    """

    def number(found: re.Match[str]) -> str:
        # A new uuid gets the next number.
        return str(numbers.setdefault(found[0], len(numbers) + 1))

    return _UUID.sub(number, text)
