//! Sessions that are made in advance. Each has an id already, and waits for grants and commands.

use super::doc::{Doc, Spec};
use super::make::Made;
use crate::daemon::Daemon;
use cowork_client::types::{Life, WantedLimits};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A file in the folder of a session that nobody has claimed.
pub(crate) const MARK: &str = "pooled";

/// A session that nobody has claimed.
pub(crate) struct Pooled {
    pub(crate) doc: Doc,
    pub(crate) made: Made,
}

/// The sessions that nobody has claimed.
#[derive(Default)]
pub(crate) struct Pool {
    ready: Mutex<Vec<Pooled>>,
    /// Which kinds were asked for: only those are made in advance.
    wanted: Mutex<Vec<Life>>,
    filling: Mutex<bool>,
    /// When something was last asked of the daemon that the keeper has work with.
    busy: Mutex<Option<Instant>>,
}

/// Time without work after which the pool is filled: until then the keeper is for those who wait.
const QUIET: Duration = Duration::from_millis(15);

impl Pool {
    pub(crate) fn len(&self) -> usize {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether an id is that of a session in the pool.
    pub(crate) fn has(&self, id: &str) -> bool {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.iter().any(|pooled| pooled.doc.id == id)
    }

    /// Whether one is being made.
    pub(crate) fn is_filling(&self) -> bool {
        *self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything out of it.
    pub(crate) fn empty(&self) -> Vec<String> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.drain(..).map(|pooled| pooled.doc.id).collect()
    }

    /// Waits until there is nothing else to do.
    async fn quiet(&self, daemon: &Daemon) {
        loop {
            let busy = *self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = busy.map_or(Duration::ZERO, |busy| QUIET.saturating_sub(busy.elapsed()));
            if rest.is_zero() || daemon.is_leaving() {
                return;
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// A session ended; if it was in the pool it is no longer.
    pub(crate) fn lose(&self, id: &str) -> bool {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ready.len();
        ready.retain(|pooled| pooled.doc.id != id);
        ready.len() < before
    }
}

/// Whether a session with this specification looks like those in the pool.
fn fits(spec: &Spec) -> bool {
    let plain = Spec { life: spec.life, labels: spec.labels.clone(), ..Spec::default() };
    spec.profile == plain.profile
        && !spec.debugger
        && spec.limits == WantedLimits::default()
        && spec.home.is_none()
        && spec.outputs.is_none()
        && spec.skills.is_none()
        && spec.workspace.is_none()
        && spec.view.is_none()
}

impl Daemon {
    /// A session from the pool, if one fits.
    pub(crate) fn take_pooled(&self, spec: &Spec) -> Option<Pooled> {
        if !fits(spec) {
            return None;
        }
        let mut wanted = self.pool.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted.contains(&spec.life) {
            wanted.push(spec.life);
        }
        drop(wanted);
        let mut ready = self.pool.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let index = ready.iter().position(|pooled| pooled.doc.spec.life == spec.life)?;
        Some(ready.swap_remove(index))
    }

    /// Makes what is missing in the pool, when nothing else is to be done.
    pub(crate) fn fill_pool(self: &Arc<Self>) {
        *self.pool.busy.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let mut filling = self.pool.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if *filling || self.settings.pool == 0 {
            return;
        }
        *filling = true;
        drop(filling);
        tokio::spawn(fill(Arc::clone(self)));
    }
}

async fn fill(daemon: Arc<Daemon>) {
    loop {
        daemon.pool.quiet(&daemon).await;
        let wanted = daemon.pool.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let missing = {
            let ready = daemon.pool.ready.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.into_iter().find(|life| {
                let have = ready.iter().filter(|pooled| pooled.doc.spec.life == *life).count();
                have < daemon.settings.pool
            })
        };
        let made = match missing {
            Some(life) if !daemon.is_leaving() => prepare(&daemon, life).await,
            _ => None,
        };
        let Some(pooled) = made else { break };
        daemon.pool.ready.lock().unwrap_or_else(PoisonError::into_inner).push(pooled);
    }
    *daemon.pool.filling.lock().unwrap_or_else(PoisonError::into_inner) = false;
}

/// Makes one. What goes wrong here goes wrong again, and is told, when a session is asked for.
async fn prepare(daemon: &Arc<Daemon>, life: Life) -> Option<Pooled> {
    let spec = Spec { life, ..Spec::default() };
    let mut doc = daemon.new_doc(None, spec, Vec::new()).ok()?;
    let folder = daemon.folders.session(&doc.id);
    crate::folders::make(&folder).ok()?;
    std::fs::write(folder.join(MARK), "").ok()?;
    let plan = daemon.plan(&doc).ok()?;
    let Ok(made) = daemon.build(plan).await else {
        daemon.discard(&doc.id).await;
        return None;
    };
    doc.observe(&made.status);
    Some(Pooled { doc, made })
}
