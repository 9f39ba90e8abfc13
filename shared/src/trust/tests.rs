use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

use super::*;

const ME: u32 = 1000;
const OTHER: u32 = 1001;

/// A machine with the named entries, below a safe `/`.
#[derive(Default)]
struct Fake {
    entries: BTreeMap<PathBuf, Entry>,
    groups: String,
}

impl Look for Fake {
    fn look(&self, path: &Path) -> io::Result<Entry> {
        self.entries.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn accounts(&self, path: &str) -> String {
        if path == "/etc/group" { self.groups.clone() } else { String::new() }
    }
}

/// `entries`: a path, then `d` or `f` with owner, group and mode in octal, or `-> TARGET OWNER`; `+` after a mode is
/// an access list.
fn machine(entries: &[&str]) -> Fake {
    let mut fake = Fake::default();
    for line in ["/ d 0 0 755", "/home d 0 0 755", "/home/me d 1000 1000 750", "/tmp d 0 0 1777"]
        .iter()
        .chain(entries)
    {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        let (mode, list) = words[4.min(words.len() - 1)]
            .strip_suffix('+')
            .map_or((words[words.len() - 1], false), |it| (it, true));
        let entry = match words[1] {
            "->" => {
                let kind = EntryKind::Link(words[2].into());
                Entry { kind, uid: number(3), gid: 0, mode: 0o777, has_access_list: false }
            }
            kind => Entry {
                kind: if kind == "d" { EntryKind::Dir } else { EntryKind::File },
                uid: number(2),
                gid: number(3),
                mode: u32::from_str_radix(mode, 8).unwrap(),
                has_access_list: list,
            },
        };
        fake.entries.insert(words[0].into(), entry);
    }
    fake
}

fn me() -> Trust {
    Trust { uid: ME, gid: ME, others: Vec::new(), with_appointed: false }
}

#[track_caller]
fn check(trust: &Trust, fake: &Fake, wanted: Wanted, path: &str, expected: Result<(), (&str, Why)>) {
    let judged = trust.check_by(Path::new(path), wanted, fake);
    let judged = judged.map_err(|distrust| (distrust.component.display().to_string(), distrust.why));
    assert_eq!(judged, expected.map_err(|(component, why)| (component.to_owned(), why)), "{path}");
}

#[test]
fn a_program_of_a_trusted_owner_in_closed_directories_is_trusted() {
    let fake = machine(&[
        "/home/me/bin d 1000 100 755",
        "/home/me/bin/p f 1000 100 755",
        "/home/me/bin/of-root f 0 0 4755",
        "/tmp/clone d 1000 1000 755",
        "/tmp/clone/p f 1000 1000 755",
    ]);
    for path in
        ["/home/me/bin/p", "/home/me/bin/of-root", "/tmp/clone/p", "/home/../tmp/./clone/../../home/me/bin/p"]
    {
        check(&me(), &fake, Wanted::Program, path, Ok(()));
    }
    check(&me(), &fake, Wanted::Program, "bin/p", Err(("bin/p", Why::NotAbsolute)));
    check(&me(), &fake, Wanted::Program, "/home/me/no/p", Err(("/home/me/no", Why::Missing)));
    check(&me(), &fake, Wanted::Program, "/home/me/bin", Err(("/home/me/bin", Why::NotAFile)));
    check(&me(), &fake, Wanted::Program, "/home/me/bin/p/q", Err(("/home/me/bin/p", Why::NotADirectory)));
}

#[test]
fn another_users_file_or_directory_is_named() {
    let fake = machine(&[
        "/tmp/libexec d 1001 1001 755",
        "/tmp/libexec/p f 1000 1000 755",
        "/home/me/p f 1001 1001 755",
        "/opt d 1001 1001 755",
        "/opt/p f 1001 1001 755",
    ]);
    check(&me(), &fake, Wanted::Program, "/tmp/libexec/p", Err(("/tmp/libexec", Why::Owner(OTHER))));
    check(&me(), &fake, Wanted::Program, "/home/me/p", Err(("/home/me/p", Why::Owner(OTHER))));
    check(&me(), &fake, Wanted::Program, "/opt/p", Err(("/opt", Why::Owner(OTHER))));
    check(&me().and_owner(OTHER), &fake, Wanted::Program, "/opt/p", Ok(()));
}

#[test]
fn appointed_users_are_trusted_and_those_who_plant_files_are_not() {
    let fake = machine(&[
        "/sw d 1001 50 755",
        "/sw/bin d 1001 50 2775",
        "/sw/bin/p f 1002 50 775",
        "/tmp/libexec d 1001 1001 755",
        "/tmp/libexec/p f 1001 1001 755",
        "/tmp/mine d 1000 50 775",
        "/tmp/mine/p f 1000 50 755",
        "/tmp/p f 1000 1000 755",
        "/open d 0 0 777",
        "/open/p f 1001 1001 755",
        "/local d 0 50 1775",
        "/local/p f 1000 50 755",
        "/local/theirs d 1001 50 755",
        "/local/theirs/p f 1001 50 755",
        "/local/mine d 1000 50 755",
        "/local/mine/p f 1000 50 755",
    ]);
    let trust = me().and_appointed();
    check(&me(), &fake, Wanted::Program, "/sw/bin/p", Err(("/sw", Why::Owner(OTHER))));
    check(&trust, &fake, Wanted::Program, "/sw/bin/p", Ok(()));
    check(&trust, &fake, Wanted::Program, "/tmp/libexec/p", Err(("/tmp/libexec", Why::Owner(OTHER))));
    // The path before makes nobody trusted here.
    let through = "/sw/bin/../../tmp/libexec/p";
    check(&trust, &fake, Wanted::Program, through, Err(("/tmp/libexec", Why::Owner(OTHER))));
    check(&trust, &fake, Wanted::Program, "/tmp/mine/p", Err(("/tmp/mine", Why::GroupWrites(50))));
    check(&trust, &fake, Wanted::Program, "/tmp/p", Err(("/tmp", Why::Planted)));
    check(&trust, &fake, Wanted::Program, "/open/p", Err(("/open", Why::OthersWrite(0o777))));
    check(&trust, &fake, Wanted::Program, "/local/p", Err(("/local", Why::Planted)));
    check(&trust, &fake, Wanted::Program, "/local/theirs/p", Err(("/local/theirs", Why::Owner(OTHER))));
    check(&trust, &fake, Wanted::Program, "/local/mine/p", Ok(()));
}

#[test]
fn a_component_that_others_may_write_to_is_named_with_its_remedy() {
    let fake = machine(&[
        "/home/me/open d 1000 1000 777",
        "/home/me/open/p f 1000 1000 755",
        "/home/me/p f 1000 1000 757",
        "/home/me/list d 1000 1000 770+",
        "/home/me/list/p f 1000 1000 755",
        "/home/me/masked f 1000 1000 755+",
    ]);
    check(&me(), &fake, Wanted::Program, "/home/me/open/p", Err(("/home/me/open", Why::OthersWrite(0o777))));
    check(&me(), &fake, Wanted::Program, "/home/me/p", Err(("/home/me/p", Why::OthersWrite(0o757))));
    check(&me(), &fake, Wanted::Program, "/home/me/list/p", Err(("/home/me/list", Why::AccessList)));
    check(&me(), &fake, Wanted::Program, "/home/me/masked", Ok(()));
    let refused = me().check_by(Path::new("/home/me/open/p"), Wanted::Program, &fake).unwrap_err();
    assert_eq!(refused.hint(), "chmod o-w /home/me/open");
    assert_eq!(refused.to_string(), "/home/me/open/p: /home/me/open is writable for everybody (mode 777)");
    assert!(!refused.is_missing());
}

#[test]
fn a_group_may_write_if_it_is_private() {
    let mut fake = machine(&[
        "/home/me/build d 1000 1000 775",
        "/home/me/build/p f 1000 1000 775",
        "/home/me/team d 1000 500 2775",
        "/home/me/team/p f 1000 1000 755",
        "/opt d 0 0 775",
        "/opt/p f 0 0 775",
        "/srv d 1001 1001 775",
        "/srv/p f 1001 1001 755",
    ]);
    check(&me(), &fake, Wanted::Program, "/home/me/build/p", Ok(()));
    check(&me(), &fake, Wanted::Program, "/opt/p", Ok(()));
    check(&me(), &fake, Wanted::Program, "/home/me/team/p", Err(("/home/me/team", Why::GroupWrites(500))));
    check(&me().and_owner(OTHER), &fake, Wanted::Program, "/srv/p", Ok(()));
    // A group with this user's number that is not this process's own may be a shared one.
    let in_users = Trust { gid: 100, ..me() };
    check(
        &in_users,
        &fake,
        Wanted::Program,
        "/home/me/build/p",
        Err(("/home/me/build", Why::GroupWrites(1000))),
    );
    fake.groups = "me:x:1000:me,you".to_owned();
    check(&me(), &fake, Wanted::Program, "/home/me/build/p", Err(("/home/me/build", Why::GroupWrites(1000))));
}

#[test]
fn each_links_directory_and_target_are_judged() {
    let fake = machine(&[
        "/home/me/bin -> ../../opt/bin 1000",
        "/opt d 0 0 755",
        "/opt/bin d 0 0 755",
        "/opt/bin/p -> /tmp/clone/p 0",
        "/opt/bin/q -> q.1 1001",
        "/opt/bin/q.1 f 0 0 755",
        "/opt/bin/evil -> /tmp/evil/p 0",
        "/tmp/clone d 1000 1000 755",
        "/tmp/clone/p f 1000 1000 755",
        "/tmp/evil d 1001 1001 755",
        "/tmp/evil/p f 0 0 755",
        "/tmp/mine -> /home/me 1000",
        "/tmp/foreign -> /opt/bin 1001",
        "/home/me/here f 1000 1000 700",
        "/home/me/loop -> loop 1000",
    ]);
    let check = |path, expected| check(&me(), &fake, Wanted::Program, path, expected);
    check("/home/me/bin/p", Ok(()));
    // Only the owner of its directory could have created it, or could replace it.
    check("/home/me/bin/q", Ok(()));
    check("/home/me/bin/evil", Err(("/tmp/evil", Why::Owner(OTHER))));
    check("/tmp/mine/here", Ok(()));
    check("/tmp/foreign/q", Err(("/tmp/foreign", Why::Owner(OTHER))));
    check("/home/me/loop", Err(("/home/me/loop", Why::TooManyLinks)));
}

#[test]
fn a_program_is_not_taken_from_a_directory_that_is_everybodys() {
    let fake = machine(&[
        "/tmp/p f 0 0 755",
        "/tmp/link -> /home/me/p 1000",
        "/home/me/p f 1000 1000 755",
        "/tmp/d d 1000 1000 700",
        "/team d 0 500 1770",
        "/team/p f 1000 1000 755",
        "/team/d d 1000 1000 700",
    ]);
    check(&me(), &fake, Wanted::Program, "/tmp/p", Err(("/tmp", Why::Planted)));
    check(&me(), &fake, Wanted::Program, "/tmp/link", Err(("/tmp", Why::Planted)));
    check(&me(), &fake, Wanted::Program, "/team/p", Err(("/team", Why::Planted)));
    for dir in ["/tmp", "/team"] {
        check(&me(), &fake, Wanted::Dir, dir, Ok(()));
        check(&me(), &fake, Wanted::OwnDir, dir, Err((dir, Why::Planted)));
    }
    check(&me(), &fake, Wanted::OwnDir, "/tmp/d", Ok(()));
    check(&me(), &fake, Wanted::Dir, "/team/d", Ok(()));
    check(&me(), &fake, Wanted::Dir, "/home/me/p", Err(("/home/me/p", Why::NotADirectory)));
}

#[test]
fn where_root_is_not_mapped_the_owner_of_the_top_is_trusted_but_not_in_tmp() {
    let fake = machine(&[
        "/ d 65534 65534 755",
        "/home d 65534 65534 755",
        "/tmp d 65534 65534 1777",
        "/usr d 65534 65534 755",
        "/usr/p f 65534 65534 755",
        "/tmp/evil d 65534 65534 755",
        "/tmp/evil/p f 65534 65534 755",
    ]);
    check(&me(), &fake, Wanted::Program, "/usr/p", Ok(()));
    check(&me(), &fake, Wanted::Program, "/tmp/evil/p", Err(("/tmp/evil", Why::Owner(65534))));
}

/// A directory of this user, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gantry-trust-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        set_mode(&dir, 0o755);
        Self(dir.canonicalize().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn this_machines_files_are_judged() {
    let scratch = Scratch::new("files");
    let trust = Trust::of_process();
    let (dir, program, link) = (scratch.0.join("d"), scratch.0.join("d/p"), scratch.0.join("link"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&program, "").unwrap();
    symlink("d/p", &link).unwrap();
    set_mode(&dir, 0o755);
    set_mode(&program, 0o755);
    let blame =
        |path: &Path| trust.check_program(path).map_err(|distrust| (distrust.component, distrust.why));
    assert_eq!(blame(&program), Ok(()));
    assert_eq!(blame(&link), Ok(()));
    assert_eq!(blame(&scratch.0.join("no")), Err((scratch.0.join("no"), Why::Missing)));
    assert_eq!(trust.check_own_dir(&dir), Ok(()));
    set_mode(&dir, 0o777);
    assert_eq!(blame(&link), Err((dir.clone(), Why::OthersWrite(0o777))));
    set_mode(&dir, 0o1777);
    assert_eq!(blame(&link), Err((dir.clone(), Why::Planted)));
    assert_eq!(trust.check_dir(&dir), Ok(()));
    set_mode(&dir, 0o755);
    set_mode(&program, 0o757);
    assert_eq!(blame(&link), Err((program.clone(), Why::OthersWrite(0o757))));
    set_mode(&program, 0o755);
    if sys::effective_ids().0 == 0 {
        lchown(&link, Some(65533), None).unwrap();
        assert_eq!(blame(&link), Ok(()));
        chown(&dir, Some(65533), None).unwrap();
        assert_eq!(blame(&link), Err((dir.clone(), Why::Owner(65533))));
        assert_eq!(trust.clone().and_owner(65533).check_program(&link), Ok(()));
    }
}
