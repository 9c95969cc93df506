"""For tests: environments that fail on purpose, and checks of vector envs.

`FaultyEnv` and `AsyncFaultyEnv` raise, hang, crash and return garbage on demand.
`check_vector_env` says where a vector env breaks the laws. ``python -m agymc.testing.chaos`` puts
an engine under fire.
"""

import typing as _typing

from agymc._lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from agymc.testing.env_checks import check_env
    from agymc.testing.faulty import (
        DEADLY_FAULTS,
        AsyncFaultyEnv,
        FaultyEnv,
        InjectedError,
        Observation,
    )
    from agymc.testing.findings import Finding
    from agymc.testing.vector_checks import check_vector_env

__all__ = [
    "DEADLY_FAULTS",
    "AsyncFaultyEnv",
    "FaultyEnv",
    "Finding",
    "InjectedError",
    "Observation",
    "check_env",
    "check_vector_env",
]

__getattr__, __dir__ = _names_of(
    __name__,
    {
        "AsyncFaultyEnv": "faulty",
        "DEADLY_FAULTS": "faulty",
        "FaultyEnv": "faulty",
        "Finding": "findings",
        "InjectedError": "faulty",
        "Observation": "faulty",
        "check_env": "env_checks",
        "check_vector_env": "vector_checks",
    },
)
