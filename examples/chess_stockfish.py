"""Chess against Stockfish: each env talks to an engine process of its own.

    python examples/chess_stockfish.py --envs 8 --episodes 16

It needs `pip install chess` and `apt install stockfish`. python-chess speaks to an engine with
asyncio, so an env is a class with `async def`, and while the engines think nothing else waits.
Engines that think for a number of nodes, in one thread, always find the same moves: a run with the
same arguments plays the same games, in whatever order they end.

The agent has White and moves at random, by the masks of legal moves that come with the infos.
"""

import argparse
import asyncio
import os
import shutil
import time

import chess
import chess.engine
import numpy as np
from gymnasium import spaces

import agymc


class Chess:
    """One game after the other against a Stockfish of its own, which has Black.

    The observation is the board: 12 planes of 8 x 8, six sorts of White's pieces, then Black's,
    indexed [plane, rank, file]. An action is a move: 64 * square from + square to; a pawn that
    arrives becomes a queen. `info["action_mask"]` tells which are legal; another one loses the game
    at once. The reward comes with the end: 1 for a win, 0 for a draw, -1 for a loss.
    """

    observation_space = spaces.Box(0, 1, (12, 8, 8), np.int8)
    action_space = spaces.Discrete(64 * 64)

    def __init__(
        self,
        engine: chess.engine.UciProtocol,
        transport: asyncio.SubprocessTransport,
        nodes: int,
        max_moves: int,
    ) -> None:
        self.engine = engine
        self.transport = transport
        self.limit = chess.engine.Limit(nodes=nodes)
        self.max_moves = max_moves
        self.board = chess.Board()
        self.game = object()  # an engine forgets what it knows when this is another one

    @classmethod
    async def start(cls, path: str, nodes: int, max_moves: int) -> "Chess":
        """An env function may be a coroutine function."""
        # In a session of its own an engine does not see Ctrl-C: it ends when it is told to.
        transport, engine = await chess.engine.popen_uci(path, start_new_session=True)
        try:
            await engine.configure({"Threads": 1, "Hash": 1})
        except BaseException:
            transport.close()
            raise
        return cls(engine, transport, nodes, max_moves)

    async def reset(self, *, seed=None, options=None):
        self.board = chess.Board(**(options or {}))  # {"fen": ...} begins elsewhere
        self.game = object()
        return self.planes(), {"action_mask": self.mask()}

    async def step(self, action):
        move = self.move(int(action))
        if move not in self.board.legal_moves:
            info = {"action_mask": self.mask(), "result": "illegal", "move": move.uci()}
            return self.planes(), -1.0, True, False, info
        self.board.push(move)
        if not self.board.is_game_over():
            answer = await self.engine.play(self.board, self.limit, game=self.game)
            assert answer.move is not None
            self.board.push(answer.move)
        info = {"action_mask": self.mask()}
        outcome = self.board.outcome()
        truncated = outcome is None and self.board.fullmove_number > self.max_moves
        reward = 0.0
        if outcome is not None:
            info["result"] = outcome.result()
            reward = {None: 0.0, chess.WHITE: 1.0, chess.BLACK: -1.0}[outcome.winner]
        return self.planes(), reward, outcome is not None, truncated, info

    async def close(self) -> None:
        try:
            async with asyncio.timeout(2.0):
                await self.engine.quit()
        except TimeoutError:  # it hangs
            self.transport.kill()
            await self.engine.returncode
        finally:
            self.transport.close()

    # ------------------------------------------------------------------ chess

    def planes(self) -> np.ndarray:
        planes = np.zeros((12, 64), np.int8)
        for square, piece in self.board.piece_map().items():
            planes[piece.piece_type - 1 + (0 if piece.color else 6), square] = 1
        return planes.reshape(12, 8, 8)

    def mask(self) -> np.ndarray:
        """(4096,) int8, as `Discrete.sample(mask)` wants it; all 0 when the game is over."""
        mask = np.zeros(64 * 64, np.int8)
        if not self.board.is_game_over():
            mask[[64 * move.from_square + move.to_square for move in self.board.legal_moves]] = 1
        return mask

    def move(self, action: int) -> chess.Move:
        move = chess.Move(*divmod(action, 64))
        pawn = self.board.piece_type_at(move.from_square) == chess.PAWN
        if pawn and chess.square_rank(move.to_square) == 7:
            move.promotion = chess.QUEEN
        return move

    def moves(self) -> str:
        """The game so far, in words that chess players know."""
        return self.board.root().variation_san(self.board.move_stack)


async def play(path: str, num_envs: int, episodes: int, nodes: int, max_moves: int) -> None:
    num_envs = min(num_envs, episodes)
    # Who plays how many must not depend on who is fast, if the games are to be the same each time.
    quota = np.array([len(range(i, episodes, num_envs)) for i in range(num_envs)])
    generators = [np.random.default_rng(i) for i in range(num_envs)]
    results = {"1-0": 0, "0-1": 0, "1/2-1/2": 0, "illegal": 0, "unfinished": 0}
    moves = 0
    async with agymc.make_async(lambda: Chess.start(path, nodes, max_moves), num_envs) as envs:
        began = time.perf_counter()
        envs.send_reset()
        async for batch in envs.batches():
            moves += int(np.count_nonzero(batch.steps))
            actions, going = [], []
            for row, index in enumerate(batch.env_ids):
                if batch.terminations[row]:
                    results[batch.infos["result"][row]] += 1
                elif batch.truncations[row]:
                    results["unfinished"] += 1
                over = batch.terminations[row] or batch.truncations[row]
                if over and batch.episode_ids[row] + 1 == quota[index]:
                    continue  # it gets no more actions, and is done
                legal = np.flatnonzero(batch.infos["action_mask"][row])
                # The action after the end of a game begins the next one, whatever it is.
                actions.append(0 if over else generators[index].choice(legal))
                going.append(index)
            if going:
                envs.send(actions, going)
        took = time.perf_counter() - began
        (game,) = await envs.call("moves", env_ids=[0])
    print(f"{episodes} games, {moves} moves of White: ", end="")
    print(", ".join(f"{count} {result}" for result, count in results.items() if count))
    print(f"the last of env 0: {game}")
    print(f"{num_envs} engines, {nodes} nodes a move: {took:.1f} s, {moves / took:.0f} moves per s")


def find_stockfish(path: str | None) -> str:
    # Debian puts games where the PATH of root does not look.
    for name in [path] if path else ["stockfish", "/usr/games/stockfish"]:
        found = shutil.which(os.path.expanduser(name))
        if found is not None:
            return found
    raise SystemExit(
        f"found no {path or 'stockfish'}: apt install stockfish, or name it: --stockfish"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=8, help="games, and engines, at the same time")
    parser.add_argument("--episodes", type=int, default=16, help="games of all envs together")
    parser.add_argument("--nodes", type=int, default=1000, help="positions per move of Stockfish")
    parser.add_argument("--max-moves", type=int, default=60, help="of a game; then it is cut short")
    parser.add_argument("--stockfish", metavar="PATH", help="the engine's program")
    flags = parser.parse_args()
    path = find_stockfish(flags.stockfish)
    asyncio.run(play(path, flags.envs, flags.episodes, flags.nodes, flags.max_moves))


if __name__ == "__main__":
    main()
