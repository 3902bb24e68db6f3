"""Several long calls at a time, each in a process of its own, and how far the one is that is waited for."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

__all__ = ["side_by_side"]

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Report = Callable[[str, int, int], None]

LOOK = 0.2  # seconds between two looks at what the workers tell

_told: Any = None  # in a worker, where it tells how far it is


def side_by_side(
    call: Callable[[Task, Report], Answer], tasks: Sequence[Task], report: Report, jobs: int
) -> Iterator[Answer]:
    """Answers of ``call(task, report)`` in the order of the tasks. Workers end with the caller, also on Ctrl-C.

    Args:
        call: A function of a module, which a new process can import.
        tasks: What to call it with; they can be pickled, and so can the answers.
        report: Told how far the task is whose answer comes next.
        jobs: Processes.
    """
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would lose
    told, places = context.Queue(), context.Value("i", 0)
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, context, _begin, (told, places, jobs)) as pool:
        try:
            answers = [pool.submit(_called, call, place, task) for place, task in enumerate(tasks)]
            for place, answer in enumerate(answers):
                yield _waited_for(answer, place, told, report)
        except BaseException:  # Ctrl-C and a caller that has had enough among them
            pool.shutdown(wait=False, cancel_futures=True)
            workers = set(multiprocessing.active_children()) - set(others)
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join()
            raise


def _waited_for(answer: "Future[Answer]", place: int, told: Any, report: Report) -> Answer:
    while not answer.done():
        try:
            whose, *now = told.get(timeout=LOOK)
        except queue.Empty:
            continue
        if whose == place:
            report(*now)
    return answer.result()


def _begin(told: Any, places: Any, jobs: int) -> None:
    """A worker with cores of its own, of which XLA makes as many threads; Ctrl-C is its caller's."""
    global _told
    _told = told
    with places.get_lock():
        place = places.value
        places.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[place % jobs :: jobs] or cores)
    told.cancel_join_thread()  # nobody reads what is told after the last answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, daemon=True).start()


def _end_with_caller() -> None:
    """Of a caller that was killed, a worker would go on."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os._exit(1)


def _called(call: Callable[[Task, Report], Answer], place: int, task: Task) -> Answer:
    return call(task, lambda *now: _told.put((place, *now)))
