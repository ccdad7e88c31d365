"""Links of a dilated run serve one transfer after another, to the last bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from stagecut.executor.dilated.shared_links import SharedLinks, Transfer


def transfer(number=0, *, seconds=2.0, links=(0,), num_parts=1):
    return Transfer(number=number, num_parts=num_parts, ranks=(0,), seconds=seconds, links=links)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "links"


def opened(path):
    """One rank's view of three links and four transfers."""
    return SharedLinks(path, num_links=3, num_transfers=4)


def test_a_free_link_serves_at_once(path):
    """Ready at 5, for 2 s."""
    links = opened(path)
    links.join(transfer(), 5.0)
    assert links.end_of(transfer(), 1) == 7.0


def test_a_link_serves_one_after_another(path):
    """The second is ready at 6, while the first still has it until 7; the third comes after both."""
    links = opened(path)
    for number, ready_s in enumerate((5.0, 6.0, 20.0)):
        links.join(transfer(number), ready_s)
    assert [links.end_of(transfer(number), 1) for number in range(3)] == [7.0, 9.0, 22.0]


def test_a_transfer_holds_all_of_its_links(path):
    """The one over links 0 and 1 waits for link 0 until 7, ends at 10, and holds up link 1 but not link 2."""
    links = opened(path)
    links.join(transfer(0), 5.0)
    links.join(transfer(1, links=(0, 1), seconds=3.0), 5.0)
    links.join(transfer(2, links=(1,)), 6.0)
    links.join(transfer(3, links=(2,)), 6.0)
    ends_s = [links.end_of(transfer(number), 1) for number in range(4)]
    assert ends_s == [7.0, 10.0, 12.0, 8.0]


def test_a_transfer_of_no_links_only_takes_its_time(path):
    """An all-reduce on links of its own."""
    links = opened(path)
    links.join(transfer(0), 5.0)
    links.join(transfer(1, links=()), 6.0)
    assert links.end_of(transfer(1), 1) == 8.0


def test_a_transfer_is_ready_with_its_last_part(path):
    """Parts ready at 5 and 4, in whatever order they join."""
    links = opened(path)
    parts = transfer(num_parts=2)
    links.join(parts, 5.0)
    assert links.end_of(parts, 1) is None
    links.join(parts, 4.0)
    assert links.end_of(parts, 1) == 7.0


def test_every_step_is_a_service_of_its_own(path):
    """The second step's end is unknown until its parts have joined; an early ready time of the first is forgotten."""
    links = opened(path)
    links.join(transfer(), 5.0)
    assert links.end_of(transfer(), 2) is None
    links.join(transfer(), 1.0)
    assert links.end_of(transfer(), 2) == 9.0


def test_all_ranks_see_the_same_links(path):
    """Whoever opens the file first makes it, and nobody empties it."""
    first = opened(path)
    first.join(transfer(0), 5.0)
    second = opened(path)
    second.join(transfer(1), 5.0)
    assert second.end_of(transfer(0), 1) == 7.0
    assert first.end_of(transfer(1), 1) == 9.0


def test_transfers_of_many_threads_are_all_served(path):
    """Eight threads with 50 transfers of 1 s each, all ready at 0: the last one ends at 400."""

    def book(_thread):
        links = opened(path)
        for _ in range(50):
            links.join(transfer(seconds=1.0), 0.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(book, range(8)))
    assert opened(path).end_of(transfer(), 400) == 400.0
