"""Classic envs: who is one, and what Gymnasium's API makes of it."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from agymc.adapters.classic import ClassicEnv, adapt, is_classic


class Duck:
    """A classic env with no base class; its episode is over after `length` steps."""

    metadata = {"render.modes": ["human", "rgb_array"], "video.frames_per_second": 25}
    observation_space = spaces.Box(0.0, 100.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 3, info: dict[str, Any] | None = None) -> None:
        self.length = length
        self.info = {} if info is None else info
        self.rng = np.random.RandomState(0)
        self.seeds: list[Any] = []
        self.count = 0
        self.closed = 0

    def seed(self, seed=None):
        self.seeds.append(seed)
        self.rng = np.random.RandomState(seed)
        return [seed]

    def reset(self):
        self.count = 0
        return self.rng.uniform(0, 100, 1)

    def step(self, action):
        self.count += 1
        return np.array([float(self.count)]), float(action), self.count >= self.length, self.info

    def render(self, mode="human"):
        return f"drawn in {mode}"

    def close(self):
        self.closed += 1


class OldSignatures(gymnasium.Env):
    """Says it is Gymnasium's, has the classic methods, and no `seed`."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self):
        return self.np_random.random(1)

    def step(self, action):
        return self.np_random.random(1), 1.0, False, {}

    def render(self):
        return "drawn"


class Modern(gymnasium.Env):
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {"options": options}

    def step(self, action):
        return 1, 1.0, False, False, {}


def with_reset(reset, base: type = Duck, **attributes: Any) -> Any:
    return type("Special", (base,), {"reset": reset, **attributes})()


class TestIsClassic:
    def test_bare_reset_is(self) -> None:
        assert is_classic(Duck())
        assert is_classic(OldSignatures())
        assert is_classic(with_reset(lambda self, *args: 0))
        assert is_classic(with_reset(lambda self, state=None: 0))
        assert is_classic(with_reset(lambda self, seed=None, /: 0)), "not by keyword"

    def test_modern_reset_is_not(self) -> None:
        assert not is_classic(Modern())
        assert not is_classic(gymnasium.make("CartPole-v1"))
        assert not is_classic(with_reset(lambda self, *, seed=None, options=None: (0, {})))

    def test_reset_with_only_a_seed_is_modern_but_incomplete(self) -> None:
        assert not is_classic(with_reset(lambda self, seed=None: 0))

    def test_return_info_is_classic(self) -> None:
        assert is_classic(with_reset(lambda self, *, seed=None, return_info=False, options=None: 0))

    def test_kwargs_are_classic_with_a_seed_method_and_without_gymnasium(self) -> None:
        def reset(self, **kwargs):
            return 0

        assert is_classic(with_reset(reset))
        assert not is_classic(with_reset(reset, seed=None))
        assert not is_classic(with_reset(reset, base=OldSignatures))
        assert not is_classic(with_reset(reset, base=OldSignatures, seed=lambda self, seed: None))

    def test_kwargs_of_a_foreign_wrapper_are_those_of_the_env_inside(self) -> None:
        def wrapped(env: Any) -> Any:
            return with_reset(lambda self, **kwargs: env.reset(**kwargs), unwrapped=env)

        assert is_classic(wrapped(Duck()))
        assert not is_classic(wrapped(Modern()))

    def test_no_signature(self) -> None:
        assert not is_classic(with_reset(None, seed=None))  # not even callable
        assert not is_classic(with_reset(type, seed=None))  # `type` has no signature
        assert is_classic(with_reset(type))

    def test_arguments_that_must_be_given(self) -> None:
        assert not is_classic(with_reset(lambda self, level: 0, seed=None))

    def test_coroutines_are_left_alone(self) -> None:
        async def reset(self):
            return 0

        async def step(self, action):
            return 0, 0.0, False, {}

        assert not is_classic(with_reset(reset))
        assert not is_classic(with_reset(lambda self: 0, step=step))

    def test_no_envs(self) -> None:
        assert not is_classic(Duck)
        assert not is_classic(object())
        assert not is_classic(None)

    def test_wrappers_of_gymnasium_are_looked_through(self) -> None:
        assert is_classic(TimeLimit(OrderEnforcing(OldSignatures()), 5))
        assert not is_classic(TimeLimit(OrderEnforcing(Modern()), 5))
        assert not is_classic(TimeLimit(ClassicEnv(OldSignatures()), 5))

    def test_calls_no_method(self) -> None:
        class Untouchable(Duck):
            def seed(self, seed=None):
                raise AssertionError("called")

            reset = step = render = close = seed  # type: ignore[assignment]

        def reset(self):
            raise AssertionError("called")

        assert is_classic(with_reset(reset, base=Untouchable))


