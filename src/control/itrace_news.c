/* SPDX-License-Identifier: MIT */
/* See itrace_news.h. */
#include "control/itrace_news.h"

#include "base/json.h"

#include <stdlib.h>

struct ct_itrace_subscription {
  struct ct_itrace_news *news;
  struct ct_itrace_subscription *next;
  struct ct_itrace_feed *feed;
  uint64_t id;
  uint32_t number;
  bool is_unwanted;
};

static json_t *
call_json(const struct ct_itrace_event *event)
{
  return json_pack("{s:s, s:I, s:i, s:o, s:I, s:I, s:I, s:s}", "event", "call", "call", (json_int_t)event->call, "tid",
                   event->tid, "function", event->function[0] != 0 ? ct_json_string(event->function) : json_null(),
                   "fn", (json_int_t)event->fn, "first_step", (json_int_t)event->first_step, "steps",
                   (json_int_t)event->steps, "outcome", event->outcome);
}

static char *
line_of(const struct ct_itrace_subscription *own, const struct ct_itrace_event *event)
{
  json_t *json = event->kind == CT_ITRACE_CALL_ENDED
                     ? call_json(event)
                     : json_pack("{s:s, s:s}", "event", "over", "reason", event->outcome);
  json_object_set_new(json, "number", json_integer(event->number));
  json_object_set_new(json, "subscription", json_integer((json_int_t)own->id));
  if (event->missed != 0) {
    json_object_set_new(json, "missed", json_integer((json_int_t)event->missed));
  }
  return ct_rpc_notification("itrace.event", json);
}

/* A ct_rpc_feed's. What is over for a subscriber of one probe has been reported then: also that nobody asks again. */
static char *
next_line(void *state, bool is_last, bool *is_over)
{
  struct ct_itrace_subscription *own = state;
  struct ct_itrace_event event = {.struct_size = sizeof(event)};
  int code = own->is_unwanted ? CT_ESRCH : ct_itrace_feed_next(own->feed, &event);
  *is_over = code != CT_OK && (code != CT_ENOENT || is_last);
  if (code == CT_ENOENT && is_last && own->number != CT_ITRACE_EVERY) {
    event = (struct ct_itrace_event){.kind = CT_ITRACE_PROBE_OVER, .number = own->number, .outcome = "ended"};
    code = CT_OK;
  }
  return code == CT_OK ? line_of(own, &event) : NULL;
}

static void
close_feed(void *state)
{
  struct ct_itrace_subscription *own = state, **at = &own->news->first;
  while (*at != own) {
    at = &(*at)->next;
  }
  *at = own->next;
  ct_itrace_feed_close(own->feed);
  free(own);
}

int
ct_itrace_news_begin(struct ct_itrace_news *news, struct ct_session *session, uint32_t number, struct ct_rpc_feed *feed,
                     uint64_t *id, struct ct_diag *diag)
{
  struct ct_itrace_subscription *own = calloc(1, sizeof(*own));
  int code = own != NULL ? ct_session_itrace_subscribe(session, number, &own->feed, diag)
                         : ct_fail(diag, CT_ENOMEM, "out of memory");
  if (code != CT_OK) {
    free(own);
    return code;
  }
  own->news = news;
  own->next = news->first;
  own->id = ++news->count;
  own->number = number;
  news->first = own;
  *feed =
      (struct ct_rpc_feed){.next = next_line, .close = close_feed, .state = own, .fd = ct_itrace_feed_fd(own->feed)};
  *id = own->id;
  return CT_OK;
}

int
ct_itrace_news_end(struct ct_itrace_news *news, uint64_t id)
{
  struct ct_itrace_subscription *own = news->first;
  while (own != NULL && (own->id != id || own->is_unwanted)) {
    own = own->next;
  }
  if (own == NULL) {
    return CT_ENOENT;
  }
  own->is_unwanted = true;
  return CT_OK;
}
