//! A node that lacks files of this machine: its agent has another root directory.
//!
//! In these tests the login side and the nodes are one machine. So a node has every file of a manifest, and nothing
//! would be sent. Here the command line finds a script as its agent. The script changes into another root in a separate
//! mount namespace and becomes the agent there. Its mounts disappear with the last process inside.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_shared::build_id::read_build_id;
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::executable::{copy_program, write_executable};
use crate::{Terminal, World, binaries, tool};

/// Runs a test with a world and a separate root for its nodes, or skips it if that is impossible:
/// `in_another_root!(|world, other| ..)`. A timeout before that replaces [`OtherRoot::LIMIT`].
#[macro_export]
macro_rules! in_another_root {
    ($body:expr) => {
        $crate::in_another_root!($crate::OtherRoot::LIMIT, $body)
    };
    ($limit:expr, $body:expr) => {{
        $crate::require!($crate::OtherRoot::usable());
        $crate::within($limit, || {
            let world = $crate::World::new();
            let other = $crate::OtherRoot::new(&world).expect("a root");
            let body: fn(&$crate::World, &$crate::OtherRoot) = $body;
            body(&world, &other);
            drop(other);
            world.finish();
        });
    }};
}

/// The script in the agent's place. Its arguments are the root, two directories that are shared with it, and the
/// agent's own arguments.
const ENTER: &str = r#"
set -eu
root=$1 stage=$2 runtime=$3
shift 3
mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind "$stage" "$root$stage"
mount --bind "$runtime" "$root$runtime"
if [ -e "$root/mounts" ]; then . "$root/mounts"; fi
exec chroot "$root" /gantry-agent "$@"
"#;

/// A root with the agent, a shell, `env` and the C library only. [`OtherRoot::gantry_command`] launches apps into it.
#[derive(Debug)]
pub struct OtherRoot {
    /// Contains the command line, and files that the node must not see.
    install: TempDir,
    root: PathBuf,
}

impl OtherRoot {
    /// How long a test with such a root may take.
    pub const LIMIT: Duration = Duration::from_secs(180);

    /// Whether such a root can be made here.
    ///
    /// # Errors
    /// The reason for a skip.
    pub fn usable() -> Result<(), String> {
        let world = World::new();
        let made = Self::new(&world).map(drop);
        world.finish();
        made
    }

    /// Makes the root in the world's own folder.
    ///
    /// # Errors
    /// The reason for a skip: such a root cannot be made here.
    ///
    /// # Panics
    /// When files cannot be copied.
    pub fn new(world: &World) -> Result<Self, String> {
        if !geteuid().is_root() {
            return Err("only root makes roots".to_owned());
        }
        for name in ["unshare", "mount", "chroot", "ldd", "env"] {
            tool(name)?;
        }
        let namespace = Command::new("unshare").args(["--mount", "true"]).stdin(Stdio::null()).output();
        match namespace {
            Ok(done) if done.status.success() => {}
            other => return Err(format!("there can be no mount namespace: {other:?}")),
        }
        // Where the programs are, so that they can be linked and need not be copied.
        let install = tempfile::Builder::new().prefix("other-root-").tempdir_in(&binaries().dir);
        let install = install.expect("a folder beside the programs");
        let other = Self { install, root: world.path().join("node") };
        for dir in ["proc", "dev", "tmp", "etc"] {
            fs::create_dir_all(other.root.join(dir)).expect("a folder");
        }
        for dir in [world.stage_dir(), world.runtime_dir(), world.path().join("tmp")] {
            fs::create_dir_all(other.inside(&dir)).expect("a folder");
        }
        other.add(Path::new("/bin/sh"));
        other.add(Path::new("/usr/bin/env"));
        other.add_family();
        other.add_libraries(&binaries().agent);
        copy_program(&binaries().agent, other.root.join("gantry-agent"));
        other.install(world);
        Ok(other)
    }

    fn install(&self, world: &World) {
        for program in [&binaries().gantry, &binaries().guard] {
            let name = program.file_name().unwrap_or_default();
            fs::hard_link(program, self.install.path().join(name)).expect("a link beside the programs");
        }
        let paths = [&self.root, &world.stage_dir(), &world.runtime_dir()]
            .map(|path| format!("'{}'", path.display()));
        let script = format!(
            "#!/bin/sh\nexec unshare --mount --propagation private /bin/sh -c '{ENTER}' enter {} \"$@\"\n",
            paths.join(" ")
        );
        write_executable(&self.install.path().join("gantry-agent"), script.as_bytes());
    }

    /// A folder of this machine that the node does not see.
    #[must_use]
    pub fn hidden(&self) -> &Path {
        self.install.path()
    }

    /// Where a path of the node is here.
    #[must_use]
    pub fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Writes a script that the node does not have.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_executable(&self, path: &Path, text: &str) {
        write_executable(path, text.as_bytes());
    }

