//! What stands in the way of user namespaces on a host, and how to remove it.

use std::path::Path;

/// Says so from the settings of the kernel, which `sysctl` gives, and from where this program lies.
/// Beside the sentence: what kind of obstacle it is.
pub(super) fn to_namespaces(
    sysctl: impl Fn(&str) -> Option<String>,
    program: Option<&Path>,
) -> (String, &'static str) {
    if sysctl("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return (apparmor(program), "AppArmor");
    }
    if sysctl("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return (
            "user namespaces are switched off for users: `sudo sysctl -w \
             kernel.unprivileged_userns_clone=1`"
                .into(),
            "sysctl",
        );
    }
    if sysctl("user/max_user_namespaces").as_deref() == Some("0") {
        return (
            "the number of user namespaces is limited to 0: `sudo sysctl -w \
             user.max_user_namespaces=10000`"
                .into(),
            "sysctl",
        );
    }
    (
        "if this is a container, allow it user namespaces and an unmasked /proc, or run cowork \
         outside of it"
            .into(),
        "unknown",
    )
}

/// Where an installation has its programs, and the profile, below its prefix.
const PROGRAMS: &str = "libexec/cowork";
const PROFILE: &str = "share/cowork/apparmor/cowork-keeper";
/// Prefixes that the profile is about.
const PREFIXES: [&str; 2] = ["/usr", "/usr/local"];

fn apparmor(program: Option<&Path>) -> String {
    let start = "AppArmor restricts user namespaces: ";
    let folder = program.and_then(Path::parent);
    let is_below = |prefix: &&str| folder == Some(&*Path::new(prefix).join(PROGRAMS));
    match PREFIXES.into_iter().find(is_below) {
        Some(prefix) => format!(
            "{start}load the profile that came with cowork (`sudo cp {prefix}/{PROFILE} \
             /etc/apparmor.d/ && sudo apparmor_parser -r /etc/apparmor.d/cowork-keeper`)"
        ),
        None => format!(
            "{start}install cowork below {}, and load the profile that comes with it \
             (`PREFIX/{PROFILE}`)",
            PREFIXES.join(" or ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::to_namespaces;
    use std::path::Path;

    fn said(settings: &[(&str, &str)], program: &str) -> (String, &'static str) {
        let sysctl = |name: &str| {
            settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        to_namespaces(sysctl, Some(Path::new(program)))
    }

    const APPARMOR: (&str, &str) = ("kernel/apparmor_restrict_unprivileged_userns", "1");

    #[test]
    fn each_obstacle_has_its_fix() {
        let keeper = "/usr/local/libexec/cowork/cowork-keeper";
        for (setting, kind, fix) in [
            (APPARMOR, "AppArmor", "apparmor_parser -r"),
            (("kernel/unprivileged_userns_clone", "0"), "sysctl", "unprivileged_userns_clone=1"),
            (("user/max_user_namespaces", "0"), "sysctl", "user.max_user_namespaces=10000"),
            (("user/max_user_namespaces", "5000"), "unknown", "container"),
        ] {
            let (sentence, found) = said(&[setting], keeper);
            assert!(found == kind && sentence.contains(fix), "{setting:?}: {sentence}");
        }
        // Several at once: first what only a profile removes.
        let all = [APPARMOR, ("user/max_user_namespaces", "0")];
        assert_eq!(said(&all, keeper).1, "AppArmor");
    }

    #[test]
    fn the_profile_is_where_the_program_was_installed() {
        let path = |program: &str| said(&[APPARMOR], program).0;
        let local = path("/usr/local/libexec/cowork/cowork-keeper");
        assert!(
            local.contains("`sudo cp /usr/local/share/cowork/apparmor/cowork-keeper "),
            "{local}"
        );
        let package = path("/usr/libexec/cowork/cowork-keeper");
        assert!(
            package.contains("`sudo cp /usr/share/cowork/apparmor/cowork-keeper "),
            "{package}"
        );
        // Where the profile would not be about the program.
        for elsewhere in ["/opt/libexec/cowork/cowork-keeper", "/usr/bin/cowork-keeper"] {
            let said = path(elsewhere);
            assert!(said.contains("install cowork below /usr or /usr/local"), "{said}");
        }
    }
}
