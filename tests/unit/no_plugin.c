/* A shared library, but no plug-in. */
int no_plugin_at_all(void);

int no_plugin_at_all(void)
{
    return 0;
}
