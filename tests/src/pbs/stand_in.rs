//! A job without PBS: a running [stand-in](super::mom) in a test's world, and the variables of the job's script.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use gantry_wlm::pbs::tm::environment::{COOKIE, HOST_INDEX, JOB, NODE_FILE, PORT, TASK};
use gantry_wlm::pbs::tm::{Caller, Cookie, Environment, TaskId};

use crate::proc::becomes_true;
use crate::{SOON, World, binaries};

/// The job that is played: its id, and its cookie.
#[derive(Debug, Clone, Copy)]
pub struct Job;

impl Job {
    /// Its id.
    pub const ID: &str = "1.stand-in";
    /// Its cookie, which is of no worth.
    pub const COOKIE: &str = "0123456789ABCDEF0123456789ABCDEF";
    /// The host of every node.
    pub const HOSTS: [&str; 6] = ["here", "here", "there", "there", "last", "last"];
}

/// A running stand-in. Dropping it ends the job.
#[derive(Debug)]
pub struct StandIn {
    child: Child,
    orders: Option<ChildStdin>,
    port: u16,
    home: PathBuf,
}

impl StandIn {
    /// Starts one.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(world: &World, options: &[&str]) -> Self {
        let home = world.work_dir();
        let mut command = world.command(binaries().dir.join("stand_in_mom"));
        command
            .args(["--job", Job::ID, "--cookie", Job::COOKIE, "--home"])
            .arg(&home)
            .args(options)
            .args(Job::HOSTS);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the stand-in");
        let mut line = String::new();
        let said = BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line);
        let port = said.ok().and_then(|_| line.trim().parse().ok()).expect("a port");
        let orders = child.stdin.take();
        Self { child, orders, port, home }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The environment of a client that acts for the job's script.
    #[must_use]
    pub fn environment(&self) -> Environment {
        let caller = Caller { job: Job::ID.into(), cookie: Cookie::new(Job::COOKIE), task: TaskId::SCRIPT };
        let environment = Environment { caller, host_index: 0, port: self.port, hosts: None, own_host: None };
        environment.with_node_file(&fs::read_to_string(self.home.join("nodes")).expect("the node file"))
    }

    /// A program in the place of the job's script.
    #[must_use]
    pub fn script(&self, world: &World, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = world.command(program);
        command.env(JOB, Job::ID).env(COOKIE, Job::COOKIE).env(HOST_INDEX, "0").env(TASK, "00000001");
        command.env(PORT, self.port.to_string()).env(NODE_FILE, self.home.join("nodes"));
        command
    }

    /// Kills the mom of a host.
    ///
    /// # Panics
    /// When the stand-in does not read the order.
    pub fn die(&mut self, host: usize) {
        self.order(&format!("die {host}"));
    }

    /// Ends the job.
    ///
    /// # Panics
    /// When the stand-in does not read the order.
    pub fn end_job(&mut self) {
        self.order("end");
    }

    fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("a pipe");
        writeln!(orders, "{order}").expect("the stand-in listens");
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.orders = None;
        let child = &mut self.child;
        if !becomes_true(SOON, || matches!(child.try_wait(), Ok(Some(_)))) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
