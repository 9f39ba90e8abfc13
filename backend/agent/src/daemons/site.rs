//! What a tool daemon is started with: file, arguments, environment, directory.
//!
//! This module decides; other code starts the daemon. The order's environment is the tool's. Gantry's additions are the
//! same for every daemon, and [`build_env`] alone makes them. This module reads files and changes nothing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::unpack::parse_parts;
use gantry_shared::rendezvous::handle::{Subjob, VARIABLES, build_variables};
use gantry_shared::storage::{
    CTI_DIRS, CTI_IAMBACKEND, GANTRY_APP, GANTRY_BACKEND_SOCKET, GANTRY_DAEMON, GANTRY_DAEMON_TOKEN,
    GANTRY_NODE, GANTRY_SESSION, GANTRY_SESSION_DIR,
};
use gantry_shared::wire::message::StartDaemon;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId};
use gantry_types::session_dirs::SessionDirs;

use super::command::{Command, prepend};
use super::container;
use super::program::{DEFAULT_PATH, find_program};
use crate::process::strays::Marker;

/// The place where a daemon is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    /// The directories of the daemon's session.
    pub(crate) dirs: &'a SessionDirs,
    /// The name of the session's loader in `loader/`, if the node's C library is too old for the session's programs.
    pub(crate) loader: Option<&'a OsStr>,
    /// The app.
    pub(crate) app: AppId,
    /// This node's number.
    pub(crate) node: NodeId,
    /// The socket on which daemons reach their agent.
    pub(crate) socket: &'a Path,
    /// The daemon's token.
    pub(crate) token: &'a str,
    /// The agent's socket for ranks, which daemons may query; and the app's place in a multijob.
    pub(crate) rendezvous: (&'a str, Option<Subjob>),
    /// Marks daemons, so that their descendants are found.
    pub(crate) marker: Option<&'a Marker>,
}

/// A daemon that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreparedDaemon {
    /// The file to execute, absolute.
    pub(crate) program: PathBuf,
    /// All arguments, the program's name first.
    pub(crate) argv: Vec<OsString>,
    /// The whole environment, every name once.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The directory to start in, absolute.
    pub(crate) cwd: PathBuf,
}

/// Decides how a daemon is started. `env` is the order's environment.
///
/// A program with an absolute path is used as it is. Another path with a slash counts from the session's root. A bare
/// name is searched in the session's `bin`, then in the PATH of the daemon's environment; relative and empty parts of
/// PATH are skipped. The daemon starts in the order's directory, or in the session's root if the order has none. A
/// relative directory counts from the session's root.
///
/// The file to execute is the program itself, unless it is a program of the session that the node cannot start
/// directly. A script whose interpreter the node lacks runs by the session's interpreter. If the node's C library is
/// too old, the program runs by the session's loader ([`super::command`]).
///
/// # Errors
/// `NotFound`, `NoAccess` or `Invalid` when there is no such program, it may not be executed, or the order has texts
/// that no process can be given.
pub(crate) fn build_daemon(
    order: &StartDaemon,
    env: Vec<(OsString, OsString)>,
    site: &Site<'_>,
) -> Result<PreparedDaemon, Failure> {
    check_texts(order)?;
    let mut env = check_env(env)?;
    let search = env.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| DEFAULT_PATH.into());
    let program = find_program(&order.program.program, site.dirs, &search)?;
    let lib_dirs = lib_dirs(order, site.dirs)?;
    let rest = env.get(OsStr::new("LD_LIBRARY_PATH")).cloned().unwrap_or_default();
    build_env(
        &mut env,
        order,
        site,
        [
            ("PATH", prepend(std::slice::from_ref(&site.dirs.bin), &search)),
            ("LD_LIBRARY_PATH", prepend(&lib_dirs, &rest)),
        ],
    );
    let command = Command::new(program.clone(), &order.program.program, &order.program.args);
    let command = command.by_interpreter(site.dirs);
    let command = match site.loader {
        Some(name) => command.by_loader(name, site.dirs, lib_dirs, &rest)?,
        None => command,
    };
    let command = match &order.container {
        Some(instance) => container::enter(command, instance, &search, site.dirs, &mut env)?,
        None => command,
    };
    let root = &site.dirs.root;
    let cwd = order.program.cwd.as_ref().map_or_else(|| root.clone(), |cwd| root.join(cwd));
    if !cwd.is_dir() {
        return Err(Failure::new(
            Kind::NotFound,
            format!("start {} in {}: no such directory", program.display(), cwd.display()),
        )
        .with_hint("name a directory that exists on every node, or leave it out to use the session's own"));
    }
    let Command { program, argv } = command;
    Ok(PreparedDaemon { program, argv, env: env.into_iter().collect(), cwd })
}

