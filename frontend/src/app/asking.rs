//! Questions to workload managers and launchers. Each one runs on a blocking thread: a program that is asked, or a file
//! system, may hang.

use std::time::Duration;

use gantry_wlm::host::Limited;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};

/// How long to wait for a question after its deadline. Its programs are killed at the deadline, and the error can then name
/// the one that did not answer.
const SLACK: Duration = Duration::from_millis(500);

/// Asks questions. Dropping it kills the programs that run for them.
#[derive(Debug)]
pub(crate) struct Asker(Limited);

impl Asker {
    /// With a deadline, its programs are killed at that moment.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self(Limited::new(deadline.map(Instant::into_std)))
    }

    /// The machine, for an asynchronous function that asks.
    pub(crate) fn host(&self) -> &Limited {
        &self.0
    }

    /// Asks on a blocking thread.
    pub(crate) async fn ask<T, E>(
        &self,
        question: impl FnOnce(&Limited) -> std::result::Result<T, E> + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
    {
        let host = self.0.clone();
        spawn_blocking(move || question(&host)).await?.map_err(Into::into)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Asks on a blocking thread. Dropping the future kills the programs that are asked.
pub(crate) async fn ask<T, E>(
    question: impl FnOnce(&Limited) -> std::result::Result<T, E> + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    E: Into<Error> + Send + 'static,
{
    Asker::new(None).ask(question).await
}

/// As [`ask`], until `deadline`.
///
/// # Errors
/// [`Error::TimedOut`] names the program that has not answered, if it is one.
pub(crate) async fn ask_until<T, E>(
    phase: &'static str,
    deadline: Instant,
    question: impl FnOnce(&Limited) -> std::result::Result<T, E> + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    E: Into<Error> + Send + 'static,
{
    let (begun, asker) = (Instant::now(), Asker::new(Some(deadline)));
    let asked = timeout_at(deadline + SLACK, asker.ask(question)).await;
    let late = |missing| Error::TimedOut { phase, after: begun.elapsed(), missing };
    match (asker.host().late(), asked) {
        // The answer may be wrong: it was found without what this program would have said.
        (Some(command), _) => Err(late(vec![format!("'{command}'")])),
        (None, Ok(answer)) => answer,
        (None, Err(_)) => Err(late(Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use gantry_wlm::Host;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_program_that_does_not_answer_until_the_deadline_is_named_and_a_dropped_question_ends() {
        let hang = |host: &Limited| -> Result<bool> {
            Ok(host.ask(&["/bin/sleep".into(), "1000".into()], LONG).is_ok())
        };
        let soon = Instant::now() + Duration::from_millis(200);
        let error = ask_until("planning", soon, hang).await.unwrap_err().to_string();
        assert!(error.ends_with("s while planning; no answer from '/bin/sleep 1000'"), "{error}");
        let never = ask_until("planning", Instant::now() + LONG, |_| Ok::<_, Error>(7)).await;
        assert_eq!(never.unwrap(), 7);
        let (tell, told) = tokio::sync::oneshot::channel();
        let asking = tokio::spawn(ask(move |host| {
            let answer = hang(host);
            tell.send(()).ok();
            answer
        }));
        tokio::task::yield_now().await;
        asking.abort();
        told.await.expect("the thread is free again");
    }
}
