//! Programs that read a program and do what it says, and those of them that have several stacks in a thread.

use super::{
    Foreign,
    Group::{Coroutines, Interpreter},
    files::words,
};

const fn interpreter(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Interpreter, name, packages).arguments(arguments)
}

const fn coroutines(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Coroutines, name, packages).arguments(arguments)
}

pub(super) const INTERPRETERS: &[Foreign] = &[
    interpreter("python3", "python3", &["-X", "utf8", "-c", PYTHON])
        .stdin(|| words(500))
        .variables(&[("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")])
        .exits(3),
    interpreter("perl", "perl", &["-e", PERL]).stdin(|| words(500)).variables(&[("PERL_HASH_SEED", "0")]).exits(3),
    interpreter("ruby", "ruby", &["-e", RUBY]).stdin(|| words(500)).exits(3),
    interpreter("lua5.4", "lua5.4", &["-e", LUA]).exits(3),
    interpreter("luajit", "luajit", &["-e", LUA]).exits(3),
    interpreter("php", "php-cli", &["-n", "-r", PHP]).exits(3),
    interpreter("tclsh", "tcl", &["script.tcl"]).files(&[("script.tcl", TCL)]).exits(3),
    interpreter("guile", "guile-3.0", &["--no-auto-compile", "-c", SCHEME]).exits(3),
    interpreter(
        "gawk",
        "gawk",
        &[
            "{ n[$2]++; s += $1 } END { PROCINFO[\"sorted_in\"] = \"@ind_str_asc\"; for (w in n) print w, n[w]; print s }",
            "text",
        ],
    ),
    interpreter(
        "mawk",
        "mawk",
        &["{ s += $1; if ($2 ~ /7$/) c++ } END { print s, c, sqrt(s), substr(\"spoor\", 2, 3) }", "text"],
    ),
    interpreter("bash", "bash", &["-c", BASH]).stdin(|| words(200)).exits(3),
    interpreter("dash", "dash", &["-c", SHELL]).stdin(|| words(200)).exits(3),
    interpreter("zsh", "zsh", &["-f", "-c", ZSH]).stdin(|| words(200)).exits(3),
    interpreter("fish", "fish", &["--no-config", "-c", FISH]).exits(3),
    interpreter("csi", "chicken-bin", &["-n", "-q", "-e", CHICKEN]).exits(3),
    interpreter("emacs", "emacs-nox", &["--batch", "-Q", "--eval", LISP]).exits(3),
    interpreter(
        "R",
        "r-base-core",
        &[
            "--vanilla",
            "--no-echo",
            "-e",
            "x<-sin(1:500);print(summary(lm(x~seq_along(x)+I(seq_along(x)^2))));print(try(stop('no'),silent=TRUE))",
        ],
    )
    .program("/usr/lib/R/bin/exec/R")
    .variables(&[
        ("R_HOME", "/usr/lib/R"),
        ("LD_LIBRARY_PATH", "/usr/lib/R/lib"),
        ("R_SHARE_DIR", "/usr/share/R/share"),
    ]),
    interpreter("gp", "pari-gp", &["-q", "-f"])
        .stdin(|| "factor(2^101-1)\nprimepi(10000)\nintnum(x=0,1,exp(-x^2))\n".into()),
    interpreter("gforth", "gforth", &["-e", ": f dup 2 < if else dup 1- recurse swap 2 - recurse + then ; 15 f . bye"]),
    interpreter("swipl", "swi-prolog-nox", &["-q", "-g", PROLOG, "-t", "halt"]),
    interpreter(
        "clisp",
        "clisp",
        &["-M", "{here}/lispinit.mem", "-q", "-norc", "-x", "(loop for i to 60 sum (expt i 20))"],
    )
    .program("/usr/lib/clisp-*/base/lisp.run"),
    interpreter("ocaml", "ocaml-nox", &["main.ml"]).files(&[("main.ml", OCAML)]).exits(3),
    interpreter("ecl", "ecl", &["--norc", "--eval", "(progn (print (loop for i to 60 sum (expt i 20))) (ext:quit 3))"])
        .exits(3),
    coroutines("greenlet", "python3 python3-greenlet", &["-c", GREENLET]).program("python3"),
    coroutines("gevent", "python3 python3-gevent", &["-c", GEVENT]).program("python3"),
    coroutines("eventlet", "python3 python3-eventlet", &["-W", "ignore", "-c", EVENTLET]).program("python3"),
    coroutines("tarantool", "tarantool", &["-e", TARANTOOL]).exits(3),
    coroutines("asyncio", "python3", &["-c", ASYNCIO]).program("python3"),
    coroutines("ruby fibers", "ruby", &["-e", FIBERS]).program("ruby").exits(3),
    coroutines("php fibers", "php-cli", &["-n", "-r", PHP_FIBERS]).program("php").exits(3),
    coroutines("lua coroutines", "lua5.4", &["-e", LUA_COROUTINES]).program("lua5.4"),
    coroutines("luajit coroutines", "luajit", &["-e", LUA_COROUTINES]).program("luajit"),
    coroutines("guile prompts", "guile-3.0", &["--no-auto-compile", "-c", CALL_CC]).program("guile"),
    coroutines("qemu-img", "qemu-utils", &["convert", "-O", "qcow2", "-W", "-m", "8", "text", "text.qcow2"]),
];

