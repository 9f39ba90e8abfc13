//! A test's body on a bed. It runs as the ordinary user in a separate process, once for each workload manager that has
//! nodes there. All of them are on one bed.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::lookout::Lookout;
use crate::outside::OUTSIDE;
use crate::pbs::{Script, jobs, said_by};
use crate::places::{CPUS, INNER, Place, assert_passed, words};
use crate::proc::SOON;
use crate::testbed::config::HOME;
use crate::testbed::{Config, Testbed, flux, pbs, shared_with_others, usable};
use crate::{World, becomes_true, binaries, within};

/// How many nodes each workload manager has; hosts that are reached by ssh are those of Slurm.
const NODES: u16 = 4;

/// The time for making a bed first, and for jobs that wait in a queue.
const PATIENCE: Duration = Duration::from_secs(240);

/// The bed: Slurm's nodes, and those of PBS and of Flux where they are installed.
fn config() -> Config {
    let config = match pbs::installation() {
        Ok(installed) => {
            Config::with_nodes(2 * NODES).managed_by_pbs(installed).but_the_first_by_slurm(NODES)
        }
        Err(_) => Config::with_nodes(NODES),
    };
    let config = match flux::installation() {
        Ok(installed) => config.and_by_flux(installed, NODES),
        Err(_) => config,
    };
    Config { cpus: CPUS, ..config }
}

/// Whether bodies run under each of these workload managers, for tests that only report it.
///
/// # Errors
/// The reason for the skip.
pub fn is_on_beds(wlm: &str) -> Result<(), String> {
    usable(&config())?;
    match wlm {
        "pbs" => pbs::installation().map(drop),
        "flux" => flux::installation().map(drop),
        _ => Ok(()),
    }
}

/// Runs a test's body at these places of the bed, in parallel with each other and with other tests on it. The last of
/// the tests that share the bed checks for common remains: processes, files and sockets on every host, and jobs. Each
/// body also checks for its own processes on every host at its end.
///
/// # Panics
/// As the body does; and when something is left.
#[track_caller]
pub(crate) fn on_beds(test: &str, limit: Duration, places: Vec<Place>) {
    let config = config();
    let places: Vec<Place> =
        places.into_iter().filter(|it| it.is_wanted() && is_on_beds(it.wlm).is_ok()).collect();
    if places.is_empty() {
        return;
    }
    let test = test.to_owned();
    within(limit + PATIENCE, move || {
        let bed = shared_with_others(&config);
        thread::scope(|scope| {
            let start = |place| {
                let (bed, test) = (&bed, &test);
                let name = thread::current().name().unwrap_or("a test").to_owned();
                let started = thread::Builder::new().name(name);
                started.spawn_scoped(scope, move || run_on(bed, place, test, limit)).expect("a thread")
            };
            let running: Vec<_> = places.iter().map(start).collect();
            let ended: Vec<_> = running.into_iter().map(|it| it.join()).collect();
            if let Some(panic) = ended.into_iter().find_map(Result::err) {
                resume_unwind(panic);
            }
        });
        if let Some(bed) = bed.last() {
            let ended = becomes_true(2 * SOON, || queued(&bed).is_empty());
            assert!(ended, "jobs are left: {}", queued(&bed));
            bed.assert_nothing_left(SOON);
        }
    });
}

/// The content of the queues.
fn queued(bed: &Testbed) -> String {
    let mut queued = said_by(bed, &["squeue", "--noheader"]);
    if bed.config().pbs.is_some() {
        queued += &jobs(bed);
    }
    if bed.config().flux.is_some() {
        queued += &said_by(bed, &["flux", "job", "list"]);
    }
    queued
}

#[track_caller]
fn run_on(bed: &Testbed, place: &Place, test: &str, limit: Duration) {
    let home = bed.login().path(HOME).expect("the login node");
    let world = World::on_host(&home, Path::new(HOME));
    let inside = |name: &str| world.inside().join(name).display().to_string();
    let _lookout = Lookout::new(world.path().join("outside"), bed.look()).expect("a socket");
    let mut variables = vec![
        (INNER, place.name.to_owned()),
        (OUTSIDE, inside("outside")),
        ("GANTRY_BIN_DIR", binaries().dir.display().to_string()),
        ("RUST_BACKTRACE", "0".to_owned()),
        ("GANTRY_SSH", "openssh".to_owned()),
    ];
    if place.wlm == "slurm" {
        // The output of all ranks comes through one pipe.
        variables.push(("SLURM_LABELIO", "1".to_owned()));
    }
    if place.wlm == "flux" {
        // As above.
        variables.push(("FLUX_CLI_PLUGINPATH", flux::LABELS.to_owned()));
    }
    if place.wlm == "ssh" {
        let hosts = bed.config().slurm_nodes().into_iter();
        let lines: String = hosts.map(|host| format!("{host}\n").repeat(CPUS.into())).collect();
        std::fs::write(world.path().join("hosts"), lines).expect("a list of hosts");
        variables.push(("PBS_NODEFILE", inside("hosts")));
    }
    let exe = std::env::current_exe().expect("this test binary");
    let (passed, text) = if place.wlm == "pbs" {
        let own = world.variables().into_iter();
        let own = own.map(|(name, value)| format!("{}='{}'", name.display(), value.display()));
        let all = own.chain(variables.iter().map(|(name, value)| format!("{name}='{value}'")));
        let (all, words) = (all.collect::<Vec<_>>().join(" "), words(test).join(" "));
        let script = format!("cd {}; env {all} {} {words}", inside("work"), exe.display());
        let select = format!("select={NODES}:ncpus=1:mpiprocs={CPUS}");
        let script = Script::submit_on(bed, &select, &script);
        let (code, text) = script.wait_for(limit + PATIENCE);
        (code == 0, text)
    } else {
        let mut command = bed.login().command_in(inside("work"), exe).expect("the login node");
        command.args(words(test)).envs(world.variables()).envs(variables).stdin(Stdio::null());
        let mut run = world.spawn(command);
        run.close_stdin();
        let finished = run.wait(limit);
        (finished.status.success(), [finished.stdout, finished.stderr].concat().join("\n"))
    };
    assert_passed(test, place.name, passed, &text);
    world.finish();
}
