//! Node and npm.

use crate::support::{for_everyone, listing, need, script};
use cowork_testbed::{Folder, Person};

for_everyone!(threads_sockets_children_and_watching, npm_without_a_network);

const MANY: &str = r#"
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const { execFile, fork } = require("child_process");
const fs = require("fs"), http = require("http"), path = require("path");

if (!isMainThread) {
  parentPort.postMessage(workerData * workerData);
} else if (process.argv[2] === "child") {
  process.on("message", (m) => { process.send(m + 1); process.disconnect(); });
} else main();

function worker(n) {
  return new Promise((good, bad) => {
    const w = new Worker(__filename, { workerData: n });
    w.on("message", good); w.on("error", bad);
  });
}

async function main() {
  const squares = await Promise.all([1, 2, 3, 4].map(worker));
  console.log("workers", squares.join(" "));
  const server = http.createServer((q, a) => a.end("you asked for " + q.url));
  await new Promise((go) => server.listen(0, "127.0.0.1", go));
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/page`);
  console.log(await answer.text());
  server.close(); server.closeAllConnections();
  console.log(await new Promise((go) => execFile("echo", ["child"], (e, out) => go(out.trim()))));
  console.log(await new Promise((go) => {
    const child = fork(__filename, ["child"]);
    child.on("message", go); child.send(41);
  }));
  fs.mkdirSync("watched");
  const name = await new Promise((go) => {
    const watcher = fs.watch("watched", (kind, name) => { watcher.close(); go(name); });
    setTimeout(() => fs.writeFileSync(path.join("watched", "new"), "seen"), 50);
  });
  console.log("watched", name);
}
"#;

fn threads_sockets_children_and_watching(person: Person) {
    need("node", "nodejs");
    let work = Folder::new(person, "work");
    work.write("many.js", MANY);
    let said = script(person, work.path(), &[], "node many.js");
    let expected = "workers 1 4 9 16\nyou asked for /page\nchild\n42\nwatched new\n";
    assert_eq!(said.good(), expected);
    assert_eq!(work.read("watched/new").as_deref(), Some("seen"));
}

fn npm_without_a_network(person: Person) {
    need("npm", "npm");
    let work = Folder::new(person, "work");
    let package = r#"{"name": "NAME", "version": "1.0.0", "main": "index.js", "bin": {"say-NAME": "say.js"}}"#;
    for name in ["packed", "linked"] {
        work.write(&format!("{name}/package.json"), package.replace("NAME", name));
        work.write(&format!("{name}/index.js"), format!("module.exports = '{name}';\n"));
        let say = format!("#!/usr/bin/env node\nconsole.log('I am {name}');\n");
        work.write(&format!("{name}/say.js"), say);
    }
    work.write("app/package.json", r#"{"name": "app", "version": "1.0.0", "private": true}"#);
    let said = script(
        person,
        work.path(),
        &[],
        r"
        export npm_config_update_notifier=false
        npm pack --silent ./packed
        cd app
        npm install --silent --offline --no-audit --no-fund ../packed-1.0.0.tgz ../linked
        node -e 'console.log(require(`packed`), require(`linked`))'
        npx --offline say-packed
        npm ls --parseable | wc -l
        ",
    );
    assert_eq!(said.good(), "packed-1.0.0.tgz\npacked linked\nI am packed\n3\n");
    let modules = listing(&work.path().join("app/node_modules"));
    for file in ["packed/index.js", "linked", ".bin/say-packed"] {
        assert!(modules.contains(file), "{modules:?}");
    }
}
