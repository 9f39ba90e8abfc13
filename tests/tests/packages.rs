//! `cargo xtask package`: each package is made, put into a root of its own, and run there.
//!
//! The programs are those under test without their symbols, so that compressing them takes no minute. The C libraries
//! are empty.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::{World, binaries, in_a_world, require, tool};

const LIMIT: Duration = Duration::from_secs(180);

const PROGRAMS: [&str; 6] =
    ["gantry", "gantry-mpir", "gantry-guard", "gantry-agent", "gantry-stackd", "gantry-gdbd"];

/// A compiler that links an empty library of the same name.
const CC: &str = "#!/bin/sh
for word; do case $word in -Wl,-soname,*) name=$word ;; esac; done
while [ \"$1\" != -o ]; do shift; done
exec cc -shared -o \"$2\" $name -x c /dev/null
";

/// The second of the files in a package.
const DATE: &str = "1000000000";

/// Runs a command to its end. Returns its output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Makes a package, and returns its path.
#[track_caller]
fn package(world: &World, format: &str, umask: &str) -> PathBuf {
    let target = world.work_dir().join("target");
    let built = target.join("debug");
    if !built.is_dir() {
        fs::create_dir_all(&built).unwrap();
        for name in PROGRAMS {
            run(world.command("strip").arg("-o").arg(built.join(name)).arg(binaries().dir.join(name)));
        }
        world.executable("cc", CC.as_bytes());
    }
    let out = world.work_dir().join(umask);
    let mut command = world.command("/bin/sh");
    command.args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")]);
    command.arg(binaries().dir.join("gantry-xtask")).args(["package", "--no-build", "--profile", "dev"]);
    command.args(["--format", format, "--cc"]).arg(world.work_dir().join("cc")).arg("--out").arg(&out);
    command.env("CARGO_TARGET_DIR", target).env("SOURCE_DATE_EPOCH", DATE);
    // Nothing here is about small packages.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    if format == "rpm" {
        fs::write(world.work_dir().join(".rpmmacros"), "%_binary_payload w1.gzdio\n").unwrap();
        command.env("HOME", world.work_dir());
        // rustup finds cargo without that.
        let variable = |name: &str| std::env::vars_os().find(|(it, _)| it == name).map(|(_, value)| value);
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
            let usual = || Some(PathBuf::from(variable("HOME")?).join(folder).into_os_string());
            command.envs(variable(name).or_else(usual).map(|place| (name, place)));
        }
    }
    let said = run(&mut command);
    assert!(said.contains(": runs with glibc 2."), "{said}");
    let made: Vec<PathBuf> = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(said.starts_with(&made[0].display().to_string()) && made.len() == 1, "{said}: {made:?}");
    made[0].clone()
}

/// Whoever makes a package of the same programs gets the same bytes.
#[track_caller]
fn package_twice(world: &World, format: &str) -> PathBuf {
    let [one, two] = ["022", "077"].map(|umask| package(world, format, umask));
    assert!(fs::read(&one).unwrap() == fs::read(two).unwrap(), "{}", one.display());
    one
}

/// Why no package manager installs here.
fn root() -> Result<(), String> {
    match nix::unistd::geteuid().is_root() {
        true => tool("bwrap").map(drop),
        false => Err("only root installs packages".to_owned()),
    }
}

/// Launches two ranks where only the package and the C library are.
#[track_caller]
fn launch_in(world: &World, root: &Path) {
    fs::create_dir_all(root.join("tmp")).unwrap();
    let mut command = world.command("bwrap");
    command.arg("--bind").arg(root).arg("/");
    for path in ["/lib/x86_64-linux-gnu", "/lib64", "/bin/sh"].iter().filter(|path| Path::new(path).exists())
    {
        command.args(["--ro-bind", path, path]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--bind"]).args([world.path(), world.path()]);
    command.args(["--setenv", "PATH", "/usr/bin:/bin", "--chdir", "/", "--die-with-parent"]);
    let said = run(command.args(["gantry", "launch", "-n", "2", "sh", "-c", "echo here"]));
    assert_eq!(said, "here\nhere\n");
}

/// The files and links below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let all = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap());
        for entry in all {
            let list = if entry.file_type().unwrap().is_dir() { &mut folders } else { &mut found };
            list.push(entry.path());
        }
    }
    found
}

