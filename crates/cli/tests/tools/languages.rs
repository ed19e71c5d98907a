//! Compilers, interpreters and package managers.

use crate::for_everyone;
use crate::scenario::Scenario;
use cowork_testbed::Person;

for_everyone!(python, virtual_environments, node, npm, gcc_and_make, cargo);

fn python(person: Person) {
    Scenario {
        before: "mkdir pkg; echo 'X = 1' > pkg/__init__.py; echo 'from pkg import X' > use.py",
        script: "
            python3 -m compileall -q --invalidation-mode unchecked-hash . ; python3 use.py
            python3 - <<'END'
import os, shutil, json, pathlib
p = pathlib.Path('made'); p.mkdir(); (p / 'f').write_text('x'); (p / 'f').rename(p / 'g')
shutil.copytree('made', 'copied'); shutil.move('copied', 'moved'); shutil.rmtree('made')
json.dump({'a': 1}, open('j.json', 'w')); os.replace('j.json', 'k.json')
os.truncate('k.json', 4); os.utime('k.json', (1, 2)); os.symlink('k.json', 's'); os.link('k.json', 'l')
os.makedirs('x/y/z'); os.removedirs('x/y/z'); os.mkfifo('fifo'); os.chmod('l', 0o600)
print(os.access('k.json', os.W_OK), os.access('.', os.W_OK | os.X_OK), os.access('nope', os.W_OK))
print(bool(os.statvfs('.').f_flag & os.ST_RDONLY), os.statvfs('k.json').f_bsize > 0)
fd = os.open('.', os.O_RDONLY); f = os.open('at', os.O_CREAT | os.O_WRONLY, dir_fd=fd); os.write(f, b'at')
os.mkdir('atd', dir_fd=fd); os.rename('at', 'atd/at', src_dir_fd=fd, dst_dir_fd=fd)
os.chmod('atd/at', 0o640, dir_fd=fd); os.utime('atd/at', (5, 6), dir_fd=fd); os.fchmod(f, 0o644)
os.unlink('s', dir_fd=fd); print(sorted(os.listdir(fd)))
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn virtual_environments(person: Person) {
    Scenario {
        before: "echo requirements > r.txt",
        script: "
            /usr/bin/python3 -m venv --without-pip env && env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
            /usr/bin/python3 -m venv --clear --without-pip env; ls env/bin | grep -c python
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn node(person: Person) {
    Scenario {
        before: "mkdir d; echo 1 > d/one",
        script: "
            node - <<'END'
const fs = require('fs'), path = require('path');
fs.mkdirSync('a/b/c', { recursive: true }); fs.writeFileSync('a/b/c/f', 'x'); fs.appendFileSync('a/b/c/f', 'y');
fs.renameSync('a/b', 'moved'); fs.cpSync('moved', 'copy', { recursive: true }); fs.rmSync('moved', { recursive: true });
fs.copyFileSync('d/one', 'two'); fs.symlinkSync('two', 'link'); fs.linkSync('two', 'hard'); fs.chmodSync('two', 0o600);
fs.utimesSync('two', 10, 20); fs.truncateSync('two', 1); const t = fs.mkdtempSync('tmp-'); fs.rmdirSync(t);
fs.accessSync('.', fs.constants.W_OK); console.log(fs.statfsSync ? fs.statfsSync('.').bsize > 0 : true);
const s = fs.createWriteStream('stream'); s.end('streamed', () => {
  Promise.all([...Array(50).keys()].map(n => fs.promises.writeFile('p' + n, '' + n)))
    .then(() => Promise.all([...Array(50).keys()].map(n => fs.promises.rename('p' + n, 'q' + n))))
    .then(() => console.log(fs.readdirSync('.').length, fs.readFileSync('copy/c/f', 'utf8')));
});
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn npm(person: Person) {
    Scenario {
        before: "mkdir lib; cat > lib/package.json <<'END'
{\"name\":\"lib\",\"version\":\"1.0.0\",\"bin\":{\"libtool\":\"x.js\"},\"main\":\"x.js\"}
END
printf '#!/usr/bin/env node\\nconsole.log(42)\\n' > lib/x.js; mkdir app; cat > app/package.json <<'END'
{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{\"lib\":\"file:../lib-1.0.0.tgz\"}}
END
",
        script: "
            export npm_config_cache=/tmp/npm npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
            npm pack --silent ./lib; cd app && npm install --silent --offline && node -e 'require(\"lib\")'
            npx --offline libtool; npm ci --silent --offline; npm uninstall --silent lib; ls node_modules 2>/dev/null | wc -l
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn gcc_and_make(person: Person) {
    Scenario {
        before: "for n in $(seq 12); do echo \"int f$n(void){return $n;}\" > f$n.c; done
            { for n in $(seq 12); do echo \"int f$n(void);\"; done; echo 'int main(void){return f12()-12;}'; } > main.c
            printf 'O=$(patsubst %%.c,%%.o,$(wildcard *.c))\\nprog: $O\\n\\tgcc -o $@ $^\\nclean:\\n\\trm -f *.o prog lib.a\\n' > Makefile",
        script: "make -s -j4 && ./prog; echo $?; ar rcs lib.a f1.o f2.o; ranlib lib.a; touch f3.c; make -s -j4 | wc -l
            make -s clean; make -s -j2 && strip prog && ./prog; echo $?; rm f1.o",
        ..Scenario::default()
    }
    .check(person);
}

/// Cargo, from the toolchain of whoever runs these tests: granted read-only.
fn cargo(person: Person) {
    let mut rustc = std::process::Command::new("rustc");
    let said = crate::scenario::finish(rustc.args(["--print", "sysroot"]).current_dir("/"));
    let toolchain = String::from_utf8(said.stdout).expect("it is a path").trim().to_owned();
    let grant = format!("{toolchain}/:ro=rust");
    let options = match person {
        Person::Root => vec!["--force", "--grant", grant.as_str()],
        // An ordinary user may not read root's toolchain: what it links is copied for it.
        Person::User => return copied_cargo(person, &toolchain),
    };
    run_cargo(person, &options);
}

fn copied_cargo(person: Person, toolchain: &str) {
    let copy = cowork_testbed::Folder::new(Person::Root, "toolchain");
    let mut command = std::process::Command::new("cp");
    command.args(["-r", "--reflink=auto"]).arg(format!("{toolchain}/bin")).arg(copy.path());
    let copied = crate::scenario::finish(&mut command);
    assert!(copied.status.success(), "{}", crate::scenario::said(&copied));
    let mut command = std::process::Command::new("cp");
    command.args(["-r", "--reflink=auto"]).arg(format!("{toolchain}/lib")).arg(copy.path());
    let copied = crate::scenario::finish(&mut command);
    assert!(copied.status.success(), "{}", crate::scenario::said(&copied));
    let grant = format!("{}/:ro=rust", copy.path().display());
    run_cargo(person, &["--grant", &grant]);
}

fn run_cargo(person: Person, options: &[&str]) {
    Scenario {
        before: "mkdir src; printf '[package]\\nname = \"hello\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' > Cargo.toml
            printf 'fn main() { println!(\"hello\"); }\\n#[test]\\nfn works() {}\\n' > src/main.rs",
        script: "
            export PATH=\"$COWORK_MNT/rust/bin:$PATH\" CARGO_HOME=/tmp/cargo CARGO_TERM_COLOR=never
            cargo build --offline -q && target/debug/hello; cargo test --offline -q 2>/dev/null | grep -c 'ok'
            echo '// more' >> src/main.rs; cargo build --offline -q; cargo clean -q; ls
        ",
        options,
        ..Scenario::default()
    }
    .check(person);
}
