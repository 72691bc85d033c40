/* SPDX-License-Identifier: MIT */
/*
 * See index.h. The file, little endian:
 *
 *   head     struct head
 *   chunks   struct summary for each: a part of a block of CHUNK steps or some more; block after block
 *   data     of each chunk: its filters over words that are written, words that are loaded, and units; its ranges; the
 *            state at its begin, if that is not the block's (checkpoint.h)
 *
 * A filter is lines of 64 bytes: the key's hash chooses the line and five bits in it, so that a question reads one.
 */
#include "steps/index.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "steps/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "ctsidx6"
enum { LINE = 64, BITS_PER_KEY = 12, BITS = 5, LONG_STORE = 512, RANGES_MAX = 4096, THREADS_MAX = 8, CHUNK = 1 << 17 };

struct head {
  char magic[8];
  uint64_t file_bytes; /* of the steps */
  uint64_t steps, blocks;
  uint64_t chunks, data_bytes;
  uint32_t blocks_check; /* of the blocks' heads: two files of the same size are told apart */
  uint32_t check;        /* crc32c of what follows this head */
};

struct summary {
  uint64_t at;   /* in the data */
  uint64_t step; /* its first one */
  uint32_t block;
  uint32_t word_lines, load_lines, unit_lines, ranges, state_bytes;
  uint16_t registers; /* written, a bit each */
  uint8_t is_long;    /* more ranges than are kept: anything may be written */
  uint8_t has_alone;
  uint32_t gap; /* its last one: step from the first of the block, + 1; 0: none */
  uint32_t hole;
};

struct range {
  uint64_t start, end;
};

struct ct_steps_index {
  struct head head;
  uint8_t *bytes; /* summaries and data */
  size_t size, capacity;
  const struct summary *summaries; /* in bytes */
  size_t *first;                   /* chunk of each block, and their number */
  const uint8_t *data;
};

static inline uint64_t
hash_of(uint64_t key)
{
  key *= 0x9e3779b97f4a7c15ull;
  key ^= key >> 32;
  return key * 0xd6e8feb86659fd93ull;
}

static inline uint32_t
line_of(uint64_t hash, uint32_t lines)
{
  return (uint32_t)(((hash >> 32) * lines) >> 32);
}

/*
 * Chunks of a loop have the same keys. With a salt of its own for each, a key that is wrongly taken to be in one is not
 * so in all of them.
 */
static void
filter_add(uint8_t *lines, uint32_t count, uint64_t salt, uint64_t key)
{
  uint64_t hash = hash_of(key ^ hash_of(salt)), bits = hash * 0xff51afd7ed558ccdull;
  uint8_t *line = lines + (size_t)line_of(hash, count) * LINE;
  for (int i = 0; i < BITS; i++, bits >>= 9) {
    line[(bits & 511) >> 3] |= (uint8_t)(1u << (bits & 7));
  }
}

static bool
filter_has(const uint8_t *lines, uint32_t count, uint64_t salt, uint64_t key)
{
  uint64_t hash = hash_of(key ^ hash_of(salt)), bits = hash * 0xff51afd7ed558ccdull;
  const uint8_t *line = lines + (size_t)line_of(hash, count) * LINE;
  for (int i = 0; i < BITS && count != 0; i++, bits >>= 9) {
    if ((line[(bits & 511) >> 3] >> (bits & 7) & 1) == 0) {
      return false;
    }
  }
  return count != 0;
}

/* ---- sets of keys, emptied for each block ---- */

struct set {
  uint64_t *slots; /* key + 1; 0: free */
  uint64_t *keys;
  size_t count, mask, capacity;
};

static bool
set_grow(struct set *set)
{
  size_t size = set->slots == NULL ? 1024 : 2 * (set->mask + 1);
  uint64_t *slots = calloc(size, sizeof(*slots)), *keys = realloc(set->keys, size / 2 * sizeof(*keys));
  set->keys = keys != NULL ? keys : set->keys;
  if (slots == NULL || keys == NULL) {
    free(slots);
    return false;
  }
  for (size_t i = 0; i < set->count; i++) {
    size_t at = hash_of(keys[i]) & (size - 1);
    while (slots[at] != 0) {
      at = (at + 1) & (size - 1);
    }
    slots[at] = keys[i] + 1;
  }
  free(set->slots);
  set->slots = slots;
  set->mask = size - 1;
  set->capacity = size / 2;
  return true;
}

