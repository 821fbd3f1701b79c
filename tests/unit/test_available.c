/* What the kernel leaves to be taken: by files of a machine that is not there, and of this one. */
#include "daemon/base/available.h"
#include "daemon/base/processors.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static int machines;
static char machine[256];

/* A machine without groups: what was free, of 64 GiB. */
static void put(const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof path, "%s%s", machine, name);
    for (char *at = path + strlen(machine) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_number(const char *name, uint64_t n)
{
    char text[32];

    snprintf(text, sizeof text, "%llu\n", (unsigned long long)n);
    put(name, text);
}

static void new_machine(void)
{
    snprintf(machine, sizeof machine, "%s/machine-%d", harness_tmpdir(), machines++);
    assert_int_equal(mkdir(machine, 0700), 0);
    put("/proc/meminfo",
        "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   50331648 kB\n");
    put("/proc/self/mountinfo",
        "22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw\n"
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /v1 rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "33 31 0:30 / /cpu rw,relatime shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 / /v2 rw,relatime - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n");
}

static struct available look(void)
{
    struct available a;

    available_read(machine, &a);
    return a;
}

static void expect(uint64_t bytes, const char *place)
{
    struct available a = look();
    char path[512];

    snprintf(path, sizeof path, "%s%s", *place == '/' ? machine : "", place);
    assert_string_equal(a.place, path);
    assert_int_equal(a.bytes, bytes);
    assert_true(a.pressure || a.bytes + a.used + a.reserve == a.limit);
}

TEST(test_a_machine_without_groups)
{
    new_machine();
    expect(48 * GIB - GIB, "MemAvailable of /proc/meminfo");
    assert_int_equal(look().total, 64 * GIB);
    put("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 131072 kB\n");
    expect(64 * MIB, "MemAvailable of /proc/meminfo"); /* a sixteenth is kept */
    put("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 60000 kB\n");
    assert_int_equal(look().bytes, 0);
}

TEST(test_a_machine_that_says_nothing)
{
    new_machine();
    put("/proc/meminfo", "");
    put("/proc/self/mountinfo", "");
    put("/proc/self/cgroup", "nonsense\n4:memory:/a\n\n0::/b\n");
    assert_int_equal(look().bytes, UINT64_MAX);
    assert_string_equal(look().place, "");
}

TEST(test_groups_of_v2)
{
    new_machine();
    put("/proc/self/cgroup", "1:cpu,cpuacct:/x\n0::/a/b\n");
    put("/v2/a/memory.max", "max\n");
    put("/v2/a/memory.high", "max\n");
    put_number("/v2/a/memory.current", 8 * GIB);
    put("/v2/a/b/memory.max", "max\n");
    put_number("/v2/a/b/memory.current", 8 * GIB);
    expect(47 * GIB, "MemAvailable of /proc/meminfo");

    put_number("/v2/a/b/memory.max", GIB);
    put_number("/v2/a/b/memory.current", 500 * MIB);
    expect(460 * MIB, "/v2/a/b/memory.max"); /* 1024 - 500 - 64 */
    assert_int_equal(look().total, GIB);
    put("/v2/a/b/memory.stat", "anon 1\ninactive_file 104857600\nactive_file 20971520\nfile 7\n");
    expect(570 * MIB, "/v2/a/b/memory.max");

    put_number("/v2/a/memory.high", 256 * MIB); /* above it, and it is not much */
    put_number("/v2/a/memory.current", 200 * MIB);
    expect(40 * MIB, "/v2/a/memory.high");
    put_number("/v2/a/memory.current", 300 * MIB);
    assert_int_equal(look().bytes, 0);
}

TEST(test_groups_of_v1)
{
    new_machine();
    put("/proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/a/b/\n0::/\n");
    put("/v1/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/v1/memory.usage_in_bytes", 20 * GIB);
    put_number("/v1/a/memory.limit_in_bytes", 60 * MIB);
    put_number("/v1/a/memory.usage_in_bytes", 30 * MIB);
    expect(22 * MIB, "/v1/a/memory.limit_in_bytes");
    put("/v1/a/memory.stat",
        "inactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
    expect(32 * MIB, "/v1/a/memory.limit_in_bytes");
    put_number("/v1/a/b/memory.limit_in_bytes", 59 * MIB);
    put_number("/v1/a/b/memory.usage_in_bytes", 29 * MIB);
    expect(22 * MIB, "/v1/a/b/memory.limit_in_bytes");
}

/* In a container: what is mounted is the container's group, or the name space's. */
TEST(test_what_is_seen_of_the_groups)
{
    new_machine();
    put("/proc/self/mountinfo", "34 31 0:31 /docker/1 /v2 rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/docker/1/in\n");
    put_number("/v2/memory.max", GIB);
    put_number("/v2/memory.current", 0);
    expect(960 * MIB, "/v2/memory.max");
    put_number("/v2/in/memory.max", 512 * MIB);
    put_number("/v2/in/memory.current", 0);
    expect(480 * MIB, "/v2/in/memory.max");
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    expect(960 * MIB, "/v2/memory.max");
    put("/proc/self/cgroup", "0::/else\n");
    expect(960 * MIB, "/v2/memory.max");
}

TEST(test_pressure)
{
    new_machine();
    put("/proc/pressure/memory",
        "some avg10=39.99 avg60=90.00 avg300=0 total=1\nfull avg10=50.00\n");
    expect(47 * GIB, "MemAvailable of /proc/meminfo");
    put("/proc/pressure/memory", "some avg10=40.00 avg60=0.00 avg300=0 total=1\n");
    expect(0, "/proc/pressure/memory");
    assert_int_equal(look().pressure, 40);
    put("/proc/self/cgroup", "0::/a\n");
    put("/v2/a/memory.pressure", "some avg10=77.10 avg60=0.00 avg300=0 total=1\n");
    expect(0, "/v2/a/memory.pressure"); /* the nearest */
    assert_int_equal(look().pressure, 77);
}

/* Above what this process may use nothing is allowed. */
static void expect_processors(double most)
{
    double all = processors_read("/nowhere"), cpus = processors_read(machine);

    assert_true(all >= 1 && cpus > 0);
    assert_true(cpus == (most < all ? most : all));
}

TEST(test_processors)
{
    new_machine();
    expect_processors(4096);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/v2/a/b/cpu.max", "max 100000\n");
    expect_processors(4096);
    put("/v2/a/cpu.max", "50000 100000\n");
    expect_processors(0.5);
    put("/v2/a/b/cpu.max", "20000 80000\n");
    expect_processors(0.25);
    put("/proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/a\n");
    put("/cpu/x/cpu.cfs_quota_us", "-1\n");
    put("/cpu/x/cpu.cfs_period_us", "100000\n");
    expect_processors(4096);
    put("/cpu/x/cpu.cfs_quota_us", "75000\n");
    expect_processors(0.75);
}

TEST(test_this_machine)
{
    struct available a;

    available_read("", &a);
    assert_true(a.total > MIB && a.total < UINT64_MAX);
    assert_true(a.bytes < a.total);
    assert_true(*a.place != '\0');
}
