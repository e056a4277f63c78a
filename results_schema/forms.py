"""Forms of the files that outlive the version that wrote them, and the refusal of other forms.

A form's number goes up when an older version could no longer read the file, or a newer one no
longer the old file. A file without a number is of form 1.
"""

import msgspec

READ_FORMS: dict[str, tuple[int, ...]] = {
    "run": (1,),
    "exploration": (1,),
}
"""What can be read: of each kind of manifest, the forms, the newest last."""


class _Stamp(msgspec.Struct, kw_only=True):
    """The part of a manifest that every form has."""

    format: int = 1
    versions: dict[str, str] = {}


def refusal(content: bytes, kind: str) -> str | None:
    """Return why a manifest of `kind` cannot be read by this version; None if it can.

    Shape: a file that is no manifest at all is not refused here: its decoder says what is wrong.
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