/// Refuses texts that `execve` would cut short.
fn check_texts(order: &StartDaemon) -> Result<(), Failure> {
    let program = &order.program;
    let texts = [&program.program].into_iter().chain(&program.args).chain(&program.cwd);
    if program.program.is_empty() {
        return Err(Failure::new(Kind::Invalid, "start a daemon: the program's name is empty"));
    }
    for text in texts {
        if text.as_bytes().contains(&0) {
            return Err(Failure::new(Kind::Invalid, format!("start a daemon: {text:?} has a NUL")));
        }
    }
    Ok(())
}

type Env = BTreeMap<OsString, OsString>;

/// The environment, each name with its last value.
fn check_env(given: Vec<(OsString, OsString)>) -> Result<Env, Failure> {
    let mut env = Env::new();
    for (name, value) in given {
        let bytes = name.as_bytes();
        // The value is not shown: it may be a secret.
        if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) || value.as_bytes().contains(&0) {
            return Err(Failure::new(
                Kind::Invalid,
                format!("start a daemon: {name:?} is not a valid name or value of an environment variable"),
            ));
        }
        env.insert(name, value);
    }
    Ok(env)
}

/// Adds gantry's variables, which are the same for every daemon. They override the order's.
fn build_env(env: &mut Env, order: &StartDaemon, site: &Site<'_>, paths: [(&str, OsString); 2]) {
    let dirs = site.dirs;
    let ours: [(&str, OsString); 8] = [
        ("TMPDIR", dirs.tmp.clone().into()),
        (GANTRY_APP, site.app.to_string().into()),
        (GANTRY_NODE, site.node.to_string().into()),
        (GANTRY_SESSION, order.session.to_string().into()),
        (GANTRY_SESSION_DIR, dirs.root.clone().into()),
        (GANTRY_DAEMON, order.daemon.to_string().into()),
        (GANTRY_DAEMON_TOKEN, site.token.into()),
        (GANTRY_BACKEND_SOCKET, site.socket.into()),
    ];
    env.extend(paths.into_iter().chain(ours).map(|(name, value)| (name.into(), value)));
    let mark =
        site.marker.map(|it| it.build(env.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))));
    env.extend(mark.map(|(name, value)| (name.into(), value.into())));
    let (service, subjob) = site.rendezvous;
    env.retain(|name, _| !VARIABLES.iter().any(|variable| name == OsStr::new(variable)));
    if !service.is_empty() {
        let handles = build_variables(service, subjob);
        env.extend(handles.into_iter().map(|(name, value)| (name.into(), value.into())));
    }
    if env.contains_key(OsStr::new(CTI_IAMBACKEND)) {
        // Entries of kind `File` have no directory of their own.
        let places = [&dirs.root, &dirs.bin, &dirs.lib, &dirs.root];
        env.extend(CTI_DIRS.into_iter().zip(places).map(|(name, dir)| (name.into(), dir.into())));
    }
}

