"""What is public, and what importing it does."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
import types

import pytest

import agymc
from agymc import errors

MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(agymc.__path__, "agymc.")
    if name.split(".")[1] not in ("__main__", "cli", "testing", "viewer")
    and not name.endswith(("._child", "__main__"))
)


def test_all_names_exist_and_are_sorted():
    for name in agymc.__all__:
        assert hasattr(agymc, name), name
    constants = [name for name in agymc.__all__ if name.isupper()]
    classes = [name for name in agymc.__all__ if name[0].isupper() and not name.isupper()]
    functions = [name for name in agymc.__all__ if name[0].islower()]
    assert agymc.__all__ == [*sorted(constants), *sorted(classes), *sorted(functions)]


def test_nothing_else_is_public():
    """What a reader of ``dir(agymc)`` sees is in ``__all__``, or is a module."""
    public = {
        name
        for name in dir(agymc)
        if not name.startswith("_") and not isinstance(getattr(agymc, name), types.ModuleType)
    }
    assert public == set(agymc.__all__)


def test_every_error_is_public_and_in_the_tree():
    for name in errors.__all__:
        assert getattr(agymc, name) is getattr(errors, name)
        # One is not to be caught by accident: it is raised inside of envs.
        root = BaseException if name == "EnvInterrupt" else agymc.AgymcError
        assert issubclass(getattr(errors, name), root)
        assert name in (errors.__doc__ or ""), f"{name} is missing in the tree of agymc.errors"


def test_public_things_have_docstrings():
    for name in agymc.__all__:
        thing = getattr(agymc, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize("name", MODULES)
def test_each_module_says_what_is_public(name):
    try:
        module = importlib.import_module(name)
    except agymc.MissingExtraError:
        pytest.skip("needs a package that is not installed")
    if any(part.startswith("_") for part in name.split(".")) or not vars(module).get("__all__"):
        return
    for public in module.__all__:
        assert hasattr(module, public), public


def test_importing_it_starts_nothing_and_is_quiet():
    code = """
import sys, threading, gymnasium
registry = dict(gymnasium.registry)
import agymc, agymc.compat
assert threading.active_count() == 1
assert gymnasium.registry == registry
heavy = {"pygame", "ray", "torch", "PIL", "imageio", "typer", "rich", "mujoco", "ale_py", "gym"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)


def test_version():
    assert agymc.__version__.count(".") == 2
