//! Programs traced over encrypted connections, by the command itself.

use tests::{
    Collector, Exit, Identity, Process, Target, Trace, Transport, agent_command, agent_command::PATIENCE,
    collector::verified, process::Stdout, traced::LOSSLESS,
};

/// Runs a program, traced with these options.
fn run(collector: &Collector, transport: Transport, options: &[&str]) -> Exit {
    let options = [LOSSLESS, options].concat();
    let mut command = agent_command::run_to(collector.address(transport), transport, &options);
    command.arg(Target::named("pthreads").program());
    Process::start(command, Stdout::Collect).exit(PATIENCE)
}

#[test]
fn a_program_is_traced_over_tls_and_quic() {
    agent_command::prepare();
    let identity = Identity::new();
    let (token, authority, pin) = (identity.path("token"), identity.path("ca.pem"), identity.pin().to_string());
    for (transport, trust) in [(Transport::Tls, ["--tls-pin", &pin]), (Transport::Quic, ["--tls-ca", &authority])] {
        let guard = identity.guarded();
        let arguments: Vec<_> = guard.iter().map(String::as_str).collect();
        let (folder, collector) = Collector::in_folder("traced-encrypted", &arguments);
        let exit = run(&collector, transport, &[&trust[..], &["--token-file", &token]].concat());
        assert!(exit.stderr.contains("nothing lost"), "{transport}: {}", exit.stderr);
        collector.stop().success();
        let trace = Trace::only(folder.path());
        assert!(trace.len() > 1_000 && trace.manifest.gaps.is_empty(), "{transport}: {} events", trace.len());
        verified(&trace.folder);
    }
}

#[test]
fn what_cannot_be_encrypted_is_refused_before_the_program_starts() {
    let identity = Identity::new();
    let (token, other, pin) = (identity.path("token"), identity.path("other-token"), identity.pin().to_string());
    let guard = identity.guarded();
    let arguments: Vec<_> = guard.iter().map(String::as_str).collect();
    let (_folder, collector) = Collector::in_folder("refused-encrypted", &arguments);
    for (transport, options, said) in [
        (Transport::Udp, &["--token-file", &token][..], "a token travels only encrypted"),
        (Transport::Tcp, &["--token-file", &token], "a token travels only encrypted"),
        (Transport::Udp, &["--tls-pin", &pin], "plain UDP is not encrypted"),
        (Transport::Quic, &[], "QUIC is encrypted"),
        (Transport::Tls, &["--tls-pin", "abc"], "64 hexadecimal digits"),
        (Transport::Tls, &["--tls-pin", &pin, "--token-file", &other], "is not the collector's"),
        (Transport::Quic, &["--tls-pin", &pin], "the collector wants a token"),
        (Transport::Udp, &[], "takes encrypted connections only"),
    ] {
        let exit = run(&collector, transport, options);
        assert!(exit.code != Some(0) && exit.stderr.contains(said), "{said}: {}", exit.stderr);
        assert!(exit.stdout.is_empty(), "the program was not run");
    }
}
