//! Programs that make one program of another.

use super::{Foreign, Group::Compiler, files::C};

const fn compiler(name: &'static str, packages: &'static str, arguments: &'static [&'static str]) -> Foreign {
    Foreign::new(Compiler, name, packages).arguments(arguments).files(SOURCES)
}

pub(super) const COMPILERS: &[Foreign] = &[
    compiler("gcc", "gcc", &["-O2", "-o", "main", "main.c"]),
    compiler("cc1", "gcc", &["-quiet", "-O1", "-o", "-", "main.c"]).program("/usr/lib/gcc/x86_64-linux-gnu/*/cc1"),
    compiler("cc1plus", "g++", &["-quiet", "-O1", "-o", "-", "main.cc"])
        .program("/usr/lib/gcc/x86_64-linux-gnu/*/cc1plus"),
    compiler("f951", "gfortran", &["-quiet", "-O1", "-o", "-", "main.f90"])
        .program("/usr/lib/gcc/x86_64-linux-gnu/*/f951"),
    compiler("clang", "clang", &["-O1", "-S", "-o", "-", "main.c"]),
    compiler("tcc", "tcc libc6-dev", &["-run", "main.c"]),
    compiler("ldc2", "ldc", &["-c", "-of=main.o", "main.d"]),
    compiler("crystal", "crystal", &["tool", "format", "--check", "main.cr"]),
    compiler("as", "binutils", &["-o", "main.o", "main.s"]),
    compiler("ld", "binutils", &["-b", "binary", "-r", "-o", "main.o", "main.c", "main.s"]),
    compiler("nasm", "nasm", &["-f", "elf64", "-o", "main.o", "main.asm"]),
    compiler("yasm", "yasm", &["-f", "elf64", "-o", "main.o", "main.asm"]),
    compiler("make", "make", &["-s", "-j2"]),
];

const SOURCES: &[(&str, &str)] = &[
    ("main.c", C),
    (
        "main.cc",
        "template <typename T, int N> struct Sum { static T of(const T (&v)[N]) { T s{}; for (auto x : v) s += x; return s; } };\n\
         struct Base { virtual ~Base() {} virtual int f(int) = 0; };\n\
         struct One : Base { int f(int x) override { if (x < 0) throw x; return x + 1; } };\n\
         int main() { One o; Base &b = o; const double v[] = {1, 2, 3}; try { return b.f(-1); } catch (int x) { return x + Sum<double, 3>::of(v); } }\n",
    ),
    (
        "main.f90",
        "program p\n  implicit none\n  integer :: i\n  real :: a(100)\n  do i = 1, 100\n    a(i) = sqrt(real(i))\n  end do\n\
         \x20 print *, sum(a), maxval(a), matmul(reshape(a(1:4), [2, 2]), reshape(a(5:8), [2, 2]))\nend program\n",
    ),
    (
        "main.d",
        "int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\nenum made = fib(10);\nint main() { return made; }\n",
    ),
    ("main.cr", "puts (1..10).map { |n| n * 2 }.sum\nch = Channel(Int32).new\n5.times { |n| spawn { ch.send n } }\n"),
    (
        "main.s",
        ".globl main\nmain:\n .rept 200\n addq $1, %rax\n jz 1f\n1: movdqu (%rsi,%rcx,8), %xmm3\n .endr\n ret\n\
         .data\ntable: .quad main, table\n.ascii \"text\"\n",
    ),
    (
        "main.asm",
        "global main\nsection .text\nmain:\n%rep 200\n add rax, 1\n jz main\n movdqu xmm3, [rsi+rcx*8]\n%endrep\n ret\n\
         section .data\ntable: dq main, table\n",
    ),
    (
        "Makefile",
        "PARTS := $(foreach n,1 2 3 4 5 6,part$(n))\nall: $(PARTS)\n\tcat $(sort $^)\npart%: text\n\tgrep -c word$* $< >$@\n\
         $(info $(words $(PARTS)) parts)\n",
    ),
];