static inline bool
set_add(struct set *set, uint64_t key)
{
  if (set->count == set->capacity && !set_grow(set)) {
    return false;
  }
  size_t at = hash_of(key) & set->mask;
  while (set->slots[at] != 0) {
    if (set->slots[at] == key + 1) {
      return true;
    }
    at = (at + 1) & set->mask;
  }
  set->slots[at] = key + 1;
  set->keys[set->count++] = key;
  return true;
}

static void
set_empty(struct set *set)
{
  if (set->slots != NULL) {
    memset(set->slots, 0, (set->mask + 1) * sizeof(*set->slots));
  }
  set->count = 0;
}

/* ---- making ---- */

struct maker {
  struct set words, loads, units;
  struct range *ranges;
  size_t range_count;
  struct summary summary, *summaries; /* of this chunk; of those before it in the share */
  size_t summary_count, summary_capacity;
  struct ct_steps_index *part; /* where their data goes */
  uint8_t state[CT_STEPS_CHECKPOINT_BYTES];
  uint64_t first_step; /* of the block */
  const struct ct_steps_plan *last;
  bool failed;
};

static void
note_write(struct maker *m, uint64_t address, uint64_t bytes)
{
  if (bytes == 0 || m->summary.is_long) {
    return;
  }
  uint64_t end = address + bytes - 1 < address ? UINT64_MAX : address + bytes - 1;
  if (bytes <= LONG_STORE) {
    for (uint64_t word = address >> 3; word <= end >> 3; word++) {
      m->failed |= !set_add(&m->words, word);
    }
  } else if (m->range_count < RANGES_MAX) {
    m->ranges[m->range_count++] = (struct range){address, end};
  } else {
    m->summary.is_long = 1;
  }
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct maker *m = context;
  (void)cursor;
  if (step->plan != m->last && step->plan != NULL) {
    m->last = step->plan;
    m->failed |= !set_add(&m->units, step->plan->id);
  }
  m->summary.has_alone |= step->plan == NULL;
  m->summary.registers |= step->effects != NULL ? step->effects->writes : 0xffff;
  if (step->did.load_size != 0) {
    m->failed |= !set_add(&m->loads, step->did.load_address >> 3) ||
                 !set_add(&m->loads, (step->did.load_address + step->did.load_size - 1) >> 3);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    uint64_t bytes;
    note_write(m, store->address, __builtin_mul_overflow(store->count, store->size, &bytes) ? UINT64_MAX : bytes);
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
  }
  if (ct_steps_is_gap(event)) {
    m->summary.gap = (uint32_t)(event->step - m->first_step) + 1;
  }
}

static uint32_t
lines_for(size_t keys)
{
  return (uint32_t)((keys * BITS_PER_KEY + 8 * LINE - 1) / (8 * LINE));
}

/* Room at the end of the bytes, zeroed; NULL: out of memory. */
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
  uint8_t *at = index->bytes + index->size;
  memset(at, 0, bytes);
  index->size += bytes;
  return at;
}

static bool
set_has(const struct set *set, uint64_t key)
{
  size_t at = hash_of(key) & set->mask;
  while (set->count != 0 && set->slots[at] != 0) {
    if (set->slots[at] == key + 1) {
      return true;
    }
    at = (at + 1) & set->mask;
  }
  return false;
}

/* What is written is in the other filter. */
static void
leave_written_out(struct maker *m)
{
  size_t kept = 0;
  for (size_t i = 0; i < m->loads.count; i++) {
    if (!set_has(&m->words, m->loads.keys[i])) {
      m->loads.keys[kept++] = m->loads.keys[i];
    }
  }
  m->loads.count = kept; /* its slots are emptied before the next block */
}

static void
filter_fill(uint8_t *lines, uint32_t count, uint64_t salt, const struct set *set)
{
  for (size_t i = 0; i < set->count; i++) {
    filter_add(lines, count, salt, set->keys[i]);
  }
}

