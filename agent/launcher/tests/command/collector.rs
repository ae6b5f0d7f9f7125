//! A collector just good enough for the command to be content: it confirms everything over TCP and keeps nothing.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::OnceLock,
    thread,
};

use codec::{
    SessionId, SessionNs,
    heph::{Encode, MAX_PACKET_BYTES, Step, StreamDecoder},
    profile::{Ack, Fingerprint, Kept, Known, Message, ProfileOption, StreamPosition},
};

/// Where it listens. There is one for all tests.
pub(crate) fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(|| Session::default().serve(stream));
            }
        });
        address
    })
}

/// What is known of the session on a connection.
#[derive(Default)]
struct Session {
    id: Option<SessionId>,
    echo: Option<SessionNs>,
    streams: BTreeMap<u32, StreamPosition>,
    options: Vec<Fingerprint>,
}

impl Session {
    fn serve(mut self, mut stream: TcpStream) {
        let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
        let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
            let mut consumed = 0;
            while let Step::Packet { bytes, .. } = decoder.step(&received[consumed..], false) {
                self.take(bytes);
                consumed += bytes.len();
            }
            received.drain(..consumed);
            if stream.write_all(&self.answer()).is_err() {
                return;
            }
        }
    }

    /// What comes over a connection comes in order: what the agent says it has sent is here.
    fn take(&mut self, packet: &[u8]) {
        let Ok(Message::Option(Known { option, .. })) = Message::decode(packet) else { return };
        match &option {
            ProfileOption::Session(session) => self.id = Some(session.id),
            ProfileOption::Progress(progress) => self.echo = Some(progress.now),
            _ => {}
        }
        let streams = match &option {
            ProfileOption::Progress(progress) => Some(progress.streams),
            ProfileOption::End(end) => Some(end.streams),
            _ => None,
        };
        self.streams.extend(streams.into_iter().flatten().map(|position| (position.stream.0, position)));
        self.options.push(Fingerprint::of(packet));
    }

    fn answer(&mut self) -> Vec<u8> {
        let mut answer = Vec::new();
        let Some(session) = self.id else { return answer };
        let options = std::mem::take(&mut self.options);
        let streams: Vec<_> = self.streams.values().copied().collect();
        let echo = self.echo.unwrap_or(SessionNs(0));
        for part in options.chunks(48).chain(options.is_empty().then_some(&[][..])) {
            let (streams, options) = (streams.as_slice().into(), part.into());
            let ack = Ack { session, echo, window_bytes: 1 << 20, streams, options };
            ProfileOption::from(ack).encode(&mut answer).expect("it fits");
        }
        let (streams, lost) = (streams.as_slice().into(), [].as_slice().into());
        ProfileOption::from(Kept { session, streams, lost, since: 0 }).encode(&mut answer).expect("it fits");
        answer
    }
}
