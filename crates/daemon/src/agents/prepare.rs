//! A session is made ready for an agent, and the command that starts it is put together.

use super::SHOWN_AS;
use super::find::{self, Found, NotFound, Search};
use super::{inside, known, protocol, settings};
use crate::daemon::Daemon;
use crate::session::doc::{self, KeptGrant, Phase};
use crate::session::{Doc, Session};
use crate::trouble::Trouble;
use cowork_agents::{Agent, Choice, Install, Profile, Words};
use cowork_client::types::{
    self, Access, AgentOptions, AgentSource, AgentStep, AgentTask, Grant, NewGrant, PreparedAgent,
    Raw, WantedWrites,
};
use cowork_policy::plan;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A program as the session sees it.
struct Placed {
    /// Its path in the session.
    inside: PathBuf,
    /// Its path on the host, if it comes from there.
    host: Option<PathBuf>,
    /// A folder of programs that it starts, as the session sees it.
    helpers: Option<PathBuf>,
}

/// Where an agent works.
struct Work {
    /// The first of the user's folders.
    workspace: String,
    /// Where it is started.
    cwd: Raw,
}

impl Daemon {
    /// Gives a session what an agent needs, and says how it is started.
    pub(crate) async fn prepare_agent(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &str,
        options: &AgentOptions,
    ) -> Result<PreparedAgent, Trouble> {
        let agent = known::named(name)?;
        session.state().accepts_commands()?;
        let doc = session.doc();
        let Work { workspace, cwd } = self.work_folder(session, &doc, options.cwd.as_ref())?;
        let mut words = Words {
            home: doc.folder(),
            settings: format!("{}/mnt/{}/{}", doc.folder(), plan::ABOUT, settings::below(name)),
            workspace,
            ..Words::of_machine()
        };
        if options.step == AgentStep::Install {
            return self.prepare_install(session, &agent, &words).await;
        }
        let chosen = self.choose_secrets(session, &agent, options.secret.as_deref())?;
        let placed = self.place_program(session, &agent, options, &words).await?;
        let folder = placed.inside.parent().unwrap_or(Path::new("/"));
        words.program = folder.display().to_string();
        let secrets: Vec<String> = chosen.iter().map(|choice| choice.secret.clone()).collect();
        let data = json!({
            "agent": agent.name, "program": doc::raw(&placed.inside), "secrets": secrets,
        });
        self.book.record("agent.prepared", Some(&session.id), &data)?;
        self.connect_agent(session, &agent, &chosen).await?;
        let profile = profile_of(&doc);
        let about = self.folders.session(&session.id).join("about");
        let stand_ins = stand_ins(&session.doc(), &chosen)?;
        words.credential_end = stand_ins.first().map(end_of).unwrap_or_default();
        self.settle_agent(session, &agent, profile, &words).await?;
        if !about.join("COWORK.md").is_file() {
            crate::session::tell(self, &session.doc());
        }
        let additions = agent.additions(profile);
        let arguments = agent.arguments.iter().chain(&additions.arguments);
        let mut argv = vec![doc::raw(&placed.inside)];
        argv.extend(arguments.map(|argument| Raw::Text(words.put_into(argument))));
        let mut env = variables(&agent, profile, &words, placed.helpers.as_deref());
        env.extend(stand_ins);
        Ok(PreparedAgent {
            agent: agent.name.clone(),
            argv,
            env,
            cwd,
            program: placed.host.as_deref().map(doc::raw),
            secrets,
            task: agent.task.as_ref().map(|task| AgentTask {
                protocol: protocol(task.protocol),
                arguments: task.arguments.iter().map(|word| words.put_into(word)).collect(),
            }),
        })
    }

    /// The folder that an agent works in: the one that is wanted, or the first of the user's. It is
    /// in the one that was granted.
    fn work_folder(
        &self,
        session: &Session,
        doc: &Doc,
        wanted: Option<&Raw>,
    ) -> Result<Work, Trouble> {
        let folders = || doc.grants.iter().filter(|kept| kept.phase == Phase::Granted);
        let first = folders().find(|kept| !kept.grant.name.starts_with(SHOWN_AS));
        if let Some(kept) = first {
            self.check_granted(session, kept)?;
        }
        let workspace = first.map_or_else(|| doc.folder(), |kept| kept.grant.at.clone());
        let Some(wanted) = wanted else {
            return Ok(Work { cwd: Raw::Text(workspace.clone()), workspace });
        };
        let path = doc::path(wanted)?;
        let around = folders().filter(|kept| path.starts_with(&kept.grant.at));
        let Some(kept) = around.max_by_key(|kept| kept.grant.at.len()) else {
            if is_own(&path, doc) {
                return Ok(Work { workspace, cwd: wanted.clone() });
            }
            let sentence = format!("`{}` is in no folder that was granted", wanted.lossy());
            return Err(Trouble::refused("no-folder", sentence)
                .with_hint("name one as the session sees it: `cowork status` shows them"));
        };
        self.check_granted(session, kept)?;
        let below = path.strip_prefix(&kept.grant.at).unwrap_or(Path::new(""));
        let place = self.place(session, &kept.grant.name, below.as_os_str().as_bytes())?;
        // What is staged is not in the folder, and whoever starts the agent finds out.
        if kept.grant.access != Access::Staged {
            place.must_be_folder().map_err(|trouble| {
                let sentence = format!("`{}` is no folder to work in", wanted.lossy());
                Trouble::refused("no-folder", sentence).with_cause(trouble.line())
            })?;
        }
        Ok(Work { workspace, cwd: wanted.clone() })
    }

