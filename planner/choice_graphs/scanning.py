"""A table of whole numbers, [[1, 2], [3], ...], scanned from JSON text as it arrives: compiled, one pass."""

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled

TABLE, FIRST_ROW, ROW, FIRST_NUMBER, NUMBER, DIGIT, DIGITS, AFTER_NUMBER, AFTER_ROW, DONE, FAULT = range(11)
"""What the scanner expects next."""
STATE, VALUE, SIGN, NUM_NUMBERS, NUM_ROWS = range(5)
"""Fields of the scanner's memory between two pieces of text."""
_MOVES = {
    TABLE: {"[": FIRST_ROW},
    FIRST_ROW: {"[": FIRST_NUMBER, "]": DONE},
    ROW: {"[": FIRST_NUMBER},
    FIRST_NUMBER: {"0": DIGITS, "-": DIGIT, "]": AFTER_ROW},
    NUMBER: {"0": DIGITS, "-": DIGIT},
    DIGIT: {"0": DIGITS},
    DIGITS: {"0": DIGITS, ",": NUMBER, "]": AFTER_ROW, " ": AFTER_NUMBER},
    AFTER_NUMBER: {",": NUMBER, "]": AFTER_ROW},
    AFTER_ROW: {",": ROW, "]": DONE},
}
"""Digits stand under "0", white space under " "; white space without a move changes nothing."""
_LARGEST = 2**63 - 1


def _transitions() -> NDArray[np.uint8]:
    """(states, bytes): what is expected after a byte."""
    after = np.full((FAULT + 1, 256), FAULT, dtype=np.uint8)
    for state, moves in _MOVES.items():
        for mark, then in (({} if state == DIGIT else {" ": state}) | moves).items():
            alike = {"0": b"0123456789", " ": b" \t\r\n"}.get(mark, mark.encode())
            after[state, list(alike)] = then
    return after


_AFTER = _transitions()


@compiled
def scan(text: NDArray[np.uint8], at: int, memory: Ints, numbers: Ints, ends: Ints) -> int:
    """Scan on from a position; return where it ended: behind the table, the text, at a fault, or for want of space.

    Parameters
    ----------
    memory
        Zeros for a new table; its `STATE` is DONE behind a table, FAULT at a fault.
    numbers, ends
        Filled with the numbers of all rows, and with their count at the end of every row. Numbers too large for 64
        bits become 2^63 - 1, or its opposite.
    """
    state, value, sign, count, row = memory[0], memory[1], memory[2], memory[3], memory[4]
    while at < len(text) and state < DONE:
        then = _AFTER[state, text[at]]
        if then == DIGITS:
            digit = np.int64(text[at]) - 48
            if state != DIGITS:
                sign, value = -1 if state == DIGIT else 1, digit
            elif value == 0:
                then = FAULT  # a leading zero
            else:
                value = value * 10 + digit if value <= (_LARGEST - 9) // 10 else _LARGEST
        elif (state == DIGITS and count == len(numbers)) or (
            then == AFTER_ROW and state != AFTER_ROW and row == len(ends)
        ):
            break
        elif state == DIGITS and then != FAULT:
            numbers[count] = sign * value
            count += 1
        if then == AFTER_ROW and state != AFTER_ROW:
            ends[row] = count
            row += 1
        state = np.int64(then)
        at += then != FAULT
    memory[0], memory[1], memory[2], memory[3], memory[4] = state, value, sign, count, row
    return at