class TestAdapt:
    def test_modern_envs_are_returned_as_they_are(self) -> None:
        for env in (Modern(), gymnasium.make("CartPole-v1"), ClassicEnv(Duck())):
            assert adapt(env) is env

    def test_coroutine_envs_are_returned_as_they_are(self) -> None:
        async def reset(self):
            return 0

        env = with_reset(reset)
        assert adapt(env) is env

    def test_classic_envs_are_wrapped(self) -> None:
        env = Duck()
        adapted = adapt(env)
        assert type(adapted) is ClassicEnv
        assert adapted.env is env

    def test_goes_under_the_wrappers_of_gymnasium(self) -> None:
        env = OldSignatures()
        stack = TimeLimit(OrderEnforcing(PassiveEnvChecker(env)), max_episode_steps=2)
        assert adapt(stack) is stack
        assert stack.unwrapped.env is env
        first, info = stack.reset(seed=3)
        assert info == {}
        assert stack.step(0)[2:4] == (False, False)
        assert stack.step(0)[2:4] == (False, True)
        assert np.array_equal(stack.reset(seed=3)[0], first)

    def test_a_registered_classic_env_can_be_made_and_adapted(self) -> None:
        gymnasium.register("agymc-test/Classic-v0", OldSignatures, max_episode_steps=1)
        try:
            env = adapt(gymnasium.make("agymc-test/Classic-v0"))
            env.reset(seed=1)
            assert env.step(0)[2:4] == (False, True)
            assert env.spec is not None
            assert env.spec.id == "agymc-test/Classic-v0"
            assert env.unwrapped.spec.id == "agymc-test/Classic-v0"
        finally:
            del gymnasium.registry["agymc-test/Classic-v0"]

    def test_a_classic_wrapper_keeps_what_it_expects_below(self) -> None:
        class Doubling(gymnasium.Wrapper):
            def reset(self):
                return self.env.reset() * 2

            def step(self, action):
                obs, reward, done, info = self.env.step(action)
                return obs * 2, reward, done, info

        stack = OrderEnforcing(Doubling(OldSignatures()))
        adapt(stack)
        obs, _ = stack.reset(seed=5)
        assert np.array_equal(obs, 2 * np.random.default_rng(5).random(1))
        assert len(stack.step(0)) == 5

    def test_no_env(self) -> None:
        text = (
            "expected an environment with reset, step, observation_space and action_space, "
            "got {} without {}"
        )
        with pytest.raises(TypeError) as raised:
            adapt(3)
        assert str(raised.value) == text.format(
            "int", "reset, step, observation_space, action_space"
        )

        class Half:
            action_space = spaces.Discrete(2)

            def reset(self):
                return 0

        with pytest.raises(TypeError) as raised:
            adapt(Half())
        assert str(raised.value) == text.format("Half", "step, observation_space")

    def test_class_instead_of_env(self) -> None:
        with pytest.raises(TypeError) as raised:
            adapt(Duck)
        assert (
            str(raised.value) == "expected an environment, got the class Duck: call it to make one"
        )


