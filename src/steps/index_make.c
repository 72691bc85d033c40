/* SPDX-License-Identifier: MIT */
/* See index_internal.h: the index is made by reading all steps, each thread some of the blocks. */
#include "steps/index_internal.h"

#include "base/branch.h"
#include "base/test_point.h"
#include "steps/cursor.h"
#include "steps/sweep.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LONG_STORE = 512, THREADS_MAX = 8, RECENT = 1024 };

/* What a chunk does, while it is read. */
struct maker {
  struct ct_keys sets[CT_INDEX_SETS];
  struct ct_index_range *ranges;
  size_t range_count, range_capacity;
  struct ct_index_chunk chunk, *chunks; /* this one; those before it in the share */
  size_t chunk_count, chunk_capacity;
  struct ct_steps_index *part; /* where their data goes */
  uint8_t state[CT_STEPS_CHECKPOINT_BYTES];
  uint64_t first_step; /* of the block */
  const struct ct_steps_plan *last;
  bool failed;
  uint64_t recent[RECENT]; /* stores of this chunk that are noted: word << 8 | which of its bytes */
};

/* ---- long stores ---- */

static int
compare_ranges(const void *a, const void *b)
{
  const struct ct_index_range *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start;
}

/* Sorted, and those that touch each other as one. */
static void
join_ranges(struct maker *m)
{
  size_t kept = 0;
  qsort(m->ranges, m->range_count, sizeof(*m->ranges), compare_ranges);
  for (size_t i = 0; i < m->range_count; i++) {
    struct ct_index_range *last = kept != 0 ? &m->ranges[kept - 1] : NULL, *range = &m->ranges[i];
    if (last != NULL && range->start - 1 <= last->end) {
      last->end = range->end > last->end ? range->end : last->end;
    } else {
      m->ranges[kept++] = *range;
    }
  }
  m->range_count = kept;
}

static bool
add_range(struct maker *m, uint64_t start, uint64_t end)
{
  struct ct_index_range *last = m->range_count != 0 ? &m->ranges[m->range_count - 1] : NULL;
  if (last != NULL && last->start <= start && end <= last->end) {
    return true;
  }
  if (m->range_count == m->range_capacity) {
    if (m->range_count != 0) {
      join_ranges(m);
    }
    if (2 * m->range_count >= m->range_capacity) {
      size_t capacity = m->range_capacity == 0 ? 1024 : 2 * m->range_capacity;
      struct ct_index_range *grown = reallocarray(m->ranges, capacity, sizeof(*grown));
      if (grown == NULL) {
        return false;
      }
      m->ranges = grown;
      m->range_capacity = capacity;
    }
  }
  m->ranges[m->range_count++] = (struct ct_index_range){start, end};
  return true;
}

/* ---- steps ---- */

static void
note_write(struct maker *m, uint64_t address, uint64_t bytes)
{
  uint64_t end = address + bytes - 1 < address ? UINT64_MAX : address + bytes - 1;
  if (bytes <= LONG_STORE) {
    m->failed |= !ct_keys_add_bytes(&m->sets[CT_INDEX_WRITTEN], address, bytes);
  } else {
    m->failed |= !add_range(m, address, end);
  }
}

static uint64_t
registers_of(const struct ct_effects *e)
{
  bool flags = e->flags_written != 0 || (e->traits & CT_EFFECT_WRITES_DF) != 0;
  return e->writes | (uint64_t)flags << CT_STEPS_INDEX_FLAGS | (uint64_t)e->vectors_written << CT_STEPS_INDEX_VECTORS;
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct maker *m = context;
  (void)cursor;
  if (step->plan != m->last && step->plan != NULL) {
    m->last = step->plan;
    m->failed |= !ct_keys_add(&m->sets[CT_INDEX_UNITS], step->plan->id, UINT8_MAX);
  }
  m->chunk.has_alone |= step->plan == NULL;
  m->chunk.registers |= step->effects != NULL ? registers_of(step->effects) : UINT64_MAX;
  if (step->did.load_size != 0) {
    m->failed |= !ct_keys_add_bytes(&m->sets[CT_INDEX_LOADED], step->did.load_address, step->did.load_size);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    note_write(m, store->address, ct_mem_store_bytes(store));
  }
  return !m->failed;
}

