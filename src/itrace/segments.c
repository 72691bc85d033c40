/* SPDX-License-Identifier: MIT */
/* See segments.h. */
#include "itrace/segments.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/worker.h"
#include "itrace/vectors.h"
#include "steps/sizes.h"
#include "steps/writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

/*
 * A segment that is full waits (WAITS) until a packer takes it (PACKED), and is free again as soon as it is packed.
 * What comes of that, a parcel, is written in the order of turns by whichever packer finds that the next one is ready:
 * none waits for another that the traced thread keeps from running, unless there are no parcels left.
 */
enum segment_state { FREE, FILLED, WAITS, PACKED };
enum parcel_state { IDLE, IS_MADE, READY };

enum {
  PACKERS = 2, /* one has the processor that the traced thread leaves while it waits for room */
  PARCELS = 6
};

struct segment {
  enum segment_state state;
  uint64_t number; /* of its turn */
  const uint8_t *bytes;
  uint64_t used;
  uint8_t *units; /* that are new with it, or were with one before it whose records are lost */
  size_t unit_bytes;
  char *modules;
  uint64_t lost;     /* bytes of records that were to come before it ... */
  uint64_t lost_tsc; /* ... a time in them */
  uint32_t stamp_count;
  struct ct_stream_stamp stamps[CT_ITRACE_BLOCKS];
};

struct parcel {
  enum parcel_state state;
  struct ct_steps_packer *packer; /* NULL: not made yet */
  struct segment content;         /* what it is of, but for the records */
  struct segment *held;           /* it has to stay until the parcel is written; NULL: none */
};

struct ct_segments {
  struct ct_steps_writer *writer;
  struct ct_unit_sizes *sizes;
  pthread_t packers[PACKERS];
  uint32_t packer_count;
  struct parcel parcels[PARCELS];
  bool is_writing; /* one of the packers is */
  pthread_mutex_t lock;
  pthread_cond_t change;
  struct segment segments[CT_SEGMENTS];
  uint64_t turn;
  uint32_t next_unit;
  char *modules; /* that go with the next segment */
  bool is_ending;
  struct ct_recorder_counts counts;
};

/* The segment of this state with the lowest turn; NULL: none. Under the lock. */
static struct segment *
oldest(struct ct_segments *segments, enum segment_state state)
{
  struct segment *found = NULL;
  for (uint32_t i = 0; i < CT_SEGMENTS; i++) {
    struct segment *segment = &segments->segments[i];
    if (segment->state == state && (found == NULL || segment->number < found->number)) {
      found = segment;
    }
  }
  return found;
}

/* What a segment needs of units is there before it. */
static void
write_one(struct ct_segments *segments, struct parcel *parcel)
{
  struct segment *segment = &parcel->content;
  if (segment->modules != NULL) {
    ct_steps_writer_modules(segments->writer, segment->modules, strlen(segment->modules));
  }
  if (segment->unit_bytes != 0) {
    ct_steps_writer_units(segments->writer, segment->units, segment->unit_bytes);
  }
  if (segment->lost != 0) { /* a block of its own: this one is packed already */
    struct ct_stream_gap gap = {
        .event = {CT_STREAM_EVENT | CT_STREAM_GAP, sizeof(gap)}, .tsc = segment->lost_tsc, .bytes = segment->lost};
    ct_steps_writer_segment(segments->writer, &gap, sizeof(gap), NULL, 0);
  }
  ct_steps_writer_packed(segments->writer, parcel->packer);
  free(segment->units);
  free(segment->modules);
}

/* The parcel that has to be written next, ready or not; NULL: none. Under the lock. */
static struct parcel *
next_parcel(struct ct_segments *segments)
{
  struct parcel *next = NULL;
  for (uint32_t i = 0; i < PARCELS; i++) {
    struct parcel *parcel = &segments->parcels[i];
    if (parcel->state != IDLE && (next == NULL || parcel->content.number < next->content.number)) {
      next = parcel;
    }
  }
  return next;
}

/* Writes it, if it is ready and no other packer writes. Under the lock, but not while it writes. */
static bool
write_next(struct ct_segments *segments)
{
  struct parcel *parcel = next_parcel(segments);
  if (parcel == NULL || parcel->state != READY || segments->is_writing) {
    return false;
  }
  segments->is_writing = true;
  pthread_mutex_unlock(&segments->lock);
  write_one(segments, parcel);
  pthread_mutex_lock(&segments->lock);
  segments->is_writing = false;
  if (parcel->held != NULL) {
    parcel->held->state = FREE;
    parcel->held = NULL;
  }
  segments->counts.segments++;
  segments->counts.bytes += parcel->content.used;
  parcel->state = IDLE;
  pthread_cond_broadcast(&segments->change);
  return true;
}

