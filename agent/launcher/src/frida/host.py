# Drives Frida for the agent command. Lines of JSON come in on standard input and go out on standard output; nothing
# else is written there. It ends when its input does, and then lets go of the program.
import sys

# Nothing is loaded from the folder that the command happens to be started in.
sys.path[:] = [path for path in sys.path if path.startswith("/")]

import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time

# Whoever ends everything, as a terminal or a service manager does, would have the program left with half of Frida in it. It ends when
# its input does.
for ends in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(ends, signal.SIG_IGN)

answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
# What anything else prints must not get between the answers.
os.dup2(2, 1)
lock = threading.Lock()


def tell(line):
    with lock:
        try:
            answers.write(json.dumps(line) + "\n")
            answers.flush()
        except (OSError, ValueError):
            # There is nobody any more, as the end of the input will say. Frida has to leave the program all the same.
            pass


def fail(stage, error):
    tell({"failed": {"stage": stage, "kind": type(error).__name__, "text": str(error)}})


def next_line():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def input_has_ended():
    """Where no line is to come, it can be read from only when it has ended."""
    return bool(select.select([0], [], [], 0)[0])


# By default Frida catches signals that mean a crash, and a program that is sent one then lives on. It also patches what
# ends a process and what sets handlers. The program is to behave as if nobody was there.
LEAVE_ALONE = {"exceptor": "off", "exit_monitor": False, "thread_suspend_monitor": False, "unwind_broker": False}


def attach(device, pid):
    try:
        return device.attach(pid, **LEAVE_ALONE)
    except (AttributeError, TypeError, ValueError):
        # An older Frida, which has no such options.
        return device.attach(pid)


def code_of(pid):
    """Where memory is mapped that can be written to and executed. Frida comes in through some."""
    try:
        with open(f"/proc/{pid}/maps") as maps:
            return {tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps if line.split()[1].startswith("rwx")}
    except OSError:
        return set()