#[test]
fn an_archive_runs_where_it_is_unpacked() {
    require!(tool("strip"));
    let pkg_config = require!(tool("pkg-config"));
    in_a_world(LIMIT, move |world| {
        let made = package_twice(world, "tar");
        let name = made.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
        assert!(name.starts_with("gantry-") && name.ends_with("-linux"), "{name}");
        let list = run(world.command("tar").arg("--list").arg("--verbose").arg("--file").arg(&made));
        for line in list.lines() {
            assert!(
                line.contains(" root/root ") && line.contains(" 2001-09-0") && line.contains(name),
                "{line}"
            );
        }
        let there = world.work_dir().join("there");
        fs::create_dir(&there).unwrap();
        run(world.command("tar").arg("--extract").arg("--file").arg(&made).arg("--directory").arg(&there));
        let prefix = there.join(name);
        assert!(prefix.join("share/doc/gantry/LICENSE-MIT").is_file());
        let launch = ["launch", "-n", "2", "sh", "-c", "echo here"];
        assert_eq!(run(world.command(prefix.join("bin/gantry")).args(launch)), "here\nhere\n");
        let mut command = world.command(pkg_config);
        command.args(["--variable=libdir", "gantry_tm"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let libraries = PathBuf::from(run(&mut command).trim());
        assert_eq!(libraries.canonicalize().unwrap(), prefix.join("lib").canonicalize().unwrap());
    });
}

#[test]
fn a_package_for_dpkg_runs_and_is_removed() {
    require!(root());
    for name in ["strip", "dpkg", "dpkg-deb", "dpkg-shlibdeps"] {
        require!(tool(name));
    }
    in_a_world(LIMIT, |world| {
        let made = package_twice(world, "deb");
        let root = world.work_dir().join("root");
        let dpkg = |args: &[&OsStr]| run(world.command("dpkg").arg("--root").arg(&root).args(args));
        let database = root.join("var/lib/dpkg");
        ["info", "updates"].iter().for_each(|name| fs::create_dir_all(database.join(name)).unwrap());
        // The packages that it depends on, with their real versions.
        let there = run(world.command("dpkg-query").args(["--status", "libc6", "libgcc-s1"]));
        fs::write(database.join("status"), there).unwrap();
        dpkg(&["--install".as_ref(), made.as_os_str()]);
        assert_eq!(dpkg(&["--verify".as_ref(), "gantry".as_ref()]), "");
        let usr = root.join("usr");
        for name in [
            "share/doc/gantry/copyright",
            "share/zsh/vendor-completions/_gantry",
            "share/man/man1/gantry.1.gz",
        ] {
            assert!(usr.join(name).is_file(), "{name}");
        }
        let libraries = run(world.command("dpkg-architecture").args(["-q", "DEB_HOST_MULTIARCH"]));
        assert!(usr.join("lib").join(libraries.trim()).join("libcommontools_fe.so.2").is_file());
        let control = run(world.command("dpkg-deb").arg("--field").arg(&made).arg("Depends"));
        assert!(control.contains("libc6 (>= 2."), "{control}");
        launch_in(world, &root);
        dpkg(&["--remove".as_ref(), "gantry".as_ref()]);
        assert_eq!(files_below(&usr), [] as [PathBuf; 0]);
    });
}

#[test]
fn a_package_for_rpm_runs_and_is_removed() {
    require!(root());
    for name in ["strip", "rpm", "rpmbuild"] {
        require!(tool(name));
    }
    in_a_world(LIMIT, |world| {
        let made = package_twice(world, "rpm");
        let root = world.work_dir().join("root");
        fs::create_dir(&root).unwrap();
        let rpm = |args: &[&OsStr]| run(world.command("rpm").arg("--root").arg(&root).args(args));
        let query =
            |what: &str| rpm(&["--query".as_ref(), what.as_ref(), "--package".as_ref(), made.as_os_str()]);
        let needs = query("--requires");
        assert!(needs.contains("libc.so.6(GLIBC_2.") && !needs.contains("pkg-config"), "{needs}");
        // The root has no C library yet, and no ldconfig.
        let alone = ["--nodeps", "--noscripts", "--install"].map(OsStr::new);
        rpm(&[&alone[..], &[made.as_os_str()]].concat());
        assert_eq!(rpm(&["--verify", "--nodeps", "gantry"].map(OsStr::new)), "");
        let usr = root.join("usr");
        for name in
            ["share/doc/gantry/LICENSE-MIT", "lib64/libcommontools_fe.so.2", "share/man/man1/gantry.1.gz"]
        {
            assert!(usr.join(name).is_file(), "{name}");
        }
        launch_in(world, &root);
        rpm(&["--noscripts", "--erase", "gantry"].map(OsStr::new));
        assert_eq!(files_below(&usr), [] as [PathBuf; 0]);
        for folder in ["libexec/gantry", "share/doc/gantry"] {
            assert!(!usr.join(folder).exists(), "{folder}");
        }
    });
}
