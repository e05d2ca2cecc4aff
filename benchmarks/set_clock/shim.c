/* Moves the clocks of one process while it runs: LD_PRELOAD, with the file CLOCK_FILE.
 *
 * The file has two doubles: the seconds that the wall clock, and the monotonic clock, say more than the real ones.
 * CLOCK_BOOTTIME stays. A monotonic clock moved back by as long as the process was stopped is that of a machine
 * that was suspended.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *moved;

static double seconds(int which) {
  if (!moved) {
    static double none[2];
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
    moved = found == MAP_FAILED ? none : found;
    if (file >= 0) close(file);
  }
  return moved[which];
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = syscall(SYS_clock_gettime, clock, at);
  int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result || !(is_wall || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) return result;
  long long now = at->tv_sec * 1000000000LL + at->tv_nsec + (long long)(seconds(!is_wall) * 1e9);
  at->tv_sec = now / 1000000000LL;
  at->tv_nsec = now % 1000000000LL;
  return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
