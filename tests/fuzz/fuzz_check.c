/* SPDX-License-Identifier: MIT */
/* A line of contrail check: refused with a reason, or what was parsed of it, written out again, is the same check. */
#include "fuzz.h"

#include "views/check.h"

static const char *const fields[] = {"calls", "open", "total", "self", "min", "avg", "p50", "p95", "p99", "max"};
static const char *const ops[] = {"<", "<=", ">", ">=", "==", "!="};

static void
write_again(const struct ct_check *check)
{
  char *text = NULL;
  struct ct_check again;
  if (strncmp(check->pattern, "no", 2) == 0 && strchr(" \t\n\v\f\r", check->pattern[2]) != NULL) {
    return; /* "no open no losses": with the pattern first it would be a line of the other form */
  }
  CHECK(asprintf(&text, "%s.%s %s %.0f%s", check->pattern, fields[check->field], ops[check->op], check->number,
                 ct_check_is_count(check) ? "" : "ns") > 0);
  if (strlen(text) < 4000 && check->number < 1e15 && check->number == (double)(uint64_t)check->number) {
    CHECK(ct_check_parse(text, &again, NULL) == 0);
    CHECK(again.kind == check->kind && again.field == check->field && again.op == check->op);
    CHECK(again.number == check->number && strcmp(again.pattern, check->pattern) == 0);
    ct_check_destroy(&again);
  }
  free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *line = malloc(size + 1);
  struct ct_check check;
  struct ct_diag diag = {""};
  CHECK(line != NULL);
  memcpy(line, data, size);
  line[size] = '\0';
  if (ct_check_parse(line, &check, &diag) == 0) {
    CHECK(check.text != NULL && check.text[0] != '\0');
    CHECK((check.kind == CT_CHECK_FIELD) == (check.pattern != NULL));
    if (check.kind == CT_CHECK_FIELD) {
      CHECK(check.pattern[0] != '\0');
      write_again(&check);
    }
    for (enum ct_check_bound bound = CT_BOUND_EXACT; bound <= CT_BOUND_NONE; bound++) {
      CHECK(ct_check_answer(&check, check.number, bound) <= CT_CHECK_UNANSWERED);
    }
    ct_check_destroy(&check);
  } else {
    CHECK(diag.text[0] != '\0');
  }
  free(line);
  return 0;
}
