/* SPDX-License-Identifier: MIT */
/* Numbers and names as the commands show them. Any thread. */
#ifndef CONTRAIL_TEXT_H
#define CONTRAIL_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "812 ns", "12.34 us", "1.234 ms", "61.20 s": at most 10 characters for anything under 31 years. Returns buf. */
enum { CT_DURATION_CHARS = 24 };
char *ct_format_duration(char buf[CT_DURATION_CHARS], uint64_t ns);
/* "1,234,567". Returns buf. */
enum { CT_COUNT_CHARS = 32 };
char *ct_format_count(char buf[CT_COUNT_CHARS], uint64_t count);
/* "1.5 MiB". Returns buf. */
char *ct_format_bytes(char buf[CT_DURATION_CHARS], uint64_t bytes);

/* Writes at most max_bytes of text with control characters replaced by '?', so that a name cannot drive a terminal. */
void ct_put_printable(FILE *out, const char *text, size_t max_bytes);
/* The same in place. The two control characters of a UTF-8 sequence (U+0080 to U+009F) become one '?' each. */
void ct_make_printable(char *text);

/*
 * In place: a name of more than 48 columns without what is in < > (std::map<...>::find), if that is longer than the
 * dots that stand for it; and one of more than 80 then without its parameters.
 */
void ct_shorten_name(char *name);

/*
 * The word of the list (ended by NULL) that is most like a mistyped, cut or wrongly capitalised one; NULL when none is.
 */
const char *ct_closest_word(const char *word, const char *const *words);

/* A malloc'd copy in which bytes that are not UTF-8 are U+FFFD, fit for JSON. NULL when memory is exhausted. */
char *ct_utf8_copy(const char *text);

#ifdef __cplusplus
}
#endif

#endif
