//! A TCP connection between an agent and a collector that can be cut.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Forwards connections to a collector. Its thread waits for more of them until the test's process ends.
#[derive(Debug)]
pub struct Cable {
    address: SocketAddr,
    collector: Arc<Mutex<SocketAddr>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    /// A cable to a collector's TCP socket.
    pub fn start(collector: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (collector, open) = (Arc::new(Mutex::new(collector)), Arc::new(Mutex::new(Vec::new())));
        let (goal, ends) = (Arc::clone(&collector), Arc::clone(&open));
        thread::spawn(move || {
            for agent in listener.incoming() {
                let (agent, collector) = (agent?, *goal.lock().unwrap_or_else(PoisonError::into_inner));
                // Where there is nobody, the agent is cut off.
                let Ok(collector) = TcpStream::connect(collector) else { continue };
                for (mut from, mut to) in
                    [(agent.try_clone()?, collector.try_clone()?), (collector.try_clone()?, agent.try_clone()?)]
                {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                ends.lock().unwrap_or_else(PoisonError::into_inner).push(agent);
            }
            io::Result::Ok(())
        });
        Ok(Self { address, collector, open })
    }

    /// Where agents connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on connections lead to this collector.
    pub fn move_to(&self, collector: SocketAddr) {
        *self.collector.lock().unwrap_or_else(PoisonError::into_inner) = collector;
    }

    /// Cuts all connections, whatever is on the way. Returns how many there were.
    pub fn cut(&self) -> usize {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.drain(..).map(|end| end.shutdown(Shutdown::Both)).filter(Result::is_ok).count()
    }
}
