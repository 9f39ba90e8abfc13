//! A tool daemon that executes its arguments on its session's channel, in order.
//!
//! | argument | action |
//! | --- | --- |
//! | `gather:TAG:BYTES` | contributes that many bytes; each byte is its node's number |
//! | `give:TAG:FILTER` | contributes data for that filter: its node's number, its rank, its stack |
//! | `large:TAG:MODULES` | contributes a tree of stacks: 1000 functions and some 60 KB per module, mostly equal on all nodes |
//! | `echo:TAG` | waits for a message with this tag and contributes it |
//! | `hash:TAG` | reads a message with this tag as it arrives; contributes its length and hash |
//! | `send:TAG:COUNT` | sends that many messages, numbered |
//! | `flood:TAG:BYTES` | sends messages of that many bytes until it is killed |
//! | `slow:TAG` | waits for a message with tag 0; takes messages with this tag up to an empty one; contributes their number |
//! | `serve:NAME` | merges for the filter NAME (the longest part wins) on a separate thread |
//! | `fail:NAME` | serves the filter NAME and cannot merge |
//! | `echoes:TAG`, `hashes:TAG` | as `echo` and `hash`, for each message with this tag, without end |
//! | `sums:TAG` | contributes its node's number for each message with this tag, without end |
//! | `die:TAG` | waits for a message with this tag and kills itself (SIGKILL) |
//! | `wait` | continues until it is killed |
//! | `on:NODE:...` | executes the rest on that node only |

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use gantry_backend::filter::{PrefixTree, key_ranks, numbers::Numbers, ranks};
use gantry_backend::{Backend, Channel, Failure, Kind, Rank};
use gantry_types::rank_set::RankSet;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let channel = Arc::new(Backend::connect()?.channel()?);
    for step in std::env::args().skip(1) {
        take(&channel, &step)?;
    }
    Ok(())
}

fn take(channel: &Arc<Channel>, step: &str) -> Done {
    let words: Vec<&str> = step.split(':').collect();
    let node = channel.member().node.0;
    match words.as_slice() {
        ["on", number, rest @ ..] if number.parse::<u32>()? == node => return take(channel, &rest.join(":")),
        ["on", ..] => {}
        ["gather", tag, bytes] => {
            let number = u8::try_from(node)?;
            channel.contribute(tag.parse()?, &vec![number; bytes.parse()?], MINUTE)?;
        }
        ["give", tag, filter] => channel.contribute(tag.parse()?, &part_of(filter, node)?, MINUTE)?,
        ["large", tag, modules] => {
            channel.contribute(tag.parse()?, &large_tree(node, modules.parse()?)?, 5 * MINUTE)?;
        }
        ["echo", tag] => {
            let message = channel.receive(tag.parse()?, MINUTE)?;
            channel.contribute(tag.parse()?, &message, MINUTE)?;
        }
        ["hash", tag] => {
            let said = hash_of(channel.receive_reader(tag.parse()?, MINUTE)?)?;
            channel.contribute(tag.parse()?, said.as_bytes(), MINUTE)?;
        }
        [step @ ("echoes" | "hashes" | "sums"), tag] => {
            let tag = tag.parse()?;
            loop {
                let part = match *step {
                    "hashes" => hash_of(channel.receive_reader(tag, DAY)?)?.into_bytes(),
                    "sums" => channel
                        .receive(tag, DAY)
                        .map_err(Into::into)
                        .and_then(|_| part_of("numbers", node))?,
                    _ => channel.receive(tag, DAY)?,
                };
                channel.contribute(tag, &part, MINUTE)?;
            }
        }
        ["send", tag, count] => {
            for number in 0..count.parse::<u32>()? {
                channel.send(tag.parse()?, &number.to_be_bytes(), MINUTE)?;
            }
        }
        ["flood", tag, bytes] => loop {
            channel.send(tag.parse()?, &vec![1; bytes.parse()?], MINUTE)?;
        },
        ["slow", tag] => {
            channel.receive(0, MINUTE)?;
            let mut count = 0_u32;
            while !channel.receive(tag.parse()?, MINUTE)?.is_empty() {
                count += 1;
            }
            channel.contribute(tag.parse()?, &count.to_be_bytes(), MINUTE)?;
        }
        ["serve", name] => {
            channel.offer_filter(name)?;
            let (channel, name) = (Arc::clone(channel), (*name).to_owned());
            let longest =
                |parts: Vec<Vec<u8>>| Ok(parts.into_iter().max_by_key(Vec::len).unwrap_or_default());
            std::thread::spawn(move || channel.serve_filter(&name, longest));
        }
        ["fail", name] => {
            channel.offer_filter(name)?;
            let (channel, name) = (Arc::clone(channel), (*name).to_owned());
            let never = |_| Err(Failure::new(Kind::Unsupported, "merge: this daemon never does"));
            std::thread::spawn(move || channel.serve_filter(&name, never));
        }
        ["die", tag] => {
            channel.receive(tag.parse()?, MINUTE)?;
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
        }
        ["wait"] => loop {
            std::thread::park();
        },
        _ => return Err(format!("what is {step}?").into()),
    }
    Ok(())
}

/// Length and hash of a message, which is read as it arrives.
fn hash_of(mut reader: impl Read) -> std::io::Result<String> {
    let (mut hash, mut length, mut chunk) = (blake3::Hasher::new(), 0, vec![0; 100_000]);
    loop {
        match reader.read(&mut chunk)? {
            0 => return Ok(format!("{length} {}", hash.finalize().to_hex())),
            count => {
                hash.update(&chunk[..count]);
                length += count;
            }
        }
    }
}

/// A rank in each module, in 1000 functions: every twentieth is the node's own.
fn large_tree(node: u32, modules: u32) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut tree = PrefixTree::new();
    for module in 0..modules {
        let own = RankSet::from_range(Rank(node * modules + module)..=Rank(node * modules + module));
        for function in 0..1000_u32 {
            let whose = if function.is_multiple_of(20) { node } else { 0 };
            let names = [
                format!("module_{module}"),
                format!("a_function_with_a_long_name_of_module_{module}_{function}_{whose}"),
            ];
            tree.add(names.iter().map(String::as_str), &own)?;
        }
    }
    Ok(tree.encode()?)
}

/// This node's contribution to a filter.
fn part_of(filter: &str, node: u32) -> Result<Vec<u8>, Box<dyn Error>> {
    let own = RankSet::from_range(Rank(node)..=Rank(node));
    Ok(match filter {
        "numbers" => Numbers::Integers(vec![i64::from(node), 1]).encode()?,
        "ranks" => ranks::encode(&own)?,
        "keys" => {
            let key = if node.is_multiple_of(2) { "even" } else { "odd" };
            key_ranks::encode(&BTreeMap::from([(key.as_bytes().to_vec(), own)]))?
        }
        "tree" => {
            let mut tree = PrefixTree::new();
            tree.add(["main", if node == 0 { "write" } else { "compute" }], &own)?;
            tree.encode()?
        }
        // Longer and longer: as many bytes as the node's number.
        _ => vec![b'x'; node as usize],
    })
}
