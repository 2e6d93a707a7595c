/* Diagnostics: one rate-limited key=value line an event, to stderr or syslog.
 * Keeps errno. Thread-safe.
 */
#ifndef COMMON_DIAG_H
#define COMMON_DIAG_H

#include "common/base.h"

enum diag_level { DIAG_ERR, DIAG_WARN, DIAG_INFO, DIAG_DEBUG };

/* @program: borrowed for ever. @to_syslog: else stderr. */
void diag_init(const char *program, bool to_syslog);
/* "all", "none" or a comma list of subsystems whose debug lines appear.
 * Returns 0 or -EINVAL (list too long). */
int diag_set_debug(const char *list);
bool diag_debug_on(const char *subsys);

/* At most 20 lines a second per (subsys, fmt); a later line says how many
 * were held back. */
void diag_err(const char *subsys, const char *fmt, ...) printf_like(2, 3);
void diag_warn(const char *subsys, const char *fmt, ...) printf_like(2, 3);
void diag_info(const char *subsys, const char *fmt, ...) printf_like(2, 3);
void diag_debug(const char *subsys, const char *fmt, ...) printf_like(2, 3);

#endif
