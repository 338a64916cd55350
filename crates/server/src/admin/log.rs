//! Changing what is logged while serving. The log belongs to the process, and so does what changes it.

use std::sync::OnceLock;

use holdfast_admin::report::LogLevels;
use holdfast_admin::request::{Code, Refusal};

/// Tells the levels in force, after setting them to those given; an error says what is wrong with them.
pub type LogControl = Box<dyn Fn(Option<&str>) -> Result<String, String> + Send + Sync>;

static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Says how levels of the process' log are told and changed, for `holdfast log`. Whoever starts the log calls it,
/// once: later calls change nothing.
pub fn control_log_by(control: LogControl) {
    let _ = CONTROL.set(control);
}

pub(super) fn levels(wanted: Option<&str>) -> Result<LogLevels, Refusal> {
    let control = CONTROL
        .get()
        .ok_or_else(|| Refusal::new(Code::NotPossible, "this server's log is not its own to change"))?;
    let levels = control(wanted).map_err(|error| Refusal::new(Code::BadRequest, error))?;
    if wanted.is_some() {
        tracing::info!(levels, "log levels changed by the administrator");
    }
    Ok(LogLevels { levels })
}
