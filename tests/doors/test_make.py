"""What `make` and `make_vec` take, and what they say to what they can't take."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeAwareObservation, TransformReward
from tests.doors.envs import Walk

import agymc

both_doors = pytest.mark.parametrize("door", [agymc.make, agymc.make_vec])


# What the doors do with their arguments depends on where the envs live, and on nothing else.
@pytest.fixture(params=["serial", "process"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


ID = "agymc-test/Walk-v0"


@pytest.fixture(autouse=True)
def registered() -> Any:
    gymnasium.register(ID, "tests.doors.envs:Walk", max_episode_steps=30, kwargs={"length": 4})
    yield
    del gymnasium.registry[ID]


def ids_of(envs: Any) -> tuple[Any, ...]:
    """The labels of the envs, wherever they live."""
    if isinstance(envs, agymc.BatchEnv):
        labels: tuple[Any, ...] = envs.unwrapped.label
        return labels
    return envs.get_attr("label")


# ---------------------------------------------------------------------- what can be made


@both_doors
def test_ids(door, engine):
    with door(ID, 2, engine=engine, label=8) as envs:
        assert envs.num_envs == 2
        assert ids_of(envs) == (8, 8)
    with door(ID, engine=engine) as envs:
        assert envs.num_envs == 1


@both_doors
def test_the_module_of_an_id_is_imported(door, engine, tmp_path, monkeypatch):
    """Also in worker processes, and from where the caller finds it."""
    (tmp_path / "some_new_game.py").write_text(
        textwrap.dedent(
            """
            import gymnasium
            from tests.doors.envs import Walk

            class Game(Walk):
                pass

            gymnasium.register("Game-v3", "some_new_game:Game")
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with door("some_new_game:Game-v3", 2, engine=engine, label=1) as envs:
            assert ids_of(envs) == (1, 1)
    finally:
        gymnasium.registry.pop("Game-v3", None)
        sys.modules.pop("some_new_game", None)


@both_doors
def test_the_newest_version(door):
    with pytest.warns(UserWarning, match="the latest versioned environment `CartPole-v1`"):
        envs = door("CartPole", 1, engine="serial")
    with envs:
        assert "CartPole-v1" in repr(envs)


@both_doors
def test_specs(door, engine):
    spec = gymnasium.spec(ID)
    with door(spec, 2, engine=engine, label=3) as envs:
        assert ids_of(envs) == (3, 3)
    assert spec == gymnasium.spec(ID)  # nothing was changed in it
    class_spec = EnvSpec("Mine-v0", entry_point=Walk, kwargs={"label": 4})
    with door(class_spec, 2, engine=engine) as envs:
        assert ids_of(envs) == (4, 4)


@both_doors
def test_functions(door, engine):
    with door(Walk, 3, engine=engine, label=5) as envs:
        assert ids_of(envs) == (5, 5, 5)
    with door(lambda label=2: Walk(label=label), engine=engine) as envs:
        assert ids_of(envs) == (2,)
    functions = [functools.partial(Walk, label=label) for label in (7, 8)]
    with door(functions, 2, engine=engine, length=9) as envs:
        assert ids_of(envs) == (7, 8)
    for given in (functions, tuple(functions), iter(functions)):
        with door(given, engine="serial") as envs:
            assert ids_of(envs) == (7, 8)


@both_doors
def test_arguments_of_each_env(door, engine):
    own = [{"label": 1}, {}, {"label": 3, "length": 9}]
    for source in (ID, Walk):
        with door(source, 3, engine=engine, env_kwargs=own, label=2) as envs:
            assert ids_of(envs) == (1, 2, 3)
        with door(source, 2, engine=engine, env_kwargs={"label": 6}) as envs:
            assert ids_of(envs) == (6, 6)
    assert own == [{"label": 1}, {}, {"label": 3, "length": 9}]


def add_one(env: Any) -> Any:
    return TransformReward(env, lambda reward: reward + 1)


