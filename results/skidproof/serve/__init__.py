"""`skidproof serve`: a small read-only HTTP service over a store, for who has no Grafana."""

import ipaddress
import json
import os
import socket
import sys

from skidproof.cli import EXIT_HARNESS, EXIT_HELD, Complaint, Parser, complain, usage

EXAMPLES = """\
Examples:
  skidproof serve                                      skidproof.db of this folder, at http://127.0.0.1:9476/
  skidproof serve --store postgresql://lab/skidproof --workers 2

  /                     the fleet              /api/v1/…      JSON, paged; described by /openapi.json
  /machines/N           a machine's history    /metrics       for Prometheus
  /runs/ID              the report of a run    /healthz       whether the store answers

It only reads. It has no passwords: whoever reaches it reads everything, so it listens on the loopback interface unless told
otherwise.

Exit codes: 0 ended by a signal; 2 it could not start; 64 bad usage.
"""
STORE = "SKIDPROOF_STORE"


def main(arguments):
    parser = Parser("serve", description="A read-only HTTP service over the store of results.", epilog=EXAMPLES)
    parser.add_argument("--store", metavar="URL", help=f"a SQLite file or the URL of a database (default: ${STORE}, or skidproof.db)")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", metavar="N", type=int, default=9476, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes that answer (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help='where it listens, as JSON; "-" is standard output')
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= 65535:
        raise usage(f"{options.port} is no port", "0 to 65535")
    if not 1 <= options.workers <= 64:
        raise usage(f"{options.workers} workers", "1 to 64")

    import uvicorn

    from skidproof import store as stores
    with stores.open(options.store) as store:  # what is wrong with it is said here, not in each answer
        store.state()
    if options.store:
        os.environ[STORE] = options.store  # the processes that answer open it again
    listening = listen(options.host, options.port)
    address, port = listening.getsockname()[:2]
    say(options, f"http://{f'[{address}]' if ':' in address else address}:{port}/")
    if not ipaddress.ip_address(address.split("%")[0]).is_loopback:
        complain(f"{address} can be reached from elsewhere", "whoever reaches it reads all results; there is no password")
    server = uvicorn.Config("skidproof.serve.app:from_environment", factory=True, workers=options.workers, access_log=False,
                            log_level="error", server_header=False, limit_concurrency=1000, timeout_keep_alive=30)
    if options.workers == 1:
        uvicorn.Server(server).run(sockets=[listening])
    else:
        from uvicorn.supervisors import Multiprocess
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
        Multiprocess(server, target=uvicorn.Server(server).run, sockets=[listening]).run()
    return EXIT_HELD


def listen(host, port):
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
        listening.set_inheritable(True)
        return listening
    except OSError as error:
        raise Complaint(f"cannot listen on {host} port {port}: {error.strerror}", "choose another with --host and --port, or 0 for a free port",
                        EXIT_HARNESS) from error


def say(options, url):
    document = json.dumps({"url": url})
    if options.json == "-":
        print(document, flush=True)
        return
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            stream.write(document + "\n")
    print(f"{url} until Ctrl-C", flush=True)
