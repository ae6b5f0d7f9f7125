//! What the agent says first: who is traced, when its zero is, which process made it, and in which trace.

use codec::{
    ClockKind,
    heph::{Encode, EncodeError, List},
    profile::{Claim, Clock, Epoch, PROFILE_VERSION, ProfileOption, Session, TraceContext},
};

use super::{Who, text::cut};

/// The most that is told of a machine's name and of a path.
const MOST_HOST_BYTES: usize = 255;
const MOST_PATH_BYTES: usize = 500;

/// `claim`, `session`, `epoch`, `clock`, `birth` and `context`, one behind the other, in a datagram of this size.
pub(super) fn greeting(who: &Who, datagram_bytes: usize) -> Result<Vec<u8>, EncodeError> {
    let epoch = ProfileOption::from(Epoch { unix_ns: who.epoch_unix_ns });
    let clock = ProfileOption::from(Clock { clock: ClockKind::Boottime, zero_ns: who.clock_zero_ns });
    let arguments: Vec<&str> = who.arguments.iter().map(String::as_str).collect();
    let mut session = Session {
        id: who.session,
        profile: PROFILE_VERSION,
        arch: who.arch,
        os: who.os,
        pid: who.pid,
        agent_version: cut(&who.agent_version, 64),
        host: cut(&who.host, MOST_HOST_BYTES),
        executable: cut(&who.executable, MOST_PATH_BYTES),
        argument_count: arguments.len() as u32,
        arguments: List::default(),
    };
    let claim = who.secret.as_ref().map(|secret| ProfileOption::from(Claim { secret }));
    let birth = who.birth.map(ProfileOption::from);
    let mut context = TraceContext { root: who.root, parent: &who.trace.0, state: &who.trace.1 };
    let mut taken = 0;
    for option in claim.into_iter().chain([session.into(), epoch, clock]).chain(birth).chain([context.into()]) {
        taken += option.encoded_len()?;
    }
    // A state that is cut says something else.
    if taken > datagram_bytes {
        taken = taken.saturating_sub(context.state.len());
        context.state = "";
    }
    // The list's own count is in what is taken already.
    let fitting = List::fitting(&arguments, datagram_bytes.saturating_sub(taken) + 2);
    session.arguments = arguments.get(..fitting).unwrap_or_default().into();
    let mut packets = Vec::new();
    for option in claim.into_iter().chain([session.into(), epoch, clock]).chain(birth).chain([context.into()]) {
        option.encode(&mut packets)?;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use codec::{
        Arch, Os, SessionId, SessionNs,
        heph::Packets,
        profile::{Birth, BirthKind, Known, Message},
    };

    use super::*;

    const BIRTH: Birth =
        Birth { parent: SessionId([6; 16]), how: BirthKind::Spawned, tid: 4_710, at: SessionNs(u64::MAX) };

    fn who(arguments: Vec<String>) -> Who {
        Who {
            session: SessionId([7; 16]),
            secret: Some([7; 32]),
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4_711,
            agent_version: "0.1.0".into(),
            host: "machine".into(),
            executable: "/bin/é".repeat(1_000),
            arguments,
            epoch_unix_ns: 5,
            clock_zero_ns: 6,
            birth: Some(BIRTH),
            root: SessionId([6; 16]),
            trace: ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(), "a=1,".repeat(128)),
        }
    }

    #[test]
    fn it_fits_a_datagram_whatever_the_arguments_are() {
        for (length, fit) in [(1, true), (10, true), (5_000, false)] {
            let arguments: Vec<_> = (0..2_000).map(|number| format!("{number:0length$}")).collect();
            let bytes = greeting(&who(arguments.clone()), 1_200).expect("it can be said");
            assert!(bytes.len() <= 1_200, "{} bytes", bytes.len());
            let mut names = Vec::new();
            let mut packets = Packets::new(&bytes, 1_200);
            while let Some(message) = packets.next_with(Message::decode) {
                let Ok(Message::Option(Known { option, .. })) = message else { panic!("{message:?}") };
                names.push(option.name());
                if let ProfileOption::TraceContext(context) = option {
                    assert_eq!(
                        (context.parent.len(), context.state),
                        (55, ""),
                        "a state that does not fit is left out"
                    );
                }
                if let ProfileOption::Birth(birth) = option {
                    assert_eq!(birth, BIRTH);
                }
                let ProfileOption::Session(session) = option else { continue };
                assert_eq!(session.argument_count, 2_000);
                assert_eq!(!session.arguments.is_empty(), fit);
                assert!(
                    session.arguments.iter().eq(arguments.iter().map(String::as_str).take(session.arguments.len()))
                );
            }
            assert_eq!(names, ["claim", "session", "epoch", "clock", "birth", "context"]);
        }
    }
}
