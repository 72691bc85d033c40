/* SPDX-License-Identifier: MIT */
/*
 * Rules: which moments of a recording matter, and what to do then. One is written 'CONDITION[: ACTION]':
 *
 *   call F              F is called
 *   F > 1ms             a call of F takes longer, also while it has not returned; < <= >=; units ns us ms s m h
 *   F returns < 0       < <= > >= == != and a whole number
 *   off-cpu F > 10ms    a thread is off the processor for longer, in one go, while F is in progress; >=
 *   rate F > 1000/s     the functions of the pattern are called more often than that, together; >=
 *   signal [NAME]       the program handles a signal, or ends by one
 *   crash               a signal that reports a fault ends it
 *   every 10s
 *
 * F is a pattern of functions (select.h). Operator and threshold are the last words of a condition, so that any pattern
 * fits before them. Actions: mark (the default), dump (mark, and ct_session_dump), stop (mark, and ct_session_detach),
 * detail G (mark; the functions of pattern G have detail until the window is over).
 */
#ifndef CONTRAIL_RULE_H
#define CONTRAIL_RULE_H

#include <contrail/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_RULES_MAX 24 /* of a session */

/* 0, or CT_EINVAL with a line that says what is wrong with the text, which it does not repeat. */
int ct_rule_check(const char *text, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