static bool
put_chunk(struct maker *m)
{
  struct ct_steps_index *part = m->part;
  m->summary.word_lines = lines_for(m->words.count);
  leave_written_out(m);
  m->summary.load_lines = lines_for(m->loads.count);
  m->summary.unit_lines = lines_for(m->units.count);
  m->summary.ranges = (uint32_t)m->range_count;
  m->summary.at = part->size;
  size_t words = (size_t)m->summary.word_lines * LINE, units = (size_t)m->summary.unit_lines * LINE;
  size_t loads = (size_t)m->summary.load_lines * LINE;
  size_t ranges = m->range_count * sizeof(struct range);
  uint8_t *at = more(part, words + loads + units + ranges + m->summary.state_bytes);
  if (m->summary_count == m->summary_capacity) {
    size_t capacity = m->summary_capacity == 0 ? 64 : 2 * m->summary_capacity;
    struct summary *grown = reallocarray(m->summaries, capacity, sizeof(*grown));
    m->failed |= grown == NULL;
    m->summaries = grown != NULL ? grown : m->summaries;
    m->summary_capacity = grown != NULL ? capacity : m->summary_capacity;
  }
  if (at == NULL || m->failed) {
    return false;
  }
  filter_fill(at, m->summary.word_lines, m->summary.step, &m->words);
  filter_fill(at + words, m->summary.load_lines, m->summary.step, &m->loads);
  filter_fill(at + words + loads, m->summary.unit_lines, m->summary.step, &m->units);
  memcpy(at + words + loads + units, m->ranges, ranges);
  memcpy(at + words + loads + units + ranges, m->state, m->summary.state_bytes);
  m->summaries[m->summary_count++] = m->summary;
  return true;
}

static void
begin_chunk(struct maker *m, size_t block, uint64_t step)
{
  set_empty(&m->words);
  set_empty(&m->loads);
  set_empty(&m->units);
  m->range_count = 0;
  m->last = NULL;
  m->summary = (struct summary){.step = step, .block = (uint32_t)block};
}

static void
visit_checkpoint(void *context, const struct ct_steps_checkpoint *checkpoint)
{
  struct maker *m = context;
  uint32_t block = m->summary.block;
  m->failed |= !put_chunk(m);
  begin_chunk(m, block, checkpoint->number);
  m->summary.state_bytes = (uint32_t)ct_steps_checkpoint_pack(checkpoint, m->state);
}

static bool
index_block(struct maker *m, struct ct_steps_cursor *cursor, size_t block, const struct ct_steps_place *place)
{
  uint64_t holes = ct_steps_cursor_holes(cursor);
  size_t first = m->summary_count;
  m->first_step = place->first_step;
  begin_chunk(m, block, place->first_step);
  ct_steps_cursor_scan(cursor, block, UINT64_MAX, visit_step, m);
  bool good = put_chunk(m);
  if (good && ct_steps_cursor_holes(cursor) != holes) { /* to be looked at each time, so that it is told each time */
    for (size_t i = first; i < m->summary_count; i++) {
      m->summaries[i].is_long = m->summaries[i].has_alone = 1;
    }
  }
  return good;
}

/* A share of the blocks, by a thread with a reader of its own. */
struct share {
  struct ct_steps_reader *reader; /* of the caller: its path */
  size_t first, end;
  struct ct_steps_index part; /* their data */
  struct summary *summaries;
  size_t summary_count;
  int code;
  pthread_t thread;
  bool is_started;
};

static void *
make_share(void *argument)
{
  struct share *share = argument;
  struct ct_steps_reader *reader = NULL;
  struct maker *m = calloc(1, sizeof(*m));
  share->code = m != NULL ? ct_steps_reader_open(ct_steps_reader_path(share->reader), &reader, NULL) : CT_ENOMEM;
  struct ct_steps_cursor *cursor = share->code == 0 ? ct_steps_cursor_open(reader) : NULL;
  bool good = cursor != NULL && (m->ranges = malloc(RANGES_MAX * sizeof(*m->ranges))) != NULL &&
              ct_steps_reader_blocks(reader) >= share->end;
  if (good) {
    ct_steps_reader_set_watch(reader, ct_steps_reader_watch(share->reader));
    m->part = &share->part;
    ct_steps_cursor_events(cursor, visit_event, m);
    ct_steps_cursor_checkpoints(cursor, CHUNK, visit_checkpoint, m);
  }
  for (size_t block = share->first; block < share->end && good && !ct_steps_reader_is_over(reader); block++) {
    good = index_block(m, cursor, block, ct_steps_reader_place(reader, block));
  }
  ct_steps_cursor_close(cursor);
  ct_steps_reader_close(reader);
  if (m != NULL) {
    free(m->words.slots);
    free(m->words.keys);
    free(m->loads.slots);
    free(m->loads.keys);
    free(m->units.slots);
    free(m->units.keys);
    free(m->ranges);
    share->summaries = m->summaries;
    share->summary_count = m->summary_count;
    free(m);
  }
  share->code = good ? 0 : CT_ENOMEM;
  return NULL;
}

