//! A web server on this machine that knows one page.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Serves this to all who ask, until the tests are over.
pub(crate) fn serve(page: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever asks finds out when the answer is not whole.
            let _ = answer(&stream, &page);
        }
    });
    address
}

fn answer(mut stream: &TcpStream, page: &[u8]) -> std::io::Result<()> {
    let mut request = BufReader::new(stream).lines();
    while request.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len())?;
    stream.write_all(page)
}
