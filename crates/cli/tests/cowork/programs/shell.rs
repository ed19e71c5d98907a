//! Shells, repositories, archives and editors.

use crate::support::{for_everyone, listing, need, owner, script};
use cowork_testbed::{Folder, Person};

for_everyone!(bash, git, tar_of_ten_thousand_files, vim_without_a_screen);

fn bash(person: Person) {
    let work = Folder::new(person, "work");
    work.write("in/a.txt", "apple\n");
    let said = script(
        person,
        work.path(),
        &[],
        r#"
        mkdir out
        for i in {1..20}; do echo "$i" > "out/$i"; done
        sort -n <(cat out/*) | tail -1
        cat in/a.txt | tr a-z A-Z | tee >(cat > out/upper)
        until [ -s out/upper ]; do sleep 0.05; done
        read -r first <<< "one two"; echo "$first"
        mv out/1 out/one; rm out/2; ln -s one out/link; ln out/3 out/three; chmod 750 out/4
        trap 'echo bye > out/bye' EXIT
        "#,
    );
    assert_eq!(said.good(), "20\nAPPLE\none two\n");
    assert_eq!(work.read("out/upper").as_deref(), Some("APPLE\n"));
    assert_eq!(work.read("out/link").as_deref(), Some("1\n"));
    assert_eq!(work.read("out/three").as_deref(), Some("3\n"));
    assert_eq!(work.read("out/bye").as_deref(), Some("bye\n"));
    assert_eq!(work.read("out/2"), None);
    assert_eq!(listing(&work.path().join("out")).len(), 20 + 3 + 1 - 1);
    // What the session makes belongs to whoever granted the folder.
    assert_eq!(owner(&work.path().join("out/bye")), (person.uid(), person.uid()));
}

fn git(person: Person) {
    need("git", "git");
    let work = Folder::new(person, "work");
    let said = script(
        person,
        work.path(),
        &[],
        r"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main repo && cd repo
        echo one > a; git add a; git commit -qm one
        git checkout -qb topic; echo topic > b; git add b; git commit -qm topic
        git checkout -q main; echo two >> a; git commit -qam two
        git checkout -q topic; git rebase -q main
        git checkout -q -b side main~1; echo side > c; git add c; git commit -qm side
        git checkout -q main; git merge -q --no-edit topic; git merge -q --no-edit side
        git gc -q --prune=now
        git clone -q . ../clone
        git status --porcelain
        git log --format=%s | sort | tr '\n' ' '
        git -C ../clone fsck --strict --no-dangling --no-progress
        ",
    );
    assert_eq!(said.good(), "Merge branch 'side' one side topic two ");
    assert_eq!(work.read("clone/a").as_deref(), Some("one\ntwo\n"));
    assert_eq!(work.read("clone/b").as_deref(), Some("topic\n"));
    assert_eq!(work.read("clone/c").as_deref(), Some("side\n"));
    // The host's own git takes the repository for what it is.
    let mut git = person.command("git");
    git.current_dir(work.path().join("repo")).args(["log", "--oneline", "--first-parent"]);
    let seen = crate::support::finish(git, Vec::new());
    assert_eq!(seen.good().lines().count(), 4, "{seen:?}");
}

fn tar_of_ten_thousand_files(person: Person) {
    need("tar", "tar");
    let work = Folder::new(person, "work");
    let said = script(
        person,
        work.path(),
        &[],
        r"
        mkdir -p from/{0..99}
        for d in {0..99}; do for f in {0..99}; do echo $d.$f > from/$d/$f; done; done
        tar -czf all.tar.gz from
        mkdir to; tar -xzf all.tar.gz -C to
        diff -r from to/from && echo same
        ",
    );
    assert_eq!(said.good(), "same\n");
    assert_eq!(listing(&work.path().join("to/from")).len(), 10_000 + 100);
    assert_eq!(work.read("to/from/57/42").as_deref(), Some("57.42\n"));
}

fn vim_without_a_screen(person: Person) {
    need("vim", "vim");
    let work = Folder::new(person, "work");
    work.write("text", "the old word\n");
    let said = script(person, work.path(), &[], "vim -es -u NONE -c '%s/old/new/' -c 'wq' text");
    assert_eq!(said.good(), "");
    assert_eq!(work.read("text").as_deref(), Some("the new word\n"));
    assert_eq!(listing(work.path()).len(), 1, "no swap file stays");
}
