/*
 * A request by HTTP: what it says of who asks, and what it is given. Whatever that is: only the
 * token is the token; a name is this machine's only if it begins as one of its addresses, or
 * localhost, does; a view is made for who may see it alone, and each request has one answer.
 *
 * Input, in lines: the header, which stands for Host and for Authorization; the path, or nothing,
 * which is a view; the method, or nothing, which is GET; and choices, a byte:
 *
 *   bit 0: others than this machine can ask   1: the daemon has no token   2: the visitor is of its
 *   own user   3: it is not ready   4: views cannot be made   5: the line is Authorization alone,
 * and Host is localhost   6: it asks twice
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/serve/page/answers.h"
#include "daemon/serve/page/visitor.h"

#include <errno.h>
#include <strings.h>

enum {
    ELSEWHERE = 1,
    NO_TOKEN = 2,
    OWN = 4,
    NOT_READY = 8,
    NO_VIEWS = 16,
    BOTH = 32,
    TWICE = 64,
    LARGEST = 4096,
};

static const char token[] = "0123456789abcdef";

/* The request in hand, and what became of it. */
static struct {
    const char *line, *path, *method;
    unsigned choices;
    unsigned answers, status;
    unsigned views; /* that were made */
} request;

/* ---- libmicrohttpd, played ------------------------------------------------------------------ */

struct MHD_Response {
    uint32_t refs;
    void *data; /* owned */
};

const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *connection,
                                               enum MHD_ValueKind kind, const char *key);
const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(struct MHD_Connection *connection,
                                                               enum MHD_ConnectionInfoType type,
                                                               ...);
struct MHD_Response *__wrap_MHD_create_response_from_buffer(size_t size, void *buffer,
                                                            enum MHD_ResponseMemoryMode mode);
enum MHD_Result __wrap_MHD_add_response_header(struct MHD_Response *response, const char *header,
                                               const char *content);
enum MHD_Result __wrap_MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                          struct MHD_Response *response);
void __wrap_MHD_destroy_response(struct MHD_Response *response);
bool __wrap_visitor_is_own(int fd, uid_t own);

const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *connection,
                                               enum MHD_ValueKind kind, const char *key)
{
    (void)connection;
    FUZZ_ASSERT(kind == MHD_HEADER_KIND);
    if (request.choices & BOTH && strcmp(key, MHD_HTTP_HEADER_HOST) == 0)
        return "localhost";
    return request.line;
}

const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(struct MHD_Connection *connection,
                                                               enum MHD_ConnectionInfoType type,
                                                               ...)
{
    static const union MHD_ConnectionInfo info = {.connect_fd = -1};

    (void)connection;
    FUZZ_ASSERT(type == MHD_CONNECTION_INFO_CONNECTION_FD);
    return &info;
}

struct MHD_Response *__wrap_MHD_create_response_from_buffer(size_t size, void *buffer,
                                                            enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = calloc(1, sizeof *response);

    FUZZ_ASSERT(response && (size == 0 || buffer));
    response->refs = 1;
    response->data = mode == MHD_RESPMEM_MUST_FREE ? buffer : NULL;
    return response;
}

enum MHD_Result __wrap_MHD_add_response_header(struct MHD_Response *response, const char *header,
                                               const char *content)
{
    FUZZ_ASSERT(response->refs > 0);
    /* A line end would be a header of its own. */
    FUZZ_ASSERT(!strpbrk(header, "\r\n") && !strpbrk(content, "\r\n"));
    return MHD_YES;
}

enum MHD_Result __wrap_MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                          struct MHD_Response *response)
{
    (void)connection;
    FUZZ_ASSERT(response->refs > 0);
    request.answers++;
    request.status = status;
    return MHD_YES;
}

void __wrap_MHD_destroy_response(struct MHD_Response *response)
{
    FUZZ_ASSERT(response->refs > 0);
    if (--response->refs > 0)
        return;
    free(response->data);
    free(response);
}

