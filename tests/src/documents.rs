//! The code blocks in the documents, and their commands, run as a reader would type them.
//!
//! The first line of a fence decides what happens to its commands:
//!
//! - `sh run=localhost`, `run=slurm`, `run=ssh`: they run there, in the order of the page, in one shell.
//! - `enter` in addition: the command waits for Enter, and gets it.
//! - `sh no-run=REASON`: they do not run, for one of the reasons of [`REASONS`].
//! - `text output`, `json output`: output lines of the previous block. A word with a digit matches any such word, `...`
//!   matches anything.
//!
//! Comments that are invisible to a reader complete a block. `<!-- first: COMMAND -->` runs before it. `<!-- let: 4711
//! => $! -->` replaces the first text by the second one. `<!-- after: COMMAND -->` is below the block, and runs after
//! it. `<!-- until: TEXT -->` ends the ranks that `running` has started as soon as that text appears.

use std::fmt;
use std::fs;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_types::id::AppId;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::binaries::workspace;
use crate::executable::copy_program;
use crate::slurm::Cluster;
use crate::testbed::config::{HOME, UID};
use crate::{Terminal, World, binaries, programs};

/// Why commands do not run.
pub const REASONS: [(&str, &str); 8] = [
    ("build", "they build or test gantry for minutes: .ci/run and examples/run do the same"),
    ("container", "they need a process in a container: the suite hold_at holds one"),
    ("flux", "they need Flux, which is no package of Debian: the suites flux_* do the same"),
    ("hangs", "they watch a job that hangs for minutes: the suite watch does the same"),
    ("licensed", "they need TotalView or DDT, which are sold: the suite gantry_mpir does the same with gdb"),
    ("mpi", "they need several managers at once: the suite coalloc_mpi does the same"),
    ("package", "they make and install packages: the suite packages does the same"),
    ("openpbs", "they need OpenPBS, which is no package of Debian: the suites pbs_* do the same"),
];

/// The timeout for the commands of one page.
const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// `eval "$(running COUNT LAUNCHER [OPTIONS])"` starts that many ranks of `app`, which wait for [`Desk::end_ranks`]. It
/// sets `launcher` and `job` when all of them run.
const RUNNING: &str = "#!/bin/bash
count=$1 ready=$PWD/ready.$$
shift
mkfifo $ready && exec 9<>$ready
\"$@\" sh -c 'echo ${SLURM_JOB_ID:-0} >\"$0\"; exec ./app \"$1\"' $ready $go 9>&- </dev/null >/dev/null 2>&1 &
for _ in $(seq $count); do read -r job <&9; done
echo launcher=$! job=$job
";

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The page.
    pub page: PathBuf,
    /// The line of its fence.
    pub line: usize,
    /// The words after the fence: a language, then markers.
    pub marks: Vec<String>,
    /// Its content.
    pub text: String,
    /// The file that it is a part of: `<!-- file: PATH -->`.
    pub file: Option<String>,
    /// Commands that run before it.
    pub first: Vec<String>,
    /// The output at which the attached ranks may end.
    pub until: Option<String>,
    /// Commands that run after it.
    pub after: Vec<String>,
    /// Texts and their replacements.
    pub replace: Vec<(String, String)>,
}

impl fmt::Display for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.page.strip_prefix(workspace()).unwrap_or(&self.page);
        write!(out, "{}:{}", page.display(), self.line)
    }
}

impl Block {
    /// The language.
    #[must_use]
    pub fn language(&self) -> &str {
        self.marks.first().map_or("", String::as_str)
    }

    /// The value of `NAME=` in the markers.
    #[must_use]
    pub fn mark(&self, name: &str) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether a marker is there.
    #[must_use]
    pub fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|it| it == mark)
    }

    fn script(&self) -> String {
        let mut text = self.text.clone();
        for (shown, meant) in &self.replace {
            assert!(text.contains(shown), "{self}: there is no {shown} to replace");
            text = text.replace(shown, meant);
        }
        let line = |line: &String| format!("{line}\n");
        self.first.iter().map(line).chain([text]).chain(self.after.iter().map(line)).collect()
    }
}

/// All documents: those in this repository's top folder, and the book.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = walk(&workspace(), false);
    pages.extend(walk(&workspace().join("docs/src"), true));
    pages.sort_unstable();
    pages
}

fn walk(folder: &Path, deep: bool) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
        if entry.extension().is_some_and(|end| end == "md") {
            pages.push(entry);
        } else if deep && entry.is_dir() {
            pages.extend(walk(&entry, deep));
        }
    }
    pages
}

/// The blocks of a page, in order.
///
/// # Panics
/// When the page cannot be read.
#[must_use]
pub fn blocks(page: &Path) -> Vec<Block> {
    parse(page, &fs::read_to_string(page).expect("a page"))
}