def tracer(pid):
    """The thread that traces a process, or None."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((line.split()[1] for line in status if line.startswith("TracerPid:") and line.split()[1] != "0"), None)
    except OSError:
        return None


# For how long the main thread is kept out of Frida's way when it has come in, and when it leaves; and how long it may take then,
# in seconds.
PARKED = 2
LEAVING = 10


class Deaf:
    """Keeps Frida from hearing that its loader, in the program, has closed its end of their connection. Frida then calls `munmap` by
    the main thread, to free what it had brought. It does so also where the process runs another program by then, which dies of
    that call if we end before Frida has undone it."""

    def __init__(self, pid):
        # The number that Frida reads from, the connection itself, and both ends of the one that stands in for it.
        self.muted = []
        for name in os.listdir("/proc/self/fd"):
            try:
                if self.is_made_by(pid, int(name)):
                    self.mute(int(name))
            except OSError:
                # It was closed meanwhile.
                pass

    @staticmethod
    def is_made_by(pid, number):
        if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
            return False
        with socket.socket(fileno=os.dup(number)) as made:
            if made.family != socket.AF_UNIX:
                return False
            credentials = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.unpack("3i", credentials)[0] == pid

    def mute(self, number):
        silent, other = socket.socketpair()
        silent.setblocking(False)
        heard = os.dup(number)
        os.dup2(silent.fileno(), number, inheritable=False)
        self.muted.append((number, heard, silent, other))

    def hear(self):
        for number, heard, silent, other in self.muted:
            os.dup2(heard, number, inheritable=False)
            # Whoever waits for it looks again.
            other.close()
            silent.close()
            os.close(heard)
        self.muted = []


def end(pid, code):
    """Ends at once, but for a thread that Frida borrows just now, which would not survive that."""
    deadline = time.monotonic() + PARKED
    while tracer(pid) in os.listdir("/proc/self/task") and time.monotonic() < deadline:
        time.sleep(0.002)
    # Frida's own clearing up may wait for a program that does not answer.
    os._exit(code)


def leave(pid, state):
    """Has Frida leave, and waits until it has taken out what it brought. It borrows a thread for that, which without us would
    not survive."""
    state["deaf"].hear()
    try:
        state["session"].detach()
    except Exception:
        pass
    while state.get("brought", set()) & code_of(pid) or tracer(pid):
        time.sleep(0.002)


def start_leaving(pid, state):
    """Has Frida leave. A thread that cannot be kept out of its way is interrupted, and none is kept waiting for a Frida that does not
    come to an end."""
    leaving = threading.Thread(target=leave, args=(pid, state), daemon=True)
    leaving.start()
    leaving.join(PARKED)
    return leaving


def confine_destructors(pid, brought):
    """Has Frida's destructors called by the thread that unloads Frida, and by no other. One that calls `exit` would destroy what
    Frida's threads use just then. Where Frida is not as expected, all stays as it is."""
    LOADED, DYNAMIC, EXECUTABLE = 1, 2, 1
    STRINGS, SYMBOLS, RELOCATIONS, SIZE_OF_RELOCATIONS, RELATIVE = 5, 6, 7, 8, 0x6FFFFFF9
    DESTRUCTORS, SIZE_OF_DESTRUCTORS = 26, 28
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            base = next(int(line.split("-")[0], 16) for line in maps if "frida-agent" in line and line.split()[2] == "00000000")

            def read(at, words):
                memory.seek(at)
                return struct.unpack(words, memory.read(struct.calcsize(words)))

            def write(at, bytes):
                memory.seek(at)
                memory.write(bytes)

            (headers,), (each, count) = read(base + 32, "Q"), read(base + 54, "2H")
            segments = [read(base + headers + number * each, "2I6Q") for number in range(count)]
            dynamic = next(base + segment[3] for segment in segments if segment[0] == DYNAMIC)
            size = next(segment[6] for segment in segments if segment[0] == DYNAMIC)
            entries = {tag: (at, value) for at in range(dynamic, dynamic + size, 16) for tag, value in [read(at, "2Q")]}

            def table(tag):
                # The loader has made addresses of some.
                return entries[tag][1] + (base if entries[tag][1] < base else 0)

            def called(symbol):
                return read(table(STRINGS) + read(table(SYMBOLS) + 24 * symbol, "I")[0], "8s")[0]

            first, size = 24 * entries[RELATIVE][1], entries[SIZE_OF_RELOCATIONS][1]
            relocations = (read(at, "2Q") for at in range(table(RELOCATIONS) + first, table(RELOCATIONS) + size, 24))
            (unload,) = next(read(base + at, "Q") for at, kind in relocations if called(kind >> 32) == b"dlclose\0")
            # What Frida unloads itself by.
            parts = [(start, read(start, f"{(end - start) // 8}Q")) for start, end in brought]
            (place,) = [start + 8 * at for start, words in parts for at, word in enumerate(words) if word == unload]
            # Behind its code. `push rdi`; a `call` of each, the last one first; `pop rdi`; and `jmp` to the address that follows.
            room = next(base + segment[3] + segment[5] for segment in segments if segment[0] == LOADED and segment[1] & EXECUTABLE)
            code = b"\x57"
            for destructor in reversed(read(table(DESTRUCTORS), f"{entries[SIZE_OF_DESTRUCTORS][1] // 8}Q")):
                code += b"\xe8" + struct.pack("<i", destructor - (room + len(code) + 5))
            code += b"\x5f\xff\x25" + bytes(4) + struct.pack("<Q", unload)
            if any(read(room, f"{len(code)}B")):
                return
            write(room, code)
            write(place, struct.pack("<Q", room))
            write(entries[SIZE_OF_DESTRUCTORS][0] + 8, bytes(8))
    except (KeyError, OSError, StopIteration, ValueError, struct.error):
        # It has ended, or Frida is not in it.
        pass


class NotParked(Exception):
    pass


