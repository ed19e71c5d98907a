//! What it costs that changes of granted folders go through a broker and are recorded, in turns with
//! the same work on a plain mount, on an overlay, and without a session; and what an undo costs.
//!
//! The base of all ratios is a `direct` grant: a plain mount in a session. Everybody works in a copy
//! of the same folder, on the same file system, with the same scripts: an ext4 with a journal, in
//! memory where it can be mounted, so that the disk and who else uses it are not in the numbers.
//! Single calls are made in a tmpfs. Times are taken by a small
//! program next to the work, so that what it costs to start a command is not in them. Guards are
//! off, because nobody is there to be asked.

mod calls;
mod disk;
mod ground;
mod material;
mod promises;
mod undo;

use crate::book::Book;
use crate::daemon::server::Server;
use crate::memory::to_f64;
use crate::options::{Effort, Options};
use crate::site::Site;
use crate::stopped::Stopped;
use disk::{Disk, Memory};
use ground::{Ground, Place, Way};
use material::{Material, Size};

pub(crate) use promises::promises;

/// The section of the results.
pub(crate) const TITLE: &str = "changes of files";

const UNTAR: &str = "untar";
const COPY: &str = "cp -a";
const GREP: &str = "grep -r";
const CHECKOUT: &str = "git checkout";
const STATUS: &str = "git status";
const GCC: &str = "gcc -j2";
const CARGO: &str = "cargo build";
const NPM: &str = "npm install";
const SQLITE: &str = "sqlite";
const APPEND: &str = "bash >>";
const REMOVE: &str = "rm -rf";

/// A piece of work, as two scripts: what is timed, and what tidies up.
struct Job {
    name: &'static str,
    script: String,
    after: &'static str,
    /// A program without which it cannot be done.
    needs: &'static str,
}

/// All jobs, in an order in which each finds what it needs.
fn jobs(size: Size) -> Vec<Job> {
    let job = |name, needs, script: &str, after| Job { name, script: script.into(), after, needs };
    let lines = size.lines;
    vec![
        job(UNTAR, "tar", "exec tar -xf ../tools/tree.tar", ""),
        job(COPY, "cp", "exec cp -a tree copy", "rm -rf copy"),
        job(GREP, "grep", "exec grep -rc 'no such line' tree | tail -1", ""),
        job(CHECKOUT, "git", "cd repo && exec git -c safe.directory='*' checkout -q files", ""),
        job(
            STATUS,
            "git",
            "cd repo && exec git -c safe.directory='*' status --porcelain",
            "cd repo && git -c safe.directory='*' checkout -q empty",
        ),
        job(GCC, "gcc", "cd c && ls *.c | xargs -P2 -n1 gcc -O1 -c", "rm -f c/*.o"),
        job(
            CARGO,
            "",
            "export PATH=$PWD/../rust/bin:$PATH CARGO_HOME=${SCRATCH:-/tmp}/cargo
             cd hello && exec cargo build -q --offline",
            "rm -rf hello/target hello/Cargo.lock",
        ),
        job(
            NPM,
            "npm",
            "export npm_config_cache=${SCRATCH:-/tmp}/npm npm_config_audit=false
             export npm_config_fund=false npm_config_update_notifier=false
             cd app && exec npm install --silent --offline",
            "rm -rf app/node_modules app/package-lock.json ${SCRATCH:-/tmp}/npm",
        ),
        job(SQLITE, "sqlite3", "exec sqlite3 db < ../tools/transactions.sql", "rm -f db"),
        Job {
            name: APPEND,
            script: format!("for n in {{1..{lines}}}; do echo $n >> log; done"),
            after: "rm -f log",
            needs: "bash",
        },
        job(REMOVE, "rm", "exec rm -rf tree", ""),
    ]
}

/// A row of the results.
fn row(what: &str, way: Way) -> String {
    format!("{what}: {}", way.title())
}