/* The shares one after the other: summaries first. */
static bool
join(struct share *shares, unsigned count, struct ct_steps_index *index)
{
  size_t data = 0, chunks = 0;
  for (unsigned i = 0; i < count; i++) {
    for (size_t k = 0; k < shares[i].summary_count; k++) {
      shares[i].summaries[k].at += data;
    }
    data += shares[i].part.size;
    chunks += shares[i].summary_count;
  }
  uint8_t *at = more(index, chunks * sizeof(struct summary) + data);
  for (unsigned i = 0; i < count && at != NULL && shares[i].summary_count != 0; i++) {
    memcpy(at, shares[i].summaries, shares[i].summary_count * sizeof(struct summary));
    at += shares[i].summary_count * sizeof(struct summary);
  }
  for (unsigned i = 0; i < count && at != NULL && shares[i].part.size != 0; i++) {
    memcpy(at, shares[i].part.bytes, shares[i].part.size);
    at += shares[i].part.size;
  }
  index->head.chunks = chunks;
  index->head.data_bytes = data;
  return at != NULL;
}

static int
make(struct ct_steps_reader *reader, struct ct_steps_index *index)
{
  struct share shares[THREADS_MAX] = {0};
  size_t blocks = ct_steps_reader_blocks(reader);
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned count = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (unsigned)processors;
  count = blocks < 2 * (size_t)count ? 1 : count;
  for (unsigned i = 0; i < count; i++) {
    shares[i].reader = reader;
    shares[i].first = blocks * i / count;
    shares[i].end = blocks * (i + 1) / count;
    shares[i].is_started = i > 0 && pthread_create(&shares[i].thread, NULL, make_share, &shares[i]) == 0;
  }
  bool good = true;
  for (unsigned i = 0; i < count; i++) {
    if (shares[i].is_started) {
      pthread_join(shares[i].thread, NULL);
    } else {
      make_share(&shares[i]);
    }
    good = good && shares[i].code == 0;
  }
  good = good && join(shares, count, index);
  for (unsigned i = 0; i < count; i++) {
    free(shares[i].part.bytes);
    free(shares[i].summaries);
  }
  return good ? 0 : CT_ENOMEM;
}

/* ---- the file ---- */

static struct head
head_of(const struct ct_steps_reader *reader)
{
  size_t blocks = ct_steps_reader_blocks(reader);
  struct head head = {.magic = MAGIC,
                      .file_bytes = ct_steps_reader_bytes(reader),
                      .steps = ct_steps_reader_steps(reader),
                      .blocks = blocks,
                      .blocks_check = ct_steps_reader_check(reader)};
  return head;
}

/* What the filters and ranges of a chunk take. */
static uint64_t
filter_bytes(const struct summary *s)
{
  return ((uint64_t)s->word_lines + s->load_lines + s->unit_lines) * LINE + (uint64_t)s->ranges * sizeof(struct range);
}

/* Whether what the summaries say lies in the data, and each block has its chunks. */
static bool
set_pointers(struct ct_steps_index *index)
{
  size_t blocks = index->head.blocks, known = 0;
  index->summaries = (const struct summary *)index->bytes;
  index->data = index->bytes + index->head.chunks * sizeof(struct summary);
  index->first = calloc(blocks + 1, sizeof(*index->first));
  for (uint64_t i = 0; i < index->head.chunks && index->first != NULL; i++) {
    const struct summary *s = &index->summaries[i];
    uint64_t bytes = filter_bytes(s) + s->state_bytes;
    if (s->at > index->head.data_bytes || bytes > index->head.data_bytes - s->at || s->block >= blocks ||
        s->block + 1u < known || s->block > known) {
      return false;
    }
    if (s->block == known) {
      index->first[known++] = i;
    }
  }
  if (index->first != NULL) {
    index->first[blocks] = index->head.chunks;
  }
  return index->first != NULL && known == blocks;
}

