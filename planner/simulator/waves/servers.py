"""Clocks of the parameter servers, and the copies that stages have of their weights."""

from collections import defaultdict

from stagecut.planner.simulator.waves.tables import Tables


class Servers:
    """What servers and stages know of waves; lists have one entry for each server, or pair of stage and server."""

    def __init__(self, tables: Tables, *, clock_distance: int, last_gate: int) -> None:
        self.owner, self.clock_distance, self.last_gate = tables.owner, clock_distance, last_gate
        self.pairs: dict[int, list[int]] = defaultdict(list)
        for pair, owner in enumerate(self.owner):
            self.pairs[owner].append(pair)
        self.pushed = [0] * len(self.owner)
        """Waves that a pair has pushed."""
        self.copy = [0] * len(self.owner)
        """Clock of a stage's copy from that server."""
        self.replies = [0] * len(self.owner)
        """Clock in the latest reply to a stage, which has not arrived if it is not the copy's."""
        self.clock = [0] * tables.num_owners
        """First waves that all pairs of a server have pushed."""
        self.requests: list[list[tuple[int, int]]] = [[] for _ in self.clock]
        """Pulls that wait for the clock: (pair, wave of the gate)."""

    def push(self, pair: int) -> list[tuple[int, int]]:
        """A push has arrived: pulls (pair, wave of the gate) that can be answered now.

        The pair itself asks for what it needs at the next gate, if its copy is older.
        """
        owner, wave = self.owner[pair], self.pushed[pair] + 1
        self.pushed[pair] = wave
        replies = self._tick(owner) if self.clock[owner] == wave - 1 else []
        need = wave - self.clock_distance
        if self.copy[pair] < need and wave <= self.last_gate:
            (replies if need <= self.clock[owner] else self.requests[owner]).append((pair, wave))
        return replies

    def reply(self, pair: int) -> None:
        """A reply is ready: it has the clock of now, however long it waits for its links."""
        self.replies[pair] = self.clock[self.owner[pair]]

    def _tick(self, owner: int) -> list[tuple[int, int]]:
        clock = min(self.pushed[pair] for pair in self.pairs[owner])
        if clock == self.clock[owner]:
            return []
        self.clock[owner], waiting = clock, self.requests[owner]
        self.requests[owner] = [request for request in waiting if request[1] - self.clock_distance > clock]
        return [request for request in waiting if request[1] - self.clock_distance <= clock]
