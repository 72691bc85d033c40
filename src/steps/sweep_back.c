/* SPDX-License-Identifier: MIT */
/*
 * See sweep.h: several threads sweep blocks, each with a reader of its own, and take the next one downwards. What they
 * found is looked at in the order of the file by the caller's thread, which sweeps too; so some blocks before the
 * one that has it are read in vain, at most one for each thread.
 */
#include "steps/sweep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* So many blocks are read before others are called: they are as soon done as those have the file open. */
enum { ALONE = 4, HELPERS_MAX = 15 };

enum result_state { OPEN, SAID, NOT_SAID };

struct result {
  _Atomic uint8_t state; /* enum result_state; release: write is there, for who acquires it */
  struct ct_steps_write write;
};

struct hunt {
  struct ct_steps_reader *reader; /* the caller's */
  const struct ct_steps_target *target;
  uint64_t before;
  size_t end;             /* the last block */
  struct result *results; /* by block, from that on */
  atomic_size_t next;     /* blocks below it are taken by nobody; relaxed: it is only a number */
  atomic_bool is_over;    /* a hint: no more is wanted */
};

/* False: there is none left. */
static bool
sweep_next(struct hunt *hunt, struct ct_steps_sweep *sweep)
{
  size_t next = atomic_load_explicit(&hunt->next, memory_order_relaxed);
  do {
    if (next == hunt->end) {
      return false;
    }
  } while (
      !atomic_compare_exchange_weak_explicit(&hunt->next, &next, next - 1, memory_order_relaxed, memory_order_relaxed));
  struct result *result = &hunt->results[next - 1 - hunt->end];
  bool is_said = ct_steps_sweep_block(sweep, next - 1, hunt->target, hunt->before, &result->write);
  /* release: pairs with the acquire in gather */
  atomic_store_explicit(&result->state, is_said ? SAID : NOT_SAID, memory_order_release);
  return true;
}

static void *
help(void *argument)
{
  struct hunt *hunt = argument;
  struct ct_steps_reader *reader = NULL;
  if (ct_steps_reader_open(ct_steps_reader_path(hunt->reader), &reader, NULL) != 0) {
    return NULL;
  }
  ct_steps_reader_set_watch(reader, ct_steps_reader_watch(hunt->reader));
  struct ct_steps_sweep *sweep = ct_steps_sweep_open(reader);
  while (sweep != NULL && ct_steps_reader_blocks(reader) >= atomic_load_explicit(&hunt->next, memory_order_relaxed) &&
         !atomic_load_explicit(&hunt->is_over, memory_order_relaxed) && !ct_steps_reader_is_over(reader) &&
         sweep_next(hunt, sweep)) {
  }
  ct_steps_sweep_close(sweep);
  ct_steps_reader_close(reader);
  return NULL;
}

static unsigned
call_helpers(struct hunt *hunt, pthread_t helpers[HELPERS_MAX])
{
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned wanted = processors <= 1 ? 0 : processors - 1 > HELPERS_MAX ? HELPERS_MAX : (unsigned)processors - 1;
  unsigned count = 0;
  for (unsigned i = 0; i < wanted; i++) {
    count += pthread_create(&helpers[count], NULL, help, hunt) == 0;
  }
  return count;
}

/* Takes what has been found of the blocks below *block, one after the other. True: nothing below is wanted. */
static bool
gather(struct hunt *hunt, size_t *block, struct ct_steps_write *write, bool *is_said)
{
  while (*block > hunt->end) {
    struct result *result = &hunt->results[*block - 1 - hunt->end];
    uint8_t state = atomic_load_explicit(&result->state, memory_order_acquire); /* of sweep_next */
    if (state == OPEN) {
      return false;
    }
    --*block;
    *is_said = state == SAID;
    if (!*is_said) {
      return true;
    }
    write->kind = result->write.kind;
    write->step = result->write.step;
    if (result->write.has_gap) {
      ct_steps_write_gap(write, result->write.gap);
    }
    if (write->kind != CT_STEPS_WRITE_NONE) {
      return true;
    }
  }
  return true;
}

bool
ct_steps_sweep_back(struct ct_steps_reader *reader, size_t *block, size_t end, const struct ct_steps_target *target,
                    uint64_t before, struct ct_steps_write *write)
{
  struct hunt hunt = {.reader = reader, .target = target, .before = before, .end = end};
  struct ct_steps_sweep *sweep = ct_steps_sweep_open(reader);
  pthread_t helpers[HELPERS_MAX];
  unsigned helper_count = 0;
  size_t below = *block + 1, first = below;
  bool is_said = false, is_done = false;
  hunt.results = calloc(below - end, sizeof(*hunt.results));
  atomic_init(&hunt.next, below);
  while (sweep != NULL && hunt.results != NULL && !is_done) {
    bool is_last = !sweep_next(&hunt, sweep);
    is_done = gather(&hunt, &below, write, &is_said);
    if (is_last && !is_done) { /* the others have the rest */
      break;
    }
    if (helper_count == 0 && !is_done && first - below == ALONE) {
      helper_count = call_helpers(&hunt, helpers);
    }
  }
  atomic_store_explicit(&hunt.is_over, is_done, memory_order_relaxed);
  for (unsigned i = 0; i < helper_count; i++) {
    pthread_join(helpers[i], NULL);
  }
  if (!is_done && hunt.results != NULL) {
    gather(&hunt, &below, write, &is_said);
  }
  ct_steps_sweep_close(sweep);
  free(hunt.results);
  *block = below < first ? below : *block;
  return is_said;
}
