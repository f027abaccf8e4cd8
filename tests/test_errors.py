"""What River makes of the codes of database errors: above all, which of them pass, so that nothing is given up."""

from __future__ import annotations

import pytest

from river import ErrorClass

CLASSES = {
    ErrorClass.TRANSIENT: ("40001", "40P01", "55P03", "25006", "53300"),
    ErrorClass.CONNECTION_LOST: (
        *("08000", "08006", "57P01", "57P02", "57P03", "57P04", "57P05"),
        *("25P03", "25P04", "28000", "28P01", "3D000"),
    ),
    ErrorClass.UNIQUE_VIOLATION: ("23505",),
    ErrorClass.UNDEFINED_TABLE: ("42P01",),
    ErrorClass.CANCELLED: ("57014",),
    ErrorClass.OTHER: ("22P02", "23514", "42501", "42601", "25P02", ""),
}


@pytest.mark.parametrize(
    ("sqlstate", "wanted"), [(each, wanted) for wanted, all_of in CLASSES.items() for each in all_of]
)
def test_a_code_has_the_class_that_decides_what_becomes_of_it(sqlstate: str, wanted: ErrorClass) -> None:
    assert ErrorClass.of(sqlstate) is wanted
