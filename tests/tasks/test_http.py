import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tasks.deadline import Deadline
from tasks.host import Host, HostError, HostLost
from tasks.http import open_client
from tasks.ssh_host import SshHost
from tests.tasks.conftest import StartSshd


class Served(ThreadingHTTPServer):
    """A server on loopback whose slow replies end when the test says so."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.go_on = threading.Event()
        self.together = threading.Barrier(32)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Served

    def do_GET(self) -> None:
        match self.path:
            case "/stream" | "/cut":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._chunk(b"first")
                self.server.go_on.wait(20)
                if self.path == "/stream":
                    self._chunk(b"second")
                    self._chunk(b"")
                self.close_connection = True
            case "/silent":
                self.server.go_on.wait(20)
                self.close_connection = True
            case "/together":
                self.server.together.wait(20)
                self._reply(b"all here")
            case _:
                self._reply(self.path.encode())

    def do_POST(self) -> None:
        self._reply(self.rfile.read(int(self.headers["Content-Length"])))

    def _reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


def test_a_request_reaches_the_loopback_port_of_the_host(host: Host, served: Served) -> None:
    with open_client(host, served.server_port, timeout_s=10) as client:
        assert "/hello?a=b+c" == client.get("/hello", params={"a": "b c"}).text


def test_bodies_arrive_whole_in_both_directions(host: Host, served: Served) -> None:
    body = bytes(range(256)) * 20_000
    with open_client(host, served.server_port, timeout_s=10) as client:
        assert body == client.post("/echo", content=body).content


def test_thirty_two_requests_are_in_flight_at_once(host: Host, served: Served) -> None:
    with open_client(host, served.server_port, timeout_s=20) as client, ThreadPoolExecutor(32) as threads:
        replies = list(threads.map(lambda _: client.get("/together").text, range(32)))
    assert ["all here"] * 32 == replies


def test_a_streamed_reply_arrives_while_it_is_written(host: Host, served: Served) -> None:
    with open_client(host, served.server_port, timeout_s=10) as client:
        with client.stream("GET", "/stream") as reply:
            pieces = reply.iter_raw()
            assert b"first" == next(pieces)
            served.go_on.set()
            assert b"second" == b"".join(pieces)


def test_a_refused_port_is_a_connect_error(host: Host, unused_port: int) -> None:
    with open_client(host, unused_port, timeout_s=10) as client:
        with pytest.raises(httpx.ConnectError):
            client.get("/health")


def test_a_silent_server_is_a_read_timeout(host: Host, served: Served) -> None:
    with open_client(host, served.server_port, timeout_s=0.3) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.get("/silent")


def test_a_reply_that_the_server_cuts_short_is_a_protocol_error(host: Host, served: Served) -> None:
    served.go_on.set()
    with open_client(host, served.server_port, timeout_s=10) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/cut")


@pytest.mark.sshd
def test_a_connection_lost_in_the_middle_of_a_reply_is_host_lost_and_the_next_request_works(
    start_sshd: StartSshd, served: Served
) -> None:
    sshd = start_sshd()
    with SshHost(sshd.target(), deadline=Deadline.after(10)) as host:
        with open_client(host, served.server_port, timeout_s=10) as client:
            with client.stream("GET", "/stream") as reply:
                pieces = reply.iter_raw()
                next(pieces)
                sshd.drop_connections()
                with pytest.raises(HostLost, match="test-host"):
                    next(pieces)
            assert "/again" == client.get("/again").text


@pytest.mark.sshd
def test_a_server_that_forbids_forwarding_is_named_with_the_setting_that_does_it(
    start_sshd: StartSshd, served: Served
) -> None:
    sshd = start_sshd("AllowTcpForwarding=no")
    with SshHost(sshd.target(), deadline=Deadline.after(10)) as host:
        with open_client(host, served.server_port, timeout_s=10) as client:
            with pytest.raises(HostError, match="AllowTcpForwarding"):
                client.get("/health")