fn parse(page: &Path, text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut first, mut replace, mut until, mut file) = (Vec::new(), Vec::new(), None, None);
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        match (line.strip_prefix("```"), comment) {
            (Some(_), _) if open => open = false,
            (Some(info), _) => {
                open = true;
                found.push(Block {
                    page: page.to_owned(),
                    line: index + 1,
                    marks: info
                        .split([' ', ','])
                        .filter(|word| !word.is_empty())
                        .map(str::to_owned)
                        .collect(),
                    text: String::new(),
                    first: std::mem::take(&mut first),
                    until: until.take(),
                    file: file.take(),
                    after: Vec::new(),
                    replace: std::mem::take(&mut replace),
                });
            }
            (None, _) if open => {
                let block = found.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(comment)) => {
                if let Some(command) = comment.strip_prefix("first: ") {
                    first.push(command.to_owned());
                } else if let Some(path) = comment.strip_prefix("file: ") {
                    file = Some(path.to_owned());
                } else if let Some(text) = comment.strip_prefix("until: ") {
                    until = Some(text.to_owned());
                } else if let Some(command) = comment.strip_prefix("after: ") {
                    found.last_mut().expect("a block before").after.push(command.to_owned());
                } else if let Some((shown, meant)) =
                    comment.strip_prefix("let: ").and_then(|it| it.split_once(" => "))
                {
                    replace.push((shown.to_owned(), meant.to_owned()));
                }
            }
            (None, None) => {}
        }
    }
    found
}

/// The first line of `expected` that is missing in `written`, in this order.
#[must_use]
pub fn missing_output<'a>(expected: &'a str, written: &str) -> Option<&'a str> {
    let mut lines = written.lines();
    expected
        .lines()
        .filter(|line| !matches!(line.trim(), "" | "..."))
        .find(|line| !lines.any(|there| is_like(line, there)))
}

/// Whether two lines are equal except for numbers, names with numbers, and ids of apps. One in twenty of those ids has
/// no digit.
#[must_use]
pub fn is_like(expected: &str, written: &str) -> bool {
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    let is_app = |word: &str| word.parse::<AppId>().is_ok();
    let mut written = written.split_whitespace();
    let mut expected = expected.split_whitespace();
    loop {
        match (expected.next(), written.next()) {
            (Some("..."), _) | (None, None) => return true,
            (Some(this), Some(that)) if this == that => {}
            (Some(this), Some(that)) if is_number(this) && is_number(that) => {}
            (Some(this), Some(that)) if is_app(this) && is_app(that) => {}
            (Some(this), Some(_)) if !is_number(this) && this.contains(|c: char| c.is_ascii_digit()) => {}
            _ => return false,
        }
    }
}

/// A folder with the programs that the documents name. A bed's commands run there.
#[derive(Debug)]
pub struct Desk {
    /// The folder as this process sees it.
    folder: PathBuf,
    owner: Option<u32>,
}

