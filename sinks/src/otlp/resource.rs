//! What runs, by the semantic conventions of OpenTelemetry.

use codec::{Arch, Os};

use crate::{Catalog, Session, file_name};

use super::message::{ResourceMessage, Value};

/// What a user may say of what runs, as OpenTelemetry has it for all programs that export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpOptions {
    /// Frames that took less are not exported, in nanoseconds.
    pub min_ns: u64,
    /// The name of the service, instead of that of the executable.
    pub service: Option<String>,
    /// Further attributes of every process.
    pub attributes: Vec<(String, String)>,
}

/// The process of a session.
pub(super) fn resource(session: &Session, catalog: &Catalog, options: &OtlpOptions) -> ResourceMessage {
    let mut resource = ResourceMessage::default();
    let mut put = |name: &str, value: Value<'_>| {
        // What the user says goes before what was found.
        if !options.attributes.iter().any(|(said, _)| said == name) {
            resource.attribute(name, value);
        }
    };
    let process = catalog.session();
    let program = process.map(|process| file_name(&process.executable)).filter(|name| !name.is_empty());
    let said = options.attributes.iter().find(|(name, _)| name == SERVICE_NAME).map(|(_, name)| name.as_str());
    let service = options.service.as_deref().or(said).or(program).unwrap_or("unknown_service");
    let instance = process.map_or_else(|| session.name.clone(), |process| process.id.to_string());
    put("service.instance.id", instance.into());
    put("telemetry.sdk.name", "spoor".into());
    put("telemetry.sdk.language", "native".into());
    put("telemetry.sdk.version", process.map_or(env!("CARGO_PKG_VERSION"), |process| &*process.agent_version).into());
    if let Some(process) = process {
        put("host.name", (&*process.host).into());
        put("host.arch", arch(process.arch).into());
        put("os.type", os(process.os).into());
        put("process.pid", u64::from(process.pid).into());
        put("process.executable.name", file_name(&process.executable).into());
        put("process.executable.path", (&*process.executable).into());
        put("process.command_args", Value::Texts(process.arguments.iter().map(|argument| &**argument).collect()));
    }
    resource.attribute(SERVICE_NAME, service);
    for (name, value) in options.attributes.iter().filter(|(name, _)| name != SERVICE_NAME) {
        resource.attribute(name, value.as_str());
    }
    resource
}

const SERVICE_NAME: &str = "service.name";

/// The names of processors in the conventions, where these have one.
fn arch(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "amd64",
        other => other.name(),
    }
}

/// The same of operating systems.
fn os(os: Os) -> &'static str {
    match os {
        Os::MacOs | Os::Ios => "darwin",
        Os::Android => "linux",
        other => other.name(),
    }
}
