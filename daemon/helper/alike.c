#include "daemon/helper/alike.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALIKE_CODE "code of "

enum {
    ALIKE_OWN_WORDS =
        4, /* of the command, before the objects' names: interpreter, -m, module, --code */
    ALIKE_TELL_MS = 1000,
    ALIKE_TIMES = 120, /* so often, and it counts as hanging */
};

static bool alike_matters_in(const struct spec_dataset *dataset)
{
    bool matters = dataset->kind == DATASET_PYTHON;

    for (uint32_t i = 0; !matters && i < dataset->n_datasets; i++)
        matters = alike_matters_in(&dataset->datasets[i]);
    return matters;
}

bool alike_matters(const struct dl_spec *spec)
{
    return alike_matters_in(&spec->dataset);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The names of its objects: how many there are, of which `ret` gets as many as it has room for. */
static size_t alike_list(const struct spec_dataset *dataset, char **ret, size_t room)
{
    size_t n = 0;

    if (dataset->kind == DATASET_PYTHON && dataset->object) {
        if (room > 0)
            ret[0] = dataset->object;
        n = 1;
    }
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        n += alike_list(&dataset->datasets[i], ret + min_u64(n, room), room - min_u64(n, room));
    return n;
}

/* With room for `objects` of them; owned, its strings are borrowed. *ret_n: words so far. NULL: out
 * of memory. */
static char **alike_command(const char *interpreter, bool code_alone, size_t objects, size_t *ret_n)
{
    char **args = calloc(ALIKE_OWN_WORDS + objects + 1, sizeof *args);
    size_t n = 0;

    if (!args)
        return NULL;
    args[n++] = (char *)(uintptr_t)interpreter;
    args[n++] = (char *)(uintptr_t) "-m";
    args[n++] = (char *)(uintptr_t) "dloaderd._alike";
    if (code_alone)
        args[n++] = (char *)(uintptr_t) "--code";
    *ret_n = n;
    return args;
}

static pid_t alike_start(char **args, int out)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (dup2(out, STDOUT_FILENO) >= 0)
            (void)execve(args[0], args, environ);
        _exit(127);
    }
    return pid;
}

/* Up to its end, or as much as there is room for; a final NUL. */
static int alike_read(int fd, const struct data_progress *progress, char ret[static ALIKE_MAX])
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    size_t len = 0;

    for (int times = 0; times < ALIKE_TIMES;) {
        int n = poll(&one, 1, ALIKE_TELL_MS);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && progress)
            progress->tell(progress->owner, "", 0, UINT64_MAX);
        times += n == 0;
        ssize_t got = n > 0 ? read(fd, ret + len, ALIKE_MAX - 1 - len) : -1;
        if (got > 0)
            len += (size_t)got;
        ret[len] = '\0';
        if (got == 0)
            return 0;
    }
    return -ETIMEDOUT;
}

static int alike_refuse(const char *interpreter, int r, int status, struct dl_error *err)
{
    if (r < 0)
        return dl_error_set(err, -r, interpreter, "cannot be asked which versions it has: %s",
                            strerror(-r));
    return dl_error_set(err, ENOPKG, interpreter,
                        "cannot say which versions it has (status %d): it needs the package "
                        "dloaderd of this release; python of the configuration names the "
                        "interpreter, python_path where it finds packages",
                        WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static int alike_run(char **args, const struct data_progress *progress, char ret[static ALIKE_MAX],
                     struct dl_error *err)
{
    int ends[2], status = 0;

    ret[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    _cleanup_fd_ int in = ends[0];
    pid_t pid = alike_start(args, ends[1]);
    int r = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (r == 0)
        r = alike_read(in, progress, ret);
    if (r < 0 && pid > 0)
        (void)kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return r < 0 || status != 0 ? alike_refuse(args[0], r, status, err) : 0;
}

int alike_ask(const char *interpreter, const struct dl_spec *spec, bool code_alone,
              const struct data_progress *progress, char ret[static ALIKE_MAX],
              struct dl_error *err)
{
    size_t objects = alike_list(&spec->dataset, NULL, 0), n;
    _cleanup_free_ char **args = alike_command(interpreter, code_alone, objects + 1, &n);

    if (!args)
        return -ENOMEM;
    n += alike_list(&spec->dataset, args + n, objects);
    if (spec->collate.kind == COLLATE_PYTHON && spec->collate.object)
        args[n] = spec->collate.object;
    return alike_run(args, progress, ret, err);
}

/* The module that a line is about; ends the line behind it. NULL: it is about something else. */
static char *alike_module(char *line)
{
    size_t begins = strlen(ALIKE_CODE);
    char *end = strncmp(line, ALIKE_CODE, begins) == 0 ? strrchr(line, ' ') : NULL;

    if (!end || end < line + begins)
        return NULL;
    *end = '\0';
    return line + begins;
}

int alike_answer(const char *interpreter, const char *theirs, const struct data_progress *progress,
                 char ret[static ALIKE_MAX], struct dl_error *err)
{
    _cleanup_free_ char *text = strdup(theirs);
    size_t most = 1, n;

    for (const char *at = theirs; (at = strchr(at, '\n')); at++)
        most++;
    _cleanup_free_ char **args = alike_command(interpreter, false, most, &n);
    if (!text || !args)
        return -ENOMEM;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if ((args[n] = alike_module(line)))
            n++;
    return alike_run(args, progress, ret, err);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The line of `text` that begins with the first `len` letters of `wanted`; *ret_len: its length. */
static const char *alike_find(const char *text, const char *wanted, size_t len, size_t *ret_len)
{
    for (const char *line = text; *line; line += *ret_len + (line[*ret_len] == '\n')) {
        *ret_len = strcspn(line, "\n");
        if (*ret_len >= len && strncmp(line, wanted, len) == 0)
            return line;
    }
    *ret_len = 0;
    return "";
}

/* What it is about, with the space behind it. */
static size_t alike_subject(const char *line, size_t len)
{
    while (len > 0 && line[len - 1] != ' ')
        len--;
    return len;
}

bool alike_is_code(const char *line, size_t len)
{
    static const char *const begins[] = {ALIKE_CODE, "bytecode "};

    for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
        if (len > strlen(begins[i]) && memcmp(line, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

int alike_compare(const char *daemons, const char *helpers, struct dl_error *err)
{
    size_t len, other_len;

    for (const char *line = daemons; *line; line += len + (line[len] == '\n')) {
        len = strcspn(line, "\n");
        const char *other = alike_find(helpers, line, alike_subject(line, len), &other_len);

        if (len == other_len && strncmp(line, other, len) == 0)
            continue;
        return dl_error_set(
            err, ESTALE, "helpers.versions",
            "the daemon's machine has %.*s, the helper's %.*s: samples may be "
            "others; install the same on both%s",
            (int)len, line, *other ? (int)other_len : 4, *other ? other : "none",
            alike_is_code(line, len) ? "" : ", or allow it by helpers.versions: any of the daemon");
    }
    return 0;
}
