"""Formats of manifests, and the check whether this version of Coordlab can read a manifest.

Another version of Coordlab may have written a manifest. So each manifest has the number of its
format, which messages call its form. A manifest without a number has format 1. The number is raised
by a version of Coordlab whose files older versions cannot read, or which cannot read older files.
"""

import msgspec

READ_FORMS: dict[str, tuple[int, ...]] = {
    "run": (1,),
    "exploration": (1,),
}
"""Kind of manifest -> the formats that this version can read, the newest last."""


class _Stamp(msgspec.Struct, kw_only=True):
    """The part of a manifest that every format has."""

    format: int = 1
    versions: dict[str, str] = {}


def refusal(content: bytes, kind: str) -> str | None:
    """Return why this version cannot read a manifest, None if this version can read it.

    `kind` is a key of READ_FORMS. An example of the result: "was written in form 2 by coordlab 1.4,
    this version reads form 1: read it with the version that wrote it". If the file is no manifest
    at all, the result is None, too: the caller decodes the file next, which gives a better message.
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
