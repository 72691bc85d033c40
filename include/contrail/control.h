/* SPDX-License-Identifier: MIT */
/*
 * Control of live sessions from other processes: a Unix socket for each session, and the asking side.
 *
 * The sockets lie in $XDG_RUNTIME_DIR/contrail, or /tmp/contrail-UID, in a directory of the user's own with mode 0700;
 * they have mode 0600, and who connects must be the same user or root. On them JSON-RPC 2.0 is spoken, a request or
 * batch on each line; parameters are by name:
 *
 *   status                    what there is to know of the session
 *   pause, resume             ct_session_pause, ct_session_resume
 *   stop {"end": BOOLEAN}     ct_session_detach: the process runs on. With end it is sent SIGTERM
 *   dump {"directory": PATH}  ct_session_dump, of a session that keeps the last stretch only; PATH, if given, is
 * absolute trace.add {"patterns": [PATTERN...], "mode": MODE}, trace.remove {"patterns": ...}, trace.list exclude.add
 * {"patterns": ...}, exclude.remove {"patterns": ...}, exclude.list ct_session_trace_add and so on, for each pattern
 *
 *   mark {"name": TEXT}       ct_session_mark; the name may be left out
 *   trigger.add {"rule": RULE}, trigger.remove {"rule": RULE}, trigger.list
 *   itrace.open {"function": PATTERN, "condition": TEXT, "calls": N}, itrace.close {"number": N}, itrace.list: calls
 * that are recorded as instructions; "state" is "done" when all have been itrace.wait {"number": N, "timeout": MS,
 * "after": CALLS}: the same when that has come, or more than so many calls have ended, or the time is over; with what
 * has become of the calls. Other requests are answered meanwhile itrace.subscribe {"number": N}: the same pushed:
 * notifications itrace.event, each with the end of a call, or of what was asked for. Without a number: of all, also of
 * later ones. itrace.unsubscribe {"subscription": ID}
 *
 * The first five answer with the status, dump also with a member "dump" that says what it wrote; mark answers with the
 * status too, trigger with the rules, itrace with its rows, the others with the patterns. contrail(1) describes both.
 */
#ifndef CONTRAIL_CONTROL_H
#define CONTRAIL_CONTROL_H

#include <contrail/error.h>
#include <contrail/session.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the side of the session ---- */

struct ct_control; /* opaque */

/*
 * Opens a socket for a session that has a process, and answers on it, by a thread of its own. A client is delayed by
 * the calls of other clients only, a session by no client. CT_EEXIST: some session of this user records that process.
 */
int ct_control_open(struct ct_session *session, struct ct_control **out, struct ct_diag *diag);
/* "PROGRAM-PID"; lives as long as the control. */
const char *ct_control_id(const struct ct_control *control);
/* Ends it, and before the session is closed. The call that is under way is still answered. Accepts NULL. */
void ct_control_close(struct ct_control *control);

/* ---- the asking side: any thread ---- */

enum { CT_CONTROL_ID_BYTES = 64 };

/* Calls visit with the id of each session of this user, in order of the ids; one may end meanwhile. */
typedef void ct_control_visit(void *context, const char *id);
int ct_control_list(ct_control_visit *visit, void *context, struct ct_diag *diag);
/*
 * The id of the session that name means: an id, the pid of its process, the name of its program if one session has
 * that (what comes before the pid in its id, or as ps has it), or NULL for the only one. CT_ENOENT: there is none;
 * CT_ERANGE: there are several.
 */
int ct_control_find(const char *name, char id[CT_CONTROL_ID_BYTES], struct ct_diag *diag);
/*
 * One call. params: a JSON object, or NULL; *result: JSON, to be freed. Besides what the call fails with: CT_ENOENT
 * when there is no such session (any more), CT_ETIMEOUT after timeout_ms without an answer (the call may be under way),
 * CT_EUNSUPPORTED for a method it does not have, CT_EINVAL for wrong parameters.
 */
int ct_control_call(const char *id, const char *method, const char *params, int timeout_ms, char **result,
                    struct ct_diag *diag);

/* A connection on which notifications come (itrace.subscribe). One thread's. */
struct ct_control_feed; /* opaque */
/* The call that begins them; as of ct_control_call, *result too. */
int ct_control_feed_open(const char *id, const char *method, const char *params, int timeout_ms, char **result,
                         struct ct_control_feed **out, struct ct_diag *diag);
/*
 * The next one: *event, its params as JSON, to be freed. CT_ETIMEOUT: none has come in timeout_ms (0: it only looks,
 * negative: any time); CT_ENOENT: the session has ended.
 */
int ct_control_feed_next(struct ct_control_feed *feed, int timeout_ms, char **event, struct ct_diag *diag);
/*
 * To wait on by poll(): it can be read when more has come, or the session has ended. What has come already does not
 * show there: first ct_control_feed_next until CT_ETIMEOUT.
 */
int ct_control_feed_fd(const struct ct_control_feed *feed);
/* Accepts NULL. */
void ct_control_feed_close(struct ct_control_feed *feed);

#ifdef __cplusplus
}
#endif

#endif
