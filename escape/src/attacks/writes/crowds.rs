//! Crowds of callers, and callers that die in the middle of a call.
//!
//! These must not stop anybody's work: afterwards the same session and one beside it still write.

use super::{attack, on};
use crate::attack::{Attack, Permitted, Target};
use crate::raw::{call, flags, fork, leave, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use crate::victim::STILL_WRITES;
use std::time::{Duration, Instant};

const fn crowd(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    attack(name, act)
        .permitted(Permitted::Required)
        .at(Target::Neighbour)
        .judged(all_write)
        .options(&["--processes", "6000", "--memory", "3G"])
        .compared()
}

pub(crate) const TABLE: &[Attack] = &[
    crowd("crowd.processes", |scene| after(scene, processes)),
    crowd("crowd.threads", |scene| after(scene, threads)),
    crowd("crowd.killed-in-the-middle", |scene| after(scene, killed)),
    crowd("crowd.threads-killed-in-the-middle", |scene| after(scene, killed_threads)),
    crowd("crowd.stopped-in-the-middle", stopped),
];

/// The work that must go on.
fn after(scene: &Scene, flood: fn(&Scene) -> Outcome) -> Outcome {
    let said = flood(scene)?;
    let begin = Instant::now();
    for number in 0..100 {
        let path = on(scene, &format!("free/after-{number}"))?;
        std::fs::write(&path, scene.token()?)?;
        std::fs::remove_file(&path)?;
    }
    let needed = begin.elapsed();
    if needed > Duration::from_secs(5) {
        return Err(Lost::new(format!("{said}; then 100 files took {} ms", needed.as_millis())));
    }
    std::fs::write(on(scene, "free/after")?, scene.token()?)?;
    Ok(format!("{said}; then 100 files in {} ms", needed.as_millis()))
}

/// Both the session that was flooded and the one beside it have written, as the host sees.
fn all_write(stage: &Stage, shot: &Shot) -> Option<String> {
    let after = format!("mnt/yard/ground-{}/free/after", shot.token);
    let own = std::fs::read_to_string(stage.path(&after)).ok()?;
    (own == shot.token && shot.victim.contains(STILL_WRITES)).then(|| shot.said.clone())
}

fn write_once(path: &std::ffi::CStr) -> bool {
    let how = flags(libc::O_WRONLY | libc::O_CLOEXEC);
    open_by(libc::SYS_openat, &[signed(libc::AT_FDCWD), of(path), how, 0]).is_ok()
}

/// Two thousand processes, each with five calls, all at once.
fn processes(scene: &Scene) -> Outcome {
    const WANTED: usize = 2000;
    let path = text(&on(scene, "free/file")?)?;
    let (mut made, mut failed) = (0, 0);
    for _ in 0..WANTED {
        match fork() {
            Ok(0) => leave(i32::from(!(0..5).all(|_| write_once(&path)))),
            Ok(_) => made += 1,
            Err(_) => break,
        }
    }
    for _ in 0..made {
        let mut status = 0i32;
        call(libc::SYS_wait4, &[signed(-1), crate::raw::into(&mut status), 0, 0])?;
        failed += usize::from(status != 0);
    }
    if failed > 0 || made < 500 {
        return Err(Lost::new(format!("{failed} of {made} processes failed")));
    }
    Ok(format!("{made} processes with 5 calls each"))
}

/// Threads that all call at the same time.
fn threads(scene: &Scene) -> Outcome {
    const WANTED: usize = 3000;
    let path = text(&on(scene, "free/file")?)?;
    let failed = std::sync::atomic::AtomicUsize::new(0);
    let made = std::thread::scope(|scope| {
        let mut made = 0;
        for _ in 0..WANTED {
            let caller =
                std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, || {
                    if !write_once(&path) {
                        failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            if caller.is_err() {
                break;
            }
            made += 1;
        }
        made
    });
    let failed = failed.into_inner();
    if failed > 0 || made < 500 {
        return Err(Lost::new(format!("{failed} of {made} threads failed")));
    }
    Ok(format!("{made} threads"))
}

/// Children that call without end, and are killed while they do.
fn killed(scene: &Scene) -> Outcome {
    kill_callers(scene, |path| {
        loop {
            write_once(path);
        }
    })
}

/// The same with several threads each.
fn killed_threads(scene: &Scene) -> Outcome {
    kill_callers(scene, |path| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        write_once(path);
                    }
                });
            }
        });
        leave(0)
    })
}

/// Children that call without end, and are stopped while they do: nobody is served less meanwhile.
fn stopped(scene: &Scene) -> Outcome {
    const WANTED: usize = 300;
    let path = text(&on(scene, "free/file")?)?;
    let mut children = Vec::new();
    for number in 0..WANTED {
        match fork()? {
            0 => loop {
                write_once(&path);
            },
            child => {
                std::thread::sleep(Duration::from_micros(200 + 37 * (number as u64 % 40)));
                call(libc::SYS_kill, &[child, flags(libc::SIGSTOP)])?;
                children.push(child);
            }
        }
    }
    let outcome =
        after(scene, |_| Ok(format!("{WANTED} processes stopped in the middle of calls")));
    for child in children {
        call(libc::SYS_kill, &[child, flags(libc::SIGKILL)])?;
        call(libc::SYS_wait4, &[child, 0, 0, 0])?;
    }
    outcome
}

fn kill_callers(scene: &Scene, busy: fn(&std::ffi::CStr) -> !) -> Outcome {
    const WANTED: usize = 300;
    let path = text(&on(scene, "free/file")?)?;
    for number in 0..WANTED {
        match fork()? {
            0 => busy(&path),
            child => {
                std::thread::sleep(Duration::from_micros(200 + 37 * (number as u64 % 40)));
                call(libc::SYS_kill, &[child, flags(libc::SIGKILL)])?;
                call(libc::SYS_wait4, &[child, 0, 0, 0])?;
            }
        }
    }
    Ok(format!("{WANTED} processes killed in the middle of calls"))
}
