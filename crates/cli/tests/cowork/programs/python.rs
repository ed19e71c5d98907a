//! Python: environments, packages, databases, processes, threads.

use crate::support::{finish, for_everyone, need, script};
use cowork_testbed::{Folder, Person};

for_everyone!(
    venv_and_pip_with_a_wheel_made_by_hand,
    sqlite_in_wal_mode_with_several_processes,
    processes_tasks_threads_and_temporary_files,
);

/// A wheel is a zip file with three files of its own; pip checks that they are there.
const WHEEL: &str = r#"
import zipfile
info = "greeting-1.0.dist-info/"
with zipfile.ZipFile("greeting-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeting.py", "def main():\n    print('hello from the wheel')\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\n"
                   "Tag: py3-none-any\n")
    wheel.writestr(info + "entry_points.txt", "[console_scripts]\ngreet = greeting:main\n")
    wheel.writestr(info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n"
                   + info + "entry_points.txt,,\n" + info + "RECORD,,\n")
"#;

fn venv_and_pip_with_a_wheel_made_by_hand(person: Person) {
    need("python3", "python3");
    let work = Folder::new(person, "work");
    work.write("wheel.py", WHEEL);
    let said = script(
        person,
        work.path(),
        &[],
        r"
        /usr/bin/python3 wheel.py
        /usr/bin/python3 -m venv venv
        venv/bin/pip install -q --no-index --disable-pip-version-check greeting-1.0-*.whl
        venv/bin/greet
        venv/bin/pip list --disable-pip-version-check --format=freeze | grep greeting
        ",
    );
    assert_eq!(said.good(), "hello from the wheel\ngreeting==1.0\n");
    let installed = work.path().join("venv/bin/greet");
    assert!(std::fs::metadata(installed).is_ok_and(|file| file.len() > 0));
}

const DATABASE: &str = r#"
import multiprocessing, sqlite3

def fill(worker):
    base = sqlite3.connect("base.db", timeout=60)
    for row in range(250):
        with base:
            base.execute("insert into t values (?, ?)", (worker, row))
    base.close()

if __name__ == "__main__":
    base = sqlite3.connect("base.db")
    print(base.execute("pragma journal_mode=wal").fetchone()[0])
    base.execute("pragma synchronous=off")
    base.execute("create table t (worker, row)")
    base.commit()
    workers = [multiprocessing.Process(target=fill, args=(w,)) for w in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
    print(base.execute("select count(*), count(distinct worker) from t").fetchone())
    print(base.execute("pragma integrity_check").fetchone()[0])
"#;

fn sqlite_in_wal_mode_with_several_processes(person: Person) {
    need("python3", "python3");
    let work = Folder::new(person, "work");
    work.write("base.py", DATABASE);
    let said = script(person, work.path(), &[], "/usr/bin/python3 base.py");
    assert_eq!(said.good(), "wal\n(1000, 4)\nok\n");
    // The host opens the same database and finds every row.
    let mut host = person.command("/usr/bin/python3");
    host.current_dir(work.path()).args([
        "-c",
        "import sqlite3; print(sqlite3.connect('base.db').execute('select sum(row) from t').fetchone())",
    ]);
    assert_eq!(finish(host, Vec::new()).good(), "(124500,)\n");
}

const CONCURRENCY: &str = r#"
import asyncio, multiprocessing, os, queue, subprocess, tempfile, threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import shared_memory

def square(n): return n * n

async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()

async def conversation(path):
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"tcp\n")
    first = await reader.readline()
    server.close()
    server = await asyncio.start_unix_server(echo, path)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"unix\n")
    second = await reader.readline()
    server.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    third, _ = await child.communicate(b"child\n")
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(100)))
    return first + second + third

if __name__ == "__main__":
    for method in ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, sum(pool.map(square, range(100))))
    with ProcessPoolExecutor(2) as pool: print("executor", sum(pool.map(square, range(10))))
    with ThreadPoolExecutor(16) as pool: print("threads", sum(pool.map(square, range(1000))))
    memory = shared_memory.SharedMemory(create=True, size=1024)
    memory.buf[0] = 7
    other = shared_memory.SharedMemory(memory.name)
    print("shared", other.buf[0])
    other.close(); memory.close(); memory.unlink()
    waiting = queue.Queue()
    threads = [threading.Thread(target=waiting.put, args=(n,)) for n in range(64)]
    for t in threads: t.start()
    for t in threads: t.join()
    print("queue", waiting.qsize())
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
        file.write(b"x" * 100000); file.flush()
        print("temporary", folder.startswith("/tmp/"), os.stat(file.name).st_size)
        print(asyncio.run(conversation(folder + "/socket")).decode().split())
    with tempfile.TemporaryDirectory(dir=".") as folder:
        print(asyncio.run(conversation(folder + "/socket")).decode().split())
    print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
    with open("result", "w") as file: file.write("finished")
"#;

fn processes_tasks_threads_and_temporary_files(person: Person) {
    need("python3", "python3");
    let work = Folder::new(person, "work");
    work.write("many.py", CONCURRENCY);
    let said = script(person, work.path(), &[], "/usr/bin/python3 many.py");
    let expected = "fork 328350\nspawn 328350\nforkserver 328350\nexecutor 285\nthreads 332833500\n\
                    shared 7\nqueue 64\ntemporary True 100000\n\
                    ['TCP', 'UNIX', 'child']\n['TCP', 'UNIX', 'child']\n\
                    CompletedProcess(args=['sh', '-c', 'echo out; echo err >&2; exit 3'], \
                    returncode=3, stdout=b'out\\n', stderr=b'err\\n')\n";
    assert_eq!(said.good(), expected);
    assert_eq!(work.read("result").as_deref(), Some("finished"));
}
