/* SPDX-License-Identifier: MIT */
/* contrail trigger: the rules of a live session. */
#include "cli/ask.h"

#include <contrail/rule.h>
#include <contrail/text.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
  bool json;
};

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
};

/* What a budget has kept from it. */
static void
print_unseen(const json_t *rule)
{
  uint64_t calls = ct_number_of(rule, "unseen_calls"), functions = ct_number_of(rule, "unseen_functions");
  char text[CT_COUNT_CHARS];
  if (calls != 0) {
    printf(", %s calls only counted (budget)", ct_format_count(text, calls));
  }
  if (functions != 0) {
    printf(", %s of the functions out for a time (budget)", ct_format_count(text, functions));
  }
}

static void
print_rules(const json_t *rules)
{
  size_t i;
  json_t *rule;
  if (json_array_size(rules) == 0) {
    puts("no rules");
  }
  json_array_foreach((json_t *)rules, i, rule)
  {
    char functions[CT_COUNT_CHARS], marks[CT_COUNT_CHARS], refused[CT_COUNT_CHARS];
    fputs("  ", stdout);
    ct_put_printable(stdout, ct_text_of(rule, "rule"), SIZE_MAX);
    printf("  (functions: %s): %s marks, %s refused", ct_format_count(functions, ct_number_of(rule, "functions")),
           ct_format_count(marks, ct_number_of(rule, "marks")),
           ct_format_count(refused, ct_number_of(rule, "refused")));
    print_unseen(rule);
    putchar('\n');
  }
}

static bool
is_verb(const char *word)
{
  return strcmp(word, "add") == 0 || strcmp(word, "remove") == 0 || strcmp(word, "list") == 0;
}

/* Which rule; CT_EXIT_OK, or an exit code. */
static int
take_rule(const char *verb, int count, char **words, const char **rule)
{
  struct ct_diag diag = {""};
  bool is_list = strcmp(verb, "list") == 0;
  if (!is_list && count == 0) {
    return ct_usage_error(&ct_command_trigger, "which rule?");
  }
  if (count > (is_list ? 0 : 1)) {
    return ct_usage_error(&ct_command_trigger, "'%s' is too much; a rule is one word: write it in quotes",
                          words[is_list ? 0 : 1]);
  }
  *rule = is_list ? NULL : words[0];
  return *rule == NULL || ct_rule_check(*rule, &diag) == CT_OK
             ? CT_EXIT_OK
             : ct_usage_error(&ct_command_trigger, "rule '%.200s': %s", *rule, diag.text);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {false};
  char method[32];
  json_t *answer = NULL;
  const char *rule = NULL;
  int code = ct_parse(&ct_command_trigger, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  int at = optind;
  const char *session = at < argc && !is_verb(argv[at]) ? argv[at++] : NULL;
  if (at >= argc || !is_verb(argv[at])) {
    return ct_usage_error(&ct_command_trigger, "add, remove or list?");
  }
  const char *verb = argv[at++];
  code = take_rule(verb, argc - at, argv + at, &rule);
  if (code != CT_EXIT_OK) {
    return code;
  }
  char *params = rule != NULL ? ct_params_of("rule", rule) : strdup("{}");
  if (params == NULL) {
    return ct_usage_error(&ct_command_trigger, "the rule is not UTF-8");
  }
  snprintf(method, sizeof(method), "trigger.%s", verb);
  code = ct_ask_named(&ct_command_trigger, session, method, params, CT_CHANGE_MS, &answer);
  free(params);
  if (answer != NULL && wanted.json) {
    code = ct_print_json(answer);
  } else if (answer != NULL) {
    print_rules(json_object_get(answer, "rules"));
  }
  if (answer != NULL && json_is_true(json_object_get(answer, "unmatched"))) {
    fprintf(stderr, "contrail trigger: the rule is about no function of the process so far\n");
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}

const struct ct_command ct_command_trigger = {
    .name = "trigger",
    .summary = "change the rules of a recording while it runs",
    .synopsis = "[SESSION] add RULE\n"
                "[SESSION] remove RULE\n"
                "[SESSION] list",
    .about = "Rules are those of record --on, in quotes: 'handle_request > 10ms'. The functions of a new rule\n"
             "are hooked in full. The process is stopped while hooks go in or out.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION " " CT_COMPLETE_VERB,
    .run = run,
};