static bool
load(const char *path, const struct head *wanted, struct ct_steps_index *index)
{
  struct stat status;
  struct head head;
  int fd = ct_open_regular(path);
  bool good = fd >= 0 && fstat(fd, &status) == 0 && ct_read_at(fd, &head, sizeof(head), 0) == sizeof(head) &&
              memcmp(head.magic, MAGIC, sizeof(MAGIC)) == 0 && head.file_bytes == wanted->file_bytes &&
              head.steps == wanted->steps && head.blocks == wanted->blocks &&
              head.blocks_check == wanted->blocks_check && head.data_bytes <= (uint64_t)status.st_size &&
              head.chunks <= (uint64_t)status.st_size / sizeof(struct summary) &&
              (uint64_t)status.st_size == sizeof(head) + head.chunks * sizeof(struct summary) + head.data_bytes;
  if (good) {
    size_t size = (size_t)status.st_size - sizeof(head);
    index->bytes = malloc(size + 1);
    good = index->bytes != NULL && ct_read_at(fd, index->bytes, size, sizeof(head)) == size &&
           ct_crc32c(0, index->bytes, size) == head.check;
    index->size = index->capacity = size;
    index->head = head;
  }
  if (fd >= 0) {
    close(fd);
  }
  good = good && set_pointers(index);
  if (!good) {
    free(index->first);
    free(index->bytes);
    *index = (struct ct_steps_index){.bytes = NULL};
  }
  return good;
}

/* Under another name first: whoever reads it has the old one or the new one. */
static void
save(const char *path, const struct ct_steps_index *index)
{
  char name[4200];
  snprintf(name, sizeof(name), "%s.%d", path, (int)getpid());
  int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return;
  }
  bool good = write(fd, &index->head, sizeof(index->head)) == sizeof(index->head);
  for (size_t at = 0; at < index->size && good;) {
    ssize_t n = write(fd, index->bytes + at, index->size - at);
    good = n > 0 || (n < 0 && errno == EINTR);
    at += n > 0 ? (size_t)n : 0;
  }
  good = close(fd) == 0 && good;
  if (!good || rename(name, path) != 0) {
    unlink(name);
  }
}

static bool
name_of(const struct ct_steps_reader *reader, char *path, size_t size)
{
  return snprintf(path, size, "%s.index", ct_steps_reader_path(reader)) < (int)size;
}

bool
ct_steps_index_load(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  char path[4096];
  struct ct_steps_index *index = calloc(1, sizeof(*index));
  struct head head = head_of(reader);
  bool good = index != NULL && name_of(reader, path, sizeof(path)) && load(path, &head, index);
  if (good) {
    *out = index;
  } else {
    free(index);
  }
  return good;
}

int
ct_steps_index_open(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  char path[4096];
  if (ct_steps_index_load(reader, out)) {
    return 0;
  }
  struct ct_steps_index *index = calloc(1, sizeof(*index));
  int code = index != NULL ? make(reader, index) : CT_ENOMEM;
  code = code == 0 && ct_steps_reader_is_over(reader) ? CT_ECANCELED : code;
  if (code == 0) {
    struct head head = head_of(reader);
    head.chunks = index->head.chunks;
    head.data_bytes = index->head.data_bytes;
    head.check = ct_crc32c(0, index->bytes, index->size);
    index->head = head;
    code = set_pointers(index) ? 0 : CT_ENOMEM;
  }
  if (code != 0) {
    ct_steps_index_close(index);
    return code;
  }
  if (name_of(reader, path, sizeof(path))) {
    save(path, index);
  }
  *out = index;
  return 0;
}

int
ct_steps_index_want(struct ct_steps_reader *reader, size_t block, uint64_t read, bool makes,
                    struct ct_steps_index **index)
{
  enum { MANY = 30000, LONG_BLOCK = 4 * CHUNK };
  bool is_long = ct_steps_reader_place(reader, block)->steps > LONG_BLOCK;
  if (*index != NULL || (read <= MANY && !is_long) || ct_steps_index_load(reader, index)) {
    return 0;
  }
  return read > MANY && makes ? ct_steps_index_open(reader, index) : 0;
}

void
ct_steps_index_close(struct ct_steps_index *index)
{
  if (index != NULL) {
    free(index->first);
    free(index->bytes);
    free(index);
  }
}

