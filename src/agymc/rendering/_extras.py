"""Importing what only the extra ``render`` installs."""

from __future__ import annotations

import importlib
from types import ModuleType

from agymc.errors import MissingExtraError


def load(module: str, package: str, purpose: str) -> ModuleType:
    """Imports `module`.

    Raises:
        MissingExtraError: It cannot be imported; the text names `package` and `purpose`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, "render", purpose) from error
