/* SPDX-License-Identifier: MIT */
/* itrace.subscribe of a session's socket: a client is notified of the ends of calls without asking. */
#ifndef CT_CONTROL_ITRACE_NEWS_H
#define CT_CONTROL_ITRACE_NEWS_H

#include "control/rpc.h"

#include <contrail/session.h>

/* The subscriptions of a control; all zero is none. They are the server's thread's. */
struct ct_itrace_news {
  struct ct_itrace_subscription *first;
  uint64_t count; /* that there ever were */
};

/* number: of a probe, or CT_ITRACE_EVERY. *id: what it is called. 0, or as of ct_session_itrace_subscribe. */
int ct_itrace_news_begin(struct ct_itrace_news *news, struct ct_session *session, uint32_t number,
                         struct ct_rpc_feed *feed, uint64_t *id, struct ct_diag *diag);
/* CT_ENOENT: there is none of that id, or it is over. */
int ct_itrace_news_end(struct ct_itrace_news *news, uint64_t id);

#endif
