//! The agents that are known without a file of the user's.

use crate::{Agent, parse};

/// The definitions, as they could be written by anybody.
const DEFINITIONS: [&str; 4] = [
    include_str!("built_in/claude.toml"),
    include_str!("built_in/codex.toml"),
    include_str!("built_in/gemini.toml"),
    include_str!("built_in/opencode.toml"),
];

/// The agents that are known without a file of the user's.
pub fn built_in() -> Vec<Agent> {
    DEFINITIONS.iter().filter_map(|text| parse(text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{DEFINITIONS, built_in};
    use crate::{Profile, parse};

    #[test]
    fn every_definition_can_be_understood() {
        for text in DEFINITIONS {
            let parsed = parse(text);
            assert!(parsed.is_ok(), "{:?}", parsed.err());
        }
        let names: Vec<String> = built_in().into_iter().map(|agent| agent.name).collect();
        assert_eq!(names, ["claude", "codex", "gemini", "opencode"]);
    }

    #[test]
    fn all_of_them_are_strict_and_prove_themselves_by_a_secret() {
        for agent in built_in() {
            assert_eq!(agent.profile, Profile::Strict, "{}", agent.name);
            assert!(!agent.credentials.is_empty(), "{}", agent.name);
            assert!(agent.task.is_some() && agent.install.is_some(), "{}", agent.name);
        }
    }

    /// What switches an agent's own sandbox off is for strict walls alone.
    #[test]
    fn the_own_sandbox_of_an_agent_is_off_in_strict_sessions_alone() {
        for (name, off) in [
            ("claude", r#""sandbox": { "enabled": false }"#),
            ("codex", "danger-full-access"),
            ("gemini", r#""tools": { "sandbox": false }"#),
        ] {
            let agent = built_in().into_iter().find(|agent| agent.name == name).unwrap();
            let said = |profile| {
                let additions = agent.additions(profile);
                let files = agent
                    .files
                    .iter()
                    .filter(|file| file.profile.is_none_or(|only| only == profile));
                let mut all: Vec<String> = files.map(|file| file.text.clone()).collect();
                all.extend(agent.arguments.iter().chain(&additions.arguments).cloned());
                let variables = agent.environment.iter().chain(&additions.environment);
                all.extend(variables.map(|(name, value)| format!("{name}={value}")));
                all.join("\n")
            };
            assert!(said(Profile::Strict).contains(off), "{name}");
            let nested = said(Profile::Nested);
            assert!(
                !nested.contains(off) && !nested.contains("GEMINI_SANDBOX"),
                "{name}: {nested}"
            );
            // The rest of the files is there with both.
            let both = ["GEMINI_CLI_TRUST_WORKSPACE", "enableAutoUpdate"];
            assert!(name != "gemini" || both.iter().all(|part| nested.contains(part)), "{nested}");
        }
    }

    #[test]
    fn the_example_for_users_is_a_definition() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
        let text = std::fs::read_to_string(path).unwrap();
        let example = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let agent = parse(example).unwrap();
        assert_eq!((agent.name.as_str(), agent.credentials[0].choices.len()), ("reviewer", 2));
    }
}
