//! Sending the agent to nodes that do not have it. What is started there in its place is a script, which dials this process, takes the agent, and becomes it.
//!
//! ```text
//!  the node                                      this process
//!  WORD                                 ------->
//!                                       <-------  HASH MAC     of the agent's bytes; of HASH, by KEY
//!                                       <-------  the agent's bytes
//! ```
//!
//! WORD, KEY and the number of bytes are in the script's environment, which only the user and root can read. The bytes are no secret, but the node is going to
//! execute them: so it believes no hash without the MAC. It puts them into a directory of its own, which `mktemp` makes for this user alone, and reads them back
//! before it executes them. The agent is read and hashed only when a node asks for it: a launch whose nodes have it pays for a socket.

use std::ffi::OsString;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blake2::{Blake2b512, Digest};
use gantry_shared::error::{Failure, Kind};
use gantry_shared::secret::Secret;
use gantry_shared::wire::hold::to_hex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::host::Host;
use crate::safe::SAFE;
use crate::{Error, Result};

/// Where to dial, what to say there, and what to expect: `PORT WORD KEY BYTES ADDRESS...`.
pub(super) const GANTRY_GIVEN: &str = "GANTRY_GIVEN";

/// Time limit for a node that fetches.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time limit for the word, which a node says at once.
const WORD_PATIENCE: Duration = Duration::from_secs(2);

/// How many may be about to say their word; the others wait.
const UNKNOWN_AT_ONCE: usize = 512;

/// How many may fetch at a time; the others wait.
const AT_ONCE: usize = 32;

/// Becomes the agent at `$1` where that has `$2` bytes and others cannot change it, else the script `$3`. The rest are the agent's arguments.
const LOOK: [&str; 4] = [
    r#"agent=$1 bytes=$2 fetch=$3; shift 3; PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}"#,
    SAFE,
    r#"if real=$(cd "${agent%/*}/" 2>/dev/null && pwd -P) && real=${real%/}/${agent##*/} && [ -f "$real" ] && [ -x "$real" ] && safe "$real" 0 && [ "$(wc -c <"$real")" -eq "$bytes" ]; then unset GANTRY_GIVEN; exec "$real" "$@"; fi"#,
    r#"exec /bin/bash -c "$fetch" gantry "$@""#,
];

/// Finds a place where programs may be executed, fetches the agent there, and becomes it. The agent removes both as soon as it runs.
const FETCH: [&str; 10] = [
    r#"PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}"#,
    SAFE,
    r#"fail() { echo "gantry: $2" >&2; exit "$1"; }; set -f; old=$(umask); umask 077; into=; for place in "$TMPDIR" /tmp /var/tmp "$XDG_RUNTIME_DIR" /dev/shm "$HOME"; do case $place in /*) ;; *) continue;; esac; real=$(cd "$place" 2>/dev/null && pwd -P) && safe "$real" 2 || continue; place=${real%/}"#,
    r#"into=$(mktemp -d "$place/gantry-agent-XXXXXXXXXX") || continue; trap 'rm -rf "$into"' 0; trap 'exit 1' 1 2 13 15"#,
    r#"printf '#!/bin/sh\nexit 0\n' >"$into/try" && chmod 700 "$into/try" && "$into/try" && break; rm -rf "$into"; into=; done 2>/dev/null"#,
    r#"[ "$into" ] || fail 21 'no place for the agent may be written and executed and is safe from others'; rm -f "$into/try"; file=$into/gantry-agent; read -r port word key bytes addresses <<<"$GANTRY_GIVEN"; unset GANTRY_GIVEN"#,
    r#"way=; for at in $addresses; do timeout 5 /bin/bash -c ": <>/dev/tcp/$at/$port" </dev/null 2>/dev/null && { exec 3<>"/dev/tcp/$at/$port"; } 2>/dev/null && way=$at && break; done; [ "$way" ] || fail 22 'the agent cannot be fetched: no connection to the host that gantry runs on'"#,
    r#"printf '%s\n' "$word" >&3; read -r -t 60 hash mac <&3; [ "$(printf %s "$key$hash" | b2sum)" = "$mac  -" ] || fail 23 'the agent cannot be fetched: its hash is not authentic, or there is no b2sum'; head -c "$bytes" <&3 >"$file"; exec 3>&-"#,
    r#"[ "$(b2sum <"$file")" = "$hash  -" ] || fail 23 'what was fetched is not the agent, or there is no space for it'; chmod 700 "$file"; trap - 0 1 2 13 15; umask "$old""#,
    r#"GANTRY_SENT_AGENT=$file exec "$file" "$@""#,
];

