/* SPDX-License-Identifier: MIT */
/*
 * Errors. A function that can fail returns 0 or one of these negative codes, and leaves its other outputs as they were.
 * One that takes a struct ct_diag (which may be NULL) also puts a line of English there: what is wrong and what to do
 * about it, without a line end. The library prints nothing and never ends the process.
 *
 * struct ct_diag keeps its size. Codes may be added: treat an unknown one as CT_EIO.
 */
#ifndef CONTRAIL_ERROR_H
#define CONTRAIL_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

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
  CT_ECANCELED = -14, /* by the caller: struct ct_view_progress and the like, ct_session_cancel */
};

struct ct_diag {
  char text[512];
};

/* A short English text for a code of enum ct_err. Never NULL. Any thread. */
const char *ct_err_text(int code);

#ifdef __cplusplus
}
#endif

#endif