class TestReset:
    def test_seeds_then_resets(self) -> None:
        env = ClassicEnv(Duck())
        obs, info = env.reset(seed=7)
        assert info == {}
        assert np.array_equal(obs, np.random.RandomState(7).uniform(0, 100, 1))
        env.reset()
        assert env.seeds == [7]
        assert env.np_random_seed == 7

    def test_numpy_seeds_become_ints(self) -> None:
        env = ClassicEnv(Duck())
        env.reset(seed=np.int64(7))  # type: ignore[arg-type]
        assert type(env.seeds[0]) is int

    def test_a_float_is_no_seed(self) -> None:
        with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
            ClassicEnv(Duck()).reset(seed=7.5)  # type: ignore[arg-type]

    def test_env_of_gymnasium_without_seed_method_is_seeded_too(self) -> None:
        env = ClassicEnv(OldSignatures())
        obs, _ = env.reset(seed=7)
        assert np.array_equal(obs, np.random.default_rng(7).random(1))
        assert env.env.np_random_seed == 7

    def test_env_that_cannot_be_seeded(self) -> None:
        env = ClassicEnv(with_reset(lambda self: np.zeros(1), seed=None))
        assert env.reset(seed=7)[1] == {}

    def test_options_are_ignored(self) -> None:
        assert ClassicEnv(Duck()).reset(options={"level": 3})[1] == {}

    def test_return_info(self) -> None:
        def reset(self, *, seed=None, return_info=False, options=None):
            info = {"seed": seed, "options": options}
            return (np.zeros(1), info) if return_info else np.zeros(1)

        env = ClassicEnv(with_reset(reset))
        assert env.reset(seed=3, options={"a": 1})[1] == {"seed": 3, "options": {"a": 1}}
        assert env.seeds == [], "reset took the seed itself"

    def test_return_info_without_seed(self) -> None:
        env = ClassicEnv(with_reset(lambda self, return_info=False: (np.zeros(1), {"a": 1})))
        assert env.reset(seed=3)[1] == {"a": 1}
        assert env.seeds == [3]

    def test_a_pair_is_observation_and_info_where_it_can_be_nothing_else(self) -> None:
        info = {"level": 1}
        env = ClassicEnv(with_reset(lambda self: (np.zeros(1), info)))
        obs, given = env.reset()
        assert np.array_equal(obs, [0.0])
        assert given == info
        assert given is not info

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Tuple((spaces.Discrete(2), spaces.Dict(a=spaces.Discrete(2)))),
            spaces.Sequence(spaces.Dict(a=spaces.Discrete(2))),
        ],
        ids=["tuple", "sequence"],
    )
    def test_a_pair_is_the_observation_where_it_can_be_one(self, space: Any) -> None:
        pair = (0, {"a": 1})
        env = ClassicEnv(with_reset(lambda self: pair, observation_space=space))
        assert env.reset() == (pair, {})

    def test_np_random(self) -> None:
        env = ClassicEnv(Duck())
        assert env.np_random_seed == -1
        assert isinstance(env.np_random, np.random.Generator)
        env.reset(seed=3)
        assert env.np_random.random() == np.random.default_rng(3).random()

    def test_np_random_is_the_envs_where_it_has_one(self) -> None:
        env = ClassicEnv(OldSignatures())
        assert env.np_random is env.env.np_random
        assert env.np_random_seed == -1
        rng = np.random.default_rng(1)
        env.np_random = rng
        assert env.env.np_random is rng
        assert env.np_random_seed == -1


class TestStep:
    @pytest.mark.parametrize(
        ("done", "info", "expected"),
        [
            (False, {}, (False, False)),
            (True, {}, (True, False)),
            (True, {"TimeLimit.truncated": True}, (False, True)),
            (True, {"TimeLimit.truncated": False}, (True, False)),
            (False, {"TimeLimit.truncated": True}, (False, False)),
            (np.bool_(True), {"TimeLimit.truncated": np.bool_(True)}, (False, True)),
        ],
    )
    def test_done(self, done: Any, info: dict[str, Any], expected: tuple[bool, bool]) -> None:
        env = ClassicEnv(with_reset(Duck.reset, step=lambda self, action: (0, 1.5, done, info)))
        obs, reward, terminated, truncated, given = env.step(1)
        assert (obs, reward) == (0, 1.5)
        assert terminated is expected[0]
        assert truncated is expected[1]
        assert given == info
        assert given is not info

    def test_the_envs_info_is_never_changed(self) -> None:
        own = {"TimeLimit.truncated": True}
        env = ClassicEnv(Duck(length=1, info=own))
        env.reset()
        env.step(0)[4]["mine"] = 1
        assert own == {"TimeLimit.truncated": True}

    def test_five_values_pass_through(self) -> None:
        five = (0, 1.0, False, True, {"a": 1})
        env = ClassicEnv(with_reset(Duck.reset, step=lambda self, action: five))
        assert env.step(0) is five

    @pytest.mark.parametrize(
        ("result", "got"), [((0, 1.0, False), "3 values"), (None, "NoneType"), ([0] * 4, "list")]
    )
    def test_other_results(self, result: Any, got: str) -> None:
        env = ClassicEnv(with_reset(Duck.reset, step=lambda self, action: result))
        with pytest.raises(TypeError) as raised:
            env.step(0)
        assert str(raised.value) == (
            "expected (observation, reward, done, info) or (observation, reward, terminated, "
            f"truncated, info), got {got}, from step of Special"
        )

    def test_info_that_is_no_dict(self) -> None:
        env = ClassicEnv(with_reset(Duck.reset, step=lambda self, action: (0, 1.0, False, None)))
        with pytest.raises(TypeError) as raised:
            env.step(0)
        assert str(raised.value) == "expected a dict as info, got NoneType, from step of Special"


