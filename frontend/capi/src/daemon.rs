//! Tool daemons.

use std::ffi::{OsString, c_char, c_int};

use gantry_frontend::DaemonRequest;
use gantry_frontend::request::parse_env_string;
use gantry_shared::cti::{self, CtiWlm};
use gantry_shared::storage::{CTI_APID, CTI_CONTAINER_INSTANCE, CTI_IAMBACKEND, CTI_WLM};
use gantry_shared_capi::{deadline, enter, text};
use gantry_types::output::DaemonOutput;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use crate::handles::App;
use crate::manifest::program_below;
use crate::process::{fault, process};

/// What the loader of every program reads. The reference keeps the tool's own from daemons, and not from ranks.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The environment of the reference interface's daemons, the same on every node; agents add the session's paths.
fn build_env(app: &App) -> Vec<(OsString, OsString)> {
    let number = CtiWlm::by_name(app.handle.wlm()).map_or(cti::NONE, |wlm| wlm.number);
    let mut env = vec![
        (CTI_IAMBACKEND.into(), "1".into()),
        (CTI_APID.into(), app.handle.id().to_string().into()),
        (CTI_WLM.into(), number.to_string().into()),
    ];
    if Machine.env(LD_PRELOAD).is_some() {
        // The loader ignores an empty one.
        env.push((LD_PRELOAD.into(), OsString::new()));
    }
    env
}

/// Ships a manifest and starts a daemon on every node.
///
/// # Safety
/// Strings and lists of strings are null or valid as in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_execToolDaemon(
    mid: i64,
    fstr: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
) -> c_int {
    enter("cti_execToolDaemon", 1, || {
        // SAFETY: guaranteed by the caller.
        let program = unsafe { text::required(fstr, "the daemon's name") }?;
        // SAFETY: guaranteed by the caller.
        let args = unsafe { text::list(args) }?;
        // SAFETY: guaranteed by the caller.
        let env = unsafe { text::list(env) }?;
        let process = process();
        let session = process.live_session(process.live_manifest(mid)?.session)?;
        let app = process.apps.get(session.app)?;
        let mut request = DaemonRequest::new(program).args(args);
        for (name, value) in build_env(&app).into_iter().chain(process.attributes.for_daemons()) {
            request = request.env(name, value);
        }
        for string in env {
            let (name, value) = parse_env_string(string).map_err(|error| fault(&error))?;
            request = request.env(name, value);
        }
        if let Some(instance) = Machine.env(CTI_CONTAINER_INSTANCE) {
            request = request.container(instance);
        }
        if let Some(dir) = process.attributes.log_dir() {
            request = request.output(DaemonOutput::Log(dir.into_os_string()));
        }
        let (mut manifest, _) = process.manifests.take(mid)?.take()?;
        if !process.attributes.stages_dependencies() {
            manifest.without_dependencies();
        }
        let deadline = deadline::of_calls();
        // The daemon belongs to its session: its handle may go.
        process.try_wait(async move { manifest.exec_daemon(request, deadline).await.map(drop) })?;
        tracing::debug!(app = session.app, ?program, "a daemon");
        session.note_shipped(program_below(program));
        Ok(0)
    })
}
