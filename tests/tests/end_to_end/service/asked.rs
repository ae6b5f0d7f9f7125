//! Agents that are asked for something by `collector ctl`, and say nothing, or nonsense.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use codec::{
    Arch, Os, SessionId,
    heph::{Encode, MAX_PACKET_BYTES, Step, StreamDecoder},
    profile::{Answer, AnswerKind, Known, Message, PROFILE_VERSION, ProfileOption, Session},
};
use tests::{
    Agent, Collector, Exit, Process, Settings, Trace, Transport,
    collector::{binary, run_on},
    process::Stdout,
};

use crate::service::{LONG, finish, is_complete};

fn ctl(session: SessionId, arguments: &[&str]) -> Process {
    let mut command = Command::new(binary());
    command.arg("ctl").arg(session.to_string()).args(arguments);
    Process::start(command, Stdout::Collect)
}

#[track_caller]
fn says(exit: &Exit, code: i32, words: &str) {
    assert!(exit.code == Some(code) && exit.stderr.contains(words), "{exit:?}");
    assert_eq!(exit.stderr.lines().count(), 1, "{}", exit.stderr);
}

/// As one of a version that does not know what it is asked, and one that is cut off.
#[test]
fn who_says_nothing_is_not_waited_for_for_ever() {
    let (folder, collector) = Collector::in_folder("asked", &[]);
    let agent = |seed| Agent::start(Settings::new(&collector, Transport::Tcp, seed)).expect("it is heard");
    let (mut talking, mut silent) = (agent(1), agent(2));
    let (mut one, other) = (ctl(talking.session(), &["stop"]), ctl(silent.session(), &[]));
    while one.is_running() {
        talking.work(10).expect("it is taken");
        talking.listen(Duration::from_millis(20));
    }
    says(&one.exit(LONG), 1, "its agent has not answered within 10.0 s, though it is there: its version, synthetic,");
    says(&other.exit(LONG), 1, "nothing has come from it for ");
    for agent in [&mut talking, &mut silent] {
        finish(agent);
        is_complete(folder.path(), agent);
    }
    says(&ctl(talking.session(), &[]).exit(LONG), 1, "has ended");
    collector.stop().success();
}

/// A peer that speaks the profile, as it likes.
struct Stranger {
    stream: TcpStream,
    session: SessionId,
    received: Vec<u8>,
}

impl Stranger {
    fn start(collector: &Collector, session: SessionId) -> Self {
        let stream = TcpStream::connect(collector.tcp()).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut stranger = Self { stream, session, received: Vec::new() };
        stranger.say(Session {
            id: session,
            profile: PROFILE_VERSION,
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 1,
            agent_version: "strange",
            host: "\u{1b}[2J",
            executable: "/bin/strange\n",
            argument_count: 0,
            arguments: [].as_slice().into(),
        });
        // It has been heard.
        stranger.until(|option| matches!(option, ProfileOption::Ack(_)).then_some(()));
        stranger
    }

    fn say<'a>(&mut self, option: impl Into<ProfileOption<'a>>) {
        let mut packet = Vec::new();
        option.into().encode(&mut packet).expect("it fits");
        self.stream.write_all(&packet).expect("it is taken");
    }

    fn answer(&mut self, session: SessionId, number: u64, text: &str) {
        self.say(Answer { session, number, kind: AnswerKind::Done, text });
    }

    /// Reads until something has come.
    fn until<T>(&mut self, found: impl Fn(&ProfileOption<'_>) -> Option<T>) -> T {
        let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
        loop {
            let mut consumed = 0;
            while let Step::Packet { packet, bytes } =
                decoder.step_with(&self.received[consumed..], false, Message::decode)
            {
                let it = match packet {
                    Message::Option(Known { option, .. }) => found(&option),
                    _ => None,
                };
                consumed += bytes.len();
                if let Some(it) = it {
                    self.received.drain(..consumed);
                    return it;
                }
            }
            self.received.drain(..consumed);
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).expect("something comes");
            assert!(count > 0, "the collector has hung up");
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// The number of what it is asked.
    fn asked(&mut self, words: &str) -> u64 {
        self.until(|option| match option {
            ProfileOption::Ask(ask) if ask.request == words => Some(ask.number),
            _ => None,
        })
    }
}

#[test]
fn nonsense_for_an_answer_does_no_harm() {
    let (folder, collector) = Collector::in_folder("asked-strange", &[]);
    let mut one = Stranger::start(&collector, SessionId([0x41; 16]));
    let mut other = Stranger::start(&collector, SessionId([0x42; 16]));
    (0..1_000).for_each(|number| one.answer(one.session, number, &"unasked ".repeat(100)));
    let asking = ctl(one.session, &["stop"]);
    let number = one.asked("stop");
    // It is asked again for as long as nobody answers who was asked.
    other.answer(one.session, number, "in the name of another");
    other.answer(other.session, number, "what another was asked");
    one.answer(other.session, number, "of another session");
    assert_eq!(one.asked("stop"), number);
    one.answer(one.session, number, "\u{1b}[2Jdone\nand more");
    one.answer(one.session, number, "once more");
    assert_eq!(asking.exit(LONG).success().text(), "\\u{1b}[2Jdone\\nand more\n");
    let asking = ctl(one.session, &[]);
    let number = one.asked("status");
    one.answer(one.session, number, "no status");
    says(&asking.exit(LONG), 1, "the agent is of another version");
    let asking = ctl(other.session, &["budget", "10%"]);
    let number = other.asked("budget 10%");
    other.say(Answer { session: other.session, number, kind: AnswerKind::Other(77), text: &"no ".repeat(20_000) });
    let exit = asking.exit(LONG);
    assert!(exit.code == Some(1) && exit.stderr.len() < 20_000, "{}", exit.stderr.len());
    // Who goes away while it is asked.
    let asking = ctl(other.session, &["stop"]);
    other.asked("stop");
    drop(other);
    drop(collector.stop());
    says(&asking.exit(LONG), 1, "was stopped, before its agent answered");
    drop(one);
    for trace in Trace::all(folder.path()) {
        run_on("verify", &trace.folder, &[]).success();
        assert!(trace.is_empty());
    }
}
