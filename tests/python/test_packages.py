"""What the Python packages gantry and gantry_backend promise. The suite `python` runs each test in a world of its own."""

import asyncio
import gc
import inspect
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
from pathlib import Path

import gantry
import gantry_backend

HERE = Path(__file__).parent
SOON = 60.0


def state_of(pid):
    """The letter of a process's state; None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def eventually(condition):
    """Waits until a condition holds."""
    until = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)


def are_gone(pids):
    """Whether no process of these is left."""
    return all(state_of(pid) in (None, "Z") for pid in pids)


def sleepers(count=2, **options):
    """An app of ranks that sleep, on two nodes."""
    options.setdefault("output", "null")
    return gantry.launch(["-N", "2", "-n", str(count), "sleep", "1000"], **options)


class Packages(unittest.TestCase):
    maxDiff = None

    def test_ranks_are_held_until_their_release(self):
        with gantry.launch(["-N", "2", "-n", "4", "sh", "-c", "exit 3"], hold=True, output="null") as app:
            self.assertEqual((app.state, len(app.hosts), app.info()["wlm"]), ("held", 2, "localhost"))
            self.assertEqual([rank.rank for rank in app.ranks], [0, 1, 2, 3])
            self.assertEqual({state_of(rank.pid) for rank in app.ranks}, {"T"})
            self.assertEqual({rank.state for rank in app.ranks}, {"held"})
            events = app.events()
            self.assertEqual(events.next(SOON)["event"], "held")
            app.release()
            end = app.wait(SOON)
            self.assertEqual((end.code, end.cause), (3, None))
            self.assertEqual(end.ranks, {rank: gantry.Ending(3, None) for rank in range(4)})
        told = [event["event"] for event in events]
        self.assertEqual((told[0], told[-1], told.count("rank_exited")), ("released", "exited", 4))
        with self.assertRaises(gantry.Error) as refused:
            app.release()
        self.assertEqual(refused.exception.kind, "gone")

    def test_output_goes_where_it_is_asked_to_go(self):
        program = ["-n", "2", "sh", "-c", "echo out; echo err >&2"]
        with gantry.launch(program, output="stream") as app:
            pieces = list(app.output())
            self.assertRaises(ValueError, app.output)
        written = {(rank, stream): b"" for rank in (0, 1) for stream in ("stdout", "stderr")}
        for piece in pieces:
            written[piece.rank, piece.stream] += piece.data
        self.assertEqual({piece.daemon for piece in pieces}, {None})
        self.assertEqual(written, {(r, s): (b"out\n" if s == "stdout" else b"err\n") for r, s in written})
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as fed:
            fed.write(b"fed\n")
            fed.seek(0)
            with gantry.launch(["-n", "2", "sh", "-c", "cat; echo err >&2"], output=(out, err), stdin=fed) as app:
                app.wait(SOON)
            out.seek(0), err.seek(0)
            self.assertEqual((out.read(), err.read()), (b"fed\n", b"err\nerr\n"))
        # As users run it: output is this process's own, what the tool prints comes in order, and nothing is lost.
        tool = "import gantry; print('first'); gantry.launch(['-n', '2', 'seq', '50000']).wait()"
        done = subprocess.run([sys.executable, "-c", tool], stdout=subprocess.PIPE, timeout=SOON, check=True)
        lines = done.stdout.splitlines()
        self.assertEqual((lines[0], len(lines)), (b"first", 100_001))
        with self.assertRaises(ValueError):
            gantry.launch(program, output="everywhere")

    def test_daemons_in_python_contribute_through_every_filter(self):
        with sleepers(4, hold=True) as app, app.session() as session:
            daemon = session.start_python([HERE / "daemon.py", "tell"])
            self.assertEqual(sorted(daemon.pids), sorted(app.hosts))
            channel = session.channel
            first = channel.reduce(1, "sum")
            self.assertEqual((first.value, first.contributed, first.missing), ([4, 1], 2, []))
            self.assertEqual(channel.reduce(2, "min").value, [0.5])
            self.assertEqual(channel.reduce(3, "max").value, [3])
            self.assertEqual(channel.reduce(4, "ranks").value, [0, 1, 2, 3])
            self.assertEqual(channel.reduce(5, "keys").value, {b"even": [0, 2], b"odd": [1, 3]})
            firsts = [min(r.rank for r in app.ranks if r.host == host) for host in app.hosts]
            frames = [(0, "main", [0, 1, 2, 3]), (1, "solve", [0, 1, 2, 3])]
            frames += [(1, f"wait {node}", [rank]) for node, rank in enumerate(firsts)]
            self.assertEqual(channel.reduce(6, "stacks").value, frames)
            parts = channel.reduce(7, "concatenate").value
            self.assertEqual([part for _, part in parts], [host.encode() for host in app.hosts])
            facts = channel.gather(8)
            said = f"{app.id} localhost 2 4".encode()
            self.assertEqual(facts, gantry.Gathered({gantry.Member(n, daemon.id): said for n in (0, 1)}, []))
            seen = [eval(part) for part in channel.gather(9).parts.values()]
            held = sorted((rank.pid, "held", rank.exe) for rank in app.ranks)
            self.assertEqual(sorted(sum(seen, [])), held)
            self.assertEqual(set(daemon.wait(SOON).values()), {gantry.Ending(0, None)})
        self.assertEqual(gantry.fold_ranks([0, 1, 2, 7]), "0-2,7")

    def test_tool_and_daemons_send_messages_both_ways(self):
        with sleepers() as app, app.session() as session:
            daemon = session.start_python([HERE / "daemon.py", "echo"])
            channel = session.channel
            members = [gantry.Member(node, daemon.id) for node in (0, 1)]
            greetings = channel.messages(1)
            came = {greetings.next(SOON) for _ in members}
            self.assertEqual(came, {gantry.Message(m, f"here is {m.node}".encode()) for m in members})
            self.assertEqual(channel.members(), members)
            self.assertEqual(channel.broadcast(2, b"all"), [])
            self.assertEqual(channel.gather(2).parts, {member: b"ALL" for member in members})
            self.assertEqual(channel.scatter(3, {m: b"n%d" % m.node for m in members}), [])
            self.assertEqual(channel.gather(3).parts, {m: b"N%d" % m.node for m in members})
            channel.send(members[1], 4, bytearray(b"leave"))
            one = channel.gather(4, quorum=1, timeout=1)
            self.assertEqual(one.parts, {members[1]: b"LEAVE"})
            self.assertEqual([missing.host for missing in one.missing], [app.hosts[0]])
            started = time.monotonic()
            with self.assertRaises(TimeoutError) as late:
                channel.gather(5, timeout=0.2)
            self.assertLess(time.monotonic() - started, SOON)
            self.assertEqual(late.exception.missing[0].member, members[0])
            self.assertIn(app.hosts[0], str(late.exception))
        self.assertIsNone(greetings.next(SOON))

    def test_filters_of_the_tools_own_merge_in_daemons_and_in_the_tool(self):
        for serve in ([], ["serve"]):
            with sleepers() as app, app.session() as session:
                session.start_python([HERE / "daemon.py", "longest", *serve])
                session.channel.register_filter("longest", lambda parts: max(parts, key=len))
                self.assertEqual(session.channel.reduce(1, "longest").value, b"xx")

        def fail(parts):
            raise ValueError("these cannot be merged")

        with sleepers() as app, app.session() as session:
            session.start_python([HERE / "daemon.py", "longest"])
            session.channel.register_filter("longest", fail)
            with self.assertRaisesRegex(gantry.Error, "these cannot be merged") as raised:
                session.channel.reduce(1, "longest")
            cause = raised.exception.__cause__
            self.assertEqual((type(cause), str(cause)), (ValueError, "these cannot be merged"))
            self.assertEqual(traceback.extract_tb(cause.__traceback__)[-1].name, "fail")
            # It is the cause of that error alone.
            with self.assertRaises(gantry.Error) as later:
                session.channel.reduce(2, "longest", timeout=0.2)
            self.assertIsNone(later.exception.__cause__)
        # A daemon's filter that fails is told in the daemon's output.
        with sleepers() as app, app.session() as session, tempfile.TemporaryFile() as out:
            # Two on each node, so that there is something to merge.
            for _ in range(2):
                session.start_python([HERE / "daemon.py", "fail"], output=(out, out))
            channel, tags = session.channel, itertools.count(1)
            channel.register_filter("failing", lambda parts: b"".join(parts))

            def is_told():
                tag = next(tags)
                channel.broadcast(tag, b"")
                self.assertEqual(channel.reduce(tag, "failing").value, b"xxxx")
                return b"TypeError: list indices" in os.pread(out.fileno(), 100_000, 0)

            eventually(is_told)

    def test_files_arguments_and_variables_reach_a_daemon(self):
        with tempfile.TemporaryDirectory() as folder, sleepers() as app:
            data = Path(folder, "data.txt")
            data.write_text("x" * 1000)
            with app.session() as session:
                self.assertEqual(session.send(files=[data]).files, 1)
                daemon = session.start_python(
                    [HERE / "daemon.py", "report", "two words"],
                    env={"COLOUR": "blue"},
                    hosts=app.hosts[1:],
                    output="stream",
                )
                pieces = list(daemon.output())
                self.assertRaises(ValueError, daemon.output)
                self.assertEqual({piece.host for piece in pieces}, {app.hosts[1]})
                text = {s: b"".join(p.data for p in pieces if p.stream == s).decode() for s in ("stdout", "stderr")}
                files = "['bin', 'daemon.py', 'data.txt', 'lib', 'tmp']"
                self.assertEqual(text, {"stdout": f"['two words'] blue {files}\n", "stderr": "to standard error\n"})
                self.assertEqual(daemon.wait(SOON), {app.hosts[1]: gantry.Ending(0, None)})
                logs = session.start_daemon(["sh", "-c", "echo logged"], log_dir=folder)
                logs.wait(SOON)
                written = sorted(Path(folder).glob("*.out"))
                self.assertEqual([log.read_text() for log in written], ["logged\n", "logged\n"])
                sleeper = session.start_daemon(["sleep", "1000"])
                sleeper.signal(signal.SIGTERM)
                self.assertEqual(sleeper.wait(SOON), {h: gantry.Ending(None, "SIGTERM") for h in app.hosts})
                root = session.dirs.root
                self.assertTrue((session.dirs.bin / "sleep").exists())
            self.assertFalse(root.exists())

    def test_a_daemon_that_fails_shows_its_traceback(self):
        with sleepers() as app, app.session() as session, tempfile.TemporaryFile() as out:
            daemon = session.start_python([HERE / "daemon.py", "no-such-word"], output=(out, out))
            self.assertEqual(set(daemon.wait(SOON).values()), {gantry.Ending(1, None)})
            app.close()
            out.seek(0)
            self.assertEqual(out.read().count(b"KeyError: 'no-such-word'"), 2)

    def test_a_script_imports_what_lies_beside_it_in_the_session(self):
        with tempfile.TemporaryDirectory() as folder, sleepers() as app, app.session() as session:
            script, module = Path(folder, "script.py"), Path(folder, "module.py")
            script.write_text("import module, sys; sys.exit(module.CODE + len(sys.argv))")
            module.write_text("CODE = 40")
            for code, files in ((1, []), (43, [module])):
                daemon = session.start_python([script, "two", "words"], files=files, output=subprocess.DEVNULL)
                self.assertEqual(set(daemon.wait(SOON).values()), {gantry.Ending(code, None)})

    def test_a_daemon_runs_by_an_interpreter_that_was_moved(self):
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
            moved = Path(folder, "bin", name)
            moved.parent.mkdir()
            shutil.copy(os.path.realpath(sys.executable), moved)
            Path(folder, "lib").symlink_to(Path(sys.base_prefix, "lib"))
            # Others could change it, so the nodes take no program from there, and get a copy.
            moved.parent.chmod(0o777)
            Path(folder, "script.py").write_text("import os, sys; print(sys.prefix, os.environ.get('PYTHONHOME'))")
            tool = "import gantry, sys\nwith gantry.launch(['sleep', '1000'], output='null') as app, app.session() as s:"
            tool += "\n d = s.start_python([sys.argv[1] + '/script.py'], output='stream')"
            tool += "\n print(b''.join(piece.data for piece in d.output()).decode(), end='')"
            subprocess.run([moved, "-c", tool, folder], stdout=out, stderr=out, timeout=SOON)
            out.seek(0)
            self.assertEqual(out.read().decode(), f"{folder} None\n")

    def test_a_daemon_keeps_its_session(self):
        with sleepers() as app:
            daemon = app.session().start_daemon(["sleep", "1000"])
            gc.collect()
            with self.assertRaises(gantry.TimedOut):
                daemon.wait(0.5)

    def test_a_session_may_end_with_its_app(self):
        for _ in range(8):
            with gantry.launch(["-N", "3", "-n", "3", "sh", "-c", "exit 3"], hold=True, output="null") as app:
                with app.session() as session:
                    session.start_daemon(["true"])
                    app.release()
                self.assertEqual(app.wait(None).code, 3)

        class Failed(Exception):
            pass

        # What failed in the block is told, not what cannot be closed after it.
        with self.assertRaises(Failed), sleepers() as app, app.session():
            app.kill()
            raise Failed

    def test_daemons_that_have_all_ended_are_an_error(self):
        with sleepers() as app, app.session() as session:
            session.start_daemon(["true"]).wait(SOON)
            for call in (session.channel.gather, lambda tag: session.channel.reduce(tag, "sum")):
                with self.assertRaisesRegex(gantry.Error, "no daemon|had ended"):
                    call(1)

    def test_a_daemon_saves_what_it_has_before_its_session_ends(self):
        with tempfile.TemporaryDirectory() as folder, sleepers() as app:
            with app.session() as session:
                session.start_python([HERE / "daemon.py", "save", folder], output="null")
                session.channel.gather(1)
            self.assertEqual(sorted(os.listdir(folder)), sorted(app.hosts))

    def test_an_app_ends_with_its_owner(self):
        with sleepers() as app:
            pids = [rank.pid for rank in app.ranks]
        self.assertTrue(are_gone(pids))
        app = sleepers(hold=True)
        pids = [rank.pid for rank in app.ranks]
        del app
        gc.collect()
        eventually(lambda: are_gone(pids))
        # A tool that ends without a word, and one that is killed.
        tool = "import gantry, sys; app = gantry.launch(['sleep', '1000'], output='null'); "
        tool += "print(app.ranks[0].pid, flush=True); "
        for last in ("sys.exit()", "app.wait()"):
            with subprocess.Popen([sys.executable, "-c", tool + last], stdout=subprocess.PIPE) as run:
                pid = int(run.stdout.readline())
                if last == "app.wait()":
                    run.kill()
                run.wait(SOON)
            eventually(lambda: are_gone([pid]))
        app = sleepers()
        pids = [rank.pid for rank in app.ranks]
        app.detach()
        eventually(lambda: {state_of(pid) for pid in pids} == {"S"})
        with gantry.attach(pids, wlm="localhost") as found:
            found.kill()

    def test_attached_programs_go_on(self):
        with subprocess.Popen(["sleep", "1000"]) as program:
            with gantry.attach(program.pid) as app:
                self.assertEqual([rank.pid for rank in app.ranks], [program.pid])
                self.assertTrue(app.info()["attached"])
                with app.session() as session:
                    daemon = session.start_daemon(["true"])
                    self.assertEqual(daemon.wait(SOON), {app.hosts[0]: gantry.Ending(0, None)})
            eventually(lambda: state_of(program.pid) == "S")
            program.kill()

    def test_ctrl_c_ends_a_wait_and_nothing_else(self):
        with sleepers() as app, app.session() as session:
            daemon = session.start_daemon(["sleep", "1000"])
            events = app.events()
            self.assertEqual(next(events)["event"], "started")
            messages = session.channel.messages(1)
            waits = [app.wait, daemon.wait, events.next, messages.next, lambda: session.channel.gather(1, timeout=1000)]
            for wait in waits:
                timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
                timer.start()
                self.assertRaises(KeyboardInterrupt, wait)
                timer.join()
            self.assertEqual(app.state, "running")
            with self.assertRaises(gantry.TimedOut):
                app.wait(0.1)
            end = app.kill()
            self.assertEqual((end.code, set(end.ranks.values())), (137, {gantry.Ending(None, "SIGKILL")}))

    def test_a_signals_handler_may_use_the_app_that_is_waited_for(self):
        with sleepers() as app:
            before = signal.signal(signal.SIGUSR1, lambda *_: app.signal("SIGTERM"))
            timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1])
            timer.start()
            self.assertEqual(app.wait(SOON).code, 143)
            timer.join()
            signal.signal(signal.SIGUSR1, before)

    def test_other_threads_run_while_one_waits(self):
        with sleepers() as app:
            ends = []
            waiting = [threading.Thread(target=lambda: ends.append(app.wait(SOON))) for _ in range(3)]
            for thread in waiting:
                thread.start()
            app.signal("SIGTERM", ranks=[1])
            app.signal(signal.SIGKILL, ranks=iter([0]))
            for thread in waiting:
                thread.join(SOON)
            self.assertEqual(ends, [app.wait(SOON)] * 3)
            self.assertEqual([ends[0].ranks[rank].signal for rank in (0, 1)], ["SIGKILL", "SIGTERM"])

    def test_a_forked_child_neither_uses_nor_ends_an_app(self):
        with sleepers() as app:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    app.wait(SOON)
                except gantry.Error as error:
                    code = 0 if error.kind == "invalid" and "which forked this one" in str(error) else 2
                try:
                    del app
                    gc.collect()
                    with gantry.launch(["true"], output="null") as own:
                        code += own.wait(SOON).code
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(app.state, "running")
            app.signal("SIGTERM")
            self.assertEqual(app.wait(SOON).code, 143)

    def test_errors_say_what_and_why_and_the_remedy(self):
        def check(kind, text, call):
            with self.assertRaises(gantry.Error) as raised:
                call()
            self.assertEqual(raised.exception.kind, kind)
            self.assertIn(text, raised.exception.message)
            return raised.exception

        missing = check("not-found", "no-such-program", lambda: gantry.launch(["no-such-program"]))
        self.assertEqual(str(missing), f"{missing.message}\nhint: {missing.hint}")
        check("not-found", "there is no process", lambda: gantry.attach(2**22 + 1))
        check("invalid", "no program", lambda: gantry.launch([]))
        check("invalid", "'nope'", lambda: gantry.Frontend(wlm="nope").choice())
        check("invalid", "'some'", lambda: gantry.Frontend(hosts_policy="some"))
        own = check("not-found", "not started by gantry", gantry_backend.Backend)
        self.assertIs(type(own), gantry_backend.Error)
        self.assertRaises(ValueError, gantry.launch, ["true"], timeout=-1)
        self.assertRaises(ValueError, gantry.launch, ["true"], timeout=float("nan"))
        self.assertRaises(OSError, gantry.launch, ["true"], stdin=-1)
        self.assertRaises(TypeError, gantry.launch, "-n 1 true")
        self.assertRaises(TypeError, gantry.launch, ["true"], output=("out", "err"))
        with sleepers() as app, app.session() as session:
            check("invalid", "no daemon", lambda: session.channel.gather(1))
            check("invalid", "no node 'nowhere'", lambda: session.start_daemon(["true"], hosts=["nowhere"]))
            check("not-found", "no-such-file", lambda: session.send(files=["no-such-file"]))
            self.assertRaises(ValueError, app.signal, "SIGNOTHING")
            self.assertRaises(TypeError, session.start_python, "daemon.py")
            self.assertRaises(TypeError, session.start_daemon, ["true"], hosts=app.hosts[0])
            self.assertRaises(TypeError, session.start_daemon, ["true"], env={"NUMBER": 5})
            check("invalid", "", lambda: session.start_daemon([]))
            session.start_daemon(["sleep", "1000"])
            check("invalid", "a quorum of 3", lambda: session.channel.gather(1, quorum=3))
            self.assertRaises(TypeError, session.channel.broadcast, 1, 5)
            self.assertRaises(ValueError, session.channel.register_filter, "sum", max)
            self.assertRaises(ValueError, session.start_daemon, ["true"], output="null", log_dir="/tmp")
            self.assertRaises(TypeError, gantry_backend.encode, "sum", 3)
            self.assertRaises(TypeError, gantry_backend.encode, "summ", [3])
            late = gantry.launch(["sleep", "1000"], output="null")
            with self.assertRaises(gantry.TimedOut) as raised:
                late.wait(0.05)
            error = raised.exception
            self.assertEqual((error.kind, isinstance(error, TimeoutError), error.errno), ("timed-out", True, None))
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), again.kind), (gantry.TimedOut, str(error), error.kind))
            late.close()
            check("gone", "closed", late.close)

    def test_the_choice_of_a_workload_manager_is_told(self):
        choice = gantry.Frontend(wlm="localhost").choice()
        self.assertEqual((choice.wlm, choice.doubt), ("localhost", None))

    def test_apps_of_other_tools_are_found_and_reached(self):
        tool = "import gantry, sys; app = gantry.launch(['-n', '2', 'sleep', '1000'], hold=True, output='null'); "
        tool += "print(app.id, flush=True); print(app.wait().code)"
        with subprocess.Popen([sys.executable, "-c", tool], stdout=subprocess.PIPE, text=True) as other:
            name = other.stdout.readline().strip()
            (found,) = gantry.apps()
            self.assertEqual((found.id, gantry.find_app().id, gantry.find_app(name[:4]).id), (name,) * 3)
            app = gantry.find_app(f"pid:{other.pid}")
            self.assertEqual((app.info()["owner"], app.info()["state"]), (other.pid, "held"))
            self.assertEqual([rank.state for rank in app.ranks()], ["held", "held"])
            events = app.events()
            self.assertEqual(events.next(SOON)["event"], "held")
            app.release()
            self.assertEqual(events.next(SOON)["event"], "released")
            with self.assertRaises(gantry.TimedOut):
                app.wait(0.1)
            app.signal("SIGTERM", ranks=[1])
            end = app.kill()
            self.assertEqual([end.ranks[rank].signal for rank in (0, 1)], ["SIGKILL", "SIGTERM"])
            self.assertEqual((end.code, other.stdout.readline()), (143, "143\n"))
        self.assertEqual([event["event"] for event in events][-1], "exited")
        self.assertEqual(gantry.apps(), [])
        for call in (app.info, gantry.find_app, lambda: gantry.find_app("zz")):
            with self.assertRaises(gantry.Error) as missing:
                call()
            self.assertEqual(missing.exception.kind, "not-found")

    def test_asyncio_waits_for_several_apps_at_once(self):
        examples = HERE.parent.parent / "examples" / "python"
        command = [sys.executable, examples / "at_once.py", "hostname", "1", "3"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SOON, check=True)
        lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
        self.assertEqual(sorted(lines), ["1", "3", "3", "3"])

        begun = threading.Event()

        def wait_aside(app):
            begun.set()
            app.wait()

        async def wait(app):
            with app:
                await asyncio.to_thread(wait_aside, app)

        # A task that is cancelled ends its app, and no thread waits any more.
        async def cancel():
            app = await asyncio.to_thread(sleepers)
            task = asyncio.ensure_future(wait(app))
            await asyncio.to_thread(begun.wait)
            task.cancel()
            await asyncio.wait([task])
            return task.cancelled(), [rank.pid for rank in app.ranks]

        was_cancelled, pids = asyncio.run(asyncio.wait_for(cancel(), SOON))
        self.assertTrue(was_cancelled and are_gone(pids))

    def test_a_close_does_not_wait_for_a_reader_that_does_not_come(self):
        # Without the fix it takes as long as agents wait for the last output.
        with gantry.launch(["-n", "1", "yes"], output="stream") as app:
            stream = app.output()
            next(stream)
            app.close(5)
            self.assertGreater(sum(len(piece.data) for piece in stream), 100_000)

    def test_every_option_is_in_the_signature_and_calls_that_share_options_agree(self):
        def parameters(call):
            found = inspect.signature(call).parameters
            return {name: (one.kind, one.default, one.annotation) for name, one in found.items() if name != "self"}

        def is_subset(shorter, longer, without=()):
            expected = {name: one for name, one in parameters(longer).items() if name not in without}
            found = {name: one for name, one in parameters(shorter).items() if name in expected}
            self.assertEqual(found, expected)
            return parameters(shorter).keys() - expected.keys()

        self.assertEqual(is_subset(gantry.launch, gantry.Frontend.launch), {"wlm"})
        self.assertEqual(is_subset(gantry.attach, gantry.Frontend.attach), {"wlm"})
        self.assertEqual(is_subset(gantry.submit, gantry.Frontend.submit), {"wlm"})
        self.assertEqual(is_subset(gantry.apps, gantry.Frontend.apps), set())
        self.assertEqual(is_subset(gantry.find_app, gantry.Frontend.find_app), set())
        self.assertEqual(is_subset(gantry.Session.start_python, gantry.Session.start_daemon), set())
        # Type checkers and help() see no option in ``**options``.
        for package in (gantry, gantry_backend):
            public = [getattr(package, name) for name in package.__all__]
            for owner in filter(inspect.isclass, public):
                public += [call for name, call in inspect.getmembers(owner, inspect.isfunction) if name[0] != "_"]
            for call in filter(callable, public):
                if not (inspect.isclass(call) and issubclass(call, tuple)):
                    kinds = {kind for kind, _, _ in parameters(call).values()}
                    self.assertNotIn(inspect.Parameter.VAR_KEYWORD, kinds, call)
        # Each option is used.
        with tempfile.TemporaryDirectory() as folder, sleepers(env={"FROM_LAUNCH": Path(folder)}) as app:
            variables = Path(f"/proc/{app.ranks[0].pid}/environ").read_text().split("\0")
            self.assertIn(f"FROM_LAUNCH={folder}", variables)
            with app.session() as session:
                script = Path(folder, "script.py")
                script.write_text("import os, module; print(os.environ['A'], module.__name__)")
                Path(folder, "module.py").touch()
                daemon = session.start_python([script], env={"A": "b", "PYTHONPATH": Path(folder)}, log_dir=folder)
                self.assertEqual(set(daemon.wait(SOON).values()), {gantry.Ending(0, None)})
                written = sorted(Path(folder).glob("*.out"))
                self.assertEqual([log.read_text().split() for log in written], [["b", "module"]] * 2)


if __name__ == "__main__":
    unittest.main()