static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct maker *m = context;
  struct ct_stream_memory memory;
  if (event->kind == CT_STREAM_MEMORY) {
    memcpy(&memory, event->data, sizeof(memory));
    note_write(m, memory.address, memory.size);
  } else if (event->kind == CT_STREAM_CONTEXT || event->kind == CT_STREAM_GAP) {
    m->chunk.registers = UINT64_MAX;
  }
  if (ct_steps_is_gap(event)) {
    m->chunk.gap = (uint32_t)(event->step - m->first_step) + 1;
  }
}

/* ---- chunks ---- */

/* Room for so many more bytes at the end; NULL: out of memory. */
static uint8_t *
more(struct ct_steps_index *index, size_t bytes)
{
  if (bytes > index->capacity - index->size || index->bytes == NULL) {
    size_t capacity = 2 * (index->size + bytes) + 1;
    uint8_t *grown = realloc(index->bytes, capacity);
    if (grown == NULL) {
      return NULL;
    }
    index->bytes = grown;
    index->capacity = capacity;
  }
  return index->bytes + index->size;
}

static bool
put_sets(struct maker *m)
{
  ct_keys_subtract(&m->sets[CT_INDEX_LOADED], &m->sets[CT_INDEX_WRITTEN]);
  for (int i = 0; i < CT_INDEX_SETS; i++) {
    struct ct_keys_packed packed;
    uint8_t *at = more(m->part, ct_keys_bound(&m->sets[i]));
    if (at == NULL || !ct_keys_pack(&m->sets[i], at, &packed)) {
      return false;
    }
    m->chunk.set[i].groups = packed.groups;
    m->chunk.set[i].bytes = packed.bytes;
    m->part->size += packed.bytes;
  }
  return true;
}

static bool
put_chunk(struct maker *m)
{
  struct ct_steps_index *part = m->part;
  m->chunk.at = part->size;
  if (m->range_count != 0) {
    join_ranges(m);
  }
  m->chunk.ranges = (uint32_t)m->range_count;
  size_t ranges = m->range_count * sizeof(*m->ranges), state = m->chunk.state_bytes;
  uint8_t *at = !m->failed && put_sets(m) ? more(part, ranges + state) : NULL;
  if (m->chunk_count == m->chunk_capacity) {
    size_t capacity = m->chunk_capacity == 0 ? 64 : 2 * m->chunk_capacity;
    struct ct_index_chunk *grown = reallocarray(m->chunks, capacity, sizeof(*grown));
    m->chunks = grown != NULL ? grown : m->chunks;
    m->chunk_capacity = grown != NULL ? capacity : m->chunk_capacity;
  }
  if (at == NULL || m->chunk_count == m->chunk_capacity) {
    return false;
  }
  if (ranges != 0) {
    memcpy(at, m->ranges, ranges);
  }
  memcpy(at + ranges, m->state, state);
  part->size += ranges + state;
  m->chunks[m->chunk_count++] = m->chunk;
  return true;
}

static void
begin_chunk(struct maker *m, size_t block, uint64_t step)
{
  for (int i = 0; i < CT_INDEX_SETS; i++) {
    ct_keys_empty(&m->sets[i]);
  }
  m->range_count = 0;
  m->last = NULL;
  m->chunk = (struct ct_index_chunk){.step = step, .block = (uint32_t)block};
}

static void
visit_checkpoint(void *context, const struct ct_steps_checkpoint *checkpoint)
{
  struct maker *m = context;
  uint32_t block = m->chunk.block;
  m->failed |= !put_chunk(m);
  begin_chunk(m, block, checkpoint->number);
  m->chunk.state_bytes = (uint32_t)ct_steps_checkpoint_pack(checkpoint, m->state);
}

