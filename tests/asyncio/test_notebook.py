"""Case 40: every kind of door in a cell of a real notebook, run by a real kernel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]

CELLS = [
    """
import asyncio
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
import agymc

asyncio.get_running_loop()  # a notebook has one


class Waiting:
    observation_space = Box(0, 9, (1,), np.float32)
    action_space = Discrete(2)

    async def reset(self, *, seed=None, options=None):
        await asyncio.sleep(0.001)
        self.count = 0
        return np.zeros(1, np.float32), {}

    async def step(self, action):
        await asyncio.sleep(0.001)
        self.count += int(action)
        return np.full(1, self.count, np.float32), 1.0, self.count == 2, False, {}

    async def close(self):
        pass


class Ordinary(gymnasium.Env):
    observation_space = Waiting.observation_space
    action_space = Waiting.action_space

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += int(action)
        return np.full(1, self.count, np.float32), 1.0, self.count == 2, False, {}
""",
    """
envs = agymc.make(Waiting, 3, engine="asyncio")
envs.reset()
print(envs.step([0, 1, 1])[0])
print(envs.step([1, 0, 1])[2])
print(envs.parallel(lambda number: number * 2, [[1, 2, 3]]))
envs.close()
""",
    """
with agymc.make_vec(Waiting, 3, engine="asyncio") as envs:
    envs.reset()
    print(envs.step([0, 1, 1])[0].tolist())
""",
    """
with agymc.make_vec(Ordinary, 3, engine="process") as envs:
    envs.reset()
    print(envs.step([0, 1, 1])[0].tolist())
""",
    """
async with agymc.make_async(Waiting, 3) as envs:
    await envs.reset()
    print((await envs.step([0, 1, 1]))[0].tolist())
    print(len([e async for e in envs.rollout(lambda observation: 1, episodes=5)]))
""",
    """
async with agymc.make_async(Ordinary, 3, engine="process") as envs:
    await envs.reset()
    print((await envs.step([0, 1, 1]))[0].tolist())
""",
]
ONE_STEP = "[[0.0], [1.0], [1.0]]\n"
OUTPUTS = [
    "",
    "[array([0.], dtype=float32), array([1.], dtype=float32), array([1.], dtype=float32)]\n"
    "[False, False, True]\n[2, 4, 6]\n",
    ONE_STEP,
    ONE_STEP,
    ONE_STEP + "5\n",
    ONE_STEP,
]


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_door_in_a_cell(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    )
    client = nbclient.NotebookClient(
        notebook, timeout=50, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())  # `execute` leaves a loop of its own behind
    for cell, expected in zip(notebook.cells, OUTPUTS, strict=True):
        assert all(output.get("name") == "stdout" for output in cell.outputs), cell.outputs
        assert "".join(output["text"] for output in cell.outputs) == expected
