/* SPDX-License-Identifier: MIT */
/* See spans_grouped.h. */
#include "sql/spans_grouped.h"

#include "base/branch.h"
#include "base/hash_key.h"
#include "base/test_point.h"
#include "trace/format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of lists that are kept at a time. */
#define ROOM_BYTES (96u << 20)
enum { CHAINS_FIRST = 64 }; /* a power of two */
enum { CHUNK_FIRST = 64, CHUNK_MOST = 32 << 10, ENTRY_MOST = 13 * 10, END_SHIFT = 5, SPANS_AT_ONCE = 4096 };
static_assert(CT_SPAN_ENDS <= 1 << END_SHIFT, "how it ended is in so many bits");

/* Fields of a span that columns need. */
enum {
  NEED_THREAD = 1,
  NEED_ORDINAL = 2,
  NEED_PARENT = 4,
  NEED_ENTER = 8,
  NEED_END = 16,
  NEED_DURATION = 32,
  NEED_SELF = 64,
  NEED_OFF = 128,
  NEED_DEPTH = 256,
  NEED_CALLER = 512,
  NEED_CONTEXT = 1024,
  NEED_CALLS = 2048,
};
static const uint16_t needs[C_COUNT] = {
    [C_ID] = NEED_THREAD | NEED_ORDINAL,
    [C_PARENT] = NEED_THREAD | NEED_PARENT,
    [C_THREAD] = NEED_THREAD,
    [C_TID] = NEED_THREAD,
    [C_CALLER] = NEED_CALLER,
    [C_START] = NEED_ENTER,
    [C_END] = NEED_END,
    [C_DURATION] = NEED_DURATION,
    [C_SELF] = NEED_SELF,
    [C_OFF] = NEED_OFF,
    [C_DEPTH] = NEED_DEPTH,
    [C_STACK] = NEED_CONTEXT,
    [C_CALLS] = NEED_CALLS,
    [C_FLAGS] = NEED_ORDINAL | NEED_CALLS,
};

/* One after the other, in the order in which they were filled. */
struct chunk {
  struct chunk *next;
  uint32_t used, size;
  uint8_t data[];
};

enum state {
  KEPT,     /* all of them that were read are in the list */
  LATER,    /* forgotten: to be read when it is their turn */
  STREAMED, /* too many even then: they are given as they are read */
};

/* The spans of one function of one source. */
struct group {
  uint32_t source, fn;
  uint32_t next; /* of an id that the trace does not have: number of another group in its chain; 0: it is the last */
  enum state state;
  bool is_given;
  uint32_t reading; /* the last one that it is gathered in */
  struct chunk *first, *last;
  struct ct_span before; /* the last one put, or taken */
};

struct ct_sql_grouping {
  struct ct_sql *sql;
  struct ct_sql_span_stream stream;
  unsigned needed;
  int keys[CT_SQL_KEYS], key_count;
  struct group *groups;
  uint32_t count, capacity;
  uint32_t reading;   /* how often the stream has been begun; it may have spans of groups that are not asked for */
  uint32_t **numbers; /* of each source, NULL: none yet: the number of each function's group and 1; 0: it has none */
  uint32_t *unknown;  /* the first one of each chain likewise, as ids that the trace does not have are hashed */
  uint32_t unknown_count, chains;
  uint64_t hash_key; /* base/hash_key.h */
  uint32_t *order;   /* of the groups */
  uint32_t at;       /* in that: the group that is given */
  bool is_streaming; /* that one */
  bool is_taking;    /* that one, from its list: */
  const uint8_t *from;
  size_t bytes, room; /* of lists; how many there may be */
  uint8_t **wanted;   /* of each source, for the stream: what is read */
  struct ct_span span;
};

/* ---- lists ---- */

