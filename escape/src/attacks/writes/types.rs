//! Files of types that are refused, by every way in which something gets such a name.

use super::{attack, make, on};
use crate::attack::Attack;
use crate::raw::{call, of, signed, text};
use crate::scene::{Outcome, Scene};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{create_dir, hard_link, rename};
use std::os::unix::fs::symlink;

pub(crate) const TABLE: &[Attack] = &[
    attack("type.create", |scene| make(scene, &on(scene, "free/x.exe")?)),
    attack("type.letter-case", |scene| make(scene, &on(scene, "free/x.eXe")?)),
    attack("type.rename-to", |scene| {
        done(rename(on(scene, "free/file")?, on(scene, "free/x.exe")?))
    }),
    attack("type.link-to", |scene| {
        done(hard_link(on(scene, "free/file")?, on(scene, "free/x.exe")?))
    }),
    attack("type.folder", |scene| done(create_dir(on(scene, "free/x.exe")?))),
    attack("type.folder-renamed-to", |scene| {
        create_dir(on(scene, "free/x")?)?;
        done(rename(on(scene, "free/x")?, on(scene, "free/x.exe")?))
    }),
    attack("type.link-renamed-to", |scene| {
        symlink("file", on(scene, "free/x")?)?;
        done(rename(on(scene, "free/x")?, on(scene, "free/x.exe")?))
    }),
    attack("type.pipe-renamed-to", |scene| {
        let pipe = text(&on(scene, "free/x")?)?;
        let mode = libc::S_IFIFO as usize | 0o600;
        call(libc::SYS_mknodat, &[signed(libc::AT_FDCWD), of(&pipe), mode, 0])?;
        done(rename(on(scene, "free/x")?, on(scene, "free/x.exe")?))
    }),
    attack("type.let-out-in-a-folder", |scene| {
        make(scene, &on(scene, "free/node_modules/x.exe")?)?;
        done(rename(on(scene, "free/node_modules")?, on(scene, "free/tools")?))
    }),
    attack("type.let-out-in-a-folder-of-it", |scene| {
        make(scene, &on(scene, "free/node_modules/deep/x.exe")?)?;
        done(rename(on(scene, "free/node_modules/deep")?, on(scene, "free/tools")?))
    }),
    attack("type.let-out-by-exchange", |scene| {
        make(scene, &on(scene, "free/node_modules/x.exe")?)?;
        create_dir(on(scene, "free/tools")?)?;
        exchange(scene, "free/tools", "free/node_modules")
    }),
    attack("type.let-out-the-other-way", |scene| {
        make(scene, &on(scene, "free/node_modules/x.exe")?)?;
        create_dir(on(scene, "free/tools")?)?;
        exchange(scene, "free/node_modules", "free/tools")
    }),
];

fn done(result: std::io::Result<()>) -> Outcome {
    result?;
    Ok("done".into())
}

fn exchange(scene: &Scene, one: &str, other: &str) -> Outcome {
    renameat_with(CWD, on(scene, one)?, CWD, on(scene, other)?, RenameFlags::EXCHANGE)?;
    Ok("exchanged".into())
}