class TestRenderAndMetadata:
    def test_mode_is_rgb_array_if_the_env_has_it(self) -> None:
        env = ClassicEnv(Duck())
        assert env.render_mode == "rgb_array"
        assert env.render() == "drawn in rgb_array"

    def test_mode_given(self) -> None:
        assert ClassicEnv(Duck(), render_mode="ansi").render() == "drawn in ansi"

    def test_env_decides_if_no_mode_is_known(self) -> None:
        env = ClassicEnv(with_reset(Duck.reset, metadata={"render.modes": ["human"]}))
        assert env.render_mode is None
        assert env.render() == "drawn in human"

    def test_plain_render(self) -> None:
        env = ClassicEnv(with_reset(Duck.reset, render=lambda self: "drawn"))
        assert env.render_mode == "rgb_array"
        assert env.render() == "drawn"

    def test_gymnasium_render_mode_of_the_env_counts(self) -> None:
        env = OldSignatures()
        assert ClassicEnv(env).render_mode is None, "built without a mode, it has none"
        env.render_mode = "rgb_array"
        assert ClassicEnv(env).render_mode == "rgb_array"
        assert ClassicEnv(env).render() == "drawn"

    def test_metadata_is_a_copy_with_gymnasiums_keys(self) -> None:
        before = copy.deepcopy(Duck.metadata)
        env = ClassicEnv(Duck())
        assert env.metadata["render_modes"] == ["human", "rgb_array"]
        assert env.metadata["render_fps"] == 25
        env.metadata["render_modes"].append("mine")
        assert Duck.metadata == before

    def test_no_metadata(self) -> None:
        env = ClassicEnv(with_reset(Duck.reset, metadata=None))
        assert env.metadata == {"render_modes": []}
        assert env.render_mode is None

    def test_records_video(self) -> None:
        class Drawn(Duck):
            def render(self, mode="human"):
                return np.zeros((4, 4, 3), np.uint8)

        env = gymnasium.wrappers.RenderCollection(adapt(Drawn(length=2)))
        env.reset(seed=1)
        env.step(0)
        assert [frame.shape for frame in env.render()] == [(4, 4, 3)] * 2