static bool
index_block(struct maker *m, struct ct_steps_cursor *cursor, size_t block, const struct ct_steps_place *place)
{
  uint64_t holes = ct_steps_cursor_holes(cursor);
  size_t first = m->chunk_count;
  m->first_step = place->first_step;
  begin_chunk(m, block, place->first_step);
  ct_steps_cursor_scan(cursor, block, UINT64_MAX, visit_step, m);
  bool good = put_chunk(m);
  if (good &&
      ct_steps_cursor_holes(cursor) != holes) { /* to be looked at each time, so that it is reported each time */
    for (size_t i = first; i < m->chunk_count; i++) {
      m->chunks[i].is_unread = m->chunks[i].has_alone = 1;
    }
  }
  return good;
}

/* Of writes only. Most are those of a moment ago again. */
static void
visit_bytes(void *context, uint64_t address, uint64_t bytes)
{
  struct maker *m = context;
  unsigned first = address & 7;
  if (first + bytes <= 8 && address >> 56 == 0) {
    uint64_t which = (uint64_t)(UINT8_MAX >> (8 - bytes)) << first, word = address >> 3;
    uint64_t *recent = &m->recent[word % RECENT];
    if (*recent >> 8 == word && (*recent & which) == which) {
      return;
    }
    *recent = (*recent >> 8 == word ? *recent : word << 8) | which;
  }
  note_write(m, address, bytes);
}

static bool
sweep_block(struct maker *m, struct ct_steps_sweep *sweep, size_t block, const struct ct_steps_place *place)
{
  struct ct_steps_write gap;
  begin_chunk(m, block, place->first_step);
  memset(m->recent, 0, sizeof(m->recent));
  m->chunk.is_unread = !ct_steps_sweep_stores(sweep, block, visit_bytes, m, &gap);
  m->chunk.registers = UINT64_MAX;
  m->chunk.has_alone = 1;
  m->chunk.gap = gap.has_gap ? (uint32_t)(gap.gap - place->first_step) + 1 : 0;
  return put_chunk(m);
}

/* ---- shares ---- */

/* A share of the blocks, by a thread with a reader of its own. */
struct share {
  struct ct_steps_reader *reader; /* of the caller: its path */
  size_t first, end;
  bool has_writes_only;
  struct ct_steps_index part; /* their data */
  struct ct_index_chunk *chunks;
  size_t chunk_count;
  int code;
  pthread_t thread;
  bool is_started;
};

/* Of a test that wants the others to be slower than the caller. */
static void
dawdle(const struct share *share)
{
  uint64_t ns = share->first != 0 ? ct_test_duration_ns("CONTRAIL_TEST_SHARE_MS", 0) : 0;
  if (ns != 0) {
    struct timespec wait = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&wait, NULL);
  }
}

/* By one of the two; false: out of memory. */
static bool
make_blocks(struct share *share, struct maker *m, struct ct_steps_reader *reader, struct ct_steps_cursor *cursor,
            struct ct_steps_sweep *sweep)
{
  bool good = ct_steps_reader_blocks(reader) >= share->end;
  ct_steps_reader_set_watch(reader, ct_steps_reader_watch(share->reader));
  m->part = &share->part;
  if (cursor != NULL) {
    ct_steps_cursor_events(cursor, visit_event, m);
    ct_steps_cursor_checkpoints(cursor, CT_INDEX_CHUNK, visit_checkpoint, m);
  }
  for (size_t block = share->first; block < share->end && good && !ct_steps_reader_is_over(reader); block++) {
    const struct ct_steps_place *place = ct_steps_reader_place(reader, block);
    dawdle(share);
    good = cursor != NULL ? index_block(m, cursor, block, place) : sweep_block(m, sweep, block, place);
  }
  return good;
}