static uint64_t
fold(uint64_t difference)
{
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static uint64_t
unfold(uint64_t value)
{
  return value >> 1 ^ (0 - (value & 1));
}

static struct chunk *
add_chunk(struct ct_sql_grouping *g, struct group *group)
{
  uint32_t size = group->last == NULL                  ? CHUNK_FIRST + ENTRY_MOST
                  : group->last->size < CHUNK_MOST / 2 ? group->last->size * 2
                                                       : CHUNK_MOST;
  struct chunk *chunk = malloc(sizeof(*chunk) + size);
  if (chunk == NULL) {
    return NULL;
  }
  *chunk = (struct chunk){.size = size};
  *(group->last != NULL ? &group->last->next : &group->first) = chunk;
  group->last = chunk;
  g->bytes += size;
  return chunk;
}

static void
free_list(struct ct_sql_grouping *g, struct group *group)
{
  while (group->first != NULL) {
    struct chunk *next = group->first->next;
    g->bytes -= group->first->size;
    free(group->first);
    group->first = next;
  }
  group->last = NULL;
  group->before = (struct ct_span){0};
}

static int
put(struct ct_sql_grouping *g, struct group *group, const struct ct_span *s)
{
  struct chunk *chunk = group->last;
  if (CT_UNLIKELY(chunk == NULL || chunk->size - chunk->used < ENTRY_MOST) && (chunk = add_chunk(g, group)) == NULL) {
    return SQLITE_NOMEM;
  }
  struct ct_span *b = &group->before;
  unsigned needed = g->needed;
  uint8_t *at = chunk->data + chunk->used;
  at = ct_varint_put(at, (uint64_t)s->uncertain << END_SHIFT | s->end);
  at = needed & NEED_THREAD ? ct_varint_put(at, s->thread) : at;
  at = needed & NEED_ORDINAL ? ct_varint_put(at, fold(s->ordinal - b->ordinal)) : at;
  at = needed & NEED_PARENT ? ct_varint_put(at, fold(s->parent_ordinal - b->parent_ordinal)) : at;
  at = needed & NEED_ENTER ? ct_varint_put(at, fold(s->enter_tsc - b->enter_tsc)) : at;
  at = needed & NEED_END ? ct_varint_put(at, fold(s->end_tsc - b->end_tsc)) : at;
  at = needed & NEED_DURATION ? ct_varint_put(at, s->duration_ticks) : at;
  at = needed & NEED_SELF ? ct_varint_put(at, s->self_ticks) : at;
  at = needed & NEED_OFF ? ct_varint_put(at, s->off_ticks) : at;
  at = needed & NEED_DEPTH ? ct_varint_put(at, s->depth) : at;
  at = needed & NEED_CALLER ? ct_varint_put(at, s->caller_fn + 1u) : at;
  at = needed & NEED_CONTEXT ? ct_varint_put(at, s->context) : at;
  at = needed & NEED_CALLS ? ct_varint_put(at, s->calls) : at;
  chunk->used = (uint32_t)(at - chunk->data);
  b->ordinal = s->ordinal;
  b->parent_ordinal = s->parent_ordinal;
  b->enter_tsc = s->enter_tsc;
  b->end_tsc = s->end_tsc;
  return SQLITE_OK;
}

static uint64_t
take_number(const uint8_t **at)
{
  uint64_t value = 0;
  *at = ct_varint_get(*at, *at + 10, &value); /* as they were put */
  return value;
}

/* The next one of the list, as what was put; the list is over: false. */
static bool
take(struct ct_sql_grouping *g, struct group *group)
{
  struct chunk *chunk = group->first;
  if (chunk != NULL && g->from == chunk->data + chunk->used) {
    group->first = chunk->next;
    g->bytes -= chunk->size;
    free(chunk);
    chunk = group->first;
    g->from = chunk != NULL ? chunk->data : NULL;
  }
  if (chunk == NULL) {
    group->last = NULL;
    return false;
  }
  struct ct_span *s = &g->span;
  const uint8_t *at = g->from;
  unsigned needed = g->needed;
  uint64_t word = take_number(&at);
  s->end = word & ((1u << END_SHIFT) - 1);
  s->uncertain = (uint8_t)(word >> END_SHIFT);
  s->thread = needed & NEED_THREAD ? (uint32_t)take_number(&at) : 0;
  s->ordinal += needed & NEED_ORDINAL ? unfold(take_number(&at)) : 0;
  s->parent_ordinal += needed & NEED_PARENT ? unfold(take_number(&at)) : 0;
  s->enter_tsc += needed & NEED_ENTER ? unfold(take_number(&at)) : 0;
  s->end_tsc += needed & NEED_END ? unfold(take_number(&at)) : 0;
  s->duration_ticks = needed & NEED_DURATION ? take_number(&at) : 0;
  s->self_ticks = needed & NEED_SELF ? take_number(&at) : 0;
  s->off_ticks = needed & NEED_OFF ? take_number(&at) : 0;
  s->depth = needed & NEED_DEPTH ? (uint32_t)take_number(&at) : 0;
  s->caller_fn = needed & NEED_CALLER ? (uint32_t)take_number(&at) - 1 : 0;
  s->context = needed & NEED_CONTEXT ? (uint32_t)take_number(&at) : 0;
  s->calls = needed & NEED_CALLS ? (uint16_t)take_number(&at) : 0;
  g->from = at;
  return true;
}

/* ---- groups ---- */

static int
compare_groups(const void *a, const void *b, void *arg)
{
  const struct ct_sql_grouping *g = arg;
  const struct group *x = &g->groups[*(const uint32_t *)a], *y = &g->groups[*(const uint32_t *)b];
  const struct ct_sql_source *sources = g->sql->sources;
  for (int i = 0; i < g->key_count; i++) {
    bool module = g->keys[i] == C_MODULE;
    int order = 0;
    if (g->keys[i] == C_FUNCTION_ID) {
      uint64_t p = sources[x->source].function_base + x->fn, q = sources[y->source].function_base + y->fn;
      order = (p > q) - (p < q);
    } else {
      order = strcmp(ct_sql_span_name(&sources[x->source], x->fn, module),
                     ct_sql_span_name(&sources[y->source], y->fn, module));
    }
    if (order != 0) {
      return order;
    }
  }
  if (x->source != y->source) {
    return x->source < y->source ? -1 : 1;
  }
  return (x->fn > y->fn) - (x->fn < y->fn);
}

/* Of those from `at` on; what comes before has been given. */
static int
sort_groups(struct ct_sql_grouping *g)
{
  uint32_t *order = reallocarray(g->order, (size_t)g->count + 1, sizeof(*order));
  if (order == NULL) {
    return SQLITE_NOMEM;
  }
  g->order = order;
  uint32_t n = g->at;
  for (uint32_t i = 0; i < g->count; i++) {
    if (!g->groups[i].is_given) {
      order[n++] = i;
    }
  }
  if (n > g->at) {
    qsort_r(order + g->at, n - g->at, sizeof(*order), compare_groups, g);
  }
  return SQLITE_OK;
}

static uint32_t
functions_of(const struct ct_sql_grouping *g, uint32_t source)
{
  return ct_trace_function_count(g->sql->sources[source].trace);
}

static uint32_t *
chain_of(const struct ct_sql_grouping *g, uint32_t source, uint32_t fn)
{
  return &g->unknown[ct_hash(g->hash_key, (uint64_t)source << 32 | fn) & (g->chains - 1)];
}

/* Twice as many chains, for there are as many groups as chains. */
static bool
grow_chains(struct ct_sql_grouping *g)
{
  uint32_t chains = g->chains == 0 ? CHAINS_FIRST : g->chains * 2;
  uint32_t *unknown = calloc(chains, sizeof(*unknown));
  if (unknown == NULL) {
    return false;
  }
  free(g->unknown);
  g->unknown = unknown;
  g->chains = chains;
  for (uint32_t i = 0; i < g->count; i++) {
    struct group *group = &g->groups[i];
    if (group->fn >= functions_of(g, group->source)) {
      uint32_t *first = chain_of(g, group->source, group->fn);
      group->next = *first;
      *first = i + 1;
    }
  }
  return true;
}

/* Where the number of the group of such a function is, or is to be. NULL: out of memory. */
static uint32_t *
unknown_number(struct ct_sql_grouping *g, uint32_t source, uint32_t fn)
{
  if (g->unknown_count == g->chains && !grow_chains(g)) {
    return NULL;
  }
  uint32_t *number = chain_of(g, source, fn);
  while (*number != 0 && (g->groups[*number - 1].source != source || g->groups[*number - 1].fn != fn)) {
    number = &g->groups[*number - 1].next;
  }
  return number;
}

static uint32_t *
known_number(struct ct_sql_grouping *g, uint32_t source, uint32_t fn)
{
  if (g->numbers[source] == NULL) {
    g->numbers[source] = calloc((size_t)functions_of(g, source) + 1, sizeof(**g->numbers));
  }
  return g->numbers[source] != NULL ? &g->numbers[source][fn] : NULL;
}

/* That of a function, made where there is none; NULL: out of memory. */
static struct group *
group_of(struct ct_sql_grouping *g, uint32_t source, uint32_t fn)
{
  bool is_unknown = fn >= functions_of(g, source);
  if (g->count == g->capacity) { /* before the number's place is known, which may be in one of them */
    uint32_t capacity = g->capacity == 0 ? 256 : g->capacity * 2;
    struct group *groups = reallocarray(g->groups, capacity, sizeof(*groups));
    if (groups == NULL) {
      return NULL;
    }
    g->groups = groups;
    g->capacity = capacity;
  }
  uint32_t *number = is_unknown ? unknown_number(g, source, fn) : known_number(g, source, fn);
  if (number == NULL) {
    return NULL;
  }
  if (*number == 0) {
    g->groups[g->count] = (struct group){.source = source, .fn = fn, .reading = g->reading};
    g->unknown_count += is_unknown;
    *number = ++g->count;
  }
  return &g->groups[*number - 1];
}

/* Too much is kept: the last groups are forgotten until half of the room is free, but for the first one of all. */
static int
forget(struct ct_sql_grouping *g)
{
  int code = sort_groups(g);
  if (code != SQLITE_OK) {
    return code;
  }
  for (uint32_t i = g->count; i-- > g->at && g->bytes > g->room / 2;) {
    struct group *group = &g->groups[g->order[i]];
    if (group->state == KEPT && group->first != NULL) {
      free_list(g, group);
      group->state = i == g->at ? STREAMED : LATER;
    }
  }
  return SQLITE_OK;
}

/* Reads all that the stream has of groups that are kept. */
static int
gather(struct ct_sql_grouping *g)
{
  const struct ct_span *span;
  uint32_t source;
  for (uint64_t n = 0;; n++) {
    if (n % SPANS_AT_ONCE == 0 && ct_sql_is_over(g->sql)) {
      return SQLITE_INTERRUPT;
    }
    int code = g->stream.next(g->stream.arg, &span, &source);
    if (code != SQLITE_OK || span == NULL) {
      return code == SQLITE_OK ? sort_groups(g) : code;
    }
    struct group *group = group_of(g, source, span->fn);
    if (group == NULL) {
      return SQLITE_NOMEM;
    }
    if (group->state != KEPT || group->is_given || group->reading != g->reading) {
      continue;
    }
    code = put(g, group, span);
    code = code == SQLITE_OK && CT_UNLIKELY(g->bytes > g->room) ? forget(g) : code;
    if (code != SQLITE_OK) {
      return code;
    }
  }
}

static void
forget_wanted(struct ct_sql_grouping *g)
{
  for (size_t i = 0; i < g->sql->source_count; i++) {
    free(g->wanted[i]);
    g->wanted[i] = NULL;
  }
}

static int
want(struct ct_sql_grouping *g, struct group *group)
{
  uint32_t functions = functions_of(g, group->source);
  uint8_t **flags = &g->wanted[group->source];
  *flags = *flags != NULL ? *flags : calloc((size_t)functions + 1, 1);
  if (*flags == NULL) {
    return SQLITE_NOMEM;
  }
  (*flags)[group->fn < functions ? group->fn : functions] = 1;
  group->reading = g->reading;
  return SQLITE_OK;
}

/* It is the turn of a group that is not kept: all of those are read, as far as there is room, or it alone. */
static int
read_again(struct ct_sql_grouping *g)
{
  struct group *first = &g->groups[g->order[g->at]];
  int code = SQLITE_OK;
  forget_wanted(g);
  g->reading++;
  g->is_streaming = first->state == STREAMED;
  for (uint32_t i = g->at; i < g->count && code == SQLITE_OK; i++) {
    struct group *group = &g->groups[g->order[i]];
    if (group == first || (!g->is_streaming && group->state == LATER)) {
      code = want(g, group);
      group->state = g->is_streaming ? STREAMED : KEPT;
    }
  }
  if (code != SQLITE_OK) {
    return code;
  }
  g->stream.again(g->stream.arg, g->wanted);
  return g->is_streaming ? SQLITE_OK : gather(g);
}

/* ---- the whole ---- */

struct ct_sql_grouping *
ct_sql_grouping_begin(struct ct_sql *sql, const struct ct_sql_span_stream *stream, uint64_t used, const int *keys,
                      int count, int *code)
{
  struct ct_sql_grouping *g = calloc(1, sizeof(*g));
  if (g == NULL) {
    *code = SQLITE_NOMEM;
    return NULL;
  }
  g->sql = sql;
  g->hash_key = ct_hash_key();
  g->stream = *stream;
  g->room = ct_test_number("CONTRAIL_TEST_SQL_GROUPED", ROOM_BYTES);
  memcpy(g->keys, keys, (size_t)count * sizeof(*keys));
  g->key_count = count;
  for (int i = 0; i < C_COUNT; i++) {
    g->needed |= used >> i & 1 ? needs[i] : 0u;
  }
  g->numbers = calloc(sql->source_count + 1, sizeof(*g->numbers));
  g->wanted = calloc(sql->source_count + 1, sizeof(*g->wanted));
  *code = g->numbers == NULL || g->wanted == NULL ? SQLITE_NOMEM : gather(g);
  if (*code != SQLITE_OK) {
    ct_sql_grouping_end(g);
    return NULL;
  }
  return g;
}

void
ct_sql_grouping_end(struct ct_sql_grouping *g)
{
  if (g == NULL) {
    return;
  }
  for (uint32_t i = 0; i < g->count; i++) {
    free_list(g, &g->groups[i]);
  }
  for (size_t i = 0; i < g->sql->source_count; i++) {
    free(g->numbers != NULL ? g->numbers[i] : NULL);
    free(g->wanted != NULL ? g->wanted[i] : NULL);
  }
  free(g->numbers);
  free(g->wanted);
  free(g->unknown);
  free(g->groups);
  free(g->order);
  free(g);
}

/* Of the group in hand; *span NULL: it is over. */
static int
next_of_group(struct ct_sql_grouping *g, struct group *group, const struct ct_span **span)
{
  *span = NULL;
  if (!g->is_streaming) {
    *span = take(g, group) ? &g->span : NULL;
    return SQLITE_OK;
  }
  uint32_t source;
  int code;
  do {
    code = g->stream.next(g->stream.arg, span, &source);
  } while (code == SQLITE_OK && *span != NULL && (source != group->source || (*span)->fn != group->fn));
  return code;
}

int
ct_sql_grouping_next(struct ct_sql_grouping *g, const struct ct_span **span, uint32_t *source)
{
  *span = NULL;
  while (g->at < g->count) {
    struct group *group = &g->groups[g->order[g->at]];
    if (!g->is_taking) {
      int code = group->state != KEPT ? read_again(g) : SQLITE_OK;
      if (code != SQLITE_OK) {
        return code;
      }
      group = &g->groups[g->order[g->at]]; /* or one that comes before it, or it is streamed after all */
      if (group->state != KEPT && !g->is_streaming) {
        continue;
      }
      g->is_taking = true;
      g->span = (struct ct_span){.fn = group->fn};
      g->from = group->first != NULL ? group->first->data : NULL;
    }
    int code = next_of_group(g, group, span);
    if (code != SQLITE_OK || *span != NULL) {
      *source = group->source;
      return code;
    }
    group->is_given = true;
    g->is_taking = g->is_streaming = false;
    g->at++;
  }
  return SQLITE_OK;
}