class TestAttributes:
    def test_reads_and_writes_reach_the_env(self) -> None:
        duck = Duck(length=4)
        env = ClassicEnv(duck)
        assert env.length == 4
        assert env.get_wrapper_attr("length") == 4
        assert env.has_wrapper_attr("count")
        assert not env.has_wrapper_attr("nothing")
        assert env.set_wrapper_attr("length", 5)
        assert duck.length == 5
        env.unwrapped.length = 6
        assert duck.length == 6
        assert not env.set_wrapper_attr("nothing", 1, force=False)
        assert env.set_wrapper_attr("level", 1)
        assert duck.level == 1  # type: ignore[attr-defined]

    def test_through_wrappers_of_gymnasium(self) -> None:
        env = OrderEnforcing(adapt(Duck()))
        assert env.get_wrapper_attr("length") == 3
        assert env.set_wrapper_attr("length", 8)
        assert env.unwrapped.env.length == 8

    def test_missing_attribute_names_the_env(self) -> None:
        with pytest.raises(AttributeError, match="'Duck' object has no attribute 'nothing'"):
            _ = ClassicEnv(Duck()).nothing

    def test_gymnasiums_attributes(self) -> None:
        env = ClassicEnv(Duck())
        assert isinstance(env, gymnasium.Env)
        assert env.unwrapped is env
        assert env.spec is None
        assert env.reward_range == (-float("inf"), float("inf"))
        assert re.fullmatch(r"<ClassicEnv<.*Duck object at .*>>", str(env))
        assert ClassicEnv(with_reset(Duck.reset, reward_range=(0, 1))).reward_range == (0, 1)

    def test_close(self) -> None:
        duck = Duck()
        with ClassicEnv(duck):
            pass
        assert duck.closed == 1

    def test_close_of_an_env_that_has_none(self) -> None:
        class Endless:
            observation_space = action_space = spaces.Discrete(2)

            def reset(self):
                return 0

            def step(self, action):
                return 0, 0.0, False, {}

        ClassicEnv(Endless()).close()

    @pytest.mark.parametrize(
        "copied",
        [
            lambda env: pickle.loads(pickle.dumps(env)),
            lambda env: cloudpickle.loads(cloudpickle.dumps(env)),
            copy.deepcopy,
        ],
        ids=["pickle", "cloudpickle", "deepcopy"],
    )
    def test_copies_go_on_as_the_original(self, copied: Any) -> None:
        env = ClassicEnv(Duck(length=2), render_mode="ansi")
        env.reset(seed=3)
        env.step(0)
        other = copied(env)
        assert other.env is not env.env
        assert other.step(1)[2] is env.step(1)[2] is True
        assert np.array_equal(other.reset()[0], env.reset()[0])
        assert (other.render_mode, other.np_random_seed) == ("ansi", 3)

    def test_half_unpickled_adapter_does_not_recurse(self) -> None:
        empty = ClassicEnv.__new__(ClassicEnv)
        with pytest.raises(AttributeError, match="'ClassicEnv' object has no attribute 'env'"):
            _ = empty.length


def gym_space(name: str, **attributes: Any) -> Any:
    """A space as gym makes it: known by the name and the module of its class."""
    return type(name, (), {"__module__": f"gym.spaces.{name.lower()}", **attributes})()


ZEROS = np.zeros(2, np.float32)
BOX = gym_space("Box", low=ZEROS, high=ZEROS + 1, shape=(2,), dtype=ZEROS.dtype)
EMPTY_OR_AB = spaces.Text(4, min_length=0, charset="ab")
TEXT = gym_space("Text", min_length=1, max_length=4, character_set=frozenset("ab"))


