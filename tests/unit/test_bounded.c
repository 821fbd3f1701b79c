/* Are programs with bounded.c ended by an allocation that is too large? Others than these are no
 * proof. */
#include "tests/lib/harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether a process that asks for so many MiB gets them, and ends well. */
static bool survives(size_t mib)
{
    int status;
    pid_t pid = fork();

    assert_return_code(pid, 0);
    if (pid == 0) {
        int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(none, STDERR_FILENO); /* what the sanitizer says of it */
        char *volatile data = malloc(mib << 20);
        if (data)
            data[mib] = 1;
        _exit(data ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

TEST(test_what_is_too_large)
{
#if defined(__SANITIZE_ADDRESS__)
    assert_true(survives(127));
    assert_false(survives(129));
#else
    assert_true(survives(1));
    print_message("# skipped: built without AddressSanitizer\n");
#endif
}