/// The session's library directories. Those of the order come first, as one name may have several contents.
fn lib_dirs(order: &StartDaemon, dirs: &SessionDirs) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for name in &order.lib_dirs {
        let bytes = name.as_bytes();
        let checked = match bytes.iter().find(|byte| b":;$".contains(byte)) {
            Some(_) => Err("has `:`, `;` or `$`, which LD_LIBRARY_PATH cannot hold"),
            None => parse_parts(bytes),
        };
        checked.map_err(|why| {
            let message = format!("start a daemon with the library directory {name:?}: the name {why}");
            Failure::new(Kind::Invalid, message).with_hint("use a relative name without `..`")
        })?;
        all.push(dirs.lib.join(name));
    }
    all.push(dirs.lib.clone());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use gantry_shared::wire::message::Program;
    use gantry_types::id::{DaemonId, SessionId};
    use gantry_types::output::DaemonOutput;

    use super::*;

    struct Fixture {
        scratch: tempfile::TempDir,
        dirs: SessionDirs,
    }

    impl Fixture {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let dirs = SessionDirs::new(scratch.path().join("s2"));
            for dir in [&dirs.bin, &dirs.lib, &dirs.tmp] {
                fs::create_dir_all(dir).unwrap();
            }
            Self { scratch, dirs }
        }

        fn file(&self, path: impl AsRef<Path>, mode: u32) -> PathBuf {
            let path = self.scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        }

        fn build(
            &self,
            program: impl Into<OsString>,
            env: &[(&str, &str)],
        ) -> Result<PreparedDaemon, Failure> {
            self.build_from(&order(program, env))
        }

        fn build_from(&self, order: &StartDaemon) -> Result<PreparedDaemon, Failure> {
            let earlier = [("LANG".into(), "C".into()), ("A".into(), "earlier".into())];
            build_daemon(
                order,
                earlier.into_iter().chain(order.program.env.clone()).collect(),
                &Site {
                    dirs: &self.dirs,
                    loader: None,
                    app: "3kx9w0fz".parse().unwrap(),
                    node: NodeId(4),
                    token: "t",
                    socket: Path::new("/x/agent.sock"),
                    rendezvous: ("here", None),
                    marker: None,
                },
            )
        }

        fn check_failure(&self, program: impl Into<OsString>, env: &[(&str, &str)], kind: Kind, text: &str) {
            let failure = self.build(program, env).unwrap_err();
            assert_eq!(failure.kind(), kind, "{failure}");
            assert!(failure.message().contains(text), "{failure} has no {text:?}");
            assert!(failure.hint().is_some(), "{failure} has no hint");
        }
    }

    fn order(program: impl Into<OsString>, env: &[(&str, &str)]) -> StartDaemon {
        StartDaemon {
            daemon: DaemonId(7),
            session: SessionId(2),
            program: Program {
                program: program.into(),
                args: vec!["-x".into()],
                env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
                chosen: 0,
                cwd: None,
            },
            output: DaemonOutput::Drop,
            lib_dirs: Vec::new(),
            container: None,
        }
    }

    #[test]
    fn a_daemon_in_a_container_is_started_by_what_enters_it() {
        let node = Fixture::new();
        let staged = node.file("s2/bin/tool", 0o700);
        let search = node.scratch.path().join("usr/bin");
        let path = [("PATH", search.to_str().unwrap())];
        let mut order = order("tool", &path);
        order.container = Some("instance://x".into());
        let none = node.build_from(&order).unwrap_err();
        assert!(none.kind() == Kind::NotFound && none.message().contains("instance://x"), "{none}");
        let apptainer = node.file("usr/bin/apptainer", 0o700);
        assert_eq!(node.build_from(&order).unwrap().program, apptainer);
        let starter = node.file("usr/bin/singularity", 0o700);
        let daemon = node.build_from(&order).unwrap();
        assert_eq!(daemon.program, starter);
        let words = [
            starter.as_os_str(),
            "exec".as_ref(),
            "instance://x".as_ref(),
            staged.as_os_str(),
            "-x".as_ref(),
        ];
        assert_eq!(daemon.argv, words);
        let value = |name: &str| daemon.env.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone());
        for starter in ["SINGULARITYENV_", "APPTAINERENV_"] {
            assert_eq!(value(&format!("{starter}LD_LIBRARY_PATH")), value("LD_LIBRARY_PATH"));
            assert_eq!(value(&format!("{starter}PREPEND_PATH")), Some(node.dirs.bin.clone().into()));
        }
    }

    #[test]
    fn a_program_is_found_by_path_by_session_or_by_name() {
        let node = Fixture::new();
        let staged = node.file("s2/bin/tool", 0o700);
        let other = node.file("usr/bin/tool", 0o700);
        let deep = node.file("s2/pkg/run", 0o700);
        let search = node.scratch.path().join("usr/bin");
        let path = [("PATH", search.to_str().unwrap())];
        assert_eq!(node.build("tool", &path).unwrap().program, staged);
        assert_eq!(node.build(&other, &path).unwrap().program, other);
        assert_eq!(node.build("pkg/run", &path).unwrap().program, deep);
        fs::set_permissions(&staged, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(
            node.build("tool", &path).unwrap().program,
            other,
            "what cannot be executed is passed over"
        );
        fs::remove_file(&staged).unwrap();
        assert_eq!(node.build("tool", &path).unwrap().program, other);
        assert!(node.build("sh", &[]).unwrap().program.ends_with("bin/sh"), "the usual PATH");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_said_to_be_so() {
        let node = Fixture::new();
        let plain = node.file("plain", 0o600);
        node.file("s2/bin/plain", 0o600);
        node.check_failure("nothing-like-it", &[("PATH", "/bin")], Kind::NotFound, "nor in PATH (/bin)");
        node.check_failure("pkg/none", &[], Kind::NotFound, "s2/pkg/none: no such file");
        node.check_failure(&plain, &[], Kind::NoAccess, "may not be executed");
        node.check_failure("plain", &[], Kind::NoAccess, "may not be executed");
        node.check_failure(node.scratch.path(), &[], Kind::Invalid, "is a directory");
        node.check_failure(plain.join("below"), &[], Kind::NotFound, "no such file");
        node.check_failure("/dev/null", &[], Kind::NoAccess, "may not be executed");
    }

    #[test]
    fn the_current_directory_is_no_part_of_the_search() {
        let node = Fixture::new();
        for path in ["", ":", ".", "::."] {
            node.check_failure("Cargo.toml", &[("PATH", path)], Kind::NotFound, "nor in PATH");
        }
    }

    #[test]
    fn the_environment_is_the_orders_and_ours_wins() {
        let node = Fixture::new();
        node.file("s2/bin/tool", 0o700);
        let env = [
            ("A", "order"),
            ("PATH", "/opt/bin"),
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("TMPDIR", "/elsewhere"),
            ("GANTRY_SESSION", "forged"),
            ("GANTRY_JOB_HANDLE", "another app's"),
            ("GANTRY_SUBJOB_RANK", "7"),
        ];
        let daemon = node.build("tool", &env).unwrap();
        let root = node.dirs.root.to_str().unwrap();
        let expected = [
            ("A", "order"),
            ("GANTRY_APP", "3kx9w0fz"),
            ("GANTRY_BACKEND_SOCKET", "/x/agent.sock"),
            ("GANTRY_DAEMON", "7"),
            ("GANTRY_DAEMON_TOKEN", "t"),
            ("GANTRY_JOB_HANDLE", "gantry+unix://@here?job"),
            ("GANTRY_NODE", "4"),
            ("GANTRY_SESSION", "2"),
            ("GANTRY_SESSION_DIR", root),
            ("GLOBUS_GRAM_JOB_HANDLE", "gantry+unix://@here?job"),
            ("LANG", "C"),
            ("LD_LIBRARY_PATH", &format!("{root}/lib:/opt/lib")),
            ("PATH", &format!("{root}/bin:/opt/bin")),
            ("TMPDIR", &format!("{root}/tmp")),
        ];
        let found: Vec<_> =
            daemon.env.iter().map(|(n, v)| (n.to_str().unwrap(), v.to_str().unwrap())).collect();
        assert_eq!(found, expected);
        assert_eq!((daemon.argv, daemon.cwd), (vec!["tool".into(), "-x".into()], node.dirs.root.clone()));
    }

    #[test]
    fn an_empty_search_path_gets_no_empty_part() {
        let node = Fixture::new();
        node.file("s2/bin/tool", 0o700);
        let daemon = node.build("tool", &[("LD_LIBRARY_PATH", ""), ("PATH", "")]).unwrap();
        for (name, dir) in [("PATH", &node.dirs.bin), ("LD_LIBRARY_PATH", &node.dirs.lib)] {
            let value = daemon.env.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
            assert_eq!(value, Some(dir.clone().into_os_string()));
        }
    }

    #[test]
    fn library_directories_of_the_order_come_first() {
        let node = Fixture::new();
        node.file("s2/bin/tool", 0o700);
        let mut order = order("tool", &[("LD_LIBRARY_PATH", "/opt/lib")]);
        order.lib_dirs = vec!["v2".into(), "a/b".into()];
        let daemon = node.build_from(&order).unwrap();
        let lib = node.dirs.lib.display();
        let expected = format!("{lib}/v2:{lib}/a/b:{lib}:/opt/lib");
        assert!(daemon.env.contains(&("LD_LIBRARY_PATH".into(), expected.into())), "{:?}", daemon.env);
        for bad in ["", "/opt", "..", "a/../b", "a:b", "$ORIGIN", "a;b", "a//b", "a\0"] {
            order.lib_dirs = vec![bad.into()];
            let failure = node.build_from(&order).unwrap_err();
            assert_eq!((failure.kind(), failure.hint().is_some()), (Kind::Invalid, true), "{bad:?}");
        }
    }

    #[test]
    fn a_daemon_starts_in_a_directory_that_is_there() {
        let node = Fixture::new();
        node.file("s2/bin/tool", 0o700);
        let mut order = order("tool", &[]);
        let mut check = |cwd: &str, expected: Option<PathBuf>| {
            order.program.cwd = Some(cwd.into());
            assert_eq!(node.build_from(&order).map(|daemon| daemon.cwd).ok(), expected);
        };
        check("/", Some("/".into()));
        check("tmp", Some(node.dirs.tmp.clone()));
        check("/nowhere/at/all", None);
        check("bin/tool", None);
    }

    #[test]
    fn texts_that_no_process_can_be_given_are_refused() {
        let node = Fixture::new();
        node.file("s2/bin/tool", 0o700);
        let invalid = |order: &StartDaemon| {
            assert_eq!(node.build_from(order).unwrap_err().kind(), Kind::Invalid, "{order:?}");
        };
        invalid(&order("", &[]));
        invalid(&order("to\0ol", &[]));
        for env in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")] {
            invalid(&order("tool", &[env]));
        }
        let mut with_arg = order("tool", &[]);
        with_arg.program.args.push("a\0b".into());
        invalid(&with_arg);
        let failure = node.build("tool", &[("A", "secret\0")]).unwrap_err();
        assert!(!failure.message().contains("secret"), "{failure}");
    }
}
