//! `gantry stack` on programs whose symbols are elsewhere: in the debug information that is installed by build id, on
//! the login side or on the node, in a file that only the node has, and in one whose path another file has by now.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test takes symbols out of a program with the system's tools"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_tests::{
    Finished, OtherRoot, World, copy_program, in_a_world, in_another_root, programs, require, skip, tool,
};

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(180);

/// Where debug information is installed, by build id.
const INSTALLED: &str = "usr/lib/debug";

/// A program without symbols at `to`. Its symbols are below `root`, by its build id.
fn strip(program: &Path, to: &Path, root: &Path) {
    let id = run("readelf", &["--notes", program.to_str().unwrap()]);
    let id =
        id.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build id").to_owned();
    let symbols = root.join(INSTALLED).join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
    for file in [&symbols, to] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    let (program, symbols) = (program.to_str().unwrap(), symbols.to_str().unwrap());
    run("objcopy", &["--only-keep-debug", program, symbols]);
    run("objcopy", &["--strip-all", program, to.to_str().unwrap()]);
}

#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A program that has a build id, whatever the compiler's default is.
fn two_paths() -> PathBuf {
    programs::get_with("two_paths", "id_paths", &["-fPIE", "-pie", "-Wl,--build-id"]).unwrap()
}

/// Runs `gantry stack` until it finds both ranks where they wait. Returns the tree.
#[track_caller]
fn look(mut stack: impl FnMut() -> Finished) -> String {
    let until = Instant::now() + SOON;
    loop {
        let done = stack();
        assert_eq!(done.code(), 0, "{done:?}");
        let tree = done.stdout.join("\n");
        if tree.starts_with("2 ranks in 2 classes") && tree.matches("pause").count() == 2 {
            return tree;
        }
        assert!(Instant::now() < until, "{tree}");
    }
}

/// Launches two ranks, without or with another root on their node.
#[track_caller]
fn launched(world: &World, other: Option<&OtherRoot>, program: &str) -> String {
    let command = format!("exec {program} 200");
    let words = ["launch", "--background", "--", "-n", "2", "/bin/sh", "-c", &command];
    let done = match other {
        Some(other) => world.spawn(other.gantry_command(world, words)).wait(SOON),
        None => world.gantry(words).wait(SOON),
    };
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    done.stdout[0].clone()
}

const FUNCTIONS: [&str; 4] =
    ["main (two_paths.c:", "even_path (two_paths.c:", "odd_path (two_paths.c:", "wait_here (two_paths.c:"];

#[track_caller]
fn assert_named(tree: &str) {
    assert!(FUNCTIONS.iter().all(|function| tree.contains(function)), "{tree}");
}

#[test]
fn symbols_that_are_installed_on_the_login_side_are_found_by_build_id() {
    require!(tool("objcopy").and_then(|_| tool("readelf")).and_then(|_| tool("unshare")));
    require!(OtherRoot::usable());
    if !Path::new("/").join(INSTALLED).is_dir() {
        skip!("there is no /{INSTALLED} to mount symbols at");
    }
    in_a_world(LIMIT, |world| {
        let (root, program) = (world.work_dir().join("root"), world.work_dir().join("bare_paths"));
        strip(&two_paths(), &program, &root);
        let app = launched(world, None, program.to_str().unwrap());
        let tree = look(|| world.gantry(["stack", &app]).wait(SOON));
        assert!(tree.contains("bare_paths+0x") && !tree.contains("two_paths.c"), "{tree}");
        let gantry = gantry_tests::binaries().gantry.display().to_string();
        let folder = root.join(INSTALLED).display().to_string();
        let script = "mount --bind \"$0\" /usr/lib/debug && exec \"$@\"";
        let words = ["--mount", "sh", "-c", script, &folder, &gantry, "stack", &app];
        assert_named(&look(|| world.start(&tool("unshare").unwrap(), words).wait(SOON)));
        assert_eq!(world.gantry(["kill", "--yes", &app]).wait(SOON).code(), 0);
    });
}

