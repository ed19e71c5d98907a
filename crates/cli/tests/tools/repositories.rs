//! Git: everything that people and agents do with a repository.

use crate::for_everyone;
use crate::scenario::Scenario;
use cowork_testbed::Person;

for_everyone!(a_new_repository, history, branches, upkeep, worktrees, clones_and_submodules);

/// Who and when, so that two runs make the same commits.
const WHO: &str = "
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
    export GIT_CONFIG_COUNT=4 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
    export GIT_CONFIG_KEY_1=init.defaultBranch GIT_CONFIG_VALUE_1=main
    export GIT_CONFIG_KEY_2=pack.threads GIT_CONFIG_VALUE_2=1
    export GIT_CONFIG_KEY_3=protocol.file.allow GIT_CONFIG_VALUE_3=always
";

/// A repository with two branches and thirty files.
const REPOSITORY: &str = "
    git init -q .; mkdir src; for n in $(seq 30); do echo file $n > src/$n; done
    git add .; git commit -qm first; echo more >> src/1; git commit -qam second
    git checkout -q -b topic HEAD~1; echo topic > src/2; git commit -qam topic; git checkout -q main
";

/// What holds the times and inodes of files, whoever made it: of the repository and of every worktree,
/// submodule and clone.
const INDEXES: &[&str] = &["*/index"];

/// Objects are made younger by chance.
const OBJECTS: &[&str] = &["/objects"];

fn check(person: Person, before: &str, script: &str) {
    check_but(person, before, script, &[]);
}

/// The same, with commands that are meant to fail.
fn check_but(person: Person, before: &str, script: &str, fails: &[&str]) {
    let before = &format!("{WHO}{before}");
    let script = &format!("{WHO}{script}");
    let (any_contents, any_times) = (INDEXES, OBJECTS);
    Scenario { before, script, any_contents, any_times, fails, ..Scenario::default() }
        .check(person);
}

fn a_new_repository(person: Person) {
    let script = "
        git init -q .; git config user.name x; git add .; git commit -qm first; git log --oneline | wc -l
        echo y >> x; git diff --stat; git add -p < /dev/null > /dev/null; git commit -qam second
        git tag v1; git status --porcelain; git fsck --no-dangling && echo sound
    ";
    check(person, "echo x > x; mkdir d; echo z > d/z", script);
}

fn history(person: Person) {
    let script = "
        git rebase -q main topic && git log --oneline | wc -l; git reset -q --hard HEAD~1
        git cherry-pick main >/dev/null 2>&1; echo $?; git cherry-pick --abort 2>/dev/null
        git revert --no-edit HEAD >/dev/null; git commit -q --amend -m amended
        git mv src/3 src/three; git rm -q src/4; git commit -qm moved; git show --stat | tail -2
        git bisect start -q HEAD HEAD~2 >/dev/null 2>&1; git bisect reset >/dev/null 2>&1
        git status --porcelain | wc -l
    ";
    check_but(person, REPOSITORY, script, &["git cherry-pick main"]);
}

fn branches(person: Person) {
    let script = "
        git merge -q --no-edit topic; echo $?; git checkout -q topic; git checkout -q main
        echo dirty >> src/5; git stash -q; git stash pop -q; git checkout -q -- src/5
        git branch -m topic other; git branch -D other -q; git switch -q -c third
        echo conflict > src/1; git commit -qam c1; git checkout -q main; echo other > src/1
        git commit -qam c2; git merge third >/dev/null 2>&1; echo $?; git merge --abort
        git clean -fdq; git restore --source HEAD~1 src/6; git diff --quiet; echo $?
        git apply <<'END' ; echo $?
--- a/src/7
+++ b/src/7
@@ -1 +1 @@
-file 7
+applied
END
        git grep -c file | wc -l
    ";
    check_but(person, REPOSITORY, script, &["git merge third"]);
}

fn upkeep(person: Person) {
    let script = "
        git gc -q --prune=now; git repack -adq; git pack-refs --all; git prune; git fsck && echo sound
        git reflog expire --expire=now --all; git count-objects -v | grep '^count'
        git log --all --oneline | sort | wc -l
    ";
    let before = format!(
        "{REPOSITORY} for n in $(seq 40); do echo $n > src/n; git add src/n; git commit -qm $n; done"
    );
    check(person, &before, script);
}

fn worktrees(person: Person) {
    let script = "
        git worktree add -q wt topic; echo w > wt/w; git -C wt add w; git -C wt commit -qm w
        git worktree list | wc -l; git worktree move wt wt2; git -C wt2 status --porcelain | wc -l
        git worktree add -q -b gone wt3; git worktree remove --force wt3; git worktree prune
        git worktree list | wc -l; echo dirty >> wt2/src/5; git -C wt2 status --porcelain
    ";
    check(person, REPOSITORY, script);
}

fn clones_and_submodules(person: Person) {
    let script = "
        git clone -q . c1; git clone -q --no-hardlinks . c2; git -C c2 log --oneline | wc -l
        git clone -q --bare . /tmp/up.git; echo c2/ >> .git/info/exclude
        git submodule -q add /tmp/up.git sub 2>/dev/null; git commit -qm sub; git submodule status | wc -l
        git -C sub checkout -q topic; echo s > sub/s; git -C sub add s; git -C sub commit -qm s
        git submodule -q add /tmp/up.git gone 2>/dev/null; git submodule -q deinit -f gone
        git rm -qf gone; rm -rf .git/modules/gone; git submodule update -q; git status --porcelain
        git -C c1 pull -q >/dev/null 2>&1; git -C c2 checkout -q -b own; echo c > c2/src/1
        git -C c2 commit -qam own; git -C c1 log --oneline | wc -l; git -C c2 fsck && echo sound
    ";
    check(person, REPOSITORY, script);
}
