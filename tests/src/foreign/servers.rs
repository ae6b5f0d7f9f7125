//! Programs that answer others, while several ask at once.

use std::{fs, path::Path, process::Command};

use super::{
    Foreign,
    Group::{Coroutines, Database, Runtime, Server},
    files,
};

const fn server(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Server, name, packages).arguments(arguments)
}

pub(super) const SERVERS: &[Foreign] = &[
    Foreign::new(Database, "redis-server", "redis-server redis-tools")
        .arguments(&["--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--dir", "{folder}"])
        .asked(|served| {
            let benchmark = ["-p", "{port}", "-n", "2000", "-c", "10", "-t", "set,get,lpush,lrange_100", "--csv"];
            let rows = served.client("redis-benchmark", &benchmark);
            let names = rows.lines().map(|line| line.split(',').next().unwrap_or_default());
            let values = served.lines(10, |n| (format!("SET key{n} {n}\r\nGET key{n}\r\n"), 3));
            format!("{}\n{values}", names.collect::<Vec<_>>().join("\n"))
        }),
    Foreign::new(Database, "memcached", "memcached")
        .arguments(&["-l", "127.0.0.1", "-p", "{port}", "-U", "0", "-u", "root", "-t", "2"])
        .asked(|served| served.lines(60, |n| (format!("set k{n} 0 0 4\r\n{n:04}\r\nget k{n}\r\n"), 4))),
    Foreign::new(Database, "mariadbd", "mariadb-server-core mariadb-client-core")
        .arguments(&[
            "--no-defaults", "--user=root", "--datadir={folder}/data", "--port={port}", "--socket={folder}/socket",
            "--bind-address=127.0.0.1", "--skip-grant-tables", "--skip-networking=0", "--innodb-buffer-pool-size=16M",
            "--pid-file={folder}/pid",
        ])
        .prepared_by(mariadb)
        .asked(|served| {
            let query = "create database d; create table d.t(a int primary key, b text) engine=innodb; \
                use d; insert into d.t select seq, concat('row ', seq * 7919 % 1000) from seq_1_to_500; \
                select b, a from d.t where a % 50 = 0 order by b; select count(*), sum(a) from d.t";
            served.client("mariadb", &["--no-defaults", "-h", "127.0.0.1", "-P", "{port}", "-u", "root", "-e", query])
        }),
    Foreign::new(Database, "postgres --single", "postgresql-15")
        .program("/usr/lib/postgresql/*/bin/postgres")
        .arguments(&["--single", "-D", "{folder}/data", "postgres"])
        .prepared_by(postgres)
        .stdin(|| {
            "create table t(a int primary key, b text)\n\
             insert into t select n, 'row ' || (n * 7919 % 1000) from generate_series(1, 500) n\n\
             select b, a from t where a % 50 = 0 order by b\nselect count(*), sum(a) from t\nselect * from nowhere\n"
                .into()
        })
        .alike(without_log)
        .untidy()
        .unprivileged(),
    Foreign::new(Database, "postgres", "postgresql-15 postgresql-client-15")
        .program("/usr/lib/postgresql/*/bin/postgres")
        .arguments(&["-D", "{folder}/data", "-p", "{port}", "-k", "{folder}", "-c", "listen_addresses=127.0.0.1"])
        .prepared_by(postgres)
        .asked(|served| {
            let query = "create table t(a int primary key, b text); \
                insert into t select n, 'row ' || (n * 7919 % 1000) from generate_series(1, 500) n; \
                select b, a from t where a % 50 = 0 order by b";
            let url = "postgresql://nobody@127.0.0.1:{port}/postgres";
            served.wait_until("psql", &["-X", "-c", "select 1", url]);
            let answers = (0..20).map(|_| served.client("psql", &["-X", "-c", "select count(*) from t", url]));
            served.client("psql", &["-X", "-c", query, url]) + &answers.collect::<String>()
        })
        .ended_by("INT")
        .unprivileged(),
    server("nginx", "nginx-light", &["-p", "{folder}", "-e", "error.log", "-c", "nginx.conf"])
        .files(&[("nginx.conf", NGINX)])
        .asked(|served| served.pages("/text", 400) + &served.pages("/nowhere", 40))
        .ended_by("QUIT"),
    server("apache2", "apache2-bin", &["-X", "-d", "{folder}", "-f", "apache.conf"])
        .files(&[("apache.conf", APACHE)])
        .asked(|served| served.pages("/text", 400) + &served.pages("/nowhere", 40)),
    server("lighttpd", "lighttpd", &["-D", "-f", "lighttpd.conf"])
        .files(&[(
            "lighttpd.conf",
            "server.document-root = \"{folder}\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\n\
             server.modules = ()\nmimetype.assign = ( \"\" => \"text/plain\" )\n",
        )])
        .asked(|served| served.pages("/text", 400) + &served.pages("/nowhere", 40)),
    server("haproxy", "haproxy", &["-db", "-f", "haproxy.conf"])
        .files(&[(
            "haproxy.conf",
            "global\n nbthread 2\ndefaults\n mode http\n timeout connect 10s\n timeout client 30s\n timeout server 30s\n\
             frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server one {page}\n",
        )])
        .asked(|served| served.pages("/page", 200))
        .exits(143),
    server("tinyproxy", "tinyproxy-bin", &["-d", "-c", "tinyproxy.conf"])
        .files(&[("tinyproxy.conf", "Port {port}\nListen 127.0.0.1\nReversePath \"/up/\" \"http://{page}/\"\nReverseOnly Yes\n")])
        .asked(|served| served.pages("/up/page", 100)),
    server("dnsmasq", "dnsmasq-base", &[
        "-k", "-C", "/dev/null", "-p", "{port}", "-a", "127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts",
        "--user=root", "--address=/example.org/192.0.2.7", "--pid-file={folder}/pid",
    ])
    .asked(|served| served.names("www.example.org", 500) + &served.names("nowhere.example.com", 50)),
    server("unbound", "unbound", &["-d", "-c", "{folder}/unbound.conf"])
        .files(&[("unbound.conf", UNBOUND)])
        .asked(|served| served.names("www.example.org", 500) + &served.names("nowhere.example.com", 50)),
    server("beanstalkd", "beanstalkd", &["-l", "127.0.0.1", "-p", "{port}"])
        .asked(|served| {
            let ask = |n| (format!("use tube{n}\r\nput 0 0 60 4\r\n{n:04}\r\nwatch tube{n}\r\npeek-ready\r\n"), 5);
            // The numbers of jobs depend on who asks first.
            let answers = served.lines(40, ask);
            let same = answers.lines().filter(|line| !line.contains("INSERTED") && !line.starts_with("FOUND"));
            same.collect::<Vec<_>>().join("\n")
        })
        .exits(143),
    server("mosquitto", "mosquitto mosquitto-clients", &["-p", "{port}"]).asked(|served| {
        let script = "mosquitto_sub -p {port} -t t -C 50 -W 30 & \
            for n in $(seq 20); do sleep 0.05; mosquitto_pub -p {port} -t other -m $n; done; \
            seq 50 | mosquitto_pub -p {port} -t t -q 1 -l; wait";
        served.client("sh", &["-c", script])
    }),
    server("socat", "socat", &["TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", "EXEC:cat"])
        .asked(|served| served.lines(40, |n| (format!("line {n}\n"), 1)))
        .exits(143),
    server("http.server", "python3", &["-m", "http.server", "--bind", "127.0.0.1", "{port}"])
        .program("python3")
        .asked(|served| served.pages("/text", 200) + &served.pages("/nowhere", 20))
        .ended_by("INT"),
    server("php -S", "php-cli", &["-n", "-S", "127.0.0.1:{port}", "page.php"])
        .program("php")
        .files(&[("page.php", "<?php $a = range(1, 200); shuffle($a); sort($a); echo md5(implode(',', $a)), \"\\n\";")])
        .asked(|served| served.pages("/page", 200))
        .ended_by("INT"),
    Foreign::new(Runtime, "node http", "nodejs")
        .program("node")
        .arguments(&[
            "-e",
            "require('http').createServer((q, a) => a.end(require('fs').readFileSync('text'))).listen({port}, '127.0.0.1'); \
             process.on('SIGTERM', () => process.exit(3))",
        ])
        .asked(|served| served.pages("/", 200))
        .exits(3),
    Foreign::new(Coroutines, "pdns_recursor", "pdns-recursor")
        .arguments(&[
            "--config-dir={folder}", "--socket-dir={folder}", "--daemon=no", "--local-address=127.0.0.1", "--local-port={port}",
            "--threads=2", "--auth-zones=example.org={folder}/zone", "--write-pid=no", "--hint-file=no", "--security-poll-suffix=",
        ])
        .files(&[("zone", "@ 60 IN SOA ns. me. 1 60 60 60 60\n@ 60 IN NS ns.example.org.\nwww 60 IN A 192.0.2.7\n")])
        .asked(|served| served.names("www.example.org", 500) + &served.names("nowhere.example.org", 50))
        .exits(143),
    Foreign::new(Coroutines, "gevent server", "python3 python3-gevent")
        .program("python3")
        .arguments(&["-c", GEVENT])
        .asked(|served| served.lines(40, |n| (format!("line {n}\n"), 1)))
        .exits(3),
];

