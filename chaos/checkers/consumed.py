"""The detail of RECORDS_CONSUMED, the trace row of a consumer that has processed records.

The struct is not in `processing`, because mypyc compiles that module, and cannot compile a msgspec
Struct. The row's own `offset` is the offset of the first record.
"""

import msgspec


class Consumed(msgspec.Struct):
    """The detail of RECORDS_CONSUMED. `last` is the offset of the range's last record."""

    last: int


decode_consumed = msgspec.json.Decoder(Consumed).decode
