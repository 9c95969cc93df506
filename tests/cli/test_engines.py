"""``agymc engines``."""

from __future__ import annotations


def test_an_id(command):
    run = command("engines", "LunarLander-v3", "--num-envs", "16")
    assert run.code == 0, run.err
    assert "16 x LunarLander-v3 on " in run.out
    assert "A step takes " in run.out
    assert run.row("serial")[-1] == "16 steps, one after the other"
    assert "auto takes " in run.out


def test_json(command):
    run = command("engines", "CartPole-v1", "-n", "4", "--json")
    document = run.document()
    assert document["engine"] == "serial"
    assert document["figures"]["operations"] > 100
    assert {one["engine"] for one in document["candidates"]} == {
        "serial",
        "process",
        "thread",
        "process+thread",
    }


def test_one_env(command):
    run = command("engines", "CartPole-v1", "-n", "1")
    assert run.code == 0, run.err
    assert "1 x CartPole-v1" in run.out
    assert "auto takes serial: there is one env." in run.out


def test_an_env_that_cannot_be_measured(command):
    run = command("engines", "strange:Unmakeable")
    assert run.code == 1
    assert "auto takes process: nothing is known of it: probing it failed" in " ".join(
        run.out.split()
    )


def test_what_there_is_not(command):
    run = command("engines", "Cartpole-v1")
    assert run.code == 2
    assert "Error: no environment is registered as 'Cartpole-v1'" in run.err
    assert run.out == ""