const PYTHON: &str = r#"
import collections, concurrent.futures, ctypes, decimal, json, math, os, re, subprocess, sys, threading, zlib
text = sys.stdin.read()
print(collections.Counter(re.findall(r"word\d+", text)).most_common(5))
def work(n):
    try:
        if n % 3 == 0: raise ValueError(n)
        return math.factorial(n) % 1000003
    except ValueError as error:
        return -error.args[0]
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(work, range(40))))
lock, total = threading.Lock(), [0]
def add():
    for _ in range(50):
        with lock: total[0] += 1
threads = [threading.Thread(target=add, name=f"adder {n}") for n in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(total, zlib.crc32(text.encode()), decimal.Decimal(2).sqrt(), json.dumps({"a": [1, 2.5, None]}))
print(subprocess.run(["echo", "from a child"], capture_output=True).stdout, sorted(ctypes.CDLL(None).abs(-5) for _ in "ab"))
print("to stderr", file=sys.stderr)
sys.exit(3)
"#;

const PERL: &str = r#"
        use strict; use warnings; use List::Util qw(sum); use Data::Dumper; $Data::Dumper::Sortkeys = 1;
        my %count; while (<STDIN>) { $count{$1}++ while /(word\d+)/g; }
        print "$_ $count{$_}\n" for sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
        for my $n (1 .. 50) { eval { die { code => $n } if $n % 2; 1 } or print "died $@->{code}\n"; }
        local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; select undef, undef, undef, 10; }; print $@;
        my $pid = fork; if (!$pid) { print "child\n"; exit 7; } waitpid $pid, 0; print "child ended with ", $? >> 8, "\n";
        print Dumper({ sum => sum(map { length } keys %count), list => [1 .. 3] }), `echo from a shell`;
        exit 3;
    "#;

const RUBY: &str = r##"
    counts = Hash.new(0); STDIN.each_line { |l| l.scan(/word\d+/) { |w| counts[w] += 1 } }
    puts counts.sort.map { |w, n| "#{w} #{n}" }
    begin; raise ArgumentError, "wrong"; rescue => e; puts "rescued #{e.message}"; ensure; puts "ensured"; end
    puts catch(:done) { 100.times { |n| throw :done, n if n * n > 500 } }
    threads = 4.times.map { |n| Thread.new { (1..50).inject(:*) % (n + 1000003) } }; p threads.map(&:value)
    puts `echo from a child`, 2**200, [3, 1, 2].sort.inspect; GC.start; exit 3
"##;

const LUA: &str = r#"
    local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
    print(fib(15), pcall(error, {}) == false, select('#', string.byte(string.rep("x", 50), 1, -1)))
    local t = {} for i = 1, 500 do t[i] = (i * 7919) % 1000 end table.sort(t) print(table.concat(t, " ", 1, 20))
    print((string.gsub("hello world", "o", "0")), pcall(function() error("thrown", 0) end)) os.exit(3)
"#;

const PHP: &str = r#"
    function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
    try { throw new RuntimeException("thrown"); } catch (Exception $e) { echo $e->getMessage(), "\n"; } finally { echo "finally\n"; }
    $a = range(1, 300); usort($a, fn($x, $y) => ($x * 7919 % 1000) <=> ($y * 7919 % 1000));
    echo fib(15), " ", md5(implode(",", $a)), " ", json_encode(["a" => [1, 2.5, null]]), preg_replace('/\d+/', '#', " a1b22"), "\n"; exit(3);