static void *
make_share(void *argument)
{
  struct share *share = argument;
  struct ct_steps_reader *reader = NULL;
  struct maker *m = calloc(1, sizeof(*m));
  bool good = m != NULL && ct_steps_reader_open(ct_steps_reader_path(share->reader), &reader, NULL) == 0;
  struct ct_steps_cursor *cursor = good && !share->has_writes_only ? ct_steps_cursor_open(reader) : NULL;
  struct ct_steps_sweep *sweep = good && share->has_writes_only ? ct_steps_sweep_open(reader) : NULL;
  good = (cursor != NULL || sweep != NULL) && make_blocks(share, m, reader, cursor, sweep);
  ct_steps_cursor_close(cursor);
  ct_steps_sweep_close(sweep);
  ct_steps_reader_close(reader);
  if (m != NULL) {
    for (int i = 0; i < CT_INDEX_SETS; i++) {
      ct_keys_free(&m->sets[i]);
    }
    free(m->ranges);
    share->chunks = m->chunks;
    share->chunk_count = m->chunk_count;
    free(m);
  }
  share->code = good ? 0 : CT_ENOMEM;
  return NULL;
}

/* The shares one after the other: chunks first. */
static bool
join(struct share *shares, unsigned count, struct ct_steps_index *index)
{
  size_t data = 0, chunks = 0;
  for (unsigned i = 0; i < count; i++) {
    for (size_t k = 0; k < shares[i].chunk_count; k++) {
      shares[i].chunks[k].at += data;
    }
    data += shares[i].part.size;
    chunks += shares[i].chunk_count;
  }
  size_t size = chunks * sizeof(struct ct_index_chunk) + data;
  uint8_t *at = malloc(size + 1);
  index->bytes = at;
  index->size = index->capacity = size;
  for (unsigned i = 0; i < count && at != NULL && shares[i].chunk_count != 0; i++) {
    memcpy(at, shares[i].chunks, shares[i].chunk_count * sizeof(struct ct_index_chunk));
    at += shares[i].chunk_count * sizeof(struct ct_index_chunk);
  }
  for (unsigned i = 0; i < count && at != NULL && shares[i].part.size != 0; i++) {
    memcpy(at, shares[i].part.bytes, shares[i].part.size);
    at += shares[i].part.size;
  }
  index->head.chunks = chunks;
  index->head.data_bytes = data;
  return at != NULL;
}

/* The caller's share may be over long before: it still asks whether the others' are wanted. */
static void
await_share(struct share *share)
{
  enum { ASK_NS = 50000000, SECOND_NS = 1000000000 };
  struct timespec until;
  int code = ETIMEDOUT;
  while (code == ETIMEDOUT) {
    ct_steps_reader_ask(share->reader);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    code = pthread_timedjoin_np(share->thread, NULL, &until);
  }
}

int
ct_index_make(struct ct_steps_reader *reader, bool has_writes_only, struct ct_steps_index *index)
{
  struct share shares[THREADS_MAX] = {0};
  size_t blocks = ct_steps_reader_blocks(reader);
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned count = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (unsigned)processors;
  count = blocks < 2 * (size_t)count ? 1 : count;
  for (unsigned i = 0; i < count; i++) {
    shares[i].reader = reader;
    shares[i].has_writes_only = has_writes_only;
    shares[i].first = blocks * i / count;
    shares[i].end = blocks * (i + 1) / count;
    shares[i].is_started = i > 0 && pthread_create(&shares[i].thread, NULL, make_share, &shares[i]) == 0;
  }
  bool good = true;
  for (unsigned i = 0; i < count; i++) {
    if (shares[i].is_started) {
      await_share(&shares[i]);
    } else {
      make_share(&shares[i]);
    }
    good = good && shares[i].code == 0;
  }
  good = good && join(shares, count, index);
  for (unsigned i = 0; i < count; i++) {
    free(shares[i].part.bytes);
    free(shares[i].chunks);
  }
  return good ? 0 : CT_ENOMEM;
}
