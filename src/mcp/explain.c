/* SPDX-License-Identifier: MIT */
/*
 * explain: a word, by the library's own texts and by the pages of the documentation that are built in: the glossary,
 * the tables of SQL, the limits. What is found is given as it stands there, with where it stands.
 */
#include "mcp/held.h"

#include <contrail/plan.h>
#include <contrail/span.h>
#include <contrail/text.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { PARAGRAPH_MAX = 1600, FOUND_MAX = 40, WORDS_MAX = 1000 };

static const char *const pages[] = {"glossary", "sql", "limits", "agents", NULL};

/* Letters of either case, "-" and "_" as blanks. */
static bool
is_same_character(char a, char b)
{
  a = a == '-' || a == '_' ? ' ' : (char)tolower((unsigned char)a);
  b = b == '-' || b == '_' ? ' ' : (char)tolower((unsigned char)b);
  return a == b;
}

static bool
is_word(char c)
{
  return isalnum((unsigned char)c) != 0 || c == '_';
}

/* The term as whole words (but for a plural's s) in the first `size` bytes. */
static bool
has_term(const char *text, size_t size, const char *term)
{
  size_t length = strlen(term);
  for (size_t at = 0; at + length <= size; at++) {
    size_t n = 0;
    while (n < length && is_same_character(text[at + n], term[n])) {
      n++;
    }
    size_t after = at + length + (at + length < size && text[at + length] == 's');
    if (n == length && (at == 0 || !is_word(text[at - 1])) && (after >= size || !is_word(text[after]))) {
      return true;
    }
  }
  return false;
}

static bool
is_same(const char *a, const char *b)
{
  return a != NULL && strlen(a) == strlen(b) && has_term(a, strlen(a), b);
}

/* ---- the library's texts ---- */

static void
add_names(json_t *lines, const char *term)
{
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (is_same(ct_refusal_key((enum ct_refusal)r), term)) {
      json_array_append_new(
          lines, mcp_textf("%s: a function is not hooked because: %s", term, ct_refusal_text((enum ct_refusal)r)));
    }
  }
  for (int d = 0; d < CT_DROP_COUNT; d++) {
    if (is_same(ct_drop_name((enum ct_drop)d), term)) {
      json_array_append_new(lines, mcp_textf("%s: events are lost because %s", term, ct_drop_text((enum ct_drop)d)));
    }
  }
  for (int e = 0; e < CT_SPAN_ENDS; e++) {
    if (is_same(ct_span_end_text((enum ct_span_end)e), term)) {
      json_array_append_new(lines, mcp_textf("%s: how a call ended (spans.reason)", term));
    }
  }
}

/* What the tools' own arguments of this name do. */
static void
add_arguments(const struct mcp_call *call, json_t *lines, const char *term)
{
  const char *tool, *name;
  json_t *loaded, *property;
  json_object_foreach(call->server->tools, tool, loaded)
  {
    json_object_foreach(json_object_get(json_object_get(loaded, "input"), "properties"), name, property)
    {
      const char *about = mcp_get_text(property, "description");
      if (about != NULL && is_same(name, term)) {
        json_array_append_new(lines, mcp_textf("%s, argument %s: %s", tool, name, about));
      }
    }
  }
}

/* ---- pages ---- */

/* Up to the end of a paragraph: an empty line, or where the next row or item begins. */
static size_t
paragraph_size(const char *text)
{
  const char *at = text;
  for (;;) {
    const char *newline = strchr(at, '\n');
    if (newline == NULL) {
      return strlen(text);
    }
    const char *next = newline + 1;
    if (next[0] == '\n' || next[0] == '\0' || next[0] == '|' || next[0] == '#' || strncmp(next, "* ", 2) == 0) {
      return (size_t)(next - text);
    }
    at = next;
  }
}

/* What a paragraph is about: a row's first cell, the bold words that an item begins with; all of others. */
static size_t
head_size(const char *text, size_t size)
{
  const char *end = text[0] == '|'                  ? memchr(text + 1, '|', size - 1)
                    : strncmp(text, "* **", 4) == 0 ? strstr(text + 4, "**")
                                                    : NULL;
  return end != NULL && end < text + size ? (size_t)(end - text) : size;
}

static void
add_paragraph(json_t *lines, const char *page, const char *heading, const char *text, size_t size)
{
  char *copy = strndup(text, size < PARAGRAPH_MAX ? size : PARAGRAPH_MAX);
  if (copy != NULL) {
    for (size_t i = 0; copy[i] != '\0'; i++) {
      copy[i] = copy[i] == '\n' ? ' ' : copy[i];
    }
    json_array_append_new(lines, mcp_textf("%s.md%s%.80s: %s", page, heading[0] != '\0' ? ", " : "", heading, copy));
  }
  free(copy);
}

/* Paragraphs about the term (in their heads or headings), or, with anywhere, that have it. */
static void
add_page(json_t *lines, const char *page, const char *term, bool anywhere)
{
  char heading[100] = "";
  bool is_section = false;
  const char *text = mcp_page(page);
  while (text != NULL && *text != '\0' && json_array_size(lines) < FOUND_MAX) {
    text += strspn(text, "\n");
    size_t size = paragraph_size(text);
    if (text[0] == '#') {
      size = strcspn(text, "\n") + (strchr(text, '\n') != NULL);
      snprintf(heading, sizeof(heading), "%.*s", (int)strcspn(text + strspn(text, "# "), "\n"),
               text + strspn(text, "# "));
      is_section = is_same(heading, term);
    } else if (size != 0 && strncmp(text, "|---", 4) != 0 && strncmp(text + size, "|---", 4) != 0) {
      bool is_about = anywhere
                          ? has_term(text, size, term)
                          : is_section || (head_size(text, size) < size && has_term(text, head_size(text, size), term));
      if (is_about) {
        add_paragraph(lines, page, heading, text, size);
      }
    }
    text += size != 0 ? size : 1;
  }
}

