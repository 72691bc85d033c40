/* SPDX-License-Identifier: MIT */
/* See hooked.h. */
#include "cli/hooked.h"

#include <contrail/text.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- showing ---- */

/* "3 excluded, 1 branch-into", or nothing. */
static void
print_refused(const json_t *refused)
{
  const char *key, *separator = "; not hooked: ";
  json_t *count;
  json_object_foreach((json_t *)refused, key, count)
  {
    printf("%s%" PRId64 " %s", separator, (int64_t)json_integer_value(count), key);
    separator = ", ";
  }
}

static void
print_pattern(const json_t *pattern)
{
  char matched[CT_COUNT_CHARS], hooked[CT_COUNT_CHARS];
  fputs("  ", stdout);
  ct_put_printable(stdout, ct_text_of(pattern, "pattern"), SIZE_MAX);
  printf("  (%s, %s): %s matched, %s hooked", ct_text_of(pattern, "class"), ct_text_of(pattern, "mode"),
         ct_format_count(matched, ct_number_of(pattern, "matched")),
         ct_format_count(hooked, ct_number_of(pattern, "hooked")));
  print_refused(json_object_get(pattern, "refused"));
  putchar('\n');
  if (json_object_get(pattern, "note") != NULL) {
    fputs("    ", stdout);
    ct_put_printable(stdout, ct_text_of(pattern, "note"), SIZE_MAX);
    putchar('\n');
  }
}

static void
print_change(const json_t *answer)
{
  char before[CT_COUNT_CHARS], hooked[CT_COUNT_CHARS], pause[CT_DURATION_CHARS];
  if (json_object_get(answer, "hooked") == NULL) {
    return;
  }
  printf("%s function%s hooked, before %s; the process was stopped for %s\n",
         ct_format_count(hooked, ct_number_of(answer, "hooked")), ct_number_of(answer, "hooked") == 1 ? "" : "s",
         ct_format_count(before, ct_number_of(answer, "before")),
         ct_format_duration(pause, ct_number_of(answer, "pause_ns")));
  if (ct_number_of(answer, "children") != 0) {
    printf("%s further processes changed too\n", ct_format_count(hooked, ct_number_of(answer, "children")));
  }
  if (ct_number_of(answer, "busy") != 0) {
    printf("%" PRIu64 " could not be hooked: a thread stood in their first bytes\n", ct_number_of(answer, "busy"));
  }
}

static void
print_answer(const json_t *answer, const char *nothing)
{
  const json_t *patterns = json_object_get(answer, "patterns"), *pattern;
  size_t i;
  if (json_array_size(patterns) == 0) {
    puts(nothing);
  }
  json_array_foreach((json_t *)patterns, i, pattern)
  {
    if (json_is_string(pattern)) {
      fputs("  ", stdout);
      ct_put_printable(stdout, json_string_value(pattern), SIZE_MAX);
      putchar('\n');
    } else {
      print_pattern(pattern);
    }
  }
  print_change(answer);
}

/* On stderr: which patterns match nothing, and what may have been meant. Returns how many. */
static size_t
report_unmatched(const struct ct_command *command, const json_t *unmatched)
{
  size_t i;
  json_t *one;
  json_array_foreach((json_t *)unmatched, i, one)
  {
    const char *likely = ct_text_of(one, "likely");
    fprintf(stderr, "contrail %s: '", command->name);
    ct_put_printable(stderr, ct_text_of(one, "pattern"), SIZE_MAX);
    fprintf(stderr, "' matches no function of the process%s", likely[0] != '\0' ? ": " : "");
    ct_put_printable(stderr, likely, SIZE_MAX);
    fputc('\n', stderr);
  }
  return json_array_size(unmatched);
}

/* ---- asking ---- */

/* The parameters of the call, to be freed; NULL: a pattern is not UTF-8, or out of memory. */
static char *
params_of(const struct ct_hooked_wanted *wanted)
{
  if (strcmp(wanted->verb, "list") == 0) {
    return strdup("{}");
  }
  json_t *patterns = json_array();
  int failed = 0;
  for (size_t i = 0; i < wanted->pattern_count; i++) {
    failed |= json_array_append_new(patterns, json_string(wanted->patterns[i]));
  }
  json_t *params = json_pack("{s:o}", "patterns", patterns);
  if (wanted->mode != NULL) {
    failed |= json_object_set_new(params, "mode", json_string(wanted->mode));
  }
  char *text = failed == 0 ? json_dumps(params, JSON_COMPACT) : NULL;
  json_decref(params);
  return text;
}

static int
ask(const struct ct_hooked_wanted *wanted, const char *nothing)
{
  char method[32];
  char *params = params_of(wanted);
  json_t *answer = NULL;
  if (params == NULL) {
    return ct_usage_error(wanted->command, "a pattern is not UTF-8");
  }
  snprintf(method, sizeof(method), "%s.%s", wanted->command->name, wanted->verb);
  int code = ct_ask_named(wanted->command, wanted->session, method, params, CT_CHANGE_MS, &answer);
  free(params);
  size_t unmatched = answer != NULL ? report_unmatched(wanted->command, json_object_get(answer, "unmatched")) : 0;
  if (answer != NULL && wanted->json) {
    code = ct_print_json(answer) != CT_EXIT_OK || (unmatched != 0 && unmatched == wanted->pattern_count)
               ? CT_EXIT_FAILED
               : CT_EXIT_OK;
  } else if (answer != NULL) {
    print_answer(answer, nothing);
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}

static bool
is_verb(const char *word)
{
  return strcmp(word, "add") == 0 || strcmp(word, "remove") == 0 || strcmp(word, "list") == 0;
}

/* [SESSION] VERB [PATTERN]...; -1, or an exit code. */
static int
take_words(struct ct_hooked_wanted *wanted, int argc, char **argv)
{
  int at = optind;
  if (at < argc && !is_verb(argv[at])) {
    wanted->session = argv[at++];
  }
  if (at >= argc || !is_verb(argv[at])) {
    return ct_usage_error(wanted->command, "add, remove or list?");
  }
  wanted->verb = argv[at++];
  wanted->patterns = argv + at;
  wanted->pattern_count = (size_t)(argc - at);
  bool list = strcmp(wanted->verb, "list") == 0;
  if (!list && wanted->pattern_count == 0) {
    return ct_usage_error(wanted->command, "which pattern?");
  }
  if (list && wanted->pattern_count != 0) {
    return ct_usage_error(wanted->command, "'%s' is too much", argv[at]);
  }
  if (wanted->mode != NULL && strcmp(wanted->verb, "add") != 0) {
    return ct_usage_error(wanted->command, "--mode goes with add");
  }
  return -1;
}

int
ct_hooked_run(const struct ct_command *command, const char *nothing, int argc, char **argv)
{
  struct ct_hooked_wanted wanted = {.command = command};
  int code = ct_parse(command, argc, argv, &wanted);
  if (code == -1) {
    code = take_words(&wanted, argc, argv);
  }
  return code == -1 ? ask(&wanted, nothing) : code;
}
