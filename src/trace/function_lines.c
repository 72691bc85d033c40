/* SPDX-License-Identifier: MIT */
/*
 * The function table on its way to the file. A module's lines are made by the thread that has hooked it, before the
 * program can call it, and given to whoever encodes by a list without a lock: the program waits neither for the
 * encoder, which may be at work for milliseconds, nor for the disk. Before each block the encoder queues what has been
 * given, so a function's line lies in its file before the first block with an event of it does:
 *
 *   lines added -> given (release) -> the program goes on -> event in the ring -> block made: taken (acquire), queued
 */
#include "trace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTION_NAME_MAX 65535u /* longer names are cut */
#define LINE_MAX_BYTES    (FUNCTION_NAME_MAX + 128)
static_assert(LINE_MAX_BYTES <= FUNCTIONS_BUFFER, "every line fits");

struct ct_function_chunk {
  struct ct_function_chunk *next; /* given before this one */
  size_t fill;
  char lines[FUNCTIONS_BUFFER];
};

/* A number in base 10, which is a constant for the compiler, or 16; and a tab. Returns the end. */
static inline __attribute__((always_inline)) char *
put_number(char *out, uint64_t number, unsigned base)
{
  char digits[20];
  int count = 0;
  do {
    digits[count++] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  while (count > 0) {
    *out++ = digits[--count];
  }
  *out++ = '\t';
  return out;
}

/* A name is a line's last field: control characters become question marks. */
static char *
put_name(char *out, const char *name, size_t length)
{
  const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
  uint64_t found = 0;
  size_t i = 0;
  memcpy(out, name, length);
  for (; i + 8 <= length; i += 8) { /* eight at a time; it may find some where there are none, and never misses one */
    uint64_t x;
    memcpy(&x, name + i, 8);
    uint64_t del = x ^ (ones * 0x7f);
    found |= ((x - ones * 0x20) & ~x & tops) | ((del - ones) & ~del & tops);
  }
  for (i = found != 0 ? 0 : i; i < length; i++) {
    unsigned char c = (unsigned char)name[i];
    out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
  }
  return out + length;
}

static char *
put_line(char *p, uint32_t id, uint32_t module, uint64_t address, uint64_t size, const char *mode, const char *raw_name,
         size_t length)
{
  size_t mode_length = strnlen(mode, 16);
  p = put_number(p, id, 10);
  p = put_number(p, module, 10);
  p = put_number(p, address, 16);
  p = put_number(p, size, 10);
  memcpy(p, mode, mode_length);
  p += mode_length;
  *p++ = '\t';
  if (length != 0) {
    p = put_name(p, raw_name, length);
  }
  *p++ = '\n';
  return p;
}

void
ct_function_lines_end(struct ct_function_lines *lines)
{
  struct ct_function_chunk *chunk = lines->chunk;
  struct ct_trace_writer *writer = lines->writer;
  lines->chunk = NULL;
  if (chunk == NULL) {
    return;
  }
  /* relaxed: only who gives lines changes it, one at a time; the manifest's is as of some moment */
  if (lines->count > atomic_load_explicit(&writer->function_count, memory_order_relaxed)) {
    atomic_store_explicit(&writer->function_count, lines->count, memory_order_relaxed);
  }
  chunk->next = atomic_load_explicit(&writer->given, memory_order_relaxed);
  /* release: pairs with the acquire in take_given */
  while (!atomic_compare_exchange_weak_explicit(&writer->given, &chunk->next, chunk, memory_order_release,
                                                memory_order_relaxed)) {
  }
}

int
ct_function_lines_add(struct ct_function_lines *lines, uint32_t id, uint32_t module, uint64_t address, uint64_t size,
                      const char *mode, const char *raw_name)
{
  struct ct_trace_writer *writer = lines->writer;
  if (ct_writer_error(writer) != CT_OK) {
    return ct_writer_error(writer);
  }
  size_t length = raw_name == NULL ? 0 : strnlen(raw_name, FUNCTION_NAME_MAX);
  if (lines->chunk != NULL && length + 128 > sizeof(lines->chunk->lines) - lines->chunk->fill) {
    ct_function_lines_end(lines);
  }
  if (lines->chunk == NULL) {
    /* acquire: pairs with the release of what was in it, in ct_trace_writer_flush_functions */
    lines->chunk = atomic_exchange_explicit(&writer->spare_lines, NULL, memory_order_acquire);
    if (lines->chunk == NULL && (lines->chunk = malloc(sizeof(*lines->chunk))) == NULL) {
      return ct_writer_fail(writer, CT_ENOMEM, "out of memory for the names of functions");
    }
    lines->chunk->fill = 0;
  }
  char *begin = lines->chunk->lines;
  char *end = put_line(begin + lines->chunk->fill, id, module, address, size, mode, raw_name, length);
  lines->chunk->fill = (size_t)(end - begin);
  lines->count = id + 1 > lines->count ? id + 1 : lines->count;
  return CT_OK;
}

int
ct_trace_writer_function(struct ct_trace_writer *writer, uint32_t id, uint32_t module, uint64_t address, uint64_t size,
                         const char *mode, const char *raw_name)
{
  struct ct_function_lines *own = &writer->own_lines;
  own->writer = writer;
  int err = ct_function_lines_add(own, id, module, address, size, mode, raw_name);
  if (err == CT_OK && own->count > atomic_load_explicit(&writer->function_count, memory_order_relaxed)) {
    atomic_store_explicit(&writer->function_count, own->count, memory_order_relaxed);
  }
  bool is_full = own->chunk != NULL && own->chunk->fill > FUNCTIONS_BUFFER - LINE_MAX_BYTES;
  return err == CT_OK && is_full ? ct_trace_writer_flush_functions(writer) : err;
}

/* What has been given, oldest first. */
static struct ct_function_chunk *
take_given(struct ct_trace_writer *writer)
{
  struct ct_function_chunk *first = NULL;
  if (atomic_load_explicit(&writer->given, memory_order_relaxed) == NULL) {
    return NULL;
  }
  /* acquire: pairs with the release in ct_function_lines_end */
  struct ct_function_chunk *chunk = atomic_exchange_explicit(&writer->given, NULL, memory_order_acquire);
  while (chunk != NULL) {
    struct ct_function_chunk *next = chunk->next;
    chunk->next = first;
    first = chunk;
    chunk = next;
  }
  return first;
}

int
ct_trace_writer_flush_functions(struct ct_trace_writer *writer)
{
  if (writer->own_lines.chunk != NULL) {
    ct_function_lines_end(&writer->own_lines);
  }
  for (struct ct_function_chunk *chunk = take_given(writer), *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    if (ct_writer_error(writer) == CT_OK) {
      memcpy(ct_writer_thread_reserve(writer, chunk->fill), chunk->lines, chunk->fill);
      ct_writer_thread_commit(writer, CT_WRITER_FUNCTIONS, NULL, chunk->fill, 0);
    }
    free(atomic_exchange_explicit(&writer->spare_lines, chunk, memory_order_acq_rel));
  }
  return ct_writer_error(writer);
}

void
ct_function_lines_begin(struct ct_trace_writer *writer)
{
  struct ct_function_chunk *chunk = malloc(sizeof(*chunk));
  if (chunk != NULL) {
    memset(chunk, 1, sizeof(*chunk));
  }
  atomic_store_explicit(&writer->spare_lines, chunk, memory_order_relaxed);
}

uint32_t
ct_function_lines_count(const struct ct_trace_writer *writer)
{
  return atomic_load_explicit(&writer->function_count, memory_order_relaxed);
}

void
ct_function_lines_free(struct ct_trace_writer *writer)
{
  free(writer->own_lines.chunk);
  free(atomic_exchange_explicit(&writer->spare_lines, NULL, memory_order_acquire));
  for (struct ct_function_chunk *chunk = take_given(writer), *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
}
