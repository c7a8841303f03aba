#!/usr/bin/python3
"""What `skidproof serve` bears: many clients at once, then hostile requests.

usage: serve_load.py [--store URL] [--clients 200] [--seconds 60] [--hostile 10000] [--workers 1]

Without --store it makes one of its own out of a small simulated fleet. Prints requests a second, errors, latencies and the memory
of the service; then what the hostile requests were answered. Exits 0 when no request failed, no hostile one got a 5xx, and
nothing was written into the store; 1 otherwise.
"""

import argparse
import asyncio
import collections
import hashlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

RESULTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(RESULTS))

from skidproof.store import database  # noqa: E402

SKIDPROOF = [sys.executable, "-B", str(RESULTS / "skidproof")]
WORDS = ["<script>", "'; DROP TABLE runs; --", "%00", "%ff%fe", "../" * 20 + "etc/passwd", "*" * 190, "[" * 50, "\\", "%", "%zz", "\u202e", "🦊",
         "{{7*7}}", "$(reboot)", "-1", "0", "1e309", "NaN", "9" * 60, "2026-13-45", "' OR 1=1", "\"", ";", "|", "&&", "a" * 3000, "\t", "?", "#"]
METHODS = ["GET"] * 12 + ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO"]
FILTERS = ("machine", "run", "test", "status", "figure", "erratum", "since", "until", "limit", "after", "x", "__proto__")


async def answer_of(reader, head=False):
    """(status, length) of the next answer on the connection."""
    first = await reader.readline()
    if not first:
        raise ConnectionError("closed")
    status, length, chunked, closes = int(first.split()[1]), 0, False, False
    while True:
        line = await reader.readline()
        if line in (b"\r\n", b""):
            break
        name, _, value = line.decode("latin-1").partition(":")
        name = name.lower()
        if name == "content-length":
            length = int(value)
        elif name == "transfer-encoding":
            chunked = "chunked" in value
        elif name == "connection":
            closes = "close" in value
    if chunked:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    elif length and not head:
        await reader.readexactly(length)
    return status, closes


class Client:
    def __init__(self, host, port):
        self.host, self.port, self.writer = host, port, None

    async def ask(self, request, head=False):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        self.writer.write(request)
        await self.writer.drain()
        status, closes = await asyncio.wait_for(answer_of(self.reader, head), 60)
        if closes:
            self.close()
        return status

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: load\r\n\r\n".encode()


async def load(host, port, clients, seconds, paths, seed):
    latencies, wrong = [], collections.Counter()
    until = time.monotonic() + seconds

    async def one(number):
        client, draw = Client(host, port), random.Random(seed * 1000 + number)
        while time.monotonic() < until:
            path = draw.choice(paths)
            begin = time.perf_counter()
            try:
                status = await client.ask(get(path))
            except (OSError, ConnectionError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
                wrong[type(error).__name__] += 1
                client.close()
                continue
            latencies.append(time.perf_counter() - begin)
            if status != 200:
                wrong[status] += 1
        client.close()

    await asyncio.gather(*(one(number) for number in range(clients)))
    return latencies, wrong


def hostile_request(draw):
    word = "".join(draw.choice(WORDS) for _ in range(draw.randint(1, 3)))
    kind = draw.random()
    if kind < 0.08:  # what is hardly HTTP
        return bytes(draw.randrange(256) for _ in range(draw.randint(1, 200))) + b"\r\n\r\n", False
    if kind < 0.16:
        return f"GET /{'a' * draw.choice((10, 9000, 70000))} HTTP/1.1\r\nHost: x\r\nX: {'b' * draw.choice((1, 70000))}\r\n\r\n".encode(), False
    quote = (lambda w: urllib.parse.quote(w, safe="")) if draw.random() < 0.8 else (lambda w: w.replace(" ", "+").replace("\t", ""))
    base = draw.choice(("/api/v1/tests", "/api/v1/measurements", "/api/v1/runs", "/api/v1/errata", "/api/v1/evidence", "/api/v1/failures",
                        "/api/v1/machines/", "/machines/", "/runs/", "/api/v1/runs/", "/", "/metrics", "/healthz"))
    path = base + (quote(word) if base.endswith("/") and draw.random() < 0.8 else "")
    if draw.random() < 0.7:
        path += "?" + "&".join(f"{draw.choice(FILTERS)}={quote(draw.choice(WORDS))}" for _ in range(draw.randint(1, 4)))
    method = draw.choice(METHODS)
    body = word.encode("utf-8", "replace") if method in ("POST", "PUT", "PATCH") else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n" + (f"Content-Length: {len(body)}\r\n" if body else "") + "\r\n"
    return head.encode("utf-8", "replace") + body, method == "HEAD"


async def hostile(host, port, count, seed):
    """Statuses; a connection that is closed without an answer counts as refused."""
    found, draw, sent = collections.Counter(), random.Random(seed), collections.defaultdict(list)
    requests = [hostile_request(draw) for _ in range(count)]

    async def one(part):
        client = Client(host, port)
        for request, head in part:
            try:
                status = await client.ask(request, head)
            except (OSError, ConnectionError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError):
                status = "closed"
            found[status] += 1
            if isinstance(status, int) and status >= 500:
                sent[status].append(request[:300])
            if status == "closed" or (isinstance(status, int) and status >= 400) or b"\x00" in request:
                client.close()  # what is left of a broken request must not answer the next one
        client.close()

    await asyncio.gather(*(one(requests[number::20]) for number in range(20)))
    return found, sent


def memory_mb(pid):
    """Resident and peak of the process and its children."""
    total = peak = 0
    for process in [pid, *(int(p) for p in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())]:
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines())
        total += int(status["VmRSS"].split()[0])
        peak += int(status["VmHWM"].split()[0])
    return total / 1024, peak / 1024


