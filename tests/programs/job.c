/* SPDX-License-Identifier: MIT */
/*
 * A job for tests/signals.py.
 *
 *   job run [MS]           says "ready" and goes on for MS milliseconds (60,000); status 3
 *   job ints N             the same, but counts SIGINT, says each, and ends at the Nth with status 4
 *   job read               reads a line from its terminal and says it
 *   job ignore SIGNAL MS   as run, with SIGNAL ignored
 *   job count N            says of each signal that it came, up to N in all; a moment later how often it got each
 *   job group SIGNAL       sends SIGNAL to its process group, twice, and says how often it came; status 4
 *   job parent SIGNAL      sends SIGNAL to its parent, and goes on for a moment; status 5
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t counts[65];

static void
on_signal(int n)
{
  counts[n]++;
}

static void
take(int n)
{
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(n, &action, NULL);
}

__attribute__((noinline)) static double
now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void
pass(double ms)
{
  double end = now_ms() + ms;
  while (now_ms() < end) {
    struct timespec wait = {0, 5 * 1000 * 1000};
    nanosleep(&wait, NULL);
  }
}

static void
say(const char *text, int number)
{
  printf("%s %d\n", text, number);
  fflush(stdout);
}

static int
ints(int last)
{
  int said = 0;
  take(SIGINT);
  puts("ready");
  fflush(stdout);
  while (said < last) {
    pass(5);
    if (counts[SIGINT] != said) {
      say("interrupt", ++said);
    }
  }
  return 4;
}

static int
total(void)
{
  int sum = 0;
  for (int n = 1; n < 65; n++) {
    sum += n == SIGCONT ? 0 : counts[n];
  }
  return sum;
}

static int
count(int last)
{
  double end = now_ms() + 60000;
  int said = 0;
  for (int n = 1; n < 65; n++) {
    take(n);
  }
  puts("ready");
  fflush(stdout);
  while (said < last && now_ms() < end) {
    pass(5);
    while (said < total()) {
      say("now", ++said);
    }
  }
  pass(300); /* one that comes twice */
  for (int n = 1; n < 65; n++) {
    if (counts[n] != 0 && n != SIGCONT) {
      printf("%d:%d ", n, (int)counts[n]);
    }
  }
  puts("");
  return 0;
}

int
main(int argc, char **argv)
{
  const char *how = argc > 1 ? argv[1] : "run";
  int number = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(how, "ints") == 0) {
    return ints(number);
  }
  if (strcmp(how, "count") == 0) {
    return count(number);
  }
  if (strcmp(how, "group") == 0) {
    take(number);
    kill(0, number);
    pass(200);
    kill(0, number);
    pass(200);
    say("came", counts[number]);
    return 4;
  }
  if (strcmp(how, "parent") == 0) {
    take(number);
    kill(getppid(), number);
    pass(300);
    say("came", counts[number]);
    return 5;
  }
  if (strcmp(how, "ignore") == 0) {
    signal(number, SIG_IGN);
    number = argc > 3 ? atoi(argv[3]) : 0;
  }
  puts("ready");
  fflush(stdout);
  if (strcmp(how, "read") == 0) {
    char line[100];
    printf("read %s", fgets(line, sizeof(line), stdin) != NULL ? line : "nothing\n");
    return 0;
  }
  pass(number != 0 ? number : 60000);
  return 3;
}
