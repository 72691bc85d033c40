/* SPDX-License-Identifier: MIT */
/* Prompts for the usual hunts: what to ask, in which order. */
#include "mcp/server.h"

#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct argument {
  const char *name, *about;
  bool is_required;
};

static const struct prompt {
  const char *name, *title, *about;
  struct argument arguments[3]; /* name NULL ends */
  const char *text;             /* $NAME: an argument */
} prompts[] = {
    {"slow_call",
     "Find a slow call",
     "What takes the time in a program",
     {{"program", "the program, with its arguments", true}},
     "Find out what takes the time in: $program\n"
     "1. launch it with wait_s (all functions), or attach if it runs already.\n"
     "2. analyze view=report sort=self: where the time itself is; sort=total: where it hangs together.\n"
     "3. analyze view=slowest filter={function: SUSPECT} shows single calls as trees; view=off shows waiting.\n"
     "4. Read `uncertain` in each answer: with losses or sampling, counts are too low.\n"
     "5. Answer with the function, its calls, its time per call, who calls it, and the query that shows it."},
    {"too_many_calls",
     "Find too many calls",
     "Which function is called far too often, and by whom",
     {{"program", "the program, with its arguments", true}},
     "Find which function of $program is called far more often than it should be, and who does that.\n"
     "1. launch with wait_s. 2. analyze view=report sort=calls. 3. analyze view=callers filter={function: SUSPECT}.\n"
     "4. query \"SELECT caller, callee, calls FROM edges ORDER BY calls DESC LIMIT 10\".\n"
     "5. Say how many calls there are for one call of the caller, and where they come from."},
    {"hang",
     "Find out why a program hangs",
     "What each thread waits for",
     {{"process", "its id or name", true}},
     "The process $process hangs. Find out why.\n"
     "1. attach with patterns left out; wait a second; it is released at the end, unharmed.\n"
     "2. analyze view=threads: the calls that each thread is in, of those that began since the attach, and the system "
     "call\n"
     "that it waits in. What waited before has no calls: launch it again under contrail, if it can be, and let it "
     "hang.\n"
     "3. analyze view=off: time off the processor.\n"
     "4. query \"SELECT tid, function, start, duration FROM open_frames ORDER BY duration DESC\".\n"
     "5. session action=stop. Say which thread waits for what since when, and who should have woken it."},
    {"crash",
     "Find out why a program crashes",
     "The signal, the calls before it, the values",
     {{"program", "the program, with its arguments", true}},
     "Find out why this crashes: $program\n"
     "1. launch with wait_s, detail: [\"all\"] if it is short. 2. analyze view=crash: signal, backtrace, last calls.\n"
     "3. query \"SELECT function, start, reason FROM spans WHERE reason IN ('killed', 'exception') ORDER BY start DESC "
     "LIMIT 20\".\n"
     "4. analyze view=output: what it wrote before. 5. itrace action=record program=... function=THE ONE, then "
     "last_write.\n"
     "6. Say what was wrong first, not only where it fell."},
    {"before_after",
     "Compare two builds",
     "What became slower, or is called more, from one build to the next",
     {{"before", "the program before", true}, {"after", "the program after", true}},
     "Find what changed from $before to $after.\n"
     "1. launch both with wait_s, the same arguments. 2. analyze view=diff trace=AFTER other=BEFORE: only what is "
     "beyond noise.\n"
     "3. analyze view=callers filter={function: WHAT CHANGED} of both. 4. Say which function, how much, and since when "
     "it is called so."},
};

json_t *
mcp_prompts_list(void)
{
  json_t *list = json_array();
  for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
    json_t *arguments = json_array();
    for (const struct argument *argument = prompts[i].arguments; argument->name != NULL; argument++) {
      json_array_append_new(arguments, json_pack("{s:s, s:s, s:b}", "name", argument->name, "description",
                                                 argument->about, "required", argument->is_required));
    }
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "name", prompts[i].name, "title", prompts[i].title,
                                          "description", prompts[i].about, "arguments", arguments));
  }
  return list;
}

/* The argument whose name begins at text. */
static const struct argument *
named(const struct prompt *prompt, const char *text)
{
  for (const struct argument *argument = prompt->arguments; argument->name != NULL; argument++) {
    if (strncmp(text, argument->name, strlen(argument->name)) == 0) {
      return argument;
    }
  }
  return NULL;
}

static json_t *
fill_in(const struct prompt *prompt, const json_t *arguments)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  for (const char *from = prompt->text; out != NULL && *from != '\0';) {
    const struct argument *argument = *from == '$' ? named(prompt, from + 1) : NULL;
    if (argument == NULL) {
      fputc(*from++, out);
      continue;
    }
    json_t *value = mcp_string(json_object_get(arguments, argument->name), false); /* as a whole, zero bytes too */
    fputs(json_is_string(value) ? json_string_value(value) : "", out);
    json_decref(value);
    from += 1 + strlen(argument->name);
  }
  bool is_whole = out != NULL && fclose(out) == 0;
  json_t *filled = is_whole ? mcp_text(text) : json_null();
  free(text);
  return filled;
}

json_t *
mcp_prompts_get(const json_t *params, char *wrong, size_t size)
{
  const char *name = mcp_get_text(params, "name"), *words[sizeof(prompts) / sizeof(prompts[0]) + 1] = {NULL};
  const json_t *arguments = json_object_get(params, "arguments");
  const struct prompt *prompt = NULL;
  for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
    words[i] = prompts[i].name;
    prompt = name != NULL && strcmp(name, prompts[i].name) == 0 ? &prompts[i] : prompt;
  }
  if (prompt == NULL) {
    const char *closest = name != NULL ? ct_closest_word(name, words) : NULL;
    snprintf(wrong, size, "there is no prompt '%.60s'%s%s", name != NULL ? name : "",
             closest != NULL ? "; perhaps " : "", closest != NULL ? closest : "");
    return NULL;
  }
  for (const struct argument *argument = prompt->arguments; argument->name != NULL; argument++) {
    if (argument->is_required && mcp_get_text(arguments, argument->name) == NULL) {
      snprintf(wrong, size, "the prompt %s needs the argument '%s'", prompt->name, argument->name);
      return NULL;
    }
  }
  return json_pack("{s:s, s:[{s:s, s:{s:s, s:o}}]}", "description", prompt->about, "messages", "role", "user",
                   "content", "type", "text", "text", fill_in(prompt, arguments));
}