class Double(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


@both_doors
def test_wrappers_are_applied_in_this_order(door, engine):
    wrappers = [Double, add_one, functools.partial(TransformReward, func=lambda r: r * 10)]
    for source in (ID, Walk):
        with door(source, 2, engine=engine, wrappers=wrappers) as envs:
            envs.reset()
            _, rewards, *_ = envs.step([0, 0])
            assert list(rewards) == [(0.001 * 2 + 1) * 10] * 2


@both_doors
@pytest.mark.parametrize("count", [np.int64(2), np.uint8(2)])
def test_counts_of_numpy(door, count):
    with door(ID, count, engine="serial") as envs:
        assert envs.num_envs == 2
        assert type(envs.num_envs) is int


def test_atari_without_importing_it(engine):
    pytest.importorskip("ale_py")
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        with agymc.make_vec(name, 2, engine=engine) as envs:
            assert envs.single_observation_space.shape == (210, 160, 3)
            envs.reset(seed=0)
            envs.step(np.array([0, 1]))


def test_any_script_may_make_its_envs_itself(tmp_path):
    """No main guard, classes of ``__main__``, a string as entry point there."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import gymnasium
            import agymc
            from tests.doors.envs import Walk

            class Mine(Walk):
                pass

            gymnasium.register("Mine-v0", "__main__:Mine")
            for source in (Mine, "Mine-v0", lambda: Mine()):
                with agymc.make(source, 2, engine="process") as envs:
                    envs.reset()
                    print(envs.step([0, 0])[2])
            """
        )
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (run.stdout, run.stderr) == ("[False, False]\n" * 3, "")


def test_the_classic_door_warns_of_an_old_id_once(engine, capfd):
    with pytest.warns(DeprecationWarning, match="CartPole-v0 is out of date") as caught:
        envs = agymc.make("CartPole-v0", 4, engine=engine)
    envs.close()
    assert len(caught) == 1
    assert capfd.readouterr() == ("", "")  # nor from a worker process


# ---------------------------------------------------------------------- what takes their place


def test_in_place_of_gymnasiums_make_vec():
    expected = gymnasium.make_vec(
        "CartPole-v1", num_envs=3, vectorization_mode="sync", wrappers=(TimeAwareObservation,)
    )
    with agymc.make_vec(
        "CartPole-v1", num_envs=3, vectorization_mode="sync", wrappers=(TimeAwareObservation,)
    ) as envs:
        assert envs.engine == "serial"
        assert envs.observation_space == expected.observation_space
        assert envs.metadata == expected.metadata
        assert np.array_equal(envs.reset(seed=1)[0], expected.reset(seed=1)[0])
        actions = np.array([0, 1, 0])
        for ours, theirs in zip(envs.step(actions)[:4], expected.step(actions)[:4], strict=True):
            assert np.array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    expected.close()


def test_vectorization_modes():
    modes = {
        "sync": "serial",
        "async": "process",
        gymnasium.VectorizeMode.SYNC: "serial",
        gymnasium.VectorizeMode.ASYNC: "process",
    }
    for mode, engine in modes.items():
        with agymc.make_vec(ID, 1, vectorization_mode=mode) as envs:
            assert envs.engine == engine
    with pytest.raises(agymc.ConfigurationError, match="'sync' or 'async', got 'parallel'"):
        agymc.make_vec(ID, vectorization_mode="parallel")
    with pytest.raises(
        agymc.ConfigurationError, match=r"got 'vector_entry_point'; for that one use gymnasium.make"
    ):
        agymc.make_vec("CartPole-v1", vectorization_mode="vector_entry_point")
    with pytest.raises(
        agymc.ConfigurationError, match="engine or vectorization_mode, got both: 'thread' and 'sy"
    ):
        agymc.make_vec(ID, engine="thread", vectorization_mode="sync")


