//! Compilers and build tools.

use crate::support::{for_everyone, need, not_run, owner, script};
use cowork_testbed::{Folder, Person};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

for_everyone!(gcc_and_make_with_four_jobs, java, cargo);

fn gcc_and_make_with_four_jobs(person: Person) {
    need("gcc", "gcc");
    need("make", "make");
    let work = Folder::new(person, "work");
    for number in 1..=8 {
        let text = format!("int part{number}(void) {{ return {number}; }}\n");
        work.write(&format!("part{number}.c"), text);
    }
    let numbers = || 1..=8;
    let names: Vec<String> = numbers().map(|number| format!("int part{number}(void);")).collect();
    let calls: Vec<String> = numbers().map(|number| format!("part{number}()")).collect();
    let (names, calls) = (names.join(" "), calls.join(" + "));
    let main =
        format!("#include <stdio.h>\n{names}\nint main(void) {{ printf(\"%d\\n\", {calls}); }}\n");
    work.write("main.c", main);
    let makefile = "OBJECTS = main.o $(foreach n,1 2 3 4 5 6 7 8,part$n.o)\n\
                    sum: $(OBJECTS)\n\tgcc -o $@ $^ -pthread\n%.o: %.c\n\tgcc -O2 -c $<\n";
    work.write("Makefile", makefile);
    let said = script(person, work.path(), &[], "make -j4 > log; ./sum; make -q && echo current");
    assert_eq!(said.good(), "36\ncurrent\n");
    assert_eq!(work.read("log").map(|log| log.lines().count()), Some(10));
    let built = crate::support::finish(person.command(work.path().join("sum")), Vec::new());
    assert_eq!(built.good(), "36\n", "what was built runs on the host");
}

fn java(person: Person) {
    if std::fs::metadata("/usr/bin/javac").is_err() {
        not_run("java", "/usr/bin/javac is missing: `apt-get install openjdk-17-jdk-headless`");
        return;
    }
    let work = Folder::new(person, "work");
    let text = "import java.util.stream.*; import java.nio.file.*;\n\
                public class Sum {\n\
                  public static void main(String[] a) throws Exception {\n\
                    long sum = LongStream.range(0, 1000000).parallel().sum();\n\
                    Thread[] threads = new Thread[50]; int[] ran = {0};\n\
                    for (int i = 0; i < 50; i++) {\n\
                      threads[i] = new Thread(() -> { synchronized (ran) { ran[0]++; } });\n\
                      threads[i].start();\n\
                    }\n\
                    for (Thread t : threads) t.join();\n\
                    Files.writeString(Path.of(\"result\"), sum + \" \" + ran[0]);\n\
                  }\n\
                }\n";
    work.write("Sum.java", text);
    let said = script(person, work.path(), &[], "javac Sum.java; java -XX:+UseG1GC Sum");
    assert_eq!(said.good(), "");
    assert_eq!(work.read("result").as_deref(), Some("499999500000 50"));
}

fn cargo(person: Person) {
    let work = Folder::new(person, "work");
    work.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"app\", \"part\"]\n");
    let manifest = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
    };
    let depends = "build = \"build.rs\"\n[dependencies]\npart = { path = \"../part\" }\n";
    work.write("app/Cargo.toml", manifest("app", depends));
    let build = "fn main() { println!(\"cargo::rustc-env=FROM_BUILD=built\"); }\n";
    work.write("app/build.rs", build);
    let main = "fn main() { println!(\"{} {}\", env!(\"FROM_BUILD\"), part::answer()); }\n";
    work.write("app/src/main.rs", main);
    work.write("part/Cargo.toml", manifest("part", ""));
    let part =
        "pub fn answer() -> u32 { 42 }\n#[test] fn is_right() { assert_eq!(answer(), 42) }\n";
    work.write("part/src/lib.rs", part);
    let here = work.path().to_str().expect("test folders are text");
    let rust = format!("{}:ro=rust", toolchain(person).display());
    let said = script(
        person,
        work.path(),
        &["--grant", here, "--grant", &rust, "--force"],
        "
        export PATH=$COWORK_MNT/rust/bin:$PATH
        cargo run --offline --quiet
        cargo test --offline --quiet -p part | grep 'test result: ok. 1 passed' > tested
        ",
    );
    assert_eq!(said.done(), "built 42\n");
    assert!(work.read("tested").is_some_and(|text| text.contains("1 passed")));
    assert_eq!(owner(&work.path().join("target/debug/app")), (person.uid(), person.uid()));
    let mut built = person.command(work.path().join("target/debug/app"));
    built.current_dir("/");
    let built = crate::support::finish(built, Vec::new());
    assert_eq!(built.good(), "built 42\n", "what was built runs on the host");
}

/// The Rust toolchain: where it is, or for the user, who may not go there, links to its files.
fn toolchain(person: Person) -> PathBuf {
    static LINKED: OnceLock<Folder> = OnceLock::new();
    let mut rustc = std::process::Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir("/");
    let said = crate::support::finish(rustc, Vec::new());
    let sysroot = PathBuf::from(said.done().trim_end());
    match person {
        Person::Root => sysroot,
        Person::User => LINKED
            .get_or_init(|| {
                let folder = Folder::new(Person::User, "rust");
                link_toolchain(&sysroot, folder.path());
                folder
            })
            .path()
            .to_path_buf(),
    }
}

/// Links, or across file systems copies, what building for the host needs.
fn link_toolchain(from: &Path, to: &Path) {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for part in ["bin", "lib", "lib/rustlib"] {
        std::fs::create_dir(to.join(part)).expect("the folder is ours");
    }
    link_files(&from.join("bin"), &to.join("bin"));
    link_files(&from.join("lib"), &to.join("lib"));
    let mut open = vec![Path::new("lib/rustlib").join(host)];
    while let Some(part) = open.pop() {
        std::fs::create_dir(to.join(&part)).expect("the folder is ours");
        let folders = link_files(&from.join(&part), &to.join(&part));
        open.extend(folders.iter().map(|name| part.join(name)));
    }
}

/// Links the files of a folder, and returns the names of the folders in it.
fn link_files(from: &Path, to: &Path) -> Vec<OsString> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(from).expect("the toolchain is whole") {
        let entry = entry.expect("the toolchain is whole");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.file_name());
            continue;
        }
        let target = to.join(entry.file_name());
        if std::fs::hard_link(entry.path(), &target).is_err() {
            std::fs::copy(entry.path(), &target).expect("there is room for a toolchain");
        }
    }
    folders
}
