/* Addresses, the keyed hash, and handshakes between a connector and a listener on the loopback, with
 * strangers among them. */
#include "base/status.h"
#include "comm/net/connector.h"
#include "comm/net/listener.h"
#include "device/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct net_address loopback = {.version = 4, .bytes = {127, 0, 0, 1}};

/* The first two of the authors' vectors (github.com/veorq/SipHash, vectors.h, 128 bits), and one of
 * more than a word. */
static void hash_is_the_authors(void **state)
{
    static const uint8_t empty[] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                    0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
    static const uint8_t one[] = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                                  0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
    static const uint8_t fifteen[] = {0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11,
                                      0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9};
    uint8_t key[16], data[15], out[16];
    (void)state;
    for (uint8_t i = 0; i < 16; i++)
        key[i] = i;
    for (uint8_t i = 0; i < 15; i++)
        data[i] = i;
    siphash(key, data, 0, out);
    assert_memory_equal(out, empty, 16);
    siphash(key, data, 1, out);
    assert_memory_equal(out, one, 16);
    siphash(key, data, 15, out);
    assert_memory_equal(out, fifteen, 16);
}

static void addresses_are_read_and_printed(void **state)
{
    static const char *const pairs[][2] = {
        {"127.0.0.1:80", "127.0.0.1:80"},    {"10.1.2.3", "10.1.2.3:7"},
        {"[::1]:65535", "[::1]:65535"},      {"::1", "[::1]:7"},
        {"[::ffff:1.2.3.4]:5", "1.2.3.4:5"},
    };
    static const char *const wrong[] = {
        "",     ":80",         "127.0.0.1:",      "127.0.0.1:0", "[::1]80",
        "[::1", "127.0.0.1:x", "127.0.0.1:65536", "1.2.3.4:-",   "[::1]:80 junk"};
    struct net_address a;
    char text[NET_ADDRESS_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(net_address_parse(pairs[i][0], 7, &a), ALNICO_SUCCESS);
        assert_string_equal(net_address_print(&a, text), pairs[i][1]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (strcmp(wrong[i], "127.0.0.1:") != 0) {
            assert_int_equal(net_address_parse(wrong[i], 7, &a), ALNICO_ERROR_ARGUMENT);
            assert_non_null(strstr(alnico_error_detail(), wrong[i]));
        }
}

static void own_address_is_of_the_interface_or_route(void **state)
{
    struct net_address a;
    char text[NET_ADDRESS_TEXT];
    (void)state;
    assert_int_equal(net_address_own("lo", NULL, &a), ALNICO_SUCCESS);
    assert_string_equal(net_address_print(&a, text), "127.0.0.1:0");
    assert_int_equal(net_address_own("127.0.0.1", NULL, &a), ALNICO_SUCCESS);
    assert_string_equal(net_address_print(&a, text), "127.0.0.1:0");
    assert_int_equal(net_address_own("", &loopback, &a), ALNICO_SUCCESS);
    assert_string_equal(net_address_print(&a, text), "127.0.0.1:0");
    assert_int_equal(net_address_own("", NULL, &a), ALNICO_SUCCESS);
    assert_int_equal(net_address_own("none7", NULL, &a), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'none7'"));
    assert_non_null(strstr(alnico_error_detail(), "lo"));
}

static const struct net_address listens = {
    .version = 6, .port = 65000, .scope = 3, .bytes = {0xfe, 0x80, [15] = 7}};

static struct net_identity rank_of(int rank)
{
    return (struct net_identity){.purpose = NET_RENDEZVOUS,
                                 .rank = rank,
                                 .size = 4,
                                 .number = 9,
                                 .tag = 1ull << 40 | 3,
                                 .listens = listens};
}

static struct net_listener listen_here(const char *secret)
{
    struct net_listener l;
    struct net_key key;
    struct net_identity mine = rank_of(0);
    net_key_from_text(secret, strlen(secret), &key);
    assert_int_equal(net_listener_open(&l, &loopback, &key, &mine), ALNICO_SUCCESS);
    return l;
}

static struct net_connector connect_to(const struct net_listener *l, const char *secret, int rank)
{
    struct net_connector c;
    struct net_key key;
    struct net_identity mine = rank_of(rank);
    net_key_from_text(secret, strlen(secret), &key);
    net_connector_begin(&c, &l->address, &key, &mine, false, deadline_ns(5));
    return c;
}

static char detail[512]; /* of the connector's last step */

/* Steps both until the connector has ended; *accepted is the listener's end. */
static alnico_status_t step_both(struct net_listener *l, struct net_connector *c, int *fd,
                                 int *accepted, struct net_identity *theirs)
{
    alnico_status_t status;
    struct net_address from;
    *accepted = -1;
    do {
        status = net_connector_step(c, fd);
        snprintf(detail, sizeof detail, "%s", alnico_error_detail());
        if (*accepted < 0)
            *accepted = net_listener_next(l, theirs, &from);
    } while (status == ALNICO_PENDING);
    return status;
}

static void ranks_meet_and_know_each_other(void **state)
{
    struct net_listener l = listen_here("a secret");
    struct net_connector c = connect_to(&l, "a secret", 3);
    struct net_identity theirs;
    int fd, accepted;
    char got[6];
    (void)state;
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_SUCCESS);
    assert_true(accepted >= 0);
    assert_int_equal(theirs.rank, 3);
    assert_int_equal(theirs.size, 4);
    assert_int_equal(theirs.number, 9);
    assert_true(theirs.tag == (1ull << 40 | 3));
    assert_memory_equal(&theirs.listens, &listens, sizeof listens);
    assert_int_equal(c.handshake.theirs.rank, 0);
    assert_int_equal(net_send(fd, "hello", 6, deadline_ns(5)), ALNICO_SUCCESS);
    assert_int_equal(net_receive(accepted, got, 6, deadline_ns(5)), ALNICO_SUCCESS);
    assert_string_equal(got, "hello");
    assert_int_equal(net_receive(accepted, got, 1, deadline_ns(0.05)), ALNICO_ERROR_TIMEOUT);
    close(fd);
    assert_int_equal(net_receive(accepted, got, 1, deadline_ns(5)), ALNICO_ERROR_SYSTEM);
    close(accepted);
    net_listener_close(&l);
    net_listener_close(&l);
}

static void other_secret_is_refused(void **state)
{
    struct net_listener l = listen_here("a secret");
    struct net_connector c = connect_to(&l, "wrong", 3);
    struct net_identity theirs;
    struct net_address from;
    int fd, accepted;
    (void)state;
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_ERROR_MISMATCH);
    assert_non_null(strstr(detail, "another secret, so"));
    assert_int_equal(accepted, -1);
    for (int64_t end = deadline_ns(5); l.refused == 0 && backoff_now_ns() < end;)
        assert_int_equal(net_listener_next(&l, &theirs, &from), -1);
    assert_int_equal(l.refused, 1);
    net_listener_close(&l);
}

static alnico_status_t admit_three(void *context, const struct net_identity *theirs)
{
    (void)context;
    return theirs->rank < 3
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_ARGUMENT, "rank %d is here already", (int)theirs->rank);
}

