//! A race: one thread or process does, another undoes, until something gives or the tries are over.

use crate::raw::{call, flags, leave};
use crate::scene::{Lost, Outcome, Scene};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a race lasts whose tries are not counted beforehand.
const SHORT: Duration = Duration::from_secs(2);

/// How long one lasts whose tries are counted, should they be slow.
const LONGEST_RACE: Duration = Duration::from_mins(1);

/// How much longer one lasts that has not won on the bare host, where it can be won.
const LONGER: Duration = Duration::from_secs(15);

/// What came of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Try {
    /// The protected file was reached.
    Won,
    /// The same, and it stays so: there is nothing more to try.
    WonForGood,
    /// Nothing but the read-only mount refused it.
    Mount,
    /// Anything else.
    Lost,
}

impl Try {
    /// What an error says about a try.
    pub(super) fn refused(error: &std::io::Error) -> Self {
        if error.raw_os_error() == Some(libc::EROFS) { Self::Mount } else { Self::Lost }
    }
}

/// Runs `swap` in a thread at full speed, and `attempt` in this one.
pub(super) fn race(
    scene: &Scene,
    swap: impl FnMut() + Send,
    attempt: impl FnMut() -> Try,
) -> Outcome {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut swap = swap;
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                swap();
            }
        });
        let came = tried(scene, attempt);
        stop.store(true, Ordering::Relaxed);
        came
    })
}

/// Runs `swap` at full speed in another process, which has its memory and its threads for itself and
/// shares descriptors and the working directory with this one. `attempt` is told its number.
pub(super) fn race_of_processes(
    scene: &Scene,
    mut swap: impl FnMut(),
    mut attempt: impl FnMut(usize) -> Try,
) -> Outcome {
    let shared = flags(libc::CLONE_FILES | libc::CLONE_FS | libc::SIGCHLD);
    let process = call(libc::SYS_clone, &[shared, 0, 0, 0, 0])?;
    if process == 0 {
        let with_its_parent = [flags(libc::PR_SET_PDEATHSIG), flags(libc::SIGKILL), 0, 0, 0];
        if call(libc::SYS_prctl, &with_its_parent).is_err() {
            leave(1)
        }
        loop {
            swap();
        }
    }
    let came = tried(scene, || attempt(process));
    call(libc::SYS_kill, &[process, flags(libc::SIGKILL)])?;
    let mut status = 0i32;
    call(libc::SYS_wait4, &[process, crate::raw::into(&mut status), 0, 0])?;
    if status != libc::SIGKILL {
        return Err(Lost::new(format!("the other process ended by itself, with {status:#x}")));
    }
    came
}

/// Tries until it is enough, and counts.
fn tried(scene: &Scene, mut attempt: impl FnMut() -> Try) -> Outcome {
    let wanted = scene.number("tries")? as u64;
    let bare = !scene.inside();
    let begin = Instant::now();
    let (mut tries, mut wins, mut mount) = (0u64, 0u64, 0u64);
    let longest = if wanted == 0 { SHORT } else { LONGEST_RACE };
    let goes_on = |tries: u64, wins: u64| {
        let enough = begin.elapsed() >= longest || (wanted > 0 && tries >= wanted);
        let control = bare && wins == 0 && begin.elapsed() < longest + LONGER;
        !enough || control
    };
    while goes_on(tries, wins) {
        tries += 1;
        match attempt() {
            Try::Won => wins += 1,
            Try::WonForGood => {
                wins += 1;
                break;
            }
            Try::Mount => mount += 1,
            Try::Lost => {}
        }
    }
    let said = format!("{wins} wins in {tries} tries, {mount} stopped by the mount alone");
    if wins > 0 { Ok(said) } else { Err(Lost::new(said)) }
}

/// A path in memory that another thread changes while the kernel reads it.
pub(super) struct Shifting {
    bytes: Box<[u8]>,
    choices: [Vec<u8>; 2],
}

impl Shifting {
    /// Between two paths, made equally long by slashes that mean nothing.
    pub(super) fn new(one: &str, other: &str) -> Self {
        let length = one.len().max(other.len());
        let padded = |path: &str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
            let slashes = "/".repeat(1 + length - folder.len().min(length) - name.len() - 1);
            format!("{folder}{slashes}{name}\0").into_bytes()
        };
        let choices = [padded(one), padded(other)];
        let bytes = choices.first().cloned().unwrap_or_default().into_boxed_slice();
        Self { bytes, choices }
    }

    /// Where the kernel finds it.
    pub(super) fn address(&self) -> usize {
        self.bytes.as_ptr().expose_provenance()
    }

    /// What changes it back and forth.
    pub(super) fn shifter(&self) -> impl FnMut() + Send + use<> {
        let address = self.address();
        let [one, other] = self.choices.clone();
        move || {
            for choice in [&other, &one] {
                let place = std::ptr::with_exposed_provenance_mut::<u8>(address);
                // SAFETY: the path outlives the race, both choices have its length, and only the
                // kernel reads it, whatever it finds.
                unsafe { std::ptr::copy_nonoverlapping(choice.as_ptr(), place, choice.len()) };
                std::hint::black_box(place);
                for _ in 0..64 {
                    std::hint::spin_loop();
                }
            }
        }
    }
}
