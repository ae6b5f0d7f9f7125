// Fibonacci numbers by recursion, on so many threads at once: nothing but calls.
//
//     fib N THREADS

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_THREADS = 64 };

static int number;

__attribute__((noipa)) long fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void *run(void *result) {
    *(long *)result = fib(number);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: fib N THREADS\n");
        return 2;
    }
    number = atoi(argv[1]);
    pthread_t thread[MOST_THREADS];
    long result[MOST_THREADS], sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_create(&thread[i], NULL, run, &result[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        sum += result[i];
    }
    printf("%ld\n", sum);
    return 0;
}
