"""A flood of HTTP requests, from many connections at the same time, each as fast as it can.

    http_flood.py HOST PORT CONNECTIONS SECONDS

Prints how many were answered.
"""

import select
import socket
import sys
import time

HEAD = b' HTTP/1.1\r\nHost: localhost\r\n'
# What a visitor may ask for, cheap and dear; and what is no request, or has no end.
REQUESTS = [
    *(b'GET ' + path + HEAD + b'\r\n' for path in (b'/metrics', b'/', b'/readyz', b'/totals', b'/views/loaders',
                                                   b'/views/users', b'/nothing')),
    b'GET /metrics' + HEAD + b'X: ' + b'y' * 15000 + b'\r\n\r\n',
    b'GET /metrics' + HEAD + b'X: y\r\n' * 20000 + b'\r\n',
    b'GET /' + b'x' * 40000 + HEAD + b'\r\n',
    b'\x16\x03\x01\x02\x00\x01\x00' * 100 + b'\r\n\r\n',
]


class Flood:
    def __init__(self, address, connections):
        self.address, self.connections = address, connections
        self.poll = select.epoll()
        self.left = {}  # by descriptor: (socket, what is yet to be sent)
        self.asked = self.answered = 0

    def come(self):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self.address)
        self.left[sock.fileno()] = sock, REQUESTS[self.asked % len(REQUESTS)]
        self.poll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        self.asked += 1

    def leave(self, fd):
        self.poll.unregister(fd)
        self.left.pop(fd)[0].close()

    def go_on(self, fd, events):
        sock, rest = self.left[fd]
        try:
            if events & select.EPOLLOUT and rest:
                rest = rest[sock.send(rest):]
                self.left[fd] = sock, rest
                if not rest:
                    self.poll.modify(fd, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                said = sock.recv(1 << 16)
                self.answered += said.startswith(b'HTTP/1.1 ')
                if said:
                    return
                self.leave(fd)
        except BlockingIOError:
            pass
        except OSError:
            self.leave(fd)

    def run(self, seconds):
        """How many were answered."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            while len(self.left) < self.connections:
                self.come()
            for fd, events in self.poll.poll(.1):
                self.go_on(fd, events)
        for fd in list(self.left):
            self.leave(fd)
        self.poll.close()
        return self.answered


if __name__ == '__main__':
    print(Flood((sys.argv[1], int(sys.argv[2])), int(sys.argv[3])).run(float(sys.argv[4])))
