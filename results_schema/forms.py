"""Format numbers of files, and the refusal of files with an unknown number.

The number of a format increases if a new version of Coordlab writes files that an older version
cannot read, or if it cannot read older files. A file without a number has format 1.
"""

import msgspec

READ_FORMS: dict[str, tuple[int, ...]] = {
    "run": (1,),
    "exploration": (1,),
}
"""Readable formats of each kind of manifest, the newest last."""


class _Stamp(msgspec.Struct, kw_only=True):
    """The part of a manifest that every format has."""

    format: int = 1
    versions: dict[str, str] = {}


def refusal(content: bytes, kind: str) -> str | None:
    """Return the reason for which this version cannot read a manifest of `kind`; None if it can.

    A file that is no manifest is not refused here, because the caller's decoding of it raises an
    error with more detail.
    """
    try:
        stamp = msgspec.json.decode(content, type=_Stamp)
    except msgspec.MsgspecError:
        return None
    forms = READ_FORMS[kind]
    if stamp.format in forms:
        return None
    writer = stamp.versions.get("coordlab")
    written_by = "" if writer is None else f" by coordlab {writer}"
    words = "form" if len(forms) == 1 else "forms"
    return (
        f"was written in form {stamp.format}{written_by}, this version reads {words} "
        f"{', '.join(map(str, forms))}: read it with the version that wrote it"
    )
