"""What is remembered of who was there: it saves work, and loses no more than that."""

from angelia.bus import presence as module
from angelia.bus.presence import Presence


def test_a_pair_is_known_both_ways_once_it_was_remembered() -> None:
    presence = Presence()
    assert not presence.knows("ann", "bob")
    presence.remember("bob", "ann")
    assert presence.knows("ann", "bob")
    assert presence.knows("bob", "ann")
    assert not presence.knows("ann", "cat")


def test_the_memory_of_pairs_is_bounded() -> None:
    presence = Presence()
    for n in range(module.MOST_PAIRS + 1):
        presence.remember("ann", str(n))
    assert not presence.knows("ann", "0")
    assert presence.knows("ann", str(module.MOST_PAIRS))


def test_the_first_stream_is_news() -> None:
    assert Presence().came_back("ann", 1000.0, 30)


def test_a_return_is_news_after_a_gap_alone() -> None:
    presence = Presence()
    presence.left("ann", 1000.0)
    assert not presence.came_back("ann", 1029.9, 30)
    presence.left("ann", 1100.0)
    assert presence.came_back("ann", 1130.0, 30)


def test_the_memory_of_ends_is_bounded_and_forgets_only_what_would_be_news() -> None:
    presence = Presence()
    for n in range(module.MOST_ENDED + 5):
        presence.left(str(n), 1000.0)
    presence.left("late", 1029.0)
    assert presence.came_back("ann", 1031.0, 30)
    assert len(presence._ended) == 1
    assert not presence.came_back("late", 1031.0, 30)
    assert presence.came_back("0", 1031.0, 30)


def test_the_end_of_one_says_nothing_of_another() -> None:
    presence = Presence()
    presence.left("ann", 1000.0)
    assert presence.came_back("bob", 1001.0, 30)


def test_takeovers_are_remembered_for_a_glance() -> None:
    presence = Presence()
    for second in range(20):
        presence.took_over("ann", float(second))
    assert presence.takeovers("ann", 18.0) == 2
    assert presence.takeovers("ann", 0.0) == module.TAKEOVERS_KEPT
    assert presence.takeovers("bob", 0.0) == 0


def test_the_memory_of_takeovers_is_bounded() -> None:
    presence = Presence()
    for n in range(module.MOST_ENDED + 1):
        presence.took_over(str(n), 1.0)
    assert presence.takeovers("0", 0.0) == 0
    assert presence.takeovers(str(module.MOST_ENDED), 0.0) == 1


def test_it_is_known_where_the_last_notice_lies_or_nothing_is_known_of_the_mailbox() -> None:
    unread = Presence().unread
    assert not unread.knows("bob")
    unread.know("bob", {b"ann": 1})
    assert (unread.find("bob", b"ann"), unread.find("bob", b"cat")) == (1, None)
    unread.put("bob", b"ann", 2)
    assert unread.find("bob", b"ann") == 2
    unread.forget("bob")
    assert not unread.knows("bob")


def test_the_memory_of_notices_is_bounded() -> None:
    unread = Presence().unread
    unread.know("bob", {b"%d" % n: n for n in range(module.MOST_NOTICES)})
    unread.put("bob", b"0", 1)
    assert unread.knows("bob")
    unread.know("cat", {b"ann": 1})
    assert not unread.knows("bob")
    assert unread.find("cat", b"ann") == 1
    for n in range(module.MOST_NOTICES):
        assert unread.knows("cat")
        unread.put("cat", b"%d" % n, n)
    assert not unread.knows("cat")