/* ---- questions ---- */

bool
ct_steps_index_is_worth(const struct ct_steps_reader *reader)
{
  enum { BLOCKS = 48, STEPS = 2000000 }; /* a loop's block may have a million of them */
  size_t blocks = ct_steps_reader_blocks(reader);
  return blocks > BLOCKS || ct_steps_reader_steps(reader) > STEPS;
}

bool
ct_steps_index_chunk_writes(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size)
{
  const struct summary *s = &index->summaries[chunk];
  uint64_t end = address + size - 1;
  if (s->is_long || size > LONG_STORE || end < address) {
    return true;
  }
  for (uint64_t word = address >> 3; word <= end >> 3; word++) {
    if (filter_has(index->data + s->at, s->word_lines, s->step, word)) {
      return true;
    }
  }
  const uint8_t *ranges = index->data + s->at + ((uint64_t)s->word_lines + s->load_lines + s->unit_lines) * LINE;
  for (uint32_t i = 0; i < s->ranges; i++) {
    struct range range;
    memcpy(&range, ranges + i * sizeof(range), sizeof(range));
    if (range.start <= end && address <= range.end) {
      return true;
    }
  }
  return false;
}

bool
ct_steps_index_chunk_touches(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size)
{
  const struct summary *s = &index->summaries[chunk];
  bool may = ct_steps_index_chunk_writes(index, chunk, address, size);
  for (uint64_t word = address >> 3; word <= (address + size - 1) >> 3 && !may; word++) {
    may = filter_has(index->data + s->at + (size_t)s->word_lines * LINE, s->load_lines, s->step, word);
  }
  return may;
}

bool
ct_steps_index_chunk_runs(const struct ct_steps_index *index, size_t chunk, uint32_t unit)
{
  const struct summary *s = &index->summaries[chunk];
  return filter_has(index->data + s->at + ((size_t)s->word_lines + s->load_lines) * LINE, s->unit_lines, s->step, unit);
}

bool
ct_steps_index_chunk_has_alone(const struct ct_steps_index *index, size_t chunk)
{
  return index->summaries[chunk].has_alone != 0;
}

bool
ct_steps_index_chunk_gap(const struct ct_steps_index *index, size_t chunk, uint64_t *step)
{
  uint32_t gap = index->summaries[chunk].gap;
  *step = gap != 0 ? gap - 1 : 0;
  return gap != 0;
}

size_t
ct_steps_index_chunks(const struct ct_steps_index *index, size_t block, size_t *first)
{
  *first = index->first[block];
  return index->first[block + 1] - index->first[block];
}

uint64_t
ct_steps_index_chunk_step(const struct ct_steps_index *index, size_t chunk)
{
  return index->summaries[chunk].step;
}

bool
ct_steps_index_checkpoint(const struct ct_steps_index *index, size_t block, uint64_t step,
                          struct ct_steps_checkpoint *checkpoint)
{
  size_t low = index->first[block], high = index->first[block + 1];
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (index->summaries[middle].step <= step) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const struct summary *s = &index->summaries[low];
  return s->state_bytes != 0 &&
         ct_steps_checkpoint_unpack(index->data + s->at + filter_bytes(s), s->state_bytes, checkpoint);
}

/* ---- of a whole block ---- */

bool
ct_steps_index_may_write(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_writes(index, chunk, address, size);
  }
  return may;
}

bool
ct_steps_index_may_touch(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_touches(index, chunk, address, size);
  }
  return may;
}

bool
ct_steps_index_may_run(const struct ct_steps_index *index, size_t block, uint32_t unit)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_runs(index, chunk, unit);
  }
  return may;
}

bool
ct_steps_index_has_alone(const struct ct_steps_index *index, size_t block)
{
  bool has = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !has; chunk++) {
    has = ct_steps_index_chunk_has_alone(index, chunk);
  }
  return has;
}

bool
ct_steps_index_gap(const struct ct_steps_index *index, size_t block, uint64_t *step)
{
  size_t chunk = index->first[block + 1];
  bool has = false;
  while (!has && chunk > index->first[block]) {
    has = ct_steps_index_chunk_gap(index, --chunk, step);
  }
  return has;
}

uint64_t
ct_steps_index_bytes(const struct ct_steps_index *index)
{
  return sizeof(index->head) + index->size;
}
