// What Gum's own `attach` calls when a function is entered and left: native code that records into memory of the
// thread, as much as the agent does and as cheaply as it can. Nobody reads it, and it is never full: it starts over.

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

// The start of GumInvocationContext, and of GumX86CpuContext on x86_64.
struct cpu {
    uint64_t rip, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rsp, rbx, rdx, rcx, rax;
};
struct invocation {
    uint64_t function;
    struct cpu *cpu;
};

enum { BYTES = 4 << 20, MOST = 1024, STACK = 128 };

static __thread struct {
    char *memory, *next;
} ring __attribute__((tls_model("initial-exec")));

static inline uint64_t *record(uint64_t bytes) {
    if (__builtin_expect(ring.next + MOST > ring.memory + BYTES, 0) || !ring.memory) {
        if (!ring.memory) {
            ring.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        ring.next = ring.memory;
    }
    uint64_t *to = (uint64_t *)ring.next;
    ring.next += bytes;
    return to;
}

void enter_index(struct invocation *call) {
    uint64_t *to = record(16);
    to[0] = __rdtsc();
    to[1] = call->function;
}

void leave_index(struct invocation *call) {
    uint64_t *to = record(24);
    to[0] = __rdtsc();
    to[1] = call->function;
    to[2] = 0;
}

void enter_detail(struct invocation *call) {
    uint64_t *to = record(88 + STACK);
    const struct cpu *cpu = call->cpu;
    const uint64_t values[] = {
        __rdtsc(), call->function, cpu->rdi, cpu->rsi, cpu->rdx, cpu->rcx, cpu->r8, cpu->r9, cpu->rip, cpu->rbp, cpu->rsp};
    memcpy(to, values, sizeof values);
    memcpy(to + 11, (const void *)cpu->rsp, STACK);
}

void leave_detail(struct invocation *call) {
    uint64_t *to = record(64);
    const struct cpu *cpu = call->cpu;
    const uint64_t values[] = {__rdtsc(), call->function, 0, cpu->rax, cpu->rdx, cpu->rip, cpu->rbp, cpu->rsp};
    memcpy(to, values, sizeof values);
}