/// Gives the agent to nodes that ask for it, until so many have it.
#[derive(Debug)]
pub(super) struct Giver {
    agent: PathBuf,
    bytes: u64,
    given: String,
    serving: JoinHandle<()>,
}

/// What is given.
#[derive(Debug)]
struct Parcel {
    agent: PathBuf,
    word: String,
    key: String,
    /// The hash with its MAC, as a line, and the agent's bytes.
    content: OnceCell<(String, Vec<u8>)>,
    at_once: Semaphore,
}

impl Giver {
    /// Begins. `addresses` are what nodes call this one, `takers` how many may come.
    ///
    /// # Errors
    /// The agent is not there, or there is no port.
    pub(super) async fn start(
        agent: &Path,
        addresses: &[String],
        takers: usize,
        host: &dyn Host,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            let what = format!("listen for hosts that fetch the agent: {error}");
            Error::Refused(Failure::new(Kind::Unsupported, what))
        };
        let missing = || Error::Read { path: agent.to_owned(), source: io::ErrorKind::NotFound.into() };
        let bytes = host.file_version(agent).ok_or_else(missing)?.bytes;
        let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
            Ok(listener) => listener,
            // There is no IPv6.
            Err(_) => TcpListener::bind(("0.0.0.0", 0)).await.map_err(failed)?,
        };
        let port = listener.local_addr().map_err(failed)?.port();
        let random = || Secret::random().map_err(|error| failed(io::Error::other(error)));
        let (word, key) = (random()?.to_hex(), random()?.to_hex());
        let given = format!("{port} {} {} {bytes} {}", *word, *key, addresses.join(" "));
        let parcel = Parcel {
            agent: agent.to_owned(),
            word: format!("{}\n", *word),
            key: key.to_string(),
            content: OnceCell::new(),
            at_once: Semaphore::new(AT_ONCE),
        };
        let serving = tokio::spawn(serve(listener, Arc::new(parcel), takers));
        Ok(Self { agent: agent.to_owned(), bytes, given, serving })
    }

    /// The value of [`GANTRY_GIVEN`] for those that fetch.
    pub(super) fn given(&self) -> &str {
        &self.given
    }

    /// The command that fetches the agent and becomes it, with these arguments.
    pub(super) fn build_command(&self, args: &[&str]) -> Vec<OsString> {
        let fetch = ["/bin/bash", "-c", &FETCH.join("; "), "gantry"].map(OsString::from);
        fetch.into_iter().chain(args.iter().map(OsString::from)).collect()
    }

    /// As [`Giver::build_command`], but where the agent is at the same path and has the same length, that one is taken.
    pub(super) fn build_careful_command(&self, args: &[&str]) -> Vec<OsString> {
        let look = ["/bin/sh", "-c", &LOOK.join("; "), "gantry"].map(OsString::from);
        let given =
            [self.agent.clone().into_os_string(), self.bytes.to_string().into(), FETCH.join("; ").into()];
        look.into_iter().chain(given).chain(args.iter().map(OsString::from)).collect()
    }

    /// Goes on until then, or until all have it.
    pub(super) fn go_on_until(self, until: Instant) {
        tokio::spawn(async move {
            let mut giver = self;
            drop(tokio::time::timeout_at(until.into(), &mut giver.serving).await);
        });
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn hash(bytes: &[u8]) -> String {
    to_hex(&Blake2b512::digest(bytes)).to_string()
}

async fn serve(listener: TcpListener, parcel: Arc<Parcel>, takers: usize) {
    let mut giving = JoinSet::new();
    let mut given = 0;
    while given < takers {
        tokio::select! {
            come = listener.accept(), if giving.len() < UNKNOWN_AT_ONCE => match come {
                Ok((stream, _)) => {
                    let parcel = Arc::clone(&parcel);
                    giving.spawn(async move { give(stream, &parcel).await });
                }
                // There are too many open files: others may be closed meanwhile.
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
            Some(over) = giving.join_next() => given += usize::from(matches!(over, Ok(Ok(true)))),
        }
    }
}

/// Gives all to a node that says the word. False: it has said another one.
async fn give(mut stream: TcpStream, parcel: &Parcel) -> io::Result<bool> {
    let mut said = vec![0; parcel.word.len()];
    timeout(WORD_PATIENCE, stream.read_exact(&mut said)).await??;
    if said != parcel.word.as_bytes() {
        return Ok(false);
    }
    let _place = parcel.at_once.acquire().await.map_err(io::Error::other)?;
    let (line, bytes) = parcel.content.get_or_try_init(|| read(parcel)).await?;
    let all = async {
        stream.write_all(line.as_bytes()).await?;
        stream.write_all(bytes).await?;
        stream.shutdown().await
    };
    timeout(PATIENCE, all).await??;
    Ok(true)
}

/// Reads the agent for the first node that asks for it.
async fn read(parcel: &Parcel) -> io::Result<(String, Vec<u8>)> {
    let (agent, key) = (parcel.agent.clone(), parcel.key.clone());
    tracing::info!(agent = %agent.display(), "nodes do not have gantry's agent: it is sent to them");
    let reading = tokio::task::spawn_blocking(move || {
        let bytes = std::fs::read(agent)?;
        let hash = hash(&bytes);
        let mac = self::hash(format!("{key}{hash}").as_bytes());
        Ok((format!("{hash} {mac}\n"), bytes))
    });
    reading.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;

    /// Runs a command of a node, which puts the agent into that folder; how that ended.
    async fn run(command: Vec<OsString>, given: &str, folder: &Path) -> Option<i32> {
        #[expect(clippy::disallowed_methods, reason = "the script is judged by a real shell")]
        let mut shell = std::process::Command::new(&command[0]);
        shell.args(&command[1..]).env(GANTRY_GIVEN, given).env("TMPDIR", folder);
        let status = tokio::task::spawn_blocking(move || shell.status().unwrap()).await.unwrap();
        status.code()
    }

    const UNREACHABLE: i32 = 22;
    const SPOILED: i32 = 23;

    const AGENT: &str = "#!/bin/sh\n[ \"$*$GANTRY_GIVEN\" = 'serve told x' ] || exit 1\n[ \"$GANTRY_SENT_AGENT\" ] || exit 43\nrm -r \"$(dirname \"$GANTRY_SENT_AGENT\")\" && exit 42\n";

    const ARGS: [&str; 3] = ["serve", "told", "x"];

    #[tokio::test]
    async fn what_is_fetched_is_executed_if_it_is_what_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, taken) = (folder.path().join("agent"), folder.path().join("taken"));
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(&agent, AGENT).unwrap();
        let giver = Giver::start(&agent, &["127.0.0.1".to_owned()], 2, &Machine).await.unwrap();
        let fetch = async |given: &str| run(giver.build_command(&ARGS), given, &taken).await;
        assert_eq!(fetch(&giver.given).await, Some(42));
        let words: Vec<&str> = giver.given.split(' ').collect();
        // A word of somebody else, and a key that proves that the hash is not from here.
        for at in [1, 2] {
            let wrong = "0".repeat(64);
            assert_eq!(fetch(&giver.given.replace(words[at], &wrong)).await, Some(SPOILED), "{at}");
        }
        // Two have it, and nobody listens any more.
        assert_eq!(fetch(&giver.given).await, Some(UNREACHABLE));
        assert_eq!(std::fs::read_dir(&taken).unwrap().count(), 0, "something is left");
    }

    #[tokio::test]
    async fn an_agent_of_the_same_length_at_the_same_path_is_taken_as_it_is_and_another_is_not() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("the agent");
        std::fs::write(&agent, AGENT).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let giver = Giver::start(&agent, &["127.0.0.1".to_owned()], 9, &Machine).await.unwrap();
        let look =
            async |giver: &Giver| run(giver.build_careful_command(&ARGS), &giver.given, folder.path()).await;
        assert_eq!(look(&giver).await, Some(43), "taken as it is");
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o757)).unwrap();
        assert_eq!(look(&giver).await, Some(42), "others can change it");
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut longer = Giver::start(&agent, &["127.0.0.1".to_owned()], 9, &Machine).await.unwrap();
        longer.bytes += 1;
        assert_eq!(look(&longer).await, Some(42), "another build");
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(look(&giver).await, Some(42), "not to be executed");
    }

    #[tokio::test]
    async fn silent_connections_do_not_keep_a_node_from_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("agent");
        std::fs::write(&agent, AGENT).unwrap();
        let giver = Giver::start(&agent, &["127.0.0.1".to_owned()], 1, &Machine).await.unwrap();
        let port: u16 = giver.given.split(' ').next().unwrap().parse().unwrap();
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
        let fetched = run(giver.build_command(&ARGS), &giver.given, folder.path());
        assert_eq!(timeout(Duration::from_secs(30), fetched).await.unwrap(), Some(42));
    }
}
