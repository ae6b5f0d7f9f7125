//! What is asked of servers. All answers are told as text that is the same every time.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use super::{beside::finish, files::words, installed};
use crate::{Process, process::Stdout};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an answer starts with that did not come.
pub(super) const FAILED: &str = "failed: ";

/// How many ask at once.
const CLIENTS: usize = 4;

/// A server that runs.
#[derive(Debug)]
pub struct Served {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it runs.
    pub folder: PathBuf,
}

impl Served {
    /// Whether it takes connections.
    pub fn listens(&self) -> bool {
        TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok()
    }

    /// Runs a client and tells what it printed.
    pub(super) fn client(&self, program: &str, arguments: &[&str]) -> String {
        let port = self.address.port().to_string();
        let Some(path) = installed(program) else { return format!("{FAILED}{program} is not here") };
        let arguments = arguments.iter().map(|argument| argument.replace("{port}", &port));
        let mut command = Command::new(path);
        command.args(arguments).current_dir(&self.folder);
        let exit = match finish(Process::start(command, Stdout::Collect), PATIENCE) {
            Ok(exit) => exit,
            Err(why) => return format!("{FAILED}{program}: {why}"),
        };
        match exit.code {
            Some(0) => String::from_utf8_lossy(&exit.stdout).into_owned() + &exit.stderr,
            code => format!("{FAILED}{program} ended with {code:?}: {}", exit.stderr),
        }
    }

    /// Runs a client until it succeeds: a server may listen before it is ready.
    pub(super) fn wait_until(&self, program: &str, arguments: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while self.client(program, arguments).starts_with(FAILED) && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Asks for a page as often as this, several at once, and counts the answers by what they were: the status and the
    /// page.
    pub(super) fn pages(&self, path: &str, times: usize) -> String {
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        let whole = |stream: &mut TcpStream| {
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (head, page) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            Ok(format!("{} {} bytes, {}", head.lines().next().unwrap_or_default(), page.len(), page.lines().count()))
        };
        self.counted(times, |stream, _| whole(stream))
    }

    /// Sends lines over one connection for each client, and counts what comes back: as many lines as are named for each
    /// line that is sent.
    pub(super) fn lines(&self, times: usize, line: fn(usize) -> (String, usize)) -> String {
        let ask = |stream: &mut TcpStream, number: usize| {
            let mut reader = BufReader::new(stream.try_clone()?);
            let mut answers = String::new();
            for turn in 0..20 {
                let (line, count) = line(number * 20 + turn);
                stream.write_all(line.as_bytes())?;
                for _ in 0..count {
                    reader.read_line(&mut answers)?;
                }
            }
            Ok(answers)
        };
        self.counted(times, ask)
    }

    /// Has several clients ask, each over one connection after the other, and counts the answers.
    fn counted(
        &self,
        times: usize,
        ask: impl Fn(&mut TcpStream, usize) -> std::io::Result<String> + Copy + Send + Sync,
    ) -> String {
        let client = |client: usize| {
            let numbers = (0..times).filter(move |number| number % CLIENTS == client);
            let mut answers = Vec::new();
            for number in numbers {
                let answer = TcpStream::connect_timeout(&self.address, PATIENCE).and_then(|mut stream| {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    ask(&mut stream, number)
                });
                let failed = answer.is_err();
                answers.push(answer.unwrap_or_else(|error| format!("{FAILED}{error}")));
                // Whoever does not answer once is not waited for again.
                if failed {
                    break;
                }
            }
            answers
        };
        let mut counts = BTreeMap::<String, u32>::new();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
            for answers in clients.into_iter().filter_map(|client| client.join().ok()) {
                answers.into_iter().for_each(|answer| *counts.entry(answer).or_default() += 1);
            }
        });
        counts.iter().map(|(answer, count)| format!("{count} × {answer}\n")).collect()
    }

    /// Asks for the address of a name as often as this, by DNS, and counts the answers.
    pub(super) fn names(&self, name: &str, times: u16) -> String {
        let labels = name.split('.').flat_map(|label| {
            let length = u8::try_from(label.len()).unwrap_or_default();
            std::iter::once(length).chain(label.bytes())
        });
        // Recursion is desired, of one question: an address, of the Internet.
        let question: Vec<u8> = labels.chain([0, 0, 1, 0, 1]).collect();
        let mut counts = BTreeMap::<String, u32>::new();
        for number in 0..times {
            let mut packet = number.to_be_bytes().to_vec();
            packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            packet.extend(&question);
            let answer = UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.send_to(&packet, self.address)?;
                let mut answer = [0; 512];
                let length = socket.recv(&mut answer)?;
                let own = answer.starts_with(&number.to_be_bytes());
                Ok(format!("own {own}, {length} bytes, ends with {:?}", &answer[length.saturating_sub(4)..length]))
            });
            let failed = answer.is_err();
            *counts.entry(answer.unwrap_or_else(|error| format!("{FAILED}{error}"))).or_default() += 1;
            if failed {
                break;
            }
        }
        counts.iter().map(|(answer, count)| format!("{count} × {answer}\n")).collect()
    }
}

/// The address of a web server in this process that knows one page.
pub(super) fn page() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| serve(words(5000).into_bytes()))
}

/// Serves this to all who ask, until this process is over.
pub fn serve(page: Vec<u8>) -> SocketAddr {
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
