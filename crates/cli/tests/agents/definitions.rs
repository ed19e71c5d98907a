//! Agents by files of the user's, and what is said when something is missing.

use crate::for_everyone;
use crate::site::{REGISTRY, Site};
use cowork_testbed::Person;
use serde_json::Value;

for_everyone!(
    a_file_defines_an_agent,
    a_program_that_is_missing_is_said_with_the_way_to_get_it,
    a_credential_that_is_missing_is_said_with_the_command_that_stores_it,
    a_file_that_cannot_be_understood_is_listed_and_refused,
    the_default_session_is_used_where_it_has_the_folder,
    the_walls_are_the_ones_asked_for,
    one_is_installed_in_its_session_on_request,
);

/// An agent that is a script, in a folder of its own.
fn script(site: &Site, name: &str, more: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = site.folder.write(&format!("programs/{name}/{name}"), text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let link = site.folder.path().join("bin").join(name);
    drop(std::fs::remove_file(&link));
    std::os::unix::fs::symlink(&path, link).expect("the folder is ours");
    let file = format!("definitions/agents/{name}.toml");
    let text = format!(
        "name = '{name}'\nabout = 'A script'\narguments = ['first', '{{workspace}}']\n\
         [program]\nnames = ['{name}']\n{more}"
    );
    site.folder.write(&file, text);
}

fn a_file_defines_an_agent(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("defined", "input.txt", "text\n");
    let more = "[environment]\nSETTINGS = '{settings}/a/b.json'\n\
                [[file]]\npath = 'a/b.json'\ntext = '{\"home\": \"{home}\"}'\n\
                [network]\nhosts = ['api.anthropic.com']\n";
    let text = "#!/bin/sh\necho \"$@\"; pwd; cat \"$SETTINGS\"; echo; test -w \"$SETTINGS\" || echo fixed\n\
                cat input.txt \"$COWORK_HOME/COWORK.md\"; ls $(dirname $0)\n";
    script(&site, "defined", more, text);
    let said = site.say(&desk, &["agent", "defined", "--", "second"]).good();
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    let at = format!("/sessions/{id}/mnt/defined");
    for part in [
        format!("first {at} second\n{at}\n"),
        format!("{{\"home\": \"/sessions/{id}\"}}\nfixed\ntext\n"),
        format!("- `{at}`: you may change it, your workspace"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(said.ends_with("\ndefined\n"), "its folder has the program alone: {said}");
    let rules = site.say(&desk, &["net", "rules", id, "--json"]).good();
    assert!(rules.contains("api.anthropic.com"), "{rules}");
    // A program that has moved is seen where it is now.
    let moved = site.folder.write("programs/moved/defined", "");
    std::fs::copy(site.folder.path().join("programs/defined/defined"), &moved)
        .expect("it is there");
    let words = ["agent", "defined", "--program", moved.to_str().expect("UTF-8")];
    site.say(&desk, &words).good();
    assert_eq!(
        site.session_in(&desk)["grants"][1]["path"],
        moved.parent().expect("one").to_str().expect("UTF-8")
    );
}

fn a_program_that_is_missing_is_said_with_the_way_to_get_it(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("missing", "input.txt", "");
    site.tell(
        &desk,
        &["secret", "set", "gemini", "--host", "generativelanguage.googleapis.com"],
        "AIza-x",
    )
    .good();
    let said = site.say(&desk, &["gemini"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("Gemini CLI is not installed on this host"), "{}", said.err);
    assert!(said.err.contains("npm install --global @google/gemini-cli"), "{}", said.err);
    assert!(said.err.contains("cowork agent gemini --install"), "{}", said.err);
    let all = site.say(&desk, &["ls", "--json"]).good();
    assert!(!all.contains("/missing\""), "no session is left: {all}");
    let nothing = site.say(&desk, &["claude", "--program", "/etc/hostname"]);
    assert_ne!(nothing.code, 0);
}

fn a_credential_that_is_missing_is_said_with_the_command_that_stores_it(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("bare", "input.txt", "");
    let more = "[[credential]]\nsecret = 'unset'\nabout = 'a key'\nvariable = 'KEY'\n\
                hosts = ['api.openai.com']\n";
    script(&site, "bare", more, "#!/bin/sh\necho \"key=$KEY\"\n");
    let said = site.say(&desk, &["agent", "bare"]);
    assert_eq!(said.code, 125);
    let command = "cowork secret set unset --host api.openai.com --env KEY";
    assert!(said.err.contains(command), "{}", said.err);
    script(&site, "bare", &format!("{more}optional = true\n"), "#!/bin/sh\necho \"key=$KEY\"\n");
    assert_eq!(site.say(&desk, &["agent", "bare"]).good(), "key=\n");
    site.tell(
        &desk,
        &["secret", "set", "unset", "--host", "api.openai.com"],
        "sk-4f6b2a9c7d1e8f3059ab",
    )
    .good();
    let said = site.say(&desk, &["agent", "bare"]).good();
    assert!(said.starts_with("key=sk-") && !said.contains("4f6b2a9c7d"), "{said}");
    site.say(&desk, &["secret", "rm", "unset"]).good();
}

fn a_file_that_cannot_be_understood_is_listed_and_refused(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("wrong", "input.txt", "");
    site.folder
        .write("definitions/agents/wrong.toml", "name = 'wrong'\nabout = 'x'\nshell = 'sh'\n");
    let said = site.say(&desk, &["agents", "--json"]).good();
    let all: Value = serde_json::from_str(&said).expect("it is JSON");
    let wrong = all.as_array().expect("a list").iter().find(|agent| agent["name"] == "wrong");
    let problem = wrong.expect("it is listed")["problem"].as_str().expect("a sentence");
    assert!(problem.starts_with("line 3: ") && problem.contains("shell"), "{problem}");
    let table = site.say(&desk, &["agents"]).good();
    assert!(table.contains("claude") && table.contains("unusable"), "{table}");
    let said = site.say(&desk, &["agent", "wrong"]);
    assert!(said.code == 125 && said.err.contains("wrong.toml"), "{}", said.err);
    let said = site.say(&desk, &["agent", "nobody"]);
    assert!(said.code == 125 && said.err.contains("there is no agent `nobody`"), "{}", said.err);
}

fn the_default_session_is_used_where_it_has_the_folder(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("space", "below/input.txt", "");
    script(&site, "plain", "", "#!/bin/sh\npwd; echo $COWORK_SESSION\n");
    site.say(&desk, &["init", "--workspace", desk.to_str().expect("UTF-8")]).good();
    let said = site.say(&desk.join("below"), &["agent", "plain"]).good();
    assert_eq!(said, "/sessions/default/mnt/workspace/below\ndefault\n");
    site.say(&desk, &["delete"]).good();
    let said = site.say(&desk, &["agent", "plain"]).good();
    assert!(!said.contains("default"), "{said}");
}

fn the_walls_are_the_ones_asked_for(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("walls", "input.txt", "");
    let more = "[strict]\narguments = ['no-sandbox']\n[nested]\narguments = ['sandbox']\n";
    script(&site, "walled", more, "#!/bin/sh\necho \"$3\"\n");
    assert_eq!(site.say(&desk, &["agent", "walled"]).good(), "no-sandbox\n");
    let nested = site.say(&desk, &["agent", "walled", "--nested"]);
    assert!(nested.err.contains("cannot be undone"), "{}", nested.err);
    assert_eq!(nested.good(), "sandbox\n");
    let staged = site.say(&desk, &["agent", "walled", "--nested", "--staged", "--new"]);
    assert!(staged.err.contains("cowork apply"), "{}", staged.err);
    assert_eq!(staged.good(), "sandbox\n");
}

fn one_is_installed_in_its_session_on_request(person: Person) {
    let site = Site::of(person);
    let desk = site.desk("installed", "input.txt", "text\n");
    let text = "#!/bin/sh\necho \"installed at $0\"; cat input.txt\n";
    site.publish("tiny-agent", "bin/tiny", text);
    let definition = "name = 'tiny'\nabout = 'A tiny agent'\n[program]\nnames = ['tiny-of-tests']\n\
                      [install]\nnpm = 'tiny-agent'\nversion = '^1'\nprogram = 'bin/tiny'\n";
    site.folder.write("definitions/agents/tiny.toml", definition);
    let missing = site.say(&desk, &["agent", "tiny"]);
    assert!(missing.code != 0 && missing.err.contains("--install"), "{}", missing.err);
    let said = site.say(&desk, &["agent", "tiny", "--install"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    let at = format!("/sessions/{id}/.agents/tiny/node_modules/tiny-agent/bin/tiny");
    assert!(said.out.ends_with(&format!("installed at {at}\ntext\n")), "{}", said.out);
    // It came through the session's own way out, and is there the next time.
    let reached = site.say(&desk, &["net", id, "--json"]).good();
    assert!(reached.contains(REGISTRY), "{reached}");
    let again = site.say(&desk, &["agent", "tiny"]).good();
    assert!(again.contains(&at), "{again}");
    // Nothing of it is on the host's search path or in the user's folder.
    let left: Vec<_> = std::fs::read_dir(&desk).expect("it is ours").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