/// What something costs, compared with a plain mount.
fn ratio(what: &str, way: Way) -> String {
    format!("{what}: {} ÷ direct", way.title())
}

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    site.need_built()?;
    let effort = options.effort;
    let size = Size::of(effort);
    let disk = Disk::mount(site.at("files"))?;
    book.absent("file system of the jobs", &disk.what());
    let material = Material::make(site.at("files/work"), &site.project().join("files"), size)?;
    let server = Server::start(site, "files/daemon")?;
    let place = Place { site, server: &server, material: &material };
    sizes(size, book);
    let mut field = Field::of(place, book, |way| Ground::of(&place, way));
    calls::broker_memory(&mut field, "at first");
    field.work(size, effort);
    calls::broker_memory(&mut field, calls::AFTER);
    field.compare(jobs(size).iter().map(|job| job.name.to_owned()), &Way::ALL);
    let memory = Memory::make()?;
    let mut field = Field::of(place, book, |way| Ground::below(&place, way, memory.path()));
    calls::measure(&mut field, effort);
    field.compare(calls::titles(), &[Way::Unrecorded, Way::Recorded]);
    if let Err(stopped) = undo::measure(&place, size, effort, field.book) {
        field.book.absent("undo", &stopped.to_string());
    }
    undo::peers(field.book);
    drop(field);
    server.leave()?;
    disk.unmount()
}

fn sizes(size: Size, book: &mut Book) {
    let Size { files, tracked, sources, packages, transactions, lines } = size;
    let number = to_f64(u64::try_from(files).unwrap_or(0));
    let how = format!(
        "{tracked} in the repository, {sources} for gcc, {packages} packages of 50 for npm, \
         {transactions} transactions, {lines} lines appended"
    );
    book.value("files in the tree", number, "files", &how);
}

/// Those who take turns.
struct Field<'a> {
    place: Place<'a>,
    grounds: Vec<Ground>,
    book: &'a mut Book,
}

impl<'a> Field<'a> {
    /// Everybody, or why not.
    fn of(
        place: Place<'a>,
        book: &'a mut Book,
        mut make: impl FnMut(Way) -> Result<Ground, Stopped>,
    ) -> Self {
        let mut grounds = Vec::new();
        for way in Way::ALL {
            match make(way) {
                Ok(ground) => grounds.push(ground),
                Err(stopped) => book.absent(way.title(), &stopped.to_string()),
            }
        }
        Self { place, grounds, book }
    }

    /// Whoever works in this way.
    fn ground(&self, way: Way) -> Option<&Ground> {
        self.grounds.iter().find(|ground| ground.way == way)
    }

    /// Does all jobs in all folders, in turns.
    fn work(&mut self, size: Size, effort: Effort) {
        let mut jobs = jobs(size);
        jobs.retain(|job| {
            let missing = match (job.name, &self.place.material.rust) {
                (CARGO, Err(why)) => Some(why.clone()),
                (CARGO, Ok(_)) => None,
                _ => self
                    .place
                    .site
                    .find(job.needs)
                    .is_none()
                    .then(|| format!("`{}` is not installed", job.needs)),
            };
            if let Some(missing) = &missing {
                self.book.absent(job.name, &format!("SKIPPED: {missing}"));
            }
            missing.is_none()
        });
        for round in 0..effort.pick(1, 5) {
            eprintln!("  round {}", round + 1);
            for job in &jobs {
                self.turn(job);
            }
            if !self.grounds.is_empty() {
                self.grounds.rotate_left(1);
            }
        }
    }

    /// Does one job in all folders.
    fn turn(&mut self, job: &Job) {
        for ground in &self.grounds {
            let name = row(job.name, ground.way);
            match ground.time(&self.place, &job.script, job.after) {
                Ok(took) => self.book.took(&name, took),
                Err(stopped) => self.book.absent(&name, &stopped.to_string()),
            }
        }
    }

    /// Notes how everybody compares with a plain mount.
    fn compare(&mut self, names: impl Iterator<Item = String>, ways: &[Way]) {
        for what in names {
            let Some(base) = self.book.median_us(&row(&what, Way::Direct)) else { continue };
            for way in ways.iter().filter(|way| **way != Way::Direct) {
                if let Some(own) = self.book.median_us(&row(&what, *way)) {
                    self.book.value(&ratio(&what, *way), own / base, "×", "medians");
                }
            }
        }
    }
}
