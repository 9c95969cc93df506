"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check has found.

    Attributes:
        check: The check, in a few words.
        severity: "error" for what gives wrong data or hangs, "warning" for what costs or limits.
        text: What was expected, what came, and where.
        remedy: What to do about it.
    """

    check: str
    severity: Literal["error", "warning"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.text}" + (f". {self.remedy}" if self.remedy else "")