/* The term that may be meant: of the glossary, the tools' arguments, tables and columns, reasons. NULL: none is near.
 */
static json_t *
closest_term(const struct mcp_call *call, const char *term)
{
  const char *words[WORDS_MAX] = {NULL}, *tool, *name, *word;
  size_t count = 0;
  json_t *loaded, *property, *heads = json_array();
  for (int e = 0; e < CT_SPAN_ENDS; e++) {
    words[count++] = ct_span_end_text((enum ct_span_end)e);
  }
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    words[count++] = ct_refusal_key((enum ct_refusal)r);
  }
  for (int d = 0; d < CT_DROP_COUNT; d++) {
    words[count++] = ct_drop_name((enum ct_drop)d);
  }
  json_object_foreach(call->server->tools, tool, loaded)
  {
    json_object_foreach(json_object_get(json_object_get(loaded, "input"), "properties"), name, property)
    {
      words[count++] = name;
    }
  }
  for (const char *text = mcp_page("glossary"); text != NULL && *text != '\0'; text += strcspn(text, "\n")) {
    text += strspn(text, "\n");
    if (strncmp(text, "| ", 2) == 0) {
      size_t length = strcspn(text + 2, "|(,");
      json_array_append_new(heads, json_stringn(text + 2, length - (length != 0 && text[length + 1] == ' ')));
    }
  }
  for (size_t i = 0; i < json_array_size(heads) && count < WORDS_MAX / 2; i++) {
    word = json_string_value(json_array_get(heads, i));
    words[count++] = word != NULL ? word : "";
  }
  for (size_t i = 0; count < WORDS_MAX - 1 && (word = ct_sql_word(i)) != NULL; i++) {
    words[count++] = word;
  }
  const char *closest = ct_closest_word(term, words);
  json_t *found = closest != NULL ? mcp_text(closest) : NULL;
  json_decref(heads);
  return found;
}

static void
report_unknown(struct mcp_call *call, const char *term)
{
  json_t *closest = closest_term(call, term);
  const char *word = json_string_value(closest);
  mcp_doubt(call, "the documentation that is built in has nothing about '%.100s'%s%s", term,
            word != NULL ? "; perhaps " : "", word != NULL ? word : "");
  mcp_suggest(call, "explain without term: the words that there are; resources/read contrail://docs/glossary");
  json_decref(closest);
}

static void
add_overview(json_t *lines)
{
  json_array_append_new(lines,
                        json_string("tables of query: spans, functions, edges, threads, processes, modules, events, "
                                    "values, output, crash, windows, open_frames, lost, histogram, blocks"));
  json_array_append_new(lines, json_string("how to find: a slow call, a hang, lock contention, system calls, a hot "
                                           "caller, a memory leak, a regression (term: one of these)"));
  for (int e = 0; e < CT_SPAN_ENDS; e++) {
    json_array_append_new(lines, mcp_textf("how a call ended: %s", ct_span_end_text((enum ct_span_end)e)));
  }
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    json_array_append_new(lines, mcp_textf("why a function is not hooked: %s (%s)", ct_refusal_key((enum ct_refusal)r),
                                           ct_refusal_text((enum ct_refusal)r)));
  }
  for (int d = 0; d < CT_DROP_COUNT; d++) {
    json_array_append_new(
        lines, mcp_textf("why events are lost: %s (%s)", ct_drop_name((enum ct_drop)d), ct_drop_text((enum ct_drop)d)));
  }
}

bool
mcp_tool_explain(struct mcp_call *call)
{
  const char *term = mcp_get_text(call->arguments, "term"), *cursor = mcp_get_text(call->arguments, "cursor");
  if (cursor != NULL) {
    return mcp_put_next_page(call, cursor, mcp_get_count(call->arguments, "limit", 0));
  }
  json_t *lines = json_array();
  if (term == NULL || term[0] == '\0') {
    add_overview(lines);
  } else {
    mcp_put(call, "term", json_string(term));
    term += strncmp(term, "--", 2) == 0 ? 2 : 0;
    const char *dot = strchr(term, '.'); /* spans.self: a column */
    term = dot != NULL && dot[1] != '\0' ? dot + 1 : term;
    add_names(lines, term);
    add_arguments(call, lines, term);
    for (size_t i = 0; pages[i] != NULL; i++) {
      add_page(lines, pages[i], term, false);
    }
    for (size_t i = 0; pages[i] != NULL && json_array_size(lines) == 0; i++) {
      add_page(lines, pages[i], term, true);
    }
  }
  if (json_array_size(lines) == 0) {
    report_unknown(call, mcp_get_text(call->arguments, "term"));
  } else {
    mcp_suggest(call, "resources/read contrail://docs/sql (or glossary, limits, agents): whole pages");
  }
  mcp_put_page(call, "lines", NULL, lines, mcp_get_count(call->arguments, "limit", 0), false);
  return true;
}
