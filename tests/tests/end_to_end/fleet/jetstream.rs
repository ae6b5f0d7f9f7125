//! A NATS server with JetStream.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::Duration,
};

use tests::{
    Folder,
    foreign::installed,
    process::{Process, Stdout},
    python::skip,
    wait::eventually,
};

/// How long a cluster may take to answer. Where nobody leads it, nobody does.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// A server that can be paused, killed and started again. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    folder: Folder,
    address: SocketAddr,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl Server {
    /// One server, if the program is there.
    pub(crate) fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// The same with these arguments besides.
    pub(crate) fn with(arguments: &[&str]) -> Option<Self> {
        Self::many(1, arguments)?.pop()
    }

    /// Three of them that have the same data.
    pub(crate) fn cluster() -> Option<Vec<Self>> {
        Self::many(3, &[])
    }

    fn many(count: usize, arguments: &[&str]) -> Option<Vec<Self>> {
        if installed("nats-server").is_none() {
            skip("nats-server");
            return None;
        }
        // All are taken at once, so that no two are the same.
        let taken: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses: Vec<_> = taken.iter().map(|taken| taken.local_addr().expect("bound")).collect();
        drop(taken);
        let (clients, routes) = addresses.split_at(count);
        let all: Vec<_> = routes.iter().map(|route| format!("nats://{route}")).collect();
        let server = |(address, route): (&SocketAddr, &SocketAddr)| {
            let mut arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string()).collect();
            if count > 1 {
                let (route, name) = (format!("nats://{route}"), node_name(*address));
                let cluster = ["--cluster_name", "test", "--cluster", &route, "--routes", &all.join(","), "-n", &name];
                arguments.extend(cluster.map(String::from));
            }
            // A cluster whose disk is slow loses its leaders again and again.
            let mut server = Self { folder: Folder::in_memory("nats"), address: *address, arguments, process: None };
            server.start_again();
            server
        };
        let servers: Vec<_> = clients.iter().zip(routes).map(server).collect();
        servers.iter().for_each(Self::wait);
        Some(servers)
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new(installed("nats-server").expect("it was there"));
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.address.port().to_string(), "-sd"]);
        command.arg(self.folder.path()).args(&self.arguments);
        self.process = Some(Process::start(command, Stdout::Collect));
    }

    /// Returns when clients can connect.
    fn wait(&self) {
        eventually("the server listens", || TcpStream::connect(self.address).is_ok());
    }

    /// The address of a stream on it.
    pub(crate) fn stream(&self, name: &str) -> String {
        format!("nats://{}/{name}", self.address)
    }

    /// The address of the stream on all nodes of a cluster.
    pub(crate) fn stream_of_all(nodes: &[Self]) -> String {
        let hosts: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
        format!("nats://{}/TEST", hosts.join(","))
    }

    /// Makes a stream as somebody else might.
    pub(crate) fn make_stream(&self, name: &str, settings: &str) {
        let config = format!(r#"{{"name": "{name}", "subjects": ["spoor.{name}.>"], "storage": "file", {settings}}}"#);
        self.ask(&format!("STREAM.CREATE.{name}"), &config);
    }

    /// Removes a stream, with all that is in it.
    pub(crate) fn remove_stream(&self, name: &str) {
        assert!(self.ask(&format!("STREAM.DELETE.{name}"), "").contains(r#""success":true"#), "it was there");
    }

    /// Takes all messages out of a stream.
    pub(crate) fn take_messages(&self, name: &str) -> Vec<Stored> {
        let question = |number: u64| format!(r#"{{"seq": {number}}}"#);
        let answers = (1..).map(|number| self.ask(&format!("STREAM.MSG.GET.{name}"), &question(number)));
        let messages = answers.map_while(|answer| {
            let answer: serde_json::Value = serde_json::from_str(&answer).expect("an object");
            let part = |part: &str| Some(answer["message"][part].as_str()?.to_owned());
            let headers = String::from_utf8(unbase64(&part("hdrs")?)).expect("text");
            Some(Stored { subject: part("subject")?, headers, body: unbase64(&part("data")?) })
        });
        let messages: Vec<_> = messages.collect();
        assert!(self.ask(&format!("STREAM.PURGE.{name}"), "").contains(r#""success":true"#), "it is empty now");
        messages
    }

    /// Stores a message under another id that means the same.
    pub(crate) fn store(&self, message: &Stored) {
        let Stored { subject, headers, body } = message;
        let headers = headers.replacen("\r\n\r\n", ".1\r\n\r\n", 1);
        let (first, all) = (headers.len(), headers.len() + body.len());
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        write!(
            stream,
            "CONNECT {{\"headers\":true}}\r\nSUB answer 1\r\nHPUB {subject} answer {first} {all}\r\n{headers}"
        )
        .and_then(|()| stream.write_all(body))
        .and_then(|()| stream.write_all(b"\r\n"))
        .expect("sent");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line.starts_with("MSG ")).expect("it answers");
        let answer = lines.next().expect("the answer");
        assert!(answer.contains("\"seq\"") && !answer.contains("duplicate"), "{answer}");
    }

    /// How many readers a stream has.
    pub(crate) fn count_readers(&self, name: &str) -> usize {
        let answer = self.ask(&format!("CONSUMER.NAMES.{name}"), "");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("an object");
        answer["total"].as_u64().expect("a number") as usize
    }

    /// Whether it is the node that takes what is sent to a stream, and has the others copy it.
    pub(crate) fn leads(&self, name: &str) -> bool {
        let answer: serde_json::Value =
            serde_json::from_str(&self.ask(&format!("STREAM.INFO.{name}"), "")).expect("an object");
        answer["cluster"]["leader"] == node_name(self.address)
    }

    /// Returns when all nodes of a cluster have all that is in the stream and in its bucket. Where the next one hangs before, those
    /// that are left may have no majority for it.
    pub(crate) fn wait_until_whole(&self) {
        let is_whole = |stream: &str| {
            let answer = self.ask_for(&format!("STREAM.INFO.{stream}"), "", Some(ANSWER_TIME)).unwrap_or_default();
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
            let cluster = &answer["cluster"];
            let others = cluster["replicas"].as_array().cloned().unwrap_or_default();
            let is_current = |other: &serde_json::Value| other["current"] == true && other["offline"] != true;
            cluster["leader"].is_string() && !others.is_empty() && others.iter().all(is_current)
        };
        eventually("all nodes have all", || ["TEST", "KV_TEST-sessions"].into_iter().all(is_whole));
    }

    /// Asks JetStream for something.
    fn ask(&self, what: &str, question: &str) -> String {
        self.ask_for(what, question, None).expect("it answers")
    }

    /// Asks JetStream for something, which it may not answer in time.
    fn ask_for(&self, what: &str, question: &str, most: Option<Duration>) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(most).expect("a time");
        let bytes = question.len();
        write!(stream, "CONNECT {{}}\r\nSUB answer 1\r\nPUB $JS.API.{what} answer {bytes}\r\n{question}\r\n")
            .expect("sent");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line.starts_with("MSG "))?;
        lines.next()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn signal(&mut self, name: &str) {
        self.process.as_mut().expect("it runs").signal(name);
    }

    pub(crate) fn pause(&mut self) {
        self.signal("STOP");
    }

    pub(crate) fn go_on(&mut self) {
        self.signal("CONT");
    }

    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        _ = self.process.take().map(|process| process.exit(tests::wait::LONG));
    }

    /// Kills it and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start_again();
        self.wait();
    }
}

/// What a node of a cluster is called.
fn node_name(address: SocketAddr) -> String {
    format!("n{}", address.port())
}

/// A message of a stream.
pub(crate) struct Stored {
    subject: String,
    headers: String,
    body: Vec<u8>,
}

fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
    let bits =
        text.as_bytes().iter().filter_map(digit).flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1 == 1));
    let bits: Vec<bool> = bits.collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}