    /// Refuses a folder that is another one than the one that was granted.
    fn check_granted(&self, session: &Session, kept: &KeptGrant) -> Result<(), Trouble> {
        let Grant { name, path, .. } = &kept.grant;
        let same = self.place(session, name, b"");
        same.map(drop).map_err(|trouble| {
            let sentence = format!("`{}` is no longer the folder that was granted", path.lossy());
            let hint = format!("revoke it with `cowork revoke {} {name}`", session.id);
            Trouble::conflict("folder-changed", sentence).with_cause(trouble.line()).with_hint(hint)
        })
    }

    /// The command that installs an agent in a session, which may reach the registry from now on.
    async fn prepare_install(
        self: &Arc<Self>,
        session: &Arc<Session>,
        agent: &Agent,
        words: &Words,
    ) -> Result<PreparedAgent, Trouble> {
        let install = agent.install.as_ref().ok_or_else(|| {
            let sentence =
                format!("the definition of `{}` does not say how it is installed", agent.name);
            Trouble::refused("no-program", sentence)
                .with_hint("install it on this host, or name its program with `--program`")
        })?;
        if !["/usr/bin/npm", "/usr/local/bin/npm"].iter().any(|npm| std::fs::metadata(npm).is_ok())
        {
            let sentence = "there is no `npm` in the session's /usr to install it with";
            return Err(Trouble::refused("no-program", sentence)
                .with_hint("install node and npm on this host, in /usr"));
        }
        let argv = inside::command(agent, install, words);
        let data = json!({ "agent": agent.name, "install": install.wanted(words) });
        self.book.record("agent.prepared", Some(&session.id), &data)?;
        self.connect_presets(session, &[inside::REGISTRY.to_owned()]).await?;
        Ok(PreparedAgent {
            agent: agent.name.clone(),
            argv: argv.into_iter().map(Raw::Text).collect(),
            env: BTreeMap::new(),
            cwd: Raw::Text(words.home.clone()),
            program: None,
            secrets: Vec::new(),
            task: None,
        })
    }

    /// Finds the program, and lets the session see it.
    async fn place_program(
        self: &Arc<Self>,
        session: &Arc<Session>,
        agent: &Agent,
        options: &AgentOptions,
        words: &Words,
    ) -> Result<Placed, Trouble> {
        let why = match (&options.program, options.from) {
            (Some(program), _) => {
                let found = find::named(agent, &doc::path(program)?);
                let found = found.map_err(|why| no_program(agent, &why))?;
                return self.show_program(session, agent, found).await;
            }
            (None, AgentSource::Any) => {
                let path = options.path.as_ref().and_then(Raw::bytes).map(OsString::from_vec);
                let search = path.map_or_else(Search::of_daemon, |path| Search::along(Some(&path)));
                match find::on_host(agent, &search) {
                    Ok(found) => return self.show_program(session, agent, found).await,
                    Err(why) => why,
                }
            }
            (None, AgentSource::Session) => NotFound::Nowhere,
        };
        let installed =
            agent.install.as_ref().map(|install: &Install| inside::program(agent, install, words));
        let Some(installed) = installed else { return Err(no_program(agent, &why)) };
        if !self.succeeds(session, &["/usr/bin/test", "-x", &installed]).await? {
            return Err(no_program(agent, &why));
        }
        Ok(Placed { inside: installed.into(), host: None, helpers: None })
    }