/* NULL: there is none. Under the lock. */
static struct parcel *
idle_parcel(struct ct_segments *segments)
{
  for (uint32_t i = 0; i < PARCELS; i++) {
    struct parcel *parcel = &segments->parcels[i];
    if (parcel->state == IDLE && parcel->packer == NULL) {
      parcel->packer = ct_steps_packer_create();
    }
    if (parcel->state == IDLE && parcel->packer != NULL) {
      return parcel;
    }
  }
  return NULL;
}

/* Under the lock, but not while it packs. */
static void
pack(struct ct_segments *segments, struct segment *segment, struct parcel *parcel)
{
  parcel->content = *segment;
  parcel->state = IS_MADE;
  segment->state = PACKED;
  segment->units = NULL;
  segment->unit_bytes = 0;
  segment->modules = NULL;
  segment->lost = 0;
  bool in_haste = oldest(segments, WAITS) != NULL;
  pthread_mutex_unlock(&segments->lock);
  const struct segment *content = &parcel->content;
  ct_steps_pack(parcel->packer, segments->sizes, content->bytes, content->used, content->stamps, content->stamp_count,
                in_haste);
  pthread_mutex_lock(&segments->lock);
  parcel->state = READY;
  if (ct_steps_packer_wants_bytes(parcel->packer)) {
    parcel->held = segment;
  } else {
    segment->state = FREE;
  }
  pthread_cond_broadcast(&segments->change);
}

static void *
packer_main(void *context)
{
  struct ct_segments *segments = context;
  pthread_mutex_lock(&segments->lock);
  for (;;) {
    if (write_next(segments)) {
      continue;
    }
    struct segment *segment = oldest(segments, WAITS);
    struct parcel *parcel = segment != NULL ? idle_parcel(segments) : NULL;
    if (parcel != NULL) {
      pack(segments, segment, parcel);
    } else if (segment == NULL && segments->is_ending) {
      break; /* whoever writes or packs goes on until all is written */
    } else {
      pthread_cond_wait(&segments->change, &segments->lock);
    }
  }
  pthread_mutex_unlock(&segments->lock);
  return NULL;
}

/* Puts units in front of those of a segment; takes the buffer. */
static void
prepend_units(struct segment *segment, uint8_t *units, size_t size)
{
  uint8_t *all = size != 0 ? realloc(units, size + segment->unit_bytes) : NULL;
  if (all != NULL) { /* without it the records cannot be read, which a reader says */
    if (segment->unit_bytes != 0) {
      memcpy(all + size, segment->units, segment->unit_bytes);
    }
    free(segment->units);
    segment->units = all;
    segment->unit_bytes += size;
  } else {
    free(units);
  }
}

/*
 * The records of the oldest one that waits are lost, but not what others need: that goes to the one that follows it in
 * the order of turns, which is the one that is made of it if no other waits. Under the lock.
 */
static struct segment *
drop_oldest(struct ct_segments *segments)
{
  struct segment *old = oldest(segments, WAITS);
  if (old == NULL) {
    return NULL;
  }
  old->state = FREE;
  old->lost += old->used;
  old->lost_tsc = old->stamp_count != 0 ? old->stamps[0].tsc : old->lost_tsc;
  segments->counts.lost += old->used;
  old->used = 0;
  struct segment *next = oldest(segments, WAITS);
  if (next != NULL) {
    next->lost += old->lost;
    next->lost_tsc = old->lost_tsc;
    prepend_units(next, old->units, old->unit_bytes);
    if (next->modules == NULL) {
      next->modules = old->modules;
    } else {
      free(old->modules);
    }
    old->lost = 0;
    old->units = NULL;
    old->unit_bytes = 0;
    old->modules = NULL;
  }
  return old;
}

uint32_t
ct_segments_take(struct ct_segments *segments, bool waits)
{
  pthread_mutex_lock(&segments->lock);
  struct segment *segment;
  while ((segment = oldest(segments, FREE)) == NULL) {
    segment = waits ? NULL : drop_oldest(segments);
    if (segment != NULL) {
      break;
    }
    pthread_cond_wait(&segments->change, &segments->lock);
  }
  segment->state = FILLED;
  segment->number = ++segments->turn;
  pthread_mutex_unlock(&segments->lock);
  return (uint32_t)(segment - segments->segments);
}

