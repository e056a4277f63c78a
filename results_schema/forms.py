"""Format numbers of manifests, and the refusal of a manifest with an unknown number.

A format gets a new number in two cases: an older version of Coordlab cannot read the new files, or
the new version cannot read the older files. A file without a number has format 1.
"""

import msgspec

READ_FORMS: dict[str, tuple[int, ...]] = {
    "run": (1,),
    "exploration": (1,),
}
"""Format numbers that this version reads, for each kind of manifest; the newest is last."""


class _Stamp(msgspec.Struct, kw_only=True):
    """The part of a manifest that every format has."""

    format: int = 1
    versions: dict[str, str] = {}


def refusal(content: bytes, kind: str) -> str | None:
    """Return the reason for which this version cannot read a manifest of `kind`; None if it can.

    A file that is no manifest is not refused here. The caller decodes the file next, and the error
    of this decoding has more detail.
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
