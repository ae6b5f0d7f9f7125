//! Programs that do one thing and end.

use super::{
    Foreign,
    Group::{Database, Tool},
    files::{C, GIT, repository, texts, two_texts, words},
};

const fn tool(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Tool, name, packages).arguments(arguments)
}

pub(super) const TOOLS: &[Foreign] = &[
    tool("ls", "coreutils", &["-la", "--color=always", "/usr/bin", "/etc"]),
    tool("sort", "coreutils", &["-k2,2", "-k1,1n", "text"]),
    tool("grep", "grep", &["-rnE", "word(1|2)[0-9]* line .*7$", "."]).prepared_by(texts),
    tool("rg", "ripgrep", &["-j2", "--sort", "path", "-n", "word(1|2)[0-9]* line .*7$", "."]).prepared_by(texts),
    tool("sed", "sed", &["-E", "s/word([0-9]+) line ([0-9]+)/\\2 of \\1/; /7$/d; $!N; P; D", "text"]),
    tool("diff", "diffutils", &["-u", "--label", "one", "--label", "two", "text", "other"])
        .prepared_by(two_texts)
        .exits(1),
    tool("find", "findutils", &[".", "-name", "text", "-exec", "wc", "-l", "{}", ";"]).prepared_by(texts),
    tool("tar", "tar", &["-c", "--sort=name", "--format=ustar", "-f", "-", "folder0/text", "folder1/text"]).prepared_by(texts),
    tool("cpio", "cpio", &["-o", "-H", "newc", "--reproducible", "--quiet"])
        .prepared_by(texts)
        .stdin(|| "folder1/text\nfolder2/text\n".into()),
    tool("bsdtar", "libarchive-tools", &["-c", "-z", "--format=ustar", "--options", "gzip:!timestamp", "-f", "-", "text"]),
    tool("gzip", "gzip", &["-9", "-c", "-n", "text"]),
    tool("bzip2", "bzip2", &["-9", "-c", "text"]),
    tool("xz", "xz-utils", &["-6", "-T2", "-c", "text"]),
    tool("zstd", "zstd", &["-12", "-T2", "-q", "-c", "text"]),
    tool("lz4", "lz4", &["-9", "-q", "-c", "text"]),
    tool("brotli", "brotli", &["-q", "5", "-c", "text"]),
    tool("git", "git", &["log", "--stat", "--graph"]).prepared_by(repository).variables(GIT).untidy(),
    tool("curl", "curl", &["-sS", "--noproxy", "*", "http://{page}/page"]),
    tool("wget", "wget", &["-q", "--no-proxy", "-O", "-", "http://{page}/page"]),
    tool("rsync", "rsync", &["-a", "--out-format=%n %l", "./", "copy/"]).prepared_by(texts),
    tool("openssl", "openssl", &["enc", "-aes-256-cbc", "-K", "00", "-iv", "00", "-in", "text", "-a"]),
    tool("gpg", "gpg", &["--homedir", ".", "--batch", "--no-options", "--print-md", "SHA512", "text"]).untidy(),
    tool("ssh-keygen", "openssh-client", &["-l", "-v", "-f", "key.pub"]).files(&[(
        "key.pub",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f somebody\n",
    )]),
    tool("jq", "jq", &["-S", "[.[] | select(.n % 3 == 0) | {n, s: (.s | ascii_upcase), l: (.s | length)}]"]).stdin(json),
    tool("xmllint", "libxml2-utils", &["--format", "--xpath", "//item[@n mod 7 = 0]", "-"]).stdin(xml),
    tool("xsltproc", "xsltproc", &["style.xsl", "-"]).stdin(xml).files(&[("style.xsl", STYLE)]),
    tool("file", "file", &["text", "/usr/bin/file", "/usr/share/file", "/dev/null"]),
    tool("readelf", "binutils", &["-W", "-a", "/usr/bin/env"]),
    tool("gdb", "gdb", &["-nx", "-batch", "-ex", "print 6*7", "-ex", "info line main", "-ex", "ptype int", "/usr/bin/env"]),
    tool("vim", "vim", &["-u", "NONE", "-es", "-c", "%s/word/Word/g", "-c", "sort n", "-c", "%print", "-c", "qa!", "text"]),
    tool("m4", "m4", &[]).stdin(|| {
        "define(`count', `ifelse($1, 0, `', `$1 count(decr($1))')')count(200)\nlen(`text') eval(2**20)\n".into()
    }),
    tool("bc", "bc", &["-l"]).stdin(|| "scale=60; 4*a(1); e(1); sqrt(2); for (i=0; i<50; i++) i^i\n".into()),
    tool("dc", "dc", &["-e", "40k 2v p 3 200^ p [la1+dsa p 100>x]sx 0sa lxx"]),
    tool("flex", "flex", &["-t", "rules.l"]).files(&[(
        "rules.l",
        "%option noyywrap\n%%\n[0-9]+ printf(\"number\");\n[a-z]+ printf(\"word\");\n.|\\n ECHO;\n%%\n",
    )]),
    tool("bison", "bison", &["-o", "out.c", "rules.y"]).files(&[(
        "rules.y",
        "%token N\n%left '+' '-'\n%left '*'\n%%\nline: sum '\\n';\nsum: sum '+' sum | sum '-' sum | sum '*' sum | '(' sum ')' | N;\n%%\n",
    )]),
    tool("dot", "graphviz", &["-Tsvg"]).stdin(|| {
        "digraph g { rankdir=LR; a -> {b c d}; b -> e; c -> e -> f; d -> f; f -> a [style=dotted]; }".into()
    }),
    tool("gnuplot", "gnuplot-nox", &["-e", "set terminal dumb 79 24; plot [-6:6] sin(x), cos(x)"]),
    tool("convert", "imagemagick", &["-size", "64x64", "gradient:red-blue", "-rotate", "30", "-blur", "0x2", "txt:-"]),
    tool("ffmpeg", "ffmpeg", &[
        "-v", "error", "-f", "lavfi", "-i", "testsrc=size=64x48:rate=10", "-t", "1", "-c:v", "mpeg4", "-f", "framemd5", "-",
    ]),
    tool("sox", "sox", &["-R", "-n", "-t", "wav", "-", "synth", "0.2", "sine", "440", "reverb"]),
    tool("gs", "ghostscript", &[
        "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=pbmraw", "-r30", "-sOutputFile=page.pbm", "-c",
        "100 100 translate 0 0 300 0 360 arc 9 setlinewidth stroke /Times-Roman 90 selectfont 9 9 moveto (Spoor) show showpage",
    ]),
    tool("aspell", "aspell aspell-en", &["--lang=en", "list"]).stdin(|| "Every wrod is speled rigth or it iz not.\n".into()),
    tool("shellcheck", "shellcheck", &["-s", "sh", "-f", "gcc", "script.sh"])
        .files(&[("script.sh", "x=$1\nif [ $x = a ]; then echo `ls`; fi\nfor f in $(ls *.txt); do cat $f; done\n")])
        .exits(1),
    tool("unison", "unison-2.52", &["-ui", "text", "-batch", "-silent", "folder0", "folder1", "-force", "folder0"])
        .program("unison-2.52")
        .prepared_by(texts)
        .variables(&[("UNISON", "{folder}/kept"), ("UNISONLOCALHOSTNAME", "here")])
        .untidy(),
    tool("cppcheck", "cppcheck", &["--enable=style", "--std=c11", "main.c"]).files(&[("main.c", C)]),
    tool("z3", "z3", &["-in"]).stdin(|| {
        "(declare-const x Int)(declare-const y Int)(assert (= (+ (* 3 x) (* 5 y)) 47))(assert (> x y 0))\
         (check-sat)(minimize x)(check-sat)(get-model)\n"
            .into()
    }),
    tool("glpsol", "glpk-utils", &["--lp", "problem.lp", "-w", "/dev/stdout"])
        .files(&[(
            "problem.lp",
            "Maximize\n v: 5 a + 4 b + 3 c\nSubject To\n x: 2 a + 3 b + c <= 5\n y: 4 a + b + 2 c <= 11\n z: 3 a + 4 b + 2 c <= 8\nGeneral\n a b c\nEnd\n",
        )])
        .alike(without_figures),
    Foreign::new(Database, "sqlite3", "sqlite3").arguments(&["file.db"]).stdin(|| SQL.into()).exits(1),
];

