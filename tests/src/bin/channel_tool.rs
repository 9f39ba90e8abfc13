//! A tool that launches an app, starts `channel_daemon` on every node, and uses all operations of a channel. It prints
//! the results as one line of JSON.
//!
//! Arguments: bytes to broadcast, the tree's radix, then the launcher's arguments. The daemons' contributions follow
//! from their nodes' numbers, so the reader of the line knows the correct values. Times are in milliseconds. The time
//! of an operation is the shortest of several runs.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gantry_frontend::channel::{Member, Missing};
use gantry_frontend::filter::prefix_tree::Frame;
use gantry_frontend::filter::{Filter, PrefixTree, Reduce, concatenate, key_ranks, numbers::Numbers, ranks};
use gantry_frontend::{App, Channel, Config, DaemonRequest, Frontend, LaunchRequest, Policy, Session};
use gantry_types::error::Failure;
use serde_json::{Map, Value, json};

const MINUTES: Duration = Duration::from_secs(180);
/// The size of every daemon's contribution to the gather.
const GATHERED_BYTES: usize = 1024;
/// The tag of the daemon that merges, and its filter's name.
const OWN: &str = "longest";

type Done<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Done<()> {
    let mut args = std::env::args().skip(1);
    let bytes: usize = args.next().ok_or("how many bytes?")?.parse()?;
    let radix = args.next().ok_or("which radix?")?.parse()?;
    let config = Config { radix, bulk_radix: radix, ..Config::default() };
    let app = Frontend::new(config).launch(LaunchRequest::new(args).hold(true), MINUTES).await?;
    let mut said = Map::new();
    let session = app.session(MINUTES).await?;
    let serve = format!("serve:{OWN}");
    let mut steps = vec![serve.clone(), format!("gather:4:{GATHERED_BYTES}")];
    steps.extend(
        (10..)
            .zip(REDUCTIONS)
            .flat_map(|(tag, (_, _, give))| [format!("echo:{tag}"), format!("give:{tag}:{give}")]),
    );
    steps.extend(["hash:3", "echoes:1"].map(str::to_owned));
    let channel = start(&session, &steps).await?;
    said.insert("members".to_owned(), json!(channel.members().len()));
    said.insert("gathered".to_owned(), json!(gather(&channel).await?));
    said.insert("reduced".to_owned(), reduce_by_each(&channel).await?);
    let (right, broadcast) = broadcast(&channel, bytes).await?;
    said.insert("right".to_owned(), json!(right));
    said.insert("broadcast_ms".to_owned(), json!(milliseconds(broadcast)));
    let mut question = MINUTES;
    for _ in 0..20 {
        question = question.min(ask(&channel).await?);
    }
    said.insert("ask_ms".to_owned(), json!(milliseconds(question)));
    session.destroy(MINUTES).await?;
    said.insert("policies".to_owned(), kill_under_each_policy(&app).await?);
    app.release(MINUTES).await?;
    app.close(MINUTES).await?;
    use std::io::Write;
    writeln!(std::io::stdout(), "{}", Value::Object(said))?;
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

async fn start(session: &Session, steps: &[String]) -> Done<Channel> {
    let daemon = std::env::current_exe()?.with_file_name("channel_daemon");
    session.manifest().exec_daemon(DaemonRequest::new(daemon).args(steps.iter().cloned()), MINUTES).await?;
    Ok(session.channel())
}

/// How many daemons have contributed the right data for their nodes' numbers.
async fn gather(channel: &Channel) -> Done<usize> {
    let parts = channel.gather(4, Policy::All, MINUTES).await?.parts;
    let right = |(member, bytes): &(&Member, &Vec<u8>)| {
        bytes.len() == GATHERED_BYTES && bytes.iter().all(|byte| u32::from(*byte) == member.node.0)
    };
    Ok(parts.iter().filter(right).count())
}

/// A filter's name, its constructor, and the daemons' contribution to it.
type Reduction = (&'static str, fn() -> Filter, &'static str);

/// All of them.
const REDUCTIONS: [Reduction; 8] = [
    ("concatenate", || Filter::Concatenate, "any"),
    ("sum", || Filter::Sum, "numbers"),
    ("min", || Filter::Min, "numbers"),
    ("max", || Filter::Max, "numbers"),
    ("ranks", || Filter::RankSetUnion, "ranks"),
    ("keys", || Filter::KeyRanks, "keys"),
    ("tree", || Filter::PrefixTree, "tree"),
    ("own", || Filter::Custom(OWN.to_owned()), "any"),
];

/// The result of each filter, decoded.
async fn reduce_by_each(channel: &Channel) -> Done<Value> {
    let mut results = Map::new();
    let left = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&left);
    channel.register_filter(OWN, Box::new(move || Box::new(Longest(Vec::new(), Arc::clone(&counted)))));
    for (tag, (name, filter, _)) in (10..).zip(REDUCTIONS) {
        let filter = filter();
        // Daemons contribute only after this, so that agents can merge as much as possible.
        channel.broadcast(tag, b"now", MINUTES).await?;
        channel.gather(tag, Policy::All, MINUTES).await?;
        let reduced = channel.reduce(tag, filter.clone(), Policy::All, MINUTES).await?;
        results.insert(name.to_owned(), json!([reduced.contributed, decode(&filter, &reduced.bytes)?]));
    }
    results.insert("left".to_owned(), json!(left.load(Ordering::SeqCst)));
    Ok(Value::Object(results))
}

