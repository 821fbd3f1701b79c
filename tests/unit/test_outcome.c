/* What `check` and `run` print, for people and as JSON. */
#include "client/dlctl/render.h"
#include "client/dlctl/run/outcome.h"
#include "tests/lib/harness.h"

#include <fcntl.h>
#include <stdio.h>

/* What outcome_report() writes to standard output. */
static const char *report(const char *verb, bool json, const struct outcome *outcome)
{
    static char text[8192];
    const struct verb named = {.name = verb};
    const struct options o = {.verb = &named, .json = json};
    const char *path = harness_file("out", "", 0);
    int saved, fd;
    ssize_t n;

    fflush(stdout);
    saved = dup(STDOUT_FILENO);
    fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
    assert_true(saved >= 0 && fd >= 0);
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    int status = outcome_report(&o, outcome);
    fflush(stdout);
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    close(saved);
    n = pread(fd, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    close(fd);
    assert_int_equal(status, STATUS_DONE);
    return text;
}

static void assert_says(const char *text, const char *want)
{
    if (!strstr(text, want))
        fail_msg("'%s' does not say '%s'", text, want);
}

static void fill(struct outcome *outcome)
{
    static const struct leaf leaves[] = {
        {.path = (char *)"image", .dtype = "uint8", .ndim = 2, .shape = {4, 9}},
        {.path = (char *)"name", .dtype = "string", .ndim = 1, .shape = {64}, .is_text = true},
        {.path = (char *)"raw", .dtype = "bytes", .is_text = true},
    };

    *outcome = (struct outcome){.length = 1000, .steps = 16, .seed = 7};
    assert_int_equal(outcome_set_name(outcome, "digits"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
        struct leaf leaf = leaves[i];

        if (i == 1)
            render_quoted("a\x1b[1m", 5, leaf.quoted, sizeof leaf.quoted);
        assert_int_equal(outcome_add_leaf(outcome, leaf.path, &leaf), 0);
    }
}

TEST(test_text_leaves)
{
    struct outcome outcome;
    const char *text;

    fill(&outcome);
    text = report("check", false, &outcome);
    assert_says(text, "dataset   1000 samples, 16 steps an epoch\n");
    assert_says(text, "tree      image    uint8      [4, 9]\n");
    assert_says(text, "          name     string     [64]  \"a\\x1b[1m\"\n");
    assert_says(text, "          raw      bytes      []\n");
    text = report("check", true, &outcome);
    assert_says(text, "\"length\":1000,\"steps\":16,");
    assert_says(text, "{\"path\":\"image\",\"dtype\":\"uint8\",\"shape\":[4,9],\"min\":null,");
    assert_says(text, "{\"path\":\"name\",\"kind\":\"string\",\"shape\":[64]},"
                      "{\"path\":\"raw\",\"kind\":\"bytes\",\"shape\":[]}]");
    outcome_deinit(&outcome);
}

/* A batch that is one text has no path to show. */
TEST(test_lone_text)
{
    const struct leaf leaf = {.dtype = "string", .ndim = 1, .shape = {2}, .is_text = true};
    struct outcome outcome = {0};

    assert_int_equal(outcome_set_name(&outcome, "x"), 0);
    assert_int_equal(outcome_add_leaf(&outcome, "", &leaf), 0);
    assert_says(report("check", false, &outcome), "tree      (text)   string     [2]\n");
    assert_says(report("check", true, &outcome),
                "{\"path\":\"\",\"kind\":\"string\",\"shape\":[2]}");
    outcome_deinit(&outcome);
}

/* An iterable dataset that does not say how much there is. */
TEST(test_unknown_counts)
{
    struct outcome outcome = {.length = OUTCOME_UNKNOWN, .steps = OUTCOME_UNKNOWN, .seed = 7};

    assert_int_equal(outcome_set_name(&outcome, "x"), 0);
    for (int run = 0; run < 2; run++) {
        const char *verb = run ? "run" : "check";

        assert_says(report(verb, false, &outcome),
                    "dataset   unknown samples, unknown steps an epoch\n");
        assert_says(report(verb, true, &outcome), "\"length\":null,\"steps\":null,\"seed\":7");
    }
    outcome_deinit(&outcome);
}

/* Batches that are measured in tokens; of others nothing is said of tokens. */
TEST(test_tokens)
{
    struct outcome outcome = {
        .seconds = 2, .tally = {.batches = 3, .samples = 5, .tokens = 9000, .padded = 12000}};

    assert_int_equal(outcome_set_name(&outcome, "x"), 0);
    for (int run = 0; run < 2; run++) {
        const char *verb = run ? "run" : "check";

        outcome.tally.padded = 12000;
        assert_says(report(verb, false, &outcome),
                    "tokens    9000, 4500 tokens/s, 25 % of 12000 padded\n");
        assert_says(report(verb, true, &outcome),
                    "\"tokens\":9000,\"padded\":12000,\"padding\":0.25,\"tokens_per_s\":4500.0");
        outcome.tally.padded = 0;
        assert_null(strstr(report(verb, false, &outcome), "tokens"));
        assert_null(strstr(report(verb, true, &outcome), "tokens"));
    }
    outcome_deinit(&outcome);
}

TEST(test_verdict)
{
    struct outcome outcome = {.has_verdict = true,
                              .verdict = {.kind = VERDICT_LOADER,
                                          .stage = STAGE_COLLATE,
                                          .worker = 1,
                                          .lost_ns = 1500000000,
                                          .text = "loader-bound: so"}};

    assert_int_equal(outcome_set_name(&outcome, "x"), 0);
    assert_says(report("run", false, &outcome), "verdict   loader-bound: so\n");
    assert_says(report("run", true, &outcome),
                "\"verdict\":{\"kind\":\"loader-bound\",\"stage\":\"collate\",\"worker\":1,"
                "\"cores_short\":false,\"lost_s\":1.5,\"text\":\"loader-bound: so\"}");
    outcome.verdict.worker = VERDICT_NO_WORKER;
    assert_says(report("run", true, &outcome), "\"stage\":\"collate\",\"worker\":null,");
    outcome.verdict.kind = VERDICT_HEALTHY;
    assert_says(report("run", true, &outcome), "\"stage\":null,\"worker\":null,");
    outcome.has_verdict = false;
    assert_null(strstr(report("run", false, &outcome), "verdict"));
    assert_says(report("run", true, &outcome), "\"verdict\":null");
    assert_null(strstr(report("check", true, &outcome), "verdict"));
    outcome_deinit(&outcome);
}
