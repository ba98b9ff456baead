"""HTTP to a port of the host's loopback, over whatever leads there: a socket, or a channel of the SSH connection."""

import contextlib
from collections.abc import Iterable, Iterator

import httpcore
import httpx

from tasks.deadline import Deadline
from tasks.host import ByteStream, DeadlinePassed, Host

__all__ = ["open_client"]

_LONGEST_S = 3600.0  # to open a connection, when a request was made with timeout=None

_ERRORS: dict[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ReadError: httpx.ReadError,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
    httpcore.WriteError: httpx.WriteError,
    httpcore.WriteTimeout: httpx.WriteTimeout,
}


def open_client(host: Host, port: int, *, timeout_s: float) -> httpx.Client:
    """A client of `http://127.0.0.1:PORT` on `host`. `timeout_s` bounds connecting and each silence, not a whole reply.

    Its requests raise httpx.ConnectError when nothing listens on the port, httpx.TimeoutException after a silence,
    and HostError when the host itself is lost. It may be shared by threads.
    """
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=timeout_s, transport=_Transport(host))


class _Transport(httpx.BaseTransport):
    """One connection per request: opening a channel is one round trip, and none is ever found closed by the server."""

    def __init__(self, host: Host) -> None:
        self._pool = httpcore.ConnectionPool(
            max_connections=None, max_keepalive_connections=0, network_backend=_Network(host)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        with _in_httpx_words(request):
            reply = self._pool.handle_request(
                httpcore.Request(
                    method=request.method,
                    url=httpcore.URL(
                        scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        assert isinstance(reply.stream, Iterable)
        return httpx.Response(
            reply.status, headers=reply.headers, stream=_Body(reply, request), extensions=reply.extensions
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, reply: httpcore.Response, request: httpx.Request) -> None:
        self._reply, self._request = reply, request

    def __iter__(self) -> Iterator[bytes]:
        with _in_httpx_words(self._request):
            yield from self._reply.iter_stream()

    def close(self) -> None:
        self._reply.close()


class _Network(httpcore.NetworkBackend):
    """Opens connections through the host, to its loopback, whatever name the URL holds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        del host, local_address, socket_options
        deadline = Deadline.after(_LONGEST_S if timeout is None else timeout)
        try:
            return _Stream(self._host.open_tcp(port, deadline=deadline))
        except DeadlinePassed as e:
            raise httpcore.ConnectTimeout(str(e)) from e
        except OSError as e:
            raise httpcore.ConnectError(e.strerror or str(e)) from e


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._stream.settimeout(timeout)
        try:
            return self._stream.recv(max_bytes)
        except TimeoutError as e:
            raise httpcore.ReadTimeout(f"no data for {timeout} s") from e
        except OSError as e:
            raise httpcore.ReadError(e.strerror or str(e)) from e

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.settimeout(timeout)
        try:
            while buffer:
                buffer = buffer[self._stream.send(buffer):]
        except TimeoutError as e:
            raise httpcore.WriteTimeout(f"nothing taken for {timeout} s") from e
        except OSError as e:
            raise httpcore.WriteError(e.strerror or str(e)) from e

    def close(self) -> None:
        self._stream.close()


@contextlib.contextmanager
def _in_httpx_words(request: httpx.Request) -> Iterator[None]:
    """httpcore's errors as those of httpx, which callers know. A HostError passes as it is."""
    try:
        yield
    except tuple(_ERRORS) as e:
        raise _ERRORS[type(e)](str(e), request=request) from e