impl Desk {
    /// Fills the folder for work of a world on this machine.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn in_world(world: &World) -> Self {
        Self::fill(world.work_dir(), None)
    }

    /// Makes a folder in the user's home, which all hosts of a bed share.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn on_cluster(cluster: &Cluster) -> Self {
        let folder = cluster.bed.login().path(format!("{HOME}/documents")).expect("the login node");
        fs::create_dir(&folder).expect("a folder in the home");
        Self::fill(folder, Some(UID))
    }

    fn fill(folder: PathBuf, owner: Option<u32>) -> Self {
        let desk = Self { folder, owner };
        desk.give("");
        let rest = programs::get("rest");
        for name in ["app", "mpi_app", "a", "b", "solver", "viewer"] {
            copy_program(&rest, desk.folder.join(name));
            desk.give(name);
        }
        for (name, text) in [
            ("run.sh", "#!/bin/sh\nexec ./app\n"),
            ("job.sh", "#!/bin/sh\nsrun ./app 3\n"),
            ("running", RUNNING),
            ("my-tool", "#!/bin/sh\nps -o pid,stat,args -C app\n"),
            ("my_daemon", "#!/bin/sh\necho it looks\n"),
        ] {
            desk.write(name, text, 0o755);
        }
        desk.write("data", "some data\n", 0o644);
        fs::create_dir(desk.folder.join("plugins")).expect("a folder");
        desk.write("plugins/one", "a plugin\n", 0o644);
        desk.give("plugins");
        desk
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        self.give(name);
    }

    /// Ends the waiting ranks, and all later ones until the result is dropped.
    fn end_ranks(&self, block: usize) -> File {
        let mut options = OpenOptions::new();
        // For reading too: so it does not wait for a reader.
        options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK);
        options.open(self.folder.join(format!("go{block}"))).expect("a FIFO")
    }

    fn give(&self, name: &str) {
        if let Some(user) = self.owner {
            chown(self.folder.join(name), Some(user), Some(user)).expect("the user's");
        }
    }

    /// Runs the commands of a page that are marked for `bed`. `start` starts the shell for them in this folder. Returns
    /// every difference from the page.
    ///
    /// # Panics
    /// When a command hangs.
    pub fn run_page(&self, bed: &str, blocks: &[Block], start: impl FnOnce() -> Command) -> Vec<String> {
        let is_run = |(_, block): &(usize, &Block)| block.mark("run") == Some(bed);
        let runs: Vec<(usize, &Block)> = blocks.iter().enumerate().filter(is_run).collect();
        if runs.is_empty() {
            return Vec::new();
        }
        let programs = binaries().dir.display();
        let mut whole =
            format!("PATH={programs}:$PWD:$PATH\ntrap 'printf \"\\n#### ended %s\\n\" $?' EXIT\nset -e\n");
        for (number, (_, block)) in runs.iter().enumerate() {
            mkfifo(&self.folder.join(format!("go{number}")), Mode::S_IRWXU).expect("a FIFO");
            self.give(&format!("go{number}"));
            self.write(&format!("block{number}"), &block.script(), 0o644);
            whole += &format!(
                "export go=$PWD/go{number}\necho '#### begin {number}'\n. ./block{number}\nprintf '\\n#### end {number}\\n'\n"
            );
        }
        self.write("page.sh", &whole, 0o755);
        let mut command = start();
        command.args(["/bin/bash", "page.sh"]).env("TERM", "xterm");
        let mut terminal = Terminal::spawn(command, 160, 50, false);
        let mut wrong = Vec::new();
        for (number, (index, block)) in runs.iter().enumerate() {
            let shown = blocks.get(index + 1).filter(|next| next.has("output"));
            let written = self.follow(&mut terminal, number, block, shown);
            let (written, ended) = match written.split_once(&format!("#### end {number}\n")) {
                Some((written, _)) => (written, None),
                None => (written.as_str(), Some(())),
            };
            if ended.is_some() {
                wrong.push(format!("{block} fails:\n{}{written}", block.text));
                break;
            }
            if let Some(line) = shown.and_then(|shown| missing_output(&shown.text, written)) {
                wrong.push(format!("{block} does not write '{line}' but:\n{written}"));
            }
        }
        // The shell's end is the end of the page. Background processes may keep the terminal open; the leak check finds
        // them.
        wrong
    }

    /// Waits until a block or its page has ended. Returns the block's output and the mark after that.
    ///
    /// A table on a terminal changes. If a block waits for Enter, its expected output must be visible at that moment.
    fn follow(&self, terminal: &mut Terminal, number: usize, block: &Block, shown: Option<&Block>) -> String {
        let (begin, end) = (format!("#### begin {number}\n"), format!("#### end {number}\n"));
        let since = |text: &str| format!("{text}\n").split_once(&begin).map(|(_, after)| after.to_owned());
        let is_over =
            |text: &str| since(text).is_some_and(|it| it.contains(&end) || it.contains("#### ended "));
        let (mut asked, mut ending) = (String::new(), None);
        let until = if block.has("enter") { Some("Enter") } else { block.until.as_deref() };
        if let Some(until) = until {
            let is_there = |text: &str| shown.is_none_or(|shown| missing_output(&shown.text, text).is_none());
            let asks = |text: &str| {
                is_over(text) || since(text).is_some_and(|text| text.contains(until) && is_there(&text))
            };
            let text = terminal.wait_for(&format!("{until} of {block}"), PAGE_LIMIT, asks);
            asked = since(&text).unwrap_or_default();
            match block.has("enter") {
                true => terminal.type_text("\n"),
                false => ending = Some(self.end_ranks(number)),
            }
        }
        let text = terminal.wait_for(&format!("end of {block}"), PAGE_LIMIT, is_over);
        drop(ending);
        asked + &since(&text).unwrap_or_default()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if self.owner.is_some() {
            // The bed may be gone, and the home with it.
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_apps_are_alike_with_digits_and_without() {
        assert!(is_like("gantry release 3kx9w0fz", "gantry release pgfvtasz"));
        assert!(is_like("gantry release pgfvtasz", "gantry release 3kx9w0fz"));
        assert!(!is_like("gantry release pgfvtasz", "gantry release --all"));
    }

    #[test]
    fn blocks_have_their_markers_and_preparations() {
        let text = "# A\n<!-- first: x & -->\n<!-- let: 4711 => $! -->\n```sh run=localhost enter\ngantry attach 4711\n```\n<!-- after: wait -->\n\n```text output\nseen\n```\n";
        let found = parse(Path::new("a.md"), text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].language(), found[0].mark("run"), found[0].has("enter")),
            ("sh", Some("localhost"), true)
        );
        assert_eq!((found[0].line, found[0].script().as_str()), (4, "x &\ngantry attach $!\nwait\n"));
        assert!(found[1].has("output") && found[1].mark("run").is_none());
    }

    #[test]
    fn output_is_compared_but_for_numbers() {
        assert_eq!(missing_output("rank 0 on n001\n...\nends", "rank 1 on vm\nother\nends\n"), None);
        assert_eq!(missing_output("rank 0", "rank none"), Some("rank 0"));
        assert_eq!(missing_output("held ... gantry", "held now\n"), None);
        assert_eq!(missing_output("first\nsecond", "second\nfirst\n"), Some("second"));
        assert_eq!(missing_output("held", "running"), Some("held"));
    }
}
