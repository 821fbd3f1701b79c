#include "daemon/worker/python/worker_env.h"

static const struct data_env worker_env_none;
static const struct data_env *worker_env_now = &worker_env_none;

void worker_env_set(const struct data_env *env)
{
    worker_env_now = env ? env : &worker_env_none;
}

const struct data_env *worker_env(void)
{
    return worker_env_now;
}