#[test]
fn symbols_of_a_file_that_only_the_node_has_are_found_there() {
    require!(tool("objcopy").and_then(|_| tool("readelf")));
    in_another_root!(|world, other| {
        let whole = two_paths();
        fs::create_dir_all(other.inside(Path::new("/own"))).unwrap();
        copy_program(&whole, other.inside(Path::new("/own/whole_paths")));
        // Another one has its symbols in the folder of the node's own root.
        strip(&whole, &other.inside(Path::new("/own/bare_paths")), &other.inside(Path::new("/")));
        let symbols = other.inside(&Path::new("/").join(INSTALLED));
        for (program, has_symbols) in [("whole_paths", true), ("bare_paths", true), ("bare_paths", false)] {
            if !has_symbols {
                fs::remove_dir_all(&symbols).unwrap();
            }
            assert!(!Path::new("/own").exists());
            let app = launched(world, Some(other), &format!("/own/{program}"));
            let tree = look(|| world.gantry(["stack", &app]).wait(SOON));
            match has_symbols {
                true => assert_named(&tree),
                false => assert!(tree.contains("bare_paths+0x"), "{tree}"),
            }
            assert_eq!(world.gantry(["kill", "--yes", &app]).wait(SOON).code(), 0);
        }
    });
}

/// Launches two ranks of a program, waits until they wait, and puts another program in its place. `command` stands
/// before the program.
#[track_caller]
fn replaced(world: &World, old: &Path, new: &Path, command: &str) -> String {
    let [program, next] = ["replaced", "next"].map(|name| world.work_dir().join(name));
    copy_program(old, &program);
    let app = launched(world, None, &format!("{command} {}", program.display()));
    look(|| world.gantry(["stack", &app]).wait(SOON));
    copy_program(new, &next);
    fs::rename(&next, &program).unwrap();
    app
}

/// The callers of a static program without an index are in the file alone. The other program's table has frames of
/// another size.
#[test]
fn a_program_that_was_replaced_while_it_runs_has_its_names() {
    let pie = ["-fPIE", "-pie"];
    let without_index = ["-fno-pie", "-static", "-Wl,--no-eh-frame-hdr", "-fomit-frame-pointer"];
    let made = |flags: &[&str]| {
        let other = [flags, &["-DROOM=4096"]].concat();
        let old = programs::get_with("two_paths", "old_paths", flags)?;
        Ok::<_, String>((old, programs::get_with("two_paths", "new_paths", &other)?))
    };
    let programs = [require!(made(&pie)), require!(made(&without_index))];
    in_a_world(LIMIT, move |world| {
        for (old, new) in &programs {
            let app = replaced(world, old, new, "");
            let tree = look(|| world.gantry(["stack", &app]).wait(SOON));
            let names = ["main", "even_path", "odd_path", "work", "wait_here"];
            assert!(names.iter().all(|name| tree.contains(name)), "{tree}");
            assert_eq!(world.gantry(["kill", "--yes", &app]).wait(SOON).code(), 0);
        }
    });
}

/// Where the loader was started with the program as its argument, the process's own program is the loader. So the file
/// is gone, as that of a library.
#[test]
fn a_file_that_was_replaced_and_is_no_program_is_named() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !Path::new(loader).exists() {
        skip!("there is no {loader}");
    }
    in_a_world(LIMIT, move |world| {
        let app = replaced(world, &two_paths(), &programs::get("clock"), loader);
        let mut notes = Vec::new();
        let tree = look(|| {
            let done = world.gantry(["stack", &app]).wait(SOON);
            notes.clone_from(&done.stderr);
            done
        });
        let note = "/replaced has changed since the ranks began: names of functions are missing";
        assert!(
            tree.contains("replaced+0x") && notes.iter().any(|line| line.contains(note)),
            "{tree}\n{notes:?}"
        );
        assert_eq!(world.gantry(["kill", "--yes", &app]).wait(SOON).code(), 0);
    });
}
