/* The handshake's four messages. All numbers travel in the network's order. */
#include "comm/net/handshake.h"

#include "base/status.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { MAGIC = 8, NONCE = 24, PROOF = SIPHASH_BYTES, ANSWER = NET_OPENING + PROOF, TEXT = 124 };
enum { OPENING_PHASE, ANSWER_PHASE, PROOF_PHASE, VERDICT_PHASE, PHASES };

static const char magic[MAGIC] = {'A', 'l', 'n', 'i', 'c', 'o', '\r', '\n'};
static const size_t phase_bytes[PHASES] = {NET_OPENING, ANSWER, PROOF, NET_VERDICT};

static char *put32(char *to, uint32_t value)
{
    value = htobe32(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint32_t get32(const char *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return be32toh(value);
}

static alnico_status_t fill_random(void *out, size_t bytes)
{
    if (getrandom(out, bytes, 0) == (ssize_t)bytes)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "getrandom: %s", strerror(errno));
}

alnico_status_t net_key_create(struct net_key *out)
{
    return fill_random(out->bytes, sizeof out->bytes);
}

void net_key_from_text(const char *text, size_t bytes, struct net_key *out)
{
    static const uint8_t zero[SIPHASH_BYTES];
    siphash(zero, text, bytes, out->bytes);
}

void net_key_derive(const struct net_key *key, const struct net_key *salt, struct net_key *out)
{
    static const char label[] = "alnico: key from key and salt";
    char text[sizeof label + sizeof salt->bytes];
    uint8_t hash[SIPHASH_BYTES];
    memcpy(text, label, sizeof label);
    memcpy(text + sizeof label, salt->bytes, sizeof salt->bytes);
    siphash(key->bytes, text, sizeof text, hash);
    memcpy(out->bytes, hash, sizeof out->bytes);
}

/* magic 8, version 4, purpose 4, rank 4, size 4, number 4, tag 8, address 24, zeros 4, random 24. */
static alnico_status_t write_opening(const struct net_identity *mine, char out[NET_OPENING])
{
    char *to = out;
    memset(out, 0, NET_OPENING);
    memcpy(to, magic, MAGIC);
    to = put32(to + MAGIC, NET_VERSION);
    to = put32(to, mine->purpose);
    to = put32(to, (uint32_t)mine->rank);
    to = put32(to, (uint32_t)mine->size);
    to = put32(to, mine->number);
    to = put32(to, (uint32_t)(mine->tag >> 32));
    to = put32(to, (uint32_t)mine->tag);
    to = put32(to, (uint32_t)mine->listens.version << 16 | mine->listens.port);
    to = put32(to, mine->listens.scope);
    memcpy(to, mine->listens.bytes, sizeof mine->listens.bytes);
    return fill_random(out + NET_OPENING - NONCE, NONCE);
}

static void read_opening(const char *from, struct net_identity *out)
{
    from += MAGIC + 4;
    out->purpose = get32(from);
    out->rank = (int32_t)get32(from + 4);
    out->size = (int32_t)get32(from + 8);
    out->number = get32(from + 12);
    out->tag = (uint64_t)get32(from + 16) << 32 | get32(from + 20);
    out->listens = (struct net_address){.version = (uint8_t)(get32(from + 24) >> 16),
                                        .port = (uint16_t)get32(from + 24),
                                        .scope = get32(from + 28)};
    memcpy(out->listens.bytes, from + 32, sizeof out->listens.bytes);
}

/* What a side proves: that it has the key and saw both openings. `side` keeps one side's proof from
 * being the other's. */
static void prove(const struct net_handshake *h, char side, char out[PROOF])
{
    char text[1 + sizeof h->openings];
    uint8_t hash[SIPHASH_BYTES];
    text[0] = side;
    memcpy(text + 1, h->openings, sizeof h->openings);
    siphash(h->key->bytes, text, sizeof text, hash);
    memcpy(out, hash, PROOF);
}

/* In a time that does not tell how much is alike. */
static bool is_proof(const struct net_handshake *h, char side, const char *given)
{
    char right[PROOF];
    unsigned char differs = 0;
    prove(h, side, right);
    for (int i = 0; i < PROOF; i++)
        differs |= (unsigned char)(right[i] ^ given[i]);
    return !differs;
}

alnico_status_t net_handshake_begin(struct net_handshake *h, int fd, bool connects,
                                    const struct net_key *key, const struct net_identity *mine,
                                    const struct net_address *address)
{
    *h = (struct net_handshake){
        .fd = fd, .connects = connects, .key = key, .address = *address, .mine = *mine};
    TRY(write_opening(mine, h->openings[!connects]));
    memcpy(h->buffer, h->openings[0], NET_OPENING);
    return ALNICO_SUCCESS;
}

static bool sends(const struct net_handshake *h)
{
    return h->connects == (h->phase % 2 == 0);
}

short net_handshake_events(const struct net_handshake *h)
{
    return sends(h) ? POLLOUT : POLLIN;
}

/* As soon as there are bytes of an opening: a stranger may send fewer than one has, and wait. */
static alnico_status_t check_beginning(const struct net_handshake *h, size_t got)
{
    if (memcmp(h->buffer, magic, got < MAGIC ? got : MAGIC) != 0)
        return error_set(ALNICO_ERROR_MISMATCH, "what it sent is no message of a rank");
    if (got >= MAGIC + 4 && get32(h->buffer + MAGIC) != NET_VERSION)
        return error_set(ALNICO_ERROR_MISMATCH, "it speaks version %u of the protocol, expected %d",
                         (unsigned)get32(h->buffer + MAGIC), NET_VERSION);
    return ALNICO_SUCCESS;
}

/* After the first two phases: who the other side says that it is. */
static alnico_status_t check_identity(const struct net_identity *mine,
                                      const struct net_identity *theirs)
{
    if (theirs->purpose != mine->purpose)
        return error_set(ALNICO_ERROR_MISMATCH, "it came for purpose %u, expected %u",
                         (unsigned)theirs->purpose, (unsigned)mine->purpose);
    return ALNICO_SUCCESS;
}

/* A listener answers one of another version too, so that that one can say so. */
static alnico_status_t end_opening(struct net_handshake *h)
{
    if (h->connects)
        return ALNICO_SUCCESS;
    memcpy(h->openings[0], h->buffer, NET_OPENING);
    read_opening(h->buffer, &h->theirs);
    TRY(check_identity(&h->mine, &h->theirs));
    memcpy(h->buffer, h->openings[1], NET_OPENING);
    prove(h, 'L', h->buffer + NET_OPENING);
    return ALNICO_SUCCESS;
}

static alnico_status_t end_answer(struct net_handshake *h)
{
    if (!h->connects)
        return ALNICO_SUCCESS;
    memcpy(h->openings[1], h->buffer, NET_OPENING);
    read_opening(h->buffer, &h->theirs);
    TRY(check_identity(&h->mine, &h->theirs));
    if (!is_proof(h, 'L', h->buffer + NET_OPENING))
        return error_set(ALNICO_ERROR_MISMATCH, "it has another secret, so it is of another job");
    prove(h, 'C', h->buffer);
    return ALNICO_SUCCESS;
}

static void write_verdict(struct net_handshake *h)
{
    memset(h->buffer, 0, NET_VERDICT);
    put32(h->buffer, (uint32_t)h->verdict);
    if (h->verdict != ALNICO_SUCCESS)
        snprintf(h->buffer + 4, TEXT, "%s", alnico_error_detail());
}

static alnico_status_t end_proof(struct net_handshake *h, net_admit *admit, void *context)
{
    if (h->connects)
        return ALNICO_SUCCESS;
    if (!is_proof(h, 'C', h->buffer))
        return error_set(ALNICO_ERROR_MISMATCH, "it has another secret, so it is of another job");
    h->verdict = admit ? admit(context, &h->theirs) : ALNICO_SUCCESS;
    write_verdict(h);
    return ALNICO_SUCCESS;
}

/* The other side is proven, but a status that none is must not become ours. */
static alnico_status_t end_verdict(struct net_handshake *h)
{
    int32_t status = (int32_t)get32(h->buffer);
    if (!h->connects && h->verdict != ALNICO_SUCCESS)
        return error_set(h->verdict, "%s", h->buffer + 4);
    if (status == ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    bool known = status < 0 && status >= ALNICO_ERROR_SYSTEM;
    return error_set(known ? (alnico_status_t)status : ALNICO_ERROR_MISMATCH, "%.*s", TEXT - 1,
                     h->buffer + 4);
}

static alnico_status_t end_phase(struct net_handshake *h, net_admit *admit, void *context)
{
    switch (h->phase) {
    case OPENING_PHASE:
        return end_opening(h);
    case ANSWER_PHASE:
        return end_answer(h);
    case PROOF_PHASE:
        return end_proof(h, admit, context);
    default:
        return end_verdict(h);
    }
}

/* The bytes of one phase. */
static alnico_status_t move(struct net_handshake *h)
{
    size_t bytes = phase_bytes[h->phase];
    if (!h->moving)
        h->left = bytes;
    h->moving = true;
    char *at = h->buffer + bytes - h->left;
    const char *from = at;
    if (sends(h))
        return net_send_some(h->fd, &from, &h->left);
    alnico_status_t status = net_receive_some(h->fd, &at, &h->left);
    if (h->phase <= ANSWER_PHASE && (status == ALNICO_PENDING || status == ALNICO_SUCCESS))
        TRY(check_beginning(h, bytes - h->left));
    return status;
}

/* Another version may have other messages behind its first twelve bytes; it is told ours. What it has
 * sent is read before, since the system throws an answer away where that is not. */
static void tell_version(struct net_handshake *h)
{
    size_t bytes = NET_OPENING, rest = h->left;
    const char *from = h->openings[1];
    char *to = h->buffer + NET_OPENING - h->left;
    if (NET_OPENING - h->left < MAGIC + 4 || memcmp(h->buffer, magic, MAGIC) != 0)
        return;
    net_receive_some(h->fd, &to, &rest);
    net_send_some(h->fd, &from, &bytes);
}

static alnico_status_t refuse(struct net_handshake *h, alnico_status_t status)
{
    char why[256];
    snprintf(why, sizeof why, "%s", alnico_error_detail());
    if (!h->connects && h->phase == OPENING_PHASE)
        tell_version(h);
    if (!h->connects && h->phase == PROOF_PHASE && status == ALNICO_ERROR_SYSTEM)
        return error_set(status, "it did not prove the job's secret: %s", why);
    return error_set(status, "%s", why);
}

alnico_status_t net_handshake_step(struct net_handshake *h, net_admit *admit, void *context)
{
    while (h->phase < PHASES) {
        alnico_status_t status = move(h);
        if (status == ALNICO_PENDING)
            return status;
        if (status == ALNICO_SUCCESS)
            status = end_phase(h, admit, context);
        if (status != ALNICO_SUCCESS)
            return refuse(h, status);
        h->moving = false;
        h->phase++;
    }
    return ALNICO_SUCCESS;
}
