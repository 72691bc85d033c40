/* SPDX-License-Identifier: MIT */
/*
 * Error codes and the one-line reason that goes with them. Library code returns
 * 0 or one of these codes; when the caller passes a ct_diag it also gets a line
 * of text that says what is wrong and what to do. Only front ends print.
 */
#ifndef CT_BASE_ERROR_H
#define CT_BASE_ERROR_H

enum ct_err {
  CT_OK = 0,
  CT_ENOMEM = -1,
  CT_EIO = -2,
  CT_EINVAL = -3,
  CT_EFORMAT = -4, /* damaged or foreign data */
  CT_ENOENT = -5,
  CT_EACCES = -6,
  CT_EUNSUPPORTED = -7,
  CT_ENOSPC = -8,
  CT_EEXIST = -9,
  CT_ETIMEOUT = -10,
  CT_EPERM_PTRACE = -11,
  CT_ESRCH = -12,
  CT_ERANGE = -13,
};

struct ct_diag {
  char text[512];
};

/* A short English text for a code of enum ct_err. Never NULL. */
const char *ct_err_text(int code);

/* Formats the reason into diag (which may be NULL) and returns code. */
int ct_fail(struct ct_diag *diag, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The ct_err code that stands for a value of errno. */
int ct_err_from_errno(int err);

#endif
