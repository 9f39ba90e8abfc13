//! Sending the agent to hosts of a job that see no path of it. PBS copies nothing there, so a task fetches it: a script, for bash as that can open connections, dials this process, takes the agent, and
//! becomes it.
//!
//! What it takes is no secret, but it is going to be executed: so the script is told its hash, on the way on which the job's cookie goes. Nobody on the network
//! can put another program in its place.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blake2::{Blake2b512, Digest};
use gantry_shared::error::{Failure, Kind};
use gantry_shared::secret::Secret;
use gantry_shared::wire::hold::to_hex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::tm::Spawn;
use crate::host::Host;
use crate::safe::SAFE;
use crate::{Error, Result};

/// What fetches.
pub(super) const SHELL: &str = "/bin/bash";

/// Where it is dialled, the word that is said there, and length and hash of what comes.
const GANTRY_GIVEN: &str = "GANTRY_GIVEN";

/// How long one that fetches may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many may fetch at a time; the others wait.
const AT_ONCE: usize = 32;

/// What the script ends with where it does not become the agent.
const NO_PLACE: i32 = 21;
const UNREACHABLE: i32 = 22;
const SPOILED: i32 = 23;

/// Finds a place where programs may be executed, and fetches the agent there. The agent removes both as soon as it runs.
const FETCH: [&str; 8] = [
    SAFE,
    r#"set -f; old=$(umask); umask 077; into=; for place in "$TMPDIR" /tmp /var/tmp "$XDG_RUNTIME_DIR" /dev/shm "$HOME"; do case $place in /*) ;; *) continue;; esac; real=$(cd "$place" && pwd -P) && safe "$real" 2 || continue; place=${real%/}"#,
    r#"into=$(mktemp -d "$place/gantry-agent-XXXXXXXXXX") || continue; trap 'rm -rf "$into"' 0; trap 'exit 1' 1 2 13 15"#,
    r#"printf '#!/bin/sh\nexit 0\n' >"$into/try" && chmod 700 "$into/try" && "$into/try" && break; rm -rf "$into"; into=; done 2>/dev/null"#,
    r#"[ "$into" ] || exit 21; rm -f "$into/try"; file=$into/gantry-agent; set -- $GANTRY_GIVEN; unset GANTRY_GIVEN"#,
    r#"{ exec 3<>"/dev/tcp/$1/$2"; } 2>/dev/null || exit 22; printf '%s\n' "$3" >&3; head -c "$4" <&3 >"$file"; exec 3>&-"#,
    r#"[ "$(b2sum <"$file")" = "$5  -" ] || exit 23; chmod 700 "$file"; trap - 0 1 2 13 15; umask "$old""#,
    r#"GANTRY_SENT_AGENT=$file exec "$file" serve told pbs"#,
];

/// Gives the agent to those that have its word, until so many have it.
#[derive(Debug)]
pub(super) struct Giver {
    given: String,
    serving: JoinHandle<()>,
}

impl Giver {
    /// Begins. `name` is what hosts of the job call this one, `takers` how many will come.
    ///
    /// # Errors
    /// The agent cannot be read, or there is no port.
    pub(super) async fn start(agent: &Path, name: &str, takers: usize, host: &dyn Host) -> Result<Self> {
        let bytes = host.read(agent).map_err(|source| Error::Read { path: agent.to_owned(), source })?;
        let failed = |error: io::Error| {
            let what = format!("listen for hosts that fetch the agent: {error}");
            Error::Refused(Failure::new(Kind::Unsupported, what))
        };
        let listener = TcpListener::bind(("::", 0)).await;
        let listener = match listener {
            Ok(listener) => listener,
            // There is no IPv6.
            Err(_) => TcpListener::bind(("0.0.0.0", 0)).await.map_err(failed)?,
        };
        let port = listener.local_addr().map_err(failed)?.port();
        let word = Secret::random().map_err(|error| failed(io::Error::other(error)))?.to_hex();
        let given = format!("{name} {port} {} {} {}", *word, bytes.len(), hash(&bytes));
        let expected = format!("{}\n", *word);
        let serving = tokio::spawn(serve(listener, expected.into(), bytes.into(), takers));
        Ok(Self { given, serving })
    }

