// What a program gets done in its first 200 ms: rounds of sorting, printing and parsing numbers, with small functions of its
// own and of the C library. It prints to stderr how many rounds those were.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static int compare(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

__attribute__((noinline)) static unsigned mixed(unsigned number) { return number * 2654435761u; }

int main(void) {
    enum { COUNT = 64 };
    static char texts[COUNT][16];
    char *sorted[COUNT];
    unsigned long rounds = 0, sum = 0;
    for (double begun = now(); now() - begun < 0.2; rounds++) {
        for (unsigned i = 0; i < COUNT; i++) {
            snprintf(texts[i], sizeof texts[i], "%u", mixed(i + rounds));
            sorted[i] = texts[i];
        }
        qsort(sorted, COUNT, sizeof *sorted, compare);
        for (unsigned i = 0; i < COUNT; i++) {
            sum += strtoul(sorted[i], NULL, 10);
        }
    }
    fprintf(stderr, "rounds %lu\n", rounds);
    return sum == 0;
}