void
ct_segments_put(struct ct_segments *segments, const struct ct_unit_log *units, uint32_t number, const uint8_t *bytes,
                uint64_t used, const struct ct_stream_stamp *stamps, uint32_t stamp_count)
{
  struct segment *segment = &segments->segments[number];
  size_t size = 0;
  uint8_t *fresh = ct_unit_log_block(units, segments->next_unit, &size);
  pthread_mutex_lock(&segments->lock);
  segment->bytes = bytes;
  segment->used = used;
  segment->stamp_count = stamp_count;
  memcpy(segment->stamps, stamps, stamp_count * sizeof(*stamps));
  if (fresh != NULL) { /* without it the records cannot be read, which a reader says */
    for (uint32_t id = segments->next_unit; id < ct_unit_log_next(units); id++) {
      ct_unit_log_size(units, id, segments->sizes);
    }
    segments->next_unit = ct_unit_log_next(units);
    uint8_t *before = segment->units;
    size_t before_size = segment->unit_bytes;
    segment->units = fresh;
    segment->unit_bytes = size;
    prepend_units(segment, before, before_size);
  }
  if (segments->modules != NULL) {
    free(segment->modules);
    segment->modules = segments->modules;
    segments->modules = NULL;
  }
  segment->state = WAITS;
  pthread_cond_broadcast(&segments->change);
  pthread_mutex_unlock(&segments->lock);
}

void
ct_segments_wait(struct ct_segments *segments)
{
  pthread_mutex_lock(&segments->lock);
  while (oldest(segments, WAITS) != NULL || next_parcel(segments) != NULL) {
    pthread_cond_wait(&segments->change, &segments->lock);
  }
  pthread_mutex_unlock(&segments->lock);
}

void
ct_segments_note_modules(struct ct_segments *segments, pid_t pid)
{
  char path[64], *text = NULL;
  size_t size = 0;
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  if (getdelim(&text, &size, 0, file) > 0) {
    free(segments->modules);
    segments->modules = text;
  } else {
    free(text);
  }
  fclose(file);
}

uint64_t
ct_segments_steps(struct ct_segments *segments)
{
  return ct_steps_writer_written(segments->writer).steps;
}

/* ---- life ---- */

/* Ticks of the time stamp counter per second, by a wait of some milliseconds: a thread that is new waits for it. */
static uint64_t tsc_hz;
static pthread_once_t tsc_once = PTHREAD_ONCE_INIT;

static void
measure_tsc(void)
{
  struct timespec wait = {0, 10000000};
  uint64_t tsc = __rdtsc(), ns = ct_now_ns();
  nanosleep(&wait, NULL);
  tsc_hz = (uint64_t)((double)(__rdtsc() - tsc) * 1e9 / (double)(ct_now_ns() - ns));
}

static void
fill_times(struct ct_steps_file *head)
{
  struct timespec wall;
  pthread_once(&tsc_once, measure_tsc);
  head->tsc_hz = tsc_hz;
  head->tsc = __rdtsc();
  head->clock_ns = ct_now_ns();
  clock_gettime(CLOCK_REALTIME, &wall);
  head->wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
}

static void
destroy(struct ct_segments *segments)
{
  for (uint32_t i = 0; i < PARCELS; i++) {
    ct_steps_packer_free(segments->parcels[i].packer);
  }
  ct_unit_sizes_free(segments->sizes);
  free(segments->modules);
  free(segments);
}

int
ct_segments_create(const struct ct_recorder_options *options, pid_t pid, pid_t tid, struct ct_segments **out,
                   struct ct_diag *diag)
{
  struct ct_segments *segments = calloc(1, sizeof(*segments));
  struct ct_steps_file head = {
      .pid = pid, .tid = tid, .has_vectors = options->has_vectors, .saved_parts = ct_vectors_parts()};
  if (segments == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  segments->next_unit = 1;
  fill_times(&head);
  int code = ct_steps_writer_open(options->path, &head, &segments->writer, diag);
  if (code != 0) {
    free(segments);
    return code;
  }
  pthread_mutex_init(&segments->lock, NULL);
  pthread_cond_init(&segments->change, NULL);
  segments->sizes = ct_unit_sizes_create();
  bool is_made = segments->sizes != NULL && idle_parcel(segments) != NULL;
  for (uint32_t i = 0; i < PACKERS && is_made; i++) {
    segments->packer_count +=
        ct_worker_create(&segments->packers[segments->packer_count], NULL, packer_main, segments) == 0;
  }
  if (segments->packer_count == 0) {
    ct_steps_writer_close(segments->writer, NULL);
    destroy(segments);
    return ct_fail(diag, CT_ENOMEM, "cannot start a thread");
  }
  *out = segments;
  return 0;
}

int
ct_segments_finish(struct ct_segments *segments, struct ct_recorder_counts *counts, struct ct_diag *diag)
{
  pthread_mutex_lock(&segments->lock);
  segments->is_ending = true;
  pthread_cond_broadcast(&segments->change);
  pthread_mutex_unlock(&segments->lock);
  for (uint32_t i = 0; i < segments->packer_count; i++) {
    pthread_join(segments->packers[i], NULL);
  }
  ct_steps_writer_end(segments->writer);
  segments->counts.stored = ct_steps_writer_written(segments->writer).bytes;
  segments->counts.steps = ct_steps_writer_written(segments->writer).steps;
  if (counts != NULL) {
    *counts = segments->counts;
  }
  int code = ct_steps_writer_close(segments->writer, diag);
  destroy(segments);
  return code;
}
