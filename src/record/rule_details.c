/* SPDX-License-Identifier: MIT */
/*
 * Rules with the action detail. A mark of one has its functions hooked with detail until the window that it is in is
 * over; then they are hooked as before. The process is stopped for both, as for any change of what is traced; the
 * trampolines stay, so a rule needs new ones at its first mark only. All of it is the session's thread's.
 */
#include "record/session_internal.h"

#include "base/clock.h"

#define AGAIN_MS 20 /* between looks whether a window is over that ends with an event */

/* Milliseconds until the time of a clock reading. */
static int
ms_until_tsc(const struct ct_rules *rules, uint64_t tsc, uint64_t now_tsc)
{
  uint64_t tick_ms = rules->ticks_a_second / 1000 + 1, left = tsc > now_tsc ? (tsc - now_tsc) / tick_ms + 1 : 1;
  bool may_shrink = ct_windows_limits(rules->windows)->post_events != 0;
  return left < AGAIN_MS || may_shrink ? AGAIN_MS : left < 60000 ? (int)left : 60000;
}

static void
count_begin(struct session_triggers *triggers, uint32_t begun, uint64_t took_ns, bool is_done)
{
  for (; begun != 0; begun &= begun - 1) {
    struct rule_detail *detail = &triggers->details[__builtin_ctz(begun)];
    detail->times += is_done;
    detail->missed += !is_done;
    detail->slowest_ns = is_done && took_ns > detail->slowest_ns ? took_ns : detail->slowest_ns;
  }
}

int
session_serve_details(struct ct_session *session, uint32_t marked, int ms)
{
  struct session_triggers *triggers = &session->triggers;
  struct ct_modules *modules = &session->recording.modules;
  triggers->details_wanted |= marked;
  if ((triggers->details_wanted | modules->details_on) == 0) {
    return ms;
  }
  uint64_t now_tsc = __builtin_ia32_rdtsc(), begin = ct_now_ns();
  uint64_t end = ct_windows_end_around(triggers->windows, now_tsc);
  uint32_t before = modules->details_on, wanted = triggers->details_wanted;
  uint32_t on = end != 0 ? before | wanted : 0;
  if (on == before) {
    count_begin(triggers, wanted & ~on, 0, false); /* its window was over before we came to it */
    triggers->details_wanted = 0;
  } else if (session_is_recorded(session)) {
    struct ct_session_change change = {0};
    struct ct_diag diag = {""};
    modules->details_on = on;
    int code = session_rehook(session, &change, &diag);
    if (code != 0) {
      modules->details_on = before;
      session_note(session, diag.text[0] != '\0' ? diag.text : ct_err_text(code));
    }
    count_begin(triggers, wanted & ~before, ct_now_ns() - begin, code == 0 && end != 0);
    triggers->details_wanted = 0;
    session->recording.manifest_is_old = true;
  } else if (!session->recording.image_live) { /* the next one begins with these */
    modules->details_on = on;
    triggers->details_wanted = 0;
  }
  int wait = modules->details_on != 0 ? ms_until_tsc(triggers->rules, end, now_tsc) : ms;
  return wait < ms ? wait : ms;
}