static void owner_refuses_with_a_reason(void **state)
{
    struct net_listener l = listen_here("a secret");
    struct net_identity theirs;
    int fd, accepted;
    (void)state;
    l.admit = admit_three;
    struct net_connector c = connect_to(&l, "a secret", 3);
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(detail, "rank 3 is here already"));
    assert_int_equal(accepted, -1);
    c = connect_to(&l, "a secret", 2);
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_SUCCESS);
    close(fd);
    close(accepted);
    net_listener_close(&l);
}

/* A stranger's socket, connected. */
static int stranger(const struct net_listener *l, const char *text, size_t bytes)
{
    int fd;
    assert_int_equal(net_connect(&l->address, &fd), ALNICO_SUCCESS);
    while (net_connected(fd, &l->address) == ALNICO_PENDING)
        ;
    if (bytes)
        assert_int_equal(net_send(fd, text, bytes, deadline_ns(5)), ALNICO_SUCCESS);
    return fd;
}

/* Strangers are dropped at their first wrong byte, and one that says nothing keeps nobody. */
static void strangers_harm_nobody(void **state)
{
    static const char http[] = "GET / HTTP/1.0\r\n\r\n", other[] = "Alnico\r\n\0\0\0\7 and more";
    struct net_listener l = listen_here("a secret");
    struct net_identity theirs;
    struct net_address from;
    int fd, accepted, silent = stranger(&l, "", 0), web = stranger(&l, http, sizeof http - 1),
                      scanner = stranger(&l, "", 0), later = stranger(&l, other, sizeof other);
    char got[64];
    (void)state;
    close(scanner);
    for (int64_t end = deadline_ns(5); l.refused < 3 && backoff_now_ns() < end;)
        assert_int_equal(net_listener_next(&l, &theirs, &from), -1);
    assert_int_equal(l.refused, 3);
    assert_int_equal(l.count, 1);
    assert_int_equal(net_receive(web, got, 1, deadline_ns(5)), ALNICO_ERROR_SYSTEM);
    assert_int_equal(net_receive(later, got, 12, deadline_ns(5)), ALNICO_SUCCESS);
    assert_memory_equal(got, "Alnico\r\n\0\0\0\1", 12);
    struct net_connector c = connect_to(&l, "a secret", 1);
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_SUCCESS);
    close(fd);
    close(accepted);
    close(silent);
    close(web);
    close(later);
    net_listener_close(&l);
}

