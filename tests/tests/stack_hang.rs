//! `gantry stack` while the file system of the ranks' programs hangs, here and on the nodes. That is a common cause of
//! a hang, so just then the answer is wanted.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_tests::programs;
use gantry_tests::pythons::python;
use gantry_tests::{
    Finished, OtherRoot, Run, World, binaries, copy_program, in_a_world, require, skip, tool,
};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

/// Where file systems can be mounted that nobody else sees, and the first process there.
struct Place<'w> {
    world: &'w World,
    holder: Run,
    /// The folder with the programs.
    folder: PathBuf,
}

impl<'w> Place<'w> {
    fn new(world: &'w World) -> Self {
        let folder = world.work_dir().join("hangs");
        fs::create_dir(&folder).unwrap();
        let script = "echo here; read word; exec \"$0\" \"$1\" killable";
        let hang_fs = binaries().dir.join("hang_fs").display().to_string();
        let words = ["--mount", "/bin/sh", "-c", script, &hang_fs, folder.to_str().unwrap()];
        let mut holder = world.start(&tool("unshare").unwrap(), words);
        assert_eq!(holder.next_line(SOON), "here");
        Self { world, holder, folder }
    }

    fn gantry(&self, words: &[&str]) -> Run {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.pid());
        let gantry = binaries().gantry.display().to_string();
        self.world.start(&tool("nsenter").unwrap(), [&[namespace.as_str(), &gantry], words].concat())
    }

    /// Copies a program to the folder, launches two ranks of it, and waits until their tree has this
    /// beginning, and this function so often.
    #[track_caller]
    fn launched(
        &self,
        program: &Path,
        name: &str,
        command: &str,
        begin: &str,
        function: (&str, usize),
    ) -> String {
        copy_program(program, self.folder.join(name));
        let command = command.replace("HERE", self.folder.to_str().unwrap());
        let done =
            self.gantry(&["launch", "--background", "--", "-n", "2", "/bin/sh", "-c", &command]).wait(SOON);
        assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
        let until = Instant::now() + SOON;
        loop {
            let tree = self.gantry(&["stack", &done.stdout[0]]).wait(SOON).stdout.join("\n");
            if tree.starts_with(begin) && tree.matches(function.0).count() == function.1 {
                return done.stdout[0].clone();
            }
            assert!(Instant::now() < until, "{tree}");
        }
    }

    #[track_caller]
    fn launched_paths(&self, program: &Path) -> String {
        let command = "exec HERE/two_paths 200";
        self.launched(program, "two_paths", command, "2 ranks in 2 classes", ("pause", 2))
    }

    /// From now on, nothing of the folder is there for anybody.
    fn hang(&mut self) {
        self.holder.write(b"\n");
        assert_eq!(self.holder.next_line(SOON), "hangs");
    }

    fn end(mut self, app: &str) {
        assert_eq!(self.gantry(&["kill", "--yes", app]).wait(SOON).code(), 0);
        self.holder.close_stdin();
        self.holder.exited(SOON);
    }
}

/// Everything that these tests need.
fn usable() -> Result<(), String> {
    tool("nsenter")?;
    let device = Path::new("/dev/fuse");
    if device.exists() { OtherRoot::usable() } else { Err("there is no /dev/fuse".to_owned()) }
}

#[track_caller]
fn assert_note(done: &Finished, file: &str) {
    let note = format!("/{file} is on a file system that does not answer: names of functions are missing");
    assert!(done.stderr.iter().any(|line| line.contains(&note)), "{done:?}");
}

#[test]
fn ranks_whose_program_cannot_be_read_are_seen_with_the_names_that_it_exports() {
    require!(usable());
    let flags = ["-fPIE", "-pie", "-rdynamic"];
    let program = require!(programs::get_with("two_paths", "open_paths", &flags));
    in_a_world(LIMIT, move |world| {
        let mut place = Place::new(world);
        let app = place.launched_paths(&program);
        place.hang();
        let done = place.gantry(&["stack", &app]).wait(SOON);
        let tree = done.stdout.join("\n");
        assert!(done.code() == 0 && tree.starts_with("2 ranks in 2 classes"), "{done:?}");
        let functions = ["main", "even_path", "odd_path", "wait_here", "pause"];
        assert!(functions.iter().all(|function| tree.contains(function)), "{done:?}");
        assert!(!tree.contains("two_paths.c"), "{done:?}");
        assert_note(&done, "two_paths");
        place.end(&app);
    });
}

#[test]
fn ctrl_c_ends_a_look_at_a_program_that_cannot_be_read() {
    require!(usable());
    in_a_world(LIMIT, |world| {
        let mut place = Place::new(world);
        let app = place.launched_paths(&programs::get("two_paths"));
        place.hang();
        let mut stack = place.gantry(&["stack", &app]);
        assert_eq!(place.holder.next_line(SOON), "asked");
        stack.signal(Signal::SIGINT);
        assert_eq!(stack.wait(SOON).code(), 130);
        place.end(&app);
    });
}

/// The interpreter's functions are wanted before its ranks are read.
#[test]
fn ranks_whose_interpreter_cannot_be_read_are_seen() {
    require!(usable());
    let Some(python) = (9..15).find_map(python) else { skip!("there is no Python 3.9 to 3.14") };
    in_a_world(LIMIT, move |world| {
        let mut place = Place::new(world);
        let home = python.ancestors().nth(2).unwrap();
        let name = python.file_name().unwrap().to_str().unwrap().to_owned();
        // Some interpreters are a library.
        let library = home.join(format!("lib/lib{name}.so.1.0"));
        let (file, preload) = match fs::copy(&library, place.folder.join(library.file_name().unwrap())) {
            Ok(_) => (format!("lib{name}.so.1.0"), format!("LD_PRELOAD=HERE/lib{name}.so.1.0")),
            Err(_) => (name.clone(), String::new()),
        };
        let script = "import time; time.sleep(200)";
        let command = format!("PYTHONHOME={} {preload} exec HERE/{name} -c '{script}'", home.display());
        let app = place.launched(&python, &name, &command, "2 ranks in 1 class", ("<module>", 1));
        place.hang();
        let done = place.gantry(&["stack", "--full", &app]).wait(SOON);
        let tree = done.stdout.join("\n");
        assert!(done.code() == 0 && tree.starts_with("2 ranks in 1 class"), "{done:?}");
        assert!(tree.contains("<module>"), "{done:?}");
        assert_note(&done, &file);
        place.end(&app);
    });
}

/// The node lacks debug information, so gantry searches it here.
#[test]
fn gdb_goes_on_without_debug_information_that_cannot_be_read() {
    require!(usable().and_then(|()| tool("gdb")));
    let flags = ["-g0", "-Wl,--build-id", "-fPIE", "-pie"];
    let program = require!(programs::get_with("two_paths", "dull_paths", &flags));
    in_a_world(LIMIT, move |world| {
        let mut place = Place::new(world);
        let app = place.launched_paths(&program);
        place.hang();
        let mut gdb = place.gantry(&["gdb", "-ex", "backtrace", &app]);
        gdb.stderr_line("symbols were not sent to the nodes", SOON);
        gdb.kill();
        gdb.exited(SOON);
        place.end(&app);
    });
}
