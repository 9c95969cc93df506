"""Ctrl-C at every line of a call: the envs can be used afterwards, and give no wrong data.

Signals come when they like. Here they come at the k-th line that the call executes in agymc, for
every k, one after the other.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.envs import Counting

import agymc

_HERE = str(Path(agymc.__file__).parent)


class _At:
    """Raises KeyboardInterrupt in this thread at the k-th line of agymc."""

    def __init__(self, k: int) -> None:
        self.left = k
        self.where: str | None = None

    def __enter__(self) -> _At:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(_HERE):
            return None
        if event == "line":
            if not self.left:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
            self.left -= 1
        return self._trace


def interruptions(call):
    """Interrupt `call()` at one line after the other; gives where it was interrupted."""
    for k in range(10_000):
        with _At(k) as at:
            try:
                call()
            except KeyboardInterrupt:
                pass
        if at.where is None:
            assert k > 20, "hardly any line was seen: is it agymc that was called?"
            return
        print(at.where)  # for the one which fails: the last
        yield at.where
    pytest.fail("no end of lines")


def make(engine, num_envs=3):
    options = {"num_workers": 2} if agymc.ENGINES[engine][0] == "process" else {}
    return agymc.make_vec([partial(Counting, length=1000)] * num_envs, engine=engine, **options)


# The other engines are made of these: in a worker process there is no Ctrl-C.
pytestmark = pytest.mark.parametrize("engine", ["serial", "thread", "process"])


@pytest.mark.parametrize("what", ["step", "send"])
def test_then_a_reset_puts_all_right(engine, what):
    with make(engine) as envs:
        envs.reset()
        call = {
            "step": lambda: envs.step([1, 2, 3]),
            "send": lambda: (envs.send([1, 2], [2, 0]), envs.recv(min_ready=1)),
        }[what]
        for where in interruptions(call):
            observations, _ = envs.reset(seed=5)
            first = observations[:, 2]
            assert observations[:, 1].tolist() == [0, 0, 0], where
            observations, rewards, *_, infos = envs.step([2, 1, 0])
            assert observations[:, 1].tolist() == [1, 1, 1], where
            assert np.round(rewards % 1, 6).tolist() == [0.001] * 3, where
            assert infos["action"].tolist() == [2, 1, 0], where
            assert [rng[2] for rng in observations] == _second_draws(first), where


def _second_draws(first):
    draws = []
    for seed, drawn in zip((5, 6, 7), first, strict=True):
        generator = np.random.Generator(np.random.PCG64(seed))
        assert generator.random() == drawn
        draws.append(generator.random())
    return draws


def test_then_what_is_received_is_true_or_an_error(engine):
    """Whoever goes on without a reset gets what was sent for, or is told that it was lost."""
    with make(engine) as envs:
        envs.reset()
        for where in interruptions(lambda: (envs.send([1, 2, 3]), envs.recv())):
            steps = {}
            while True:
                try:
                    batch = envs.recv(min_ready=1)
                except agymc.NothingInFlightError:
                    break
                except agymc.EnvError as error:
                    assert "was lost, as receiving it was interrupted" in str(error) or (
                        # It came while this env was stepped.
                        engine == "serial" and "raised KeyboardInterrupt in step" in str(error)
                    )
                    continue
                for row, index in enumerate(batch.env_ids.tolist()):
                    assert index not in steps, where
                    steps[index] = batch.steps[row]
                    assert batch.infos["action"][row] == index + 1, where
                    assert batch.infos["step_number"][row] == batch.observations[row, 1], where
            envs.reset()
