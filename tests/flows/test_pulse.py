"""Whether another host lives, by what it renews and this host's clock."""

import pytest

from flows.runner import pulse


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test sets (s)."""
    now = [0.0]
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now[0])
    return now


def test_a_sign_that_is_renewed_lives_and_one_that_stands_still_does_not(clock):
    watched, told = pulse.Pulse(10), []
    for second in range(0, 31, 2):
        clock[0] = second
        told.append(watched.stands_still(second if second < 14 else "last"))
    assert told == [False] * 12 + [True] * 4


def test_who_could_not_look_for_long_begins_anew(clock):
    watched = pulse.Pulse(10)
    assert not watched.stands_still("one")
    clock[0] = 60
    assert not watched.stands_still("one"), "the server that tells was away, for it as well"
    for clock[0] in (64, 68):
        assert not watched.stands_still("one")
    clock[0] = 70
    assert watched.stands_still("one")
