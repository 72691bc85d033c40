/* SPDX-License-Identifier: MIT */
/* See ask.h. */
#include "cli/ask.h"

#include <contrail/control.h>

#include <stdio.h>
#include <stdlib.h>

json_t *
ct_ask(const char *id, const char *method, const char *params, int timeout_ms, int *code, struct ct_diag *diag)
{
  char *text = NULL;
  *code = ct_control_call(id, method, params, timeout_ms, &text, diag);
  json_t *answer = *code == CT_OK ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
  if (*code == CT_OK && answer == NULL) {
    *code = CT_EFORMAT;
    snprintf(diag->text, sizeof(diag->text), "what session %s answered is not understood", id);
  }
  free(text);
  return answer;
}

int
ct_ask_named(const struct ct_command *command, const char *name, const char *method, const char *params, int timeout_ms,
             json_t **answer)
{
  struct ct_diag diag = {""};
  char id[CT_CONTROL_ID_BYTES];
  int code = ct_control_find(name, id, &diag);
  if (code != CT_OK) {
    ct_command_failed(command, "%s", diag.text);
    return code == CT_ENOENT ? CT_EXIT_NO_SESSION : code == CT_ERANGE ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  *answer = ct_ask(id, method, params, timeout_ms, &code, &diag);
  if (code == CT_OK) {
    return CT_EXIT_OK;
  }
  ct_command_failed(command, "%s", diag.text);
  /* What it lacks may be something that was asked for; or it has ended meanwhile. */
  return code == CT_ENOENT && ct_control_find(id, id, NULL) == CT_ENOENT ? CT_EXIT_NO_SESSION : CT_EXIT_FAILED;
}

char *
ct_params_of(const char *key, const char *text)
{
  json_t *json = json_pack("{s:s}", key, text);
  char *params = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return params;
}

const char *
ct_text_of(const json_t *json, const char *key)
{
  const char *text = json_string_value(json_object_get(json, key));
  return text != NULL ? text : "?";
}

uint64_t
ct_number_of(const json_t *json, const char *key)
{
  return (uint64_t)json_integer_value(json_object_get(json, key));
}

int
ct_print_json(const json_t *json)
{
  int failed = json_dumpf(json, stdout, JSON_INDENT(2));
  putchar('\n');
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}
