/* SPDX-License-Identifier: MIT */
/* Small pieces of text that the views share: durations, counts, names fit for a terminal, JSON strings. */
#ifndef CT_VIEWS_TEXT_H
#define CT_VIEWS_TEXT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* "812 ns", "12.34 us", "1.234 ms", "61.20 s": at most 10 characters for anything under 31 years. Returns buf. */
enum { CT_DURATION_CHARS = 24 };
char *ct_format_duration(char buf[CT_DURATION_CHARS], uint64_t ns);
/* "1,234,567". Returns buf. */
enum { CT_COUNT_CHARS = 32 };
char *ct_format_count(char buf[CT_COUNT_CHARS], uint64_t count);
/* "1.5 MiB". Returns buf. */
char *ct_format_bytes(char buf[CT_DURATION_CHARS], uint64_t bytes);

/* Writes text with control characters replaced by '?', so that a name cannot drive a terminal. */
void ct_put_printable(FILE *out, const char *text, size_t max_bytes);
/* Display columns of UTF-8 text, counting each character as one, and the bytes of its first `columns`. */
size_t ct_text_columns(const char *text);
size_t ct_text_bytes_of_columns(const char *text, size_t columns);

/* A JSON string; bytes that are not UTF-8 become U+FFFD. NULL only when memory is exhausted. */
json_t *ct_json_string(const char *text);

/*
 * How far an operation is; both may be NULL. update is called now and then, from the calling thread
 * only; finish before the output begins that follows the reading, if the two are apart.
 */
struct ct_view_progress {
  void (*update)(void *arg, uint64_t done, uint64_t total);
  void (*finish)(void *arg);
  void *arg;
};

/* What a view has to tell besides its output. */
struct ct_view_notes {
  uint32_t damaged_threads;
  uint32_t first_damaged_tid;
};

#endif
