// Bursts of calls of one tiny function, with pauses between them: what a call costs a program that is traced.
//
//     calls THREADS CALLS BURSTS PAUSE_MS [hold]
//
// Each thread makes so many calls at once with the others, and times them by itself. Then all pause, so that whoever
// records the calls can put them away. For each burst stderr has a line `burst WALL CPU`: nanoseconds a call, mean over
// the threads, by the clock and by the time that the threads really ran. The first bursts touch memory that nobody has
// touched before; whoever reads the lines leaves them out.
//
// With `hold`, the parent process is stopped during each burst: nothing is put away meanwhile.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

static long calls, bursts;
static pthread_barrier_t barrier;
static struct { double wall, cpu; } took[MOST_THREADS];

// `noipa` keeps the compiler from knowing here what it does.
__attribute__((noipa)) long tiny(long x) {
    return x * 3 + 1;
}

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void burst(long thread) {
    unsigned long x = (unsigned long)thread;
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < calls; i++) {
        x = (unsigned long)tiny((long)(x & 0xffffff));
    }
    took[thread].cpu = (now(CLOCK_THREAD_CPUTIME_ID) - cpu) / (double)calls;
    took[thread].wall = (now(CLOCK_MONOTONIC) - wall) / (double)calls;
}

static void *other(void *argument) {
    for (long i = 0; i < bursts; i++) {
        pthread_barrier_wait(&barrier);
        burst((long)argument);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: calls THREADS CALLS BURSTS PAUSE_MS [hold]\n");
        return 2;
    }
    long threads = atol(argv[1]);
    calls = atol(argv[2]);
    bursts = atol(argv[3]);
    useconds_t pause = (useconds_t)atol(argv[4]) * 1000;
    pid_t held = argc > 5 && strcmp(argv[5], "hold") == 0 ? getppid() : 0;
    if (threads < 1 || threads > MOST_THREADS) {
        return 2;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t others[MOST_THREADS];
    for (long i = 1; i < threads; i++) {
        pthread_create(&others[i], NULL, other, (void *)i);
    }
    for (long i = 0; i < bursts; i++) {
        usleep(pause);
        if (held) {
            kill(held, SIGSTOP);
            usleep(2000);
        }
        pthread_barrier_wait(&barrier);
        burst(0);
        pthread_barrier_wait(&barrier);
        if (held) {
            kill(held, SIGCONT);
        }
        double wall = 0, cpu = 0;
        for (long thread = 0; thread < threads; thread++) {
            wall += took[thread].wall / (double)threads;
            cpu += took[thread].cpu / (double)threads;
        }
        fprintf(stderr, "burst %.2f %.2f\n", wall, cpu);
    }
    for (long i = 1; i < threads; i++) {
        pthread_join(others[i], NULL);
    }
    usleep(pause);
    return 0;
}
