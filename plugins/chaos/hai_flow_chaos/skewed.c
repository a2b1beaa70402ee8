/* The time of day plus what a file says (8 bytes, microseconds): preloaded into a process whose clock somebody else sets. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *offset;

/* From now on this process's clock is wrong by what the file says. */
void skewed_by(const char *path) {
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) offset = found;
    close(file);
}

__attribute__((constructor)) static void find_offset(void) {
    skewed_by(getenv("SKEWED_BY"));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && offset) {
        long long all = now->tv_sec * 1000000000LL + now->tv_nsec + *offset * 1000LL;
        now->tv_sec = all / 1000000000LL;
        now->tv_nsec = all % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *given) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (given) *given = precise.tv_sec;
    return precise.tv_sec;
}
