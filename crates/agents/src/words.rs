//! Words in braces that stand for something of the session, or of the machine.

/// What `{home}`, `{settings}`, `{workspace}`, `{program}`, `{credential-end}`, `{arch}` and
/// `{machine}` stand for. Other braces are left as they are: JSON has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The session's home, as the session sees it.
    pub home: String,
    /// The folder of the agent's settings, likewise.
    pub settings: String,
    /// The folder that the agent works in, likewise.
    pub workspace: String,
    /// The folder that the program is in, likewise.
    pub program: String,
    /// The last 20 characters of what stands for the agent's first secret: some agents know a
    /// credential by them.
    pub credential_end: String,
    /// The machine as npm calls it: `x64`, `arm64`.
    pub arch: String,
    /// The machine as compilers call it: `x86_64`, `aarch64`.
    pub machine: String,
}

impl Words {
    /// What is known of the machine that this was built for, and nothing of a session.
    pub fn of_machine() -> Self {
        let machine = std::env::consts::ARCH;
        let arch = match machine {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { arch: arch.to_owned(), machine: machine.to_owned(), ..Self::default() }
    }

    /// A text with every word replaced. What is put in is not looked at again.
    pub fn put_into(&self, text: &str) -> String {
        let known = [
            ("{home}", &self.home),
            ("{settings}", &self.settings),
            ("{workspace}", &self.workspace),
            ("{program}", &self.program),
            ("{credential-end}", &self.credential_end),
            ("{arch}", &self.arch),
            ("{machine}", &self.machine),
        ];
        let (mut done, mut rest) = (String::new(), text);
        while let Some((before, at_brace)) =
            rest.find('{').and_then(|brace| rest.split_at_checked(brace))
        {
            done.push_str(before);
            let found = known.iter().find(|(word, _)| at_brace.starts_with(word));
            let (word, value) = found.map_or(("{", "{"), |(word, value)| (*word, value.as_str()));
            done.push_str(value);
            rest = at_brace.strip_prefix(word).unwrap_or_default();
        }
        done.push_str(rest);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn words_are_replaced_and_braces_stay() {
        let words = Words { home: "/h".into(), settings: "{home}".into(), ..Words::default() };
        assert_eq!(
            words.put_into("{home}/a {\"b\": {}} {home}{other}{"),
            "/h/a {\"b\": {}} /h{other}{"
        );
        assert_eq!(words.put_into("{settings}"), "{home}", "what is put in is not looked at again");
    }
}
