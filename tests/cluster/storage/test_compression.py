"""The codecs (gzip, snappy, lz4 and zstd) with which a coordinator may compress its batches.

`CODECS` has the codecs that work on this machine. `NO_CODECS` can compress and decompress nothing,
and is for code that must not depend on the machine. `NO_CODECS` is the default of all functions
here that have a parameter `codecs`.
"""

import subprocess
import sys

import pytest

from chaos.experiment.rules.all_rules import errors
from cluster.storage import compression
from cluster.storage.compression import CODECS, is_supported, require_codec, supported_codecs
from coordinator.storage.load import Load
from partition_log.batches import build_batch, check_batch
from protocol.compression import NO_CODECS, CompressionType
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.records.batch import Record, records_of
from tests.support.builders.experiments import experiment

CODEC_IDS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
PAYLOAD = b"a commit like the one before it, " * 50


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_payload_is_restored_by_every_codec_and_compressed_smaller(codec: CompressionType) -> None:
    """Compressing and decompressing a payload gives the payload.

    The same payload must always become the same bytes, because two runs with one seed must not
    differ. gzip, for example, has a field for the time in its header, which must not be used.
    """
    compressed = CODECS.compress(codec, PAYLOAD)
    compressed_again = CODECS.compress(codec, PAYLOAD)
    assert compressed_again == compressed
    assert len(compressed) < len(PAYLOAD) / 4  # the payload repeats one phrase 50 times
    assert CODECS.decompress(codec, compressed) == PAYLOAD
    assert CODECS.decompress(codec, CODECS.compress(codec, b"")) == b""


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("damage", ["nothing", "short", "garbage", "cut", "another length"])
def test_damaged_payload_is_an_error(codec: CompressionType, damage: str) -> None:
    """Damaged bytes must never be decompressed to something else. They must raise an error."""
    whole = CODECS.compress(codec, PAYLOAD)
    damaged = {
        "nothing": b"",
        "short": b"\x00\x00",  # shorter than any header
        "garbage": whole[:4] + b"garbage" * 9,  # begins like a compressed payload
        "cut": whole[:-9],  # some bytes are missing at the end
        # For snappy, these four bytes are the length of a block. Other codecs find no magic number.
        "another length": b"\x00\x00\x00\x09" + whole[4:],
    }[damage]
    with pytest.raises(ValueError, match=r"codec|compressed"):
        CODECS.decompress(codec, damaged)


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_batch_attributes_have_the_codec_and_the_crc_covers_the_payload(
    codec: CompressionType,
) -> None:
    """A batch knows its codec. As in Kafka, its checksum (CRC) is that of the compressed bytes.

    So the checksum can be verified without the codec. Only a reader of the records needs the codec.
    """
    records = tuple(Record(b"key", b"value", timestamp_ms=7) for _ in range(20))
    batch = build_batch(records, compression=codec, codecs=CODECS)
    plain = build_batch(records)
    assert batch.compression == codec
    assert batch.record_count == 20
    assert batch.size_in_bytes < plain.size_in_bytes
    assert batch.crc != plain.crc
    assert check_batch(batch) is ErrorCode.NONE
    assert records_of(batch, CODECS) == records_of(plain)
    with pytest.raises(ValueError, match="no codec"):
        records_of(batch, NO_CODECS)


def test_load_of_a_batch_that_cannot_be_decompressed_fails_with_the_reason() -> None:
    """A coordinator that loads a batch without its codec stops, as at any unreadable record."""
    batch = build_batch((Record(b"k", b"v"),), compression=CompressionType.GZIP, codecs=CODECS)
    load = Load(partition=0, leader_epoch=1)  # without `codecs` it cannot decompress
    load.read((batch,))
    assert load.error == "no codec 1 to decompress with"  # 1 is gzip


def test_every_codec_of_kafka_is_supported_here() -> None:
    """The standard library has gzip, and pyarrow has the others."""
    assert supported_codecs() == tuple(CompressionType)


def test_codec_without_its_library_is_refused_with_the_available_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error lists the codecs that work on this machine.

    The check is made by `require_codec` when a broker starts, and before that by the rules for
    experiment files. In the test pyarrow has no codec, so only "none" and gzip are left.
    """

    def raise_for_missing_codec(codec: int) -> object:
        raise SimulationError(f"pyarrow has no codec {codec}")

    # `_codec` returns a codec of pyarrow, and is not called for gzip.
    monkeypatch.setattr(compression, "_codec", raise_for_missing_codec)
    assert not is_supported(CompressionType.ZSTD)
    with pytest.raises(SimulationError, match=r"expected one of 0 \(none\), 1 \(gzip\), got 4"):
        require_codec(CompressionType.ZSTD)
    require_codec(CompressionType.GZIP)

    (error,) = errors(
        experiment(
            cluster={
                "brokers": 3,
                "config": {
                    "offsets.topic.num.partitions": 2,
                    "offsets.topic.compression.codec": CompressionType.ZSTD.value,
                },
            }
        )
    )
    assert error.path == "cluster.config.offsets.topic.compression.codec"
    assert error.expected == "one of 0 (none), 1 (gzip)"


def test_pyarrow_is_imported_only_for_its_codecs() -> None:
    """Importing pyarrow takes longer than a short run, so it must not happen without need.

    Codecs 0 (none) and 1 (gzip) do not need it, and codec 3 (lz4) does.
    """
    program = (
        "import sys; from cluster.storage.compression import require_codec; "
        "require_codec(0); require_codec(1); print('pyarrow' in sys.modules); "
        "require_codec(3); print('pyarrow' in sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.split() == ["False", "True"]


def test_setting_has_kafkas_ids() -> None:
    """The codecs have the same numbers as in Kafka, and the default is no compression, too."""
    assert BrokerConfig().offsets_topic_compression_codec == CompressionType.NONE
    assert [(codec.name, codec.value) for codec in CompressionType] == [
        ("NONE", 0),
        ("GZIP", 1),
        ("SNAPPY", 2),
        ("LZ4", 3),
        ("ZSTD", 4),
    ]
