"""Loads many files with several processes, each with its own connection."""

import ctypes
import gc
import multiprocessing
import os
import queue
import signal
import sys
import time

from skidproof.cli import Complaint
from skidproof.store import database, load

PR_SET_PDEATHSIG = 1
SAY_BYTES = 4 << 20  # of a file between what is said of its progress


def add(engine, url, paths, jobs=None, progress=None):
    """Loads the files; returns (reports in the order of `paths`, Complaint that ended it early or None).

    progress(bytes done, files done) is called now and then."""
    jobs = min(jobs or os.cpu_count() or 1, len(paths))
    if jobs <= 1 or "-" in paths:
        reports = []
        complaint = _work(engine, url, None, iter(enumerate(paths)), lambda kind, *what: _note(reports, progress, kind, what))
        return [report for _, report in sorted(reports, key=lambda pair: pair[0])], complaint
    context = multiprocessing.get_context("fork")
    tasks, results, lock = context.Queue(), context.Queue(), context.Lock()
    for task in enumerate(paths):
        tasks.put(task)
    for _ in range(jobs):
        tasks.put(None)
    workers = [context.Process(target=_worker, args=(os.getpid(), engine, url, lock, tasks, results), daemon=True) for _ in range(jobs)]
    sys.stdout.flush()
    engine.dispose()  # or the processes would share the connection that stays open
    for worker in workers:
        worker.start()
    try:
        return _gather(url, workers, results, progress)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
        tasks.cancel_join_thread()


def _gather(url, workers, results, progress):
    reports, complaint, running, dead_since = [], None, len(workers), None
    while running:
        try:
            kind, *what = results.get(timeout=0.5)
        except queue.Empty:
            if all(worker.is_alive() for worker in workers if worker.exitcode != 0):
                continue
            dead_since = dead_since or time.monotonic()
            if time.monotonic() - dead_since > 2:
                complaint = complaint or Complaint(f"a process that loaded into {database.shown(url)} was killed",
                                                   "run the same command again: what is there already is left alone")
                break
            continue
        if kind == "end":
            running -= 1
            if what[0] is not None:
                complaint = Complaint(*what[0])
                break
        else:
            _note(reports, progress, kind, what)
    return [report for _, report in sorted(reports, key=lambda pair: pair[0])], complaint


def _note(reports, progress, kind, what):
    if kind == "reports":
        reports += what[0]
    if progress:
        progress(what[0] if kind == "bytes" else 0, len(reports))


def _worker(parent, engine, url, lock, tasks, results):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # without whoever reports it, nothing is loaded
    if os.getppid() != parent:
        os._exit(1)
    complaint = _work(engine, url, lock, iter(tasks.get, None), lambda *said: results.put(said))
    results.put(("end", None if complaint is None else (complaint.message, complaint.advice, complaint.exit_code)))


def _work(engine, url, lock, tasks, say):
    """Loads the (number, path) of `tasks` and says("reports", [(number, FileReport)]) when they are on the disk's way; returns
    the Complaint that ended it, or None."""
    waiting = []
    gc.disable()  # rows come and go in great numbers and in no circles
    try:
        with database.plain_words(url):
            loader = load.Loader(engine, url, lock)
            try:
                for number, path in tasks:
                    waiting.append((number, _load_one(loader, path, say)))
                    if not loader.batch:
                        say("reports", waiting)
                        waiting = []
                loader.finish()
                say("reports", waiting)
            finally:
                loader.close()
    except Complaint as complaint:
        return complaint
    finally:
        gc.enable()
    return None


def _load_one(loader, path, say):
    done = 0

    def progress(count):
        nonlocal done
        if count - done > SAY_BYTES:
            say("bytes", count - done)
            done = count

    try:
        with load.opened(path) as (stream, problem):
            report = loader.load("standard input" if path == "-" else path, stream, progress)
            say("bytes", report.bytes - done)
            if problem:
                report.add_problem(0, problem)
            return report
    except OSError as error:
        report = load.FileReport(path)
        report.add_problem(0, f"cannot be read: {error.strerror or error}")
        return report
