"""Micro-batching gives everybody their own answer, whoever else asks at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from splitveil.serving.batching import Batcher, BusyError


def rows(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


class Slow:
    """A network x -> 2x that waits until it is let through, and remembers its batches."""

    def __init__(self) -> None:
        self.entered, self.free = threading.Semaphore(0), threading.Semaphore(0)
        self.batches: list[list[float]] = []

    def __call__(self, values: np.ndarray) -> np.ndarray:
        self.batches.append(values[:, 0].tolist())
        self.entered.release()
        assert self.free.acquire(timeout=60)
        return 2 * values


def test_what_waits_goes_together_in_order():
    slow = Slow()
    batcher = Batcher(slow, max_batch=4, max_wait_ms=0)
    first = batcher.submit(rows(1))
    assert slow.entered.acquire(timeout=60)
    others = [batcher.submit(rows(*values)) for values in [(2,), (3, 4), (5, 6), (7,)]]  # 5 and 6 no longer fit
    slow.free.release(10)
    assert [first.result(60)[:, 0].tolist()] == [[2.0]]
    assert [one.result(60)[:, 0].tolist() for one in others] == [[4.0], [6.0, 8.0], [10.0, 12.0], [14.0]]
    batcher.close()
    assert slow.batches == [[1.0], [2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]


def test_a_batch_of_one_is_no_batching():
    slow = Slow()
    slow.free.release(10)
    batcher = Batcher(slow, max_batch=1)
    answers = [batcher.submit(rows(value)) for value in (1, 2, 3)]
    assert [one.result(60).tolist() for one in answers] == [[[2.0]], [[4.0]], [[6.0]]]
    batcher.close()
    assert slow.batches == [[1.0], [2.0], [3.0]]


def test_a_message_larger_than_a_batch_is_cut_and_joined():
    sizes = []
    batcher = Batcher(lambda values: values + 1, max_batch=3, observe=sizes.append)
    answer = batcher.submit(rows(*range(8))).result(60)
    batcher.close()
    assert answer[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sizes == [3, 3, 2]


def test_many_threads_get_their_own_answers():
    batcher = Batcher(lambda values: values * 3, max_batch=16, max_wait_ms=1)

    def ask(number: int) -> bool:
        values = rows(number, number + 0.5)
        return bool((batcher.submit(values).result(60) == values * 3).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))
    batcher.close()


def test_one_bad_message_does_not_spoil_the_others():
    entered, free = threading.Semaphore(0), threading.Semaphore(0)

    def network(values: np.ndarray) -> np.ndarray:
        entered.release()
        assert free.acquire(timeout=60)
        if (values == 13).any():
            raise RuntimeError("unlucky")
        return values

    batcher = Batcher(network, max_batch=8, max_wait_ms=0)
    first = batcher.submit(rows(0))
    assert entered.acquire(timeout=60)
    good, bad, also = batcher.submit(rows(1)), batcher.submit(rows(13)), batcher.submit(rows(2))
    free.release(20)
    assert first.result(60).tolist() == [[0.0]]
    assert good.result(60).tolist() == [[1.0]]
    assert also.result(60).tolist() == [[2.0]]
    with pytest.raises(RuntimeError, match="unlucky"):
        bad.result(60)
    assert batcher.submit(rows(5)).result(60).tolist() == [[5.0]], "the thread lives on"
    batcher.close()


def test_too_many_wait():
    slow = Slow()
    batcher = Batcher(slow, max_batch=1, max_wait_ms=0, max_waiting=2)
    running = batcher.submit(rows(0))
    assert slow.entered.acquire(timeout=60)
    waiting = batcher.submit(rows(1, 2))
    with pytest.raises(BusyError):
        batcher.submit(rows(3))
    slow.free.release(10)
    assert running.result(60).tolist() == [[0.0]]
    assert waiting.result(60).tolist() == [[2.0], [4.0]]
    assert batcher.submit(rows(4)).result(60).tolist() == [[8.0]], "there is room again"
    batcher.close()


def test_who_hangs_up_is_left_out():
    slow = Slow()
    batcher = Batcher(slow, max_batch=8, max_wait_ms=0)
    running = batcher.submit(rows(0))
    assert slow.entered.acquire(timeout=60)
    gone, stays = batcher.submit(rows(1)), batcher.submit(rows(2))
    assert gone.cancel()
    slow.free.release(10)
    assert running.result(60).tolist() == [[0.0]]
    assert stays.result(60).tolist() == [[4.0]]
    batcher.close()
    assert slow.batches == [[0.0], [2.0]]


def test_closing_answers_what_waits_and_takes_no_more():
    slow = Slow()
    batcher = Batcher(slow, max_batch=1, max_wait_ms=0)
    answers = [batcher.submit(rows(value)) for value in (1, 2, 3)]
    slow.free.release(10)
    batcher.close()
    batcher.close()  # twice does no harm
    assert [one.result(0).tolist() for one in answers] == [[[2.0]], [[4.0]], [[6.0]]]
    with pytest.raises(BusyError, match="shutting down"):
        batcher.submit(rows(1))
