"""The detail of RECORDS_CONSUMED, apart from `processing`: mypyc compiles that, and no Struct."""

import msgspec


class Consumed(msgspec.Struct):
    """The detail of RECORDS_CONSUMED. Shape: `last` is the offset of the last record."""

    last: int


decode_consumed = msgspec.json.Decoder(Consumed).decode
