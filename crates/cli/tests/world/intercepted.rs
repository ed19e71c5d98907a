//! Package managers against registries whose TLS is looked into, and a browser that is told of HTTP/3.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::{Folder, Person};
use serde_json::Value;
use std::process::Command;

for_everyone!(cargo, npm, pip, a_browser_that_is_told_of_http_3_loads_the_page);

/// Only reading is allowed: what is inside TLS has to be looked into for that.
const RULE: &str = "GET,HEAD https://web.example/files/**";

/// Runs a script outside of any session, in the folder of the world.
fn prepare(site: &Site, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(site.folder.path());
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// That requests for something came, and that they were looked into: by the record of the session.
fn looked_into(site: &Site, id: &str, word: &str) {
    assert!(!site.arrived(word).is_empty(), "nobody asked for {word}");
    let said = site.say(&["audit", id, "--json"]).good();
    let records: Vec<Value> = serde_json::from_str(&said).expect("a list");
    let seen = records.iter().map(|record| &record["data"]).any(|data| {
        let path = data["target"]["path"].as_str();
        data["tls"] == "inspect" && path.is_some_and(|path| path.contains(word))
    });
    assert!(seen, "{word} was not looked into: {said}");
}

fn cargo(person: Person) {
    let site = Site::of(person);
    // A sparse registry with one crate.
    prepare(
        site,
        r#"mkdir -p files/cargo/th/in made/thing-1.0.0/src; cd made
        printf '[package]\nname = "thing"\nversion = "1.0.0"\nedition = "2021"\n' > thing-1.0.0/Cargo.toml
        echo 'pub fn answer() -> u32 { 42 }' > thing-1.0.0/src/lib.rs
        tar czf ../files/cargo/thing-1.0.0.crate thing-1.0.0; cd ../files/cargo
        echo '{"dl":"https://web.example/files/cargo/{crate}-{version}.crate"}' > config.json
        sum=$(sha256sum thing-1.0.0.crate | cut -d' ' -f1)
        echo '{"name":"thing","vers":"1.0.0","deps":[],"cksum":"'$sum'","features":{},"yanked":false}' > th/in/thing"#,
    );
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc");
    let sysroot = String::from_utf8(sysroot.stdout).expect("it is text");
    let folder = Folder::new(person, "toolchain");
    let at = folder.path().join("t");
    // Other names of the same files, or copies where there can be none.
    let link = format!(
        "mkdir -p {at}/lib/rustlib; link() {{ cp -rl \"$@\" 2>/dev/null || cp -r \"$@\"; }}; \
         link {root}/bin {at}/; link {root}/lib/*.so* {at}/lib/; \
         link {root}/lib/rustlib/x86_64-unknown-linux-gnu {at}/lib/rustlib/; \
         find {at} -type d -exec chmod a+rx {{}} +",
        at = at.display(),
        root = sysroot.trim()
    );
    prepare(site, &link);
    let grant = format!("{}:ro=t", at.display());
    let id = site.say(&["new", "--allow", RULE, "--grant", &grant]).good().trim().to_owned();
    let script = r#"set -e; export PATH=$PWD/mnt/t/bin:$PATH CARGO_HOME=$PWD/c
        mkdir -p p/src p/.cargo; cd p
        printf '[registries.local]\nindex = "sparse+https://web.example/files/cargo/"\n' > .cargo/config.toml
        printf '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nthing = { version = "1", registry = "local" }\n' > Cargo.toml
        echo 'pub const A: fn() -> u32 = thing::answer;' > src/lib.rs
        cargo fetch 2>&1; cargo build --offline 2>&1; ls target/debug/libp.rlib"#;
    let said = site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    assert!(said.contains("Downloaded thing v1.0.0") && said.contains("libp.rlib"), "{said}");
    looked_into(site, &id, "/files/cargo/thing-1.0.0.crate");
    site.say(&["rm", &id]).good();
}

fn npm(person: Person) {
    let site = Site::of(person);
    prepare(
        site,
        r#"mkdir -p files/npm made/package; cd made
        echo '{"name":"thing","version":"1.2.3","main":"index.js"}' > package/package.json
        echo 'module.exports = 42;' > package/index.js; tar czf ../files/npm/thing-1.2.3.tgz package
        cd ../files/npm; sum=$(openssl dgst -sha512 -binary thing-1.2.3.tgz | base64 -w0)
        echo '{"name":"thing","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"thing","version":"1.2.3","dist":{"integrity":"sha512-'$sum'","tarball":"https://web.example/files/npm/thing-1.2.3.tgz"}}}}' > thing"#,
    );
    let id = site.say(&["new", "--allow", RULE]).good().trim().to_owned();
    let script = "mkdir p && cd p && npm install --no-audit --no-fund --fetch-retries=0 \
                  --registry https://web.example/files/npm/ thing >npm.log 2>&1 || cat npm.log; \
                  node -p 'require(\"thing\")'";
    assert_eq!(site.say(&["exec", &id, "--", "bash", "-c", script]).good().trim(), "42");
    looked_into(site, &id, "/files/npm/thing-1.2.3.tgz");
    site.say(&["rm", &id]).good();
}

fn pip(person: Person) {
    let site = Site::of(person);
    prepare(
        site,
        r#"mkdir -p files/pypi/thing; python3 - <<'END'
import zipfile
with zipfile.ZipFile("files/pypi/thing/thing-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("thing.py", "ANSWER = 42\n")
    wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    wheel.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("thing-1.0.dist-info/RECORD", "thing.py,,\n")
END
        sum=$(sha256sum files/pypi/thing/*.whl | cut -d' ' -f1)
        echo "<a href=\"thing-1.0-py3-none-any.whl#sha256=$sum\">thing-1.0-py3-none-any.whl</a>" > files/pypi/thing/index.html"#,
    );
    let id = site.say(&["new", "--allow", RULE]).good().trim().to_owned();
    let script = "python3 -m venv v && v/bin/pip install -q --index-url https://web.example/files/pypi \
                  thing && v/bin/python -c 'import thing; print(thing.ANSWER)'";
    assert_eq!(site.say(&["exec", &id, "--", "bash", "-c", script]).good().trim(), "42");
    looked_into(site, &id, "/files/pypi/thing/thing-1.0-py3-none-any.whl");
    site.say(&["rm", &id]).good();
}

/// UDP goes nowhere, and at once: what was announced is tried, and the page comes without it.
fn a_browser_that_is_told_of_http_3_loads_the_page(person: Person) {
    let site = Site::of(person);
    let script = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy; \
                  chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
                  --log-net-log=$PWD/net.json --virtual-time-budget=5000 --dump-dom \
                  https://web.example/quic 2>chromium.err; tail -3 chromium.err >&2; \
                  grep -c '\"type\":\"alternative\",\"using_quic\":true' net.json";
    let said = site.script(&["--allow", "GET https://web.example/**"], script).out;
    assert!(said.contains("the page came") && said.contains("the script came"), "{said}");
    let tried = said.lines().filter_map(|line| line.parse::<u32>().ok()).next_back();
    assert!(tried > Some(0), "it has not tried HTTP/3: {said}");
    let came = site.arrived("/quic/later.js");
    assert!(!came.is_empty() && came.iter().all(|one| one["version"] == "2.0"), "{came:?}");
}