class Parked:
    """Has the agent command keep the main thread of a process out of Frida's way. It goes on even if this is killed."""

    def __init__(self, command, pid, is_over=lambda: False):
        # Not in our group: what ends us must not end it.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        try:
            self.keeper = subprocess.Popen([command, "park", str(pid)], **pipes)
        except OSError as error:
            self.keeper, self.failed = None, f"cannot start {command}: {error.strerror}"
            return
        # It waits while a library is loaded.
        while not select.select([self.keeper.stdout], [], [], 0.005)[0]:
            if is_over():
                os._exit(0)
        said = self.keeper.stdout.readline().decode(errors="replace").strip()
        self.failed = None if said == "parked" else said or "the keeper of its main thread has ended"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.keeper is None:
            return
        try:
            self.keeper.stdin.close()
        except BrokenPipeError:
            pass
        said = self.keeper.stdout.read().decode(errors="replace").strip()
        self.keeper.wait()
        if said and not self.failed:
            tell({"notice": said})


def serve(script):
    """Does what it is asked to until there is nobody any more. Whether there is still a program then."""

    def answer(line):
        try:
            tell({"id": line["id"], "value": getattr(script.exports_sync, line["call"])(*line["args"])})
        except Exception as error:
            tell({"id": line["id"], "failed": str(error)})

    while True:
        line = next_line()
        if line is None or line.get("gone"):
            return line is None
        # One call may wait for long, and others must not wait for it.
        threading.Thread(target=answer, args=(line,), daemon=True).start()


def main():
    # Importing takes longest, and needs nothing to be known yet.
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if first:
        sys.path.insert(0, first)
    try:
        import frida
    except Exception as error:
        fail("import", error)
        os._exit(1)
    tell({"frida": frida.__version__, "python": sys.version.split()[0]})

    parameters = next_line()
    if parameters is None:
        os._exit(0)
    pid = parameters["pid"]
    before = code_of(pid)

    def message(message, data):
        if message["type"] == "send":
            tell({"message": message["payload"]})
        else:
            tell({"error": message.get("description", str(message))})

    # What Frida has got to: "session", "deaf", "brought" and "script"; or "failed", a stage and why.
    state = {}

    def enter():
        stage = "attach"
        try:
            session = state["session"] = attach(frida.get_local_device(), pid)
            state["deaf"] = Deaf(pid)
            state["brought"] = code_of(pid) - before
            confine_destructors(pid, state["brought"])
            session.on("detached", lambda reason, crash: tell({"detached": reason}))
            stage = "script"
            script = session.create_script(parameters["script"], name="spoor")
            script.on("message", message)
            script.load()
            script.exports_sync.load(parameters["library"])
            state["script"] = script
        except Exception as error:
            state["failed"] = stage, error

    entering, leaving = threading.Thread(target=enter, daemon=True), None
    with Parked(parameters["agent"], pid, input_has_ended) as parked:
        if parked.failed:
            fail("attach", NotParked(parked.failed))
            os._exit(1)
        entering.start()
        # Frida comes in through the main thread.
        while entering.is_alive() and (tracer(pid) or not code_of(pid) - before):
            entering.join(0.005)
        # It finds no modules where that ends while these are loaded, and the program dies of that. But the thread is not kept for long:
        # it may hold what is needed for loading.
        entering.join(PARKED)
        # There is nobody any more. Should the program end while Frida comes or goes, it dies in it.
        if not entering.is_alive() and "deaf" in state and input_has_ended():
            leaving = start_leaving(pid, state)
    if leaving is None:
        while entering.is_alive() and not input_has_ended():
            entering.join(0.005)
        # If it is still there, nobody waits for it any more.
        entering.join(PARKED)
        if entering.is_alive() and "deaf" not in state:
            # A thread of Frida's waits for the program, and ends when it finds that there is nobody.
            confine_destructors(pid, code_of(pid) - before)
            end(pid, 1)
        if "failed" in state:
            fail(*state["failed"])
            if "deaf" not in state:
                end(pid, 1)
        tell({"ready": True})
        if serve(state.get("script")):
            with Parked(parameters["agent"], pid):
                leaving = start_leaving(pid, state)
    if leaving is not None:
        leaving.join(LEAVING)
        if leaving.is_alive():
            tell({"notice": f"Frida has not left process {pid}: threads of it are still there"})
    tell({"ended": True})
    end(pid, 0)


main()
