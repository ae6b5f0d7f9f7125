//! Programs that compile what they run, or have threads and stacks of their own.

use super::{Foreign, Group::Runtime};

const fn runtime(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Runtime, name, packages).arguments(arguments)
}

pub(super) const RUNTIMES: &[Foreign] = &[
    runtime("node", "nodejs", &["-e", NODE]).exits(3),
    runtime("java", "openjdk-17-jdk-headless", &["-Xmx128m", "-XX:TieredStopAtLevel=1", "Main.java"])
        .program("/usr/lib/jvm/java-17-*/bin/java")
        .files(&[("Main.java", JAVA)]).exits(3),
    runtime("mono", "mono-runtime mono-mcs", &["/usr/lib/mono/4.5/mcs.exe", "-out:main.exe", "Main.cs"])
        .files(&[("Main.cs", CSHARP)])
        // What it makes has a number that is never the same.
        .untidy(),
    runtime(
        "beam",
        "erlang-base",
        &[
            "-S",
            "2:2",
            "-A",
            "1",
            "--",
            "-root",
            "/usr/lib/erlang",
            "-bindir",
            "{here}",
            "-progname",
            "erl",
            "--",
            "-home",
            "{folder}",
            "--",
            "-noshell",
            "-eval",
            ERLANG,
        ],
    )
    .program("/usr/lib/erlang/erts-*/bin/beam.smp")
    .variables(&[("BINDIR", "{here}"), ("ROOTDIR", "/usr/lib/erlang"), ("EMU", "beam")]).exits(3),
    runtime("gjs", "gjs", &["-c", GJS]).exits(3),
    runtime("lli", "llvm-14-runtime", &["-opaque-pointers", "main.ll"]).program("/usr/lib/llvm-*/bin/lli").files(&[("main.ll", LLVM)]).exits(3),
    runtime("qemu-x86_64", "qemu-user", &["/usr/bin/sort", "-k2,2", "-k1,1n", "text"]),
    runtime("poly", "polyml", &["-q", "--use", "main.sml"]).files(&[("main.sml", SML)]).exits(3),
    runtime("chezscheme", "chezscheme", &["--script", "main.ss"]).files(&[("main.ss", CHEZ)]).exits(3),
    runtime("raku", "rakudo", &["-e", RAKU]).exits(3),
    runtime("sbcl", "sbcl", &["--non-interactive", "--no-sysinit", "--no-userinit", "--eval", LISP]).exits(3),
    runtime(
        "pypy3",
        "pypy3",
        &[
            "-c",
            "import re,sys\nprint(sum(i*i for i in range(3000)), re.sub('[aeiou]', '', open('text').read())[:200])\ntry: 1/0\nexcept ZeroDivisionError as e: print(e)\nsys.exit(3)",
        ],
    ).exits(3),
];

const NODE: &str = r#"
    const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2), crypto = require('crypto'), zlib = require('zlib');
    (async () => {
        try { throw new Error('thrown'); } catch (e) { console.log(e.message); }
        const text = require('fs').readFileSync('text');
        console.log(fib(20), crypto.createHash('sha256').update(text).digest('hex'), zlib.gunzipSync(zlib.gzipSync(text)).length);
        await Promise.all([1, 2, 3].map(n => new Promise(done => setTimeout(done, n))));
        const { Worker } = require('worker_threads');
        const worker = new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true });
        worker.on('message', m => { console.log('worker', m); process.exitCode = 3; });
    })();
"#;

const JAVA: &str = r#"import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    public static void main(String[] a) throws Exception {
        System.out.println(fib(15) + " " + IntStream.range(0, 500).mapToObj(Integer::toString).collect(Collectors.joining(",")).hashCode());
        ExecutorService pool = Executors.newFixedThreadPool(3);
        List<Future<Integer>> all = new ArrayList<>(); for (int n = 0; n < 10; n++) { int m = n; all.add(pool.submit(() -> fib(m))); }
        for (Future<Integer> f : all) System.out.print(f.get() + " ");
        pool.shutdown(); try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println("caught"); } System.gc(); System.exit(3);
    }
}
"#;

const CSHARP: &str = r#"using System; using System.Linq; using System.Threading.Tasks;
class P { static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
static void Main() { Console.WriteLine(Fib(15) + Enumerable.Range(0, 9).Sum()); Task.Run(() => Console.WriteLine("task")).Wait(); } }
"#;

const ERLANG: &str = "S = self(), [spawn(fun() -> S ! {N, lists:sum(lists:seq(1, N))} end) || N <- lists:seq(1, 50)], \
    L = [receive {N, V} -> V end || N <- lists:seq(1, 50)], io:format(\"~p ~p~n\", [lists:sum(L), catch throw(ball)]), halt(3).";

const GJS: &str = r#"function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); } print(fib(20));
    try { throw new Error("thrown"); } catch (e) { print(e.message); }
    let s = 0; for (let i = 0; i < 100000; i++) s = (s * 31 + i) % 1000003; print(s, [3, 1, 2].sort((a, b) => a - b));
    imports.system.gc(); imports.system.exit(3);"#;

const LLVM: &str = r#"
@text = private constant [4 x i8] c"%d\0A\00"
declare i32 @printf(ptr, ...)
define i32 @fib(i32 %n) {
  %small = icmp slt i32 %n, 2
  br i1 %small, label %end, label %more
more:
  %a = sub i32 %n, 1
  %b = sub i32 %n, 2
  %fa = call i32 @fib(i32 %a)
  %fb = call i32 @fib(i32 %b)
  %sum = add i32 %fa, %fb
  ret i32 %sum
end:
  ret i32 %n
}
define i32 @main() {
  %f = call i32 @fib(i32 15)
  %p = call i32 (ptr, ...) @printf(ptr @text, i32 %f)
  ret i32 3
}
"#;

const SML: &str = "fun fib n = if n < 2 then n else fib (n - 1) + fib (n - 2);\nprint (Int.toString (fib 15) ^ \"\\n\");\n\
    val () = (raise Fail \"thrown\") handle Fail s => print (s ^ \"\\n\");\nPolyML.fullGC ();\nPosix.Process.exit 0w3;\n";

const CHEZ: &str = "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (display (fib 20)) (collect) (newline)\n\
    (display (with-exception-handler (lambda (e) 42) (lambda () (+ 1 (raise-continuable 1))))) (newline) (exit 3)\n";

const RAKU: &str = "my @a = (1..50).map(* ** 2); say [+] @a; try { die 'thrown'; CATCH { default { say .message } } }; \
    say await (^5).map: { start { $_ * 2 } }; exit 3";

const LISP: &str = "(progn (defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (print (fib 20)) \
    (print (handler-case (error \"thrown\") (error (e) (princ-to-string e)))) (gc :full t) (print (expt 3 200)) (exit :code 3))";
