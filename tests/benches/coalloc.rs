//! The cost of a co-allocated job, on a bed with Slurm and ssh:
//!
//! - the time from the request until all parts wait, compared to each part's own launch;
//! - the time from the release until the last process has passed;
//! - messages between parts on two nodes, compared to plain TCP through one relay.
//!
//! Prints a line for each: the median of its runs, and its goal as a maximum. Takes less than four minutes on an idle
//! machine with two cores.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gantry_tests::binaries;
use gantry_tests::measured::Measurement;
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;

const DEADLINE: Duration = Duration::from_secs(60);
const RUNS: usize = 5;
const TIMES: u32 = 20_000;

fn main() {
    on_cluster(Config::with_nodes(4), |cluster| {
        held(cluster);
        released(cluster);
        messages(cluster);
    });
}

fn line(text: &str) {
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

fn median<T: Copy + PartialOrd>(mut all: Vec<T>) -> T {
    all.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    all[all.len() / 2]
}

fn probe() -> String {
    binaries().dir.join("job_probe").display().to_string()
}

fn part(label: &str, contact: &str, point: &str, steps: &str, count: u32) -> String {
    let (program, hosts) =
        (probe(), if contact == "localhost" { String::new() } else { format!("(hostCount={count})") });
    format!(
        "(&(resourceManagerContact=\"{contact}\")(label={label})(barrierPoint={point})(directory=/)(count={count}){hosts}(executable=\"{program}\")(arguments={steps}))"
    )
}

fn parts(point: &str, steps: &str) -> [String; 3] {
    [
        part("slurm", "slurm", point, steps, 2),
        part("ssh", "ssh://n003,n004", point, steps, 2),
        part("here", "localhost", point, steps, 1),
    ]
}

/// Whether a number meets its goal.
fn judge(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// From the start of the command until these have checked in.
fn time_held(cluster: &Cluster, parts: &[String], labels: &[&str]) -> Duration {
    let begun = Instant::now();
    let mut run = cluster.gantry(["coalloc", "-i", &format!("+{}", parts.concat())]);
    for label in labels {
        let wlm = if *label == "here" { "localhost" } else { label };
        run.stderr_line(&format!("{label} on {wlm}: checked in"), DEADLINE);
    }
    let took = begun.elapsed();
    run.write(b"K\n");
    run.wait(DEADLINE);
    took
}

fn held(cluster: &Cluster) {
    for point in ["exec", "runtime"] {
        let all = parts(point, "barrier wait");
        let (mut whole, mut alone) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        // Side by side, so that a busy moment is in all of them.
        for _ in 0..RUNS {
            whole.push(time_held(cluster, &all, &["slurm", "ssh", "here"]));
            for (label, (times, part)) in ["slurm", "ssh", "here"].iter().zip(alone.iter_mut().zip(&all)) {
                times.push(time_held(cluster, std::slice::from_ref(part), &[label]));
            }
        }
        let alone = alone.map(median);
        let (whole, slowest) = (median(whole), alone.iter().max().copied().unwrap_or_default());
        let kept = Measurement {
            bench: "coalloc",
            row: point,
            what: &format!("parts on Slurm, ssh and this machine: held at one barrier ({point})"),
            gantry: whole.as_secs_f64() * 1e3,
            plain: slowest.as_secs_f64() * 1e3,
            unit: "ms",
            way: "the slowest part alone",
        };
        line(&kept.to_string());
        let most = slowest.mul_f64(1.1) + Duration::from_millis(20);
        line(&format!(
            "{point}: request to all held {whole:.0?}; slurm, ssh, here alone {alone:.0?}: {:.2} of the slowest; goal at most 1.1 and 20 ms, {most:.0?}: {}",
            whole.as_secs_f64() / slowest.as_secs_f64(),
            judge(whole <= most)
        ));
    }
}

fn released(cluster: &Cluster) {
    let folder = binaries().dir.join(format!("coalloc-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("a folder for all");
    let stamps = |label: &str| folder.join(label).display().to_string();
    let times = (0..RUNS).map(|_| {
        let all: Vec<String> =
            [("slurm", "slurm", 2), ("ssh", "ssh://n003,n004", 2), ("here", "localhost", 1)]
                .iter()
                .map(|(label, contact, count)| {
                    part(label, contact, "runtime", &format!("barrier \"stamp:{}\"", stamps(label)), *count)
                })
                .collect();
        let mut run = cluster.gantry(["coalloc", "-i", &format!("+{}", all.concat())]);
        for state in ["slurm on slurm: checked in", "ssh on ssh: checked in", "here on localhost: checked in"]
        {
            run.stderr_line(state, DEADLINE);
        }
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        run.write(b"C\n");
        run.wait(DEADLINE);
        let last = [("slurm", 2), ("ssh", 2), ("here", 1)]
            .iter()
            .flat_map(|(label, count)| {
                (0..*count).map(|rank| read_stamp(Path::new(&format!("{}.{rank}", stamps(label)))))
            })
            .max();
        last.expect("stamps").saturating_sub(begun)
    });
    let took = median(times.collect());
    drop(std::fs::remove_dir_all(&folder));
    let latency = one_way(cluster);
    line(&format!(
        "release, from the word to the command until the last of 5 processes has passed: {took:.2?}; goal under 10 ms and the one-way latency of {latency:.2?}: {}",
        judge(took < Duration::from_millis(10) + latency)
    ));
}

/// Half of the time to connect to a node; the minimum of several attempts.
fn one_way(cluster: &Cluster) -> Duration {
    let script = "for n in 1 2 3 4 5 6 7 8 9; do a=$EPOCHREALTIME; exec 3<>/dev/tcp/n001/22; b=$EPOCHREALTIME; exec 3>&-; echo $(( ${b/./} - ${a/./} )); done";
    let said = cluster.said("bash", ["-c", script]);
    let least = said.lines().filter_map(|line| line.parse::<u64>().ok()).min();
    Duration::from_micros(least.expect("times")) / 2
}

fn read_stamp(path: &Path) -> Duration {
    let text = std::fs::read_to_string(path).expect("a stamp");
    Duration::from_nanos(text.parse().expect("a time"))
}

/// Messages between two nodes, compared to plain TCP.
fn messages(cluster: &Cluster) {
    for (name, steps, plain) in [
        ("to and fro, 8 bytes", format!("pingpong:{}", TIMES / 4), tcp_pingpong as fn() -> f64),
        ("one way, 8 bytes", format!("stream:{TIMES}"), tcp_stream),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            ours.push(per_second(cluster, &steps));
            theirs.push(plain());
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let kept = Measurement {
            bench: "coalloc",
            row: name,
            what: &format!("messages between two parts, {name}"),
            gantry: ours,
            plain: theirs,
            unit: "/s",
            way: "TCP through one relay",
        };
        line(&kept.to_string());
        line(&format!(
            "{name}: {ours:.0} messages/s; plain TCP through one relay {theirs:.0}: {:.2} of it; no goal is set",
            ours / theirs
        ));
    }
}

fn per_second(cluster: &Cluster, steps: &str) -> f64 {
    let steps = format!("barrier {steps}");
    let parts = ["n001", "n002"].map(|node| part(node, &format!("ssh://{node}"), "runtime", &steps, 1));
    let done = cluster.gantry(["coalloc", "-s", &format!("+{}", parts.concat())]).wait(DEADLINE);
    assert_eq!(done.code(), 0, "{done:?}");
    done.stdout.iter().find_map(|said| said.parse().ok()).expect("a number")
}

/// Two ends with a relay between them, which forwards all bytes.
fn relayed() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let connect = || {
        let ours = TcpStream::connect(address).expect("a connection");
        let theirs = listener.accept().expect("a connection").0;
        ours.set_nodelay(true).expect("a socket");
        theirs.set_nodelay(true).expect("a socket");
        (ours, theirs)
    };
    let ((a, at_a), (b, at_b)) = (connect(), connect());
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let mut chunk = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                if to.write_all(&chunk[..count]).is_err() {
                    break;
                }
            }
        });
    };
    pass(at_a.try_clone().expect("a socket"), at_b.try_clone().expect("a socket"));
    pass(at_b, at_a);
    (a, b)
}

fn tcp_pingpong() -> f64 {
    let (mut a, mut b) = relayed();
    let times = TIMES / 4;
    let other = std::thread::spawn(move || {
        let mut bytes = [0; 8];
        for _ in 0..times {
            b.read_exact(&mut bytes).expect("bytes");
            b.write_all(&bytes).expect("bytes");
        }
    });
    let begun = Instant::now();
    let mut bytes = [7; 8];
    for _ in 0..times {
        a.write_all(&bytes).expect("bytes");
        a.read_exact(&mut bytes).expect("bytes");
    }
    let rate = f64::from(2 * times) / begun.elapsed().as_secs_f64();
    other.join().expect("the other end");
    rate
}

fn tcp_stream() -> f64 {
    let (mut a, mut b) = relayed();
    let sender = std::thread::spawn(move || {
        for _ in 0..TIMES {
            a.write_all(&[7; 8]).expect("bytes");
        }
    });
    let begun = Instant::now();
    let mut bytes = [0; 8];
    for _ in 0..TIMES {
        b.read_exact(&mut bytes).expect("bytes");
    }
    let rate = f64::from(TIMES) / begun.elapsed().as_secs_f64();
    sender.join().expect("the sender");
    rate
}
