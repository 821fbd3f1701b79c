/*
 * What daemon/cluster/world has around it, by other names: its files are compiled with this, so
 * that world_around.c answers in place of libuv, of the store and of the rendezvous.
 */
#define uv_hrtime             around_hrtime
#define uv_timer_init         around_timer_init
#define uv_timer_start        around_timer_start
#define uv_timer_stop         around_timer_stop
#define uv_timer_get_due_in   around_timer_get_due_in
#define uv_is_active          around_is_active
#define uv_close              around_close
#define allgather_start       around_allgather_start
#define allgather_cancel      around_allgather_cancel
#define agree                 around_agree
#define agree_cancel          around_agree_cancel
#define member_new            around_member_new
#define member_free           around_member_free
#define member_replace        around_member_replace
#define member_join           around_member_join
#define member_ready          around_member_ready
#define member_leave          around_member_leave
#define member_close          around_member_close
#define member_list           around_member_list
#define member_state          around_member_state
#define member_id             around_member_id
#define member_beat_age       around_member_beat_age
#define member_look           around_member_look
#define member_looked_ns      around_member_looked_ns
#define member_read           around_member_read
#define member_read_ns        around_member_read_ns
#define member_wrote_ns       around_member_wrote_ns
#define members_backend_check around_backend_check
#define members_backend_move  around_backend_move
#define members_backend_open  around_backend_open
#define predecessor_open      around_predecessor_open
#define predecessor_forget    around_predecessor_forget
#define predecessor_close     around_predecessor_close
#define log_about             around_log_about