def test_vector_kwargs():
    kwargs = {"autoreset_mode": "SameStep", "copy": False, "observation_mode": "different"}
    with agymc.make_vec(ID, 2, vectorization_mode="sync", vector_kwargs=kwargs) as envs:
        assert envs.metadata["autoreset_mode"] is agymc.AutoresetMode.SAME_STEP
        assert (envs.copy, envs.observation_mode) == (False, "different")
    assert len(kwargs) == 3
    kwargs = {"shared_memory": False, "context": "spawn", "daemon": True, "max_concurrency": 1}
    with agymc.make_vec(ID, 2, vectorization_mode="async", vector_kwargs=kwargs) as envs:
        assert len(set(envs.call("process_id"))) == 1
    with pytest.raises(agymc.ConfigurationError, match="a custom `worker` function is not suppo"):
        agymc.make_vec(ID, vectorization_mode="async", vector_kwargs={"worker": print})
    with pytest.raises(agymc.ConfigurationError, match="positive integer or None, got 0"):
        agymc.make_vec(ID, vectorization_mode="async", vector_kwargs={"max_concurrency": 0})


def test_the_spec_of_a_vector_env_makes_it_again(engine):
    with agymc.make_vec(
        ID,
        3,
        engine=engine,
        autoreset_mode=agymc.AutoresetMode.SAME_STEP,
        wrappers=[Double],
        env_kwargs=[{"label": i} for i in range(3)],
        copy=False,
        length=5,
    ) as envs:
        spec = envs.spec
    assert spec.id == ID
    assert "Walk-v0" in str(spec)
    assert "autoreset_mode" in repr(spec)
    assert "max_episode_steps=30" in spec.pprint(disable_print=True)
    for same in (spec, pickle.loads(pickle.dumps(spec))):
        with agymc.make_vec(same) as again:
            assert (again.num_envs, again.engine, again.copy) == (3, engine, False)
            assert again.autoreset_mode is agymc.AutoresetMode.SAME_STEP
            assert ids_of(again) == (0, 1, 2)
            assert again.get_attr("length") == (5, 5, 5)
            again.reset()
            assert again.step([0, 0, 0])[1][1] == 2 * 1.001
            assert again.spec == spec
    # What is said anew goes first.
    with agymc.make_vec(spec, 1, engine="serial", env_kwargs=[{"label": 9}], length=6) as other:
        assert (other.num_envs, other.engine) == (1, "serial")
        assert (ids_of(other), other.get_attr("length")) == ((9,), (6,))


def test_a_spec_of_gymnasiums_make_vec():
    kwargs = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
    theirs = gymnasium.make_vec(
        ID, 2, vectorization_mode="sync", vector_kwargs=kwargs, wrappers=[Double], label=4
    )
    spec = theirs.spec
    theirs.close()
    with agymc.make_vec(spec) as envs:
        assert (envs.num_envs, envs.engine) == (2, "serial")
        assert envs.autoreset_mode is agymc.AutoresetMode.DISABLED
        assert ids_of(envs) == (4, 4)
        envs.reset()
        assert envs.step([0, 0])[1].tolist() == [2 * 4.001] * 2
    assert spec.kwargs["num_envs"] == 2
    theirs = gymnasium.make_vec("CartPole-v1", 2)  # by the env's own vector class
    theirs.close()
    with agymc.make_vec(theirs.spec, engine="serial") as envs:
        assert envs.num_envs == 2


def test_plain_specs_fit_into_json():
    with agymc.make_vec(ID, 2, engine="serial", autoreset_mode="SameStep") as envs:
        text = envs.spec.to_json()
    with agymc.make_vec(EnvSpec.from_json(text)) as envs:
        assert (envs.num_envs, envs.engine) == (2, "serial")
        assert envs.autoreset_mode is agymc.AutoresetMode.SAME_STEP


@pytest.mark.parametrize("mode", list(agymc.AutoresetMode))
def test_autoreset_modes(mode):
    for given in (mode, mode.value):
        with agymc.make_vec(ID, 1, engine="serial", autoreset_mode=given) as envs:
            assert envs.autoreset_mode is mode
            assert envs.metadata["autoreset_mode"] is mode
    assert "autoreset_mode" not in Walk.metadata


def test_repr_and_metadata(engine):
    with agymc.make_vec(ID, 2, engine=engine) as envs:
        assert repr(envs) == f"VectorEnv({ID}, num_envs=2)"
        assert envs.metadata["render_fps"] == 7
        assert envs.unwrapped is envs
        assert envs.engine == engine
        assert isinstance(envs, gymnasium.vector.VectorEnv)


