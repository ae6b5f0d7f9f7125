//! Sockets to listen on.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// The sockets of one `--listen`.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) udp: Option<UdpSocket>,
    pub(crate) tcp: Option<TcpListener>,
    /// The receive buffer that the system granted to the UDP socket.
    pub(crate) receive_buffer: usize,
}

/// What to listen for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
    pub(crate) receive_buffer: usize,
    /// Whether an IPv6 address is to leave IPv4 alone, since another `--listen` takes that.
    pub(crate) only_v6: bool,
}

/// How often a free port is looked for that both protocols have free.
const ATTEMPTS: usize = 32;

/// Opens the sockets for an address, both on one port.
pub(crate) fn listen(address: SocketAddr, wanted: Wanted) -> Result<Listening> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let tcp = wanted.tcp.then(|| listen_tcp(address, wanted)).transpose()?;
        let mut same_port = address;
        if let Some(tcp) = &tcp {
            same_port.set_port(tcp.local_addr()?.port());
        }
        match wanted.udp.then(|| listen_udp(same_port, wanted)).transpose() {
            // Somebody else has this port for UDP. Where it was for us to choose, choose another.
            Err(error) if address.port() == 0 && tcp.is_some() && attempt < ATTEMPTS && in_use(&error) => {}
            udp => {
                let (udp, receive_buffer) = udp?.map_or((None, 0), |(udp, buffer)| (Some(udp), buffer));
                return Ok(Listening { udp, tcp, receive_buffer });
            }
        }
    }
}

fn in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::AddrInUse)
}

fn bind(address: SocketAddr, kind: Type, protocol: Protocol, wanted: Wanted) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol)).context("cannot make a socket")?;
    if address.is_ipv6() {
        socket.set_only_v6(wanted.only_v6)?;
    }
    if kind == Type::STREAM {
        // So that a collector can be started again while connections of the last one still linger.
        socket.set_reuse_address(true)?;
    }
    let protocol = if kind == Type::STREAM { "TCP" } else { "UDP" };
    socket.bind(&address.into()).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                let next = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
                format!(" (is another collector running? try --listen {next})")
            }
            ErrorKind::PermissionDenied => " (ports below 1024 need privileges)".into(),
            ErrorKind::AddrNotAvailable => " (this machine has no such address)".into(),
            _ => String::new(),
        };
        let text = format!("cannot listen on {address} for {protocol}{hint}");
        anyhow::Error::new(error).context(text)
    })?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen_tcp(address: SocketAddr, wanted: Wanted) -> Result<TcpListener> {
    let socket = bind(address, Type::STREAM, Protocol::TCP, wanted)?;
    socket.listen(1024).with_context(|| format!("cannot listen on {address}"))?;
    Ok(socket.into())
}

fn listen_udp(address: SocketAddr, wanted: Wanted) -> Result<(UdpSocket, usize)> {
    let socket = bind(address, Type::DGRAM, Protocol::UDP, wanted)?;
    // A privileged user may have more than the system's limit; others get what the limit allows.
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, wanted.receive_buffer).is_err() {
        socket.set_recv_buffer_size(wanted.receive_buffer).context("cannot set the receive buffer")?;
    }
    let granted = socket.recv_buffer_size().context("cannot read the receive buffer back")?;
    Ok((socket.into(), granted))
}

/// What every accepted connection gets: no delay for replies, and an end if the other side is gone.
pub(crate) fn prepare(connection: &tokio::net::TcpStream) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    let socket = SockRef::from(connection);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)
}
