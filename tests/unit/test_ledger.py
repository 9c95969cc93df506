"""The bookkeeping of a pool, event by event; no env, no worker, no waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from agymc.buffers import BuffersSpec
from agymc.commands import Command, Completion, Fault, Reply
from agymc.errors import BadDataError, BusyError, EnvError, ResetNeededError, SnapshotError
from agymc.ledger import Ledger, listed
from agymc.spaces import Misfit
from agymc.types import AutoresetMode

STEP, RESET, CALL, SNAPSHOT = Command.STEP, Command.RESET, Command.CALL, Command.SNAPSHOT


class Book:
    """A ledger, and the worker that answers it."""

    def __init__(
        self, num_envs: int = 4, mode: Any = "NextStep", fairness: Any = "arrival"
    ) -> None:
        self.ledger = Ledger(num_envs, "serial", AutoresetMode(mode), fairness)
        spec = BuffersSpec(num_envs, spaces.Discrete(2), spaces.Discrete(2))
        self.buffers = self.ledger.buffers = spec.allocate()

    def begin(self, command: Command, *ids: int) -> None:
        env_ids = np.array(ids, np.int64) if ids else None
        self.ledger.check(command, env_ids)
        self.ledger.begin(command, env_ids)

    def end(self, *ids: int, over: bool = False, **replies: Any) -> None:
        """Operations end; ``e3=reply`` is what env 3 has to say."""
        chosen = list(ids)
        self.buffers.completed[chosen] = self.buffers.requested[chosen]
        self.buffers.terminations[chosen] = over
        parts = [(int(name[1:]), reply) for name, reply in replies.items()]
        self.ledger.note(0, self.ledger.num_envs, Completion(chosen, parts))

    def take(self, max_ready: int | None = None) -> list[int]:
        return self.ledger.take(max_ready).tolist()

    def numbers(self) -> list[tuple[int, int]]:
        pairs = zip(
            self.ledger.episodes.ids.tolist(), self.ledger.episodes.steps.tolist(), strict=True
        )
        return list(pairs)


def fault(error: Exception, operation: str = "step") -> Reply:
    return Reply(fault=Fault(error, operation, data=isinstance(error, Misfit)))


def test_law_1_a_second_operation_is_refused() -> None:
    book = Book()
    book.begin(STEP, 1, 2)
    with pytest.raises(BusyError, match="can't begin 'step': 'step' is in flight, for env 2"):
        book.begin(STEP, 0, 2)
    with pytest.raises(
        BusyError, match="can't begin 'call': 'step' is in flight, for envs 1 and 2"
    ):
        book.begin(CALL)
    book.end(1)
    with pytest.raises(BusyError, match="a result of 'step' was not received, for env 1"):
        book.begin(RESET, 1)
    assert book.take() == [1]
    book.begin(RESET, 1)
    book.begin(CALL, 0, 3)


def test_law_2_stale_replies_are_dropped_and_counted() -> None:
    book = Book()
    book.begin(STEP)
    book.buffers.completed[:] = [1, 0, 1, 7]  # those of 1 and 3 belong to other operations
    info = Reply(info={"x": 1})
    completion = Completion([0, 1, 2, 3], [(1, info), (2, info), (3, fault(ValueError()))])
    book.ledger.note(0, 4, completion)
    assert book.ledger.stale_replies == 2
    assert book.ledger.take_errors(book.ledger.transitions) is None
    ids = book.ledger.take(None)
    assert ids.tolist() == [0, 2]
    assert book.ledger.take_infos(ids) == [(1, {"x": 1})]
    assert book.ledger.flying(book.ledger.transitions) == [1, 3]
    book.end(1, 3)  # the right answers, in the end
    assert book.take() == [1, 3]
    assert book.ledger.stale_replies == 2


def test_a_whole_shard_of_stale_replies() -> None:
    book = Book()
    book.begin(STEP)
    book.ledger.note(0, 4, Completion(None, []))
    assert book.ledger.stale_replies == 4
    assert book.take() == []


def test_law_3_what_was_not_taken_stays() -> None:
    book = Book()
    book.begin(RESET)
    book.end(2, 0, 3)
    assert book.take(1) == [2]
    book.end(1, e1=fault(ValueError("no")))
    error = book.ledger.take_errors(book.ledger.transitions)
    assert error is not None
    assert str(error) == "env 1 raised ValueError in step: no (engine 'serial', seed None)"
    assert book.take(1) == [0]
    assert book.take() == [3]


def test_order_of_arrival_and_of_age() -> None:
    for fairness, expected in (("arrival", [3, 1, 0, 2]), ("oldest", [2, 0, 1, 3])):
        book = Book(fairness=fairness)
        for index in (2, 0, 1, 3):
            book.begin(STEP, index)
        book.end(3, 1)
        book.end(0, 2)
        assert book.take(3) == expected[:3]
        assert book.take() == expected[3:]
        assert book.take() == []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("NextStep", [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]),
        ("SameStep", [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_numbers_of_episodes_and_steps(mode: str, expected: Any, whole: bool) -> None:
    book = Book(mode=mode)
    ids = () if whole else (3, 1, 0, 2)
    book.begin(RESET, *ids)
    said = []
    for number in range(5):
        book.end(0, 1, 2, 3, over=number == 2)
        if whole:
            assert book.ledger.take_all()
        else:
            book.take(2)
            book.take()
        said.append(book.numbers())
        book.begin(STEP, *ids)
    assert said == [[pair] * 4 for pair in expected]


def test_numbers_where_some_are_over() -> None:
    book = Book(mode="SameStep")
    book.begin(RESET)
    book.end(0, 1, 2, 3)
    book.take()
    book.begin(STEP)
    book.end(1, over=True)
    book.end(0, 2, 3)
    book.take()
    book.begin(RESET, 1, 2)  # 1 has begun an episode already, which nobody has stepped
    book.begin(STEP, 0, 3)
    book.end(0, 1, 2, 3)
    book.take()
    assert book.numbers() == [(0, 2), (2, 0), (1, 0), (0, 2)]


def test_dropped_results_count() -> None:
    book = Book()
    book.begin(RESET)
    book.end(0, 1, 2, 3, over=False)
    book.take()
    book.begin(STEP)
    book.end(0, 1, over=True)
    book.end(2, 3)
    book.take()
    book.begin(STEP)  # which begins new episodes in 0 and 1
    book.end(0, 1, 2, 3)
    book.ledger.discard()
    assert book.take() == []
    book.begin(RESET)
    book.end(0, 1, 2, 3)
    book.take()
    assert book.numbers() == [(2, 0), (2, 0), (1, 0), (1, 0)]


def test_actions_of_envs_about_to_reset() -> None:
    for mode, expected in (("NextStep", [False, True]), ("SameStep", None), ("Disabled", None)):
        book = Book(mode=mode)
        assert book.ledger.about_to_reset(None) is None
        book.begin(RESET)
        book.end(0, 1, 2)
        book.end(3, over=True)
        book.take()
        unused = book.ledger.about_to_reset(np.array([0, 3]))
        assert (None if unused is None else unused.tolist()) == expected


def test_disabled() -> None:
    book = Book(mode="Disabled")
    book.begin(RESET)
    book.end(0, 2, over=True)
    book.end(1, 3)
    book.take()
    with pytest.raises(ResetNeededError, match="the episode is over in envs 0 and 2"):
        book.begin(STEP)
    book.begin(STEP, 1, 3)
    book.begin(CALL, 0)
    book.begin(RESET, 2)


def test_failures() -> None:
    book = Book()
    book.ledger.seeds[1] = 7
    book.begin(STEP)
    book.end(
        0, 1, 2, 3, e1=fault(Misfit("expected X, got Y")), e3=fault(KeyError("k"), "autoreset")
    )
    assert book.ledger.has_errors(book.ledger.transitions)
    assert not book.ledger.has_errors(book.ledger.requests)
    error = book.ledger.take_errors(book.ledger.transitions)
    assert isinstance(error, BadDataError)
    assert str(error) == (
        "env 1 returned bad data in step: expected X, got Y (engine 'serial', seed 7); "
        "env 3 failed too, see `others`"
    )
    assert (error.env_ids, error.operation, error.engine, error.seed) == ((1,), "step", "serial", 7)
    (other,) = error.others
    assert (other.env_ids, other.operation) == ((3,), "autoreset")
    assert isinstance(other.__cause__, KeyError)
    assert book.ledger.take_errors(book.ledger.transitions) is None
    assert book.take() == [0, 2]
    with pytest.raises(ResetNeededError, match="reset before the next step: envs 1 and 3 failed"):
        book.begin(STEP)
    book.begin(RESET, 1)
    book.end(1, e1=fault(ValueError(), "reset"))
    assert book.ledger.take_errors(book.ledger.transitions) is not None
    with pytest.raises(ResetNeededError, match="envs 1 and 3 failed"):  # it has failed again
        book.begin(STEP)
    book.begin(RESET, 1, 3)
    book.end(1, 3)
    book.take()
    book.begin(STEP)


def test_requests_and_transitions_are_two_lines() -> None:
    book = Book()
    book.begin(STEP, 0, 1)
    book.begin(CALL, 2)
    book.begin(SNAPSHOT, 3)
    book.end(0, 2, 3, e2=Reply(value="two"), e3=fault(TypeError("no"), "snapshot"))
    assert book.take() == [0]
    assert len(book.ledger.transitions) == 1
    error = book.ledger.take_errors(book.ledger.requests)
    assert isinstance(error, SnapshotError)
    book.ledger.take_requests()
    replies = book.ledger.take_replies(np.array([2, 3]))
    assert [reply.value for reply in replies] == ["two", None]
    book.begin(STEP, 0, 2, 3)  # a request that failed asks for no reset


def test_death() -> None:
    book = Book()
    book.begin(STEP, 0, 1)
    book.begin(CALL, 2)
    assert book.ledger.flying_in(1, 2) == [1, 2]
    error = EnvError("gone", env_ids=[1, 2])
    book.ledger.note_death([1, 2], error)
    assert book.ledger.take_errors(book.ledger.transitions) is error
    assert book.ledger.take_errors(book.ledger.requests) is error
    assert error.others == ()
    book.end(0)
    assert book.take() == [0]
    assert len(book.ledger.transitions) == len(book.ledger.requests) == 0


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([3], "env 3"),
        ([0, 1], "envs 0 and 1"),
        ([0, 4, 2], "envs 0, 4 and 2"),
        (range(8), "envs 0, 1, 2, 3, 4, 5, 6 and 7"),
        (range(200), "envs 0, 1, 2, 3, 4, 5, ... (200 in all)"),
        (np.array([5]), "env 5"),
    ],
)
def test_listed(ids: Any, text: str) -> None:
    assert listed(ids) == text
