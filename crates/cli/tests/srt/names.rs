//! Names that nobody may write, wherever they are.

use crate::desk::{Desk, files};
use crate::for_everyone;
use cowork_testbed::Person;
use std::process::Command;

for_everyone!(
    mandatory_names_are_denied_at_any_depth_and_leave_nothing,
    repositories_keep_their_hooks_and_configuration,
    a_repository_made_inside_works_and_has_no_hooks,
    the_configuration_of_git_can_be_allowed,
    a_file_that_leads_to_a_repository_is_kept,
    a_killed_command_leaves_nothing,
);

fn mandatory_names_are_denied_at_any_depth_and_leave_nothing(person: Person) {
    let desk = Desk::new(person, "mandatory");
    desk.folder.write(".bashrc", "mine");
    desk.folder.write("a/b/c/d/e/f/keep", "");
    let before = desk.listing();
    let script = r#"
        for folder in . a a/b/c/d/e/f new/deep; do
            mkdir -p $folder
            for name in .gitconfig .gitmodules .bashrc .bash_profile .zshrc .zprofile .profile \
                        .ripgreprc .mcp.json .BASHRC; do
                (echo x > $folder/$name) 2>/dev/null && echo "wrote $folder/$name"
            done
            for name in .vscode .idea .claude/commands .claude/agents; do
                mkdir -p $folder/$name 2>/dev/null && echo "made $folder/$name"
            done
        done
        rm -f .bashrc 2>/dev/null; mv .bashrc other 2>/dev/null; ln .bashrc hard 2>/dev/null
        echo fine > file; mv file .zshrc 2>/dev/null; ln -s /etc/passwd .profile 2>/dev/null
        true"#;
    let ran = desk.script(&files(&[], &["."], &[]), script);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let new: Vec<String> = desk.listing().difference(&before).cloned().collect();
    let made = [
        ".claude",
        "a/.claude",
        "a/b/c/d/e/f/.claude",
        "file",
        "new",
        "new/deep",
        "new/deep/.claude",
    ];
    assert_eq!(new, made, "{ran:?}");
    assert_eq!(desk.folder.read(".bashrc").as_deref(), Some("mine"));
}

fn git(desk: &Desk, arguments: &[&str]) {
    let mut command: Command = desk.person.command("git");
    let output = command.current_dir(desk.here()).args(arguments).output().expect("it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const IDENTITY: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example GIT_COMMITTER_NAME=a \
                        GIT_COMMITTER_EMAIL=a@example; ";

fn repositories_keep_their_hooks_and_configuration(person: Person) {
    let desk = Desk::new(person, "repository");
    git(&desk, &["init", "-q", "."]);
    git(&desk, &["init", "-q", "a/b/c/d/nested"]);
    let configuration = desk.folder.read(".git/config");
    let script = format!(
        "{IDENTITY} for r in . a/b/c/d/nested; do \
         (echo x > $r/.git/hooks/pre-commit) 2>/dev/null && echo hook; \
         git -C $r config core.hooksPath /tmp 2>/dev/null && echo config; \
         (echo x >> $r/.git/config) 2>/dev/null && echo appended; done; \
         echo text > file && git add file && git commit -q -m first && git log --oneline | wc -l"
    );
    let ran = desk.script(&files(&[], &["."], &[]), &script);
    assert_eq!(ran.good(), "1\n");
    assert_eq!(desk.folder.read(".git/config"), configuration);
    assert_eq!(desk.folder.read(".git/hooks/pre-commit"), None);
}

fn a_repository_made_inside_works_and_has_no_hooks(person: Person) {
    let desk = Desk::new(person, "inside");
    let script = format!(
        "{IDENTITY} set -e; git init -q sub; cd sub; echo text > file; git add file; \
         git commit -q -m first; git log --oneline | wc -l; set +e; \
         (echo x > .git/hooks/pre-commit) 2>/dev/null && echo hook; \
         mv .git/hooks/pre-commit.sample .git/hooks/pre-commit 2>/dev/null && echo moved; \
         git clone -q . ../copy && ls ../copy"
    );
    let ran = desk.script(&files(&[], &["."], &[]), &script);
    let lines: Vec<&str> = ran.out.split_whitespace().collect();
    assert_eq!((ran.code, lines.as_slice()), (0, &["1", "file"][..]), "{ran:?}");
    assert_eq!(desk.folder.read("sub/.git/hooks/pre-commit"), None);
}

fn the_configuration_of_git_can_be_allowed(person: Person) {
    let desk = Desk::new(person, "configuration");
    git(&desk, &["init", "-q", "."]);
    let mut settings = files(&[], &["."], &[]);
    settings["filesystem"]["allowGitConfig"] = true.into();
    let script = "git config remote.origin.url https://example.com/x && \
                  ! (echo x > .git/hooks/pre-push) 2>/dev/null && git config remote.origin.url";
    assert_eq!(desk.script(&settings, script).good(), "https://example.com/x\n");
}

/// `.git` is a file in worktrees and submodules. `allowGitConfig` is about configurations alone.
fn a_file_that_leads_to_a_repository_is_kept(person: Person) {
    let desk = Desk::new(person, "pointer");
    git(&desk, &["init", "-q", "."]);
    let text = "gitdir: ../../.git/modules/sub\n";
    desk.folder.write("deep/sub/.git", text);
    let script = "cd deep/sub; for change in 'echo x > .git' 'echo x >> .git' 'rm -f .git' \
                  'mv .git other' 'ln .git other' 'echo x > new && mv -f new .git'; do \
                  (eval \"$change\") 2>/dev/null && echo \"did: $change\"; done; \
                  (echo x >> ../../.git/config) 2>/dev/null && echo configured; true";
    let mut settings = files(&[], &["."], &[]);
    assert_eq!(desk.script(&settings, script).good(), "");
    assert_eq!(desk.folder.read("deep/sub/.git").as_deref(), Some(text));
    settings["filesystem"]["allowGitConfig"] = true.into();
    assert_eq!(desk.script(&settings, script).good(), "configured\n");
    assert_eq!(desk.folder.read("deep/sub/.git").as_deref(), Some(text));
}

fn a_killed_command_leaves_nothing(person: Person) {
    let desk = Desk::new(person, "killed");
    git(&desk, &["init", "-q", "."]);
    desk.folder.write("a/b/keep", "");
    let before = desk.listing();
    let path = desk.settings(&files(&[], &["."], &["later"]));
    let mut command = desk.srt(&["-s", &path, "-c", "echo started; sleep 600"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("it says");
    assert_eq!(line, "started\n");
    assert_eq!(desk.listing(), before, "nothing is put there while it runs");
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert_eq!(desk.listing(), before);
}