def written(store):
    """What changes with whatever is written: a file's digest, or how many rows PostgreSQL ever inserted, updated and deleted there."""
    if "://" not in store:
        return hashlib.sha256(pathlib.Path(store).read_bytes()).hexdigest()
    time.sleep(2)  # sessions report what they did once a second
    with database.engine_of(database.location(store)).connect() as connection:
        return int(connection.exec_driver_sql("SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables").scalar())


def own_store(folder):
    subprocess.run([sys.executable, "-B", RESULTS / "bench" / "fleet.py", "--machines", "40", "--nights", "30", "--figures", "60", "--seed", "1",
                    "--out", folder / "fleet"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*SKIDPROOF, "store", "add", "--store", folder / "s.db", folder / "fleet"], check=True, stdout=subprocess.DEVNULL)
    return str(folder / "s.db")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store")
    for name, default in (("clients", 200), ("seconds", 60), ("hostile", 10000), ("workers", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or own_store(pathlib.Path(folder))
        before = written(store)
        service = subprocess.Popen([*SKIDPROOF, "serve", "--store", store, "--port", "0", "--workers", str(options.workers), "--json", "-"],
                                   stdout=subprocess.PIPE, text=True)
        try:
            held = judge(options, service, store, before)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(30)
    return 0 if held else 1


def judge(options, service, store, before):
    url = urllib.parse.urlsplit(json.loads(service.stdout.readline())["url"])
    machines = asyncio.run(first_machines(url.hostname, url.port))
    paths = ["/", "/healthz", "/api/v1/machines?limit=50", "/api/v1/runs?limit=20", "/api/v1/measurements?figure=*&limit=50", "/api/v1/tests?status=fail"]
    paths += [f"/machines/{key}" for key in machines[:10]] + [f"/api/v1/machines/{key}/nights" for key in machines[:10]]
    latencies, wrong = asyncio.run(load(url.hostname, url.port, options.clients, options.seconds, paths, options.seed))
    latencies.sort()
    at = lambda share: 1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))]  # noqa: E731
    resident, peak = memory_mb(service.pid)
    print(f"{options.clients} clients for {options.seconds} s, {options.workers} worker(s): {len(latencies)} answers, {len(latencies) / options.seconds:.0f}/s, "
          f"{sum(wrong.values())} errors {dict(wrong) or ''}")
    print(f"latency: median {at(0.5):.0f} ms, p99 {at(0.99):.0f} ms, longest {at(1):.0f} ms; memory {resident:.0f} MB, at most {peak:.0f} MB")
    found, sent = asyncio.run(hostile(url.hostname, url.port, options.hostile, options.seed))
    print(f"{options.hostile} hostile requests: {dict(sorted(found.items(), key=str))}")
    for status, requests in sent.items():
        print(f"  {status}: {requests[:3]}")
    same = written(store) == before
    alive = asyncio.run(Client(url.hostname, url.port).ask(get("/healthz"))) == 200
    print(f"store {'unchanged' if same else 'CHANGED'}; service {'answers' if alive else 'DOES NOT ANSWER'}")
    return not wrong and not sent and same and alive


async def first_machines(host, port):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /api/v1/machines?limit=50 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    body = (await reader.read()).split(b"\r\n\r\n", 1)[1]
    writer.close()
    return [item["subject"] for item in json.loads(body)["items"]]


if __name__ == "__main__":
    sys.exit(main())