# ---------------------------------------------------------------------- what can't be made


@both_doors
@pytest.mark.parametrize("count", [0, -1, True, 2.5, "3", [2]])
def test_counts(door, count):
    with pytest.raises(agymc.NumEnvsError) as caught:
        door(ID, count)
    assert str(caught.value) == f"expected num_envs to be a positive integer, got {count!r}"


@both_doors
def test_counts_of_functions(door):
    with pytest.raises(agymc.NumEnvsError, match="expected num_envs=3 env functions, got 2 of the"):
        door([Walk, Walk], 3)
    with pytest.raises(agymc.NumEnvsError, match="at least one env function, got an empty list"):
        door([])


@both_doors
@pytest.mark.parametrize("given", [None, 5, ["CartPole-v1"], {"CartPole-v1": 1}, [Walk, 1]])
def test_what_makes_no_env(door, given):
    with pytest.raises(agymc.ConfigurationError) as caught:
        door(given, 1)
    assert str(caught.value) == (
        "expected an id, an EnvSpec, a function that makes an env, or a list of such functions, "
        f"got {given!r}"
    )


@both_doors
def test_unknown_ids(door):
    with pytest.raises(agymc.UnknownEnvError) as caught:
        door("CartPol-v1", 2)
    assert str(caught.value) == (
        "no environment is registered as 'CartPol-v1': Environment `CartPol` doesn't exist. "
        "Did you mean: `CartPole`?"
    )
    assert isinstance(caught.value, gymnasium.error.UnregisteredEnv)
    with pytest.raises(agymc.UnknownEnvError, match=r"Environment version `v7` for .*`CartPole`"):
        door("CartPole-v7", 2)
    with pytest.raises(agymc.UnknownEnvError, match="registered as 'no/CartPole-v1': Namespace no"):
        door("no/CartPole-v1", 2)
    with pytest.raises(agymc.UnknownEnvError, match="No module named 'no_such_module'"):
        door("no_such_module:CartPole-v1", 2)
    with pytest.raises(agymc.UnknownEnvError, match=r"registered as 'Cart Pole': .*Malformed|malf"):
        door("Cart Pole", 2)


@both_doors
def test_a_spec_without_an_entry_point(door):
    with pytest.raises(agymc.ConfigurationError, match="Only-v0 has no entry point, so no single"):
        door(EnvSpec("Only-v0", vector_entry_point="gymnasium.envs:None"), 2)


@both_doors
def test_unknown_engines(door):
    with pytest.raises(agymc.UnknownEngineError) as caught:
        door(ID, 2, engine="threads")
    known = ", ".join(map(repr, agymc.ENGINES))
    assert str(caught.value).startswith("expected an engine out of ")
    assert known in str(caught.value)
    assert str(caught.value).endswith(", got 'threads'")


@both_doors
def test_options_that_do_not_apply_to_the_engine(door):
    with pytest.raises(agymc.ConfigurationError, match="'serial' has no num_workers: got num_work"):
        door(ID, 2, engine="serial", num_workers=2)
    with pytest.raises(agymc.ConfigurationError, match="'process' has no threads: got threads=2"):
        door(ID, 2, engine="process", threads=2)
    with pytest.raises(agymc.ConfigurationError, match=r"num_workers to be a positive int.*got 0"):
        door(ID, 2, engine="process", num_workers=0)


@both_doors
def test_unknown_options(door, engine):
    with pytest.raises(agymc.UnknownOptionError) as caught:
        door(ID, 2, engine=engine, num_worker=2)
    text = str(caught.value)
    assert text.startswith(f"'num_worker' is neither an option of {door.__name__} (engine, num_wor")
    assert text.endswith(f"nor an argument of {ID}; did you mean 'num_workers'?")
    assert isinstance(caught.value, TypeError)
    with pytest.raises(agymc.UnknownOptionError, match=f"nor an argument of {ID}$"):
        door(ID, 2, engine=engine, zzz=1)
    with pytest.raises(
        agymc.UnknownOptionError, match="argument of the env function; did you mean 'wrappers'"
    ):
        door(Walk, 2, engine=engine, wraper=1)


