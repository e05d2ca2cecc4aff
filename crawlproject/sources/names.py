"""The normalised name of a source."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LONGEST_NAME = 128  # characters
_SHOWN = 60  # characters of what is none, in its error

_PLAIN = re.compile(r"[a-z0-9_.:][a-z0-9_.:-]*")
# Beside letters and digits, what IDNA allows in host names (RFC 5892, appendix A.3 to A.7): middle dot, keraia,
# geresh, gershayim, katakana middle dot. Its joiners are not among them: nobody sees these.
_OF_IDNA = frozenset("\u00b7\u0375\u05f3\u05f4\u30fb")


def source_name(value: object) -> str:
    """Return the name of a source, normalised to lower case.

    It consists of letters, marks and digits of any script, and of `.`, `_`, `-` and `:`, but does not begin with
    `-`: nothing that a shell, or a parser of options, takes for more than a name.

    Raises:
        ValueError: it is none; the message names it, and what may stand for it.

    """
    name = value.strip().lower() if isinstance(value, str) else ""
    if not is_name(name):
        raise ValueError(
            f"source {value!r:.60} must be 1 to {LONGEST_NAME} letters, digits and . _ : -, not beginning with -, "
            f"as in {_similar(name)}"
        )
    return name


@lru_cache(65_536)
def is_name(name: str) -> bool:
    """Tell whether a normalised text is the name of a source."""
    if not 0 < len(name) <= LONGEST_NAME:
        return False
    return bool(_PLAIN.fullmatch(name)) or (name[0] != "-" and all(map(_may_stand_in_a_name, name)))


def _may_stand_in_a_name(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LM" or category == "Nd" or char in "._:-" or char in _OF_IDNA


def _similar(name: str) -> str:
    """Return a name that resembles one that is none."""
    parts = "".join(char if _may_stand_in_a_name(char) else " " for char in name[:_SHOWN]).split()
    return "_".join(parts).strip("-_") or "museum_of_x"
