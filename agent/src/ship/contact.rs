//! Contact with the collector: made, lost, and made again.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Settings, ShipError, Transport, Tunnel,
    link::{Link, Sent},
};

/// How long a lost contact is left alone before the first attempt to make it again, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may take to be made, or to be answered, before another address is tried.
const MOST_OPENING: Duration = Duration::from_secs(5);

/// How long the agent waits for an answer before it says again who it is; each time twice as long.
const HELLO_AGAIN: Duration = Duration::from_millis(100);

/// After how much silence, and after how many `progress` that were not answered, a collector has forgotten the agent or
/// is gone. Only of datagrams: a connection knows by itself.
const SILENCE: Duration = Duration::from_millis(1_500);
const UNANSWERED: u32 = 5;

/// The way to the collector, and how far the agent is on it.
#[derive(Debug)]
pub(super) struct Contact {
    addresses: Vec<SocketAddr>,
    transport: Transport,
    tunnel: Option<Arc<dyn Tunnel>>,
    /// How long each address is tried, where there are others.
    patience: Duration,
    /// Which address is tried.
    at: usize,
    phase: Phase,
    pause: Duration,
    heard: Instant,
    /// How many `progress` were told since.
    unanswered: u32,
    /// How often an attempt failed or contact was lost.
    failures: u64,
    /// How often contact was made.
    made: u64,
    last_error: Option<(SocketAddr, io::Error)>,
}

#[derive(Debug)]
enum Phase {
    /// There is no socket. Another is tried then.
    Apart { until: Instant },
    /// A connection is being made.
    Opening { link: Link, since: Instant },
    /// The agent says who it is.
    Greeting { link: Link, since: Instant, next: Option<Instant>, wait: Duration, anew: bool },
    /// The collector has answered.
    Together { link: Link },
}

impl Phase {
    fn greeting(link: Link, now: Instant, anew: bool) -> Self {
        Self::Greeting { link, since: now, next: Some(now), wait: HELLO_AGAIN, anew }
    }
}

/// How contact was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// It had been there all the time.
    Already,
    /// It had only been silent: what was sent may have arrived.
    Again,
    /// By another socket: what was sent may be lost.
    Anew,
}

impl Contact {
    pub(super) fn new(settings: &Settings, now: Instant) -> Result<Self, ShipError> {
        if settings.to.is_empty() {
            return Err(ShipError::NoAddress);
        }
        Ok(Self {
            addresses: settings.to.clone(),
            transport: settings.transport,
            tunnel: settings.tunnel.clone(),
            patience: MOST_OPENING.min(settings.patience / settings.to.len() as u32),
            at: 0,
            phase: Phase::Apart { until: now },
            pause: FIRST_PAUSE,
            heard: now,
            unanswered: 0,
            failures: 0,
            made: 0,
            last_error: None,
        })
    }

    /// Whether the collector has answered.
    pub(super) fn is_made(&self) -> bool {
        matches!(self.phase, Phase::Together { .. })
    }