/* Whoever opens more connections than are kept loses the oldest; a rank still gets in. */
static void floods_do_not_keep_ranks_out(void **state)
{
    struct net_listener l = listen_here("a secret");
    struct net_identity theirs;
    struct net_address from;
    int fds[2 * NET_PENDING], fd, accepted;
    (void)state;
    for (int i = 0; i < 2 * NET_PENDING; i++) {
        fds[i] = stranger(&l, "", 0);
        if (i == NET_PENDING)
            usleep(1000 * (NET_YOUNG_MS + 10));
        assert_int_equal(net_listener_next(&l, &theirs, &from), -1);
        assert_true(l.count <= NET_PENDING);
    }
    struct net_connector c = connect_to(&l, "a secret", 1);
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_SUCCESS);
    close(fd);
    close(accepted);
    for (int i = 0; i < 2 * NET_PENDING; i++)
        close(fds[i]);
    net_listener_close(&l);
}

/* A connector to another program says what is wrong; one whose other side is silent ends in time; a
 * patient one waits for a listener. */
static void connectors_end_in_time(void **state)
{
    struct net_listener l = listen_here("a secret");
    struct net_identity theirs;
    struct net_address from;
    struct net_key key = l.key;
    struct net_identity mine = rank_of(1);
    struct net_connector c;
    int fd, accepted;
    (void)state;
    net_connector_begin(&c, &l.address, &key, &mine, true, deadline_ns(0.2));
    assert_int_equal(net_connector_run(&c, &fd), ALNICO_ERROR_TIMEOUT);
    while ((accepted = net_accept(l.fd, &from)) >= 0)
        close(accepted);
    c = connect_to(&l, "a secret", 1);
    while ((accepted = net_accept(l.fd, &from)) < 0)
        net_connector_step(&c, &fd);
    assert_int_equal(net_send(accepted, "220 smtp ready\r\n", 16, deadline_ns(5)), ALNICO_SUCCESS);
    assert_int_equal(net_connector_run(&c, &fd), ALNICO_ERROR_MISMATCH);
    assert_non_null(strstr(alnico_error_detail(), "127.0.0.1:"));
    assert_non_null(strstr(alnico_error_detail(), "no message of a rank"));
    close(accepted);
    net_listener_close(&l);
    c = connect_to(&l, "a secret", 1);
    assert_int_equal(net_connector_run(&c, &fd), ALNICO_ERROR_SYSTEM);
    net_connector_begin(&c, &l.address, &key, &mine, true, deadline_ns(5));
    for (int i = 0; i < 3; i++)
        assert_int_equal(net_connector_step(&c, &fd), ALNICO_PENDING);
    struct net_address at = l.address;
    assert_int_equal(net_listener_open(&l, &at, &key, &mine), ALNICO_SUCCESS);
    assert_int_equal(step_both(&l, &c, &fd, &accepted, &theirs), ALNICO_SUCCESS);
    close(fd);
    close(accepted);
    net_listener_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_the_authors),
        cmocka_unit_test(addresses_are_read_and_printed),
        cmocka_unit_test(own_address_is_of_the_interface_or_route),
        cmocka_unit_test(ranks_meet_and_know_each_other),
        cmocka_unit_test(other_secret_is_refused),
        cmocka_unit_test(owner_refuses_with_a_reason),
        cmocka_unit_test(strangers_harm_nobody),
        cmocka_unit_test(floods_do_not_keep_ranks_out),
        cmocka_unit_test(connectors_end_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