"#;

const TCL: &str = r#"
proc fib {n} { if {$n < 2} { return $n }; expr {[fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
puts [fib 12]; puts [lsort -integer {5 3 9 1}]; puts [catch {error thrown} message]; puts $message
set f [open text]; set n 0; while {[gets $f line] >= 0} { incr n [string length $line] }; close $f; puts $n
puts [regsub -all {[aeiou]} "every function" "*"]; puts [exec echo from a child]; exit 3
"#;

const SCHEME: &str = r#"(begin
    (define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
    (display (list (fib 15) (catch 'x (lambda () (throw 'x 1)) (lambda (k . a) a)) (sort '(5 3 9 1) <) (expt 2 200)))
    (newline) (exit 3))"#;

const BASH: &str = r#"
    declare -A n; while read -r _ w _; do ((n[$w]++)); done; for w in "${!n[@]}"; do echo "$w ${n[$w]}"; done | sort
    f() { (($1 < 2)) && echo "$1" || echo $(($(f $(($1 - 1))) + $(f $(($1 - 2))))); }; f 6
    trap 'echo trapped' USR1; kill -USR1 $$; [[ abc =~ b(.) ]] && echo "${BASH_REMATCH[1]}"; exit 3
"#;

const SHELL: &str = r#"
    n=0; while read -r _ w _; do case $w in *7) n=$((n + 1)) ;; esac; done; echo $n; trap 'echo trapped' USR1; kill -USR1 $$
    f() { [ "$1" -lt 2 ] && echo "$1" || echo $(($(f $(($1 - 1))) + $(f $(($1 - 2))))); }; f 6; echo one two | sort; exit 3
"#;

const ZSH: &str = r#"
    typeset -A n; while read -r _ w _; do ((n[$w]++)); done; for w in ${(ok)n}; do print $w $n[$w]; done
    a=({1..50}); print ${(j:,:)${(Oa)a}} ${#a} $((2 ** 0.5)); { false } always { print always }; print $(print child); exit 3
"#;

const FISH: &str = r#"
    function f; if test $argv[1] -lt 2; echo $argv[1]; else; math (f (math $argv[1] - 1)) + (f (math $argv[1] - 2)); end; end
    f 5; string replace -ra "o" "0" "hello world"; echo one two | sort; exit 3
"#;

const CHICKEN: &str = r#"(import (chicken process-context))
    (define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (print (fib 12))
    (print (call/cc (lambda (k) (dynamic-wind (lambda () (print "in")) (lambda () (k 7)) (lambda () (print "out"))))))
    (exit 3)"#;

const LISP: &str = r#"(progn
    (defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
    (with-temp-buffer (insert-file-contents "text") (sort-numeric-fields 1 (point-min) (point-max))
        (princ (buffer-substring 1 500)))
    (princ (list (fib 12) (condition-case e (error "thrown") (error (cadr e))) (expt 2 100))) (kill-emacs 3))"#;

const OCAML: &str = "let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)\n\
    let () = print_int (fib 12); (try failwith \"thrown\" with Failure s -> print_endline s); Gc.full_major (); exit 3\n";

const PROLOG: &str = "numlist(1,300,L),foldl([X,A,B]>>(B is A+X*X),L,0,S),write(S),nl,\
    catch(throw(ball),B,(write(caught(B)),nl)),length(Q,6),numlist(1,6,N),findall(Q,permutation(N,Q),P),length(P,C),write(C),nl";

const GREENLET: &str = r#"
import greenlet
def count(name, turns):
    total = 0
    for n in range(turns):
        total += greenlet.getcurrent().parent.switch((name, n))
    return (name, "done", total)
all = [greenlet.greenlet(count) for _ in range(20)]
seen = [g.switch(i, 10 + i) for i, g in enumerate(all)]
while any(not g.dead for g in all):
    seen += [g.switch(1) for g in all if not g.dead]
def fails(): raise ValueError("thrown")
try: greenlet.greenlet(fails).switch()
except ValueError as error: seen.append(error.args)
print(len(seen), seen[-30:])
"#;

const GEVENT: &str = r#"
from gevent import monkey; monkey.patch_all()
import gevent, gevent.queue, socket
q = gevent.queue.Queue(3)
def produce():
    for n in range(100): q.put(n)
    q.put(None)
def echo(server):
    c, _ = server.accept()
    while (data := c.recv(100)): c.sendall(data.upper())
server = socket.create_server(("127.0.0.1", 0))
gevent.spawn(produce); gevent.spawn(echo, server)
print(sum(iter(q.get, None)))
client = socket.create_connection(server.getsockname())
for n in range(50):
    client.sendall(b"line %d" % n); answer = client.recv(100)
print(answer, gevent.joinall([gevent.spawn(pow, n, 3) for n in range(10)])[-1].value is not None)
"#;

const EVENTLET: &str = r#"
import eventlet
from eventlet.green import socket
server = eventlet.listen(("127.0.0.1", 0))
def echo(client):
    while (data := client.recv(100)): client.sendall(data.upper())
eventlet.spawn(eventlet.serve, server, lambda client, address: echo(client))
def ask(n):
    client = socket.create_connection(server.getsockname())
    for turn in range(10): client.sendall(b"client %d turn %d" % (n, turn)); answer = client.recv(100)
    return answer
print(list(eventlet.GreenPool(5).imap(ask, range(10))))
"#;

const TARANTOOL: &str = r#"
    local fiber = require("fiber") local c, s = fiber.channel(3), 0
    for n = 1, 20 do fiber.create(function() for i = 1, 10 do c:put(n * i) end end) end
    for i = 1, 200 do s = s + c:get() end print(s) print(pcall(function() error("thrown", 0) end)) os.exit(3)
"#;

const ASYNCIO: &str = r#"
import asyncio
async def echo(reader, writer):
    while line := await reader.readline(): writer.write(line.upper()); await writer.drain()
    writer.close()
async def ask(port, n):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(5): writer.write(b"client %d turn %d\n" % (n, turn)); line = await reader.readline()
    writer.close(); return line
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(await asyncio.gather(*(ask(port, n) for n in range(4))))
    print(await asyncio.to_thread(sum, range(100))); server.close()
asyncio.run(main())
"#;

const FIBERS: &str = r##"
    fibs = Enumerator.new { |y| a, b = 0, 1; loop { y << a; a, b = b, a + b } }
    p fibs.lazy.select(&:even?).first(20), fibs.next, fibs.next, fibs.next
    all = 50.times.map { |n| Fiber.new { |x| 10.times { |i| x = Fiber.yield(x + i * n) }; raise "end #{n}" if n % 10 == 0; x } }
    p all.map { |f| v = 0; (v = f.resume(v) while f.alive?) rescue v = $!.message; v }; exit 3
"##;

const PHP_FIBERS: &str = r#"
    $all = []; for ($n = 0; $n < 30; $n++) $all[] = new Fiber(function ($x) use ($n) {
        for ($i = 0; $i < 10; $i++) $x = Fiber::suspend($x + $i * $n); if ($n % 7 == 0) throw new Exception("end $n"); return $x; });
    foreach ($all as $f) { try { $v = $f->start(1); while (!$f->isTerminated()) $v = $f->resume($v); echo $f->getReturn(), " "; }
        catch (Exception $e) { echo $e->getMessage(), " "; } } exit(3);
"#;

const LUA_COROUTINES: &str = r#"
    local all, sum = {}, 0
    for n = 1, 50 do all[n] = coroutine.wrap(function() for i = 1, 20 do coroutine.yield(i * n) end return 0 end) end
    for turn = 1, 20 do for n = 1, 50 do sum = sum + all[n]() end end
    local c = coroutine.create(function() error("thrown", 0) end) print(sum, coroutine.resume(c)) print(coroutine.status(c))
    print(coroutine.resume(coroutine.create(function() return pcall(function() coroutine.yield(7) error("x", 0) end) end)))
"#;

const CALL_CC: &str = r#"(begin
    (define saved #f) (define n 0)
    (display (+ 1 (call/cc (lambda (k) (set! saved k) 1)))) (newline)
    (set! n (+ n 1)) (if (< n 20) (saved n))
    (define tag (make-prompt-tag))
    (define (loop i) (if (< i 50) (begin (abort-to-prompt tag i) (loop (+ i 1))) 'end))
    (define (drive thunk) (call-with-prompt tag thunk (lambda (k i) (display i) (display " ") (drive k))))
    (display (drive (lambda () (loop 0)))) (newline))"#;
