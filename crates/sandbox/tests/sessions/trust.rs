//! Which authorities programs of a session trust.

use crate::bench::{Room, as_everybody, new_plan};
use crate::network::in_each;

/// How many authorities Python and OpenSSL trust by default, and what the bundle of `curl` is.
const TRUST: &str = "
import ssl, hashlib
print(len(ssl.create_default_context().get_ca_certs()))
print(hashlib.sha256(open('/etc/ssl/certs/ca-certificates.crt', 'rb').read()).hexdigest())
";

#[test]
fn programs_trust_the_authorities_of_the_host() {
    as_everybody(|bench| {
        let outside = std::process::Command::new("/usr/bin/python3").args(["-c", TRUST]).output();
        let outside = String::from_utf8(outside.expect("it starts").stdout).expect("numbers");
        assert!(!outside.starts_with("0\n"), "the host trusts nobody: {outside}");
        in_each(bench, |_, room| {
            assert_eq!(room.run(&["/usr/bin/python3", "-c", TRUST]).1, outside);
            assert_eq!(room.shell("readlink /etc/ssl/certs"), "../session/certs\n");
            assert_eq!(room.shell("readlink -f /etc/ssl/certs"), "/etc/ssl/certs.host\n");
            // OpenSSL finds an authority by its hash, through the links of that folder.
            let verify = "cd /etc/ssl/certs.host && f=$(ls *.pem | head -1) && \
                          openssl verify -CApath /etc/ssl/certs \"$f\" | tail -1";
            let said = room.shell(verify);
            assert!(said.ends_with(": OK\n"), "{said}");
            let changed = room.shell("ln -sfn /tmp /etc/session/certs; rm -f /etc/session/certs");
            assert!(changed.contains("Read-only file system"), "{changed}");
        });
    });
}

#[test]
fn what_a_session_trusts_is_changed_while_it_runs() {
    as_everybody(|bench| {
        let about = bench.folder("about");
        let link = about.path().join("certs");
        std::os::unix::fs::symlink("/etc/ssl/certs.host", &link).expect("the folder is ours");
        let mut plan = new_plan();
        let folder = cowork_sandbox::folder::Folder::open(about.path()).expect("it is there");
        let path = cowork_policy::HostPath::new(about.path()).expect("it is absolute");
        cowork_policy::plan::add_about(&mut plan, &path, folder.identity());
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        let count = "ls /etc/ssl/certs/ | wc -l";
        let hosts = room.shell(count);
        let outside = std::fs::read_dir("/etc/ssl/certs").expect("it is there").count();
        assert_eq!(hosts, format!("{outside}\n"));
        std::fs::remove_file(&link).expect("it is ours");
        about.write("certs/ca-certificates.crt", "one\n");
        assert_eq!(room.shell("cat /etc/ssl/certs/ca-certificates.crt"), "one\n");
    });
}