@both_doors
def test_arguments_that_an_env_refuses(door, engine):
    with pytest.raises(agymc.EnvError) as caught:
        door(ID, 2, engine=engine, env_kwargs=[{}, {"colour": 1}])
    assert str(caught.value).startswith("env 1 raised TypeError in construction: ")
    assert "unexpected keyword argument 'colour'" in str(caught.value)
    assert type(caught.value.__cause__) is TypeError


@both_doors
def test_wrong_env_kwargs(door):
    with pytest.raises(agymc.BatchLengthError, match="expected 2 env_kwargs, one per env, got 1"):
        door(ID, 2, env_kwargs=[{}])
    with pytest.raises(
        agymc.ConfigurationError, match=r"dict of arguments, got 3, at env_kwargs\[1"
    ):
        door(ID, 2, env_kwargs=[{}, 3])
    for wrong in (5, "length"):
        with pytest.raises(agymc.ConfigurationError, match=f"got {wrong!r}, at env_kwargs"):
            door(ID, 2, env_kwargs=wrong)


@both_doors
def test_wrong_wrappers(door):
    with pytest.raises(agymc.ConfigurationError, match="list of functions env -> env, got <class"):
        door(ID, 2, wrappers=Double)
    with pytest.raises(agymc.ConfigurationError, match=r"got 'Double', at wrappers\[1\]"):
        door(ID, 2, wrappers=[Double, "Double"])
    with pytest.raises(agymc.EnvError, match="got NoneType without reset, step"):
        door(ID, 1, engine="serial", wrappers=[lambda env: None])


def test_wrong_modes():
    with pytest.raises(agymc.ConfigurationError) as caught:
        agymc.make_vec(ID, autoreset_mode="next-step")
    assert str(caught.value) == (
        "expected autoreset_mode 'NextStep', 'SameStep', 'Disabled', or a "
        "gymnasium.vector.AutoresetMode, got 'next-step'"
    )
    with pytest.raises(agymc.ConfigurationError, match="Invalid `observation_mode`, expected: 'sa"):
        agymc.make_vec(ID, observation_mode="equal")
    with pytest.raises(TypeError, match="both elements of observation_mode to be spaces"):
        agymc.make_vec(ID, observation_mode=(1, 2))
    with pytest.raises(
        agymc.ConfigurationError, match="fairness 'arrival' or 'oldest', got 'luck'"
    ):
        agymc.make_vec(ID, fairness="luck")
    with pytest.raises(agymc.ConfigurationError, match=r"reset_seed to be a function .*, got 5"):
        agymc.make_vec(ID, reset_seed=5)


# ---------------------------------------------------------------------- missing packages


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("Box2D", "LunarLander-v3", "box2d"),
        ("mujoco", "Ant-v5", "mujoco"),
        ("ale_py", "ALE/Pong-v5", "atari"),
    ],
)
@pytest.mark.parametrize("engine", ["serial", "process"])
def test_missing_packages(package, name, extra, engine, tmp_path):
    """In a process of its own, which finds no such package, like its workers."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    code = f"""
        import agymc
        for door in (agymc.make, agymc.make_vec):
            try:
                door({name!r}, 2, engine={engine!r})
            except agymc.MissingExtraError as error:
                assert isinstance(error, ImportError)
                print(error)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        timeout=50,
    )
    what = "an Atari environment" if package == "ale_py" else f"the environment {name}"
    expected = (
        f"{what} needs the package {package!r}, which is not installed: "
        f"pip install 'agymc[{extra}]'\n"
    )
    assert (run.stdout, run.returncode) == (expected * 2, 0), run.stderr


def test_drawing_without_pygame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with agymc.make("CartPole-v1", 1, engine="serial") as envs:
        envs.reset()
        envs.step([0])  # needs none
        with pytest.raises(agymc.EnvError, match="pygame is not installed, run `pip install"):
            envs.render("rgb_array")


def test_nothing_is_left_when_a_construction_fails(engine):
    """See `nothing_left` in conftest.py."""
    with pytest.raises(agymc.EnvError):
        agymc.make([Walk, Walk, functools.partial(Walk, colour=1)], engine=engine)
