//! A connection: made, and then bytes carried both ways.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use agent::ship::{Transport, TunnelState};
use codec::{
    heph::Encode,
    profile::{ProfileOption, Token},
};
use quinn::{
    ClientConfig, Connection, Endpoint, IdleTimeout, TransportConfig, VarInt, crypto::rustls::QuicClientConfig,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes, join},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    Parts,
    failure::{denied, of_quic, of_tls},
};

/// After how much silence a connection is gone, and how often the other side is asked before. TCP asks five times.
const SILENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long a connection that takes nothing is believed in.
const STUCK: Duration = Duration::from_secs(120);

/// How long the collector may take to learn that a connection has ended.
const LAST_WORD: Duration = Duration::from_millis(300);

/// How much is carried at once: to the collector, and back.
const THERE_BYTES: usize = 64 << 10;
const BACK_BYTES: usize = 16 << 10;

impl Parts {
    /// Connects, and carries until one side ends.
    pub(crate) async fn carry(&self, to: SocketAddr, agent: &mut UnixStream, state: &TunnelState) -> io::Result<()> {
        match self.transport {
            Transport::Quic => self.over_quic(to, agent, state).await,
            _ => self.over_tls(to, agent, state).await,
        }
    }

    async fn over_tls(&self, to: SocketAddr, agent: &mut UnixStream, state: &TunnelState) -> io::Result<()> {
        let socket = TcpStream::connect(to).await?;
        let options = SockRef::from(&socket);
        options.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(ASK_EVERY).with_interval(ASK_EVERY).with_retries(5);
        options.set_tcp_keepalive(&keepalive)?;
        options.set_tcp_user_timeout(Some(STUCK))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let connected = connector.connect(self.name.clone(), socket).await;
        let mut stream = connected.map_err(|error| self.wrong().unwrap_or_else(|| of_tls(error, true)))?;
        self.exchange(&mut stream, agent, state).await.map_err(|error| of_tls(error, false))
    }

    async fn over_quic(&self, to: SocketAddr, agent: &mut UnixStream, state: &TunnelState) -> io::Result<()> {
        let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let endpoint = Endpoint::client(any)?;
        let config = QuicClientConfig::try_from(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let mut config = ClientConfig::new(Arc::new(config));
        let mut transport = TransportConfig::default();
        transport.keep_alive_interval(Some(ASK_EVERY)).max_idle_timeout(IdleTimeout::try_from(SILENCE).ok());
        transport.max_concurrent_bidi_streams(VarInt::from_u32(0)).max_concurrent_uni_streams(VarInt::from_u32(0));
        config.transport_config(Arc::new(transport));
        let connecting = endpoint.connect_with(config, to, &self.name.to_str()).map_err(io::Error::other)?;
        let connected = connecting.await;
        let connection = connected.map_err(|error| self.wrong().unwrap_or_else(|| of_quic(&error)))?;
        let carried = self.over_stream(&connection, agent, state).await;
        let closed = connection.close_reason();
        connection.close(VarInt::from_u32(0), b"");
        // Whether it is heard makes no difference to the agent.
        _ = timeout(LAST_WORD, endpoint.wait_idle()).await;
        // The connection knows better than its streams.
        carried.map_err(|error| closed.map_or(error, |why| of_quic(&why)))
    }

    async fn over_stream(
        &self,
        connection: &Connection,
        agent: &mut UnixStream,
        state: &TunnelState,
    ) -> io::Result<()> {
        let (send, receive) = connection.open_bi().await.map_err(|error| of_quic(&error))?;
        self.exchange(&mut join(receive, send), agent, state).await
    }

    /// Shows the token and carries.
    async fn exchange(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        agent: &mut UnixStream,
        state: &TunnelState,
    ) -> io::Result<()> {
        if let Some(token) = &self.token {
            let mut packet = Vec::new();
            let shown = ProfileOption::from(Token { token: token.bytes() }).encode(&mut packet);
            shown.map_err(io::Error::other)?;
            stream.write_all(&packet).await?;
        }
        state.opened();
        copy_bidirectional_with_sizes(agent, stream, THERE_BYTES, BACK_BYTES).await?;
        Ok(())
    }

    /// What was wrong with the collector's certificate, if anything was.
    fn wrong(&self) -> Option<io::Error> {
        self.verifier.take_wrong().map(denied)
    }
}
