//! Checks whether a path is safe, by a shell on a host that has no agent yet. A small copy of [`gantry_shared::trust`].

/// Defines `safe PATH DEPTH`. True if root or this user owns `PATH` and each directory above it, and no other user can
/// write to them.
///
/// The path must be absolute and without symbolic links, as from `pwd -P`. The program itself has depth 0, its
/// directory 1, and everything above 2 and more. Other users may write to a directory of depth 2 or more if it is
/// sticky. A group may write if its number is this user's and it is this user's own group, unless there is an access
/// list.
///
/// It works in any POSIX shell, with `ls` of coreutils, busybox or toybox. One `ls` gets all components. It sorts them
/// from `/` downwards.
pub(crate) const SAFE: &str = r#"me=$(id -u); safe() { at=$1; left=$2; set --; while [ "$at" ]; do set -- "$at" "$@"; at=${at%/*}; left=$((left + 1)); done; last=$((left - $#)); LC_ALL=C ls -ldn / "$@" 2>/dev/null | ( while read -r mode links uid gid rest; do case $uid in 0|"$me") ;; *) exit 1;; esac; case $mode in d????????[tT]*) [ "$left" -gt 1 ] || exit 1;; [d-]???????w*) exit 1;; [d-]????w????+*) exit 1;; [d-]????w*) [ "$gid" = "$me" ] && [ "$gid" = "$(id -g)" ] || exit 1;; [d-]*) ;; *) exit 1;; esac; left=$((left - 1)); done; [ "$left" = $((last - 1)) ] ); }"#;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::Path;

    use super::SAFE;

    fn shells() -> impl Iterator<Item = &'static str> {
        ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/bin/ksh"]
            .into_iter()
            .filter(|it| Path::new(it).exists())
    }

    #[track_caller]
    fn check(path: &Path, depth: u32, expected: bool) {
        for shell in shells() {
            #[expect(clippy::disallowed_methods, reason = "real shells run the script under test")]
            let mut command = std::process::Command::new(shell);
            command.args(["-c", &format!("{SAFE}; safe \"$0\" {depth}")]).arg(path);
            assert_eq!(command.status().unwrap().success(), expected, "{shell}: {}", path.display());
        }
    }

    #[test]
    fn what_others_can_change_is_not_safe() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, file) = (folder.path().join("a dir"), folder.path().join("a dir/it's $x"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "").unwrap();
        let set =
            |path: &Path, mode: u32| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(&dir, 0o755);
        set(&file, 0o755);
        check(&file, 0, true);
        check(&dir, 2, true);
        check(Path::new("/"), 2, true);
        check(&folder.path().join("none"), 0, false);
        // A sticky bit is not enough for a file's own directory. It is enough for the directories above.
        set(&dir, 0o1777);
        check(&file, 0, false);
        check(&dir, 2, true);
        set(&dir, 0o777);
        check(&file, 0, false);
        check(&dir, 2, false);
        set(&dir, 0o755);
        for mode in [0o757, 0o777, 0o722] {
            set(&file, mode);
            check(&file, 0, false);
        }
        set(&file, 0o755);
        if fs::metadata(&dir).unwrap().permissions().mode() & 0o777 == 0o755
            && fs::metadata("/proc/self").is_ok()
        {
            let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&dir).unwrap());
            if owner != 0 {
                return;
            }
            set(&file, 0o775);
            check(&file, 0, true);
            chown(&file, Some(0), Some(65533)).unwrap();
            set(&file, 0o775);
            check(&file, 0, false);
            set(&file, 0o755);
            check(&file, 0, true);
            chown(&file, Some(65533), None).unwrap();
            check(&file, 0, false);
            chown(&file, Some(0), None).unwrap();
            chown(&dir, Some(65533), None).unwrap();
            check(&file, 0, false);
            check(&dir, 2, false);
        }
    }
}
