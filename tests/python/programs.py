"""Python programs that need not import PyTorch: they are forked from a process that has.

    process = programs.start(["program.py"], cwd=folder)      as subprocess.Popen() with Python before it
    process.communicate(timeout=60)

To import PyTorch takes a processor 2 s, to fork 20 ms. The process that forks has imported what it was
told and nothing else has happened in it; it has no threads of its own. A program has its own `__main__`,
arguments, folder, environment, standard streams and session, and ends as the interpreter ends: at the end of
this file, where nothing is left but to tear down its modules. What it lacks are the interpreter's own
options, and variables of the environment that the interpreter or PyTorch read at their start.
"""

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 1 << 20  # bytes of a request


# ---- in the tests -------------------------------------------------------------------------------

class Program(subprocess.Popen):
    """What subprocess.Popen() gives, of a process that is another one's child."""

    def __init__(self, template, args, **how):
        self.template = template
        super().__init__(args, **how)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
                       creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite,
                       restore_signals, gid, gids, uid, umask, start_new_session, *_):
        if preexec_fn or pass_fds or gid is not None or uid is not None or umask != -1:
            raise ValueError("a forked program can be told its streams, folder, environment and session")
        asked = {"args": list(args), "cwd": os.fspath(cwd or os.getcwd()), "session": start_new_session,
                 "env": dict(os.environ if env is None else env)}
        streams = [inherited if fd == -1 else fd
                   for inherited, fd in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid, self.end = self.template.ask(asked, streams)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, _deadstate=None, **_):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags):
        """The template tells the status when the program has ended."""
        if wait_flags == os.WNOHANG and not select.select([self.end], [], [], 0)[0]:
            return 0, 0
        with self.end:
            status = self.end.recv(64)
        return self.pid, int(status or signal.SIGKILL)


class Template:
    """The process that has imported these modules."""

    def __init__(self, modules):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def ask(self, asked, streams):
        """The program's process, and a socket that gives its status when it has ended."""
        end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.sock, [json.dumps(asked).encode()], [theirs.fileno(), *streams])
        return int(end.recv(64)), end


_templates = {}


def start(args, modules=("datasets", "black_box"), **how):
    """Starts a program: ["-c", "print()"], ["-m", "program"], ["-"] or ["program.py", "argument"], each
    behind ["-W", "ignore"] if it is to hold its tongue."""
    if modules not in _templates:
        _templates[modules] = Template(modules)
    return Program(_templates[modules], args, **how)


def run(args, *, input=None, timeout=None, **how):
    """Starts it, and gives what subprocess.run() would."""
    with start(args, stdin=subprocess.PIPE, **how) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)


# ---- in the template ----------------------------------------------------------------------------

def reap(ends):
    """Tells of those that have ended."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with ends.pop(pid) as end:
            end.send(str(status).encode())


def serve(sock):
    """Forks a program for each request; returns in the programs alone, with what was asked."""
    ends = {}
    wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([sock, wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
            reap(ends)
        if sock not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(sock, MOST, 4)
        if not data:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for stream, fd in enumerate(fds[1:]):
                os.dup2(fd, stream)
            for left in [sock, *ends.values()]:
                left.detach()
            os.closerange(3, max(fds[0], wake, *map(int, os.listdir("/proc/self/fd"))) + 1)
            return json.loads(data)
        ends[pid] = socket.socket(fileno=fds[0])
        ends[pid].send(str(pid).encode())
        for fd in fds[1:]:
            os.close(fd)


def become(asked):
    """The surroundings of a process that has just been started so; returns what it runs, as code."""
    import numpy

    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    numpy.random.seed()  # of the others that have been imported, each does it by itself
    kind, *rest = asked["args"]
    if kind == "-W":
        sys.warnoptions.append(rest[0])
        warnings.simplefilter(rest[0])
        kind, *rest = rest[1:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    named = kind if kind not in ("-c", "-m", "-") else None
    sys.path[0] = os.path.dirname(os.path.abspath(named)) if named else ""
    if kind == "-m":
        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        return main, lambda: runpy._run_module_as_main(rest[0])
    sys.argv = [kind, *rest[1 if kind == "-c" else 0:]]
    text, name = (rest[0], "<string>") if kind == "-c" else (sys.stdin.read(), "<stdin>")
    if kind != "-c":
        main.__file__ = name = named or "<stdin>"
    if named:
        with open(named, encoding="utf-8") as file:
            text = file.read()
    return main, lambda: exec(compile(text, name, "exec"), main.__dict__)


if __name__ == "__main__":
    sys.path.append(HERE)
    for module in sys.argv[2:]:
        __import__(module)
    _main, _run = become(serve(socket.socket(fileno=int(sys.argv[1]))))
    _run()