    /// Mounts a separate tmpfs with these options at a path of each node. Call this before a launch.
    ///
    /// # Panics
    /// When the folder cannot be made.
    pub fn mount(&self, at: &str, options: &str) {
        let at = self.inside(Path::new(at));
        fs::create_dir_all(&at).expect("a folder");
        let line = format!("mount -t tmpfs -o {options} none '{}'\n", at.display());
        self.add_mount(&line);
    }

    /// Gives each node a stage directory of its own, in the world's work directory. Call this before a launch.
    ///
    /// Without it the nodes share one directory, as on a cluster with a shared file system. Then each node but the first
    /// compares what it received with what is there.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn separate_stages(&self, world: &World) {
        let line = format!(
            "own='{}'-$$\nmkdir \"$own\"\nmount --bind \"$own\" \"$root$stage\"\n",
            world.work_dir().join("stage").display()
        );
        self.add_mount(&line);
    }

    /// Lets each node see a folder of this machine, at the same path. Call this before a launch.
    ///
    /// # Panics
    /// When the folder cannot be made.
    pub fn bind(&self, folder: &Path) {
        let at = self.inside(folder);
        fs::create_dir_all(&at).expect("a folder");
        self.add_mount(&format!("mount --bind '{}' '{}'\n", folder.display(), at.display()));
    }

    fn add_mount(&self, line: &str) {
        let mounts = self.root.join("mounts");
        let before = fs::read_to_string(&mounts).unwrap_or_default();
        fs::write(mounts, before + line).expect("a file beside the root's own");
    }

    /// Copies a file of this machine to the node, to the same path, with the libraries that it loads.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[track_caller]
    pub fn add(&self, path: &Path) {
        self.add_libraries(path);
        self.copy(path);
    }

    /// The command line, with agents in the other root.
    #[must_use]
    pub fn gantry_command<A: AsRef<OsStr>>(
        &self,
        world: &World,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = world.command(self.install.path().join("gantry"));
        command.args(args).current_dir("/");
        command
    }

    /// The command line of [`OtherRoot::gantry_command`] at a terminal with 80 columns and 24 rows.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn terminal<A: AsRef<OsStr>>(&self, world: &World, args: impl IntoIterator<Item = A>) -> Terminal {
        let mut command = world.terminal_command_of(&self.install.path().join("gantry"), args);
        command.current_dir("/");
        Terminal::spawn(command, 80, 24, false)
    }

    /// Makes the node's C library look older: it lacks a version of symbols. In the copy, that version has another
    /// name, and the file has another build id. Programs that need that version do not run with it.
    ///
    /// # Panics
    /// When the C library is not at its path, or has no such version.
    #[track_caller]
    pub fn age_libc(&self, version: &str) {
        let libc = self.inside(&self.libc());
        let mut bytes = fs::read(&libc).expect("the C library");
        let (number, old) = (version.len() - 2, format!("{version}\0"));
        let mut new = old.clone();
        new.replace_range(number..version.len(), "03");
        assert!(replace(&mut bytes, old.as_bytes(), new.as_bytes()) > 0, "there is no {version}");
        let file = fs::File::open(&libc).expect("the C library");
        let id = read_build_id(&file).expect("the C library").expect("a build id");
        let other: Vec<u8> = id.iter().map(|byte| !byte).collect();
        assert_eq!(replace(&mut bytes, &id, &other), 1, "its build id is in it once");
        fs::write(&libc, bytes).expect("the C library");
    }

    /// The C library is one unit: a node that has it also has the files of its former parts.
    fn add_family(&self) {
        let libc = self.libc();
        for part in [
            "libanl.so.1",
            "libdl.so.2",
            "libm.so.6",
            "libpthread.so.0",
            "libresolv.so.2",
            "librt.so.1",
            "libutil.so.1",
        ] {
            let part = libc.with_file_name(part);
            if part.is_file() {
                self.copy(&part);
            }
        }
    }

    fn libc(&self) -> PathBuf {
        let is_libc = |path: &PathBuf| path.file_name() == Some(OsStr::new("libc.so.6"));
        self.loaded_by(Path::new("/bin/sh")).into_iter().find(is_libc).expect("a C library")
    }

    fn add_libraries(&self, path: &Path) {
        for library in self.loaded_by(path) {
            self.copy(&library);
        }
    }

    fn copy(&self, path: &Path) {
        let to = self.inside(path);
        fs::create_dir_all(to.parent().unwrap_or(&self.root)).expect("a folder");
        copy_program(path, &to);
    }

    /// Paths of the files that the loader loads for a program.
    fn loaded_by(&self, path: &Path) -> BTreeSet<PathBuf> {
        let listed = Command::new("ldd").arg(path).stdin(Stdio::null()).output().expect("ldd");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let words = text.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        words.map(PathBuf::from).collect()
    }
}

/// Replaces every occurrence by something of the same length, and counts them.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    let found: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, it)| *it == old).map(|(at, _)| at).collect();
    for at in &found {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    found.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_counts() {
        let mut bytes = *b"one two one";
        assert_eq!(replace(&mut bytes, b"one", b"six"), 2);
        assert_eq!(&bytes, b"six two six");
        assert_eq!(replace(&mut bytes, b"one", b"six"), 0);
    }
}
