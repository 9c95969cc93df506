"""What is in flight, what is ready, what went wrong: the bookkeeping of a pool.

Sans-IO: nothing here waits, sends or calls an env. The pool tells the ledger what it has begun
(`begin`) and what has ended (`note`, `note_death`), asks it before it begins something (`check`),
and hands out what the ledger says is ready (`take`).

Life of a slot::

    IDLE --begin--> FLYING --note--> READY --take--> IDLE

A slot whose operation raised goes the same way; its error is handed out by being raised. After that
the slot must be reset.

Law 1: `check` refuses a second operation of a slot that is not IDLE. Law 2: `note` compares the
number of each operation that has ended with that of the one in flight, and drops and counts it when
they differ. Law 3: what `take` has not handed out stays READY, whatever was raised in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agymc.buffers import Buffers
from agymc.commands import Command, Completion, Fault, Reply, text_of
from agymc.episodes import Episodes
from agymc.errors import (
    BadDataError,
    BusyError,
    EnvError,
    PickleError,
    ResetNeededError,
    SnapshotError,
)
from agymc.spaces import Columns
from agymc.types import AutoresetMode, Fairness

__all__ = ["IdArray", "Ledger", "Line", "Replies", "listed", "name_of"]

IdArray = NDArray[np.int64]

Replies: TypeAlias = dict[int, Reply]
"""What slots had to say, by slot."""

_IDLE, _FLYING, _READY = 0, 1, 2
# Reading these off the enum would cost more than what is done with them.
_STEP, _RESET = _TRANSITIONS = int(Command.STEP), int(Command.RESET)
_NOTHING = Reply()


class Line:
    """Operations of one sort: transitions (STEP, RESET), or requests (everything else)."""

    __slots__ = ("flying", "ready")

    def __init__(self) -> None:
        self.flying = 0
        self.ready: list[int] = []  # in the order in which they ended

    def __len__(self) -> int:
        return self.flying + len(self.ready)


class Ledger:
    """The state of ``num_envs`` slots, as the caller's side sees it.

    Args:
        num_envs: The number of slots.
        engine: The engine's name, for error texts.
        autoreset_mode: As the slots have it.
        fairness: Whose results are handed out first.
        timed: Whether to note when operations begin.
        keep_last: Whether to keep the observations that were handed out last.

    Attributes:
        autoreset_mode: As above.
        transitions: Steps and resets in flight and ready.
        requests: Everything else.
        stale_replies: How many replies were dropped because their operation was no longer wanted.
        episodes: The episode of each env's last result.
        seeds: The seed of each env's last seeded reset.
        begun: How many batches of operations have begun.
        unwanted: The slots that have a request in flight whose result nobody waits for any more.
        buffers: The buffers, once they are laid out.
        begun_at: (num_envs,) when the last operation of each slot began, if that is noted.
        last: The observations that were handed out last, if they are kept.
        take_over: Is told what has ended in which slots; those that it returns are in flight still.
        mending: Gives the slots that are in flight though no worker has anything to do for them.
        late: Gives the slots whose operation should have ended by now.
    """

    def __init__(
        self,
        num_envs: int,
        engine: str,
        autoreset_mode: AutoresetMode,
        fairness: Fairness,
        *,
        timed: bool = False,
        keep_last: bool = False,
    ) -> None:
        self.num_envs = num_envs
        self.autoreset_mode = autoreset_mode
        self.transitions = Line()
        self.requests = Line()
        self.stale_replies = 0
        self.episodes = Episodes(num_envs, autoreset_mode)
        self.seeds: list[int | None] = [None] * num_envs
        self.buffers: Buffers | None = None
        self._engine = engine
        self._fairness = fairness
        self._everything = np.arange(num_envs)
        self._state = np.zeros(num_envs, np.int8)
        self._commands = np.zeros(num_envs, np.int8)  # of the last operation of each slot
        self.begun = 0
        self._replies: dict[int, Reply] = {}
        self._errors: dict[int, EnvError] = {}
        self._failed = np.zeros(num_envs, np.bool_)  # must be reset before the next step
        self._any_failed = False
        self._only_steps = False  # the last batch was a step of all slots
        self.unwanted: set[int] = set()
        self.begun_at = np.zeros(num_envs) if timed else None
        self.take_over: Callable[[Sequence[int], Replies], set[int]] | None = None
        self.mending: Callable[[], Collection[int]] = set
        self.late: Callable[[], Collection[int]] = set
        self._keep_last = keep_last
        self.last: Columns | None = None
        self._reconciled = False

    # ------------------------------------------------------------------ before and at the beginning

    def check(self, command: Command, env_ids: IdArray | None) -> None:
        """Raise when the operation can't begin now.

        Raises:
            ResetNeededError: A step of a slot that must be reset first.
            BusyError: A slot is not idle.
        """
        whole = slice(None) if env_ids is None else env_ids
        if command == _STEP:
            if self._any_failed and self._failed[whole].any():
                ids = self._everything[whole][self._failed[whole]]
                raise ResetNeededError(
                    f"expected a reset before the next step: {listed(ids)} failed"
                )
            if self.episodes.any_over and self.autoreset_mode is AutoresetMode.DISABLED:
                over = self.episodes.over[whole]
                if over.any():
                    raise ResetNeededError(
                        "expected a reset before the next step, as autoreset is disabled: the "
                        f"episode is over in {listed(self._everything[whole][over])}"
                    )
        line = self.transitions
        if line.flying or self.requests.flying or line.ready or self.unwanted:
            busy = np.flatnonzero(self._state[whole] != _IDLE)
            if len(busy):
                self._raise_busy(command, busy if env_ids is None else env_ids[busy])

    def _raise_busy(self, command: Command, ids: IdArray) -> None:
        doing = name_of(self._commands[ids[0]])
        if int(ids[0]) in self.unwanted:
            what = f"{doing!r}, which was given up, is still in flight"
        elif self._state[ids[0]] == _READY:
            what = f"a result of {doing!r} was not received"
        else:
            what = f"{doing!r} is in flight"
        raise BusyError(
            f"can't begin {name_of(command)!r}: {what}, for {listed(ids)}; receive it first", doing
        )

    def about_to_reset(self, env_ids: IdArray | None) -> NDArray[np.bool_] | None:
        """(k,) which slots will be reset by their next step, whatever its action; None for none."""
        if not self.episodes.any_over or self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            return None
        return self.episodes.over[slice(None) if env_ids is None else env_ids]

    def begin(self, command: Command, env_ids: IdArray | None) -> None:
        """Note that the operation has begun for these slots; None for all.

        What was interrupted in here (``begun`` is as before) is put right by calling it again.
        """
        number = self.begun + 1
        buffers = self.buffers
        line = self._line(command)
        only_steps = command == _STEP and env_ids is None
        if env_ids is None:
            count = self.num_envs
            self._state.fill(_FLYING)
            self._commands.fill(command)
            if buffers is not None:
                buffers.requested.fill(number)
        else:
            count = len(env_ids)
            self._state[env_ids] = _FLYING
            self._commands[env_ids] = command
            if buffers is not None:
                buffers.requested[env_ids] = number
        if self.begun_at is not None:
            now = perf_counter()
            if env_ids is None:
                self.begun_at.fill(now)
            else:
                self.begun_at[env_ids] = now
        # There is no call in this line, so no interruption either.
        line.flying, self._only_steps, self.begun = line.flying + count, only_steps, number

    def renumber(self, index: int) -> None:
        """A slot that is in flight begins something else: its results so far are stale."""
        assert self.buffers is not None and self.begun_at is not None
        self.begun += 1
        self.buffers.requested[index] = self.begun
        self.begun_at[index] = perf_counter()

    def is_flying(self) -> NDArray[np.bool_]:
        """(num_envs,) which slots have an operation in flight."""
        flying: NDArray[np.bool_] = self._state == _FLYING
        return flying

    def command(self, index: int) -> Command:
        """The last operation of a slot."""
        return Command(self._commands[index])

    def commands(self) -> NDArray[np.int8]:
        """(num_envs,) the last operations of all slots; a copy."""
        return self._commands.copy()

    def is_over(self, index: int) -> bool:
        """Whether the last result of a slot ended an episode."""
        return bool(self.episodes.over[index])

    def _line(self, command: int) -> Line:
        return self.transitions if command in _TRANSITIONS else self.requests

    # ------------------------------------------------------------------ at the end

    def note(self, first: int, count: int, completion: Completion) -> None:
        """Note what has ended in the shard of ``count`` slots that begins with slot ``first``."""
        rows: Any
        if completion.positions is None:
            if not completion.replies and self._note_steps(first, count):
                return
            ids = list(range(first, first + count))
            rows = slice(first, first + count)
        else:
            rows = ids = [first + position for position in completion.positions]
        replies = completion.replies
        buffers = self.buffers
        dropped: set[int] = set()
        if buffers is not None:
            completed, requested = buffers.completed[rows], buffers.requested[rows]
            if completed.tobytes() != requested.tobytes():
                dropped.update(ids[i] for i in np.flatnonzero(completed != requested))
        if self._reconciled:  # what was given up for lost may come after all
            dropped.update(index for index in ids if self._state[index] != _FLYING)
        self.stale_replies += len(dropped)
        if self.unwanted:
            dropped |= self._drop_unwanted(index for index in ids if index not in dropped)
        if dropped:
            rows = ids = [index for index in ids if index not in dropped]
            replies = [reply for reply in replies if first + reply[0] not in dropped]
        if self.take_over is not None and ids and (replies or self.late() or self.mending()):
            given: Replies = {first + position: reply for position, reply in replies}
            kept = self.take_over(ids, given)
            if kept:
                rows = ids = [index for index in ids if index not in kept]
            replies = [(index - first, reply) for index, reply in given.items()]
        if not ids:
            return
        for position, reply in replies:
            self._note_reply(first + position, reply)
        if self._any_failed:
            reset = [i for i in ids if self._commands[i] == _RESET and i not in self._errors]
            self._failed[reset] = False
            self._any_failed = bool(self._failed.any())
        self._state[rows] = _READY
        if self.transitions.flying and self.requests.flying:  # both sorts may be among them
            for index in ids:
                self._end(self._line(self._commands[index]), [index])
        else:
            self._end(self._line(self._commands[ids[0]]), ids)

    def _note_steps(self, first: int, count: int) -> bool:
        """What most batches are: steps of all slots, of which nothing is to be said.

        Returns:
            False where there is more to look at; nothing is noted then.
        """
        buffers = self.buffers
        if not self._only_steps or self._any_failed or self._reconciled or self.unwanted:
            return False
        assert buffers is not None
        rows = slice(first, first + count)
        if buffers.completed[rows].tobytes() != buffers.requested[rows].tobytes():
            return False
        if self.take_over is not None and (self.late() or self.mending()):
            return False
        self._state[rows] = _READY
        line = self.transitions
        line.flying, line.ready = line.flying - count, [*line.ready, *range(first, first + count)]
        return True

    def reconcile(self, completed: NDArray[np.int64]) -> None:
        """Find what was lost by an interruption in `note`, or between the workers and it.

        An operation whose end is not noted by now has lost its reply, and fails.

        Args:
            completed: (num_envs,) the numbers of operations whose end should have been noted.
        """
        assert self.buffers is not None
        self._reconciled = True
        lost = (self._state == _FLYING) & (completed == self.buffers.requested)
        lost[list(self.mending())] = False
        for line in (self.transitions, self.requests):
            line.ready = list(dict.fromkeys(line.ready))
        ready = {*self.transitions.ready, *self.requests.ready}
        lost |= (self._state == _READY) & ~np.isin(self._everything, list(ready))
        self.lose(np.flatnonzero(lost).tolist())
        flying = self._state == _FLYING
        flying[list(self.unwanted)] = False
        transitions = np.isin(self._commands, _TRANSITIONS)
        self.transitions.flying = int((flying & transitions).sum())
        self.requests.flying = int((flying & ~transitions).sum())

    def lose(self, ids: Iterable[int]) -> None:
        """The operations of these slots, in flight as far as is known, give nothing any more."""
        for index in ids:
            doing = self.doing(index)
            self._replies.pop(index, None)
            error = EnvError(
                f"the result of {doing} of env {index} was lost, as receiving it was interrupted",
                env_ids=[index],
                operation=doing,
                engine=self._engine,
                seed=self.seeds[index],
            )
            self.note_death([index], error)
            if self._line(self._commands[index]) is self.transitions:
                self._failed[index] = self._any_failed = True

    @staticmethod
    def _end(line: Line, ids: list[int]) -> None:
        line.flying -= len(ids)
        line.ready += ids

    def _note_reply(self, index: int, reply: Reply) -> None:
        fault = reply.fault
        if fault is None:
            if reply.objects is not None:
                assert self.buffers is not None
                leaves = self.buffers.observation_layout.object_leaves
                for leaf, value in zip(leaves, reply.objects, strict=True):
                    self.buffers.observations[leaf][index] = value
            if reply.info is not None or reply.value is not None:
                self._replies[index] = reply
            return
        if reply.error is not None:
            self.fail(index, reply.error)
        else:
            self.fail(index, self.error_of(index, fault))

    def fail(self, index: int, error: EnvError) -> None:
        """The operation of a slot has ended with an error."""
        self._errors[index] = error
        if self._line(self._commands[index]) is self.transitions:
            self._failed[index] = True
            self._any_failed = True

    def error_of(self, index: int, fault: Fault) -> EnvError:
        """What is raised for a fault."""
        original = fault.exception
        command = self._commands[index]
        kind = BadDataError if fault.data else EnvError
        if command in (Command.SNAPSHOT, Command.RESTORE):
            kind = SnapshotError
        operation = fault.operation or name_of(command)
        seed = self.seeds[index]
        text = text_of(original)
        if fault.transit is not None:
            did = f"{fault.transit}, in"
            if not isinstance(original, PickleError):
                text = f"{type(original).__name__}: {text}"
        else:
            did = "returned bad data in" if fault.data else f"raised {type(original).__name__} in"
        error = kind(
            f"env {index} {did} {operation}{': ' if text else ''}{text} "
            f"(engine {self._engine!r}, seed {seed})",
            env_ids=[index],
            operation=operation,
            engine=self._engine,
            seed=seed,
        )
        error.__cause__ = original
        return error

    def _drop_unwanted(self, ids: Iterable[int]) -> set[int]:
        """These slots have ended: those of them that nobody waits for are idle."""
        dropped = self.unwanted.intersection(ids)
        self.unwanted -= dropped
        self.stale_replies += len(dropped)
        self._state[list(dropped)] = _IDLE
        return dropped

    def drop_requests(self) -> None:
        """Nobody waits for the requests any more; the slots are busy until they have ended."""
        line = self.requests
        self._state[line.ready] = _IDLE
        for index in line.ready:
            self._replies.pop(index, None)
            self._errors.pop(index, None)
        self.unwanted.update(self.flying(line))
        line.ready.clear()
        line.flying = 0

    def is_unwanted(self, env_ids: IdArray | None) -> bool:
        """Whether one of these slots, None for all, has a request that nobody waits for."""
        if env_ids is None or not self.unwanted:
            return bool(self.unwanted)
        return not self.unwanted.isdisjoint(env_ids.tolist())

    def flying_in(self, first: int, count: int) -> list[int]:
        """Which slots of a shard have an operation in flight."""
        return [i for i in range(first, first + count) if self._state[i] == _FLYING]

    def flying(self, line: Line) -> list[int]:
        """Which slots have an operation of that sort in flight."""
        if not line.flying:
            return []
        ids = self.flying_in(0, self.num_envs)
        return [
            index
            for index in ids
            if self._line(self._commands[index]) is line and index not in self.unwanted
        ]

    def doing(self, index: int) -> str:
        """The name of the last operation of a slot."""
        return name_of(self._commands[index])

    def must_reset(self, index: int) -> None:
        """A slot that does nothing now must be reset before its next step."""
        self._failed[index] = self._any_failed = True

    def end(self, index: int, reply: Reply) -> None:
        """An operation in flight ends, here and not in its worker."""
        if self._drop_unwanted([index]):
            return
        self._note_reply(index, reply)
        self._state[index] = _READY
        if reply.fault is None and self._commands[index] == _RESET:
            self._failed[index] = False
        self._end(self._line(self._commands[index]), [index])

    def note_death(self, ids: Iterable[int], error: EnvError) -> None:
        """These slots are gone: the operations that they had in flight end with an error."""
        dropped = self._drop_unwanted(ids)
        for index in ids:
            if index in dropped:
                continue
            self._state[index] = _READY
            self._errors[index] = error
            self._end(self._line(self._commands[index]), [index])

    # ------------------------------------------------------------------ handing out

    def has_errors(self, line: Line) -> bool:
        """Whether an operation of that sort has ended with an error not yet handed out."""
        return bool(self._errors) and any(index in self._errors for index in line.ready)

    def take_errors(self, line: Line) -> EnvError | None:
        """Hand out all errors of a line as one, the first, which has the others attached."""
        if not self._errors:
            return None
        failed = sorted(index for index in line.ready if index in self._errors)
        if not failed:
            return None
        line.ready = [index for index in line.ready if index not in self._errors]
        self._state[failed] = _IDLE
        # Slots that were lost together share one error.
        first, *others = dict.fromkeys(self._errors.pop(index) for index in failed)
        if others:
            ids = [index for error in others for index in error.env_ids]
            first.args = (f"{first.args[0]}; {listed(ids)} failed too, see `others`",)
            first.others = tuple(others)
        return first

    def take_all(self) -> bool:
        """Hand out the transitions of all slots at once, if all are ready."""
        line = self.transitions
        if len(line.ready) != self.num_envs:
            return False
        line.ready.clear()
        self._state.fill(_IDLE)
        self._account(None)
        return True

    def take(self, max_ready: int | None, only: IdArray | None = None) -> IdArray:
        """Hand out transitions that are ready, as fairness has it: (k,) the slots.

        Args:
            max_ready: No more than so many; None for no limit.
            only: Only those of these slots; None for all.
        """
        line = self.transitions
        ready = np.array(line.ready, np.int64)
        if only is not None:
            wanted = np.isin(ready, only)
            self._take_these(ready[wanted])
            line.ready = ready[~wanted].tolist()
            return ready[wanted]
        if self._fairness == "oldest":
            assert self.buffers is not None
            ready = ready[np.argsort(self.buffers.requested[ready], kind="stable")]
        chosen = ready[:max_ready]
        line.ready = ready[len(chosen) :].tolist()
        self._take_these(chosen)
        return chosen

    def _take_these(self, chosen: IdArray) -> None:
        self._state[chosen] = _IDLE
        self._account(chosen)

    def take_requests(self) -> None:
        """Hand out the requests that are ready."""
        self._state[self.requests.ready] = _IDLE
        self.requests.ready.clear()

    def take_replies(self, env_ids: IdArray | None) -> list[Reply]:
        """What these slots had to say, in order; an empty reply for those that said nothing."""
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
        return [self._replies.pop(index, _NOTHING) for index in ids]

    def take_infos(self, env_ids: IdArray | None) -> list[tuple[int, dict[str, Any]]]:
        """``(row, info)`` for those of the slots just handed out that gave an info."""
        if not self._replies:
            return []
        replies = enumerate(self.take_replies(env_ids))
        return [(row, reply.info) for row, reply in replies if reply.info is not None]

    def discard(self) -> None:
        """Drop transitions that are ready: their slots are about to begin anew."""
        line = self.transitions
        if not line.ready:
            return
        self._state[line.ready] = _IDLE
        # An episode that began unseen still counts, as it does in the slot.
        dropped = [index for index in line.ready if index not in self._errors]
        self._account(np.array(dropped, np.int64))
        for index in line.ready:
            self._replies.pop(index, None)
            self._errors.pop(index, None)
        line.ready.clear()

    def _account(self, env_ids: IdArray | None) -> None:
        """Note which episode the results belong to, and whether they end it."""
        buffers = self.buffers
        assert buffers is not None
        if self._keep_last:
            self._note_last(env_ids)
        if self._only_steps and env_ids is None:  # most batches
            self.episodes.count_steps(buffers)
        else:
            whole = slice(None) if env_ids is None else env_ids
            self.episodes.count(buffers, env_ids, self._commands[whole] == _RESET)

    def _note_last(self, env_ids: IdArray | None) -> None:
        """Keep the observations that are handed out: an env that dies may spoil its row."""
        assert self.buffers is not None
        if self.last is None:
            self.last = [column.copy() for column in self.buffers.observations]
            return
        for kept, column in zip(self.last, self.buffers.observations, strict=True):
            if env_ids is None:
                kept[:] = column  # objects are not copied: slots never change those they gave
            elif isinstance(column, np.ndarray):
                kept[env_ids] = column[env_ids]
            else:
                for index in env_ids.tolist():
                    kept[index] = column[index]

    def restored(self, index: int, episode_id: int, steps: int, seed: int | None) -> None:
        """A slot was put into another state; its flags are in the buffers."""
        assert self.buffers is not None
        over = bool(self.buffers.terminations[index] or self.buffers.truncations[index])
        self.episodes.put(index, episode_id, steps, over)
        self.seeds[index] = seed
        self._failed[index] = False
        self._any_failed = bool(self._failed.any())


def name_of(command: int) -> str:
    """What error texts call a command."""
    return "construction" if command == Command.BUILD else Command(command).name.lower()


def listed(ids: Iterable[int] | Sequence[int]) -> str:
    """The envs as people write them: "env 3", "envs 3, 5 and 7", "envs 0, 1, ... (200 in all)"."""
    texts = [str(int(index)) for index in ids]
    if len(texts) > 8:
        return f"envs {', '.join(texts[:6])}, ... ({len(texts)} in all)"
    if len(texts) == 1:
        return f"env {texts[0]}"
    return f"envs {', '.join(texts[:-1])} and {texts[-1]}"
