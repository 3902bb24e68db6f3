"""Several long calls at the same time, each in its own process, with the progress of the one whose answer is next."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.queues import Queue
from typing import Any, TypeVar

__all__ = ["side_by_side"]

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Report = Callable[[str, int, int], None]
Messages = Queue  # of (place of the task, what, done, total)

POLL_SECONDS = 0.2  # between two checks whether an answer is ready: short for a person, long for a processor

_messages: Messages | None = None  # in a worker: the queue to which it reports its progress


def side_by_side(
    call: Callable[[Task, Report], Answer], tasks: Sequence[Task], report: Report, jobs: int
) -> Iterator[Answer]:
    """Answers of ``call(task, report)`` in the order of the tasks. The workers end with the caller, also on Ctrl-C.

    Args:
        call: A function of a module, which a new process can import.
        tasks: Its first arguments; they and the answers can be pickled.
        report: Called with the progress of the task whose answer comes next.
        jobs: Number of processes.
    """
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would lose
    messages, places = context.Queue(), context.Value("i", 0)
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, context, _start_worker, (messages, places, jobs)) as pool:
        try:
            answers = [pool.submit(_call_in_worker, call, place, task) for place, task in enumerate(tasks)]
            latest: dict[int, Any] = {}
            for place, answer in enumerate(answers):
                yield _wait_for(answer, place, messages, report, latest)
        except BaseException:  # includes Ctrl-C, and a caller that closes the generator
            pool.shutdown(wait=False, cancel_futures=True)
            workers = set(multiprocessing.active_children()) - set(others)
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join()
            raise


def _wait_for(
    answer: "Future[Answer]", place: int, messages: Messages, report: Report, latest: dict[int, Any]
) -> Answer:
    """Reports the progress of one task until its answer is there; ``latest`` keeps that of later tasks until then."""
    if place in latest:
        report(*latest.pop(place))
    done = False
    while True:
        try:
            sender, *progress = messages.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if done:  # one more look after the answer: a message may arrive later than the answer that it precedes
                return answer.result()
            done = answer.done()
            continue
        if sender == place:
            report(*progress)
        elif sender > place:
            latest[sender] = progress


def _start_worker(messages: Messages, places: Any, jobs: int) -> None:
    """Prepares a worker: it gets its own cores, so that XLA starts as many threads, and leaves Ctrl-C to the caller.

    Args:
        messages: The queue for its progress.
        places: A shared number of workers started so far (`multiprocessing.Value` has no public type).
        jobs: Number of workers.
    """
    global _messages
    _messages = messages
    with places.get_lock():
        place = places.value
        places.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[place % jobs :: jobs] or cores)
    messages.cancel_join_thread()  # nobody reads the messages after the last answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, daemon=True).start()


def _end_with_caller() -> None:
    """Ends this worker when its caller ends; otherwise a worker would survive a caller that is killed."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os._exit(1)


def _call_in_worker(call: Callable[[Task, Report], Answer], place: int, task: Task) -> Answer:
    messages = _messages
    if messages is None:
        raise RuntimeError("This worker was not started by side_by_side, so it has no queue for its progress.")
    return call(task, lambda *progress: messages.put((place, *progress)))
