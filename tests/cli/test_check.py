"""``agymc check``."""

from __future__ import annotations

import json


def test_an_id(command):
    run = command("check", "CartPole-v1", "--steps", "20")
    assert run.code == 0, run.err
    assert "Checks of CartPole-v1" in run.out
    assert run.row("determinism") == ["ok"]
    assert run.row("engine process+thread") == ["ok"]


def test_a_function_of_a_module_here(command):
    run = command("check", "strange:Drawn", "--steps", "20", "--json")
    assert run.code == 1, run.err
    document = json.loads(run.out)
    assert document["env"] == "strange:Drawn"
    (found,) = [one for one in document["findings"] if one["check"] == "determinism"]
    assert found["severity"] == "error"
    assert "two envs with the same seed and actions differ" in found["text"]
    assert "self.np_random" in found["remedy"]


def test_what_there_is_not(command):
    for name, text in (
        ("Cartpole-v1", "no environment is registered as 'Cartpole-v1'"),
        ("missing_module:Env", "there is no module 'missing_module' here"),
        ("math:Env", "'math' has nothing to call named 'Env'"),
    ):
        run = command("check", name)
        assert run.code == 2
        assert f"Error: {text}" in run.err
        assert not run.out


def test_ctrl_c(command):
    run = command.interrupt("check", "strange:MarksStep")
    assert run.code == 130
    assert "Traceback" not in run.err
