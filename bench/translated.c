/* SPDX-License-Identifier: MIT */
/*
 * Workloads for bench/translated.py: each prints its processor time in seconds, three times over; the first one makes
 * the units when it runs translated. Arguments: one of them only; "wall": time by the clock, else "cpu"; a number: that
 * part of the work only, for peers that are slow.
 */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N __attribute__((noinline))

static volatile uint64_t sink;
static uint32_t part = 1;

N static void
crc(void)
{
  uint32_t c = ~0u;
  for (uint32_t i = 0; i < 20000000 / part; i++) {
    c ^= i & 255;
    for (int k = 0; k < 8; k++) {
      c = c >> 1 ^ (0xedb88320 & -(c & 1));
    }
  }
  sink = c;
}

N static uint64_t
fibonacci(uint64_t n)
{
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

N static void
calls(void)
{
  uint64_t n = 38;
  for (double rest = part; rest > 1.3; rest /= 1.618) { /* a fibonacci number is so many times the one before */
    n--;
  }
  sink = fibonacci(n);
}

static int
compare(const void *a, const void *b)
{
  return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

N static void
sort(void)
{
  const int count = 2000000 / (int)part;
  int *values = malloc((size_t)count * sizeof(*values));
  unsigned state = 1;
  for (int i = 0; i < count; i++) {
    values[i] = (int)((state = state * 1103515245u + 12345u) >> 8);
  }
  qsort(values, (size_t)count, sizeof(*values), compare);
  sink = (uint64_t)values[count / 2];
  free(values);
}

struct node {
  struct node *left, *right;
  int key;
};

N static void
tree(void)
{
  const int count = 300000 / (int)part;
  struct node *nodes = calloc((size_t)count, sizeof(*nodes)), *root = NULL;
  unsigned state = 7;
  for (int i = 0; i < count; i++) {
    struct node **at = &root;
    nodes[i].key = (int)((state = state * 1103515245u + 12345u) >> 4);
    while (*at != NULL) {
      at = nodes[i].key < (*at)->key ? &(*at)->left : &(*at)->right;
    }
    *at = &nodes[i];
  }
  sink = (uint64_t)root->key;
  free(nodes);
}

N static void
database(void)
{
  sqlite3 *db;
  char text[1024];
  snprintf(text, sizeof(text),
           "create table t(a, b, c);"
           "with recursive n(i) as (select 1 union all select i + 1 from n where i < %u)"
           " insert into t select i, i * 7919 %% 10007, hex(i) from n;"
           "create index x on t(b); select count(*), sum(a), max(c) from t where b between 100 and 5000;"
           "select b, count(*) from t group by b order by 2 desc limit 3;",
           200000 / part);
  sqlite3_open(":memory:", &db);
  sqlite3_exec(db, text, NULL, NULL, NULL);
  sqlite3_close(db);
}

static clockid_t watch = CLOCK_THREAD_CPUTIME_ID;

static double
now(void)
{
  struct timespec t;
  clock_gettime(watch, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int
main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(void);
  } works[] = {{"crc", crc}, {"calls", calls}, {"sort", sort}, {"tree", tree}, {"sqlite", database}};
  watch = argc > 2 && strcmp(argv[2], "wall") == 0 ? CLOCK_MONOTONIC : watch;
  part = argc > 3 && atoi(argv[3]) > 0 ? (uint32_t)atoi(argv[3]) : 1;
  for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
    if (argc > 1 && strcmp(argv[1], works[i].name) != 0) {
      continue;
    }
    printf("%s", works[i].name);
    for (int turn = 0; turn < 3; turn++) {
      double begin = now();
      works[i].run();
      printf(" %.4f", now() - begin);
    }
    puts("");
  }
  return 0;
}