    /// How long ago the collector was last heard from.
    pub(super) fn heard_ago(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// How often contact was made again after it was lost.
    pub(super) fn remade(&self) -> u64 {
        self.made.saturating_sub(1)
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether the collector that alone is at the other end of sockets has ended, so that there never will be contact.
    pub(super) fn is_forsaken(&self) -> bool {
        let is_gone = |(_, error): &(SocketAddr, io::Error)| error.kind() == ErrorKind::NotConnected;
        self.transport == Transport::Socket && !self.is_made() && self.last_error.as_ref().is_some_and(is_gone)
    }

    /// What went wrong last.
    pub(super) fn last_error(&self) -> Option<&(SocketAddr, io::Error)> {
        self.last_error.as_ref()
    }

    /// The address that is tried or used.
    pub(super) fn address(&self) -> SocketAddr {
        self.addresses[self.at]
    }

    /// Notes that something was said which is always answered.
    pub(super) fn expects_answer(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Whether the collector should have been heard of by now. An agent that was held up itself has not asked.
    fn is_silent(&self, now: Instant) -> bool {
        self.unanswered >= UNANSWERED && self.heard_ago(now) >= SILENCE
    }

    /// Does what is due to make contact. `hello` is what the agent says until it is answered; it is told whether contact
    /// was made before.
    pub(super) fn poll(&mut self, now: Instant, hello: impl FnOnce(bool) -> Vec<Vec<u8>>) {
        match &self.phase {
            Phase::Apart { until } if now >= *until => {
                match Link::open(self.address(), self.transport, self.tunnel.as_deref()) {
                    Ok(link) => self.phase = Phase::Opening { link, since: now },
                    Err(error) => self.lose(error, now),
                }
            }
            Phase::Together { link: Link::Udp(_) } if self.is_silent(now) => self.greet_again(now),
            _ => {}
        }
        self.finish_opening(now);
        let several = self.addresses.len() > 1;
        let Phase::Greeting { link, since, next, wait, .. } = &mut self.phase else { return };
        if several && now.saturating_duration_since(*since) >= self.patience {
            return self.lose(ErrorKind::TimedOut.into(), now);
        }
        if next.is_none_or(|next| now < next) {
            return;
        }
        for datagram in hello(self.made > 0) {
            match link.send(&datagram) {
                Ok(Sent::Yes) => {}
                Ok(Sent::Blocked) => return,
                Err(error) => return self.lose(error, now),
            }
        }
        // In a connection once is enough: that loses nothing.
        *next = (self.transport == Transport::Udp).then_some(now + *wait);
        *wait = (2 * *wait).min(LONGEST_PAUSE);
    }

    /// The collector has forgotten the agent, or is another: it is told again who this is.
    pub(super) fn greet_again(&mut self, now: Instant) {
        match std::mem::replace(&mut self.phase, Phase::Apart { until: now }) {
            Phase::Together { link } => self.phase = Phase::greeting(link, now, false),
            phase => self.phase = phase,
        }
    }

    fn finish_opening(&mut self, now: Instant) {
        let Phase::Opening { link, since } = &self.phase else { return };
        match link.is_ready() {
            Ok(true) => {}
            Ok(false) if now.saturating_duration_since(*since) >= self.patience => {
                return self.lose(ErrorKind::TimedOut.into(), now);
            }
            Ok(false) => return,
            Err(error) => return self.lose(error, now),
        }
        if let Phase::Opening { link, .. } = std::mem::replace(&mut self.phase, Phase::Apart { until: now }) {
            self.phase = Phase::greeting(link, now, true);
        }
    }

    /// The collector takes nothing.
    pub(super) fn refuse(&mut self, reason: String, now: Instant) {
        self.lose(io::Error::new(ErrorKind::PermissionDenied, reason), now);
    }

    /// Gives up on this attempt, or on the contact that there was.
    fn lose(&mut self, error: io::Error, now: Instant) {
        self.failures += 1;
        self.unanswered = 0;
        self.last_error = Some((self.address(), error));
        self.at = (self.at + 1) % self.addresses.len();
        self.phase = Phase::Apart { until: now + self.pause };
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }

    /// The collector has answered.
    pub(super) fn answered(&mut self, now: Instant) -> Made {
        (self.heard, self.unanswered) = (now, 0);
        match std::mem::replace(&mut self.phase, Phase::Apart { until: now }) {
            Phase::Greeting { link, anew, .. } => {
                self.pause = FIRST_PAUSE;
                self.made += u64::from(anew);
                self.phase = Phase::Together { link };
                if anew { Made::Anew } else { Made::Again }
            }
            phase => {
                self.phase = phase;
                Made::Already
            }
        }
    }

    /// Sends packets once contact is made. `None` where it is not, or was lost just now.
    pub(super) fn send(&mut self, packets: &[u8], now: Instant) -> Option<Sent> {
        let Phase::Together { link } = &mut self.phase else { return None };
        match link.send(packets) {
            Ok(sent) => Some(sent),
            Err(error) => {
                self.lose(error, now);
                None
            }
        }
    }

    /// Goes on with what the socket has not taken.
    pub(super) fn flush(&mut self, now: Instant) {
        if let Some(link) = self.link()
            && let Err(error) = link.flush()
        {
            self.lose(error, now);
        }
    }

    /// Passes on the packets that have come. Whether there were any.
    pub(super) fn receive(&mut self, now: Instant, each: impl FnMut(&[u8])) -> bool {
        let Some(link) = self.link() else { return false };
        match link.receive(each) {
            Ok(any) => any,
            Err(error) => {
                self.lose(error, now);
                true
            }
        }
    }

    /// Waits until something has come, at most so long; with `to_send`, also until something can go.
    pub(super) fn wait(&self, wait: Duration, to_send: bool, now: Instant) {
        match &self.phase {
            Phase::Apart { until } => std::thread::sleep(wait.min(until.saturating_duration_since(now))),
            Phase::Opening { link, .. } => link.wait(wait, true),
            Phase::Greeting { link, .. } => link.wait(wait, false),
            Phase::Together { link } => link.wait(wait, to_send),
        }
    }

    fn link(&mut self) -> Option<&mut Link> {
        match &mut self.phase {
            Phase::Greeting { link, .. } | Phase::Together { link } => Some(link),
            Phase::Apart { .. } | Phase::Opening { .. } => None,
        }
    }

    /// Why there is no contact, after so long.
    pub(super) fn error(&mut self, patience: Duration) -> ShipError {
        let transport = self.transport;
        match (self.last_error.take(), &self.phase) {
            (Some((to, error)), Phase::Apart { .. } | Phase::Opening { .. }) => match error.kind() {
                ErrorKind::ConnectionRefused => ShipError::Refused { to, transport },
                ErrorKind::TimedOut if matches!(transport, Transport::Udp | Transport::Quic) => {
                    ShipError::NoAnswer { to, transport, patience }
                }
                // Somebody has found words for it.
                ErrorKind::PermissionDenied if error.get_ref().is_some() => {
                    ShipError::Rejected { to, transport, why: error }
                }
                _ => ShipError::Unreachable { to, transport, source: error },
            },
            (None, Phase::Opening { .. }) if transport == Transport::Quic => {
                ShipError::NoAnswer { to: self.address(), transport, patience }
            }
            (None, Phase::Apart { .. } | Phase::Opening { .. }) => {
                let source = io::Error::new(ErrorKind::TimedOut, "the connection was not made in time");
                ShipError::Unreachable { to: self.address(), transport, source }
            }
            _ if transport == Transport::Udp => ShipError::NoAnswer { to: self.address(), transport, patience },
            _ => ShipError::Silent { to: self.address(), patience },
        }
    }
}
