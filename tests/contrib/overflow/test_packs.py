"""What an extent of a pack is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from crawlproject.contrib.overflow.packs import compressed, decompressed


@given(some.lists(some.binary(max_size=300), max_size=100))
def test_an_extent_is_read_as_it_was_written(entries: list[bytes]) -> None:
    assert decompressed(compressed(entries)) == entries


def test_an_extent_that_is_cut_or_changed_is_no_extent() -> None:
    whole = compressed([b"request %d" % number for number in range(64)])
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="extent"):
            decompressed(whole[:end])
    changed = bytearray(whole)
    for at in range(2, len(whole)):
        changed[at] ^= 1
        with pytest.raises(ValueError, match="extent"):
            decompressed(bytes(changed))
        changed[at] ^= 1
