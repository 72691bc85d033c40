/* SPDX-License-Identifier: MIT */
/* The progress line; see progress.h. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

static uint64_t
now_ns(void)
{
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
}

void
ct_progress_start(struct ct_progress *progress, const char *what)
{
  *progress = (struct ct_progress){.what = what, .enabled = isatty(STDERR_FILENO) == 1};
  if (progress->enabled) {
    progress->start_ns = now_ns();
    progress->next_ns = progress->start_ns + SECOND_NS;
  }
}

int
ct_progress_update(void *arg, uint64_t done, uint64_t total)
{
  struct ct_progress *progress = arg;
  if (!progress->enabled) {
    return 0;
  }
  uint64_t now = now_ns();
  if (now < progress->next_ns) {
    return 0;
  }
  progress->next_ns = now + SECOND_NS / 10;
  progress->visible = true;
  uint64_t elapsed = (now - progress->start_ns) / SECOND_NS;
  if (total != 0) {
    fprintf(stderr, "\r\033[K%s: %u %%, %llu s", progress->what,
            (unsigned)(done < total ? 100.0 * (double)done / (double)total : 100.0), (unsigned long long)elapsed);
  } else {
    fprintf(stderr, "\r\033[K%s: %llu s", progress->what, (unsigned long long)elapsed);
  }
  fflush(stderr);
  return 0;
}

void
ct_progress_end(void *arg)
{
  struct ct_progress *progress = arg;
  if (progress->visible) {
    fputs("\r\033[K", stderr);
  }
  progress->visible = false;
  progress->enabled = false;
}

/* ---- alone ---- */

static void *
alone_main(void *context)
{
  struct ct_progress_alone *alone = context;
  struct timespec until;
  do {
    ct_progress_update(&alone->line, 0, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SECOND_NS / 10;
    until.tv_sec += until.tv_nsec / (long)SECOND_NS;
    until.tv_nsec %= (long)SECOND_NS;
  } while (sem_timedwait(&alone->over, &until) != 0);
  return NULL;
}

void
ct_progress_alone_begin(struct ct_progress_alone *alone, const char *what)
{
  ct_progress_start(&alone->line, what);
  sem_init(&alone->over, 0, 0);
  alone->has_thread = alone->line.enabled && pthread_create(&alone->thread, NULL, alone_main, alone) == 0;
}

void
ct_progress_alone_end(struct ct_progress_alone *alone)
{
  sem_post(&alone->over);
  if (alone->has_thread) {
    pthread_join(alone->thread, NULL);
  }
  sem_destroy(&alone->over);
  ct_progress_end(&alone->line);
}
