//! What a launcher says of its ranks, for looking at launchers by hand.
//!
//! ```sh
//! cargo run -p gantry-wlm --example proctable -- leave mpiexec -n 4 ./app   # leaves the breakpoint at once; the ranks may stay held
//! cargo run -p gantry-wlm --example proctable -- stay mpiexec -n 4 ./app    # stands at the breakpoint until a line is entered
//! cargo run -p gantry-wlm --example proctable -- PID                        # of a launcher that runs
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{
    AtBreakpoint, Breakpoints, Driver, Event, LauncherCommand, MpirError, Order, Table, read_running,
};

const HOUR: Duration = Duration::from_secs(3600);

fn main() -> io::Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let how = args.next().unwrap_or_default();
    let at_breakpoint = match how.to_str() {
        Some("leave") => AtBreakpoint::LeaveAtOnce,
        Some("stay") => AtBreakpoint::Stay,
        text => {
            let pid =
                text.and_then(|text| Pid::new(text.parse().ok()?)).ok_or(io::ErrorKind::InvalidInput)?;
            let start = Instant::now();
            return Ok(match read_running(pid, &Machine) {
                Ok(table) => show(&table, start),
                Err(error) => complain(&error),
            });
        }
    };
    drive(args.collect(), at_breakpoint)
}

fn drive(argv: Vec<OsString>, at_breakpoint: AtBreakpoint) -> io::Result<ExitCode> {
    let start = Instant::now();
    let mut driver = Driver::start(LauncherCommand {
        argv,
        env: Machine.environment(),
        cwd: Machine.current_dir()?,
        stdin: File::open("/dev/null")?.into(),
        stdout: io::stdout().as_fd().try_clone_to_owned()?,
        stderr: io::stderr().as_fd().try_clone_to_owned()?,
        at_breakpoint,
        breakpoints: Breakpoints::Detect,
        deadline: HOUR,
    })?;
    let mut code = ExitCode::SUCCESS;
    while let Some(event) = driver.next_event(HOUR) {
        match event {
            Event::Started(pid) => println!("launcher {pid}"),
            Event::Held { table, .. } => {
                show(&table, start);
                if at_breakpoint == AtBreakpoint::Stay {
                    io::stdin().read_line(&mut String::new())?;
                    driver.order(Order::Release);
                }
            }
            Event::Failed(error) => code = complain(&error),
            Event::Ended(status) => println!("{status}"),
        }
    }
    Ok(code)
}

fn show(table: &Table, start: Instant) -> ExitCode {
    println!(
        "{} ranks on {} nodes after {:?}",
        table.placement.rank_count(),
        table.placement.node_count(),
        start.elapsed()
    );
    println!("job {:?} step {:?}, stops before main: {}", table.job, table.step, table.stops_before_main);
    for place in table.placement.iter().take(20) {
        println!("{} {} {:?} {}", place.rank, place.host, place.pid, place.exe);
    }
    ExitCode::SUCCESS
}

fn complain(error: &MpirError) -> ExitCode {
    let failure = Failure::from(error);
    eprintln!("{}: {failure}\n{}", failure.kind(), failure.hint().unwrap_or_default());
    ExitCode::FAILURE
}
