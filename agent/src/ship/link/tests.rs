//! Sockets that are full, and that nobody is behind.

use std::{
    io::Read,
    net::{TcpListener, UdpSocket},
    time::Duration,
};

use super::*;

#[test]
fn a_connection_takes_whole_packets_or_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let mut link = Link::open(listener.local_addr().expect("an address"), Transport::Tcp, None).expect("a socket");
    let (mut peer, _) = listener.accept().expect("a connection");
    while !link.is_ready().expect("a connection") {
        link.wait(Duration::from_secs(1), true);
    }
    let piece: Vec<u8> = (0..100_003_u32).map(|at| (at % 251) as u8).collect();
    let mut taken = 0;
    while link.send(&piece).expect("a connection") == Sent::Yes {
        taken += 1;
    }
    assert!(taken > 2, "the system takes some, and so does the link");
    // Once it is read, all of it comes, in order.
    let mut received = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    peer.set_nonblocking(true).expect("a connection");
    while received.len() < taken * piece.len() {
        link.flush().expect("a connection");
        match peer.read(&mut buffer) {
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => assert!(would_block(&error)),
        }
    }
    assert!(received.chunks(piece.len()).all(|part| part == piece));
    assert_eq!(link.send(b"more").expect("a connection"), Sent::Yes);
    drop(peer);
    // The end is found out, sooner or later.
    while link.receive(|_| {}).is_ok() {
        link.wait(Duration::from_secs(1), false);
    }
}

#[test]
fn a_datagram_to_nobody_is_noticed() {
    let nobody = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("an address");
    let mut link = Link::open(nobody, Transport::Udp, None).expect("a socket");
    assert_eq!(link.send(b"hello").expect("it is sent"), Sent::Yes);
    link.wait(Duration::from_secs(5), false);
    let error = link.receive(|_| panic!("nobody answers")).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn datagrams_larger_than_the_network_takes_are_left_to_the_collector_to_miss() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut link = Link::open(peer.local_addr().expect("an address"), Transport::Udp, None).expect("a socket");
    assert_eq!(link.send(&vec![0; 70_000]).expect("it is no error"), Sent::Yes);
    assert_eq!(link.send(&vec![0; 60_000]).expect("it is sent"), Sent::Yes);
    let mut buffer = vec![0; 1 << 17];
    assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 60_000);
}
