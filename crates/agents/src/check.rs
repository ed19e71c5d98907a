//! What a value of a definition must be like, each with the sentence for one that is not.

/// Longest text for people, in bytes.
const MAX_ABOUT: usize = 200;
/// Longest name of an agent.
const MAX_NAME: usize = 32;
/// Longest path, package or secret's name.
const MAX_WORD: usize = 256;

/// What is wrong with a value, after its key.
pub(crate) type Wrong = Result<(), &'static str>;

/// The name of an agent: a word that is part of paths, labels and commands.
pub(crate) fn name(text: &str) -> Wrong {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && text.len() <= MAX_NAME && text.split('-').all(word) {
        Ok(())
    } else {
        Err(
            "must be lowercase letters and digits, in words joined by hyphens, at most 32 characters",
        )
    }
}

/// A line for people.
pub(crate) fn about(text: &str) -> Wrong {
    let good = !text.trim().is_empty() && text.len() <= MAX_ABOUT;
    if good && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        Err("must be a line of at most 200 characters")
    }
}

/// The name of a program.
pub(crate) fn program(text: &str) -> Wrong {
    let good = !text.is_empty() && text.len() <= MAX_WORD && !matches!(text, "." | "..");
    if good && !text.contains(['/', '\0']) {
        Ok(())
    } else {
        Err("must be the name of a program, without a folder")
    }
}

/// A folder of the host.
pub(crate) fn place(text: &str) -> Wrong {
    let rooted = text.starts_with("~/") || text.starts_with('/');
    let good = rooted && text.len() <= MAX_WORD && !text.contains('\0');
    if good && !text.split('/').any(|part| part == "..") {
        Ok(())
    } else {
        Err("must start with `/` or `~/`")
    }
}

/// A path below some folder.
pub(crate) fn below(text: &str) -> Wrong {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    let good = text.len() <= MAX_WORD && !text.contains('\0');
    if good && text.split('/').all(part) {
        Ok(())
    } else {
        Err("must be a path without `..` that does not start with `/`")
    }
}

/// A package of the npm registry.
pub(crate) fn package(text: &str) -> Wrong {
    let word = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '{' | '}');
        word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(plain)
    };
    let good = match text.strip_prefix('@') {
        Some(scoped) => {
            scoped.split_once('/').is_some_and(|(scope, name)| word(scope) && word(name))
        }
        None => word(text),
    };
    if good && text.len() <= MAX_WORD {
        Ok(())
    } else {
        Err("must be a package of npm's, e.g. `@scope/name`")
    }
}

/// A version, or a range of them.
pub(crate) fn version(text: &str) -> Wrong {
    let plain = |c: char| c.is_ascii_alphanumeric() || "^~.*-+".contains(c);
    let good = !text.is_empty() && text.len() <= MAX_WORD && !text.starts_with('-');
    if good && text.chars().all(plain) {
        Ok(())
    } else {
        Err("must be a version as npm writes it, e.g. `^2`")
    }
}

/// What npm is asked for in place of a version.
pub(crate) fn source(text: &str) -> Wrong {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@/^~.*-+_{}".contains(c);
    let good = text.strip_prefix("npm:").is_some_and(|rest| rest.chars().all(plain));
    if good && text.len() <= MAX_WORD {
        Ok(())
    } else {
        Err("must start with `npm:`, e.g. `npm:@scope/name@1`")
    }
}

/// The name of a variable.
pub(crate) fn variable(text: &str) -> Wrong {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let good = starts && text.len() <= MAX_WORD;
    if good && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(())
    } else {
        Err("must be the name of a variable: letters, digits and underscores")
    }
}

/// An argument, or the value of a variable.
pub(crate) fn value(text: &str) -> Wrong {
    if !text.contains('\0') && text.len() <= 4096 {
        Ok(())
    } else {
        Err("must be at most 4096 bytes without a NUL")
    }
}

/// The name of a secret.
pub(crate) fn secret(text: &str) -> Wrong {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.is_empty() && text.len() <= 64 && text.chars().all(plain) {
        Ok(())
    } else {
        Err("must be at most 64 letters, digits, dots, hyphens and underscores")
    }
}

/// A host of a rule, or the name of a preset; what else it must be the rules know.
pub(crate) fn host(text: &str) -> Wrong {
    let good = !text.is_empty() && text.len() <= 300;
    if good && !text.chars().any(|c| c.is_control() || c == ' ') {
        Ok(())
    } else {
        Err("must be a host")
    }
}
