//! The script runs in the shells of this machine, with a small stand-in for the agent. Tests on the testbed run it
//! with a real one.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;

/// A program that prints its identity on `id`, and its input and its path on `serve`.
const AGENT: &str = "#!/bin/sh\nif [ \"$1\" = id ]; then echo 'r h'; else read -r t; echo \"served $t $3 $GANTRY_SENT_AGENT\"; fi\n";

fn make(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    path
}

/// The messages of a host with only the places in `folder`; the agent is sent when the script asks for it.
fn bring(shell: &str, folder: &Path, there: &Path, identity: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "a test runs the script")]
    let mut command = Command::new(shell);
    command.args(["-c", COMMAND]).env("TMPDIR", folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let errand = ["serve", "attached", "either"].map(str::to_owned);
    let wanted = Wanted { mark: "m1", path: there, identity, bytes: AGENT.len() as u64, errand: &errand };
    stdin.write_all(&build_script(&wanted)).unwrap();
    let mut text = Vec::new();
    let mut said = Vec::new();
    let mut bytes = [0; 512];
    while let read @ 1.. = stdout.read(&mut bytes).unwrap() {
        text.extend(&bytes[..read]);
        while let Some((now, used)) = parse_said(&text, "m1") {
            text.drain(..used);
            match &now {
                Said::Need(_) => stdin.write_all(AGENT.as_bytes()).unwrap(),
                Said::Have | Said::Got => stdin.write_all(b"ticket\n").unwrap(),
                Said::No(_) | Said::Link => {}
            }
            said.push(now);
        }
    }
    child.wait().unwrap();
    format!("{said:?} {}", String::from_utf8_lossy(&text).trim())
}

fn shells() -> Vec<&'static str> {
    let there = |shell: &&str| Path::new(shell).exists();
    ["/bin/sh", "/bin/bash", "/bin/csh", "/bin/tcsh", "/usr/bin/fish", "/bin/zsh"]
        .into_iter()
        .filter(there)
        .collect()
}

#[test]
fn an_agent_that_is_there_is_used_and_another_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let agent = make(folder.path(), "it's the agent", AGENT);
    for shell in shells() {
        let said = bring(shell, folder.path(), &agent, "r h");
        assert_eq!(said, "[Have] served ticket either", "{shell}");
    }
    let other = make(folder.path(), "other", "#!/bin/sh\necho 'r other'\n");
    let said = bring("/bin/sh", folder.path(), &other, "r h");
    assert!(said.starts_with("[Need(") && said.contains("Got] served ticket either"), "{said}");
}

#[test]
fn an_agent_that_others_can_change_is_not_executed() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ran");
    let place = folder.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let agent = make(&place, "agent", &format!("#!/bin/sh\ntouch {}\necho 'r h'\n", mark.display()));
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for (folder_mode, mode) in [(0o755, 0o777), (0o777, 0o755), (0o1777, 0o755)] {
        set(&agent, mode);
        set(&place, folder_mode);
        let said = bring("/bin/sh", folder.path(), &agent, "r h");
        assert!(said.starts_with("[Need(") && said.contains("Got] served ticket either"), "{said}");
        assert!(!mark.exists(), "{folder_mode:o} {mode:o}");
    }
    set(&place, 0o755);
    bring("/bin/sh", folder.path(), &agent, "r h");
    assert!(mark.exists(), "it would have been seen");
    // The agent is not put where other users could replace it.
    set(&place, 0o777);
    let said = bring("/bin/sh", &place, Path::new("/no/agent"), "r h");
    assert!(said.contains("served ticket") && !said.contains("place/gantry-agent-"), "{said}");
    let sent = said.rsplit(' ').next().unwrap();
    std::fs::remove_dir_all(Path::new(sent).parent().unwrap()).unwrap();
}

#[test]
fn an_agent_that_is_not_there_is_put_into_a_place_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for shell in shells() {
        let said = bring(shell, folder.path(), Path::new("/no/agent"), "r h");
        let place = format!("served ticket either {}/gantry-agent-", folder.path().display());
        assert!(said.contains(&place) && said.ends_with("/gantry-agent"), "{shell}: {said}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), shells().len(), "the agent removes itself, not the script: {left:?}");
    for entry in left {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn an_agent_that_does_not_run_there_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let said = bring("/bin/sh", folder.path(), Path::new("/no/agent"), "r another");
    assert!(said.contains("No(\"the agent does not run here: r h\")"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_connection_that_is_cut_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test runs the script")]
    let mut command = Command::new("/bin/sh");
    command.args(["-c", COMMAND]).env("TMPDIR", folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (path, errand) = (Path::new("/no/agent"), ["serve".to_owned()]);
    let wanted = Wanted { mark: "m", path, identity: "x", bytes: 1000, errand: &errand };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&build_script(&wanted)).unwrap();
    stdin.write_all(b"half of it").unwrap();
    drop(stdin);
    assert!(!child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn messages_are_found_after_the_output_of_login_shells() {
    let check = |text: &str, expected: Option<(Said, usize)>| {
        assert_eq!(parse_said(text.as_bytes(), "m1"), expected, "{text:?}");
    };
    check("", None);
    check("Welcome to n1!\nm1 hav", None);
    check("Welcome\nno newline\nm1 have\nrest", Some((Said::Have, 27)));
    check("\nm1 need /tmp/a b\n", Some((Said::Need("/tmp/a b".into()), 18)));
    check("m1have\nm1 what\nm12 have\n", None);
}
