/* SPDX-License-Identifier: MIT */
/* The table of error codes; see error.h. */
#include "base/error.h"

#include <contrail/text.h>

#include <contrail/version.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

const char *
ct_version(void)
{
  return CT_VERSION;
}

const char *
ct_err_text(int code)
{
  switch (code) {
  case CT_OK:
    return "success";
  case CT_ENOMEM:
    return "out of memory";
  case CT_EIO:
    return "input/output error";
  case CT_EINVAL:
    return "invalid argument";
  case CT_EFORMAT:
    return "damaged or foreign data";
  case CT_ENOENT:
    return "no such file or directory";
  case CT_EACCES:
    return "permission denied";
  case CT_EUNSUPPORTED:
    return "not supported";
  case CT_ENOSPC:
    return "no space left on device";
  case CT_EEXIST:
    return "already exists";
  case CT_ETIMEOUT:
    return "timed out";
  case CT_EPERM_PTRACE:
    return "tracing is not permitted";
  case CT_ESRCH:
    return "no such process";
  case CT_ERANGE:
    return "out of range";
  case CT_ECANCELED:
    return "cancelled";
  }
  return "unknown error";
}

int
ct_fail(struct ct_diag *diag, int code, const char *fmt, ...)
{
  if (diag != NULL && code == CT_ECANCELED) { /* whatever it was cancelled in */
    snprintf(diag->text, sizeof(diag->text), "%s", ct_err_text(code));
  } else if (diag != NULL) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(diag->text, sizeof(diag->text), fmt, ap);
    va_end(ap);
    ct_make_printable(diag->text); /* names of files and programs are others' words; a line is for a terminal */
  }
  return code;
}

int
ct_err_from_errno(int err)
{
  switch (err) {
  case 0:
    return CT_OK;
  case ENOMEM:
    return CT_ENOMEM;
  case ECANCELED:
    return CT_ECANCELED;
  case EINVAL:
    return CT_EINVAL;
  case ENOENT:
  case ENOTDIR:
    return CT_ENOENT;
  case EACCES:
  case EPERM:
  case EROFS:
    return CT_EACCES;
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
    return CT_ENOSPC;
  case EEXIST:
    return CT_EEXIST;
  case ETIMEDOUT:
    return CT_ETIMEOUT;
  case ESRCH:
    return CT_ESRCH;
  default:
    return CT_EIO;
  }
}
