//! Programs that bring a sandbox of their own, in the profile that is made for them.

use crate::support::{Process, cowork, for_everyone, inside, need, script, wait};
use cowork_testbed::{Folder, Person};
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

for_everyone!(bubblewrap, chromium_with_its_own_sandbox);

fn bubblewrap(person: Person) {
    need("bwrap", "bubblewrap");
    let work = Folder::new(person, "work");
    work.write("seen", "through two walls\n");
    let inner = "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/bin /bin \
                 --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev \
                 --bind . /inner --chdir /inner \
                 sh -c 'cat seen; ls -d /sessions 2>/dev/null || echo alone; echo $$ > pid'";
    let said = script(person, work.path(), &["--profile", "nested"], inner);
    assert_eq!(said.good(), "through two walls\nalone\n");
    let pid: u32 = work.read("pid").expect("it was written").trim().parse().expect("a number");
    assert!(pid < 5, "it runs in a process namespace of its own: {pid}");
    // The same does not work where no namespaces are to be had.
    let said = script(person, work.path(), &[], inner);
    assert_ne!((said.code, said.text()), (0, "through two walls\nalone\n"));
}

fn chromium_with_its_own_sandbox(person: Person) {
    need("chromium", "chromium");
    let work = Folder::new(person, "work");
    // The script keeps the renderer busy long enough to be looked at.
    let page = "<!doctype html><title>t</title><p id=p>before</p>\
                <script>const end = Date.now() + 3000; while (Date.now() < end);\
                document.getElementById('p').textContent = 'sum ' + (40 + 2)</script>";
    work.write("page.html", page);
    let errors = work.write("errors", "");
    let commands = "cd mnt/*work; chromium --headless --disable-gpu --no-first-run \
                  --disable-background-networking --disable-component-update --disable-sync \
                  --user-data-dir=$HOME/c --dump-dom file://$PWD/page.html > dom";
    let arguments = ["run", "--profile", "nested", "--", "sh", "-c", commands];
    let mut command = cowork(person, work.path(), &arguments);
    let errors = File::options().append(true).open(errors).expect("it was written");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let mut child = command.spawn().expect("the program is there");
    let mut walls = None;
    while walls.is_none() && child.try_wait().expect("it is our child").is_none() {
        walls = walls_of_a_renderer(&inside(work.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let code = wait(&mut child);
    let said = work.read("errors").unwrap_or_default();
    assert_eq!(code, 0, "{said}");
    let dom = work.read("dom").unwrap_or_default();
    assert!(dom.contains(r#"<p id="p">sum 42</p>"#), "{dom}\n{said}");
    let walls = walls.expect("a renderer was seen");
    assert!(walls.own_user_namespace && walls.own_filters > 0, "{walls:?}");
}

/// What a renderer has around it that the browser has not.
#[derive(Debug)]
struct Walls {
    own_user_namespace: bool,
    own_filters: u32,
}

fn walls_of_a_renderer(processes: &[Process]) -> Option<Walls> {
    let chromium = |process: &&Process| process.name() == "chromium";
    let kind = |process: &Process| process.file("cmdline").contains("--type=");
    let browser = processes.iter().filter(chromium).find(|process| !kind(process))?;
    let renderer = processes.iter().filter(chromium);
    let mut renderer =
        renderer.filter(|process| process.file("cmdline").contains("--type=renderer"));
    let filters = |process: &Process| -> Option<u32> {
        let status = process.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line?.trim().parse().ok()
    };
    renderer.find_map(|renderer| {
        let own_filters = filters(renderer)?.checked_sub(filters(browser)?)?;
        let own_user_namespace = renderer.namespace("user")? != browser.namespace("user")?;
        // One that is still being set up has not put its filter on.
        (own_filters > 0).then_some(Walls { own_user_namespace, own_filters })
    })
}
