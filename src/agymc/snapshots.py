"""The state of one env as bytes, so that it can go on later, elsewhere.

Pickling an env is not enough: classes that inherit from `gymnasium.utils.EzPickle` (LunarLander,
the MuJoCo envs, ...) unpickle as a *new* env made with the same arguments. Here their attributes
are saved like those of any other object, and what can't be saved says so.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from typing import Any

import cloudpickle
from gymnasium.utils import EzPickle

__all__ = ["load_env", "save_env"]


class _EnvPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, EzPickle):
            return (
                copyreg.__newobj__,  # type: ignore[attr-defined]
                (type(obj),),
                obj.__dict__,
                None,
                None,
                _set_attributes,
            )
        return super().reducer_override(obj)


def _set_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    obj.__dict__.update(attributes)


def save_env(env: Any) -> bytes:
    """The env, its wrappers and random generators included.

    Raises:
        TypeError: Something in it can't be copied.
    """
    stream = io.BytesIO()
    try:
        _EnvPickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(env)
    except Exception as error:
        raise TypeError(
            f"the state of {env} can't be copied: {type(error).__name__}: {error}"
        ) from error
    return stream.getvalue()


def load_env(saved: bytes) -> Any:
    """The env that `save_env` saved."""
    return pickle.loads(saved)
