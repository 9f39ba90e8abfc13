use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::process::test_support::turn;

struct Fixture {
    scratch: tempfile::TempDir,
    dirs: SessionDirs,
}

impl Fixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dirs = SessionDirs::new(scratch.path().join("s1"));
        for dir in [&dirs.bin, &dirs.lib, &dirs.root.join(LOADER_DIR)] {
            fs::create_dir_all(dir).unwrap();
        }
        Self { scratch, dirs }
    }

    fn file(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.dirs.root.join(path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn by_loader(&self, command: Command, name: &str) -> Result<Command, Failure> {
        let libraries = vec![self.dirs.lib.join("v1"), self.dirs.lib.clone()];
        command.by_loader(OsStr::new(name), &self.dirs, libraries, OsStr::new("/opt/lib"))
    }
}

fn command(program: &Path) -> Command {
    Command::new(program.to_owned(), OsStr::new("tool"), &["-x".into()])
}

#[test]
fn a_first_line_is_taken_apart_as_the_kernel_does_it() {
    let check = |line: &str, expected: Option<(&str, Option<&str>)>| {
        let expected =
            expected.map(|(interpreter, arg)| (PathBuf::from(interpreter), arg.map(OsString::from)));
        assert_eq!(parse_first_line(line.as_bytes()), expected, "{line:?}");
    };
    check("#!/bin/sh\necho", Some(("/bin/sh", None)));
    check("#! \t/bin/sh -e -x \nfoo", Some(("/bin/sh", Some("-e -x"))));
    check("#!/usr/bin/env python3", Some(("/usr/bin/env", Some("python3"))));
    check("#!/bin/sh\r\n", Some(("/bin/sh\r", None)));
    check("#!/bin/sh\0-e\n", Some(("/bin/sh", None)));
    check("#!\n/bin/sh", None);
    check("#!   ", None);
    check("\u{7f}ELF", None);
    check("", None);
}

#[test]
fn a_script_runs_with_the_sessions_interpreter_where_the_node_has_none() {
    let node = Fixture::new();
    let python = node.file("bin/python9", "", 0o700);
    node.file("bin/plain9", "", 0o600);
    let check = |line: &str, expected: Option<&[&str]>| {
        let script = node.file("bin/script", format!("{line}\nprint()"), 0o700);
        let found = command(&script).by_interpreter(&node.dirs);
        match expected {
            None => assert_eq!(found, command(&script), "{line}"),
            Some(args) => {
                let mut argv = vec![python.clone().into_os_string()];
                argv.extend(args.iter().map(OsString::from));
                argv.extend([script.into_os_string(), "-x".into()]);
                assert_eq!(found, Command { program: python.clone(), argv }, "{line}");
            }
        }
    };
    check("#!/opt/gone/bin/python9", Some(&[]));
    check("#!/opt/gone/bin/python9 -E -s", Some(&["-E -s"]));
    check("#!/usr/bin/env python9", Some(&[]));
    check("#!/opt/gone/bin/perl9", None);
    check("#!/opt/gone/bin/plain9", None);
    check("#!/usr/bin/env perl9", None);
    check("#!/usr/bin/env -S python9", None);
    check("#!/bin/sh", None);
    check("#!python9", None);
    check("no script", None);
    // The node has that interpreter, and other users could exchange it.
    let planted = node.scratch.path().join("python9");
    fs::write(&planted, "").unwrap();
    let line = format!("#!{}", planted.display());
    check(&line, None);
    fs::set_permissions(&planted, PermissionsExt::from_mode(0o757)).unwrap();
    check(&line, Some(&[]));
    // A script named by its path on the node runs as it does there.
    let elsewhere = node.scratch.path().join("script");
    fs::write(&elsewhere, "#!/opt/gone/bin/python9\n").unwrap();
    assert_eq!(command(&elsewhere).by_interpreter(&node.dirs), command(&elsewhere));
}

#[test]
fn programs_of_the_session_run_through_its_loader() {
    let own = fs::read("/proc/self/exe").unwrap();
    if read_interpreter(&File::open("/proc/self/exe").unwrap()).unwrap().is_none() {
        return crate::skip::skip("this test is linked statically");
    }
    let node = Fixture::new();
    let tool = node.dirs.bin.join("tool");
    symlink("/proc/self/exe", &tool).unwrap();
    let (lib, dir) = (node.dirs.lib.display(), node.dirs.root.join(LOADER_DIR));
    let path = format!("{lib}/v1:{lib}:{}:/opt/lib", dir.display());
    let old = node.file("loader/old.so", "...--library-path\0...", 0o700);
    let new = node.file("loader/new.so", "...--library-path\0--argv0\0...", 0o700);
    node.file("loader/plain.so", "", 0o600);
    let check = |loader: &Path, argv0: &[&str]| {
        let name = loader.file_name().unwrap().to_str().unwrap();
        let mut argv = vec![loader.as_os_str().to_owned(), "--library-path".into(), path.clone().into()];
        argv.extend(argv0.iter().map(OsString::from));
        argv.extend([tool.clone().into_os_string(), "-x".into()]);
        assert_eq!(
            node.by_loader(command(&tool), name).unwrap(),
            Command { program: loader.to_owned(), argv }
        );
    };
    check(&new, &["--argv0", "tool"]);
    check(&old, &[]);
    for bad in ["gone.so", "plain.so"] {
        let failure = node.by_loader(command(&tool), bad).unwrap_err();
        assert_eq!((failure.kind(), failure.hint().is_some()), (Kind::NotFound, true));
    }
    let script = node.file("bin/script", "#!/bin/sh\n", 0o700);
    let fixed = node.file("bin/static", &own[..64], 0o700);
    let outside = node.dirs.bin.join("../bin/tool");
    for other in [Path::new("/bin/sh"), &script, &fixed, &outside, &node.dirs.bin.join("gone")] {
        assert_eq!(node.by_loader(command(other), "new.so").unwrap(), command(other), "{}", other.display());
    }
}

/// The machine's own loader, instead of one that was sent.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test starts a program")]
fn a_loader_starts_what_it_is_given_under_its_name() {
    use std::os::unix::process::CommandExt;
    let interpreter = read_interpreter(&File::open("/bin/sh").unwrap()).unwrap();
    let loader = interpreter.map(|path| PathBuf::from(OsStr::from_bytes(&path)));
    let Some(loader) = loader.filter(|loader| knows_argv0(loader)) else {
        return crate::skip::skip("the shell has no loader that knows --argv0");
    };
    let node = Fixture::new();
    fs::copy(&loader, node.dirs.root.join("loader/ld.so")).unwrap();
    fs::copy("/bin/sh", node.dirs.bin.join("shell")).unwrap();
    let args = ["-c".into(), "echo $0".into()];
    let command = Command::new(node.dirs.bin.join("shell"), OsStr::new("a name"), &args);
    // Without an argument behind the text, $0 is the shell's own name.
    let command = node.by_loader(command, "ld.so").unwrap();
    let _turn = turn();
    let mut process = std::process::Command::new(&command.program);
    let output = process.arg0(&command.argv[0]).args(&command.argv[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "a name\n", "{}", String::from_utf8_lossy(&output.stderr));
}