/// The longest part wins. It counts the parts that no daemon has merged.
struct Longest(Vec<u8>, Arc<AtomicUsize>);

impl Reduce for Longest {
    fn take(&mut self, part: &[u8]) -> Result<(), Failure> {
        self.1.fetch_add(1, Ordering::SeqCst);
        if part.len() > self.0.len() {
            self.0 = part.to_vec();
        }
        Ok(())
    }

    fn give(self: Box<Self>) -> Result<Vec<u8>, Failure> {
        Ok(self.0)
    }
}

fn decode(filter: &Filter, bytes: &[u8]) -> Done<Value> {
    Ok(match filter {
        Filter::Concatenate => concatenate::decode(bytes)?
            .into_iter()
            .map(|part| json!([part.member.node.0, String::from_utf8_lossy(&part.bytes)]))
            .collect(),
        Filter::Sum | Filter::Min | Filter::Max => match Numbers::decode(bytes)? {
            Some(Numbers::Integers(values)) => json!(values),
            other => return Err(format!("no integers: {other:?}").into()),
        },
        Filter::RankSetUnion => json!(ranks::decode(bytes)?.to_string()),
        Filter::KeyRanks => key_ranks::decode(bytes)?
            .into_iter()
            .map(|(key, ranks)| (String::from_utf8_lossy(&key).into_owned(), json!(ranks.to_string())))
            .collect::<Map<_, _>>()
            .into(),
        Filter::PrefixTree => PrefixTree::decode(bytes)?.outermost().map(paths).collect(),
        _ => json!(String::from_utf8_lossy(bytes)),
    })
}

/// A frame, its ranks, and its callees.
fn paths(frame: Frame<'_>) -> Value {
    json!([frame.name(), frame.ranks().to_string(), frame.calls().map(paths).collect::<Vec<_>>()])
}

/// How many daemons have reported the right hash, and how long that took.
async fn broadcast(channel: &Channel, bytes: usize) -> Done<(usize, Duration)> {
    let noise: Vec<u8> =
        (0..bytes as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    let start = Instant::now();
    channel.broadcast(3, &noise, MINUTES).await?;
    let hashes = channel.gather(3, Policy::All, MINUTES).await?;
    let took = start.elapsed();
    let expected = format!("{} {}", noise.len(), blake3::hash(&noise).to_hex());
    Ok((hashes.parts.values().filter(|hash| **hash == expected.as_bytes()).count(), took))
}

/// Asks all for 1 KB.
async fn ask(channel: &Channel) -> Done<Duration> {
    let start = Instant::now();
    channel.broadcast(1, &[7; 1024], MINUTES).await?;
    channel.gather(1, Policy::All, MINUTES).await?;
    Ok(start.elapsed())
}

/// A daemon is killed while a gather and a reduction wait for it, under each policy.
async fn kill_under_each_policy(app: &App) -> Done<Value> {
    let all = u64::from(app.placement().node_count());
    let policies = [Policy::All, Policy::Quorum(all), Policy::Quorum(all - 1), Policy::BestEffort];
    let mut results = Vec::new();
    for policy in policies {
        let session = app.session(MINUTES).await?;
        let steps = ["on:2:die:9", "gather:1:1024", "give:2:numbers", "wait"].map(str::to_owned);
        let channel = start(&session, &steps).await?;
        let victim = channel.members().into_iter().find(|member| member.node.0 == 2).ok_or("no node 2")?;
        let (gathered, reduced, sent) = tokio::join!(
            channel.gather(1, policy, MINUTES),
            channel.reduce(2, Filter::Sum, policy, MINUTES),
            channel.send(victim, 9, b"", MINUTES),
        );
        sent?;
        let gathered = gathered.map(|done| (done.parts.len() as u64, done.missing));
        let reduced = reduced.map(|done| (done.contributed, done.missing));
        results.push(json!({
            "policy": format!("{policy:?}"), "gather": outcome(gathered)?, "reduce": outcome(reduced)?,
        }));
        session.destroy(MINUTES).await?;
    }
    Ok(Value::Array(results))
}

/// Whether it counts as done, how many have contributed, and which nodes are missing, why.
fn outcome(done: gantry_frontend::Result<(u64, Vec<Missing>)>) -> Done<Value> {
    let (well, contributed, missing) = match done {
        Ok((contributed, missing)) => (true, Some(contributed), missing),
        Err(gantry_frontend::Error::Incomplete { missing, .. }) => (false, None, missing),
        Err(other) => return Err(other.into()),
    };
    let missing: Vec<Value> =
        missing.iter().map(|it| json!([it.member.node.0, it.host, format!("{:?}", it.why.kind())])).collect();
    Ok(json!([well, contributed, missing]))
}