    /// Lets a session see the folder that a program is in, and no other.
    async fn show_program(
        self: &Arc<Self>,
        session: &Arc<Session>,
        agent: &Agent,
        found: Found,
    ) -> Result<Placed, Trouble> {
        let Some(folder) = &found.shown else {
            let (inside, host) = (found.program.clone(), Some(found.program));
            return Ok(Placed { inside, host, helpers: None });
        };
        let name = format!("{SHOWN_AS}{}", agent.name);
        let path = doc::raw(folder);
        let known = session.doc().grants.into_iter().find(|kept| kept.grant.name == name);
        let same = known.as_ref().filter(|kept| {
            kept.grant.path == path
                && kept.phase == Phase::Granted
                && self.place(session, &name, b"").is_ok()
        });
        let at = if let Some(kept) = same {
            kept.grant.at.clone()
        } else {
            if known.is_some() {
                self.revoke(session, &name).await?;
            }
            let new = NewGrant {
                path,
                access: Access::Read,
                name: Some(name),
                // What npm keeps of a package is no place for keys, wherever it lies.
                force: folder.components().any(|part| part.as_os_str() == "node_modules"),
                direct: Vec::new(),
                writes: WantedWrites::default(),
                expires: None,
            };
            self.grant(session, &new, None).await.map_err(|trouble| unseen(trouble, agent))?.at
        };
        let within = |path: &Path| {
            let below = path.strip_prefix(folder).map_or(Path::new(""), |below| below);
            Path::new(&at).join(below)
        };
        Ok(Placed {
            inside: within(&found.program),
            helpers: found.helpers.as_deref().map(within),
            host: Some(found.program.clone()),
        })
    }
}

fn profile_of(doc: &Doc) -> Profile {
    match doc.spec.profile {
        types::Profile::Strict => Profile::Strict,
        types::Profile::Nested => Profile::Nested,
    }
}

/// Whether a path lies in the session's home and is not, or was not, one of the user's folders.
fn is_own(path: &Path, doc: &Doc) -> bool {
    let plain = path.components().all(|part| part != Component::ParentDir);
    let own = path.strip_prefix(doc.folder()).is_ok_and(|below| {
        let shared = ["mnt/outputs", "mnt/uploads"].iter().any(|place| below.starts_with(place));
        shared || !below.starts_with("mnt")
    });
    plain && own
}

/// What an agent's variables are.
fn variables(
    agent: &Agent,
    profile: Profile,
    words: &Words,
    helpers: Option<&Path>,
) -> BTreeMap<String, Raw> {
    let all = agent.environment.iter().chain(&agent.additions(profile).environment);
    let mut env: BTreeMap<String, Raw> =
        all.map(|(name, value)| (name.clone(), Raw::Text(words.put_into(value)))).collect();
    if let Some(helpers) = helpers {
        let path = [helpers.as_os_str().as_bytes(), plan::PATH.as_bytes()].join(&b':');
        env.entry("PATH".to_owned()).or_insert(Raw::new(path));
    }
    env
}

/// Variables that hold what stands for secrets.
fn stand_ins(doc: &Doc, chosen: &[&Choice]) -> Result<Vec<(String, Raw)>, Trouble> {
    let stand_in = |choice: &&Choice| {
        let placeholder = doc.network.placeholders.get(&choice.secret).cloned();
        let placeholder = placeholder.ok_or_else(|| {
            let sentence = format!("nothing stands for the secret `{}` yet", choice.secret);
            Trouble::conflict("no-egress", sentence).with_hint("try again")
        })?;
        Ok((choice.variable.clone(), Raw::Text(placeholder)))
    };
    chosen.iter().map(stand_in).collect()
}

/// The end of what stands for a secret, by which some agents know a credential.
fn end_of((_, stand_in): &(String, Raw)) -> String {
    let characters: Vec<char> = stand_in.lossy().chars().collect();
    characters.iter().skip(characters.len().saturating_sub(20)).collect()
}

/// A program whose folder is not for a session.
fn unseen(trouble: Trouble, agent: &Agent) -> Trouble {
    let install =
        agent.install.as_ref().map_or("", |_| ", or install it in the session: `--install`");
    let hint =
        format!("put the program into a folder of its own and name it: `--program`{install}");
    trouble.with_hint(hint)
}

fn no_program(agent: &Agent, why: &NotFound) -> Trouble {
    let sentence = match why {
        NotFound::Nowhere => format!("{} is not installed on this host", agent.title()),
        NotFound::NoProgram(path) => format!("`{}` is not a program", path.display()),
        NotFound::NoNode(path) => {
            format!("`{}` needs node, and sessions see none in /usr", path.display())
        }
    };
    let hint = match &agent.install {
        Some(install) => format!(
            "install it with `npm install --global {}`, or in the session alone with \
             `cowork agent {} --install`",
            install.npm, agent.name
        ),
        None => format!(
            "put `{}` on your PATH, or name it with `--program`",
            agent.program.names.join("` or `")
        ),
    };
    Trouble::refused("no-program", sentence).with_hint(hint)
}