const NGINX: &str = "daemon off; master_process off; pid nginx.pid; error_log stderr;\n\
    events { worker_connections 64; }\n\
    http { access_log off; gzip on; server { listen 127.0.0.1:{port}; root {folder}; } client_body_temp_path t1;\n\
    proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; }\n";

const APACHE: &str = "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
    LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
    LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n\
    Listen 127.0.0.1:{port}\nServerName localhost\nDocumentRoot {folder}\nPidFile {folder}/pid\nErrorLog {folder}/error.log\n\
    ThreadsPerChild 8\nMaxRequestWorkers 8\n";

const UNBOUND: &str = "server:\n interface: 127.0.0.1@{port}\n port: {port}\n username: \"\"\n chroot: \"\"\n directory: \"{folder}\"\n\
    \x20pidfile: \"{folder}/pid\"\n use-syslog: no\n num-threads: 2\n do-not-query-localhost: no\n module-config: \"iterator\"\n\
    \x20local-zone: \"example.org\" redirect\n local-data: \"example.org A 192.0.2.7\"\n local-zone: \"example.com\" static\n\
    remote-control:\n control-enable: no\n";

const GEVENT: &str = r#"
import signal, sys, gevent
from gevent.server import StreamServer
def echo(client, address):
    with client.makefile("rwb") as lines:
        for line in lines: lines.write(line.upper()); lines.flush(); gevent.sleep(0)
server = StreamServer(("127.0.0.1", {port}), echo)
gevent.signal_handler(signal.SIGTERM, server.stop)
server.serve_forever(); sys.exit(3)
"#;

/// An empty database of MariaDB.
fn mariadb(folder: &Path) {
    fs::create_dir(folder.join("data")).expect("a folder");
}

/// An empty database of PostgreSQL.
fn postgres(folder: &Path) {
    let initdb = super::matching("/usr/lib/postgresql/", "/bin/initdb").expect("it lies beside postgres");
    let mut command = Command::new(initdb);
    command.args(["-N", "-A", "trust", "-U", "nobody", "--locale=C.UTF-8", "-D"]).arg(folder.join("data"));
    files::run(files::as_nobody(&command).current_dir(folder));
}

/// Without its log, which tells times.
fn without_log(text: &str) -> String {
    text.lines().filter(|line| !line.contains("LOG: ")).map(untimed).collect::<Vec<_>>().join("\n")
}

/// A message without the time in front of it.
fn untimed(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, rest)| rest)
}