    /// The task that fetches the agent and becomes it.
    pub(super) fn build_task(&self) -> Spawn {
        Spawn::new([SHELL, "-c", &FETCH.join("; ")]).variable(GANTRY_GIVEN, &self.given)
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What the end of a task means that was to fetch the agent, if it did not come so far.
pub(super) fn explain_status(status: i32) -> Option<Failure> {
    Some(match status {
        NO_PLACE => Failure::new(
            Kind::NoAccess,
            "there is no place for the agent that may be written and executed, and that others cannot change",
        )
        .with_hint("one of TMPDIR, /tmp, /var/tmp, /dev/shm and HOME has to be"),
        UNREACHABLE => {
            Failure::new(Kind::Lost, "it cannot connect to the host that gantry runs on, to fetch the agent")
                .with_hint("have gantry at a path that all hosts of the job see")
        }
        SPOILED => {
            Failure::new(Kind::Protocol, "what it fetched is not the agent, or there is no b2sum to tell")
                .with_hint("see whether its disk is full")
        }
        _ => return None,
    })
}

fn hash(bytes: &[u8]) -> String {
    to_hex(&Blake2b512::digest(bytes)).to_string()
}

async fn serve(listener: TcpListener, word: Arc<str>, bytes: Arc<[u8]>, takers: usize) {
    let mut giving = JoinSet::new();
    let mut given = 0;
    while given < takers {
        tokio::select! {
            come = listener.accept(), if giving.len() < AT_ONCE => match come {
                Ok((stream, _)) => {
                    let (word, bytes) = (Arc::clone(&word), Arc::clone(&bytes));
                    giving.spawn(async move { timeout(PATIENCE, give(stream, &word, &bytes)).await });
                }
                // There are too many open files: others may be closed meanwhile.
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
            Some(over) = giving.join_next() => given += usize::from(matches!(over, Ok(Ok(Ok(true))))),
        }
    }
}

/// Gives all to who says the word. False: it has said another one.
async fn give(mut stream: TcpStream, word: &str, bytes: &[u8]) -> io::Result<bool> {
    let mut said = vec![0; word.len()];
    stream.read_exact(&mut said).await?;
    if said != word.as_bytes() {
        return Ok(false);
    }
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;

    /// Fetches as a task would, into that folder, what it is told to; how that ended.
    async fn fetch(given: &str, folder: &Path) -> Option<i32> {
        #[expect(clippy::disallowed_methods, reason = "the script is judged by a real shell")]
        let mut shell = std::process::Command::new(SHELL);
        shell.args(["-c", &FETCH.join("; ")]).env(GANTRY_GIVEN, given).env("TMPDIR", folder);
        let status = tokio::task::spawn_blocking(move || shell.status().unwrap()).await.unwrap();
        status.code()
    }

    #[tokio::test]
    async fn what_is_fetched_is_executed_if_it_is_what_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, taken) = (folder.path().join("agent"), folder.path().join("taken"));
        std::fs::create_dir(&taken).unwrap();
        let script = "#!/bin/sh\n[ \"$*\" = 'serve told pbs' ] && rm -r \"$(dirname \"$GANTRY_SENT_AGENT\")\" && exit 42\n";
        std::fs::write(&agent, script).unwrap();
        let giver = Giver::start(&agent, "127.0.0.1", 2, &Machine).await.unwrap();
        assert_eq!(fetch(&giver.given, &taken).await, Some(42));
        let mut words: Vec<&str> = giver.given.split(' ').collect();
        let wrong = "0".repeat(64);
        words[2] = &wrong;
        assert_eq!(fetch(&words.join(" "), &taken).await, Some(SPOILED));
        let spoiled = giver.given.replace(&hash(script.as_bytes()), &hash(b"another"));
        assert_eq!(fetch(&spoiled, &taken).await, Some(SPOILED));
        // Two have it, and nobody listens any more.
        assert_eq!(fetch(&giver.given, &taken).await, Some(UNREACHABLE));
        assert_eq!(std::fs::read_dir(&taken).unwrap().count(), 0, "something is left");
        assert!([NO_PLACE, UNREACHABLE, SPOILED].iter().all(|it| explain_status(*it).is_some()));
        assert!(explain_status(1).is_none());
    }
}
