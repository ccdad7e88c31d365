"""Work that does not look at its budget, and is ended all the same."""

import threading

import pytest
from llvmlite import binding as llvm

from stagecut.planner.solvers.search.interruption import OutOfBudget, interruptible, uninterrupted

AT_ONCE, NEVER = (lambda: 0.0), (lambda: None)
MANY = 200_000_000
"""Steps of a loop that take seconds: it ends, and fails, where nothing interrupts it."""


def busy():
    for _ in range(MANY):
        pass
    pytest.fail("was not interrupted")


def test_a_loop_that_never_looks_at_its_budget_is_interrupted():
    assert interruptible(busy, AT_ONCE) is None


def test_work_within_its_budget_is_left_in_peace():
    assert interruptible(lambda: sum(range(10)), NEVER) == 45


def test_work_that_returns_while_patience_lasts_keeps_its_answer():
    """The watcher has seen that it is time once the first question is answered; it would wait an hour."""
    asked = threading.Event()

    def patience_s():
        asked.set()
        return 3600.0

    assert interruptible(lambda: asked.wait(60), patience_s) is True


def test_what_must_not_be_left_half_done_is_finished_first():
    """The budget is spent inside of two shields, and the watcher knows before either ends."""
    spent, known, done = threading.Event(), threading.Event(), []

    def patience_s():
        if spent.is_set():
            known.set()
        return 0.0 if spent.is_set() else None

    def work():
        with uninterrupted():
            with uninterrupted():
                spent.set()
                assert known.wait(60)
            done.extend(range(1_000_000))
        busy()

    assert interruptible(work, patience_s) is None
    assert done == list(range(1_000_000))


def test_a_loop_that_is_being_compiled_is_finished_first():
    """LLVM calls back to have the machine code kept: raised there, the exception would be printed and forgotten."""
    spent, known, done = threading.Event(), threading.Event(), []
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("define void @loop() { ret void }"), target)

    def keep(module, machine_code):
        spent.set()
        assert known.wait(60)
        done.extend(range(1_000_000))

    def patience_s():
        if spent.is_set():
            known.set()
        return 0.0 if spent.is_set() else None

    def work():
        engine.set_object_cache(keep)
        engine.finalize_object()
        busy()

    assert interruptible(work, patience_s) is None
    assert done == list(range(1_000_000))


def test_work_that_swallows_the_exception_is_interrupted_again():
    inside, caught = threading.Event(), []

    def work():
        try:
            inside.set()
            busy()
        except OutOfBudget:
            caught.append("once")
        busy()

    assert interruptible(work, lambda: 0.0 if inside.is_set() else None) is None
    assert caught == ["once"]


def test_nothing_is_raised_once_the_work_is_over():
    """Interrupted or not, the thread goes on undisturbed, with other work, interruptions and shields."""
    for _ in range(20):
        assert interruptible(lambda: 1, AT_ONCE) in {1, None}
    with uninterrupted():
        assert sum(1 for _ in range(1_000_000)) == 1_000_000


def test_faults_of_the_work_are_those_of_the_caller():
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, NEVER)


def test_other_threads_are_not_interrupted():
    """Each is ended by its own budget: the one without a limit finishes."""
    outcomes = {}

    def run(name, work, patience_s):
        outcomes[name] = interruptible(work, patience_s)

    threads = [
        threading.Thread(target=run, args=("limited", busy, AT_ONCE)),
        threading.Thread(target=run, args=("free", lambda: sum(1 for _ in range(1_000_000)), NEVER)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"limited": None, "free": 1_000_000}
