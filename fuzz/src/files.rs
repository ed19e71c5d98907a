//! Rules about names: what is understood is judged in one way however the path is spelled, and the
//! index of a judge changes nothing.

use crate::Reached;
use cowork_api::files::{NamePolicy, NameRule, Rules};
use cowork_policy::files::pattern::{MAX_PARTS, MAX_PATTERN};
use cowork_policy::files::{Contents, Judge, Pattern, Verdict, blocked_magic, ending, runs_here};

/// A pattern and a path, divided by the first zero byte.
pub fn files(input: &[u8]) -> Reached {
    let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (text, path) = input.split_at(at);
    let path = path.get(1..).unwrap_or_default();
    let more = |at: u64, buffer: &mut [u8]| {
        let rest = usize::try_from(at).ok().and_then(|at| path.get(at..)).unwrap_or_default();
        let pairs = buffer.iter_mut().zip(rest);
        pairs.map(|(to, from)| *to = *from).count()
    };
    let magic = blocked_magic(&Contents::new(path, path.len() as u64, &more));
    let contents = (magic.map(|magic| magic.reason), runs_here(text, 0o644, path));
    let Ok(text) = str::from_utf8(text) else { return Reached::by(&contents) };
    if let Ok(ending) = ending(text) {
        assert!(ending.len() <= 32 && ending == ending.to_ascii_lowercase(), "{ending}");
    }
    let pattern = text.parse::<Pattern>();
    match &pattern {
        Ok(pattern) => {
            assert!(text.len() <= MAX_PATTERN && text.matches('/').count() <= MAX_PARTS + 1);
            judged(text, pattern, path);
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(
                !sentence.is_empty() && !sentence.chars().any(char::is_control),
                "{sentence:?}"
            );
            assert_eq!(judge(text).name(path).policy, NamePolicy::Deny, "it covers everything");
        }
    }
    Reached::by(&pattern).and(Reached::by(&contents))
}

fn judge(text: &str) -> Judge {
    let rule = NameRule {
        pattern: text.to_owned(),
        policy: NamePolicy::Deny,
        reason: "it is tried".to_owned(),
    };
    Judge::new(&Rules { names: vec![rule], ..Rules::default() })
}

fn judged(text: &str, pattern: &Pattern, path: &[u8]) {
    let judge = judge(text);
    let covered = pattern.matches(path);
    let denied = |verdict: Verdict<'_>| verdict.policy == NamePolicy::Deny;
    assert_eq!(denied(judge.name(path)), covered, "the index changes the verdict");
    assert!(!covered || denied(judge.link(path)), "a link is judged milder than a file");
    assert_eq!(judge.may_cover(path), denied(judge.link(path)));
    let spelled = path.to_ascii_uppercase();
    assert_eq!(pattern.matches(&spelled), covered, "case matters");
    let slashes = [b"//", path, b"/./"].concat();
    assert_eq!(pattern.matches(&slashes), covered, "slashes matter");
    let below = [path, b"/below"].concat();
    assert!(!covered || pattern.matches(&below), "what lies below is not covered");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let pairs = [
        (".git/hooks/!*.sample", ".git/hooks/pre-commit"),
        ("*.git/config", "GIT~1/config"),
        (".git/modules/**/hooks/**", ".git/modules/a/b/hooks/x"),
        ("/a/*/c", "a/b/c/d"),
        ("[a-z]x[!0-9]?", "bxé日"),
        (r"\*\[\!", "*[!"),
        ("a*b*c", "axxbxxc"),
        (".\u{FB01}sh", ".F\u{200C}ISH."),
        ("**", "x"),
        ("!a", "MZ\u{1}"),
        ("[z-a]", "#!/bin/sh"),
        ("a//b", "xar!"),
        ("config", "[core]\nhookspath = x"),
        ("exe", "x.exe::$DATA"),
    ];
    pairs.iter().map(|(text, path)| [text.as_bytes(), b"\0", path.as_bytes()].concat()).collect()
}
