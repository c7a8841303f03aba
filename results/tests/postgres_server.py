"""A PostgreSQL of its own for tests and benchmarks: Debian's, in a temporary folder, listening on a socket there and on no port."""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time


def programs():
    """The folder of the newest installed server; None where there is none."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4]))
    return pathlib.Path(found[-1]).parent if found else None


class Server:
    """start() makes and starts it, stop() ends it and removes its folder. It refuses root, so root runs it as postgres or nobody."""

    def __init__(self, settings=(), folder=None):
        self.settings = {"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "4GB", "listen_addresses": "", "max_connections": "50",
                         "client_encoding": "UTF8", **dict(settings)}
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="skidproof-pg-", dir=folder))
        self.data, self.log, self.process, self.user = self.root / "data", self.root / "log", None, None
        if os.getuid() == 0:
            self.user = next(name for name in ("postgres", "nobody") if _is_user(name))
            shutil.chown(self.root, self.user)
        os.chmod(self.root, 0o711)

    def _options(self):
        account = {} if self.user is None else {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        return {"cwd": self.root, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.root)}, **account}

    def start(self):
        """Makes the cluster where it is not there yet, and waits until the server answers."""
        if not self.data.exists():
            subprocess.run([programs() / "initdb", "-D", self.data, "-U", "skidproof", "--auth=trust", "-E", "UTF8", "--no-sync"],
                           check=True, stdout=subprocess.DEVNULL, **self._options())
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [programs() / "postgres", "-D", self.data, "-k", self.root,
                 *(f"-c{name}={value}" for name, value in self.settings.items())],
                stdout=log, stderr=log, **self._options())
        return self.wait()

    def wait(self):
        """Until it answers. RuntimeError where it does not."""
        for _ in range(600):
            if subprocess.run([programs() / "pg_isready", "-q", "-h", self.root, "-U", "skidproof"], check=False).returncode == 0:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL does not start: {self.log.read_text(encoding='utf-8')[-2000:]}")

    def url(self, database="postgres"):
        return f"postgresql://skidproof@/{database}?host={self.root}"

    def create(self, database):
        """Makes an empty database and returns its URL."""
        subprocess.run([programs() / "createdb", "-h", self.root, "-U", "skidproof", database], check=True)
        return self.url(database)

    def drop(self, database):
        subprocess.run([programs() / "dropdb", "-f", "-h", self.root, "-U", "skidproof", database], check=True)

    def kill(self):
        """As a power cut would: kill -9 of the server and its children."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        self.process.kill()
        self.process.wait()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass
        pid_file = self.data / "postmaster.pid"
        for _ in range(100):  # a new server waits until the children are gone
            if not any(pathlib.Path(f"/proc/{child}").exists() for child in children):
                break
            time.sleep(0.05)
        pid_file.unlink(missing_ok=True)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def _is_user(name):
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False
