"""Format numbers of manifests, and the check that this version of Coordlab can read a manifest.

A manifest has the number of its format; a file without a number has format 1. The number is raised
if an older version of Coordlab could not read the new files, or if the new version cannot read the
older files. Messages call the format of a file its form.
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
    """Return why this version cannot read a manifest, as a clause; None if it can.

    `kind` is a key of READ_FORMS.

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
