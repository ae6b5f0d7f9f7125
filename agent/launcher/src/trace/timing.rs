//! What `--verbose` says of the time that it took to hook everything.

use std::time::Duration;

use crate::install::Report;

/// How long everything took before the program could start.
pub(super) fn timing(with_frida: bool, report: &Report, entered: Duration, all: Duration) -> String {
    let functions: usize = report.modules.iter().map(|module| module.hooked + module.probed.len()).sum();
    let [planning, installing, entered, all] =
        [report.planning, report.installing, entered, all].map(|time| time.as_millis());
    let engine = if with_frida { "frida" } else { "entered in" };
    format!(
        "hooked {functions} functions of {} modules: planned in {planning} ms, installed in {installing} ms, {engine} \
         {entered} ms, in all {all} ms",
        report.modules.len()
    )
}
