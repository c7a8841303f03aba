"""One night at a time: a lock that the kernel gives back when its holder, and what the holder started, are gone."""

import contextlib
import fcntl
import json
import os
import socket

from skidproof.cli import Complaint


def _said(descriptor):
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "a process that has not said who it is"


def holder(folder):
    """Who holds the lock of this state folder, in words; None when nobody does."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _said(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held(folder, since):
    """Holds the lock; the value is its descriptor. A child that inherits it holds the lock on, so that nobody else touches the
    machine while a step outlives the night. Complaint (2) where it is held; OSError as of open."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Complaint(f"another nightly holds {folder / 'lock'}: {_said(descriptor)}, or what it started",
                            "wait for it, or stop it: systemctl stop skidproof-nightly.service; `skidproof nightly --status` says what it does"
                            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode() + b"\n", 0)
        yield descriptor
    finally:
        os.close(descriptor)
