"""Ctrl-C ends a run cleanly, whenever it comes."""

from __future__ import annotations

import json
import signal
import threading

import pytest
from tests.cli.conftest import read_film

from agymc.cli._interrupts import Interrupts


def check(result):
    assert result.code == 130, result.err
    assert "Traceback" not in result.err
    assert "Interrupted. This is what was played until then:" in result.out
    assert result.row("return") and result.row("steps per second (SPS)")


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_while_envs_are_made(command, engine):
    result = command.interrupt("run", "strange:MarksMake-v0", "-n", 2, "--engine", engine)
    check(result)
    assert result.row("steps") == ["0"]


@pytest.mark.parametrize("engine", ["serial", "thread", "process"])
def test_while_playing(command, engine):
    arguments = ["strange:MarksStep-v0", "-n", 2, "-e", 100_000, "--engine", engine]
    result = command.interrupt("run", *arguments)
    check(result)
    assert result.row("episodes") == ["2"]
    assert int(result.row("steps")[0]) >= 40


@pytest.mark.parametrize("engine", ["serial", "thread", "process"])
def test_while_an_env_hangs(command, engine):
    result = command.interrupt("run", "strange:Hangs-v0", "-n", 2, "--engine", engine)
    check(result)
    if engine == "process":
        assert "did not close in time and was killed" in " ".join(result.out.split())


def test_in_the_plain_loop(command):
    arguments = ["strange:MarksPlainLoop-v0", "-n", 2, "-e", 50, "--compare", "--engine", "process"]
    result = command.interrupt("run", *arguments)
    check(result)
    assert result.row("episodes")[0] == "100"
    assert result.row("engine")[1] == "none"


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_while_envs_are_closed(command, engine):
    arguments = ["strange:MarksClose-v0", "-n", 2, "-e", 1, "--engine", engine, "--compare"]
    result = command.interrupt("run", *arguments)
    check(result)
    assert result.row("episodes") == ["2"]  # the plain loop was not begun


def test_second_time_while_an_env_never_closes(command):
    arguments = ["strange:NeverCloses-v0", "-n", 2, "-e", 1, "--engine", "serial"]
    result = command.interrupt("run", *arguments, presses=2)
    check(result)
    assert "Not all envs would close; they were abandoned." in result.out


def test_document(command):
    arguments = ["strange:MarksStep-v0", "-n", 2, "-e", 100_000, "--engine", "serial", "--json"]
    result = command.interrupt("run", *arguments)
    assert result.code == 130
    document = json.loads(result.out)
    assert document["interrupted"]
    assert document["concurrent"]["episodes"] == 2


def test_film_so_far_is_completed(command, tmp_path):
    path = tmp_path / "x.mp4"
    arguments = ["strange:MarksStep-v0", "-n", 2, "-e", 100_000, "--engine", "process"]
    result = command.interrupt("run", *arguments, "--record", path)
    check(result)
    assert len(read_film(path)) >= 20


# ---------------------------------------------------------------------- where it may strike


def press():
    signal.raise_signal(signal.SIGINT)


def test_noted_outside():
    with Interrupts() as interrupts:
        press()
        assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            pytest.fail("raised before the block is entered")


def test_raised_at_once_where_allowed():
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        press()
        pytest.fail("not raised")


def test_raised_at_the_end_where_postponed():
    done = False
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        with interrupts.postponed():
            press()
            done = True
        pytest.fail("not raised")
    assert done


def test_raised_again_when_an_env_swallows_it():
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        try:
            press()
        except BaseException:
            pass
        with interrupts.postponed():
            pass
        pytest.fail("not raised")


def test_not_lost_in_a_destructor():
    class Dangling:
        def __del__(self):
            press()

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        Dangling()
        with interrupts.postponed():
            pass
        pytest.fail("not raised")


def test_second_one_gives_up_closing():
    with Interrupts() as interrupts:
        given_up = threading.Event()
        interrupts.give_up = given_up.set
        with interrupts.closing():
            press()
            assert not given_up.is_set()
            press()
            assert given_up.is_set()


def test_one_gives_up_closing_after_a_while(monkeypatch):
    monkeypatch.setattr("agymc.cli._interrupts._CLOSE_SECONDS", 0.01)
    with Interrupts() as interrupts:
        given_up = threading.Event()
        interrupts.give_up = given_up.set
        press()
        with interrupts.closing():
            assert given_up.wait(30)


def test_handler_is_given_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
