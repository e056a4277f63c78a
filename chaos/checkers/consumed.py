"""The detail of RECORDS_CONSUMED.

It is not in `processing`, because mypyc compiles that module and cannot compile a msgspec Struct.
"""

import msgspec


class Consumed(msgspec.Struct):
    """The detail of RECORDS_CONSUMED. `last` is the offset of the range's last record."""

    last: int


decode_consumed = msgspec.json.Decoder(Consumed).decode