const SQL: &str = "
        create table t(a integer primary key, b text, c real);
        with recursive n(x) as (select 1 union all select x + 1 from n where x < 500)
            insert into t select x, 'row ' || (x * 7919 % 1000), x / 3.0 from n;
        create index i on t(b); begin; update t set c = c * 2 where a % 3 = 0; rollback;
        select count(*), sum(a), max(b), round(avg(c), 6) from t;
        select b, a from t where b like 'row 1%' order by b desc limit 20;
        select * from nowhere;
        .mode json
        select * from t limit 3;
    ";

const STYLE: &str = r#"<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/list"><xsl:for-each select="item"><xsl:sort select="."/><xsl:value-of
select="concat(@n, ' ', ., '&#10;')"/></xsl:for-each></xsl:template>
</xsl:stylesheet>
"#;

fn json() -> String {
    let items: Vec<_> = words(60).lines().enumerate().map(|(n, s)| format!(r#"{{"n":{n},"s":"{s}"}}"#)).collect();
    format!("[{}]", items.join(","))
}

fn xml() -> String {
    let items: String = words(300).lines().enumerate().map(|(n, s)| format!("<item n='{n}'>{s}</item>")).collect();
    format!("<list>{items}</list>")
}

/// Without times and amounts of memory.
fn without_figures(text: &str) -> String {
    let differs = |line: &&str| !line.starts_with("Time used") && !line.starts_with("Memory used");
    text.lines().filter(differs).collect::<Vec<_>>().join("\n")
}