bool __wrap_visitor_is_own(int fd, uid_t own)
{
    (void)fd;
    (void)own;
    return request.choices & OWN;
}

/* ---- what the daemon knows ------------------------------------------------------------------ */

static int make_view(void *context, const char *name, struct value *ret, struct dl_error *err)
{
    (void)context;
    request.views++;
    if (request.choices & NO_VIEWS)
        return dl_error_set(err, ENOMEM, name, "out of memory");
    bool ready = !(request.choices & NOT_READY);
    if (value_set_string(ret, "ready", ready ? "yes" : "no") < 0 ||
        value_set_string(ret, "not_ready", ready ? "" : "a \"reason\"\r\n") < 0 ||
        value_set_uint(ret, "sessions", UINT64_MAX) < 0)
        return -ENOMEM;
    return 0;
}

/* ---- who may see what ----------------------------------------------------------------------- */

static bool knows_token(void)
{
    return !(request.choices & NO_TOKEN) && strncasecmp(request.line, "Bearer ", 7) == 0 &&
           strcmp(request.line + 7, token) == 0;
}

static bool may_mean_here(const char *host)
{
    return strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "127.", 4) == 0 || *host == '[';
}

static bool is_own(void)
{
    return !(request.choices & ELSEWHERE) && request.choices & OWN &&
           (request.choices & BOTH || may_mean_here(request.line));
}

static void check_answer(void)
{
    const char *path = request.path;
    bool view = strncmp(path, "/views/", 7) == 0;
    bool totals = strcmp(path, "/metrics") == 0 || strcmp(path, "/totals") == 0;
    bool good = request.status == MHD_HTTP_OK;

    FUZZ_ASSERT(request.answers == 1);
    if (strcmp(request.method, "GET") != 0 && strcmp(request.method, "HEAD") != 0)
        FUZZ_ASSERT(!good && request.views == 0);
    if (view && !knows_token() && !is_own())
        FUZZ_ASSERT(!good && request.views == 0);
    if (totals && request.choices & ELSEWHERE && !knows_token())
        FUZZ_ASSERT(!good && request.views == 0);
    if (good)
        FUZZ_ASSERT(view || totals || strcmp(path, "/") == 0 || strcmp(path, "/healthz") == 0 ||
                    (strcmp(path, "/readyz") == 0 && !(request.choices & NOT_READY)));
}

/* ---- the input ------------------------------------------------------------------------------ */

/* The text up to the next line end, which becomes its end. */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');

    *at = end ? end + 1 : line + strlen(line);
    if (end)
        *end = '\0';
    return line;
}

static void check_words(const char *line)
{
    if (visitor_has_token(line, token))
        FUZZ_ASSERT(strncasecmp(line, "Bearer ", 7) == 0 && strcmp(line + 7, token) == 0);
    if (visitor_means_here(line))
        FUZZ_ASSERT(may_mean_here(line));
}

static void ask(struct answers *answers)
{
    request.answers = request.views = request.status = 0;
    FUZZ_ASSERT(answers_give(answers, NULL, request.path, request.method) == MHD_YES);
    check_answer();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uv_loop_t loop;
    static bool begun;

    if (len > LARGEST)
        return 0;
    if (!begun)
        FUZZ_ASSERT(uv_loop_init(&loop) == 0);
    begun = true;
    char *text = calloc(1, len + 1);
    FUZZ_ASSERT(text);
    if (len > 0)
        memcpy(text, data, len);
    char *at = text;
    request.line = next_line(&at);
    request.path = next_line(&at);
    request.method = next_line(&at);
    request.choices = (uint8_t)*at;
    if (!*request.path)
        request.path = "/views/status";
    if (!*request.method)
        request.method = "GET";
    check_words(request.line);
    struct answers *answers =
        answers_new(&loop, !(request.choices & ELSEWHERE),
                    request.choices & NO_TOKEN ? NULL : token, make_view, NULL);
    ask(answers);
    if (request.choices & TWICE)
        ask(answers);
    answers_free(answers);
    free(text);
    return 0;
}