class TestGymSpaces:
    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            (BOX, spaces.Box(0.0, 1.0, (2,))),
            (gym_space("Discrete", n=np.int64(3)), spaces.Discrete(3)),
            (gym_space("Discrete", n=3, start=-1), spaces.Discrete(3, start=-1)),
            (
                gym_space("MultiDiscrete", nvec=np.array([2, 3]), dtype=np.dtype(np.int32)),
                spaces.MultiDiscrete([2, 3], dtype=np.int32),
            ),
            (gym_space("MultiBinary", n=np.int64(4)), spaces.MultiBinary(4)),
            (gym_space("MultiBinary", n=[2, 2]), spaces.MultiBinary((2, 2))),
            (TEXT, spaces.Text(4, charset="ab")),
            (gym_space("Text", min_length=0, max_length=4, charset="ab"), EMPTY_OR_AB),
            (
                gym_space("Tuple", spaces=[BOX, gym_space("Discrete", n=2)]),
                spaces.Tuple((spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2))),
            ),
            (gym_space("Sequence", feature_space=BOX), spaces.Sequence(spaces.Box(0.0, 1.0, (2,)))),
            (
                gym_space("Graph", node_space=BOX, edge_space=None),
                spaces.Graph(spaces.Box(0.0, 1.0, (2,)), None),
            ),
        ],
        ids=lambda space: type(space).__name__,
    )
    def test_become_gymnasiums(self, theirs: Any, ours: Any) -> None:
        env = adapt(with_reset(Duck.reset, observation_space=theirs, action_space=theirs))
        assert env.observation_space == ours
        assert env.observation_space.dtype == ours.dtype
        assert env.action_space == ours

    def test_dict_keeps_its_order(self) -> None:
        theirs = gym_space("Dict", spaces={"b": BOX, "a": BOX})
        env = adapt(with_reset(Duck.reset, observation_space=theirs))
        assert list(env.observation_space.spaces) == ["b", "a"]

    def test_subclasses(self) -> None:
        theirs = type("Mine", (type(BOX),), {"__module__": "mine"})()
        assert adapt(with_reset(Duck.reset, observation_space=theirs)).observation_space == (
            spaces.Box(0.0, 1.0, (2,))
        )

    def test_modern_methods_with_gyms_spaces(self) -> None:
        """An env of gym 0.26: all is Gymnasium's except the spaces."""

        def reset(self, *, seed=None, options=None):
            return np.zeros(2), {"seed": seed, "options": options}

        env = with_reset(reset, observation_space=BOX)
        assert not is_classic(env)
        adapted = adapt(env)
        assert isinstance(adapted.observation_space, spaces.Box)
        assert adapted.reset(seed=3, options={"a": 1})[1] == {"seed": 3, "options": {"a": 1}}
        assert env.seeds == [], "reset took the seed itself"

    @pytest.mark.parametrize(
        ("space", "got", "where"),
        [
            (None, "builtins.NoneType", "observation_space"),
            (gym_space("Space"), "gym.spaces.space.Space", "observation_space"),
            (gym_space("Tuple", spaces=[BOX, 3]), "builtins.int", "observation_space[1]"),
            (gym_space("Dict", spaces={"a": 3}), "builtins.int", "observation_space['a']"),
        ],
    )
    def test_others_are_refused(self, space: Any, got: str, where: str) -> None:
        with pytest.raises(TypeError) as raised:
            adapt(with_reset(Duck.reset, observation_space=space))
        assert str(raised.value) == (
            "expected a space of gymnasium.spaces, or one of gym.spaces that has an equal there, "
            f"got {got}, at {where}"
        )


@pytest.mark.filterwarnings("ignore")
class TestRealGym:
    """With the package gym, which agymc never needs."""

    @pytest.fixture
    def gym(self) -> Any:
        return pytest.importorskip("gym")

    def test_bare_env(self, gym: Any) -> None:
        class Old(gym.Env):
            metadata = {"render.modes": ["rgb_array"]}
            observation_space = gym.spaces.Dict(
                b=gym.spaces.Box(-1, 1, (2,), np.float32), a=gym.spaces.MultiBinary([2, 2])
            )
            action_space = gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.MultiDiscrete([2])))
            reset, step, seed = Duck.reset, Duck.step, Duck.seed
            __init__ = Duck.__init__

        env = adapt(Old(length=1, info={"TimeLimit.truncated": True}))
        assert type(env) is ClassicEnv
        first = env.reset(seed=np.int32(4))[0]
        assert env.step(0)[2:4] == (False, True)
        assert np.array_equal(env.reset(seed=4)[0], first)
        assert env.observation_space["a"] == spaces.MultiBinary((2, 2))
        assert env.action_space == spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2])))

    def test_registered_env(self, gym: Any) -> None:
        spec = gym.spec("CartPole-v1")
        kwargs = {"disable_env_checker": True} if hasattr(spec, "disable_env_checker") else {}
        env = adapt(gym.make("CartPole-v1", **kwargs))
        assert isinstance(env, ClassicEnv)
        assert env.spec.id == "CartPole-v1"
        trajectories = []
        for _ in range(2):
            obs, info = env.reset(seed=9)
            assert info == {}
            env.action_space.seed(1)
            steps = [env.step(env.action_space.sample()) for _ in range(5)]
            trajectories.append([obs, *(step[0] for step in steps)])
        assert np.array_equal(*trajectories)
        assert env.observation_space.contains(obs)
        env.close()
